/* along.cu - add_along_axis where lines have few updates: a thread has an element of the table, and
 * adds those of its line's updates that are for it, in the order of ids and without atomics.
 *
 * Limited by memory: the table is written once; a line's ids and updates are read once for each of
 * its elements, from cache, by threads that are mostly neighbours. Lines of many updates go through
 * scatter.cu. Compiled with TABLE and UPDATE, the types of their elements. */
#include "walk.cuh"

enum { THREADS = 256 };

typedef SumOf<Compute<UPDATE>>::type Sum;

/* Which elements of a line this device has: first .. first + rows - 1 of `size`. */
struct Rows { /* as in index.cu */
    i64 first, rows, size, stride;
};

/* walk: strides of table, ids and updates (0 along the axis), and the place along the axis. */
extern "C" __global__ void __launch_bounds__(THREADS)
    add_along(const char *ids, const char *updates, char *table, Walk walk, i64 count, i64 n,
              i64 id_stride, i64 update_stride, Rows rows, Fault fault) {
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x, at[4];
    if (i >= count) return;
    walk.offsets<4>(i, at);
    Sum sum = Sum();
    for (i64 k = 0; k < n; k++) {
        i32 id = *(const i32 *)(ids + at[1] + k * id_stride);
        if (id < 0 || id >= rows.size)
            fault.report(id, rows.size);
        else if (id - rows.first == at[3])
            sum += (Sum)widen(*(const UPDATE *)(updates + at[2] + k * update_stride));
    }
    *(TABLE *)(table + at[0]) = narrow<TABLE>(sum);
}
