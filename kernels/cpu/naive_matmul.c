/* naive_matmul.c - matmul: for each output, a sum over k. matmul_fused: the product as a whole,
 * then the program. */
#include <stdlib.h>
#include "naive.h"

/* Puts the row-major position i of the group `role` into t's index. */
static void place(const KTensor *t, const uint8_t *roles, KRole role, int64_t i, int64_t *index) {
    for (int d = t->rank - 1; d >= 0; d--) {
        if (roles[d] != role) continue;
        index[d] = i % t->dims[d];
        i /= t->dims[d];
    }
}
static int64_t size_of(const KTensor *t, const uint8_t *roles, KRole role) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        if (roles[d] == role) n *= t->dims[d];
    return n;
}

int k_naive_matmul(const KArgs *a) {
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
        for (int64_t l = 0; l < k; l++) {
            place(x, r->x, K_K, l, i);
            place(w, r->w, K_K, l, j);
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

/* The product, and its elements after it in the workspace. */
typedef struct Whole {
    KTensor y;
    int64_t strides[K_MAX_RANK];
} Whole;

static DType computed_in(DType t) {
    return t == DT_BF16 || t == DT_F16 ? DT_F32 : t == DT_BOOL || t == DT_U8 ? DT_I32 : t;
}

static size_t product_bytes(const KArgs *a) {
    return sizeof(Whole) +
           (size_t)(n_count(&a->out[0]) * n_size(computed_in(a->in[0].dtype)) + 7) / 8 * 8;
}

static int matmul_fused(const KArgs *a) {
    Whole *w = a->workspace;
    KArgs product = *a, program = *a;
    w->y = a->out[0];
    w->y.dtype = computed_in(a->in[0].dtype);
    w->y.data = (char *)(w + 1);
    w->y.strides = w->strides;
    int64_t stride = n_size(w->y.dtype);
    for (int d = w->y.rank - 1; d >= 0; stride *= w->y.dims[d], d--) w->strides[d] = stride;
    product.out = &w->y;
    k_naive_matmul(&product);
    KTensor *in = (void *)((char *)a->workspace + product_bytes(a));
    in[0] = w->y;
    for (int k = 2; k < a->nin; k++) in[k - 1] = a->in[k];
    program.in = in;
    program.nin = a->nin - 1;
    program.attr = (const KMatmul *)a->attr + 1;
    program.workspace = in + program.nin;
    return k_naive_fused(&program);
}

static size_t matmul_fused_workspace(const KArgs *a) {
    KArgs program = *a;
    program.attr = (const KMatmul *)a->attr + 1;
    return product_bytes(a) + sizeof(KTensor) * (size_t)a->nin + k_naive_fused_workspace(&program);
}

const KernelRow k_rows_matmul_naive[] = {
    {"matmul", k_naive_matmul, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

const KernelRow k_rows_matmul_fused_naive[] = {
    {"matmul_fused", matmul_fused, NULL, matmul_fused_workspace},
    {NULL, NULL, NULL, NULL},
};
