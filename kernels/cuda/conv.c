/* conv.c - conv and conv_grad_kernel (kernel.h). Floats; x, y and dy of any strides. */
#include "view.h"

enum {
    THREADS = 256, /* these as in conv.cu */
    TILE = 64,
    WARP = 32,
    LEAST_COLUMNS = 8, /* of a group, for tiles */
    BLOCKS = 512,      /* that a gradient is cut into, where there are positions enough: */
    LEAST_PART = 256   /* of them */
};

typedef struct Conv { /* conv.cu has the same */
    int32_t x[K_MAX_RANK], y[K_MAX_RANK], window[K_MAX_RANK], stride[K_MAX_RANK], low[K_MAX_RANK];
    int32_t x_dilation[K_MAX_RANK], w_dilation[K_MAX_RANK];
    int64_t x_stride[K_MAX_RANK], y_stride[K_MAX_RANK], batch_stride[2], feature_stride[2];
    int64_t positions, split;
    int32_t k, in, out, groups;
} Conv;

/* `y`: the result, or its cotangent. 0: what conv.cu counts with 32 bits does not fit. */
static int conv_of(const KArgs *a, const KTensor *w, const KTensor *y, Conv *c) {
    const KConv *attr = a->attr;
    const KTensor *x = &a->in[0];
    int n = y->rank - 2;
    int64_t k = w->dims[n], most = w->dims[n + 1];
    *c = (Conv){.positions = y->dims[0],
                .batch_stride = {x->strides[0], y->strides[0]},
                .feature_stride = {x->strides[n + 1], y->strides[n + 1]}};
    for (int i = 0; i < n; i++) {
        int64_t xs = x->dims[i + 1], ys = y->dims[i + 1], low = attr->low[i];
        int64_t reach = ys * attr->stride[i] + w->dims[i] * attr->w_dilation[i];
        most = cuda_most(most, cuda_most(xs, reach + cuda_most(low, -low)));
        k *= w->dims[i];
        c->positions *= ys;
        c->x[i] = (int32_t)xs;
        c->y[i] = (int32_t)ys;
        c->window[i] = (int32_t)w->dims[i];
        c->stride[i] = (int32_t)attr->stride[i];
        c->low[i] = (int32_t)low;
        c->x_dilation[i] = (int32_t)attr->x_dilation[i];
        c->w_dilation[i] = (int32_t)attr->w_dilation[i];
        c->x_stride[i] = x->strides[i + 1];
        c->y_stride[i] = y->strides[i + 1];
    }
    c->k = (int32_t)k;
    c->in = (int32_t)cuda_most(w->dims[n], 1);
    c->groups = (int32_t)attr->groups;
    c->out = (int32_t)(w->dims[n + 1] / attr->groups);
    return cuda_most(most, k) <= INT32_MAX;
}

static int64_t tile_columns(const Conv *c) {
    return c->out <= 32 ? 32 : 64;
}

static void open_launch(Launches *p, const char *entry, const KArgs *a, const Conv *c,
                        int64_t blocks) {
    cuda_launch(p, "conv.cu", entry, blocks, THREADS);
    cuda_define_type(p, "TYPE", a->in[0].dtype);
    cuda_define_type(p, "OUT", a->out[0].dtype);
    cuda_define(p, "SPATIAL", "%d", (int)a->in[0].rank - 2);
    cuda_define(p, "TILE_N", "%d", (int)tile_columns(c));
}

/* Tiles of the product: `rows` times the columns of all groups. */
static int64_t tiles_of(const Conv *c, int64_t rows) {
    return cuda_ceil_div(rows, TILE) * c->groups * cuda_ceil_div(c->out, tile_columns(c));
}

static int conv(const KArgs *a, Launches *p) {
    const KTensor *y = &a->out[0];
    Conv c;
    if (!conv_of(a, &a->in[1], y, &c)) return 0;
    if (c.out < LEAST_COLUMNS)
        open_launch(p, "conv_direct", a, &c, cuda_ceil_div(cuda_count(y), THREADS));
    else
        open_launch(p, "conv", a, &c, tiles_of(&c, c.positions));
    for (int k = 0; k < 3; k++) cuda_operand(p, k);
    cuda_bytes(p, &c, sizeof c);
    return 1;
}

/* The positions are cut into parts so that there are blocks enough; the order of sums hangs on
 * that, so it is a matter of the dims alone. */
static int conv_grad_kernel(const KArgs *a, Launches *p) {
    const KTensor *dw = &a->out[0];
    Conv c;
    if (!conv_of(a, dw, &a->in[1], &c)) return 0;
    int64_t count = cuda_count(dw), size = a->in[0].dtype == DT_F64 ? 8 : 4;
    if (count == 0) return 1;
    int direct = c.out < LEAST_COLUMNS;
    int64_t tiles =
        direct ? c.k * cuda_ceil_div((int64_t)c.groups * c.out, WARP) : tiles_of(&c, c.k);
    int64_t most = cuda_most(cuda_ceil_div(c.positions, LEAST_PART), 1);
    int64_t parts = cuda_ceil_div(BLOCKS, tiles) < most ? cuda_ceil_div(BLOCKS, tiles) : most;
    c.split = cuda_ceil_div(c.positions, parts);
    size_t scratch = cuda_take_scratch(p, (size_t)(parts * count * size));
    open_launch(p, direct ? "grad_direct" : "grad", a, &c, tiles * parts);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_scratch(p, scratch);
    cuda_bytes(p, &c, sizeof c);
    open_launch(p, "add_parts", a, &c, cuda_ceil_div(count, THREADS));
    cuda_scratch(p, scratch);
    cuda_operand(p, 2);
    cuda_view_param(p, dw);
    cuda_i64(p, count);
    cuda_i64(p, parts);
    return 1;
}

const CudaRow k_cuda_rows_conv[] = {
    {"conv", conv},
    {"conv_grad_kernel", conv_grad_kernel},
    {NULL, NULL},
};
