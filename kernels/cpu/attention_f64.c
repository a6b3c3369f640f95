/* attention_f64.c - attention and its gradient for float64, a query at a time in plain loops. */
#include <math.h>
#include "attention_mask.h"
#include "lanes.h"

/* A row of depth elements as a contiguous run. */
static const double *row_in(const HeadRows *r, int64_t i, int64_t depth, double *buf) {
    return k_run_in(r->dtype, k_row_at(r, i), r->element, depth, buf);
}

/* Query t of a head looks nowhere, so at all keys alike: their scores are 0. */
static int64_t look_at_all(const Heads *h, double *scores) {
    memset(scores, 0, (size_t)h->keys * sizeof *scores);
    return h->keys;
}

/* scores[j] = scale q.k_j for the keys that query t sees */
static void score(const Heads *h, const double *q, const HeadRows *k, int64_t seen, double *buf,
                  double *scores) {
    for (int64_t j = 0; j < seen; j++)
        scores[j] = h->scale * dot_f64(q, row_in(k, j, h->depth, buf), h->depth);
}

static void add_scaled(double *to, double x, const double *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += x * from[i];
}

int k_attention_wide(const KArgs *a) {
    Heads h = k_heads(a);
    Mask mask = k_mask(a, 3);
    double *scores = a->workspace, *q = scores + h.keys, *buf = q + h.depth, *sum = buf + h.depth;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t from = u % h.blocks * QUERIES, b = u / h.blocks / h.heads;
        int64_t head = u / h.blocks % h.heads, g = head * h.groups / h.heads;
        HeadRows qs = k_head_rows(&a->in[0], b, head), k = k_head_rows(&a->in[1], b, g);
        HeadRows v = k_head_rows(&a->in[2], b, g), y = k_head_rows(&a->out[0], b, head);
        for (int64_t t = from; t < k_min(h.queries, from + QUERIES); t++) {
            int64_t seen = k_visible(&h, t);
            score(&h, row_in(&qs, t, h.depth, q), &k, seen, buf, scores);
            for (int64_t j = 0; mask.sees && j < seen; j++)
                if (!*k_sees_at(&mask, b, head, t, j)) scores[j] = -INFINITY;
            double top = max_f64(scores, seen), base = top == -INFINITY ? 0 : top;
            double total = sumexp_f64(scores, base, seen), lse = top + log(total);
            if (mask.sees && total == 0) {
                seen = look_at_all(&h, scores);
                base = 0, total = (double)seen;
            }
            memset(sum, 0, (size_t)h.depth * sizeof *sum);
            for (int64_t j = 0; j < seen; j++)
                add_scaled(sum, exp(scores[j] - base) * k_kept(&mask, b, head, t, j),
                           row_in(&v, j, h.depth, buf), h.depth);
            for (int64_t i = 0; i < h.depth; i++) sum[i] = total == 0 ? 0 : sum[i] / total;
            k_store_fn(DT_F64)(k_row_at(&y, t), y.element, sum, h.depth);
            k_store_fn(DT_F64)(k_lse_at(&a->out[1], b, head, t), 0, &lse, 1);
        }
    }
    return 0;
}

/* Adds the gradients of query t of one head to dk and dv [keys, depth], and makes dq. */
static void query_grads(const KArgs *a, const Heads *h, const Mask *m, int64_t b, int64_t head,
                        int64_t t, double *dk, double *dv, double *work) {
    int64_t g = head * h->groups / h->heads, depth = h->depth, seen = k_visible(h, t);
    double *scores = work, *dq = scores + h->keys, *bufs = dq + depth;
    HeadRows qs = k_head_rows(&a->in[0], b, head), ks = k_head_rows(&a->in[1], b, g);
    HeadRows vs = k_head_rows(&a->in[2], b, g), ys = k_head_rows(&a->in[3], b, head);
    HeadRows dys = k_head_rows(&a->in[5], b, head), dqs = k_head_rows(&a->out[0], b, head);
    const double *q = row_in(&qs, t, depth, bufs), *y = row_in(&ys, t, depth, bufs + depth);
    const double *dy = row_in(&dys, t, depth, bufs + 2 * depth);
    double delta = dot_f64(dy, y, depth), lse;
    k_load_fn(DT_F64)(&lse, k_lse_at(&a->in[4], b, head, t), 0, 1);
    score(h, q, &ks, seen, bufs + 3 * depth, scores);
    for (int64_t j = 0; m->sees && j < seen; j++)
        if (!*k_sees_at(m, b, head, t, j)) scores[j] = -INFINITY;
    int none = m->sees && lse == -INFINITY;
    if (none) {
        seen = look_at_all(h, scores);
        lse = log((double)seen);
    }
    memset(dq, 0, (size_t)depth * sizeof *dq);
    for (int64_t j = 0; j < seen; j++) {
        const double *k = row_in(&ks, j, depth, bufs + 3 * depth);
        double p = exp(scores[j] - lse), kept = k_kept(m, b, head, t, j);
        double dp = kept * dot_f64(dy, row_in(&vs, j, depth, bufs + 4 * depth), depth);
        double ds = none || p == 0 ? 0 : p * (dp - delta) * h->scale;
        p *= kept;
        add_scaled(dv + j * depth, p, dy, depth);
        add_scaled(dk + j * depth, ds, q, depth);
        add_scaled(dq, ds, k, depth);
    }
    k_store_fn(DT_F64)(k_row_at(&dqs, t), dqs.element, dq, depth);
}

int k_attention_wide_grad(const KArgs *a) {
    Heads h = k_heads(a);
    Mask mask = k_mask(a, 6);
    int64_t size = h.keys * h.depth, shared = h.groups ? h.heads / h.groups : 0;
    double *dk = a->workspace, *dv = dk + size, *work = dv + size;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t b = u / h.groups, g = u % h.groups;
        HeadRows dks = k_head_rows(&a->out[1], b, g), dvs = k_head_rows(&a->out[2], b, g);
        memset(dk, 0, 2 * (size_t)size * sizeof *dk);
        for (int64_t head = g * shared; head < (g + 1) * shared; head++)
            for (int64_t t = 0; t < h.queries; t++)
                query_grads(a, &h, &mask, b, head, t, dk, dv, work);
        for (int64_t j = 0; j < h.keys; j++) {
            k_store_fn(DT_F64)(k_row_at(&dks, j), dks.element, dk + j * h.depth, h.depth);
            k_store_fn(DT_F64)(k_row_at(&dvs, j), dvs.element, dv + j * h.depth, h.depth);
        }
    }
    return 0;
}

size_t k_attention_workspace(const KArgs *a) {
    Heads h = k_heads(a);
    return sizeof(double) * (size_t)(2 * h.keys * h.depth + h.keys + 6 * h.depth);
}
