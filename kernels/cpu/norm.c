/* norm.c - layer_norm, rms_norm and their gradients over the last dim (kernel.h).
 *
 * hat = (x - mean) rstd, rstd = 1 / sqrt(mean of (x - mean)^2 + eps), y = hat scale + bias;
 * g = dy scale: dx = rstd (g - mean of g - hat mean of (g hat)); dscale = sum over rows of dy hat,
 * dbias = sum over rows of dy. RMS norm has mean 0 and no bias. The variance is a second pass over
 * the row, so it does not cancel.
 *
 * Any strides; quick where the last dim is contiguous float32 (or float64). y and dx may alias an
 * input. All float operands are float64, or none is.
 */
#include "lanes.h"
#include "rows.h"

#define REAL_CODE "norm_real.h"
#include "real.h"

enum {               /* of the params kernels */
       WIDE = 2048,  /* most columns of a pass over x */
       NARROW = 128, /* least columns of a unit */
       GROUP = 32,   /* rows that are added as float32 */
};

/* The operands of the six kernels, whose lists differ by mean and bias. */
static int norm(const KArgs *a, int centered) {
    const KTensor *x = &a->in[0], *y = &a->out[0], *mean = centered ? &a->out[1] : NULL;
    const KTensor *rstd = &a->out[1 + centered];
    int wide = x->dtype == DT_F64;
    double eps = ((const KNorm *)a->attr)->eps;
    int past = k_streams(y) && y->data != x->data;
    KReal m, r;
    int64_t per = k_unit_rows(x), i = a->lo * per, end = k_min(a->hi * per, k_row_count(x));
    if (i >= end) return 0;
    char *workspace = k_align(a->workspace);
    KLine in = k_line(x, &workspace), out = k_line(y, &workspace);
    KLine scale = k_line(&a->in[1], &workspace), bias = {0};
    const void *s = k_line_in(&scale, a->in[1].data), *b = NULL;
    if (centered) {
        bias = k_line(&a->in[2], &workspace);
        b = k_line_in(&bias, a->in[2].data);
    }
    KWalk w;
    k_walk_begin(&w, x, x->rank - 1);
    k_walk_add(&w, x);
    k_walk_add(&w, y);
    k_walk_add(&w, rstd);
    if (centered) k_walk_add(&w, mean);
    for (k_walk_start(&w, i); i < end; i++, k_walk_advance(&w, 1)) {
        const void *row = k_line_in(&in, w.at[0]);
        void *to = k_line_out(&out, w.at[1]);
        if (wide)
            norm_f64(row, s, b, to, in.n, eps, centered, past, &m, &r);
        else
            norm_f32(row, s, b, to, in.n, eps, centered, past, &m, &r);
        k_line_done(&out, w.at[1]);
        k_put(rstd->dtype, w.at[2], &r);
        if (centered) k_put(mean->dtype, w.at[3], &m);
    }
    if (past) stream_end();
    return 0;
}

static int norm_grad(const KArgs *a, int centered) {
    const KTensor *dy = &a->in[0], *x = &a->in[1], *dx = &a->out[0];
    const KTensor *mean = centered ? &a->in[3] : NULL, *rstd = &a->in[3 + centered];
    int wide = x->dtype == DT_F64;
    KReal m, r;
    int64_t per = k_unit_rows(x), i = a->lo * per, end = k_min(a->hi * per, k_row_count(x));
    if (i >= end) return 0;
    char *workspace = k_align(a->workspace);
    KLine grad = k_line(dy, &workspace), in = k_line(x, &workspace), out = k_line(dx, &workspace);
    KLine scale = k_line(&a->in[2], &workspace);
    const void *s = k_line_in(&scale, a->in[2].data);
    KWalk w;
    k_walk_begin(&w, x, x->rank - 1);
    k_walk_add(&w, dy);
    k_walk_add(&w, x);
    k_walk_add(&w, dx);
    k_walk_add(&w, rstd);
    if (centered) k_walk_add(&w, mean);
    for (k_walk_start(&w, i); i < end; i++, k_walk_advance(&w, 1)) {
        const void *g = k_line_in(&grad, w.at[0]), *row = k_line_in(&in, w.at[1]);
        void *to = k_line_out(&out, w.at[2]);
        k_get(rstd->dtype, w.at[3], &r);
        if (centered) k_get(mean->dtype, w.at[4], &m);
        if (wide)
            norm_grad_f64(g, row, s, to, in.n, centered, &m, &r);
        else
            norm_grad_f32(g, row, s, to, in.n, centered, &m, &r);
        k_line_done(&out, w.at[2]);
    }
    return 0;
}

static void put_sums(const KTensor *t, int64_t first, int64_t n, const double *sum) {
    float narrow[WIDE];
    const void *from = sum;
    if (t->dtype != DT_F64) {
        for (int64_t i = 0; i < n; i++) narrow[i] = (float)sum[i];
        from = narrow;
    }
    k_store_fn(t->dtype)(t->data + first * t->strides[0], t->strides[0], from, n);
}

/* A block of columns: over all rows, in groups of GROUP whose sums are exact enough as REAL. */
typedef struct Sums {
    _Alignas(64) char part[2][WIDE * 8];
    double all[2][WIDE];
} Sums;

static void flush(Sums *s, int64_t n, int wide) {
    for (int k = 0; k < 2; k++) {
        if (wide)
            norm_flush_f64(n, s->part[k], s->all[k]);
        else
            norm_flush_f32(n, s->part[k], s->all[k]);
    }
}

static int64_t block_of(const KTensor *t) {
    return k_max(NARROW, k_min(WIDE / 4, (t->dims[t->rank - 1] / 8 + 31) & ~(int64_t)31));
}

static int norm_params(const KArgs *a, int centered) {
    const KTensor *dy = &a->in[0], *x = &a->in[1], *mean = centered ? &a->in[2] : NULL;
    const KTensor *rstd = &a->in[2 + centered];
    int last = x->rank - 1, wide = x->dtype == DT_F64;
    int64_t rows = k_row_count(x), block = block_of(x);
    double dy_buf[WIDE], x_buf[WIDE];
    Sums s;
    KReal m, r;
    int64_t end = k_min(a->hi * block, x->dims[last]), n;
    for (int64_t first = a->lo * block; first < end; first += n) {
        n = k_min(WIDE / block * block, end - first); /* neighbouring units in one pass */
        memset(&s, 0, sizeof s);
        KWalk w;
        k_walk_begin(&w, x, last);
        k_walk_add(&w, dy);
        k_walk_add(&w, x);
        k_walk_add(&w, rstd);
        if (centered) k_walk_add(&w, mean);
        w.at[0] += first * dy->strides[last];
        w.at[1] += first * x->strides[last];
        if (rows) k_walk_start(&w, 0);
        for (int64_t i = 0; i < rows; i++, k_walk_advance(&w, 1)) {
            const void *g = k_run_in(dy->dtype, w.at[0], dy->strides[last], n, dy_buf);
            const void *row = k_run_in(x->dtype, w.at[1], x->strides[last], n, x_buf);
            k_get(rstd->dtype, w.at[2], &r);
            if (centered) k_get(mean->dtype, w.at[3], &m);
            const void *mp = centered ? &m : NULL;
            if (wide)
                norm_params_f64(g, row, mp, &r, n, s.part[0], s.part[1]);
            else
                norm_params_f32(g, row, mp, &r, n, s.part[0], s.part[1]);
            if (i % GROUP == GROUP - 1) flush(&s, n, wide);
        }
        flush(&s, n, wide);
        put_sums(&a->out[0], first, n, s.all[0]);
        if (centered) put_sums(&a->out[1], first, n, s.all[1]);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    return k_row_units(&a->in[0]);
}
static int64_t param_units(const KArgs *a) {
    return k_ceil_div(a->out[0].dims[0], block_of(&a->in[0]));
}
static size_t workspace(const KArgs *a) {
    return (size_t)(4 * k_line_bytes(a->in[0].dims[a->in[0].rank - 1]) + 64);
}

static int layer_norm(const KArgs *a) {
    return norm(a, 1);
}
static int layer_norm_grad(const KArgs *a) {
    return norm_grad(a, 1);
}
static int layer_norm_grad_params(const KArgs *a) {
    return norm_params(a, 1);
}
static int rms_norm(const KArgs *a) {
    return norm(a, 0);
}
static int rms_norm_grad(const KArgs *a) {
    return norm_grad(a, 0);
}
static int rms_norm_grad_params(const KArgs *a) {
    return norm_params(a, 0);
}

K_ROWS(norm) = {
    {"layer_norm", layer_norm, units, workspace},
    {"layer_norm_grad", layer_norm_grad, units, workspace},
    {"layer_norm_grad_params", layer_norm_grad_params, param_units, NULL},
    {"rms_norm", rms_norm, units, workspace},
    {"rms_norm_grad", rms_norm_grad, units, workspace},
    {"rms_norm_grad_params", rms_norm_grad_params, param_units, NULL},
    {NULL, NULL, NULL, NULL},
};
