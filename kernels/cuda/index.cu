/* index.cu - gather, and scatter that sets. Both are limited by memory: an element that is taken,
 * or stays, or is set is read once and written once; ids are 4 bytes a row. */
#include "ids.cuh"
#include "move.cuh"

/* walk: strides of y, table and ids (0 along what follows a row). */
extern "C" __global__ void __launch_bounds__(THREADS)
    gather(const char *table, const char *ids, char *y, Walk walk, i64 count, Axes axes,
           Fault fault) {
    bool whole_y = is_whole(y), whole_table = is_whole(table);
    i64 first = first_unit(), at[EACH][3], from[EACH], line;
    bool here[EACH];
    Unit u[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS >= count) continue;
        walk.offsets<3>(first + k * THREADS, at[k]);
        here[k] = axes.find(ids + at[k][2], &from[k], &line, fault);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS >= count) continue;
        if (here[k])
            u[k] = get(table + at[k][1] + from[k], whole_table);
        else
            u[k] = repeat(Element());
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (first + k * THREADS < count) put(y + at[k][0], u[k], whole_y);
}

/* last[example][row] = the last place in the example's n ids that names the row; -1 before. */
extern "C" __global__ void __launch_bounds__(THREADS)
    find_last(const char *ids, i32 *last, Walk walk, i64 n, i64 examples, i64 rows, Axes axes,
              Fault fault) {
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x, at[1], bytes, line;
    if (i >= n * examples) return;
    walk.offsets<1>(i, at);
    if (axes.find(ids + at[0], &bytes, &line, fault))
        atomicMax(last + i / n * rows + line, (i32)(i % n));
}

/* walk: strides of y, x, updates (0 along axes) and `last`; place: of updates along ids. */
extern "C" __global__ void __launch_bounds__(THREADS)
    scatter_set(const char *x, const char *updates, const char *last, char *y, Walk walk, i64 count,
                View place) {
    bool whole_y = is_whole(y), whole_x = is_whole(x), whole_updates = is_whole(updates);
    i64 first = first_unit(), at[EACH][4];
    bool moved[EACH];
    Unit u[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        moved[k] = first + k * THREADS < count;
        if (!moved[k]) continue;
        walk.offsets<4>(first + k * THREADS, at[k]);
        i32 from = *(const i32 *)(last + at[k][3]);
        if (from >= 0)
            u[k] = get(updates + at[k][2] + place.offset(from), whole_updates);
        else if (x != y)
            u[k] = get(x + at[k][1], whole_x);
        else
            moved[k] = false;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (moved[k]) put(y + at[k][0], u[k], whole_y);
}
