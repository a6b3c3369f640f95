/* attention_one.h - a decoder's step: queries that all stand at one place, few enough for lanes.
 *
 * Lanes of queries would be mostly empty, so here keys lie in lanes, and then features. Each number
 * is the same chain of multiply-adds as in tiles (attention.c): the bits are the same. */
#ifndef MESHLUA_CPU_ATTENTION_ONE_H
#define MESHLUA_CPU_ATTENTION_ONE_H

#include "attention_rows.h"

enum { ONE_LANES = 4 }; /* so many times LANES results are kept in registers */

/* The queries: rows of q, in units of log 2, and of y, depth apart; and what was seen of them. */
typedef struct OneStep {
    int64_t rows, depth;
    float *q, *y, *p; /* p[row][KEYS] */
    float *turned;    /* keys, by blocks of LANES: [depth][LANES] */
    float *top, *sum;
} OneStep;

K_INLINE void one_scores(const int blocks, float *p, int64_t depth, const float *turned,
                         const float *q) {
    Vec acc[ONE_LANES][VECS];
    for (int i = 0; i < blocks; i++)
        for (int v = 0; v < VECS; v++) acc[i][v] = vec_all(0);
    for (int64_t d = 0; d < depth; d++) {
        Vec x = vec_all(q[d]);
        for (int i = 0; i < blocks; i++)
            for (int v = 0; v < VECS; v++)
                acc[i][v] =
                    vec_fma(vec_load(turned + (i * depth + d) * LANES + v * VEC), x, acc[i][v]);
    }
    for (int i = 0; i < blocks; i++)
        for (int v = 0; v < VECS; v++) vec_store(p + i * LANES + v * VEC, acc[i][v]);
}

/* y = keep y + the sum over n keys of p times their values, for some lanes of features. */
K_INLINE void one_values(const int lanes, float *y, float keep, int64_t n, const float *x,
                         int64_t row, const float *p) {
    Vec acc[ONE_LANES][VECS];
    for (int i = 0; i < lanes; i++)
        for (int v = 0; v < VECS; v++) acc[i][v] = vec_all(0);
    for (int64_t s = 0; s < n; s++, x += row) {
        Vec share = vec_all(p[s]);
        for (int i = 0; i < lanes; i++)
            for (int v = 0; v < VECS; v++)
                acc[i][v] = vec_fma(vec_load(x + i * LANES + v * VEC), share, acc[i][v]);
    }
    for (int i = 0; i < lanes; i++)
        for (int v = 0; v < VECS; v++) {
            float *at = y + i * LANES + v * VEC;
            vec_store(at, vec_fma(vec_load(at), vec_all(keep), acc[i][v]));
        }
}

/* Row r's scores of n keys become probabilities, in units of its greatest score so far; returns by
 * what those before them are multiplied. */
static inline float one_exp(OneStep *o, int64_t r, int64_t n) {
    float *p = o->p + r * KEYS, top = o->top[r], lane[VEC], keep[LANES] = {0}, base[LANES] = {0};
    Vec most = vec_all(top);
    for (int64_t s = 0; s < n; s += VEC) most = vec_max(vec_load(p + s), most);
    vec_store(lane, most);
    for (int i = 0; i < VEC; i++) top = lane[i] > top ? lane[i] : top;
    keep[0] = o->top[r], base[0] = top == -INFINITY ? 0 : top;
    float unused[LANES], sum = 0;
    tile_exp(keep, 1, base, unused);
    for (int64_t s = 0; s < n; s += VEC)
        vec_store(p + s, vec_exp2(vec_load(p + s) - vec_all(base[0])));
    for (int64_t s = 0; s < n; s++) sum += p[s];
    o->top[r] = top;
    o->sum[r] = o->sum[r] * keep[0] + sum;
    return keep[0];
}

/* n keys, in whole lanes, of which the first `seen` are seen. */
static inline void one_absorb(OneStep *o, int64_t n, int64_t seen, Tile keys, Tile values) {
    int64_t depth = o->depth;
    for (int64_t s = 0; s < n; s += LANES)
        for (int64_t d = 0; d < depth; d += LANES)
            tile_transpose(o->turned + s * depth + d * LANES, LANES, keys.data + s * keys.row + d,
                           keys.row);
    for (int64_t r = 0; r < o->rows; r++) {
        float *p = o->p + r * KEYS, *y = o->y + r * depth;
        const float *q = o->q + r * depth;
        if (n == KEYS)
            one_scores(KEYS / LANES, p, depth, o->turned, q);
        else
            for (int64_t s = 0; s < n; s += LANES)
                one_scores(1, p + s, depth, o->turned + s * depth, q);
        for (int64_t s = seen; s < n; s++) p[s] = -INFINITY;
        float keep = one_exp(o, r, n);
        int64_t d = 0;
        for (; d + ONE_LANES * LANES <= depth; d += ONE_LANES * LANES)
            one_values(ONE_LANES, y + d, keep, seen, values.data + d, values.row, p);
        for (; d < depth; d += LANES)
            one_values(1, y + d, keep, seen, values.data + d, values.row, p);
    }
}

#endif
