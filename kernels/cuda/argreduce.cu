/* argreduce.cu - argmax, argmin (kernel.h): a team of threads has an output, LANES neighbours of a
 * warp or a block. The first of equal elements wins, and the first NaN over all.
 *
 * Limited by memory where a row of x is contiguous, or where neighbouring outputs are and a thread
 * has one each: x is read once, an element at a time. */
#include "device.cuh"

typedef Compute<TYPE> Real;
typedef Pair<Real, i32> Best;

/* Whether m at i takes the place of the best so far. */
DEVICE bool beats(Real m, i32 i, const Best &best) {
    bool nan = m != m, other = best.a != best.a;
    if (nan || other) return nan && (!other || i < best.b);
    if (m == best.a) return i < best.b;
    return LARGEST ? m > best.a : m < best.a;
}
struct Better {
    DEVICE Best operator()(Best l, Best m) const { return beats(m.a, m.b, l) ? m : l; }
};

extern "C" __global__ __launch_bounds__(BLOCK) void argreduce(const TYPE *x, i32 *y, View kept,
                                                              View out, i64 outputs, i64 n,
                                                              i64 stride) {
    constexpr int size = LANES ? LANES : BLOCK;
    i64 o = (i64)blockIdx.x * (BLOCK / size) + threadIdx.x / size;
    int rank = threadIdx.x % size;
    const TYPE *row = kept.at(x, o < outputs ? o : 0);
    /* A thread without elements of its own has the first one, which changes nothing. */
    Best best = {widen(row[0]), 0};
    for (i64 i = rank; i < n; i += size) {
        Real m = widen(*bytes_on(row, i * stride));
        if (beats(m, (i32)i, best)) best = {m, (i32)i};
    }
    if constexpr (LANES)
        best = warp_reduce<size>(best, Better());
    else
        best = block_reduce(best, Better());
    if (o < outputs && rank == 0) *out.at(y, o) = best.b;
}
