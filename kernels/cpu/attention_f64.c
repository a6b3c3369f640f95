/* attention_f64.c - attention and its gradient for float64, a query at a time in plain loops. */
#include <math.h>
#include "attention_mask.h"
#include "lanes.h"

/* A row of depth elements as a contiguous run. */
static const double *row_in(const HeadRows *r, int64_t i, int64_t depth, double *buf) {
    return k_run_in(r->dtype, k_row_at(r, i), r->element, depth, buf);
}

/* One head of a batch row, and the keys that query t of it reaches. */
typedef struct Head {
    const KArgs *args;
    Heads h;
    Mask mask;
    Reach reach;
    int64_t b, head;
} Head;

/* scores[s] of the keys from first to end, -inf where query t does not see one; to slope[s], if
 * there is one, what the soft cap does to a gradient. */
static KeyRange score(const Head *x, int64_t t, const double *q, const HeadRows *k, double *buf,
                      double *scores, double *slope) {
    double cap = x->h.attr->soft_cap, bias;
    KeyRange seen = k_seen(&x->reach, t, 1);
    for (int64_t s = seen.first; s < seen.end; s++) {
        double u = x->h.scale * dot_f64(q, row_in(k, s, x->h.depth, buf), x->h.depth);
        if (cap != 0) u = cap * tanh(u / cap);
        if (slope) slope[s] = cap != 0 ? 1 - u / cap * (u / cap) : 1;
        if (x->mask.bias) {
            memcpy(&bias, k_score_at(x->mask.bias, x->b, x->head, t, s), sizeof bias);
            u += bias;
        }
        scores[s] = k_sees(&x->mask, x->b, x->head, t, s) ? u : -INFINITY;
    }
    return seen;
}

static void add_scaled(double *to, double x, const double *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += x * from[i];
}

static Head head_of(const KArgs *a, int64_t b, int64_t head) {
    Head x = {a, k_heads(a), k_mask(a), {0}, b, head};
    x.reach = k_reach(a, &x.h, b);
    return x;
}

/* Query t: its row of y, and lse. */
static void forward_query(const Head *x, int64_t t, double *scores) {
    const KArgs *a = x->args;
    int64_t g = x->head * x->h.groups / x->h.heads, depth = x->h.depth;
    double *q = scores + x->h.keys, *buf = q + depth, *sum = buf + depth;
    HeadRows qs = k_head_rows(&a->in[0], x->b, x->head), k = k_head_rows(&a->in[1], x->b, g);
    HeadRows v = k_head_rows(&a->in[2], x->b, g), y = k_head_rows(&a->out[0], x->b, x->head);
    KeyRange seen = score(x, t, row_in(&qs, t, depth, q), &k, buf, scores, NULL);
    int64_t n = seen.end - seen.first;
    double top = max_f64(scores + seen.first, n), base = top == -INFINITY ? 0 : top;
    double total = sumexp_f64(scores + seen.first, base, n), lse = top + log(total);
    memset(sum, 0, (size_t)depth * sizeof *sum);
    for (int64_t s = seen.first; s < seen.end; s++) {
        double p = exp(scores[s] - base);
        if (p != 0)
            add_scaled(sum, p * k_kept(&x->mask, x->b, x->head, t, s), row_in(&v, s, depth, buf),
                       depth);
    }
    for (int64_t i = 0; i < depth; i++) sum[i] = total == 0 ? 0 : sum[i] / total;
    k_store_fn(DT_F64)(k_row_at(&y, t), y.element, sum, depth);
    k_store_fn(DT_F64)(k_lse_at(&a->out[1], x->b, x->head, t), 0, &lse, 1);
}

int k_attention_wide(const KArgs *a) {
    Heads h = k_heads(a);
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t from = u % h.blocks * QUERIES;
        Head x = head_of(a, u / h.blocks / h.heads, u / h.blocks % h.heads);
        for (int64_t t = from; t < k_min(h.queries, from + QUERIES); t++)
            forward_query(&x, t, a->workspace);
    }
    return 0;
}

static void put_bias(const Head *x, int64_t t, int64_t s, double ds) {
    if (x->args->nout > 3)
        memcpy(k_score_at(&x->args->out[3], x->b, x->head, t, s), &ds, sizeof ds);
}

/* Adds the gradients of query t of one head to dk and dv [keys, depth], and makes dq. */
static void query_grads(const Head *x, int64_t t, double *dk, double *dv, double *work) {
    const KArgs *a = x->args;
    const Heads *h = &x->h;
    int64_t g = x->head * h->groups / h->heads, depth = h->depth, b = x->b, head = x->head;
    double *scores = work, *slope = scores + h->keys, *dq = slope + h->keys, *bufs = dq + depth;
    HeadRows qs = k_head_rows(&a->in[0], b, head), ks = k_head_rows(&a->in[1], b, g);
    HeadRows vs = k_head_rows(&a->in[2], b, g), ys = k_head_rows(&a->in[3], b, head);
    HeadRows dys = k_head_rows(&a->in[5], b, head), dqs = k_head_rows(&a->out[0], b, head);
    const double *q = row_in(&qs, t, depth, bufs), *y = row_in(&ys, t, depth, bufs + depth);
    const double *dy = row_in(&dys, t, depth, bufs + 2 * depth);
    double delta = dot_f64(dy, y, depth), lse;
    k_load_fn(DT_F64)(&lse, k_lse_at(&a->in[4], b, head, t), 0, 1);
    if (lse == -INFINITY) lse = 0; /* sees nothing */
    KeyRange seen = score(x, t, q, &ks, bufs + 3 * depth, scores, slope);
    memset(dq, 0, (size_t)depth * sizeof *dq);
    for (int64_t s = 0; s < h->keys; s++)
        if (s < seen.first || s >= seen.end) put_bias(x, t, s, 0);
    for (int64_t s = seen.first; s < seen.end; s++) {
        const double *k = row_in(&ks, s, depth, bufs + 3 * depth);
        double p = exp(scores[s] - lse), kept = k_kept(&x->mask, b, head, t, s);
        double dp = kept * dot_f64(dy, row_in(&vs, s, depth, bufs + 4 * depth), depth);
        double ds = p == 0 ? 0 : p * (dp - delta);
        put_bias(x, t, s, ds);
        ds *= slope[s] * h->scale;
        add_scaled(dv + s * depth, p * kept, dy, depth);
        add_scaled(dk + s * depth, ds, q, depth);
        add_scaled(dq, ds, k, depth);
    }
    k_store_fn(DT_F64)(k_row_at(&dqs, t), dqs.element, dq, depth);
}

int k_attention_wide_grad(const KArgs *a) {
    Heads h = k_heads(a);
    int64_t size = h.keys * h.depth, shared = h.groups ? h.heads / h.groups : 0;
    double *dk = a->workspace, *dv = dk + size, *work = dv + size;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t b = u / h.groups, g = u % h.groups;
        HeadRows dks = k_head_rows(&a->out[1], b, g), dvs = k_head_rows(&a->out[2], b, g);
        memset(dk, 0, 2 * (size_t)size * sizeof *dk);
        for (int64_t head = g * shared; head < (g + 1) * shared; head++) {
            Head x = head_of(a, b, head);
            for (int64_t t = 0; t < h.queries; t++) query_grads(&x, t, dk, dv, work);
        }
        for (int64_t j = 0; j < h.keys; j++) {
            k_store_fn(DT_F64)(k_row_at(&dks, j), dks.element, dk + j * h.depth, h.depth);
            k_store_fn(DT_F64)(k_row_at(&dvs, j), dvs.element, dv + j * h.depth, h.depth);
        }
    }
    return 0;
}

size_t k_attention_workspace(const KArgs *a) {
    Heads h = k_heads(a);
    return sizeof(double) * (size_t)(2 * h.keys * h.depth + 2 * h.keys + 6 * h.depth);
}
