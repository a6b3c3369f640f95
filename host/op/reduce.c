/* reduce.c - over any dims, which stay as dims of size 1 (a reshape drops them: a view). */
#include "op/op.h"

#define X  (a->in[0])
#define CT (a->ct[0])

static const AttrField axes_fields[] = {ATTR_FIELD(AxesAttr, ATTR_DIMS, axes), {0}};

static const AttrField sum_fields[] = {
    ATTR_FIELD(AxesAttr, ATTR_DIMS, axes), ATTR_FIELD(AxesAttr, ATTR_FLAG, wide), {0}};

static Err reduced_dims(const OpArgs *a, Dims *dims) {
    const Dims *axes = &((const AxesAttr *)a->attr)->axes, *x = &a->in[0]->dims;
    *dims = *x;
    for (int i = 0; i < axes->rank; i++) {
        int64_t d = axes->at[i];
        if (d < 0 || d >= x->rank || (i && d <= axes->at[i - 1]))
            return op_error(a, E_SHAPE, "axes must be distinct and in 1..%d", x->rank);
        dims->at[d] = 1;
    }
    return E_OK;
}

static Err shape_sum(const OpArgs *a, OutType *out, int *nout) {
    DType d = a->in[0]->dtype;
    bool wide = ((const AxesAttr *)a->attr)->wide;
    out[0] = (OutType){.dtype = d == DT_BOOL ? DT_I32 : wide ? dtype_accumulator(d) : d};
    return reduced_dims(a, &out[0].dims);
}

static Err shape_sum_squares(const OpArgs *a, OutType *out, int *nout) {
    if (!dtype_is_float(a->in[0]->dtype)) return op_error(a, E_DTYPE, "takes floats");
    return shape_sum(a, out, nout);
}

static Err shape_extremum(const OpArgs *a, OutType *out, int *nout) {
    out[0] = (OutType){.dtype = a->in[0]->dtype};
    TRY(reduced_dims(a, &out[0].dims));
    for (int d = 0; d < out[0].dims.rank; d++)
        if (out[0].dims.at[d] == 1 && a->in[0]->dims.at[d] == 0)
            return op_error(a, E_SHAPE, "dim %d is empty and has no extremum", d + 1);
    return E_OK;
}

static Err shape_logical(const OpArgs *a, OutType *out, int *nout) {
    if (a->in[0]->dtype != DT_BOOL) return op_error(a, E_DTYPE, "takes bool");
    out[0] = (OutType){.dtype = DT_BOOL};
    return reduced_dims(a, &out[0].dims);
}

static Err shape_arg(const OpArgs *a, OutType *out, int *nout) {
    TRY(shape_extremum(a, out, nout));
    if (((const AxesAttr *)a->attr)->axes.rank != 1) return op_error(a, E_SHAPE, "takes one axis");
    out[0].dtype = DT_I32;
    return E_OK;
}

static void vjp_sum(Build *b, const VjpArgs *a) {
    DType dtype = op_dtype(b, X);
    if (dtype_is_float(dtype)) a->din[0] = op_broadcast_like(b, op_astype(b, CT, dtype), X);
}

/* The cotangent goes to the extremal elements, in equal shares. */
static void vjp_extremum(Build *b, const VjpArgs *a) {
    Val hit = op2(b, OP_EQ, X, op_broadcast_like(b, a->out[0], X));
    Val ones = op_astype(b, hit, op_dtype(b, X));
    Val count = op_reduce(b, OP_SUM, ones, &((const AxesAttr *)a->node->attr)->axes);
    Val share = op_broadcast_like(b, op2(b, OP_DIV, CT, count), X);
    a->din[0] = op2(b, OP_MUL, ones, share);
}

static void factors(const OpArgs *a, const Type *const *out, FactorRule *r, FactorKind kind) {
    const Dims *axes = &((const AxesAttr *)a->attr)->axes, *x = &a->in[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        bool reduced = dims_has(axes, d);
        int f = factor_add(r, reduced ? kind : FACTOR_PASS, x->at[d]);
        factor_map(r, 0, d, f);
        if (!reduced) factor_map(r, 1, d, f);
    }
}
static void factors_sum(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, out, r, FACTOR_SUM);
}
static void factors_max(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, out, r, FACTOR_MAX);
}
static void factors_min(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, out, r, FACTOR_MIN);
}
static void factors_whole(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, out, r, FACTOR_REPLICATE);
}

static double flops(const OpArgs *a, const Type *const *out) {
    return (double)type_count(a->in[0]);
}

static void lower(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const Dims *axes = &((const AxesAttr *)a->attr)->axes;
    KReduce *k = kernel_attr;
    for (int i = 0; i < axes->rank; i++) k->reduced[axes->at[i]] = 1;
}

/* The largest divisor of n that is at most `most`. */
static int64_t parts_of(int64_t n, int64_t most) {
    int64_t parts = n < most ? n : most;
    while (parts > 1 && n % parts) parts--;
    return parts;
}

/* Much becomes little: a reduced dim falls into parts, which are reduced first, and then the parts'
 * results. A kernel has a unit of work per result, or per block of a row of them; where the last
 * dim stays it also reads longer pieces when a few rows are a unit. */
static void split(Build *b, const Node *n, const Val *in, Val *out, int64_t most) {
    enum { MUCH = 1 << 18, MANY = 32, LEAST_PARTS = 4 };
    AxesAttr attr = *(const AxesAttr *)n->attr;
    Dims x = op_dims(b, in[0]), y = x, part = x;
    if (dims_count(&x) < MUCH || x.rank == MAX_RANK) return;
    int d = -1;
    for (int i = 0; i < attr.axes.rank; i++) {
        int64_t axis = attr.axes.at[i];
        y.at[axis] = 1;
        if (d < 0 && parts_of(x.at[axis], most) >= LEAST_PARTS) d = (int)axis;
    }
    bool rows_stay = attr.axes.rank && !dims_has(&attr.axes, x.rank - 1);
    int64_t units = rows_stay ? dims_count(&y) / x.at[x.rank - 1] : dims_count(&y);
    if (d < 0 || units >= MANY || dims_count(&y) * MANY * 4 > dims_count(&x)) return;
    int64_t parts = parts_of(x.at[d], most);
    part.at[d] /= parts;
    dims_insert(&part, d, parts);
    for (int i = 0; i < attr.axes.rank; i++) attr.axes.at[i] += attr.axes.at[i] >= d;
    bool narrow = !attr.wide && dtype_size(op_dtype(b, in[0])) == 2;
    attr.wide = 1; /* the parts' results are not rounded */
    Val v = op_reshape(b, in[0], &part);
    v = build_op(b, n->op, &v, 1, &attr);
    OpId parts_op = n->op == OP_SUM_SQUARES ? OP_SUM : (OpId)n->op;
    v = op_reshape(b, op_reduce(b, parts_op, v, &(Dims){1, {d}}), &y);
    out[0] = narrow ? op_astype(b, v, op_dtype(b, in[0])) : v;
}

static Val fold(Build *b, const Node *n, const Val *in) {
    return ((const AxesAttr *)n->attr)->axes.rank == 0 ? in[0] : 0;
}

/* Squares that are only summed need not be in memory. Those of 16-bit floats are
 * rounded, but not by sum_squares. */
static Val fold_sum(Build *b, const Node *n, const Val *in) {
    const Node *x = graph_def(b->g, in[0]);
    if (x->op != OP_SQUARE) return 0;
    DType d = op_dtype(b, in[0]);
    if (!dtype_is_float(d) || dtype_size(d) < 4) return 0;
    return build_op(b, OP_SUM_SQUARES, x->in, 1, n->attr);
}

static void expand_sum_squares(Build *b, const Node *n, const Val *in, Val *out) {
    Val x = op1(b, OP_SQUARE, in[0]);
    out[0] = build_op(b, OP_SUM, &x, 1, n->attr);
}

#define ROW(NAME, name_, doc_, shape_, factors_, kernel_, fields_, ...)                            \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 .nin = 1,                                                         \
                                 .nout = 1,                                                        \
                                 OP_ATTR(AxesAttr, fields_),                                       \
                                 .shape = shape_,                                                  \
                                 .batch = batch_leading,                                           \
                                 .factors = factors_,                                              \
                                 .flops = flops,                                                   \
                                 .kernel = kernel_,                                                \
                                 OP_LOWER(KReduce, lower),                                         \
                                 .pads = PADS_ALL,                                                 \
                                 __VA_ARGS__}
#define NO_GRAD .flags = OPF_NO_GRAD

ROW(SUM, "sum", "sum over axes; 16-bit floats add up in float32, bool counts in int32", shape_sum,
    factors_sum, "sum", sum_fields, .vjp = vjp_sum, .linear = 1, .wide = offsetof(AxesAttr, wide),
    .fold = fold_sum, .split = split);
ROW(SUM_SQUARES, "sum_squares", "sum of the squares over axes", shape_sum_squares, factors_sum,
    "sum_squares", sum_fields, .expand = expand_sum_squares, .split = split, .flags = OPF_INTERNAL);
ROW(MAX, "max", "largest over axes", shape_extremum, factors_max, "max", axes_fields,
    .vjp = vjp_extremum, .fold = fold, .split = split);
ROW(MIN, "min", "smallest over axes", shape_extremum, factors_min, "min", axes_fields,
    .vjp = vjp_extremum, .fold = fold, .split = split);
ROW(ALL, "all", "whether all are true", shape_logical, factors_min, "all", axes_fields, NO_GRAD,
    .fold = fold);
ROW(ANY, "any", "whether any is true", shape_logical, factors_max, "any", axes_fields, NO_GRAD,
    .fold = fold);
ROW(ARGMAX, "argmax", "0-based place of the first largest along one axis", shape_arg, factors_whole,
    "argmax", axes_fields, NO_GRAD);
ROW(ARGMIN, "argmin", "0-based place of the first smallest along one axis", shape_arg,
    factors_whole, "argmin", axes_fields, NO_GRAD);
