/* cumulative.c - what the elements of a line combine to, up to each one or from each one on. */
#include "op/op.h"

#include <math.h>

typedef struct CumulativeAttr {
    int32_t axis, reverse;
} CumulativeAttr;

static const AttrField fields[] = {ATTR_FIELD(CumulativeAttr, ATTR_DIM, axis),
                                   ATTR_FIELD(CumulativeAttr, ATTR_BOOL, reverse),
                                   {0}};

static Err shape(const OpArgs *a, OutType *out, int *nout) {
    int axis = ((const CumulativeAttr *)a->attr)->axis;
    TRY(op_check_axis(a, axis, a->in[0]->dims.rank));
    if (a->in[0]->dtype == DT_BOOL) return op_error(a, E_DTYPE, "takes numbers, not bool");
    return op_shape_same(a, out, nout);
}

/* An element is in the sums of all that follow it. */
static void vjp_sum(Build *b, const VjpArgs *a) {
    CumulativeAttr back = *(const CumulativeAttr *)a->node->attr;
    back.reverse = !back.reverse;
    if (dtype_is_float(op_dtype(b, a->in[0])))
        a->din[0] = build_op(b, OP_CUMSUM, &a->ct[0], 1, &back);
}

/* What changes nothing. */
static Scalar neutral(int op, DType dtype) {
    bool real = dtype_is_float(dtype);
    switch (op) {
    case OP_ADD: return attr_scalar_int(0);
    case OP_MUL: return attr_scalar_int(1);
    case OP_MAXIMUM:
        return real ? attr_scalar_float(-INFINITY) : attr_scalar_int(k_dtype_least(dtype));
    default: return real ? attr_scalar_float(INFINITY) : attr_scalar_int(k_dtype_greatest(dtype));
    }
}

/* After each round every element has what twice as many combine to (Hillis and Steele 1986). */
static void expand(Build *b, const Node *n, const Val *in, Val *out, int op) {
    const CumulativeAttr *c = n->attr;
    DType dtype = op_dtype(b, in[0]);
    bool narrow = dtype_is_narrow(dtype);
    Val y = narrow ? op_astype(b, in[0], DT_F32) : in[0];
    Dims dims = op_dims(b, y);
    Val fill = op_scalar(b, op_dtype(b, y), neutral(op, op_dtype(b, y)));
    for (int64_t by = 1; by < dims.at[c->axis]; by *= 2) {
        PadAttr p = {{.rank = dims.rank}, {.rank = dims.rank}, {.rank = dims.rank}};
        p.low.at[c->axis] = c->reverse ? -by : by;
        p.high.at[c->axis] = c->reverse ? by : -by;
        y = op2(b, op, y, build_op(b, OP_PAD, (Val[]){y, fill}, 2, &p));
    }
    out[0] = narrow ? op_astype(b, y, dtype) : y;
}
static void expand_sum(Build *b, const Node *n, const Val *in, Val *out) {
    expand(b, n, in, out, OP_ADD);
}
static void expand_prod(Build *b, const Node *n, const Val *in, Val *out) {
    expand(b, n, in, out, OP_MUL);
}
static void expand_max(Build *b, const Node *n, const Val *in, Val *out) {
    expand(b, n, in, out, OP_MAXIMUM);
}
static void expand_min(Build *b, const Node *n, const Val *in, Val *out) {
    expand(b, n, in, out, OP_MINIMUM);
}

static void factors(const OpArgs *a, const Type *const *out, FactorRule *r) {
    int axis = ((const CumulativeAttr *)a->attr)->axis;
    for (int d = 0; d < out[0]->dims.rank; d++) {
        int f = factor_add(r, d == axis ? FACTOR_REPLICATE : FACTOR_PASS, out[0]->dims.at[d]);
        factor_map(r, 0, d, f);
        factor_map(r, 1, d, f);
    }
}

static void lower(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const CumulativeAttr *c = a->attr;
    *(KCumulative *)kernel_attr = (KCumulative){c->axis, c->reverse};
}

#define ROW(NAME, name_, doc_, expand_, ...)                                                       \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 .nin = 1,                                                         \
                                 .nout = 1,                                                        \
                                 .pads = PADS_PASS,                                                \
                                 OP_ATTR(CumulativeAttr, fields),                                  \
                                 .shape = shape,                                                   \
                                 .batch = batch_leading,                                           \
                                 .expand = expand_,                                                \
                                 .factors = factors,                                               \
                                 .kernel = name_,                                                  \
                                 OP_LOWER(KCumulative, lower),                                     \
                                 __VA_ARGS__}

ROW(CUMSUM, "cumsum", "the sum of the elements up to each one along an axis", expand_sum,
    .vjp = vjp_sum, .linear = 1);
ROW(CUMPROD, "cumprod", "the product of the elements up to each one along an axis", expand_prod);
ROW(CUMMAX, "cummax", "the largest of the elements up to each one along an axis", expand_max);
ROW(CUMMIN, "cummin", "the smallest of the elements up to each one along an axis", expand_min);
