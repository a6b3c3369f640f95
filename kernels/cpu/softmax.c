/* softmax.c - softmax, log_softmax and softmax_grad along the last dim.
 *
 * Any strides; quick where the last dim is contiguous float32 (or float64). The output may alias an
 * input. A row is read three times, which costs one trip to memory where it fits a cache. Large
 * results are written past the caches. */
#include "lanes.h"
#include "rows.h"

#define REAL_CODE "softmax_real.h"
#include "real.h"

typedef void RowFn(const void *const *in, void *out, void *room, int64_t n, int past);

static int map_rows(const KArgs *a, RowFn *narrow, RowFn *wide) {
    const KTensor *y = &a->out[0];
    RowFn *row = y->dtype == DT_F64 ? wide : narrow;
    int64_t per = k_unit_rows(y), i = a->lo * per, end = k_min(a->hi * per, k_row_count(y));
    if (i >= end) return 0;
    char *workspace = k_align(a->workspace);
    KLine in[2], out = k_line(y, &workspace);
    KWalk w;
    int past = k_streams(y);
    k_walk_begin(&w, y, y->rank - 1);
    for (int k = 0; k < a->nin; k++) {
        past = past && a->in[k].data != y->data;
        in[k] = k_line(&a->in[k], &workspace);
        k_walk_add(&w, &a->in[k]);
    }
    k_walk_add(&w, y);
    for (k_walk_start(&w, i); i < end; i++, k_walk_advance(&w, 1)) {
        const void *x[2] = {NULL, NULL};
        for (int k = 0; k < a->nin; k++) x[k] = k_line_in(&in[k], w.at[k]);
        row(x, k_line_out(&out, w.at[a->nin]), out.buf, out.n, past);
        k_line_done(&out, w.at[a->nin]);
    }
    if (past) stream_end();
    return 0;
}

static int64_t units(const KArgs *a) {
    return k_row_units(&a->out[0]);
}
static size_t workspace(const KArgs *a) {
    const KTensor *y = &a->out[0];
    return (size_t)((a->nin + 1) * k_line_bytes(y->dims[y->rank - 1]) + 64);
}
K_KERNEL(softmax, map_rows(a, softmax_f32, softmax_f64))
K_KERNEL(log_softmax, map_rows(a, log_softmax_f32, log_softmax_f64))
K_KERNEL(softmax_grad, map_rows(a, softmax_grad_f32, softmax_grad_f64))

K_ROWS(softmax) = {
    {"softmax", softmax, units, workspace},
    {"log_softmax", log_softmax, units, workspace},
    {"softmax_grad", softmax_grad, units, workspace},
    {NULL, NULL, NULL, NULL},
};
