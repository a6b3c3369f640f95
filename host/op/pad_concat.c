/* pad_concat.c - tensors with more around them: pad and concat. Unlike the views of
 * movement.c, these copy. */
#include "op/op.h"

#define X  (a->in[0])
#define CT (a->ct[0])

/* ---- pad ---- */
static const AttrField pad_fields[] = {ATTR_FIELD(PadAttr, ATTR_LIST, low),
                                       ATTR_FIELD(PadAttr, ATTR_LIST, high),
                                       ATTR_FIELD(PadAttr, ATTR_LIST, interior),
                                       {0}};

static Err shape_pad(const OpArgs *a, OutType *out, int *nout) {
    const PadAttr *p = a->attr;
    const Dims *x = &a->in[0]->dims;
    if (p->low.rank != x->rank || p->high.rank != x->rank || p->interior.rank != x->rank)
        return op_error(a, E_SHAPE, "one amount per dim");
    if (a->in[1]->dims.rank || a->in[1]->dtype != a->in[0]->dtype)
        return op_error(a, E_DTYPE, "the value must be a scalar of the tensor's dtype");
    out[0] = (OutType){a->in[0]->dtype, a->in[0]->weak, {.rank = x->rank}};
    for (int d = 0; d < x->rank; d++) {
        if (p->interior.at[d] < 0 || p->interior.at[d] > DIMS_MOST / (x->at[d] ? x->at[d] : 1))
            return op_error(a, E_SHAPE, "an interior pad of %lld", (long long)p->interior.at[d]);
        int64_t inner = x->at[d] ? x->at[d] + (x->at[d] - 1) * p->interior.at[d] : 0;
        int64_t size = p->low.at[d] + inner + p->high.at[d];
        if (size < 0)
            return op_error(a, E_SHAPE, "padding leaves dim %d with size %lld", d + 1,
                            (long long)size);
        out[0].dims.at[d] = size;
    }
    return E_OK;
}

static void vjp_pad(Build *b, const VjpArgs *a) {
    const PadAttr *p = a->node->attr;
    Dims x = op_dims(b, X);
    PadAttr cut = {{.rank = x.rank}, {.rank = x.rank}, {.rank = x.rank}};
    SliceAttr s = {{.rank = x.rank}, {.rank = x.rank}, {.rank = x.rank}};
    for (int d = 0; d < x.rank; d++) {
        cut.low.at[d] = -p->low.at[d];
        cut.high.at[d] = -p->high.at[d];
        s.step.at[d] = p->interior.at[d] + 1;
        s.limit.at[d] = x.at[d] ? (x.at[d] - 1) * s.step.at[d] + 1 : 0;
    }
    Val zero = op_scalar(b, op_dtype(b, CT), attr_scalar_float(0));
    Val inner = build_op(b, OP_PAD, (Val[]){CT, zero}, 2, &cut);
    a->din[0] = build_op(b, OP_SLICE, &inner, 1, &s);
    if (!(a->wanted >> 1 & 1)) return;
    Dims all = {.rank = x.rank}, scalar = {0};
    for (int d = 0; d < x.rank; d++) all.at[d] = d;
    Val total = op_reduce(b, OP_SUM, CT, &all), kept = op_reduce(b, OP_SUM, a->din[0], &all);
    a->din[1] = op_reshape(b, op2(b, OP_SUB, total, kept), &scalar);
}

/* A dim passes only if nothing is put around it: one that is padded and cut by the same amount
 * keeps its size, but not its elements' places. */
static void factors_pad(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const PadAttr *p = a->attr;
    for (int d = 0; d < out[0]->dims.rank; d++) {
        bool whole = p->low.at[d] || p->high.at[d] || p->interior.at[d];
        int f = factor_add(r, whole ? FACTOR_REPLICATE : FACTOR_PASS, a->in[0]->dims.at[d]);
        factor_map(r, 0, d, f);
        if (!whole) factor_map(r, 2, d, f);
    }
}

static void lower_pad(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const PadAttr *p = a->attr;
    KPad *k = kernel_attr;
    for (int d = 0; d < p->low.rank; d++) {
        k->low[d] = p->low.at[d];
        k->interior[d] = p->interior.at[d];
    }
}

/* A value for each example is put where padding by true leaves false. */
static void batch_pad(Build *b, const BatchArgs *a) {
    PadAttr p;
    batch_shift(a, &p);
    Val x = batch_operand(b, a, 0), value = a->in[1];
    if (a->mapped[1]) value = op_scalar(b, op_dtype(b, value), attr_scalar_int(0));
    Val y = build_op(b, OP_PAD, (Val[]){x, value}, 2, &p);
    if (a->mapped[1]) {
        Dims x_dims = op_dims(b, x), y_dims = op_dims(b, y);
        Val inside = op_full(b, DT_BOOL, &x_dims, attr_scalar_int(1));
        Val no = op_scalar(b, DT_BOOL, attr_scalar_int(0));
        inside = build_op(b, OP_PAD, (Val[]){inside, no}, 2, &p);
        Val fill = op_broadcast(b, a->in[1], &y_dims, &(Dims){.rank = 1});
        y = op3(b, OP_WHERE, inside, y, fill);
    }
    a->out[0] = y;
}

const OpDef op_row_PAD = {
    .name = "pad",
    .operands = "x,value",
    .doc = "x with `low` and `high` elements of the value around each dim and `interior` between",
    .nin = 2,
    .nout = 1,
    OP_ATTR(PadAttr, pad_fields),
    .shape = shape_pad,
    .vjp = vjp_pad,
    .batch = batch_pad,
    .factors = factors_pad,
    .pads = PADS_PASS,
    .kernel = "pad",
    OP_LOWER(KPad, lower_pad),
    .linear = 3,
    .flags = OPF_JOINT | OPF_RESIZES,
};

/* ---- concat ---- */
static const AttrField axis_fields[] = {ATTR_FIELD(AxisAttr, ATTR_DIM, axis), {0}};

static Err shape_concat(const OpArgs *a, OutType *out, int *nout) {
    int axis = ((const AxisAttr *)a->attr)->axis;
    *nout = 1;
    if (a->nin == 0) return err_set(a->cx, E_VALUE, "concat: no tensors");
    const Dims *x = &a->in[0]->dims;
    TRY(op_check_axis(a, axis, x->rank));
    out[0] = (OutType){a->in[0]->dtype, a->in[0]->weak, *x};
    for (int i = 1; i < a->nin; i++) {
        const Dims *y = &a->in[i]->dims;
        bool fits = y->rank == x->rank;
        for (int d = 0; fits && d < x->rank; d++) fits = d == axis || y->at[d] == x->at[d];
        if (!fits) return op_error(a, E_SHAPE, "shapes differ beside axis %d", axis + 1);
        if (a->in[i]->dtype != a->in[0]->dtype) return op_error(a, E_DTYPE, "dtypes differ");
        out[0].dims.at[axis] += y->at[axis];
        out[0].weak = out[0].weak && a->in[i]->weak;
    }
    return E_OK;
}

static void vjp_concat(Build *b, const VjpArgs *a) {
    int axis = ((const AxisAttr *)a->node->attr)->axis;
    Dims y = op_dims(b, CT);
    SliceAttr s = {{.rank = y.rank}, y, {.rank = y.rank}};
    for (int d = 0; d < y.rank; d++) s.step.at[d] = 1;
    for (int i = 0; i < a->node->nin; i++) {
        s.limit.at[axis] = s.start.at[axis] + op_dims(b, a->in[i]).at[axis];
        a->din[i] = build_op(b, OP_SLICE, &CT, 1, &s);
        s.start.at[axis] = s.limit.at[axis];
    }
}

static void factors_concat(const OpArgs *a, const Type *const *out, FactorRule *r) {
    int axis = ((const AxisAttr *)a->attr)->axis;
    for (int d = 0; d < out[0]->dims.rank; d++) {
        if (d == axis) continue;
        int f = factor_add(r, FACTOR_PASS, out[0]->dims.at[d]);
        for (int t = 0; t < r->ntensor; t++) factor_map(r, t, d, f);
    }
}

static Val fold_concat(Build *b, const Node *n, const Val *in) {
    return n->nin == 1 ? in[0] : 0;
}

const OpDef op_row_CONCAT = {
    .name = "concat",
    .operands = "x,y",
    .doc = "tensors behind each other along one axis",
    .nin = -1,
    .nout = 1,
    OP_ATTR(AxisAttr, axis_fields),
    .shape = shape_concat,
    .vjp = vjp_concat,
    .batch = batch_leading,
    .factors = factors_concat,
    .pads = PADS_PASS,
    .fold = fold_concat,
    .kernel = "concat",
    .linear = ~0u,
    .flags = OPF_JOINT,
};
