/* cross_entropy.c - softmax_cross_entropy and its gradient over the last dim (kernel.h).
 *
 * lse = max + log(sum of e^(x - max)), loss = lse - x[label]; dx = (e^(x - lse) - [i == label])
 * dloss. Any strides; quick where the last dim is contiguous float32 (or float64). dlogits may
 * alias logits. All float operands are float64, or none is. */
#include "lanes.h"
#include "rows.h"

enum {
    BLOCK = 4096, /* elements of a row that are looked at together */
    ROWS = 64,    /* rows whose logarithms are */
};

static int bad_label(const KArgs *a, const char *at, int64_t n, int64_t *label) {
    int32_t id = *(const int32_t *)(const void *)at;
    *label = id;
    if (id >= 0 && id < n) return 0;
    *a->fault = (KFault){K_FAULT_INDEX, id, n};
    return 1;
}

#define REAL_CODE "cross_entropy_real.h"
#include "real.h"

static int cross_entropy(const KArgs *a) {
    const KTensor *x = &a->in[0], *labels = &a->in[1], *loss = &a->out[0], *lse = &a->out[1];
    int64_t per = k_unit_rows(x), i = a->lo * per, end = k_min(a->hi * per, k_row_count(x)), some;
    if (i >= end) return 0;
    char *workspace = k_align(a->workspace);
    KLine in = k_line(x, &workspace);
    KWalk w;
    k_walk_over(&w, x->rank - 1, (const KTensor *[]){x, labels, loss, lse}, 4);
    for (k_walk_start(&w, i); i < end; i += some) {
        some = k_min(ROWS, end - i);
        if (x->dtype == DT_F64 ? loss_f64(a, &w, &in, some) : loss_f32(a, &w, &in, some)) return 1;
    }
    return 0;
}

static int cross_entropy_grad(const KArgs *a) {
    const KTensor *x = &a->in[0], *labels = &a->in[1], *lse = &a->in[2], *dloss = &a->in[3];
    const KTensor *dx = &a->out[0];
    int64_t per = k_unit_rows(x), i = a->lo * per, end = k_min(a->hi * per, k_row_count(x)), label;
    if (i >= end) return 0;
    char *workspace = k_align(a->workspace);
    KLine in = k_line(x, &workspace), out = k_line(dx, &workspace);
    KReal e, d;
    KWalk w;
    int past = k_streams(dx) && dx->data != x->data;
    k_walk_over(&w, x->rank - 1, (const KTensor *[]){x, labels, lse, dloss, dx}, 5);
    for (k_walk_start(&w, i); i < end; i++, k_walk_advance(&w, 1)) {
        if (bad_label(a, w.at[1], in.n, &label)) return 1;
        const void *row = k_line_in(&in, w.at[0]);
        void *to = k_line_out(&out, w.at[4]);
        k_get(lse->dtype, w.at[2], &e);
        k_get(dloss->dtype, w.at[3], &d);
        if (x->dtype == DT_F64)
            loss_grad_f64(row, in.n, label, &d, &e, to, past);
        else
            loss_grad_f32(row, in.n, label, &d, &e, to, past);
        k_line_done(&out, w.at[4]);
    }
    if (past) stream_end();
    return 0;
}

static int cross_entropy_both(const KArgs *a) {
    const KTensor *x = &a->in[0], *labels = &a->in[1], *dloss = &a->in[2];
    const KTensor *loss = &a->out[0], *lse = &a->out[1], *dx = &a->out[2];
    int64_t per = k_unit_rows(x), i = a->lo * per, end = k_min(a->hi * per, k_row_count(x)), label;
    if (i >= end) return 0;
    char *workspace = k_align(a->workspace);
    KLine in = k_line(x, &workspace), out = k_line(dx, &workspace);
    KReal d, l, e;
    KWalk w;
    int past = k_streams(dx) && dx->data != x->data;
    k_walk_over(&w, x->rank - 1, (const KTensor *[]){x, labels, dloss, loss, lse, dx}, 6);
    for (k_walk_start(&w, i); i < end; i++, k_walk_advance(&w, 1)) {
        if (bad_label(a, w.at[1], in.n, &label)) return 1;
        const void *row = k_line_in(&in, w.at[0]);
        void *to = k_line_out(&out, w.at[5]);
        k_get(dloss->dtype, w.at[2], &d);
        if (x->dtype == DT_F64)
            loss_both_f64(row, in.n, label, &d, &l, &e, to, out.buf, past);
        else
            loss_both_f32(row, in.n, label, &d, &l, &e, to, out.buf, past);
        k_put(loss->dtype, w.at[3], &l);
        k_put(lse->dtype, w.at[4], &e);
        k_line_done(&out, w.at[5]);
    }
    if (past) stream_end();
    return 0;
}

static int64_t units(const KArgs *a) {
    return k_row_units(&a->in[0]);
}
static size_t workspace(const KArgs *a) {
    return (size_t)(2 * k_line_bytes(a->in[0].dims[a->in[0].rank - 1]) + 64);
}

K_ROWS(cross_entropy) = {
    {"softmax_cross_entropy", cross_entropy, units, workspace},
    {"softmax_cross_entropy_grad", cross_entropy_grad, units, workspace},
    {"softmax_cross_entropy_both", cross_entropy_both, units, workspace},
    {NULL, NULL, NULL, NULL},
};
