/* threefry.h - Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC 2011), the generator of jax.random. */
#ifndef MESHLUA_CPU_THREEFRY_H
#define MESHLUA_CPU_THREEFRY_H

#include "level.h"

K_INLINE uint32_t k_rotl(uint32_t x, int r) {
    return x << r | x >> (32 - r);
}

#define K_THREEFRY_MIX(r) (x0 += x1, x1 = k_rotl(x1, r) ^ x0)

/* (o0, o1) = threefry2x32(key = (k0, k1), counter = (c0, c1)) */
K_INLINE void k_threefry(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1, uint32_t *o0,
                         uint32_t *o1) {
    uint32_t k2 = k0 ^ k1 ^ 0x1bd11bdau, x0 = c0 + k0, x1 = c1 + k1;
    K_THREEFRY_MIX(13), K_THREEFRY_MIX(15), K_THREEFRY_MIX(26), K_THREEFRY_MIX(6);
    x0 += k1, x1 += k2 + 1u;
    K_THREEFRY_MIX(17), K_THREEFRY_MIX(29), K_THREEFRY_MIX(16), K_THREEFRY_MIX(24);
    x0 += k2, x1 += k0 + 2u;
    K_THREEFRY_MIX(13), K_THREEFRY_MIX(15), K_THREEFRY_MIX(26), K_THREEFRY_MIX(6);
    x0 += k0, x1 += k1 + 3u;
    K_THREEFRY_MIX(17), K_THREEFRY_MIX(29), K_THREEFRY_MIX(16), K_THREEFRY_MIX(24);
    x0 += k1, x1 += k2 + 4u;
    K_THREEFRY_MIX(13), K_THREEFRY_MIX(15), K_THREEFRY_MIX(26), K_THREEFRY_MIX(6);
    *o0 = x0 + k2;
    *o1 = x1 + k0 + 5u;
}

/* 32 random bits of element i of an array, 0 <= i < 2^64 (JAX's partitionable scheme) */
K_INLINE uint32_t k_random_u32(uint32_t k0, uint32_t k1, uint64_t i) {
    uint32_t a, b;
    k_threefry(k0, k1, (uint32_t)(i >> 32), (uint32_t)i, &a, &b);
    return a ^ b;
}

/* What the 23 high bits of those that are kept, with probability `keep`, are below: the uniform
 * float32 that jax.random makes of them, bits / 2^23, is below keep. */
static inline uint32_t k_random_below(double keep) {
    float edge = (float)keep * 0x1p23f;
    return (uint32_t)edge + ((float)(uint32_t)edge < edge);
}

#endif
