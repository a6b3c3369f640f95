/* dropout.cu - y = u < keep ? x / keep : 0, bit for bit as on the CPU (kernel.h).
 *
 * Limited by the generator, some ninety integer instructions an element: on an H200 that is about a
 * sixth of what its memory could do. y may alias x. */
#include "threefry.cuh"

typedef Compute<TYPE> Real;

struct Places { /* a parameter: of a vector's first element; the counter's strides are its own */
    View x, y, counter;
    u64 first, step; /* the counter of element 0; from one of a vector to the next */
};

extern "C" __global__ __launch_bounds__(256) void dropout(const TYPE *x, const u32 *key0,
                                                          const u32 *key1, TYPE *y, Places at,
                                                          i64 vectors, u32 below, double keep) {
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= vectors) return;
    const TYPE *from = at.x.at(x, i * VEC);
    TYPE *to = at.y.at(y, i * VEC);
    u64 counter = at.first + (u64)at.counter.offset(i * VEC);
    u32 k0 = *key0, k1 = *key1;
    bool aligned = is_aligned<VEC>(x) && is_aligned<VEC>(y);
    Vec<TYPE, VEC> v;
    if (aligned)
        v = load<VEC>(from);
    else
        for (int k = 0; k < VEC; k++) v.at[k] = from[k];
    Vec<Real, VEC> e = widen(v);
#pragma unroll
    for (int k = 0; k < VEC; k++) {
        bool kept = random_u32(k0, k1, counter + (u64)k * at.step) >> 9 < below;
        e.at[k] = kept ? e.at[k] / (Real)keep : (Real)0;
    }
    v = narrow<TYPE>(e);
    if (aligned)
        store<VEC>(to, v);
    else
        for (int k = 0; k < VEC; k++) to[k] = v.at[k];
}
