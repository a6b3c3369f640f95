/* simd.h - the few vector operations that the inner loop of gemm.c is written in. */
#ifndef MESHLUA_CPU_SIMD_H
#define MESHLUA_CPU_SIMD_H

#include <string.h>

/* GEMM_ROWS x 2 vectors of results are kept in registers. */
#if defined(__AVX512F__)
#    include <immintrin.h>
typedef __m512 Vec;
#    define VEC       16
#    define GEMM_ROWS 8
static inline Vec vec_fma(Vec a, Vec b, Vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline Vec vec_all(float x) {
    return _mm512_set1_ps(x);
}
#elif defined(__AVX2__) && defined(__FMA__)
#    include <immintrin.h>
typedef __m256 Vec;
#    define VEC       8
#    define GEMM_ROWS 6
static inline Vec vec_fma(Vec a, Vec b, Vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline Vec vec_all(float x) {
    return _mm256_set1_ps(x);
}
#else
typedef float Vec __attribute__((vector_size(16)));
#    define VEC       4
#    define GEMM_ROWS 4
static inline Vec vec_fma(Vec a, Vec b, Vec c) {
#    if defined(__x86_64__) || defined(__i386__)
    return a * b + c;
#    else
    for (int i = 0; i < VEC; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#    endif
}
static inline Vec vec_all(float x) {
    return (Vec){x, x, x, x};
}
#endif

static inline Vec vec_load(const float *p) {
    Vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vec_store(float *p, Vec v) {
    memcpy(p, &v, sizeof v);
}

/* Transposes 4 x 4: to[j * ts + i] = from[i * fs + j] */
typedef float Quad __attribute__((vector_size(16)));
static inline void quad_transpose(float *to, int64_t ts, const float *from, int64_t fs) {
    Quad a, b, c, d;
    memcpy(&a, from, 16);
    memcpy(&b, from + fs, 16);
    memcpy(&c, from + 2 * fs, 16);
    memcpy(&d, from + 3 * fs, 16);
    Quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
         cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    Quad ef = __builtin_shufflevector(a, b, 2, 6, 3, 7),
         gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    c = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
    d = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
    memcpy(to, &a, 16);
    memcpy(to + ts, &b, 16);
    memcpy(to + 2 * ts, &c, 16);
    memcpy(to + 3 * ts, &d, 16);
}

#endif
