/* naive_attention.c - attention and its gradient, with all scores of a head in the workspace. */
#include "naive.h"
#include "threefry.h"

typedef struct NaiveHeads {
    int64_t batches, queries, heads, depth, keys, groups;
} NaiveHeads;

static NaiveHeads heads_of(const KArgs *a) {
    const int64_t *q = a->in[0].dims, *k = a->in[1].dims;
    NaiveHeads h = {q[0], q[1], q[2], q[3], k[1], k[2]};
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

/* The option's operand, or NULL. */
static const KTensor *option(const KArgs *a, KAttentionOption o) {
    const KAttention *attr = a->attr;
    return attr->at[o] ? &a->in[attr->at[o]] : NULL;
}
static int64_t id(const KTensor *ids, int64_t b, int64_t i) {
    int32_t x;
    memcpy(&x, n_at(ids, (int64_t[]){b, i}), sizeof x);
    return x;
}

static int sees(const KArgs *a, int64_t b, int64_t h, int64_t t, int64_t s) {
    const KAttention *attr = a->attr;
    const KTensor *mask = option(a, K_ATTENTION_MASK), *offset = option(a, K_ATTENTION_OFFSET);
    const KTensor *lengths = option(a, K_ATTENTION_LENGTHS);
    const KTensor *rows = option(a, K_ATTENTION_QUERY_LENGTHS);
    const KTensor *queries = option(a, K_ATTENTION_QUERY_SEGMENTS);
    const KTensor *keys = option(a, K_ATTENTION_SEGMENTS);
    int64_t row = t + (a->offsets ? a->offsets[2] : 0);
    int64_t place = row + (offset ? id(offset, b, 0) : attr->ahead);
    if (attr->causal && s > place) return 0;
    if (attr->left >= 0 && s < place - attr->left) return 0;
    if (attr->right >= 0 && s > place + attr->right) return 0;
    if (lengths && s >= id(lengths, b, 0)) return 0;
    if (rows && row >= id(rows, b, 0)) return 0;
    if (queries && id(queries, b, t) != id(keys, b, s)) return 0;
    return !mask || *at4(mask, b, h, t, s) != 0;
}

/* 1 / keep, or 0 where dropout drops the probability */
static double kept(const KArgs *a, int64_t b, int64_t h, int64_t t, int64_t s) {
    const KAttention *attr = a->attr;
    const KTensor *key = option(a, K_ATTENTION_KEY);
    int64_t index[4] = {b, h, t, s}, i = 0;
    if (!key || attr->keep == 1) return 1;
    uint32_t words[2];
    for (int k = 0; k < 2; k++) memcpy(&words[k], key->data + k * key->strides[0], 4);
    for (int d = 0; d < 4; d++) i += (index[d] + a->offsets[d]) * attr->strides[d];
    float u = (float)(k_random_u32(words[0], words[1], (uint64_t)i) >> 9) * 0x1p-23f;
    return u < (float)attr->keep ? 1 / attr->keep : 0;
}

static double dot(const KTensor *x, int64_t i, int64_t h, const KTensor *y, int64_t j, int64_t g,
                  int64_t b) {
    double sum = 0;
    for (int64_t d = 0; d < x->dims[3]; d++) sum += get(x, b, i, h, d) * get(y, b, j, g, d);
    return sum;
}

/* The score of a key that is seen; to *slope what the soft cap does to its gradient. */
static double score(const KArgs *a, int64_t b, int64_t h, int64_t g, int64_t t, int64_t s,
                    double *slope) {
    const KAttention *attr = a->attr;
    const KTensor *bias = option(a, K_ATTENTION_BIAS);
    double u = attr->scale * dot(&a->in[0], t, h, &a->in[1], s, g, b), c = attr->soft_cap;
    *slope = c != 0 ? 1 - tanh(u / c) * tanh(u / c) : 1;
    if (c != 0) u = c * tanh(u / c);
    return bias ? u + get(bias, b, h, t, s) : u;
}

static int attention(const KArgs *a) {
    const KTensor *v = &a->in[2], *y = &a->out[0];
    NaiveHeads n = heads_of(a);
    double *p = a->workspace, slope;
    for (int64_t u = 0; u < n.batches * n.heads * n.queries; u++) {
        int64_t b = u / n.queries / n.heads, h = u / n.queries % n.heads, t = u % n.queries;
        int64_t g = h * n.groups / n.heads;
        double top = -INFINITY, sum = 0;
        for (int64_t s = 0; s < n.keys; s++) {
            p[s] = sees(a, b, h, t, s) ? score(a, b, h, g, t, s, &slope) : -INFINITY;
            if (p[s] > top) top = p[s];
        }
        double base = top == -INFINITY ? 0 : top;
        for (int64_t s = 0; s < n.keys; s++) sum += p[s] = exp(p[s] - base);
        for (int64_t s = 0; s < n.keys; s++) p[s] *= kept(a, b, h, t, s);
        for (int64_t d = 0; d < n.depth; d++) {
            double o = 0;
            for (int64_t s = 0; s < n.keys; s++)
                if (sees(a, b, h, t, s)) o += p[s] * get(v, b, s, g, d);
            n_put(y, at4(y, b, t, h, d), sum == 0 ? 0 : o / sum);
        }
        n_put(&a->out[1], at3(&a->out[1], b, h, t), top + log(sum));
    }
    return 0;
}

/* Of a query and a key: adds to dq, and to dk and dv of the key. */
static void pair_grads(const KArgs *a, const NaiveHeads *n, const int64_t at[5], double delta,
                       double l, double *dq, double *dk, double *dv) {
    const KTensor *q = &a->in[0], *k = &a->in[1], *v = &a->in[2], *dy = &a->in[5];
    int64_t b = at[0], h = at[1], g = at[2], t = at[3], s = at[4];
    double slope, p = 0, ds = 0, keep = kept(a, b, h, t, s);
    if (sees(a, b, h, t, s)) {
        p = exp(score(a, b, h, g, t, s, &slope) - (l == -INFINITY ? 0 : l));
        ds = p * (keep * dot(dy, t, h, v, s, g, b) - delta);
    }
    if (a->nout > 3) n_put(&a->out[3], at4(&a->out[3], b, h, t, s), ds);
    if (!sees(a, b, h, t, s)) return;
    ds *= slope * ((const KAttention *)a->attr)->scale;
    for (int64_t d = 0; d < n->depth; d++) {
        dq[d] += ds * get(k, b, s, g, d);
        dk[s * n->depth + d] += ds * get(q, b, t, h, d);
        dv[s * n->depth + d] += p * keep * get(dy, b, t, h, d);
    }
}

static int attention_grad(const KArgs *a) {
    const KTensor *y = &a->in[3], *lse = &a->in[4], *dy = &a->in[5];
    NaiveHeads n = heads_of(a);
    int64_t size = n.keys * n.depth, shared = n.groups ? n.heads / n.groups : 0;
    double *dk = a->workspace, *dv = dk + size, *dq = dv + size;
    for (int64_t u = 0; u < n.batches * n.groups; u++) {
        int64_t b = u / n.groups, g = u % n.groups;
        memset(dk, 0, 2 * (size_t)size * sizeof *dk);
        for (int64_t w = 0; w < shared * n.queries; w++) {
            int64_t h = g * shared + w / n.queries, t = w % n.queries;
            double delta = dot(dy, t, h, y, t, h, b), l = n_get(lse, at3(lse, b, h, t));
            memset(dq, 0, (size_t)n.depth * sizeof *dq);
            for (int64_t s = 0; s < n.keys; s++)
                pair_grads(a, &n, (int64_t[]){b, h, g, t, s}, delta, l, dq, dk, dv);
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
    NaiveHeads n = heads_of(a);
    return sizeof(double) * (size_t)(2 * n.keys * n.depth + n.keys + n.depth);
}

const KernelRow k_rows_attention_naive[] = {
    {"attention", attention, NULL, workspace},
    {"attention_grad", attention_grad, NULL, workspace},
    {NULL, NULL, NULL, NULL},
};
