/* naive_matmul.c - for each output, a sum over k. */
#include "naive.h"

/* Puts the row-major position i of the group `role` into t's index. */
static void place(const KTensor *t, const uint8_t *roles, KRole role, int64_t i, int64_t *index) {
    for (int d = t->rank - 1; d >= 0; d--) {
        if (roles[d] != role) continue;
        index[d] = i % t->dims[d];
        i /= t->dims[d];
    }
}
/* The index of the position behind it. */
static void advance(const KTensor *t, const uint8_t *roles, KRole role, int64_t *index) {
    for (int d = t->rank - 1; d >= 0; d--) {
        if (roles[d] != role) continue;
        if (++index[d] < t->dims[d]) return;
        index[d] = 0;
    }
}
static int64_t size_of(const KTensor *t, const uint8_t *roles, KRole role) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        if (roles[d] == role) n *= t->dims[d];
    return n;
}

static int matmul(const KArgs *a) {
    const KTensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    const KMatmul *r = a->attr;
    int64_t batch = size_of(y, r->y, K_BATCH), m = size_of(y, r->y, K_M), n = size_of(y, r->y, K_N);
    int64_t k = size_of(x, r->x, K_K), i[K_MAX_RANK], j[K_MAX_RANK], o[K_MAX_RANK];
    for (int64_t u = 0; u < batch * m * n; u++) {
        double sum = 0;
        uint64_t whole = 0;
        place(x, r->x, K_BATCH, u / n / m, i);
        place(w, r->w, K_BATCH, u / n / m, j);
        place(y, r->y, K_BATCH, u / n / m, o);
        place(x, r->x, K_M, u / n % m, i);
        place(y, r->y, K_M, u / n % m, o);
        place(w, r->w, K_N, u % n, j);
        place(y, r->y, K_N, u % n, o);
        if (k > 0) {
            place(x, r->x, K_K, 0, i);
            place(w, r->w, K_K, 0, j);
        }
        for (int64_t l = 0; l < k; l++, advance(x, r->x, K_K, i), advance(w, r->w, K_K, j)) {
            if (n_is_float(x->dtype))
                sum += n_get(x, n_at(x, i)) * n_get(w, n_at(w, j));
            else
                whole += (uint64_t)n_get_int(x, n_at(x, i)) * (uint64_t)n_get_int(w, n_at(w, j));
        }
        if (n_is_float(x->dtype))
            n_put(y, n_at(y, o), sum);
        else
            n_put_int(y, n_at(y, o), (int64_t)whole);
    }
    return 0;
}

const KernelRow k_rows_matmul_naive[] = {
    {"matmul", matmul, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
