/* threefry.cuh - Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), the generator of jax.random: bit for bit what the CPU's kernels compute. */
#ifndef MESHLUA_CUDA_THREEFRY_CUH
#define MESHLUA_CUDA_THREEFRY_CUH

#include "device.cuh"

template <int A, int B, int C, int D> DEVICE void threefry_rounds(u32 &x0, u32 &x1) {
    x0 += x1, x1 = (x1 << A | x1 >> (32 - A)) ^ x0;
    x0 += x1, x1 = (x1 << B | x1 >> (32 - B)) ^ x0;
    x0 += x1, x1 = (x1 << C | x1 >> (32 - C)) ^ x0;
    x0 += x1, x1 = (x1 << D | x1 >> (32 - D)) ^ x0;
}

/* o0 << 32 | o1 of (o0, o1) = threefry2x32(key = (k0, k1), counter = (c0, c1)) */
DEVICE u64 threefry2x32(u32 k0, u32 k1, u32 c0, u32 c1) {
    u32 k2 = k0 ^ k1 ^ 0x1bd11bdau, x0 = c0 + k0, x1 = c1 + k1;
    threefry_rounds<13, 15, 26, 6>(x0, x1);
    x0 += k1, x1 += k2 + 1u;
    threefry_rounds<17, 29, 16, 24>(x0, x1);
    x0 += k2, x1 += k0 + 2u;
    threefry_rounds<13, 15, 26, 6>(x0, x1);
    x0 += k0, x1 += k1 + 3u;
    threefry_rounds<17, 29, 16, 24>(x0, x1);
    x0 += k1, x1 += k2 + 4u;
    threefry_rounds<13, 15, 26, 6>(x0, x1);
    return (u64)(x0 + k2) << 32 | (x1 + k0 + 5u);
}

/* 64 and 32 random bits of element i of an array (JAX's partitionable scheme). */
DEVICE u64 random_u64(u32 k0, u32 k1, u64 i) {
    return threefry2x32(k0, k1, (u32)(i >> 32), (u32)i);
}
DEVICE u32 random_u32(u32 k0, u32 k1, u64 i) {
    u64 o = random_u64(k0, k1, i);
    return (u32)(o >> 32) ^ (u32)o;
}

#endif
