/* naive_rowwise.c - softmax, norms and cross-entropy along the last dim, in double. */
#include "naive.h"

/* Element c of row r: the leading dims' row-major position. */
static char *at(const KTensor *t, int64_t r, int64_t c) {
    return n_elem(t, r * t->dims[t->rank - 1] + c);
}
static double get(const KTensor *t, int64_t r, int64_t c) {
    return n_get(t, at(t, r, c));
}
/* Element r of a tensor that has the leading dims only. */
static double get_row(const KTensor *t, int64_t r) {
    return n_get(t, n_elem(t, r));
}
static int64_t columns(const KTensor *t) {
    return t->dims[t->rank - 1];
}
static int64_t rows(const KTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank - 1; d++) n *= t->dims[d];
    return n;
}

static double max_of(const KTensor *x, int64_t r) {
    double top = -INFINITY;
    for (int64_t c = 0; c < columns(x); c++)
        if (get(x, r, c) > top) top = get(x, r, c);
    return top;
}
static double sum_exp(const KTensor *x, int64_t r, double top) {
    double sum = 0;
    for (int64_t c = 0; c < columns(x); c++) sum += exp(get(x, r, c) - top);
    return sum;
}

/* ---- softmax -------------------------------------------------------------------------------- */
static int softmax(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    for (int64_t r = 0; r < rows(x); r++) {
        double top = max_of(x, r), sum = sum_exp(x, r, top);
        for (int64_t c = 0; c < columns(x); c++)
            n_put(y, at(y, r, c), exp(get(x, r, c) - top) / sum);
    }
    return 0;
}

static int log_softmax(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    for (int64_t r = 0; r < rows(x); r++) {
        double top = max_of(x, r), sum = sum_exp(x, r, top);
        for (int64_t c = 0; c < columns(x); c++)
            n_put(y, at(y, r, c), get(x, r, c) - top - log(sum));
    }
    return 0;
}

static int softmax_grad(const KArgs *a) {
    const KTensor *y = &a->in[0], *dy = &a->in[1], *dx = &a->out[0];
    for (int64_t r = 0; r < rows(y); r++) {
        double dot = 0;
        for (int64_t c = 0; c < columns(y); c++) dot += get(y, r, c) * get(dy, r, c);
        for (int64_t c = 0; c < columns(y); c++)
            n_put(dx, at(dx, r, c), get(y, r, c) * (get(dy, r, c) - dot));
    }
    return 0;
}

/* ---- norms: centered is layer norm, else RMS norm ------------------------------------------- */
static int norm(const KArgs *a, int centered) {
    const KTensor *x = &a->in[0], *scale = &a->in[1], *y = &a->out[0];
    double n = (double)columns(x), eps = ((const KNorm *)a->attr)->eps;
    for (int64_t r = 0; r < rows(x); r++) {
        double mean = 0, var = 0;
        for (int64_t c = 0; centered && c < columns(x); c++) mean += get(x, r, c) / n;
        for (int64_t c = 0; c < columns(x); c++) var += pow(get(x, r, c) - mean, 2) / n;
        if (columns(x) == 0) mean = var = centered ? NAN : 0 * NAN;
        double rstd = 1 / sqrt(var + eps);
        for (int64_t c = 0; c < columns(x); c++) {
            double bias = centered ? get_row(&a->in[2], c) : 0;
            n_put(y, at(y, r, c), (get(x, r, c) - mean) * rstd * get_row(scale, c) + bias);
        }
        if (centered) n_put(&a->out[1], n_elem(&a->out[1], r), mean);
        n_put(&a->out[1 + centered], n_elem(&a->out[1 + centered], r), rstd);
    }
    return 0;
}

static int norm_grad(const KArgs *a, int centered) {
    const KTensor *dy = &a->in[0], *x = &a->in[1], *scale = &a->in[2], *dx = &a->out[0];
    double n = (double)columns(x);
    for (int64_t r = 0; r < rows(x); r++) {
        double mean = centered ? get_row(&a->in[3], r) : 0, rstd = get_row(&a->in[3 + centered], r);
        double g_mean = 0, dot_mean = 0;
        for (int64_t c = 0; c < columns(x); c++) {
            double g = get(dy, r, c) * get_row(scale, c);
            if (centered) g_mean += g / n;
            dot_mean += g * (get(x, r, c) - mean) * rstd / n;
        }
        for (int64_t c = 0; c < columns(x); c++) {
            double g = get(dy, r, c) * get_row(scale, c), hat = (get(x, r, c) - mean) * rstd;
            n_put(dx, at(dx, r, c), rstd * (g - g_mean - hat * dot_mean));
        }
    }
    return 0;
}

/* The parameters' gradients, by parts of the rows. */
static void norm_params(const KArgs *a, int centered) {
    const KTensor *dy = &a->in[0], *x = &a->in[1], *dscale = &a->out[1], *dbias = &a->out[2];
    int64_t parts = dscale->dims[0];
    for (int64_t i = 0; i < parts * columns(x); i++) {
        int64_t p = i / columns(x), c = i % columns(x);
        double s = 0, b = 0;
        for (int64_t r = rows(x) * p / parts; r < rows(x) * (p + 1) / parts; r++) {
            double mean = centered ? get_row(&a->in[3], r) : 0;
            double rstd = get_row(&a->in[3 + centered], r);
            s += get(dy, r, c) * (get(x, r, c) - mean) * rstd;
            b += get(dy, r, c);
        }
        n_put(dscale, n_elem(dscale, i), s);
        if (centered) n_put(dbias, n_elem(dbias, i), b);
    }
}

static int norm_grads(const KArgs *a, int centered) {
    norm_params(a, centered); /* first: dx may alias dy or x */
    return norm_grad(a, centered);
}

/* ---- cross-entropy -------------------------------------------------------------------------- */
static int bad_label(const KArgs *a, int64_t r, int64_t *label) {
    *label = n_get_int(&a->in[1], n_elem(&a->in[1], r));
    if (*label >= 0 && *label < columns(&a->in[0])) return 0;
    *a->fault = (KFault){K_FAULT_INDEX, *label, columns(&a->in[0])};
    return 1;
}

static int cross_entropy(const KArgs *a) {
    const KTensor *x = &a->in[0], *loss = &a->out[0], *lse = &a->out[1];
    for (int64_t r = 0, label; r < rows(x); r++) {
        if (bad_label(a, r, &label)) return 1;
        double top = max_of(x, r), e = top + log(sum_exp(x, r, top));
        n_put(loss, n_elem(loss, r), e - get(x, r, label));
        n_put(lse, n_elem(lse, r), e);
    }
    return 0;
}

static int cross_entropy_grad(const KArgs *a) {
    const KTensor *x = &a->in[0], *dx = &a->out[0];
    for (int64_t r = 0, label; r < rows(x); r++) {
        if (bad_label(a, r, &label)) return 1;
        double lse = get_row(&a->in[2], r), dloss = get_row(&a->in[3], r);
        for (int64_t c = 0; c < columns(x); c++)
            n_put(dx, at(dx, r, c), (exp(get(x, r, c) - lse) - (c == label)) * dloss);
    }
    return 0;
}

static int cross_entropy_both(const KArgs *a) {
    const KTensor in[4] = {a->in[0], a->in[1], a->out[1], a->in[2]};
    KArgs grad = *a;
    grad.in = in;
    grad.out = &a->out[2];
    grad.nin = 4;
    grad.nout = 1;
    return cross_entropy(a) || cross_entropy_grad(&grad);
}

K_KERNEL(layer_norm, norm(a, 1))
K_KERNEL(layer_norm_grad, norm_grads(a, 1))
K_KERNEL(rms_norm, norm(a, 0))
K_KERNEL(rms_norm_grad, norm_grads(a, 0))

const KernelRow k_rows_softmax_naive[] = {
    {"softmax", softmax, NULL, NULL},
    {"log_softmax", log_softmax, NULL, NULL},
    {"softmax_grad", softmax_grad, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
const KernelRow k_rows_norm_naive[] = {
    {"layer_norm", layer_norm, NULL, NULL},
    {"layer_norm_grad", layer_norm_grad, NULL, NULL},
    {"rms_norm", rms_norm, NULL, NULL},
    {"rms_norm_grad", rms_norm_grad, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
const KernelRow k_rows_cross_entropy_naive[] = {
    {"softmax_cross_entropy", cross_entropy, NULL, NULL},
    {"softmax_cross_entropy_grad", cross_entropy_grad, NULL, NULL},
    {"softmax_cross_entropy_both", cross_entropy_both, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
