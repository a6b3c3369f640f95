/* naive_attention.c - attention and its gradient, with all scores of a head in the workspace. */
#include <stdlib.h>
#include "naive.h"

typedef struct Heads {
    int64_t batches, queries, heads, depth, keys, groups;
} Heads;

static Heads heads_of(const KArgs *a) {
    const int64_t *q = a->in[0].dims, *k = a->in[1].dims;
    Heads h = {q[0], q[1], q[2], q[3], k[1], k[2]};
    return h;
}

/* [b, t, h, d] of a tensor, [b, h, t] of lse */
static char *at4(const KTensor *t, int64_t b, int64_t i, int64_t h, int64_t d) {
    int64_t index[4] = {b, i, h, d};
    return n_at(t, index);
}
static char *at3(const KTensor *t, int64_t b, int64_t h, int64_t i) {
    int64_t index[3] = {b, h, i};
    return n_at(t, index);
}
static double get(const KTensor *t, int64_t b, int64_t i, int64_t h, int64_t d) {
    return n_get(t, at4(t, b, i, h, d));
}

static int64_t visible(const KArgs *a, const Heads *h, int64_t t) {
    int64_t n = ((const KAttention *)a->attr)->causal ? t + 1 + h->keys - h->queries : h->keys;
    return n < 0 ? 0 : n > h->keys ? h->keys : n;
}

static double dot(const KTensor *x, int64_t i, int64_t h, const KTensor *y, int64_t j, int64_t g,
                  int64_t b) {
    double sum = 0;
    for (int64_t d = 0; d < x->dims[3]; d++) sum += get(x, b, i, h, d) * get(y, b, j, g, d);
    return sum;
}

static int attention(const KArgs *a) {
    const KTensor *q = &a->in[0], *k = &a->in[1], *v = &a->in[2], *y = &a->out[0];
    Heads n = heads_of(a);
    double scale = ((const KAttention *)a->attr)->scale, *p = a->workspace;
    for (int64_t u = 0; u < n.batches * n.heads * n.queries; u++) {
        int64_t b = u / n.queries / n.heads, h = u / n.queries % n.heads, t = u % n.queries;
        int64_t g = h * n.groups / n.heads, seen = visible(a, &n, t);
        double top = -INFINITY, sum = 0;
        for (int64_t s = 0; s < seen; s++) {
            p[s] = scale * dot(q, t, h, k, s, g, b);
            if (p[s] > top) top = p[s];
        }
        double base = top == -INFINITY ? 0 : top;
        for (int64_t s = 0; s < seen; s++) sum += p[s] = exp(p[s] - base);
        for (int64_t d = 0; d < n.depth; d++) {
            double o = 0;
            for (int64_t s = 0; s < seen; s++) o += p[s] * get(v, b, s, g, d);
            n_put(y, at4(y, b, t, h, d), sum == 0 ? 0 : o / sum);
        }
        n_put(&a->out[1], at3(&a->out[1], b, h, t), top + log(sum));
    }
    return 0;
}

static int attention_grad(const KArgs *a) {
    const KTensor *q = &a->in[0], *k = &a->in[1], *v = &a->in[2], *y = &a->in[3];
    const KTensor *lse = &a->in[4], *dy = &a->in[5];
    Heads n = heads_of(a);
    int64_t size = n.keys * n.depth, shared = n.groups ? n.heads / n.groups : 0;
    double scale = ((const KAttention *)a->attr)->scale, *dk = a->workspace, *dv = dk + size;
    double *dq = dv + size;
    for (int64_t u = 0; u < n.batches * n.groups; u++) {
        int64_t b = u / n.groups, g = u % n.groups;
        memset(dk, 0, 2 * (size_t)size * sizeof *dk);
        for (int64_t w = 0; w < shared * n.queries; w++) {
            int64_t h = g * shared + w / n.queries, t = w % n.queries;
            double delta = dot(dy, t, h, y, t, h, b), l = n_get(lse, at3(lse, b, h, t));
            memset(dq, 0, (size_t)n.depth * sizeof *dq);
            for (int64_t s = 0; s < visible(a, &n, t); s++) {
                double p = exp(scale * dot(q, t, h, k, s, g, b) - l);
                double ds = p * (dot(dy, t, h, v, s, g, b) - delta) * scale;
                for (int64_t d = 0; d < n.depth; d++) {
                    dq[d] += ds * get(k, b, s, g, d);
                    dk[s * n.depth + d] += ds * get(q, b, t, h, d);
                    dv[s * n.depth + d] += p * get(dy, b, t, h, d);
                }
            }
            for (int64_t d = 0; d < n.depth; d++)
                n_put(&a->out[0], at4(&a->out[0], b, t, h, d), dq[d]);
        }
        for (int64_t i = 0; i < size; i++) {
            n_put(&a->out[1], at4(&a->out[1], b, i / n.depth, g, i % n.depth), dk[i]);
            n_put(&a->out[2], at4(&a->out[2], b, i / n.depth, g, i % n.depth), dv[i]);
        }
    }
    return 0;
}

static size_t workspace(const KArgs *a) {
    Heads n = heads_of(a);
    return sizeof(double) * (size_t)(2 * n.keys * n.depth + n.keys + n.depth);
}

const KernelRow k_rows_attention_naive[] = {
    {"attention", attention, NULL, workspace},
    {"attention_grad", attention_grad, NULL, workspace},
    {NULL, NULL, NULL, NULL},
};
