/* conv.c - convolution and the gradient of its kernel. x[batch, spatial..., in], w[spatial...,
 * in / groups, out], y[batch, spatial..., out]: y at o is the sum over taps k and features of
 * x at (o stride + k w_dilation - low) / x_dilation times w at k, where x has that place.
 * The gradient of x is a convolution of the cotangent with the kernel turned round. */
#include "op/op.h"

#define CT (a->ct[0])

/* One entry per spatial dim. `window`: of conv_grad_kernel alone, the kernel's spatial dims. */
typedef struct ConvAttr {
    Dims strides, low, high, x_dilation, w_dilation, window;
    int64_t groups;
    int32_t wide; /* see OpDef.wide */
} ConvAttr;

#define COMMON                                                                                     \
    ATTR_FIELD(ConvAttr, ATTR_LIST, strides), ATTR_FIELD(ConvAttr, ATTR_LIST, low),                \
        ATTR_FIELD(ConvAttr, ATTR_LIST, high), ATTR_FIELD(ConvAttr, ATTR_LIST, x_dilation),        \
        ATTR_FIELD(ConvAttr, ATTR_LIST, w_dilation), ATTR_FIELD(ConvAttr, ATTR_INT, groups),       \
        ATTR_FIELD(ConvAttr, ATTR_FLAG, wide)
static const AttrField conv_fields[] = {COMMON, {0}};
static const AttrField grad_fields[] = {COMMON, ATTR_FIELD(ConvAttr, ATTR_SHAPE, window), {0}};

/* n elements with `dilation` - 1 others between each two. */
static int64_t dilated(int64_t n, int64_t dilation) {
    return n ? (n - 1) * dilation + 1 : 0;
}

static int64_t result_size(const ConvAttr *c, int i, int64_t x, int64_t w) {
    int64_t room = dilated(x, c->x_dilation.at[i]) + c->low.at[i] + c->high.at[i];
    int64_t window = dilated(w, c->w_dilation.at[i]);
    return room < window ? 0 : (room - window) / c->strides.at[i] + 1;
}

/* `kernel`: the spatial dims of w. */
static Err check(const OpArgs *a, const Dims *kernel) {
    enum { MOST = 1 << 30 };
    const ConvAttr *c = a->attr;
    const Dims *x = &a->in[0]->dims;
    int n = x->rank - 2;
    if (a->in[0]->dtype != a->in[1]->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    if (!dtype_is_float(a->in[0]->dtype)) return op_error(a, E_DTYPE, "takes floats");
    if (n < 1 || a->in[1]->dims.rank != x->rank)
        return op_error(a, E_SHAPE, "both must have two dims and one for each spatial dim");
    const Dims *lists[] = {&c->strides, &c->low, &c->high, &c->x_dilation, &c->w_dilation, kernel};
    for (int l = 0; l < 6; l++) {
        if (lists[l]->rank != n)
            return op_error(a, E_SHAPE, "strides, pads and dilations must be %d each", n);
        for (int i = 0; i < n; i++) {
            int64_t least = l == 1 || l == 2 ? -MOST : l == 5 ? 0 : 1;
            if (lists[l]->at[i] < least || lists[l]->at[i] > MOST)
                return op_error(a, E_VALUE, "a stride, pad, dilation or window of %lld",
                                (long long)lists[l]->at[i]);
        }
    }
    for (int i = 0; i < n; i++)
        if (x->at[i + 1] > MOST) return op_error(a, E_SHAPE, "a dim of more than 2^30");
    if (c->groups < 1) return op_error(a, E_VALUE, "%lld groups", (long long)c->groups);
    return E_OK;
}

static DType result_dtype(const OpArgs *a) {
    DType d = a->in[0]->dtype;
    return ((const ConvAttr *)a->attr)->wide ? dtype_accumulator(d) : d;
}

/* ---- formulas of the gradients ---- */

/* The spatial dims of a kernel, or of x and y with `from` 1. */
static Dims spatial(const Dims *all, int from) {
    Dims s = {.rank = all->rank - 2};
    for (int i = 0; i < s.rank; i++) s.at[i] = all->at[i + from];
    return s;
}

/* w with its spatial dims backwards, and in and out exchanged within each group. */
static Val turned(Build *b, Val w, int64_t groups) {
    Dims dims = op_dims(b, w), perm = {0}, axes = {0};
    int n = dims.rank - 2;
    int64_t in = dims.at[n], out = dims.at[n + 1] / groups;
    for (int i = 0; i < n; i++) {
        dims_push(&perm, i);
        dims_push(&axes, i);
    }
    Val y = build_op(b, OP_FLIP, &w, 1, &(AxesAttr){.axes = axes});
    if (groups == 1) {
        dims_push(&perm, n + 1);
        dims_push(&perm, n);
        return op_transpose(b, y, &perm);
    }
    Dims split = dims, merged = dims;
    split.at[n + 1] = groups;
    dims_push(&split, out);
    dims_push(&perm, n + 2);
    dims_push(&perm, n + 1);
    dims_push(&perm, n);
    merged.at[n] = out;
    merged.at[n + 1] = groups * in;
    return op_reshape(b, op_transpose(b, op_reshape(b, y, &split), &perm), &merged);
}

/* Of x, whose dims are `x`. */
static Val x_gradient(Build *b, const ConvAttr *c, Val ct, Val w, const Dims *x) {
    if (!ct || !w) return 0;
    Dims y = op_dims(b, ct), kernel = op_dims(b, w);
    ConvAttr back = *c;
    back.strides = c->x_dilation;
    back.x_dilation = c->strides;
    back.wide = 0;
    back.window = (Dims){0};
    for (int i = 0; i < c->strides.rank; i++) {
        int64_t window = dilated(kernel.at[i], c->w_dilation.at[i]);
        back.low.at[i] = window - 1 - c->low.at[i];
        back.high.at[i] = dilated(x->at[i + 1], c->x_dilation.at[i]) + window - 1 -
                          dilated(y.at[i + 1], c->strides.at[i]) - back.low.at[i];
    }
    return build_op(b, OP_CONV, (Val[]){ct, turned(b, w, c->groups)}, 2, &back);
}

static void vjp_conv(Build *b, const VjpArgs *a) {
    const ConvAttr *c = a->node->attr;
    Dims x = op_dims(b, a->in[0]), w = op_dims(b, a->in[1]);
    if (a->wanted & 1) a->din[0] = x_gradient(b, c, CT, a->in[1], &x);
    if (!(a->wanted >> 1 & 1)) return;
    ConvAttr of_kernel = *c;
    of_kernel.window = spatial(&w, 0);
    of_kernel.wide = 0;
    a->din[1] = build_op(b, OP_CONV_GRAD_KERNEL, (Val[]){a->in[0], CT}, 2, &of_kernel);
}

/* Linear in x and in dy: the cotangent takes the kernel's place. */
static void vjp_grad(Build *b, const VjpArgs *a) {
    const ConvAttr *c = a->node->attr;
    Dims x = op_dims(b, a->in[0]);
    ConvAttr forward = *c;
    forward.window = (Dims){0};
    forward.wide = 0;
    if (a->wanted & 1) a->din[0] = x_gradient(b, c, a->in[1], CT, &x);
    if (a->wanted >> 1 & 1) a->din[1] = build_op(b, OP_CONV, (Val[]){a->in[0], CT}, 2, &forward);
}

/* ---- sharding ---- */

/* Has y one place for each `stride` of x, so that equal parts of both belong together? A part needs
 * `low` elements of x before it, and `behind` it what the last window has beyond its stride. */
static bool keeps_places(const ConvAttr *c, int i, int64_t x, int64_t w, int64_t y,
                         int64_t *behind) {
    *behind = dilated(w, c->w_dilation.at[i]) - c->strides.at[i] - c->low.at[i];
    return w > 0 && c->x_dilation.at[i] == 1 && x == y * c->strides.at[i] && c->low.at[i] >= 0 &&
           *behind >= 0;
}

/* Between x, w and y, given as tensor numbers, with what happens along the batch and the features
 * of the input. A feature dim is groups, then the features of one. */
static void map_conv(FactorRule *r, const ConvAttr *c, int x, const Dims *x_dims, int w,
                     const Dims *w_dims, int y, const Dims *y_dims, FactorKind batch,
                     FactorKind in) {
    int n = x_dims->rank - 2, features = n + 1;
    int f = factor_add(r, batch, x_dims->at[0]);
    factor_map(r, x, 0, f);
    factor_map(r, y, 0, f);
    if (c->groups > 1) {
        f = factor_add(r, FACTOR_PASS, c->groups);
        factor_map(r, x, features, f);
        factor_map(r, w, features, f);
        factor_map(r, y, features, f);
    }
    if (c->groups == 1 || w_dims->at[n] > 1) {
        f = factor_add(r, in, w_dims->at[n]);
        factor_map(r, x, features, f);
        factor_map(r, w, n, f);
    }
    if (c->groups == 1 || w_dims->at[features] > c->groups) {
        f = factor_add(r, FACTOR_PASS, w_dims->at[features] / c->groups);
        factor_map(r, w, features, f);
        factor_map(r, y, features, f);
    }
    for (int i = 0; i < n; i++) {
        int64_t behind = 0, stride = c->strides.at[i];
        bool local =
            keeps_places(c, i, x_dims->at[i + 1], w_dims->at[i], y_dims->at[i + 1], &behind);
        f = factor_add(r, local ? batch : FACTOR_REPLICATE,
                       local ? y_dims->at[i + 1] : x_dims->at[i + 1]);
        factor_map(r, x, i + 1, f);
        if (local) {
            factor_map(r, y, i + 1, f);
            if (stride > 1) factor_map(r, x, i + 1, factor_add(r, FACTOR_REPLICATE, stride));
            r->before[f] = (int32_t)c->low.at[i];
            r->behind[f] = (int32_t)behind;
        } else if (batch == FACTOR_SUM) { /* y is an operand */
            factor_map(r, y, i + 1, factor_add(r, FACTOR_REPLICATE, y_dims->at[i + 1]));
        }
    }
}

static void factors_conv(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_conv(r, a->attr, 0, &a->in[0]->dims, 1, &a->in[1]->dims, 2, &out[0]->dims, FACTOR_PASS,
             FACTOR_SUM);
}
static void factors_grad(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_conv(r, a->attr, 0, &a->in[0]->dims, 2, &out[0]->dims, 1, &a->in[1]->dims, FACTOR_SUM,
             FACTOR_PASS);
}

/* Where groups are split, a device has those whose features it has. */
static void local_groups(LocalArgs *a, const Layout *x, const Layout *w, const Dims *w_dims) {
    ConvAttr *c = a->attr;
    int n = w_dims->rank - 2;
    if (c->groups == 1) return;
    c->groups = layout_local(x, &a->in[0]->dims).at[n + 1] / layout_local(w, w_dims).at[n];
}
/* A part comes with what it needs of its neighbours: nothing is left to be padded. */
static void local_pads(LocalArgs *a) {
    ConvAttr *c = a->attr;
    for (int i = 0; a->in_layout[0] && i < c->low.rank; i++)
        if (a->in_layout[0]->dim[i + 1].axes.n) c->low.at[i] = c->high.at[i] = 0;
}
static void local_conv(LocalArgs *a) {
    local_pads(a);
    local_groups(a, a->in_layout[0], a->in_layout[1], &a->in[1]->dims);
}
static void local_grad(LocalArgs *a) {
    local_pads(a);
    local_groups(a, a->in_layout[0], a->out_layout[0], &a->out[0]->dims);
}

/* ---- rows ---- */

static void lower(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const ConvAttr *c = a->attr;
    KConv *k = kernel_attr;
    k->groups = c->groups;
    for (int i = 0; i < c->strides.rank; i++) {
        k->stride[i] = c->strides.at[i];
        k->low[i] = c->low.at[i];
        k->x_dilation[i] = c->x_dilation.at[i];
        k->w_dilation[i] = c->w_dilation.at[i];
    }
}

static Err shape_conv(const OpArgs *a, OutType *out, int *nout) {
    const ConvAttr *c = a->attr;
    const Dims *x = &a->in[0]->dims, *w = &a->in[1]->dims;
    Dims kernel = w->rank >= 2 ? spatial(w, 0) : (Dims){0};
    TRY(check(a, &kernel));
    int n = kernel.rank;
    if (x->at[n + 1] != w->at[n] * c->groups)
        return op_error(a, E_SHAPE, "x has %lld feature%s, the kernel %lld in each of %lld group%s",
                        (long long)x->at[n + 1], str_s(x->at[n + 1]), (long long)w->at[n],
                        (long long)c->groups, str_s(c->groups));
    if (w->at[n + 1] % c->groups)
        return op_error(a, E_SHAPE, "%lld feature%s of the result in %lld groups",
                        (long long)w->at[n + 1], str_s(w->at[n + 1]), (long long)c->groups);
    out[0] = (OutType){.dtype = result_dtype(a), .dims = *x};
    for (int i = 0; i < n; i++) out[0].dims.at[i + 1] = result_size(c, i, x->at[i + 1], w->at[i]);
    out[0].dims.at[n + 1] = w->at[n + 1];
    return E_OK;
}

static double flops_conv(const OpArgs *a, const Type *const *out) {
    const Dims *w = &a->in[1]->dims;
    double taps = 2;
    for (int d = 0; d < w->rank - 1; d++) taps *= (double)w->at[d];
    return taps * (double)type_count(out[0]);
}

/* ---- many examples ---- */

/* [examples, ..., features] as [..., examples * features], and back. */
static Val merge_features(Build *b, Val x) {
    Dims dims = op_dims(b, x), perm = {0}, merged = {0};
    int last = dims.rank - 1;
    for (int d = 1; d < last; d++) {
        dims_push(&perm, d);
        dims_push(&merged, dims.at[d]);
    }
    dims_push(&perm, 0);
    dims_push(&perm, last);
    dims_push(&merged, dims.at[0] * dims.at[last]);
    return op_reshape(b, op_transpose(b, x, &perm), &merged);
}
static Val split_features(Build *b, Val x, int64_t examples) {
    Dims dims = op_dims(b, x);
    int last = dims.rank - 1;
    dims.at[last] /= examples;
    dims_insert(&dims, last, examples);
    return batch_to_front(b, op_reshape(b, x, &dims), last);
}

/* Each example is a group (or as many as one has) of features. */
static void batch_features(Build *b, const BatchArgs *a) {
    ConvAttr c = *(const ConvAttr *)a->node->attr;
    Dims y = op_dims(b, a->node->out);
    if (a->size == 0) {
        dims_insert(&y, 0, 0);
        a->out[0] = op_full(b, op_dtype(b, a->node->out), &y, attr_scalar_int(0));
        return;
    }
    c.groups *= a->size;
    Val in[2];
    for (int i = 0; i < 2; i++) in[i] = merge_features(b, batch_operand(b, a, i));
    batch_apply(b, a, in, &c);
    a->out[0] = split_features(b, a->out[0], a->size);
}

/* One kernel for all: examples are more of the batch. */
static void batch_conv(Build *b, const BatchArgs *a) {
    Dims x = op_dims(b, a->node->in[0]), y = op_dims(b, a->node->out);
    if (a->mapped[1]) {
        batch_features(b, a);
        return;
    }
    x.at[0] *= a->size;
    dims_insert(&y, 0, a->size);
    batch_apply(b, a, (Val[]){op_reshape(b, a->in[0], &x), a->in[1]}, a->node->attr);
    a->out[0] = op_reshape(b, a->out[0], &y);
}

const OpDef op_row_CONV = {
    .name = "conv",
    .operands = "x,w",
    .doc = "convolution of [batch, spatial..., in] with [spatial..., in / groups, out]",
    .nin = 2,
    .nout = 1,
    OP_ATTR(ConvAttr, conv_fields),
    .shape = shape_conv,
    .vjp = vjp_conv,
    .batch = batch_conv,
    .factors = factors_conv,
    .local = local_conv,
    .flops = flops_conv,
    .kernel = "conv",
    OP_LOWER(KConv, lower),
    .contiguous = 2,
    .linear = 3,
    .flags = OPF_SAVE | OPF_PRODUCT | OPF_ASKS,
    .wide = offsetof(ConvAttr, wide),
};

static Err shape_grad(const OpArgs *a, OutType *out, int *nout) {
    const ConvAttr *c = a->attr;
    const Dims *x = &a->in[0]->dims, *dy = &a->in[1]->dims;
    TRY(check(a, &c->window));
    int n = c->window.rank;
    if (x->at[n + 1] % c->groups || dy->at[n + 1] % c->groups)
        return op_error(a, E_SHAPE, "features that %lld groups do not divide",
                        (long long)c->groups);
    bool fits = dy->at[0] == x->at[0];
    for (int i = 0; i < n; i++)
        fits = fits && dy->at[i + 1] == result_size(c, i, x->at[i + 1], c->window.at[i]);
    if (!fits) return op_error(a, E_SHAPE, "dy is not what this convolution of x gives");
    out[0] = (OutType){.dtype = result_dtype(a), .dims = c->window};
    dims_push(&out[0].dims, x->at[n + 1] / c->groups);
    dims_push(&out[0].dims, dy->at[n + 1]);
    return E_OK;
}

static double flops_grad(const OpArgs *a, const Type *const *out) {
    const Dims *w = &out[0]->dims;
    double taps = 2;
    for (int d = 0; d < w->rank - 1; d++) taps *= (double)w->at[d];
    return taps * (double)type_count(a->in[1]);
}

const OpDef op_row_CONV_GRAD_KERNEL = {
    .name = "conv_grad_kernel",
    .operands = "x,dy",
    .doc = "the gradient of conv's kernel, whose spatial dims are `window`",
    .nin = 2,
    .nout = 1,
    OP_ATTR(ConvAttr, grad_fields),
    .shape = shape_grad,
    .vjp = vjp_grad,
    .batch = batch_features,
    .factors = factors_grad,
    .local = local_grad,
    .flops = flops_grad,
    .kernel = "conv_grad_kernel",
    OP_LOWER(KConv, lower),
    .linear = 3,
    .flags = OPF_SAVE | OPF_PRODUCT,
    .wide = offsetof(ConvAttr, wide),
};
