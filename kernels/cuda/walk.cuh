/* walk.cuh - the places of several operands at one row-major position of dims that they share;
 * walk.h has the host's side. */
#ifndef MESHLUA_CUDA_WALK_CUH
#define MESHLUA_CUDA_WALK_CUH

#include "device.cuh"

struct Walk {
    i64 dims[8], strides[5][8]; /* bytes, by operand */
    i32 rank;
    i32 small; /* there are fewer than 2^31 positions, so that 32 bits do for an index */

    /* Not unrolled: it would be the most of the code, of the registers, and of
     * the time to compile. */
    template <int N, class Index> DEVICE void divide(Index i, i64 *bytes) const {
#pragma unroll
        for (int k = 0; k < N; k++) bytes[k] = 0;
#pragma unroll 1
        for (int d = rank - 1; d >= 0; d--) {
            Index n = (Index)dims[d], next = d > 0 ? i / n : 0;
            i64 at = (i64)(i - next * n);
#pragma unroll
            for (int k = 0; k < N; k++) bytes[k] += at * strides[k][d];
            i = next;
        }
    }
    /* bytes[k]: from element 0 of operand k, of the first N, to the one at position i. */
    template <int N> DEVICE void offsets(i64 i, i64 *bytes) const {
        if (small)
            divide<N, u32>((u32)i, bytes);
        else
            divide<N, u64>((u64)i, bytes);
    }
};

#endif
