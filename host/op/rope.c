/* rope.c - rotary positions (Su et al. 2021), in the halves layout: element i
 * pairs with i + D/2. */
#include "op/op.h"

#include <math.h>

#define CT (a->ct)

typedef struct RopeAttr {
    double base, sign;
} RopeAttr;

static const AttrField rope_fields[] = {
    ATTR_FIELD(RopeAttr, ATTR_FLOAT, base), ATTR_FIELD(RopeAttr, ATTR_FLOAT, sign), {0}};

static Err shape_rope(const OpArgs *a, OutType *out, int *nout) {
    const Dims *x = &a->in[0]->dims, *p = &a->in[1]->dims;
    if (!dtype_is_float(a->in[0]->dtype) || a->in[1]->dtype != DT_I32)
        return op_error(a, E_DTYPE, "takes floats and int32 positions");
    if (x->rank < 3 || x->at[x->rank - 1] % 2 != 0 || p->rank != 1 ||
        p->at[0] != x->at[x->rank - 3])
        return op_error(a, E_SHAPE, "takes [..., length, heads, even size] and one position each");
    return op_shape_same(a, out, nout);
}

static void vjp_rope(Build *b, const VjpArgs *a) {
    RopeAttr r = *(const RopeAttr *)a->node->attr;
    r.sign = -r.sign;
    a->din[0] = build_op(b, OP_ROPE, (Val[]){CT[0], a->in[1]}, 2, &r);
}

static void expand_rope(Build *b, const Node *n, const Val *in, Val *out) {
    const RopeAttr *r = n->attr;
    Dims dims = op_dims(b, in[0]);
    if (b->err) return;
    DType dtype = op_dtype(b, in[0]), acc = dtype_accumulator(dtype);
    int last = dims.rank - 1;
    Dims half = dims;
    half.at[last] /= 2;
    Val x = op_astype(b, in[0], acc), part[2];
    SliceAttr s = {{.rank = dims.rank}, dims, {.rank = dims.rank}};
    for (int d = 0; d < dims.rank; d++) s.step.at[d] = 1;
    for (int i = 0; i < 2; i++) {
        s.start.at[last] = i * half.at[last];
        s.limit.at[last] = (i + 1) * half.at[last];
        part[i] = build_op(b, OP_SLICE, &x, 1, &s);
    }
    Val i = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){(int32_t)acc, half, last});
    double step = -2 * log(r->base) / (double)dims.at[last];
    Val freq = op1(b, OP_EXP, op2(b, OP_MUL, i, op_const_like(b, i, step)));
    Dims at = {1, {dims.rank - 3}};
    Val position = op_broadcast(b, op_astype(b, in[1], acc), &half, &at);
    Val angle = op2(b, OP_MUL, op2(b, OP_MUL, position, freq), op_const_like(b, freq, r->sign));
    Val c = op1(b, OP_COS, angle), sn = op1(b, OP_SIN, angle);
    Val rotated[2] = {
        op2(b, OP_SUB, op2(b, OP_MUL, part[0], c), op2(b, OP_MUL, part[1], sn)),
        op2(b, OP_ADD, op2(b, OP_MUL, part[1], c), op2(b, OP_MUL, part[0], sn)),
    };
    out[0] = op_astype(b, build_op(b, OP_CONCAT, rotated, 2, &(AxisAttr){last}), dtype);
}

static void factors_rope(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *x = &out[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        int f = factor_add(r, d == x->rank - 1 ? FACTOR_REPLICATE : FACTOR_PASS, x->at[d]);
        factor_map(r, 0, d, f);
        factor_map(r, 2, d, f);
        if (d == x->rank - 3) factor_map(r, 1, 0, f);
    }
}

const OpDef op_row_ROPE = {
    .name = "rope",
    .operands = "x,positions",
    .doc = "pairs of elements rotated by position * base^(-2i/size)",
    .nin = 2,
    .nout = 1,
    OP_ATTR(RopeAttr, rope_fields),
    .shape = shape_rope,
    .vjp = vjp_rope,
    .batch = batch_leading,
    .shared = 2,
    .expand = expand_rope,
    .factors = factors_rope,
    .pads = PADS_PASS,
    .kernel = "rope",
    .inner = 1,
    .linear = 1,
};
