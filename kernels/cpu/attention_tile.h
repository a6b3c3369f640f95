/* attention_tile.h - the inner loops of attention: products of small tiles, and 2^x.
 *
 * Sixteen results lie side by side in lanes; a tile is rows of lanes. Each result is one chain of
 * multiply-adds, so its bits do not depend on the width of a vector (gemm.h). */
#ifndef MESHLUA_CPU_ATTENTION_TILE_H
#define MESHLUA_CPU_ATTENTION_TILE_H

#include "attention.h"
#include "simd.h"

/* STRIP rows of lanes are kept in registers. */
enum { VECS = LANES / VEC };
#if VEC == 16
enum { STRIP = 8 };
#elif VEC == 8
enum { STRIP = 4 };
#else
enum { STRIP = 2 };
#endif

typedef Vec Strip[STRIP][VECS];

K_INLINE void strip_clear(Strip acc) {
    for (int i = 0; i < STRIP; i++)
        for (int v = 0; v < VECS; v++) acc[i][v] = vec_all(0);
}

/* acc[i] += the sum over j < n of a[i rs + j cs] times the lanes at b + j ldb */
K_INLINE void strip_add(Strip acc, int64_t n, const float *a, int64_t rs, int64_t cs,
                        const float *b, int64_t ldb) {
    for (int64_t j = 0; j < n; j++, a += cs, b += ldb) {
        Vec lanes[VECS];
        for (int v = 0; v < VECS; v++) lanes[v] = vec_load(b + v * VEC);
        for (int i = 0; i < STRIP; i++)
            for (int v = 0; v < VECS; v++)
                acc[i][v] = vec_fma(vec_all(a[i * rs]), lanes[v], acc[i][v]);
    }
}

/* Rows of lanes `to`: row s = the sum over d of x[s][d] panel[d]. n is a multiple of LANES. */
static inline void tile_scores(float *to, int64_t n, int64_t depth, const float *x, int64_t row,
                               const float *panel) {
    for (int64_t s = 0; s < n; s += STRIP) {
        Strip acc;
        strip_clear(acc);
        strip_add(acc, depth, x + s * row, row, 1, panel, LANES);
        for (int i = 0; i < STRIP; i++)
            for (int v = 0; v < VECS; v++) vec_store(to + (s + i) * LANES + v * VEC, acc[i][v]);
    }
}

/* Rows of lanes `to`: row d = keep times itself + the sum over s of x[s][d] p[s]. */
static inline void tile_values(float *to, const float *keep, int64_t n, int64_t depth,
                               const float *x, int64_t row, const float *p) {
    for (int64_t d = 0; d < depth; d += STRIP) {
        Strip acc;
        strip_clear(acc);
        strip_add(acc, n, x + d, 1, row, p, LANES);
        for (int i = 0; i < STRIP; i++)
            for (int v = 0; v < VECS; v++) {
                float *at = to + (d + i) * LANES + v * VEC;
                vec_store(at, vec_fma(vec_load(at), vec_load(keep + v * VEC), acc[i][v]));
            }
    }
}

/* a > b ? a : b and a < b ? a : b in each element; b where either is a NaN */
K_INLINE Vec vec_max(Vec a, Vec b) {
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    for (int i = 0; i < VEC; i++) b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
#endif
}
K_INLINE Vec vec_min(Vec a, Vec b) {
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    for (int i = 0; i < VEC; i++) b[i] = a[i] < b[i] ? a[i] : b[i];
    return b;
#endif
}

/* 2^x, within 1.6e-7 of itself; 0 below 2^-126, a NaN stays. */
K_INLINE Vec vec_exp2(Vec x) {
    typedef int32_t Bits __attribute__((vector_size(sizeof(Vec))));
    Vec shift = vec_all(0x1.8p23f + 127); /* x + shift ends in the exponent of 2^round(x) */
    x = vec_min(vec_all(128), vec_max(vec_all(-127), x));
    Vec t = x + shift, r = x - (t - shift);
    Vec p = vec_all(0x1.5b7622p-10f); /* minimax for (2^r - 1) / r, |r| <= 1/2 */
    p = vec_fma(p, r, vec_all(0x1.3cee9cp-7f));
    p = vec_fma(p, r, vec_all(0x1.c6b848p-5f));
    p = vec_fma(p, r, vec_all(0x1.ebf9aep-3f));
    p = vec_fma(p, r, vec_all(0x1.62e428p-1f));
    p = vec_fma(p, r, vec_all(1));
    return p * (Vec)((Bits)t << 23);
}

/* top = the greatest of each lane of p and of itself; a NaN is passed over. */
static inline void tile_max(const float *p, int64_t n, float *top) {
    for (int v = 0; v < LANES; v += VEC) {
        Vec m[4];
        for (int i = 0; i < 4; i++) m[i] = vec_load(top + v);
        for (int64_t s = 0; s < n; s += 4)
            for (int i = 0; i < 4; i++) m[i] = vec_max(vec_load(p + (s + i) * LANES + v), m[i]);
        vec_store(top + v, vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3])));
    }
}

/* p = 2^(p - base), and the sum of each lane. */
static inline void tile_exp(float *p, int64_t n, const float *base, float *sum) {
    for (int v = 0; v < LANES; v += VEC) {
        Vec total = vec_all(0), c = vec_load(base + v);
        for (int64_t s = 0; s < n; s++) {
            Vec e = vec_exp2(vec_load(p + s * LANES + v) - c);
            vec_store(p + s * LANES + v, e);
            total = total + e;
        }
        vec_store(sum + v, total);
    }
}

/* p = 2^(p - lse), dp = p (dp - delta). */
static inline void tile_grad(float *p, float *dp, int64_t n, const float *lse, const float *delta) {
    for (int v = 0; v < LANES; v += VEC) {
        Vec c = vec_load(lse + v), d = vec_load(delta + v);
        for (int64_t i = v; i < n * LANES; i += LANES) {
            Vec e = vec_exp2(vec_load(p + i) - c);
            vec_store(p + i, e);
            vec_store(dp + i, e * (vec_load(dp + i) - d));
        }
    }
}

/* to[j][i] = from[i][j] for i, j < LANES; rows are ts and fs elements apart. */
static inline void tile_transpose(float *to, int64_t ts, const float *from, int64_t fs) {
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < LANES; j += 4)
            quad_transpose(to + j * ts + i, ts, from + i * fs + j, fs);
}

#endif
