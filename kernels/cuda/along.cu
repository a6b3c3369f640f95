/* along.cu - scatter of few updates: a thread has an element of the table, and looks through its
 * example's ids for those that are for it, in their order and without atomics.
 *
 * Limited by memory: the table is read and written once; an example's ids and updates are read once
 * for each of its elements, from cache, by threads that are mostly neighbours. Many updates go
 * through scatter.cu. */
#include "ids.cuh"

enum { THREADS = 256 };

/* walk: strides of y, x, ids and updates (0 along axes), and the number of the row. of_ids,
 * of_updates: along ids. zeros: there is no x. */
extern "C" __global__ void __launch_bounds__(THREADS)
    scatter_few(const char *x, const char *ids, const char *updates, char *y, Walk walk, i64 count,
                View of_ids, View of_updates, i64 n, i32 zeros, Axes axes, Fault fault) {
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x, at[5], bytes, line;
    if (i >= count) return;
    walk.offsets<5>(i, at);
    Sum sum = zeros ? Sum() : (Sum)widen(*(const TABLE *)(x + at[1]));
    for (i64 k = 0; k < n; k++)
        if (axes.find(ids + at[2] + of_ids.offset(k), &bytes, &line, fault) && line == at[4])
            sum =
                combine(sum, (Sum)widen(*(const UPDATE *)(updates + at[3] + of_updates.offset(k))));
    *(TABLE *)(y + at[0]) = narrow<TABLE>(sum);
}
