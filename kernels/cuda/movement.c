/* movement.c - copy, concat and pad (kernel.h). Any strides, any dtype. */
#include "movement.h"
#include "walk.h"

static const char file[] = "movement.cu";

enum { LEAST_EDGE = 8 }; /* of a matrix that is worth tiles */

/* ---- copy ----------------------------------------------------------------------------------- */
typedef struct Transpose { /* movement.cu has the same */
    CudaWalk outer;
    int64_t rows, columns, row_tiles, column_tiles, to_stride, from_stride;
} Transpose;

/* The dim along which `from` runs where `to` runs along the last one, or -1. */
static int row_dim(const CudaWalk *w, int64_t size) {
    int last = w->rank - 1;
    if (w->strides[0][last] != size || w->dims[last] < LEAST_EDGE) return -1;
    if (w->strides[1][last] == size || w->strides[1][last] == 0) return -1;
    for (int d = last - 1; d >= 0; d--)
        if (w->strides[1][d] == size && w->dims[d] >= LEAST_EDGE) return d;
    return -1;
}

static void add_transpose(Launches *p, const CudaWalk *w, int row, int k_from, int k_to,
                          int64_t bytes, int64_t size) {
    int last = w->rank - 1;
    Transpose t = {.rows = w->dims[row],
                   .columns = w->dims[last],
                   .to_stride = w->strides[0][row],
                   .from_stride = w->strides[1][last]};
    int64_t unit = size < 4 ? 4 : size;
    if (t.rows * size % unit || t.columns * size % unit) unit = size;
    if (t.to_stride % unit || t.from_stride % unit) unit = size;
    for (int d = 0; d < last; d++) {
        if (d == row) continue;
        walk_add(&t.outer, w->dims[d], 2, (int64_t[]){w->strides[0][d], w->strides[1][d]});
        if (w->strides[0][d] % unit || w->strides[1][d] % unit) unit = size;
    }
    int64_t outer = walk_finish(&t.outer, 2), edge = 32 * (unit / size);
    t.row_tiles = cuda_ceil_div(t.rows, edge);
    t.column_tiles = cuda_ceil_div(t.columns, edge);
    cuda_launch(p, file, "transpose", outer * t.row_tiles * t.column_tiles, 256);
    cuda_define(p, "SIZE", "%d", (int)size);
    cuda_define(p, "UNIT", "%d", (int)unit);
    cuda_operand(p, k_from);
    cuda_operand_at(p, k_to, bytes);
    cuda_bytes(p, &t, sizeof t);
}

void movement_copy(Launches *p, const KTensor *from, int k_from, const KTensor *to, int k_to,
                   int64_t bytes) {
    CudaWalk w = {.rank = 0};
    int64_t size = cuda_size(from->dtype);
    for (int d = 0; d < from->rank; d++)
        walk_add(&w, from->dims[d], 2, (int64_t[]){to->strides[d], from->strides[d]});
    cuda_sort_dims(w.rank, w.dims, 2, w.strides);
    int64_t n = walk_finish(&w, 2), last = w.rank - 1;
    if (n == 0) return;
    int row = w.rank > 1 ? row_dim(&w, size) : -1;
    if (row >= 0) {
        add_transpose(p, &w, row, k_from, k_to, bytes, size);
        return;
    }
    int fill = w.rank && w.strides[1][last] == 0;
    if (w.rank == 0 ||
        (w.rank == 1 && w.strides[0][0] == size && (fill || w.strides[1][0] == size))) {
        walk_launch(p, file, fill ? "fill_dense" : "copy_dense", cuda_ceil_div(n * size, 16), size,
                    16);
        cuda_operand(p, k_from);
        cuda_operand_at(p, k_to, bytes);
        cuda_i64(p, n * size);
        return;
    }
    int64_t unit = walk_widen(&w, 2, fill ? 1 : 3, size, 0);
    n = n * size / unit;
    walk_launch(p, file, "copy", n, size, unit);
    cuda_operand(p, k_from);
    cuda_operand_at(p, k_to, bytes);
    cuda_bytes(p, &w, sizeof w);
    cuda_i64(p, n);
    cuda_i32(p, fill);
}

static int copy(const KArgs *a, Launches *p) {
    movement_copy(p, &a->in[0], 0, &a->out[0], 1, 0);
    return 1;
}

/* ---- concat: one copy per input ------------------------------------------------------------- */
static int concat(const KArgs *a, Launches *p) {
    int axis = ((const KConcat *)a->attr)->axis;
    int64_t bytes = 0;
    for (int k = 0; k < a->nin; k++) {
        movement_copy(p, &a->in[k], k, &a->out[0], a->nin, bytes);
        bytes += a->in[k].dims[axis] * a->out[0].strides[axis];
    }
    return 1;
}

/* ---- pad ------------------------------------------------------------------------------------ */
typedef struct Pad { /* movement.cu has the same */
    int64_t dims[K_MAX_RANK], low[K_MAX_RANK], step[K_MAX_RANK], x[K_MAX_RANK];
    int64_t to_stride[K_MAX_RANK], from_stride[K_MAX_RANK];
    int32_t rank, small;
} Pad;

/* A last dim that is not padded makes one run with the dim before it. */
static void merge_last(Pad *p) {
    for (int d = p->rank - 1; d > 0; d--, p->rank--) {
        if (p->low[d] != 0 || p->step[d] != 1 || p->x[d] != p->dims[d] || p->step[d - 1] != 1)
            return;
        if (p->from_stride[d - 1] != p->from_stride[d] * p->x[d] ||
            p->to_stride[d - 1] != p->to_stride[d] * p->x[d])
            return;
        p->low[d - 1] *= p->x[d];
        p->dims[d - 1] *= p->x[d];
        p->x[d - 1] *= p->x[d];
        p->from_stride[d - 1] = p->from_stride[d];
        p->to_stride[d - 1] = p->to_stride[d];
    }
}

/* The last dim in units that are all x or all value; their bytes. */
static int64_t widen(Pad *p, int64_t size) {
    int last = p->rank - 1;
    int64_t unit = 16;
    if (p->rank == 0 || p->step[last] != 1) return size;
    if (p->from_stride[last] != size || p->to_stride[last] != size) return size;
    for (int d = 0; d < last; d++)
        while (p->to_stride[d] % unit || p->from_stride[d] % unit) unit /= 2;
    while (p->low[last] * size % unit || p->x[last] * size % unit || p->dims[last] * size % unit)
        unit /= 2;
    p->low[last] = p->low[last] * size / unit;
    p->x[last] = p->x[last] * size / unit;
    p->dims[last] = p->dims[last] * size / unit;
    p->to_stride[last] = p->from_stride[last] = unit;
    return unit;
}

static int pad(const KArgs *a, Launches *p) {
    const KPad *attr = a->attr;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    Pad t = {.rank = y->rank};
    int64_t size = cuda_size(y->dtype), n = 1;
    for (int d = 0; d < t.rank; d++) {
        t.dims[d] = y->dims[d];
        t.x[d] = x->dims[d];
        t.low[d] = attr->low[d];
        t.step[d] = attr->interior[d] + 1;
        t.to_stride[d] = y->strides[d];
        t.from_stride[d] = x->strides[d];
    }
    merge_last(&t);
    int64_t unit = widen(&t, size);
    for (int d = 0; d < t.rank; d++) n *= t.dims[d];
    t.small = n <= INT32_MAX;
    walk_launch(p, file, "pad", n, size, unit);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_operand(p, 2);
    cuda_bytes(p, &t, sizeof t);
    cuda_i64(p, n);
    return 1;
}

const CudaRow k_cuda_rows_movement[] = {
    {"copy", copy},
    {"concat", concat},
    {"pad", pad},
    {NULL, NULL},
};
