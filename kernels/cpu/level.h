/* level.h - what every kernel file needs to be compiled once per level of the processor.
 *
 * The same sources are built as "default", "v3" and "v4" (kernel.h); a symbol that leaves its file
 * carries the level in its name. All levels give the same bits, so nothing here or in a kernel may
 * let a level choose another order of operations: a multiply-add that rounds once is k_fma, and a
 * sum is kept in a fixed number of lanes (lanes.h) that are combined in a fixed tree. */
#ifndef MESHLUA_CPU_LEVEL_H
#define MESHLUA_CPU_LEVEL_H

#include <string.h>
#include "kernel.h"

#define K_CAT2(a, b)   a##_##b
#define K_CAT(a, b)    K_CAT2(a, b)
#define K_SYM(name)    K_CAT(name, K_LEVEL)
#define K_ROWS(family) const KernelRow K_SYM(k_rows_##family)[]

/* The loop that follows reads and writes the same element of operands that are either the same
 * memory or disjoint. */
#ifdef __clang__
#    define K_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#    define K_IVDEP _Pragma("GCC ivdep")
#endif

#define K_INLINE static inline __attribute__((always_inline))

static inline int64_t k_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t k_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t k_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline uint32_t k_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float k_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline uint64_t k_bits64(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline double k_double(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* a * b + c, rounded once. Where the processor cannot do it: the product of two floats is exact in
 * double, and a sum rounded to odd there rounds right to float (Boldo and Melquiond 2008). */
K_INLINE float k_fma(float a, float b, float c) {
#if (defined(__x86_64__) || defined(__i386__)) && !defined(__FMA__)
    double p = (double)a * b, s = p + c, t = s - p;
    double e = (p - (s - t)) + (c - t); /* p + c = s + e; NaN if s is not finite */
    e = e == e ? e : 0.0;
    /* no comparison of 64-bit integers: this instruction set has none for vectors */
    uint64_t u = k_bits64(s), v = k_bits64(e), twice = v << 1;
    uint64_t step = (twice | (0 - twice)) >> 63 & ~u;
    uint64_t down = 0 - ((u ^ v) >> 63);
    return (float)k_double(u + ((step ^ down) - down));
#else
    return __builtin_fmaf(a, b, c);
#endif
}

static inline int64_t k_type_size(KType t) {
    return t == KT_F64 || t == KT_I64 || t == KT_U64 ? 8 : 4;
}

static inline int64_t k_count(const KTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->dims[d];
    return n;
}

/* The next multiple of 64 bytes at or after p: workspace is only aligned like malloc's. */
static inline char *k_align(void *p) {
    return (char *)(((uintptr_t)p + 63) & ~(uintptr_t)63);
}

#endif
