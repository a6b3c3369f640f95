/* convert.h - floats of 8 and 16 bits to and from float32, and runs of elements of any dtype to and
 * from the type in which they are computed. Rounding is to nearest, ties to even. */
#ifndef MESHLUA_CPU_CONVERT_H
#define MESHLUA_CPU_CONVERT_H

#include "level.h"

/* The 16 bits travel in the low half of 32, which keeps loops over them in vectors of one width. */
K_INLINE float k_from_bf16(uint32_t h) {
    return k_float(h << 16);
}
K_INLINE uint32_t k_to_bf16(float x) {
    uint32_t u = k_bits(x);
    uint32_t r = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : r;
}

K_INLINE float k_from_f16(uint32_t h) {
    uint32_t a = h & 0x7fffu;
    uint32_t u = k_bits(k_float(a << 13) * 0x1p112f); /* exact, subnormals too */
    u |= a >= 0x7c00u ? 0x7f800000u : 0;
    return k_float(u | (h & 0x8000u) << 16);
}
K_INLINE uint32_t k_to_f16(float x) {
    uint32_t u = k_bits(x), a = u & 0x7fffffffu;
    uint32_t normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13;
    uint32_t small = k_bits(k_float(a) + 0.5f) - 0x3f000000u; /* the sum rounds at 2^-24 */
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r; /* 65520 and above */
    r = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x3ffu) : r;
    return r | (u >> 16 & 0x8000u);
}

/* 448 is the largest; what would be rounded to more, and the infinities, is NaN. */
K_INLINE float k_from_e4m3(uint32_t b) {
    uint32_t a = b & 0x7fu;
    uint32_t u = k_bits(k_float(a << 20) * 0x1p120f);
    u = a == 0x7fu ? 0x7fc00000u : u;
    return k_float(u | (b & 0x80u) << 24);
}
K_INLINE uint32_t k_to_e4m3(float x) {
    uint32_t u = k_bits(x), a = u & 0x7fffffffu;
    uint32_t normal = (a - 0x3c000000u + 0x7ffffu + (a >> 20 & 1)) >> 20;
    uint32_t small = k_bits(k_float(a) + 0x1p14f) - 0x46800000u; /* the sum rounds at 2^-9 */
    uint32_t r = a < 0x3c800000u ? small : normal;
    r = a > 0x43e80000u ? 0x7fu : r; /* above 464 */
    return r | (u >> 24 & 0x80u);
}

K_INLINE float k_from_e5m2(uint32_t b) {
    return k_from_f16(b << 8);
}
K_INLINE uint32_t k_to_e5m2(float x) {
    uint32_t u = k_bits(x), a = u & 0x7fffffffu;
    uint32_t normal = (a - 0x38000000u + 0xfffffu + (a >> 21 & 1)) >> 21;
    uint32_t small = k_bits(k_float(a) + 0x1p7f) - 0x43000000u; /* the sum rounds at 2^-16 */
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x47700000u ? 0x7cu : r; /* 61440 and above */
    r = a > 0x7f800000u ? 0x7eu : r;
    return r | (u >> 24 & 0x80u);
}

/* dst[i] = element at src + i * stride, for 0 <= i < n, in its register type */
typedef void KLoadFn(void *dst, const char *src, int64_t stride, int64_t n);
/* element at dst + i * stride = src[i] */
typedef void KStoreFn(char *dst, int64_t stride, const void *src, int64_t n);

#define k_load_fn  K_SYM(k_load_fn)
#define k_store_fn K_SYM(k_store_fn)
KLoadFn *k_load_fn(DType);
KStoreFn *k_store_fn(DType);

/* n elements of `size` bytes, ts and fs bytes apart, as they are. */
#define k_copy_run K_SYM(k_copy_run)
void k_copy_run(int64_t size, char *to, int64_t ts, const char *from, int64_t fs, int64_t n);

/* A dtype whose elements are what a register holds. */
static inline int k_dtype_native(DType t) {
    return k_dtype_size(t) >= 4;
}
/* The run itself when it is already contiguous in its register type, else buf filled with it. */
static inline const void *k_run_in(DType t, const char *src, int64_t stride, int64_t n, void *buf) {
    if (k_dtype_native(t) && (stride == k_dtype_size(t) || n == 1)) return src;
    k_load_fn(t)(buf, src, stride, n);
    return buf;
}
/* Where to write a run: in place if it is contiguous in its register type, else buf; k_run_done
 * then puts buf's elements where they belong. */
static inline void *k_run_out(DType t, char *dst, int64_t stride, int64_t n, void *buf) {
    return k_dtype_native(t) && (stride == k_dtype_size(t) || n == 1) ? dst : buf;
}
static inline void k_run_done(DType t, char *dst, int64_t stride, int64_t n, const void *buf) {
    if (k_run_out(t, dst, stride, n, NULL) == NULL) k_store_fn(t)(dst, stride, buf, n);
}

#endif
