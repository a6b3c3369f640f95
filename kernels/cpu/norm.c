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
    k_walk_over(&w, x->rank - 1, (const KTensor *[]){x, y, rstd, mean}, 3 + centered);
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

/* What the rows of a gradient are made of. Two sums are kept: of the scale's gradient, of the
 * bias's. */
typedef struct GradRows {
    KLine dy, x, dx, scale, sum[2];
    const void *scales;
    const KTensor *rstd, *mean;
    void *few[2]; /* sums over the last rows, at most GROUP */
    void *all[2]; /* and over those of the part before them */
    KWalk w;      /* of dy, x, dx, rstd, mean */
    int wide, past;
} GradRows;

K_INLINE void begin_grad(GradRows *g, const KArgs *a, const int centered) {
    const KTensor *dy = &a->in[0], *x = &a->in[1], *dx = &a->out[0];
    char *workspace = k_align(a->workspace);
    g->wide = x->dtype == DT_F64;
    g->past = k_streams(dx) && dx->data != dy->data && dx->data != x->data;
    g->rstd = &a->in[3 + centered];
    g->mean = &a->in[3];
    g->dy = k_line(dy, &workspace);
    g->x = k_line(x, &workspace);
    g->dx = k_line(dx, &workspace);
    g->scale = k_line(&a->in[2], &workspace);
    for (int k = 0; k <= centered; k++) g->sum[k] = k_line(&a->out[1 + k], &workspace);
    g->few[0] = workspace;
    g->few[1] = workspace + k_line_bytes(g->x.n);
    memset(workspace, 0, 2 * (size_t)k_line_bytes(g->x.n));
    g->scales = k_line_in(&g->scale, a->in[2].data);
    k_walk_over(&g->w, x->rank - 1, (const KTensor *[]){dy, x, dx, g->rstd, g->mean}, 4 + centered);
}

/* dx of the row that the walk is at, which is added to the sums. */
K_INLINE void grad_row(GradRows *g, const int centered) {
    const void *dy = k_line_in(&g->dy, g->w.at[0]), *x = k_line_in(&g->x, g->w.at[1]);
    void *dx = k_line_out(&g->dx, g->w.at[2]);
    KReal m, r;
    k_get(g->rstd->dtype, g->w.at[3], &r);
    if (centered) k_get(g->mean->dtype, g->w.at[4], &m);
    if (g->wide)
        norm_grad_f64(dy, x, g->scales, dx, g->x.n, centered, g->past, &m, &r, g->few[0],
                      g->few[1]);
    else
        norm_grad_f32(dy, x, g->scales, dx, g->x.n, centered, g->past, &m, &r, g->few[0],
                      g->few[1]);
    k_line_done(&g->dx, g->w.at[2]);
}

K_INLINE void flush(const GradRows *g, const int centered) {
    for (int k = 0; k <= centered; k++) {
        if (g->wide)
            norm_flush_f64(g->few[k], g->all[k], g->x.n);
        else
            norm_flush_f32(g->few[k], g->all[k], g->x.n);
    }
}

/* A unit is one part: some rows of dx, and the sums over them. */
K_INLINE int norm_grad(const KArgs *a, const int centered) {
    int64_t parts = a->out[1].dims[0], rows = k_row_count(&a->in[1]), i = rows * a->lo / parts;
    GradRows g;
    begin_grad(&g, a, centered);
    if (i < rows) k_walk_start(&g.w, i);
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t end = rows * (u + 1) / parts;
        char *at[2];
        for (int k = 0; k <= centered; k++) {
            at[k] = a->out[1 + k].data + u * a->out[1 + k].strides[0];
            g.all[k] = begin_sums(&g.sum[k], at[k], g.wide);
        }
        for (int64_t added = 1; i < end; i++, added++, k_walk_advance(&g.w, 1)) {
            grad_row(&g, centered);
            if (added % GROUP == 0 || i + 1 == end) flush(&g, centered);
        }
        for (int k = 0; k <= centered; k++) k_line_done(&g.sum[k], at[k]);
    }
    if (g.past) stream_end();
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

K_KERNEL(layer_norm, norm(a, 1))
K_KERNEL(layer_norm_grad, norm_grad(a, 1))
K_KERNEL(rms_norm, norm(a, 0))
K_KERNEL(rms_norm_grad, norm_grad(a, 0))

K_ROWS(norm) = {
    {"layer_norm", layer_norm, units, workspace},
    {"layer_norm_grad", layer_norm_grad, grad_units, grad_workspace},
    {"rms_norm", rms_norm, units, workspace},
    {"rms_norm_grad", rms_norm_grad, grad_units, grad_workspace},
    {NULL, NULL, NULL, NULL},
};
