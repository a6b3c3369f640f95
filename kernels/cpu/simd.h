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

/* Transposes VEC x VEC: row j of the result is column j of the rows v. */
static inline void vec_transpose(Vec *v) {
#if defined(__AVX512F__)
    __m512d t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_castps_pd(_mm512_unpacklo_ps(v[i], v[i + 1]));
        t[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(v[i], v[i + 1]));
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            v[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(t[i + j], t[i + j + 2]));
            v[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(t[i + j], t[i + j + 2]));
        }
    for (int j = 0; j < 4; j++) { /* 4 x 4 blocks of 4 lanes */
        Vec a = _mm512_shuffle_f32x4(v[j], v[j + 4], 0x88);
        Vec b = _mm512_shuffle_f32x4(v[j], v[j + 4], 0xdd);
        Vec c = _mm512_shuffle_f32x4(v[j + 8], v[j + 12], 0x88);
        Vec d = _mm512_shuffle_f32x4(v[j + 8], v[j + 12], 0xdd);
        v[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        v[j + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        v[j + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        v[j + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
#elif defined(__AVX2__) && defined(__FMA__)
    __m256d t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_castps_pd(_mm256_unpacklo_ps(v[i], v[i + 1]));
        t[i + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(v[i], v[i + 1]));
    }
    for (int j = 0; j < 4; j++) {
        int i = j / 2, high = j % 2;
        __m256d a = high ? _mm256_unpackhi_pd(t[i], t[i + 2]) : _mm256_unpacklo_pd(t[i], t[i + 2]);
        __m256d b =
            high ? _mm256_unpackhi_pd(t[i + 4], t[i + 6]) : _mm256_unpacklo_pd(t[i + 4], t[i + 6]);
        v[j] = _mm256_castpd_ps(_mm256_permute2f128_pd(a, b, 0x20));
        v[j + 4] = _mm256_castpd_ps(_mm256_permute2f128_pd(a, b, 0x31));
    }
#else
    Vec a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
    Vec b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
    Vec c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    Vec d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
#endif
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
