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

static int64_t visible(const KArgs *a, const NaiveHeads *h, int64_t t) {
    int64_t n = ((const KAttention *)a->attr)->causal ? t + 1 + h->keys - h->queries : h->keys;
    return n < 0 ? 0 : n > h->keys ? h->keys : n;
}

/* masked_attention: operand `at` is the mask, the next one the key. */
static int sees(const KArgs *a, int at, int64_t b, int64_t h, int64_t t, int64_t s) {
    return a->nin <= at || *at4(&a->in[at], b, h, t, s) != 0;
}

/* 1 / keep, or 0 where dropout drops the probability */
static double kept(const KArgs *a, int at, int64_t b, int64_t h, int64_t t, int64_t s) {
    const KAttention *attr = a->attr;
    int64_t index[4] = {b, h, t, s}, i = 0;
    if (a->nin <= at || attr->keep == 1) return 1;
    uint32_t key[2];
    for (int k = 0; k < 2; k++)
        memcpy(&key[k], a->in[at + 1].data + k * a->in[at + 1].strides[0], 4);
    for (int d = 0; d < 4; d++) i += (index[d] + a->offsets[d]) * attr->strides[d];
    float u = (float)(k_random_u32(key[0], key[1], (uint64_t)i) >> 9) * 0x1p-23f;
    return u < (float)attr->keep ? 1 / attr->keep : 0;
}

static double dot(const KTensor *x, int64_t i, int64_t h, const KTensor *y, int64_t j, int64_t g,
                  int64_t b) {
    double sum = 0;
    for (int64_t d = 0; d < x->dims[3]; d++) sum += get(x, b, i, h, d) * get(y, b, j, g, d);
    return sum;
}

static int attention(const KArgs *a) {
    const KTensor *q = &a->in[0], *k = &a->in[1], *v = &a->in[2], *y = &a->out[0];
    NaiveHeads n = heads_of(a);
    double scale = ((const KAttention *)a->attr)->scale, *p = a->workspace;
    for (int64_t u = 0; u < n.batches * n.heads * n.queries; u++) {
        int64_t b = u / n.queries / n.heads, h = u / n.queries % n.heads, t = u % n.queries;
        int64_t g = h * n.groups / n.heads, seen = visible(a, &n, t);
        double top = -INFINITY, sum = 0;
        for (int64_t s = 0; s < seen; s++) {
            p[s] = sees(a, 3, b, h, t, s) ? scale * dot(q, t, h, k, s, g, b) : -INFINITY;
            if (p[s] > top) top = p[s];
        }
        double base = top == -INFINITY ? 0 : top;
        for (int64_t s = 0; s < seen; s++) sum += p[s] = exp(p[s] - base);
        if (a->nin > 3 && sum == 0) /* looks nowhere: at all keys alike */
            for (seen = 0; seen < n.keys; seen++) sum += p[seen] = 1;
        for (int64_t s = 0; s < seen; s++) p[s] *= kept(a, 3, b, h, t, s);
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
    NaiveHeads n = heads_of(a);
    int64_t size = n.keys * n.depth, shared = n.groups ? n.heads / n.groups : 0;
    double scale = ((const KAttention *)a->attr)->scale, *dk = a->workspace, *dv = dk + size;
    double *dq = dv + size;
    for (int64_t u = 0; u < n.batches * n.groups; u++) {
        int64_t b = u / n.groups, g = u % n.groups;
        memset(dk, 0, 2 * (size_t)size * sizeof *dk);
        for (int64_t w = 0; w < shared * n.queries; w++) {
            int64_t h = g * shared + w / n.queries, t = w % n.queries;
            double delta = dot(dy, t, h, y, t, h, b), l = n_get(lse, at3(lse, b, h, t));
            int none = a->nin > 6 && l == -INFINITY; /* looks nowhere: at all keys alike */
            memset(dq, 0, (size_t)n.depth * sizeof *dq);
            for (int64_t s = 0; s < (none ? n.keys : visible(a, &n, t)); s++) {
                if (!none && !sees(a, 6, b, h, t, s)) continue;
                double p = exp(scale * dot(q, t, h, k, s, g, b) - l);
                double keep = kept(a, 6, b, h, t, s);
                double ds = p * (keep * dot(dy, t, h, v, s, g, b) - delta) * scale;
                if (none) p = 1 / (double)n.keys, ds = 0;
                p *= keep;
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
    NaiveHeads n = heads_of(a);
    return sizeof(double) * (size_t)(2 * n.keys * n.depth + n.keys + n.depth);
}

const KernelRow k_rows_attention_naive[] = {
    {"attention", attention, NULL, workspace},
    {"attention_grad", attention_grad, NULL, workspace},
    {"masked_attention", attention, NULL, workspace},
    {"masked_attention_grad", attention_grad, NULL, workspace},
    {NULL, NULL, NULL, NULL},
};
