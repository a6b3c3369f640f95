/* test_rowwise.c - softmax, norms and cross-entropy along the last dim. */
#include "kcheck.h"

static const DType floats[] = {DT_F32, DT_BF16, DT_F16, DT_F64};

/* A GPU holds rows of different lengths in different ways. */
#ifdef KC_CUDA
enum { KC_LONG = 1 };
#else
enum { KC_LONG = 0 };
#endif
static int64_t long_rows; /* the last dim; 0: one of `sizes` */

/* Leading dims and a last one of n. */
static int shape(int64_t *dims, int64_t n) {
    int rank = 1 + (int)below(3);
    for (int d = 0; d < rank - 1; d++) dims[d] = rnd() % 16 ? 1 + below(long_rows ? 3 : 7) : 0;
    dims[rank - 1] = n;
    return rank;
}
static int64_t length(void) {
    static const int64_t sizes[] = {1, 2, 5, 16, 31, 32, 33, 64, 100, 257, 768};
    return long_rows ? long_rows : sizes[below(11)];
}
static Layout input_layout(void) {
    return (Layout)below(4);
}
static Layout output_layout(void) {
    return (Layout)below(3);
}
static double tolerance(DType t) {
    return t == DT_F64 ? 1e-13 : 2e-6;
}

static void softmax(const char *name, DType t) {
    int64_t dims[8];
    int rank = shape(dims, length()), grad = strcmp(name, "softmax_grad") == 0;
    Case c = {.name = name, .nin = 1 + grad, .nout = 1, .rtol = tolerance(t), .atol = tolerance(t)};
    if (grad) c.atol *= 50; /* the dot product is not small here, as y need not add up to 1 */
    for (int k = 0; k < c.nin; k++) {
        c.in[k] = tensor(t, rank, dims, input_layout());
        fill(&c.in[k], -3, 3);
        if (rnd() % 6 == 0) sprinkle(&c.in[k]);
    }
    c.out[0] = tensor(t, rank, dims, output_layout());
    if (rnd() % 4 == 0) alias_output(&c, 0, (int)below(c.nin));
    check_case(&c);
}

/* The parameters may have another 16-bit or 32-bit type than x. */
static DType other(DType t) {
    return t == DT_F64 ? t : floats[below(3)];
}
static Tensor leading(const Tensor *x, DType t, Layout layout) {
    return tensor(t == DT_F64 ? DT_F64 : DT_F32, x->t.rank - 1, x->dims, layout);
}

static void norm(DType t, int centered) {
    int64_t dims[8], n = length();
    int rank = shape(dims, n), k = 0;
    KNorm attr = {1e-5};
    Case c = {.name = centered ? "layer_norm" : "rms_norm",
              .attr = &attr,
              .nin = 2 + centered,
              .nout = 2 + centered,
              .rtol = 4 * tolerance(t),
              .atol = 4 * tolerance(t)};
    DType params = other(t);
    c.in[k++] = tensor(t, rank, dims, input_layout());
    c.in[k++] = tensor(params, 1, &n, input_layout());
    if (centered) c.in[k++] = tensor(params, 1, &n, input_layout());
    for (k = 0; k < c.nin; k++) fill(&c.in[k], -2, 3);
    if (rnd() % 6 == 0) sprinkle(&c.in[0]);
    c.out[0] = tensor(t, rank, dims, output_layout());
    for (k = 1; k < c.nout; k++) c.out[k] = leading(&c.out[0], t, ANY);
    if (rnd() % 4 == 0) alias_output(&c, 0, 0);
    /* in a row of equal elements 1 / sqrt(eps) magnifies what is left of x - mean */
    if (n == 1 || c.in[0].strides[rank - 1] == 0) c.atol *= 1000;
    check_case(&c);
}

static void norm_grad(DType t, int centered) {
    int64_t dims[8], n = length(), parts[2] = {1 + below(5), n};
    int rank = shape(dims, n), k = 0;
    Case c = {.name = centered ? "layer_norm_grad" : "rms_norm_grad",
              .nout = 2 + centered,
              .rtol = 4 * tolerance(t),
              .atol = 20 * tolerance(t)};
    c.in[k++] = tensor(t, rank, dims, input_layout());
    c.in[k++] = tensor(t, rank, dims, input_layout());
    c.in[k++] = tensor(other(t), 1, &n, input_layout());
    if (centered) c.in[k++] = leading(&c.in[0], t, input_layout());
    c.in[k++] = leading(&c.in[0], t, input_layout());
    c.nin = k;
    for (k = 0; k < c.nin; k++) fill(&c.in[k], -1, 2);
    c.out[0] = tensor(t, rank, dims, output_layout());
    for (k = 1; k < c.nout; k++) c.out[k] = tensor(t == DT_F64 ? t : DT_F32, 2, parts, ANY);
    if (rnd() % 4 == 0) alias_output(&c, 0, (int)below(2));
    check_case(&c);
}

/* Sums over more rows than stand alone. */
static void norm_grad_rows(DType t) {
    int64_t dims[2] = {700, 20}, parts[2] = {2, 20};
    Case c = {.name = "rms_norm_grad",
              .nin = 4,
              .nout = 2,
              .rtol = 4 * tolerance(t),
              .atol = 400 * tolerance(t)};
    for (int k = 0; k < 2; k++) c.in[k] = tensor(t, 2, dims, DENSE);
    c.in[2] = tensor(t, 1, &dims[1], DENSE);
    c.in[3] = leading(&c.in[0], t, DENSE);
    for (int k = 0; k < c.nin; k++) fill(&c.in[k], -1, 2);
    c.out[0] = tensor(t, 2, dims, DENSE);
    c.out[1] = tensor(t == DT_F64 ? t : DT_F32, 2, parts, DENSE);
    check_case(&c);
}

/* Results so large that they are written past the caches. */
static void past_caches(const char *name, int nin) {
    KNorm attr = {1e-5};
    int64_t dims[2] = {2, 4 << 20};
    Case c = {.name = name, .attr = &attr, .nin = nin, .nout = 1, .rtol = 2e-5, .atol = 2e-5};
    for (int k = 0; k < nin; k++) {
        c.in[k] = tensor(DT_F32, 2, dims, DENSE);
        fill(&c.in[k], -1, 1);
    }
    c.out[0] = tensor(DT_F32, 2, dims, DENSE);
    check_case(&c);
}

enum { LOSS, GRAD, BOTH };

static void cross_entropy(DType t, int what, int fault) {
    static const char *const names[] = {"softmax_cross_entropy", "softmax_cross_entropy_grad",
                                        "softmax_cross_entropy_both"};
    int64_t dims[8], n = length();
    int rank = shape(dims, n);
    if (fault)
        for (int d = 0; d < rank; d++) dims[d] = dims[d] ? dims[d] : 1;
    Case c = {.name = names[what],
              .nin = what == GRAD   ? 4
                     : what == BOTH ? 3
                                    : 2,
              .nout = what == GRAD   ? 1
                      : what == BOTH ? 3
                                     : 2,
              .rtol = tolerance(t),
              .atol = 4 * tolerance(t)};
    c.in[0] = tensor(t, rank, dims, input_layout());
    c.in[1] = tensor(DT_I32, rank - 1, dims, input_layout());
    fill(&c.in[0], -4, 4);
    if (rnd() % 4 == 0) sprinkle(&c.in[0]);
    if (n > 1)
        fill(&c.in[1], 0, (double)(n - 1));
    else
        memset(c.in[1].block, 0, c.in[1].bytes);
    if (fault) {
        int64_t bad = fault == 1 ? -1 : n;
        kt_put_int(DT_I32, kt_at(&c.in[1], below(kt_count(&c.in[1]))), bad);
        c.fault = (KFault){K_FAULT_INDEX, bad, n};
    }
    for (int k = 2; k < c.nin; k++) c.in[k] = leading(&c.in[0], t, input_layout());
    if (what == GRAD) fill(&c.in[2], 4, 9);
    if (what != LOSS) {
        fill(&c.in[c.nin - 1], -1, 1);
        c.out[c.nout - 1] = tensor(t, rank, dims, output_layout());
        if (rnd() % 4 == 0) alias_output(&c, c.nout - 1, 0);
    }
    for (int k = 0; what != GRAD && k < 2; k++) c.out[k] = leading(&c.in[0], t, ANY);
    check_case(&c);
}

static void everything(DType t) {
    softmax("softmax", t);
    softmax("log_softmax", t);
    softmax("softmax_grad", t);
    for (int centered = 0; centered < 2; centered++) {
        norm(t, centered);
        norm_grad(t, centered);
    }
    for (int what = LOSS; what <= BOTH; what++) cross_entropy(t, what, 0);
}

int main(void) {
    static const int64_t lengths[] = {1600, 5000, 9000, 20001, 24000};
    for (int k = 0; k < 50 / KT_SHARE; k++)
        for (int f = 0; f < 4; f++) everything(floats[f]);
    for (int k = 0; KC_LONG && k < 5; k++) {
        long_rows = lengths[k];
        everything(floats[k % 4]);
        everything(floats[(k + 1) % 4]);
    }
    long_rows = 0;
    for (int f = 0; f < 4; f++) norm_grad_rows(floats[f]);
    past_caches("softmax", 1);
    past_caches("softmax_grad", 2);
    for (int k = 0; k < 24; k++) cross_entropy(floats[k % 4], k / 4 % 3, 1 + k / 12);
    return test_end();
}
