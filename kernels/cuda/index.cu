/* index.cu - take and scatter_set. Both are limited by memory: an element that is taken, or stays,
 * or is set is read once and written once; ids are 4 bytes a row. */
#include "move.cuh"

/* Which rows of all this device has: first .. first + rows - 1 of `size`. */
struct Rows {
    i64 first, rows, size, stride; /* stride: of the table, in bytes */
};

/* walk: strides of y, table (0 along ids) and ids (0 along the rest). */
extern "C" __global__ void __launch_bounds__(THREADS)
    take(const char *table, const char *ids, char *y, Walk walk, i64 count, Rows rows,
         Fault fault) {
    bool whole_y = is_whole(y), whole_table = is_whole(table);
    i64 first = first_unit(), at[EACH][3];
    i32 id[EACH];
    Unit u[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS >= count) continue;
        walk.offsets<3>(first + k * THREADS, at[k]);
        id[k] = *(const i32 *)(ids + at[k][2]);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS >= count) continue;
        i64 row = id[k] - rows.first;
        bool exists = id[k] >= 0 && id[k] < rows.size;
        if (!exists) fault.report(id[k], rows.size);
        if (exists && row >= 0 && row < rows.rows)
            u[k] = get(table + at[k][1] + row * rows.stride, whole_table);
        else
            u[k] = repeat(Element());
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (first + k * THREADS < count) put(y + at[k][0], u[k], whole_y);
}

/* last[example][row] = the last place in the example's n ids that names the row; -1 before. */
extern "C" __global__ void __launch_bounds__(THREADS)
    find_last(const char *ids, i32 *last, Walk walk, i64 n, i64 examples, Rows rows, Fault fault) {
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x, at[1];
    if (i >= n * examples) return;
    walk.offsets<1>(i, at);
    i32 id = *(const i32 *)(ids + at[0]);
    i64 row = id - rows.first;
    if (id < 0 || id >= rows.size)
        fault.report(id, rows.size);
    else if (row >= 0 && row < rows.rows)
        atomicMax(last + i / n * rows.rows + row, (i32)(i % n));
}

/* walk: strides of y, x, updates (0 along rows) and `last`; place: of updates along ids. */
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
