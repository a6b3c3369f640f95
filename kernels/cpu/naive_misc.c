/* naive_misc.c - dropout, rope and adamw. */
#include "naive.h"

static int dropout(const KArgs *a) {
    const KTensor *x = &a->in[0], *key = &a->in[1], *y = &a->out[0];
    const KDropout *attr = a->attr;
    int64_t n = n_count(x), index[K_MAX_RANK];
    uint32_t k[2] = {(uint32_t)n_get_int(key, n_elem(key, 0)),
                     (uint32_t)n_get_int(key, n_elem(key, 1))};
    for (int64_t e = 0; e < n; e++) {
        n_index(x, e, index);
        uint64_t i = 0;
        for (int d = 0; d < x->rank; d++)
            i += (uint64_t)(index[d] + a->offsets[d]) * (uint64_t)attr->strides[d];
        uint64_t o = k_naive_threefry(k, (uint32_t[2]){(uint32_t)(i >> 32), (uint32_t)i});
        float u = (float)((uint32_t)(o >> 32 ^ o) >> 9) * 0x1p-23f;
        double keep = x->dtype == DT_F64 ? attr->keep : (double)(float)attr->keep;
        n_put(y, n_at(y, index), u < (float)attr->keep ? n_get(x, n_at(x, index)) / keep : 0);
    }
    return 0;
}

static int rope(const KArgs *a) {
    const KTensor *x = &a->in[0], *positions = &a->in[1], *y = &a->out[0];
    const KRope *attr = a->attr;
    int last = x->rank - 1;
    int64_t n = n_count(x), half = x->dims[last] / 2, index[K_MAX_RANK];
    for (int64_t k = 0; k < n; k++) {
        n_index(x, k, index);
        int64_t i = index[last], t = index[last - 2];
        if (i >= half) continue;
        double p = (double)n_get_int(positions, n_elem(positions, t));
        double angle = p * pow(attr->base, -2.0 * (double)i / (double)x->dims[last]);
        double c = cos(angle), s = sin(angle) * attr->sign, u = n_get(x, n_at(x, index));
        char *first = n_at(y, index);
        index[last] = i + half;
        double v = n_get(x, n_at(x, index));
        n_put(y, first, u * c - v * s);
        n_put(y, n_at(y, index), v * c + u * s);
    }
    return 0;
}

static int adamw(const KArgs *a) {
    const KAdamw *w = a->attr;
    const KTensor *in = a->in, *out = a->out;
    double lr = n_get(&in[4], in[4].data), step = n_get(&in[5], in[5].data);
    double clip = n_get(&in[6], in[6].data);
    int64_t n = n_count(&in[0]);
    for (int64_t i = 0; i < n; i++) {
        double p = n_get(&in[0], n_elem(&in[0], i)), g = n_get(&in[1], n_elem(&in[1], i)) * clip;
        if (step < 1) {
            n_put(&out[0], n_elem(&out[0], i), p);
            n_put(&out[1], n_elem(&out[1], i), n_get(&in[2], n_elem(&in[2], i)));
            n_put(&out[2], n_elem(&out[2], i), n_get(&in[3], n_elem(&in[3], i)));
            continue;
        }
        double mu = w->b1 * n_get(&in[2], n_elem(&in[2], i)) + (1 - w->b1) * g;
        double nu = w->b2 * n_get(&in[3], n_elem(&in[3], i)) + (1 - w->b2) * g * g;
        double m = mu / (1 - pow(w->b1, step)), v = nu / (1 - pow(w->b2, step));
        n_put(&out[0], n_elem(&out[0], i),
              p - lr * (m / (sqrt(v + w->eps_root) + w->eps) + w->decay * p));
        n_put(&out[1], n_elem(&out[1], i), mu);
        n_put(&out[2], n_elem(&out[2], i), nu);
    }
    return 0;
}

const KernelRow k_rows_dropout_naive[] = {
    {"dropout", dropout, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
const KernelRow k_rows_rope_naive[] = {
    {"rope", rope, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
const KernelRow k_rows_adamw_naive[] = {
    {"adamw", adamw, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
