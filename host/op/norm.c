/* norm.c - layer_norm and rms_norm over the last dim. Statistics are kept in float32 (float64 for
 * float64) for the gradient. */
#include "op/op.h"

#include <string.h>

#define CT        (a->ct)
#define ADD(x, y) op2(b, OP_ADD, (x), (y))
#define SUB(x, y) op2(b, OP_SUB, (x), (y))
#define MUL(x, y) op2(b, OP_MUL, (x), (y))

static const AttrField fields[] = {
    ATTR_FIELD(NormAttr, ATTR_FLOAT, eps), ATTR_FIELD(NormAttr, ATTR_FLAG, wide), {0}};

/* What each tensor is, one letter each, operands then results: x like the input, v a vector over
 * its last dim, s statistics with one number per row. */
static const char layer_kinds[] = "xvvxss", layer_grad_kinds[] = "xxvssx",
                  layer_params_kinds[] = "xxssvv";
static const char rms_kinds[] = "xvxs", rms_grad_kinds[] = "xxvsx", rms_params_kinds[] = "xxsv";

static OutType type_of_kind(char kind, const Type *x) {
    OutType t = {.dtype = kind == 's' ? dtype_accumulator(x->dtype) : x->dtype, .dims = x->dims};
    int last = x->dims.rank - 1;
    if (kind == 'v') t.dims = (Dims){1, {x->dims.at[last]}};
    if (kind == 's') {
        t.dims.at[last] = 0;
        t.dims.rank = last;
    }
    return t;
}

static Err shape(const OpArgs *a, OutType *out, const char *kinds, int nout) {
    const Type *x = a->in[0];
    if (!dtype_is_float(x->dtype)) return op_error(a, E_DTYPE, "takes floats");
    if (x->dims.rank < 1 || x->dims.at[x->dims.rank - 1] < 1)
        return op_error(a, E_SHAPE, "needs a last dim of at least one element");
    for (int i = 0; i < a->nin; i++) {
        OutType want = type_of_kind(kinds[i], x);
        if (!dims_equal(&a->in[i]->dims, &want.dims))
            return op_error(a, E_SHAPE, "scale and bias must have the last dim of x");
        if (a->in[i]->dtype != want.dtype) return op_error(a, E_DTYPE, "dtypes differ");
    }
    for (int i = 0; i < nout; i++) {
        out[i] = type_of_kind(kinds[a->nin + i], x);
        if (((const NormAttr *)a->attr)->wide) out[i].dtype = dtype_accumulator(x->dtype);
    }
    return E_OK;
}

/* Rows pass, or add up where the result is a vector; the last dim is whole. */
static void factors(const OpArgs *a, FactorRule *r, const char *kinds) {
    const Dims *x = &a->in[0]->dims;
    bool sums = kinds[r->ntensor - 1] == 'v';
    for (int d = 0; d < x->rank; d++) {
        bool last = d == x->rank - 1;
        int f = factor_add(r, last ? FACTOR_REPLICATE : sums ? FACTOR_SUM : FACTOR_PASS, x->at[d]);
        for (int t = 0; t < r->ntensor; t++) {
            if (kinds[t] == 'x' || (kinds[t] == 's' && !last)) factor_map(r, t, d, f);
            if (kinds[t] == 'v' && last) factor_map(r, t, 0, f);
        }
    }
}

static double flops(const OpArgs *a, const Type *const *out) {
    (void)out;
    return 8 * (double)type_count(a->in[0]);
}

#define RULES(name, kinds)                                                                         \
    static Err shape_##name(const OpArgs *a, OutType *out, int *nout) {                            \
        return shape(a, out, kinds, *nout);                                                        \
    }                                                                                              \
    static void factors_##name(const OpArgs *a, const Type *const *out, FactorRule *r) {           \
        (void)out;                                                                                 \
        factors(a, r, kinds);                                                                      \
    }
RULES(layer_norm, layer_kinds)
RULES(layer_norm_grad, layer_grad_kinds)
RULES(layer_norm_grad_params, layer_params_kinds)
RULES(rms_norm, rms_kinds)
RULES(rms_norm_grad, rms_grad_kinds)
RULES(rms_norm_grad_params, rms_params_kinds)

/* ---- pieces of the definitions; all work in the accumulator's dtype ---- */
static Val widen(Build *b, Val x) {
    return op_astype(b, x, dtype_accumulator(op_dtype(b, x)));
}
static Val narrow(Build *b, Val x, Val like) {
    return op_astype(b, x, op_dtype(b, like));
}

/* The gradient of a parameter. */
static Val param_gradient(Build *b, const Node *n, Val x, Val like) {
    return ((const NormAttr *)n->attr)->wide ? x : narrow(b, x, like);
}

static Val row_mean(Build *b, Val x) { /* kept as a last dim of size 1 */
    Val sum = op_reduce_last(b, OP_SUM, x);
    Dims d = op_dims(b, x);
    return MUL(sum, op_const_like(b, sum, d.rank ? 1.0 / (double)d.at[d.rank - 1] : 1));
}

static Val spread(Build *b, Val stat, Val x) { /* a row statistic over the row */
    return op_broadcast_like(b, op_add_last(b, stat), x);
}

/* Sum over all dims but the last. */
static Val column_sum(Build *b, Val x) {
    Dims dims = op_dims(b, x), axes = {0}, vector = {0};
    for (int d = 0; d + 1 < dims.rank; d++) dims_push(&axes, d);
    dims_push(&vector, dims.rank ? dims.at[dims.rank - 1] : 1);
    return op_reshape(b, op_reduce(b, OP_SUM, x, &axes), &vector);
}

static double eps_of(const Node *n) {
    return ((const NormAttr *)n->attr)->eps;
}

/* 1 / sqrt(mean of squares + eps), one per row. */
static Val row_rstd(Build *b, Val x, double eps) {
    Val ms = row_mean(b, op1(b, OP_SQUARE, x));
    return op_drop_last(b, op1(b, OP_RSQRT, ADD(ms, op_const_like(b, ms, eps))));
}

/* With h = (x - mean) * rstd and g = dy * scale: dx = rstd * (g - mean(g) - h * mean(g * h));
 * rms_norm has no mean(g). */
static Val norm_dx(Build *b, Val dy, Val h, Val scale, Val rstd, bool centred) {
    Val g = MUL(dy, op_broadcast_like(b, scale, dy));
    Val along = MUL(h, op_broadcast_like(b, row_mean(b, MUL(g, h)), h));
    Val d = SUB(g, along);
    if (centred) d = SUB(d, op_broadcast_like(b, row_mean(b, g), g));
    return MUL(d, spread(b, rstd, d));
}

static Val normalized(Build *b, Val x, Val mean, Val rstd) {
    return MUL(SUB(x, spread(b, mean, x)), spread(b, rstd, x));
}

/* ---- layer_norm ---- */
static void expand_layer_norm(Build *b, const Node *n, const Val *in, Val *out) {
    Val x = widen(b, in[0]), scale = widen(b, in[1]), bias = widen(b, in[2]);
    Val mean = op_drop_last(b, row_mean(b, x));
    Val rstd = row_rstd(b, SUB(x, spread(b, mean, x)), eps_of(n));
    Val y = MUL(normalized(b, x, mean, rstd), op_broadcast_like(b, scale, x));
    out[0] = narrow(b, ADD(y, op_broadcast_like(b, bias, x)), in[0]);
    out[1] = mean;
    out[2] = rstd;
}

static void expand_layer_norm_grad(Build *b, const Node *n, const Val *in, Val *out) {
    Val h = normalized(b, widen(b, in[1]), in[3], in[4]);
    (void)n;
    out[0] = narrow(b, norm_dx(b, widen(b, in[0]), h, widen(b, in[2]), in[4], true), in[0]);
}

static void expand_layer_norm_grad_params(Build *b, const Node *n, const Val *in, Val *out) {
    Val dy = widen(b, in[0]), h = normalized(b, widen(b, in[1]), in[2], in[3]);
    out[0] = param_gradient(b, n, column_sum(b, MUL(dy, h)), in[0]);
    out[1] = param_gradient(b, n, column_sum(b, dy), in[0]);
}

static void vjp_layer_norm(Build *b, const VjpArgs *a) {
    Val x = a->in[0], mean = a->out[1], rstd = a->out[2];
    Val params =
        build_op(b, OP_LAYER_NORM_GRAD_PARAMS, (Val[]){CT[0], x, mean, rstd}, 4, a->node->attr);
    a->din[0] =
        build_op(b, OP_LAYER_NORM_GRAD, (Val[]){CT[0], x, a->in[1], mean, rstd}, 5, a->node->attr);
    a->din[1] = params;
    a->din[2] = params ? params + 1 : 0;
}

/* ---- rms_norm ---- */
static void expand_rms_norm(Build *b, const Node *n, const Val *in, Val *out) {
    Val x = widen(b, in[0]), scale = widen(b, in[1]);
    Val rstd = row_rstd(b, x, eps_of(n));
    out[0] = narrow(b, MUL(MUL(x, spread(b, rstd, x)), op_broadcast_like(b, scale, x)), in[0]);
    out[1] = rstd;
}

static void expand_rms_norm_grad(Build *b, const Node *n, const Val *in, Val *out) {
    Val x = widen(b, in[1]), h = MUL(x, spread(b, in[3], x));
    (void)n;
    out[0] = narrow(b, norm_dx(b, widen(b, in[0]), h, widen(b, in[2]), in[3], false), in[0]);
}

static void expand_rms_norm_grad_params(Build *b, const Node *n, const Val *in, Val *out) {
    Val x = widen(b, in[1]), h = MUL(x, spread(b, in[2], x));
    out[0] = param_gradient(b, n, column_sum(b, MUL(widen(b, in[0]), h)), in[0]);
}

static void vjp_rms_norm(Build *b, const VjpArgs *a) {
    Val x = a->in[0], rstd = a->out[1];
    a->din[0] = build_op(b, OP_RMS_NORM_GRAD, (Val[]){CT[0], x, a->in[1], rstd}, 4, a->node->attr);
    a->din[1] = build_op(b, OP_RMS_NORM_GRAD_PARAMS, (Val[]){CT[0], x, rstd}, 3, a->node->attr);
}

#define ROW(NAME, name_, operands_, doc_, nin_, nout_, inner_, ...)                                \
    const OpDef op_row_##NAME = {.name = #name_,                                                   \
                                 .operands = operands_,                                            \
                                 .doc = doc_,                                                      \
                                 .nin = nin_,                                                      \
                                 .nout = nout_,                                                    \
                                 .pads = PADS_PASS,                                                \
                                 .attr = fields,                                                   \
                                 .attr_size = sizeof(NormAttr),                                    \
                                 .shape = shape_##name_,                                           \
                                 .batch = batch_leading,                                        \
                                 .expand = expand_##name_,                                         \
                                 .factors = factors_##name_,                                       \
                                 .flops = flops,                                                   \
                                 .kernel = #name_,                                                 \
                                 .inner = inner_,                                                  \
                                 __VA_ARGS__}

/* KNorm is how NormAttr begins: no lowering. */
ROW(LAYER_NORM, layer_norm, "x,scale,bias",
    "(x - mean) / sqrt(var + eps) * scale + bias along the last dim; also mean and rstd", 3, 3, 7,
    .vjp = vjp_layer_norm, .grad_results = 1, .shared = 6);
ROW(LAYER_NORM_GRAD, layer_norm_grad, "dy,x,scale,mean,rstd", "gradient of layer_norm to x", 5, 1,
    7, .flags = OPF_INTERNAL, .shared = 4);
ROW(LAYER_NORM_GRAD_PARAMS, layer_norm_grad_params, "dy,x,mean,rstd",
    "gradient of layer_norm to scale and bias", 4, 2, 3, .flags = OPF_INTERNAL, .shared = ~0u,
    .wide = offsetof(NormAttr, wide));
ROW(RMS_NORM, rms_norm, "x,scale",
    "x / sqrt(mean(x^2) + eps) * scale along the last dim; also 1 / sqrt(...)", 2, 2, 3,
    .vjp = vjp_rms_norm, .grad_results = 1, .shared = 2);
ROW(RMS_NORM_GRAD, rms_norm_grad, "dy,x,scale,rstd", "gradient of rms_norm to x", 4, 1, 7,
    .flags = OPF_INTERNAL, .shared = 4);
ROW(RMS_NORM_GRAD_PARAMS, rms_norm_grad_params, "dy,x,rstd", "gradient of rms_norm to scale", 3, 1,
    3, .flags = OPF_INTERNAL, .shared = ~0u, .wide = offsetof(NormAttr, wide));
