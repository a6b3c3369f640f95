/* attention.c - softmax(scale q k^T) v and its gradient, a head at a time in tiles (kernel.h).
 *
 * A tile of queries meets the keys a tile at a time. Forward, the running maximum and sum of a row
 * rescale what is there (Milakov and Gimelshein 2018; Dao et al. 2022), so the scores never exist
 * as a whole. Backward, the scores are made again from lse: p = e^(s - lse), dv = p^T dy, ds = p
 * (dy v^T - sum of dy y), dq = scale ds k, dk = scale ds^T q. Tiles after the last visible key are
 * left out. A query that sees no key has y = 0, lse = -inf and no gradient.
 *
 * Any strides; quick where D is contiguous float32. 16-bit floats are converted by tiles and
 * rounded once. Sums over keys and queries are float32 in tile order.
 */
#include <math.h>
#include "attention.h"
#include "gemm.h"
#include "lanes.h"
#include "rows.h"

enum { QUERIES = 64, KEYS = 128, LANES = 16 }; /* queries and keys of a tile */

/* n rows from i on, in place or converted into buf. */
static KMatrix rows_in(const HeadRows *r, int64_t i, int64_t n, int64_t depth, float *buf) {
    KMatrix m = {(const float *)(const void *)k_row_at(r, i), r->row / 4, 1};
    if (r->dtype == DT_F32 && (r->element == 4 || depth == 1)) return m;
    for (int64_t j = 0; j < n; j++)
        k_load_fn(r->dtype)(buf + j * depth, k_row_at(r, i + j), r->element, depth);
    return (KMatrix){buf, depth, 1};
}

static void rows_out(const HeadRows *r, int64_t i, int64_t n, int64_t depth, float scale,
                     float *from) {
    for (int64_t j = 0; j < n * depth; j++) from[j] *= scale;
    for (int64_t j = 0; j < n; j++)
        k_store_fn(r->dtype)(k_row_at(r, i + j), r->element, from + j * depth, depth);
}

/* The queries of a tile times scale, so that their product with the keys needs none. */
static void scaled_rows(const HeadRows *r, int64_t i, int64_t n, int64_t depth, float scale,
                        float *to) {
    for (int64_t j = 0; j < n; j++)
        k_load_fn(r->dtype)(to + j * depth, k_row_at(r, i + j), r->element, depth);
    for (int64_t j = 0; j < n * depth; j++) to[j] *= scale;
}

static KMatrix transposed(KMatrix m) {
    return (KMatrix){m.data, m.cs, m.rs};
}

/* c = a b or c += a b with rows of c `ldc` apart; packs b. */
static void product(int64_t m, int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int64_t ldc,
                    int accumulate, float *packed) {
    k_gemm_pack(packed, b, k, n);
    k_gemm(m, n, k, a, packed, c, ldc, accumulate);
}

static float *take(char **workspace, int64_t bytes) {
    float *p = (float *)(void *)*workspace;
    *workspace += (bytes + 63) & ~(int64_t)63;
    return p;
}

static int64_t packed_bytes(int64_t depth) {
    return k_max(k_gemm_pack_bytes(depth, KEYS),
                 k_max(k_gemm_pack_bytes(KEYS, depth), k_gemm_pack_bytes(QUERIES, depth)));
}

/* Rows of scores have room for whole blocks; what lies behind the visible ones is overwritten. */
static int64_t whole_blocks(int64_t n) {
    return (n + LANES - 1) & ~(int64_t)(LANES - 1);
}

/* ---- forward -------------------------------------------------------------------------------- */
typedef struct Forward {
    Heads h;
    float *q, *k, *v, *scores, *y, *packed;
    float top[QUERIES], sum[QUERIES];
    float lane[QUERIES][LANES];
} Forward;

static int64_t forward_bytes(int64_t depth) {
    return 4 * (2 * QUERIES * depth + 2 * KEYS * depth + QUERIES * KEYS) + packed_bytes(depth) +
           8 * 64;
}

/* Folds the lanes of each row, in halves. Rows are independent, so they overlap. */
static void fold_max(float (*lane)[LANES], int64_t rows, float *to) {
    for (int64_t i = 0; i < rows; i++) {
        float *l = lane[i];
        for (int w = LANES / 2; w; w /= 2)
            for (int j = 0; j < w; j++) l[j] = l[j + w] > l[j] ? l[j + w] : l[j];
        to[i] = l[0];
    }
}
static void fold_sum(float (*lane)[LANES], int64_t rows, float *to) {
    for (int64_t i = 0; i < rows; i++) {
        float *l = lane[i];
        for (int w = LANES / 2; w; w /= 2)
            for (int j = 0; j < w; j++) l[j] += l[j + w];
        to[i] = l[0];
    }
}

/* The maxima of the scores' rows, by lanes; seen[i] of the n scores of row i count. The rest of the
 * last block becomes -inf, and what follows 0. */
static void row_maxima(Forward *f, int64_t rows, const int64_t *seen, int64_t n) {
    for (int64_t i = 0; i < rows; i++) {
        float *s = f->scores + i * KEYS, *l = f->lane[i];
        int64_t whole = whole_blocks(seen[i]);
        for (int64_t j = seen[i]; j < whole; j++) s[j] = -INFINITY;
        for (int64_t j = whole; j < n; j++) s[j] = 0;
        for (int j = 0; j < LANES; j++) l[j] = -INFINITY;
        for (int64_t k = 0; k < whole; k += LANES)
            for (int j = 0; j < LANES; j++) l[j] = s[k + j] > l[j] ? s[k + j] : l[j];
    }
}

/* s = e^(s - base), and its sums by lanes. */
static void row_exponentials(Forward *f, int64_t rows, const int64_t *seen, const float *base) {
    for (int64_t i = 0; i < rows; i++) {
        float *s = f->scores + i * KEYS, *l = f->lane[i], c = base[i];
        int64_t whole = whole_blocks(seen[i]);
        exp_block_f32(s, c, s, whole);
        for (int j = 0; j < LANES; j++) l[j] = 0;
        for (int64_t k = 0; k < whole; k += LANES)
            for (int j = 0; j < LANES; j++) l[j] += s[k + j];
    }
}

/* Turns the scores of a tile (queries from t, keys from s, n of them) into e^(score - top), and
 * rescales what was there under the old top. */
static void absorb_tile(Forward *f, int64_t t, int64_t rows, int64_t s, int64_t n) {
    int64_t seen[QUERIES], depth = f->h.depth;
    float m[QUERIES], base[QUERIES], keep[QUERIES], sum[QUERIES];
    for (int64_t i = 0; i < rows; i++) seen[i] = k_max(0, k_min(n, k_visible(&f->h, t + i) - s));
    row_maxima(f, rows, seen, n);
    fold_max(f->lane, rows, m);
    for (int64_t i = 0; i < rows; i++) {
        float top = f->top[i] > m[i] ? f->top[i] : m[i];
        base[i] = top == -INFINITY ? 0.0f : top;
        keep[i] = exp_f32(f->top[i] - base[i]);
        f->top[i] = top;
    }
    row_exponentials(f, rows, seen, base);
    fold_sum(f->lane, rows, sum);
    for (int64_t i = 0; i < rows; i++) f->sum[i] = f->sum[i] * keep[i] + sum[i];
    for (int64_t i = 0; i < rows; i++) {
        float *y = f->y + i * depth;
        for (int64_t j = 0; keep[i] != 1.0f && j < depth; j++) y[j] *= keep[i];
    }
}

static void forward_tile(Forward *f, const HeadRows *q, const HeadRows *k, const HeadRows *v,
                         int64_t t, int64_t rows) {
    int64_t depth = f->h.depth, end = k_visible(&f->h, t + rows - 1);
    scaled_rows(q, t, rows, depth, (float)f->h.scale, f->q);
    memset(f->y, 0, (size_t)(rows * depth) * sizeof *f->y);
    for (int i = 0; i < QUERIES; i++) f->top[i] = -INFINITY, f->sum[i] = 0;
    for (int64_t s = 0; s < end; s += KEYS) {
        int64_t n = k_min(KEYS, end - s);
        KMatrix keys = rows_in(k, s, n, depth, f->k), values = rows_in(v, s, n, depth, f->v);
        KMatrix queries = {f->q, depth, 1}, p = {f->scores, KEYS, 1};
        product(rows, n, depth, queries, transposed(keys), f->scores, KEYS, 0, f->packed);
        absorb_tile(f, t, rows, s, n);
        product(rows, depth, n, p, values, f->y, depth, 1, f->packed);
    }
}

static int attention(const KArgs *a) {
    if (a->in[0].dtype == DT_F64) return k_attention_wide(a);
    Forward f = {.h = k_heads(a)};
    char *workspace = k_align(a->workspace);
    int64_t depth = f.h.depth;
    f.q = take(&workspace, 4 * QUERIES * depth);
    f.y = take(&workspace, 4 * QUERIES * depth);
    f.k = take(&workspace, 4 * KEYS * depth);
    f.v = take(&workspace, 4 * KEYS * depth);
    f.scores = take(&workspace, 4 * QUERIES * KEYS);
    f.packed = take(&workspace, packed_bytes(depth));
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t b = u / f.h.heads, h = u % f.h.heads, g = h * f.h.groups / f.h.heads;
        HeadRows q = k_head_rows(&a->in[0], b, h), k = k_head_rows(&a->in[1], b, g);
        HeadRows v = k_head_rows(&a->in[2], b, g), y = k_head_rows(&a->out[0], b, h);
        for (int64_t t = 0; t < f.h.queries; t += QUERIES) {
            int64_t rows = k_min(QUERIES, f.h.queries - t);
            forward_tile(&f, &q, &k, &v, t, rows);
            for (int64_t i = 0; i < rows; i++) {
                KReal lse = {.f = f.top[i] + log_f32(f.sum[i])};
                float *row = f.y + i * depth, scale = f.sum[i] == 0 ? 0 : 1 / f.sum[i];
                rows_out(&y, t + i, 1, depth, scale, row);
                k_put(a->out[1].dtype, k_lse_at(&a->out[1], b, h, t + i), &lse);
            }
        }
    }
    return 0;
}

/* ---- backward ------------------------------------------------------------------------------- */
typedef struct Backward {
    Heads h;
    float *q, *k, *v, *y, *dy, *dq, *dk, *dv, *p, *ds;
    float *packed, *packed_q, *packed_dy;
    float lse[QUERIES], delta[QUERIES];
} Backward;

static int64_t backward_bytes(const Heads *h) {
    return 4 * (4 * QUERIES * h->depth + 2 * KEYS * h->depth + 2 * h->keys * h->depth +
                2 * QUERIES * KEYS) +
           3 * packed_bytes(h->depth) + 16 * 64;
}

/* p = e^(s - lse) from the scores, and ds = p (dp - delta) from dp, where the row sees the key. */
static void score_grads(Backward *w, int64_t i, int64_t seen, int64_t n) {
    float *p = w->p + i * KEYS, *ds = w->ds + i * KEYS, lse = w->lse[i], delta = w->delta[i];
    exp_block_f32(p, lse, p, whole_blocks(seen));
    for (int64_t j = 0; j < seen; j++) ds[j] = p[j] * (ds[j] - delta);
    for (int64_t j = seen; j < n; j++) p[j] = ds[j] = 0;
}

/* One tile of queries of one head: adds to dk and dv of the group, and makes dq. */
static void backward_tile(Backward *w, const KArgs *a, int64_t b, int64_t h, int64_t t,
                          int64_t rows) {
    int64_t depth = w->h.depth, end = k_visible(&w->h, t + rows - 1);
    int64_t g = h * w->h.groups / w->h.heads;
    HeadRows q = k_head_rows(&a->in[0], b, h), k = k_head_rows(&a->in[1], b, g);
    HeadRows v = k_head_rows(&a->in[2], b, g), y = k_head_rows(&a->in[3], b, h);
    HeadRows dy = k_head_rows(&a->in[5], b, h), dq = k_head_rows(&a->out[0], b, h);
    float scale = (float)w->h.scale;
    scaled_rows(&q, t, rows, depth, scale, w->q);
    KMatrix queries = {w->q, depth, 1}, grad = rows_in(&dy, t, rows, depth, w->dy);
    KMatrix out = rows_in(&y, t, rows, depth, w->y), p = {w->p, KEYS, 1}, ds = {w->ds, KEYS, 1};
    for (int64_t i = 0; i < rows; i++) {
        KReal lse;
        k_get(a->in[4].dtype, k_lse_at(&a->in[4], b, h, t + i), &lse);
        w->lse[i] = lse.f;
        w->delta[i] = dot_f32(grad.data + i * grad.rs, out.data + i * out.rs, depth);
    }
    k_gemm_pack(w->packed_q, queries, rows, depth);
    k_gemm_pack(w->packed_dy, grad, rows, depth);
    memset(w->dq, 0, (size_t)(rows * depth) * sizeof *w->dq);
    for (int64_t s = 0; s < end; s += KEYS) {
        int64_t n = k_min(KEYS, end - s);
        KMatrix keys = rows_in(&k, s, n, depth, w->k), values = rows_in(&v, s, n, depth, w->v);
        product(rows, n, depth, queries, transposed(keys), w->p, KEYS, 0, w->packed);
        product(rows, n, depth, grad, transposed(values), w->ds, KEYS, 0, w->packed);
        for (int64_t i = 0; i < rows; i++)
            score_grads(w, i, k_max(0, k_min(n, k_visible(&w->h, t + i) - s)), n);
        k_gemm(n, depth, rows, transposed(p), w->packed_dy, w->dv + s * depth, depth, 1);
        k_gemm(n, depth, rows, transposed(ds), w->packed_q, w->dk + s * depth, depth, 1);
        product(rows, depth, n, ds, keys, w->dq, depth, 1, w->packed);
    }
    rows_out(&dq, t, rows, depth, scale, w->dq);
}

static int attention_grad(const KArgs *a) {
    if (a->in[0].dtype == DT_F64) return k_attention_wide_grad(a);
    Backward w = {.h = k_heads(a)};
    char *workspace = k_align(a->workspace);
    int64_t tile = 4 * QUERIES * w.h.depth, keys = 4 * KEYS * w.h.depth;
    w.q = take(&workspace, tile);
    w.y = take(&workspace, tile);
    w.dy = take(&workspace, tile);
    w.dq = take(&workspace, tile);
    w.k = take(&workspace, keys);
    w.v = take(&workspace, keys);
    w.p = take(&workspace, 4 * QUERIES * KEYS);
    w.ds = take(&workspace, 4 * QUERIES * KEYS);
    w.packed = take(&workspace, packed_bytes(w.h.depth));
    w.packed_q = take(&workspace, packed_bytes(w.h.depth));
    w.packed_dy = take(&workspace, packed_bytes(w.h.depth));
    w.dk = take(&workspace, 4 * w.h.keys * w.h.depth);
    w.dv = take(&workspace, 4 * w.h.keys * w.h.depth);
    int64_t shared = w.h.groups ? w.h.heads / w.h.groups : 0;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t b = u / w.h.groups, g = u % w.h.groups;
        HeadRows dk = k_head_rows(&a->out[1], b, g), dv = k_head_rows(&a->out[2], b, g);
        memset(w.dk, 0, (size_t)(w.h.keys * w.h.depth) * sizeof *w.dk);
        memset(w.dv, 0, (size_t)(w.h.keys * w.h.depth) * sizeof *w.dv);
        for (int64_t h = g * shared; h < (g + 1) * shared; h++)
            for (int64_t t = 0; t < w.h.queries; t += QUERIES)
                backward_tile(&w, a, b, h, t, k_min(QUERIES, w.h.queries - t));
        rows_out(&dk, 0, w.h.keys, w.h.depth, 1, w.dk);
        rows_out(&dv, 0, w.h.keys, w.h.depth, 1, w.dv);
    }
    return 0;
}

/* ---- rows ----------------------------------------------------------------------------------- */
static int64_t units(const KArgs *a) {
    Heads h = k_heads(a);
    return h.batches * h.heads;
}
static int64_t grad_units(const KArgs *a) {
    Heads h = k_heads(a);
    return h.batches * h.groups;
}
static size_t workspace_bytes(const KArgs *a) {
    Heads h = k_heads(a);
    return a->in[0].dtype == DT_F64 ? k_attention_workspace(a) : (size_t)forward_bytes(h.depth);
}
static size_t grad_workspace_bytes(const KArgs *a) {
    Heads h = k_heads(a);
    return a->in[0].dtype == DT_F64 ? k_attention_workspace(a) : (size_t)backward_bytes(&h);
}

K_ROWS(attention) = {
    {"attention", attention, units, workspace_bytes},
    {"attention_grad", attention_grad, grad_units, grad_workspace_bytes},
    {NULL, NULL, NULL, NULL},
};
