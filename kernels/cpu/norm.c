/* norm.c - layer_norm, rms_norm and their gradients over the last dim (kernel.h).
 *
 * hat = (x - mean) rstd, rstd = 1 / sqrt(mean of (x - mean)^2 + eps), y = hat scale + bias;
 * g = dy scale: dx = rstd (g - mean of g - hat mean of (g hat)); dscale = sum over rows of dy hat,
 * dbias = sum over rows of dy. RMS norm has mean 0 and no bias. The variance is a second pass over
 * the row, so it does not cancel.
 *
 * Any strides; quick where the last dim is contiguous float32 (or float64). y and dx may alias an
 * input. All float operands are float64, or none is. */
#include "lanes.h"
#include "rows.h"

#define REAL_CODE "norm_real.h"
#include "real.h"

enum { GROUP = 128 }; /* rows whose sums stand alone, so that a long sum loses less */

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

/* Row u of a tensor [parts, C] as zeros that are added to. */
static void *begin_sums(const KLine *l, char *at, int wide) {
    void *to = k_line_out(l, at);
    memset(to, 0, (size_t)(l->n * (wide ? 8 : 4)));
    return to;
}

/* A unit is one part: some rows of dx, and the sums over them. */
K_INLINE int norm_grad(const KArgs *a, const int centered) {
    const KTensor *dy = &a->in[0], *x = &a->in[1], *dx = &a->out[0];
    const KTensor *mean = centered ? &a->in[3] : NULL, *rstd = &a->in[3 + centered];
    const KTensor *sums[2] = {&a->out[1], &a->out[1 + centered]}; /* of scale, of bias */
    int wide = x->dtype == DT_F64,
        past = k_streams(dx) && dx->data != dy->data && dx->data != x->data;
    int64_t parts = sums[0]->dims[0], rows = k_row_count(x), end;
    char *workspace = k_align(a->workspace);
    KLine grad = k_line(dy, &workspace), in = k_line(x, &workspace), out = k_line(dx, &workspace);
    KLine scale = k_line(&a->in[2], &workspace), sum[2];
    for (int k = 0; k <= centered; k++) sum[k] = k_line(sums[k], &workspace);
    char *few[2] = {workspace, workspace + k_line_bytes(in.n)};
    const void *s = k_line_in(&scale, a->in[2].data);
    KReal m, r;
    KWalk w;
    k_walk_begin(&w, x, x->rank - 1);
    k_walk_add(&w, dy);
    k_walk_add(&w, x);
    k_walk_add(&w, dx);
    k_walk_add(&w, rstd);
    if (centered) k_walk_add(&w, mean);
    int64_t i = rows * a->lo / parts;
    if (i < rows) k_walk_start(&w, i);
    memset(few[0], 0, 2 * (size_t)k_line_bytes(in.n));
    for (int64_t u = a->lo; u < a->hi; u++) {
        char *at[2];
        void *all[2];
        for (int k = 0; k <= centered; k++) {
            at[k] = sums[k]->data + u * sums[k]->strides[0];
            all[k] = begin_sums(&sum[k], at[k], wide);
        }
        end = rows * (u + 1) / parts;
        for (int64_t added = 1; i < end; i++, added++, k_walk_advance(&w, 1)) {
            const void *g = k_line_in(&grad, w.at[0]), *row = k_line_in(&in, w.at[1]);
            void *to = k_line_out(&out, w.at[2]);
            k_get(rstd->dtype, w.at[3], &r);
            if (centered) k_get(mean->dtype, w.at[4], &m);
            if (wide)
                norm_grad_f64(g, row, s, to, in.n, centered, past, &m, &r, few[0], few[1]);
            else
                norm_grad_f32(g, row, s, to, in.n, centered, past, &m, &r, few[0], few[1]);
            k_line_done(&out, w.at[2]);
            if (added % GROUP && i + 1 < end) continue;
            for (int k = 0; k <= centered; k++) {
                if (wide)
                    norm_flush_f64(few[k], all[k], in.n);
                else
                    norm_flush_f32(few[k], all[k], in.n);
            }
        }
        for (int k = 0; k <= centered; k++) k_line_done(&sum[k], at[k]);
    }
    if (past) stream_end();
    return 0;
}

static int64_t units(const KArgs *a) {
    return k_row_units(&a->in[0]);
}
static int64_t grad_units(const KArgs *a) {
    return a->out[1].dims[0];
}
static size_t workspace(const KArgs *a) {
    return (size_t)(4 * k_line_bytes(a->in[0].dims[a->in[0].rank - 1]) + 64);
}
static size_t grad_workspace(const KArgs *a) {
    return (size_t)(8 * k_line_bytes(a->in[0].dims[a->in[0].rank - 1]) + 64);
}

static int layer_norm(const KArgs *a) {
    return norm(a, 1);
}
static int layer_norm_grad(const KArgs *a) {
    return norm_grad(a, 1);
}
static int rms_norm(const KArgs *a) {
    return norm(a, 0);
}
static int rms_norm_grad(const KArgs *a) {
    return norm_grad(a, 0);
}

K_ROWS(norm) = {
    {"layer_norm", layer_norm, units, workspace},
    {"layer_norm_grad", layer_norm_grad, grad_units, grad_workspace},
    {"rms_norm", rms_norm, units, workspace},
    {"rms_norm_grad", rms_norm_grad, grad_units, grad_workspace},
    {NULL, NULL, NULL, NULL},
};
