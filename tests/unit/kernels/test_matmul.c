/* test_matmul.c - matmul with and without BLAS, any roles and strides, every dtype. */
#include <dlfcn.h>
#include "kcheck.h"

static KBlas blas;

static void load_blas(void) {
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return;
    *(void **)&blas.sgemm = dlsym(lib, "cblas_sgemm");
    *(void **)&blas.dgemm = dlsym(lib, "cblas_dgemm");
}

typedef struct Dims {
    int64_t size[4][3]; /* by role, up to three dims each */
    int count[4];
} Dims;

/* A tensor with the dims of three roles in a random order; `roles` says which is which. */
static Tensor operand(DType t, const Dims *d, KRole a, KRole b, KRole c, uint8_t *roles,
                      Layout layout, int shuffle) {
    int64_t dims[K_MAX_RANK];
    int rank = 0, next[4] = {0};
    KRole role[3] = {a, b, c};
    int left = d->count[a] + d->count[b] + d->count[c];
    for (int k = 0; left > 0; left--) {
        if (shuffle) k = (int)below(3);
        while (next[role[k]] == d->count[role[k]]) k = (k + 1) % 3;
        roles[rank] = (uint8_t)role[k];
        dims[rank++] = d->size[role[k]][next[role[k]]++];
    }
    return tensor(t, rank, dims, layout);
}

static void product(DType in, DType out, const Dims *d, const KBlas *b, int shuffle) {
    KMatmul attr;
    int64_t k = 1;
    for (int i = 0; i < d->count[K_K]; i++) k *= d->size[K_K][i];
    Case c = {.name = "matmul",
              .attr = &attr,
              .nin = 2,
              .nout = 1,
              .blas = b,
              .products = 1,
              .rtol = 2e-6};
    c.atol = (in == DT_F64 ? 1e-15 : 2e-7) * (double)(k + 4);
    c.in[0] = operand(in, d, K_BATCH, K_M, K_K, attr.x, shuffle ? ANY_BROADCAST : DENSE, shuffle);
    c.in[1] = operand(in, d, K_BATCH, K_K, K_N, attr.w, shuffle ? ANY_BROADCAST : DENSE, shuffle);
    c.out[0] = operand(out, d, K_BATCH, K_M, K_N, attr.y, shuffle ? ANY : DENSE, shuffle);
    for (int i = 0; i < 2; i++) fill(&c.in[i], kt_is_float(in) ? -1 : 0, kt_is_float(in) ? 1 : 0);
    check_case(&c);
}

static void random_product(DType in, DType out, const KBlas *b) {
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 9, 16, 17, 24, 31, 33};
    Dims d = {0};
    for (int r = 0; r < 4; r++) {
        d.count[r] = (int)below(3);
        for (int i = 0; i < d.count[r]; i++)
            d.size[r][i] = sizes[below(d.count[r] == 1 && r ? 11 : r ? 5 : 3)];
        if (d.count[r] && rnd() % 40 == 0) d.size[r][0] = 0;
    }
    product(in, out, &d, b, rnd() % 4 != 0);
}

/* [m, k] x [k, n] with each operand plain or transposed */
static void plain(DType t, int64_t m, int64_t n, int64_t k, int transpose, const KBlas *b) {
    KMatmul attr = {{K_M, K_K}, {K_K, K_N}, {K_M, K_N}};
    uint8_t *roles[3] = {attr.x, attr.w, attr.y};
    int64_t dims[3][2] = {{m, k}, {k, n}, {m, n}};
    Tensor x[3];
    for (int i = 0; i < 3; i++) {
        if (transpose >> i & 1) {
            int64_t s = dims[i][0];
            uint8_t r = roles[i][0];
            dims[i][0] = dims[i][1], dims[i][1] = s;
            roles[i][0] = roles[i][1], roles[i][1] = r;
        }
        x[i] = tensor(t, 2, dims[i], DENSE);
        if (i < 2) fill(&x[i], -1, 1);
    }
    Case c = {.name = "matmul",
              .attr = &attr,
              .nin = 2,
              .nout = 1,
              .blas = b,
              .products = 1,
              .in = {x[0], x[1]},
              .out = {x[2]}};
    c.atol = (t == DT_F64 ? 1e-15 : 2e-7) * (double)(k + 4);
    check_case(&c);
}

static void all(const KBlas *b) {
    for (int t = 0; t < DT_COUNT; t++)
        for (int k = 0; k < 25 / KT_SHARE; k++) random_product((DType)t, (DType)t, b);
    for (int k = 0; k < 8; k++) random_product(k % 2 ? DT_BF16 : DT_F16, DT_F32, b);
    for (int transpose = 0; transpose < 8; transpose++) {
        plain(DT_F32, 70, 65, 67, transpose, b);
        plain(DT_F64, 65, 66, 71, transpose, b);
        plain(DT_BF16, 80, 70, 40, transpose, b);
    }
    for (int transpose = 0; transpose < 4; transpose++) {
        plain(DT_F32, 1, 601, 401, transpose, b);
        plain(DT_F32, 603, 1, 397, transpose, b);
        plain(DT_F32, 7, 100, 37, transpose, b);
        if (KT_SHARE == 1 || transpose % 3 == 0)
            plain(DT_F32, 260, 300, 400, transpose, b); /* several units, panels and chains */
    }
    plain(DT_F32, 3, 512, 520, 2, b);
    plain(DT_F32, 700, 1, 300, 0, b);
    plain(DT_F32, 300, 40, 17, 4, b);
    plain(DT_BF16, 40, 530, 525, 0, b);
    plain(DT_F32, 33, 1030, 260, 0, b);
    plain(DT_F32, 270, 90, 130, 0, b); /* many units */
    Dims d = {.size = {{5}, {40, 2}, {33}, {8, 9}}, .count = {1, 2, 1, 2}};
    for (int k = 0; k < 6; k++) product(k % 2 ? DT_F32 : DT_F16, DT_F32, &d, b, 1);
}

int main(void) {
    all(NULL);
    load_blas();
    if (blas.sgemm && blas.dgemm)
        all(&blas);
    else
        printf("skip: no libopenblas.so.0\n");
    return test_end();
}
