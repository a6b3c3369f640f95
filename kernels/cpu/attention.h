/* attention.h - what the attention files share. */
#ifndef MESHLUA_CPU_ATTENTION_H
#define MESHLUA_CPU_ATTENTION_H

#include <string.h>
#include "convert.h"

#define k_attention_wide       K_SYM(k_attention_wide)
#define k_attention_wide_grad  K_SYM(k_attention_wide_grad)
#define k_attention_workspace  K_SYM(k_attention_workspace)
#define k_attention_grad       K_SYM(k_attention_grad)
#define k_attention_grad_bytes K_SYM(k_attention_grad_bytes)

/* A unit of work forward is QUERIES queries of a head. Where tiles are used they are taken in
 * blocks of LANES and meet KEYS keys at a time. */
enum { QUERIES = 64, LANES = 16, BLOCKS = QUERIES / LANES, KEYS = 64 };

/* attention_grad.c */
int k_attention_grad(const KArgs *);
size_t k_attention_grad_bytes(const KArgs *);
/* float64, in plain loops: attention_f64.c */
int k_attention_wide(const KArgs *);
int k_attention_wide_grad(const KArgs *);
size_t k_attention_workspace(const KArgs *);

/* q is [B, T, H, D]; k and v are [B, S, G, D]. */
typedef struct Heads {
    int64_t batches, queries, heads, depth, keys, groups;
    int64_t blocks; /* units of a head */
    double scale;
    const KAttention *attr;
    int64_t step; /* between the places of neighbours */
} Heads;

static inline Heads k_heads(const KArgs *a) {
    const KAttention *attr = a->attr;
    const int64_t *q = a->in[0].dims, *k = a->in[1].dims;
    Heads h = {q[0], q[1], q[2], q[3], k[1], k[2], k_ceil_div(q[1], QUERIES), attr->scale, attr, 1};
    return h;
}

/* By their places, place + step t, queries of a batch row see the keys from that - left to that +
 * right, those before `keys`; queries from `rows` on see none. */
typedef struct Reach {
    int64_t place, step, left, right, keys, rows;
} Reach;

static inline int64_t k_row_number(const KArgs *a, KAttentionOption o, int64_t b, int64_t other) {
    const KAttention *attr = a->attr;
    int32_t x;
    if (!attr->at[o]) return other;
    const KTensor *t = &a->in[attr->at[o]];
    memcpy(&x, t->data + b * t->strides[0], sizeof x);
    return x;
}

static inline Reach k_reach(const KArgs *a, const Heads *h, int64_t b) {
    const int64_t far = INT64_MAX / 4, first = a->offsets ? a->offsets[2] : 0;
    const KAttention *attr = h->attr;
    Reach r = {.step = h->step,
               .left = attr->left < 0 ? far : attr->left,
               .right = attr->causal      ? 0
                        : attr->right < 0 ? far
                                          : attr->right};
    r.place = first + k_row_number(a, K_ATTENTION_OFFSET, b, attr->ahead);
    r.keys = k_max(0, k_min(h->keys, k_row_number(a, K_ATTENTION_LENGTHS, b, h->keys)));
    r.rows = k_row_number(a, K_ATTENTION_QUERY_LENGTHS, b, far) - first;
    if (!r.step) r.rows = r.rows > 0 ? far : 0;
    return r;
}

/* Query t sees the keys from the first one on, before the second one. */
static inline int64_t k_first(const Reach *r, int64_t t) {
    return k_max(0, k_min(r->keys, r->place + r->step * t - r->left));
}
static inline int64_t k_before(const Reach *r, int64_t t) {
    return t >= r->rows ? 0 : k_max(0, k_min(r->keys, r->place + r->step * t + r->right + 1));
}

/* The keys [first, second) that some of n > 0 queries from t on see. */
typedef struct KeyRange {
    int64_t first, end;
} KeyRange;

static inline KeyRange k_seen(const Reach *r, int64_t t, int64_t n) {
    int64_t last = k_min(t + n, r->rows) - 1;
    if (last < t) return (KeyRange){0, 0};
    return (KeyRange){k_first(r, t), k_before(r, last)};
}

/* One head's [rows, D] of an operand [B, rows, heads, D]. */
typedef struct HeadRows {
    char *data;
    int64_t row, element; /* strides */
    DType dtype;
} HeadRows;

static inline HeadRows k_head_rows(const KTensor *t, int64_t b, int64_t h) {
    HeadRows r = {t->data + b * t->strides[0] + h * t->strides[2], t->strides[1], t->strides[3],
                  t->dtype};
    return r;
}
static inline char *k_row_at(const HeadRows *r, int64_t i) {
    return r->data + i * r->row;
}

/* lse[b, h, t] */
static inline char *k_lse_at(const KTensor *lse, int64_t b, int64_t h, int64_t t) {
    return lse->data + b * lse->strides[0] + h * lse->strides[1] + t * lse->strides[2];
}

#endif
