/* norm.c - layer_norm and rms_norm over the last dim. Statistics are kept in float32 (float64 for
 * float64) for the gradient. */
#include "op/op.h"

#define CT        (a->ct)
#define ADD(x, y) op2(b, OP_ADD, (x), (y))
#define SUB(x, y) op2(b, OP_SUB, (x), (y))
#define MUL(x, y) op2(b, OP_MUL, (x), (y))

typedef struct NormAttr {
    double eps;
    int64_t parts; /* in which the gradients of parameters are left; 0: whole */
} NormAttr;

static const AttrField fields[] = {ATTR_FIELD(NormAttr, ATTR_FLOAT, eps), {0}};
static const AttrField parts_fields[] = {
    ATTR_FIELD(NormAttr, ATTR_FLOAT, eps), ATTR_FIELD(NormAttr, ATTR_INT, parts), {0}};

/* What each tensor is, one letter each, operands then results: x like the input, v a vector over
 * its last dim, p parts whose sum is one, s statistics with one number per row. */
static const char layer_kinds[] = "xvvxss", layer_grad_kinds[] = "xxvssxvv",
                  layer_parts_kinds[] = "xxvssxpp";
static const char rms_kinds[] = "xvxs", rms_grad_kinds[] = "xxvsxv", rms_parts_kinds[] = "xxvsxp";

static OutType type_of_kind(char kind, const OpArgs *a, bool is_result) {
    const NormAttr *attr = a->attr;
    const Type *x = a->in[0];
    OutType t = {.dtype = x->dtype, .dims = x->dims};
    int last = x->dims.rank - 1;
    if (kind == 's' || (is_result && kind != 'x')) t.dtype = dtype_accumulator(x->dtype);
    if (kind == 'v') t.dims = (Dims){1, {x->dims.at[last]}};
    if (kind == 'p') t.dims = (Dims){2, {attr->parts, x->dims.at[last]}};
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
        OutType want = type_of_kind(kinds[i], a, false);
        if (!dims_equal(&a->in[i]->dims, &want.dims))
            return op_error(a, E_SHAPE, "scale and bias must have the last dim of x");
        if (a->in[i]->dtype != want.dtype) return op_error(a, E_DTYPE, "dtypes differ");
    }
    for (int i = 0; i < nout; i++) out[i] = type_of_kind(kinds[a->nin + i], a, true);
    return E_OK;
}

/* Rows pass, or add up to a result that is a vector; the last dim is whole. */
static void factors(const OpArgs *a, FactorRule *r, const char *kinds) {
    const Dims *x = &a->in[0]->dims;
    char final = kinds[r->ntensor - 1];
    FactorKind rows = final == 'v' ? FACTOR_SUM : final == 'p' ? FACTOR_REPLICATE : FACTOR_PASS;
    for (int d = 0; d < x->rank; d++) {
        bool last = d == x->rank - 1;
        int f = factor_add(r, last ? FACTOR_REPLICATE : rows, x->at[d]);
        for (int t = 0; t < r->ntensor; t++) {
            if (kinds[t] == 'x' || (kinds[t] == 's' && !last)) factor_map(r, t, d, f);
            if (kinds[t] == 'v' && last) factor_map(r, t, 0, f);
            if (kinds[t] == 'p' && last) factor_map(r, t, 1, f);
        }
    }
}

static double flops(const OpArgs *a, const Type *const *out) {
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
RULES(layer_norm_grad_parts, layer_parts_kinds)
RULES(rms_norm, rms_kinds)
RULES(rms_norm_grad, rms_grad_kinds)
RULES(rms_norm_grad_parts, rms_parts_kinds)

/* ---- pieces of the definitions; all work in the accumulator's dtype ---- */
static Val widen(Build *b, Val x) {
    return op_astype(b, x, dtype_accumulator(op_dtype(b, x)));
}
static Val narrow(Build *b, Val x, Val like) {
    return op_astype(b, x, op_dtype(b, like));
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
    Val dy = widen(b, in[0]), h = normalized(b, widen(b, in[1]), in[3], in[4]);
    out[0] = narrow(b, norm_dx(b, dy, h, widen(b, in[2]), in[4], true), in[0]);
    out[1] = column_sum(b, MUL(dy, h));
    out[2] = column_sum(b, dy);
}

static void vjp_layer_norm(Build *b, const VjpArgs *a) {
    Val in[5] = {CT[0], a->in[0], a->in[1], a->out[1], a->out[2]};
    Val grad = build_op(b, OP_LAYER_NORM_GRAD, in, 5, a->node->attr);
    for (int i = 0; i < 3; i++) a->din[i] = grad ? narrow(b, grad + i, a->in[i]) : 0;
}

/* Enough parts for many threads, each of enough rows that their sums are soon added up. */
static int64_t parts_of(const Build *b, Val x, int64_t most) {
    enum { PART = 8192 };
    Dims d = op_dims(b, x);
    int64_t parts = dims_count(&d) / PART;
    return parts < 1 ? 1 : parts > most ? most : parts;
}

static void split_grad(Build *b, const Node *n, const Val *in, Val *out, int op, int64_t most) {
    NormAttr attr = *(const NormAttr *)n->attr;
    Dims axis = {1, {0}};
    attr.parts = parts_of(b, in[0], most);
    Val grad = build_op(b, op, in, n->nin, &attr);
    out[0] = grad;
    for (int i = 1; i < n->nout; i++) {
        Val sum = grad ? grad + i : 0;
        if (attr.parts > 1) sum = op_reduce(b, OP_SUM, sum, &axis);
        out[i] = op_reshape(b, sum, &(Dims){1, {op_dims(b, sum).at[1]}});
    }
}
static void split_layer_norm_grad(Build *b, const Node *n, const Val *in, Val *out, int64_t most) {
    split_grad(b, n, in, out, OP_LAYER_NORM_GRAD_PARTS, most);
}
static void split_rms_norm_grad(Build *b, const Node *n, const Val *in, Val *out, int64_t most) {
    split_grad(b, n, in, out, OP_RMS_NORM_GRAD_PARTS, most);
}

/* ---- rms_norm ---- */
static void expand_rms_norm(Build *b, const Node *n, const Val *in, Val *out) {
    Val x = widen(b, in[0]), scale = widen(b, in[1]);
    Val rstd = row_rstd(b, x, eps_of(n));
    out[0] = narrow(b, MUL(MUL(x, spread(b, rstd, x)), op_broadcast_like(b, scale, x)), in[0]);
    out[1] = rstd;
}

static void expand_rms_norm_grad(Build *b, const Node *n, const Val *in, Val *out) {
    Val dy = widen(b, in[0]), x = widen(b, in[1]), h = MUL(x, spread(b, in[3], x));
    out[0] = narrow(b, norm_dx(b, dy, h, widen(b, in[2]), in[3], false), in[0]);
    out[1] = column_sum(b, MUL(dy, h));
}

static void vjp_rms_norm(Build *b, const VjpArgs *a) {
    Val in[4] = {CT[0], a->in[0], a->in[1], a->out[1]};
    Val grad = build_op(b, OP_RMS_NORM_GRAD, in, 4, a->node->attr);
    for (int i = 0; i < 2; i++) a->din[i] = grad ? narrow(b, grad + i, a->in[i]) : 0;
}

#define ROW(NAME, name_, operands_, doc_, nin_, nout_, inner_, ...)                                \
    const OpDef op_row_##NAME = {.name = #name_,                                                   \
                                 .operands = operands_,                                            \
                                 .doc = doc_,                                                      \
                                 .nin = nin_,                                                      \
                                 .nout = nout_,                                                    \
                                 .pads = PADS_PASS,                                                \
                                 .attr_size = sizeof(NormAttr),                                    \
                                 .shape = shape_##name_,                                           \
                                 .batch = batch_leading,                                           \
                                 .factors = factors_##name_,                                       \
                                 .flops = flops,                                                   \
                                 .inner = inner_,                                                  \
                                 __VA_ARGS__}

/* KNorm is how NormAttr begins: no lowering. */
ROW(LAYER_NORM, layer_norm, "x,scale,bias",
    "(x - mean) / sqrt(var + eps) * scale + bias along the last dim; also mean and rstd", 3, 3, 7,
    .attr = fields, .kernel = "layer_norm", .expand = expand_layer_norm, .vjp = vjp_layer_norm,
    .grad_results = 1, .shared = 6, .alias = {1});
ROW(LAYER_NORM_GRAD, layer_norm_grad, "dy,x,scale,mean,rstd",
    "gradient of layer_norm to x, scale and bias; the latter two in what sums are kept in", 5, 3, 7,
    .attr = fields, .expand = expand_layer_norm_grad, .split = split_layer_norm_grad,
    .flags = OPF_INTERNAL, .shared = ~0u);
ROW(LAYER_NORM_GRAD_PARTS, layer_norm_grad_parts, "dy,x,scale,mean,rstd",
    "layer_norm_grad with the gradients of scale and bias by parts of the rows", 5, 3, 7,
    .attr = parts_fields, .kernel = "layer_norm_grad", .flags = OPF_LOCAL | OPF_NO_GRAD,
    .shared = ~0u, .alias = {1});
ROW(RMS_NORM, rms_norm, "x,scale",
    "x / sqrt(mean(x^2) + eps) * scale along the last dim; also 1 / sqrt(...)", 2, 2, 3,
    .attr = fields, .kernel = "rms_norm", .expand = expand_rms_norm, .vjp = vjp_rms_norm,
    .grad_results = 1, .shared = 2, .alias = {1});
ROW(RMS_NORM_GRAD, rms_norm_grad, "dy,x,scale,rstd",
    "gradient of rms_norm to x and scale; the latter in what sums are kept in", 4, 2, 7,
    .attr = fields, .expand = expand_rms_norm_grad, .split = split_rms_norm_grad,
    .flags = OPF_INTERNAL, .shared = ~0u);
ROW(RMS_NORM_GRAD_PARTS, rms_norm_grad_parts, "dy,x,scale,rstd",
    "rms_norm_grad with the gradient of scale by parts of the rows", 4, 2, 7, .attr = parts_fields,
    .kernel = "rms_norm_grad", .flags = OPF_LOCAL | OPF_NO_GRAD, .shared = ~0u, .alias = {1});
