/* cumulative.c - cumsum, cumprod, cummax, cummin (kernel.h). Any strides. */
#include "walk.h"

enum { WARP = 32, ITEMS = 4 /* as in cumulative.cu */, SHORT = 64 };

typedef enum Kind { SUM, PROD, MAX, MIN } Kind; /* as in cumulative.cu */

typedef struct Lines { /* cumulative.cu has the same */
    CudaWalk walk;
    int64_t count, n, along[2];
} Lines;

/* A line begins where `reverse` ends: its strides turn. */
static Lines lines_of(const KTensor *x, const KTensor *y, const KCumulative *attr) {
    int axis = attr->axis, sign = attr->reverse ? -1 : 1;
    Lines l = {.n = x->dims[axis], .along = {sign * x->strides[axis], sign * y->strides[axis]}};
    for (int d = 0; d < x->rank; d++)
        if (d != axis) walk_add(&l.walk, x->dims[d], 2, (int64_t[]){x->strides[d], y->strides[d]});
    cuda_sort_dims(l.walk.rank, l.walk.dims, 2, l.walk.strides);
    l.count = walk_finish(&l.walk, 2);
    return l;
}

/* Whether neighbours lie across lines rather than along them. A block for a line that is short
 * would be waste. */
static int goes_across(const Lines *l) {
    int last = l->walk.rank - 1;
    if (l->n <= SHORT) return 1;
    return l->walk.rank && cuda_magnitude(l->walk.strides[0][last]) < cuda_magnitude(l->along[0]);
}

static int add(const KArgs *a, Launches *p, Kind kind) {
    const KCumulative *attr = a->attr;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    Lines l = lines_of(x, y, attr);
    int across = goes_across(&l);
    /* The order of sums hangs on the number of warps: it is a matter of the length alone. */
    int warps = across ? (l.n <= SHORT  ? 1
                          : l.n <= 1024 ? 8
                                        : 32)
                       : (l.n <= WARP * ITEMS ? 1
                          : l.n <= 8192       ? 8
                                              : 32);
    if (cuda_count(x) == 0) return 1;
    cuda_launch(p, "cumulative.cu", across ? "scan_across" : "scan_along",
                across ? cuda_ceil_div(l.count, WARP) : l.count, WARP * warps);
    cuda_define_type(p, "TYPE", x->dtype);
    cuda_define(p, "KIND", "%d", (int)kind);
    cuda_define(p, "WARPS", "%d", warps);
    int64_t last = attr->reverse ? l.n - 1 : 0;
    cuda_operand_at(p, 0, last * x->strides[attr->axis]);
    cuda_operand_at(p, 1, last * y->strides[attr->axis]);
    cuda_bytes(p, &l, sizeof l);
    return 1;
}

static int cumsum(const KArgs *a, Launches *p) {
    return add(a, p, SUM);
}
static int cumprod(const KArgs *a, Launches *p) {
    return add(a, p, PROD);
}
static int cummax(const KArgs *a, Launches *p) {
    return add(a, p, MAX);
}
static int cummin(const KArgs *a, Launches *p) {
    return add(a, p, MIN);
}

const CudaRow k_cuda_rows_cumulative[] = {
    {"cumsum", cumsum}, {"cumprod", cumprod}, {"cummax", cummax}, {"cummin", cummin}, {NULL, NULL},
};
