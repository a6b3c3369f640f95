/* binary.c - two or three operands of equal dims. */
#include "op/op.h"
#include "ir/program.h"

#include <math.h>

#define X         (a->in[0])
#define Y         (a->in[1])
#define CT        (a->ct[0])
#define K(c)      op_const_like(b, X, (c))
#define MUL(x, y) op2(b, OP_MUL, (x), (y))
#define DIV(x, y) op2(b, OP_DIV, (x), (y))
#define NEG(x)    op1(b, OP_NEG, (x))
#define WANT(i)   (a->wanted >> (i)&1)

static Err shape_any(const OpArgs *a, OutType *out, int *nout) {
    const Type *x = a->in[0], *y = a->in[1];
    if (!dims_equal(&x->dims, &y->dims)) return op_error(a, E_SHAPE, "shapes differ");
    if (x->dtype != y->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    TRY(op_shape_same(a, out, nout));
    out[0].weak = x->weak && y->weak;
    return E_OK;
}

static Err shape_number(const OpArgs *a, OutType *out, int *nout) {
    if (a->in[0]->dtype == DT_BOOL)
        return op_error(a, E_DTYPE, "takes numbers, not bool; convert with astype");
    return shape_any(a, out, nout);
}

static Err shape_bits(const OpArgs *a, OutType *out, int *nout) {
    if (dtype_is_float(a->in[0]->dtype)) return op_error(a, E_DTYPE, "takes integers and bool");
    return shape_any(a, out, nout);
}

static Err shape_shift(const OpArgs *a, OutType *out, int *nout) {
    if (a->in[0]->dtype == DT_BOOL) return op_error(a, E_DTYPE, "takes integers");
    return shape_bits(a, out, nout);
}

static Err shape_compare(const OpArgs *a, OutType *out, int *nout) {
    TRY(shape_any(a, out, nout));
    out[0].dtype = DT_BOOL;
    out[0].weak = false;
    return E_OK;
}

/* ---- gradients ---- */
static void vjp_add(Build *b, const VjpArgs *a) {
    a->din[0] = a->din[1] = CT;
}
static void vjp_sub(Build *b, const VjpArgs *a) {
    a->din[0] = CT;
    if (WANT(1)) a->din[1] = NEG(CT);
}
static void vjp_mul(Build *b, const VjpArgs *a) {
    if (WANT(0)) a->din[0] = MUL(CT, Y);
    if (WANT(1)) a->din[1] = MUL(CT, X);
}
static void vjp_div(Build *b, const VjpArgs *a) {
    if (WANT(0)) a->din[0] = DIV(CT, Y);
    if (WANT(1)) a->din[1] = NEG(MUL(CT, DIV(a->out[0], Y)));
}
/* x - y * trunc(x / y) */
static void vjp_rem(Build *b, const VjpArgs *a) {
    a->din[0] = CT;
    if (!WANT(1)) return;
    Val q = DIV(X, Y);
    Val trunc = MUL(op1(b, OP_SIGN, q), op1(b, OP_FLOOR, op1(b, OP_ABS, q)));
    a->din[1] = NEG(MUL(CT, trunc));
}
/* x - y * floor(x / y) */
static void vjp_mod(Build *b, const VjpArgs *a) {
    a->din[0] = CT;
    if (WANT(1)) a->din[1] = NEG(MUL(CT, op1(b, OP_FLOOR, DIV(X, Y))));
}
/* d/dx = y x^(y-1), with x^0 at y = 0; d/dy = log(x) x^y, 0 at x = 0 (as JAX). */
static void vjp_pow(Build *b, const VjpArgs *a) {
    Val zero = K(0), one = K(1);
    if (WANT(0)) {
        Val y1 = op3(b, OP_WHERE, op2(b, OP_EQ, Y, zero), one, op2(b, OP_SUB, Y, one));
        a->din[0] = MUL(CT, MUL(Y, op2(b, OP_POW, X, y1)));
    }
    if (WANT(1)) {
        Val base = op3(b, OP_WHERE, op2(b, OP_EQ, X, zero), one, X);
        a->din[1] = MUL(CT, MUL(op1(b, OP_LOG, base), a->out[0]));
    }
}
/* Of the angle at (Y, X): (Y, -X) / (X^2 + Y^2). */
static void vjp_atan2(Build *b, const VjpArgs *a) {
    Val square = op2(b, OP_ADD, op1(b, OP_SQUARE, X), op1(b, OP_SQUARE, Y));
    if (WANT(0)) a->din[0] = MUL(CT, DIV(Y, square));
    if (WANT(1)) a->din[1] = NEG(MUL(CT, DIV(X, square)));
}
/* The order is a whole number: it has no derivative. */
static void vjp_polygamma(Build *b, const VjpArgs *a) {
    if (WANT(1)) a->din[1] = MUL(CT, op2(b, OP_POLYGAMMA, op2(b, OP_ADD, X, K(1)), Y));
}
/* The larger operand gets the cotangent, equal ones half each. */
static void vjp_extremum(Build *b, const VjpArgs *a) {
    Val half = op_const_like(b, CT, 0.5), one = op_const_like(b, CT, 1),
        zero = op_const_like(b, CT, 0);
    Val tie = op2(b, OP_EQ, X, Y);
    for (int i = 0; i < 2; i++) {
        if (!WANT(i)) continue;
        Val is_result = op2(b, OP_EQ, a->in[i], a->out[0]);
        Val share = op3(b, OP_WHERE, tie, half, op3(b, OP_WHERE, is_result, one, zero));
        a->din[i] = MUL(CT, share);
    }
}

/* ---- folding: identities, and constants of + - * / ---- */
static bool is_number(const FullAttr *f, double x) {
    return f && (dtype_is_float((DType)f->dtype) ? f->value.f : (double)f->value.i) == x;
}

/* Folded only where double arithmetic rounds to the same result as the dtype's own. */
static Val fold_floats(Build *b, const FullAttr *x, const FullAttr *y,
                       double (*f)(double, double)) {
    if (!x || !y || (x->dtype != DT_F32 && x->dtype != DT_F64)) return 0;
    double r = f(x->value.f, y->value.f);
    return op_full(b, (DType)x->dtype, &x->dims,
                   attr_scalar_float(x->dtype == DT_F32 ? (double)(float)r : r));
}

static double do_add(double x, double y) {
    return x + y;
}
static double do_sub(double x, double y) {
    return x - y;
}
static double do_mul(double x, double y) {
    return x * y;
}
static double do_div(double x, double y) {
    return x / y;
}

/* Nothing changes by adding it. x + 0 is x but for x = -0, where it is +0. */
static bool is_no_addend(const FullAttr *f) {
    return is_number(f, 0) && (!dtype_is_float((DType)f->dtype) || signbit(f->value.f));
}

static Val fold_add(Build *b, const Node *n, const Val *in) {
    const FullAttr *x = op_full_attr(b, in[0]), *y = op_full_attr(b, in[1]);
    if (is_no_addend(y)) return in[0];
    if (is_no_addend(x)) return in[1];
    return fold_floats(b, x, y, do_add);
}
/* x - 0 is x; x - -0 is x + 0. */
static Val fold_sub(Build *b, const Node *n, const Val *in) {
    const FullAttr *x = op_full_attr(b, in[0]), *y = op_full_attr(b, in[1]);
    return is_number(y, 0) && !signbit(y->value.f) ? in[0] : fold_floats(b, x, y, do_sub);
}
static Val fold_mul(Build *b, const Node *n, const Val *in) {
    const FullAttr *x = op_full_attr(b, in[0]), *y = op_full_attr(b, in[1]);
    if (is_number(y, 1)) return in[0];
    if (is_number(x, 1)) return in[1];
    return fold_floats(b, x, y, do_mul);
}
static Val fold_div(Build *b, const Node *n, const Val *in) {
    const FullAttr *x = op_full_attr(b, in[0]), *y = op_full_attr(b, in[1]);
    return is_number(y, 1) ? in[0] : fold_floats(b, x, y, do_div);
}
/* Whole powers are products. The power of 0.5 is no square root, which is -0 at
 * -0 and NaN at -inf. */
static Val fold_pow(Build *b, const Node *n, const Val *in) {
    const FullAttr *y = op_full_attr(b, in[1]);
    if (!y) return 0;
    double e = dtype_is_float((DType)y->dtype) ? y->value.f : (double)y->value.i;
    if (e < 0 || e > 16 || e != (double)(int64_t)e) return 0;
    return build_op(b, OP_INT_POW, in, 1, &(IntPowAttr){(int64_t)e});
}

/* A comparison of constants: whether it holds where x < y, where x == y, where x > y. */
static Val fold_compare(Build *b, const Val *in, bool less, bool equal, bool greater) {
    const FullAttr *x = op_full_attr(b, in[0]), *y = op_full_attr(b, in[1]);
    if (!x || !y) return 0;
    bool wide = x->dtype == DT_U64; /* whose numbers are bits here */
    bool below = wide ? (uint64_t)x->value.i < (uint64_t)y->value.i : x->value.i < y->value.i;
    bool holds = below ? less : x->value.i == y->value.i ? equal : greater;
    if (dtype_is_float((DType)x->dtype)) {
        if (isnan(x->value.f) || isnan(y->value.f)) return 0;
        holds = x->value.f < y->value.f ? less : x->value.f == y->value.f ? equal : greater;
    }
    return op_full(b, DT_BOOL, &x->dims, attr_scalar_int(holds));
}
#define COMPARE(name, less, equal, greater)                                                        \
    static Val fold_##name(Build *b, const Node *n, const Val *in) {                               \
        (void)n;                                                                                   \
        return fold_compare(b, in, less, equal, greater);                                          \
    }
COMPARE(eq, false, true, false)
COMPARE(ne, true, false, true)
COMPARE(lt, true, false, false)
COMPARE(le, true, true, false)
COMPARE(gt, false, false, true)
COMPARE(ge, false, true, true)

/* ---- integers that are known beforehand ---- */
static bool affine_sum_of(const AffineArgs *a, Affine *out) {
    return affine_add(&a->x[0], &a->x[1], 1, out);
}
static bool affine_difference(const AffineArgs *a, Affine *out) {
    return affine_add(&a->x[0], &a->x[1], -1, out);
}
static bool affine_product(const AffineArgs *a, Affine *out) {
    return affine_mul(&a->x[0], &a->x[1], out);
}
#define AFFINE_BITS(name, operator)                                                                \
    static int64_t name##_bits(int64_t x, int64_t y) {                                             \
        return x operator y;                                                                       \
    }                                                                                              \
    static bool affine_##name(const AffineArgs *a, Affine *out) {                                  \
        return affine_zip(&a->x[0], &a->x[1], name##_bits, out);                                   \
    }
AFFINE_BITS(and, &)
AFFINE_BITS(or, |)
AFFINE_BITS(xor, ^)
#define AFFINE_COMPARE(name, less, equal, greater)                                                 \
    static bool affine_##name(const AffineArgs *a, Affine *out) {                                  \
        return affine_compare(&a->x[0], &a->x[1], less, equal, greater, out);                      \
    }
AFFINE_COMPARE(eq, false, true, false)
AFFINE_COMPARE(ne, true, false, true)
AFFINE_COMPARE(lt, true, false, false)
AFFINE_COMPARE(le, true, true, false)
AFFINE_COMPARE(gt, false, false, true)
AFFINE_COMPARE(ge, false, true, true)

#define ROW(NAME, name_, doc_, promote_, shape_, vjp_, ...)                                        \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = "x,y",                                                \
                                 .doc = doc_,                                                      \
                                 .nin = 2,                                                         \
                                 .nout = 1,                                                        \
                                 .promote = promote_,                                              \
                                 .shape = shape_,                                                  \
                                 .vjp = vjp_,                                                      \
                                 .factors = op_factors_elementwise,                                \
                                 __VA_ARGS__}
#define EW             .flags = OPF_ELEMENTWISE
#define EW_COMM        .flags = OPF_ELEMENTWISE | OPF_COMMUTES
#define EW_NOGRAD      .flags = OPF_ELEMENTWISE | OPF_NO_GRAD
#define EW_NOGRAD_COMM .flags = OPF_ELEMENTWISE | OPF_NO_GRAD | OPF_COMMUTES

ROW(ADD, "add", "x + y; of bool: or", PROMOTE_ALL, shape_number, vjp_add,
    .flags = OPF_ELEMENTWISE | OPF_COMMUTES | OPF_JOINT | OPF_ADDITION, .linear = 3,
    .fold = fold_add, .affine = affine_sum_of, .instr = KI_ADD, .of_bool = OP_BITOR);
ROW(SUB, "sub", "x - y", PROMOTE_ALL, shape_number, vjp_sub, .flags = OPF_ELEMENTWISE | OPF_JOINT,
    .linear = 3, .fold = fold_sub, .affine = affine_difference, .instr = KI_SUB);
ROW(MUL, "mul", "x * y; of bool: and", PROMOTE_ALL, shape_number, vjp_mul, EW_COMM, .linear = 3,
    .fold = fold_mul, .affine = affine_product, .instr = KI_MUL, .of_bool = OP_BITAND);
ROW(DIV, "div", "x / y; integers become float32", PROMOTE_FLOAT, shape_number, vjp_div, EW,
    .work = 4, .linear = 1, .fold = fold_div, .instr = KI_DIV);
ROW(REM, "rem", "remainder, with the sign of x; integers by 0: x", PROMOTE_NUMBER, shape_number,
    vjp_rem, EW, .work = 30, .instr = KI_REM);
ROW(POW, "pow", "x to the y", PROMOTE_NUMBER, shape_number, vjp_pow, EW, .work = 30,
    .fold = fold_pow, .instr = KI_POW);
ROW(ATAN2, "atan2", "atan(x / y) in the quadrant of (y, x)", PROMOTE_FLOAT, shape_number, vjp_atan2,
    EW, .work = 20, .instr = KI_ATAN2);
ROW(POLYGAMMA, "polygamma", "derivative x + 1 of lgamma at y, for a whole x >= 0", PROMOTE_FLOAT,
    shape_number, vjp_polygamma, EW, .work = 200, .instr = KI_POLYGAMMA);
ROW(MAXIMUM, "maximum", "the larger; NaN if either is; equal ones share the gradient", PROMOTE_ALL,
    shape_any, vjp_extremum, EW_COMM, .instr = KI_MAX);
ROW(MINIMUM, "minimum", "the smaller; NaN if either is; equal ones share the gradient", PROMOTE_ALL,
    shape_any, vjp_extremum, EW_COMM, .instr = KI_MIN);
ROW(BITAND, "bitand", "x & y; of bool: and", PROMOTE_INT, shape_bits, NULL, EW_NOGRAD_COMM,
    .affine = affine_and, .instr = KI_AND);
ROW(BITOR, "bitor", "x | y; of bool: or", PROMOTE_INT, shape_bits, NULL, EW_NOGRAD_COMM,
    .affine = affine_or, .instr = KI_OR);
ROW(BITXOR, "bitxor", "x ~ y; of bool: differ", PROMOTE_INT, shape_bits, NULL, EW_NOGRAD_COMM,
    .affine = affine_xor, .instr = KI_XOR);
ROW(SHL, "shl", "x << y", PROMOTE_INT, shape_shift, NULL, EW_NOGRAD, .instr = KI_SHL);
ROW(SHR, "shr", "x >> y; keeps the sign of signed x", PROMOTE_INT, shape_shift, NULL, EW_NOGRAD,
    .instr = KI_SHR);
ROW(EQ, "eq", "x equals y", PROMOTE_ALL, shape_compare, NULL, EW_NOGRAD_COMM, .fold = fold_eq,
    .affine = affine_eq, .instr = KI_EQ);
ROW(NE, "ne", "x differs from y", PROMOTE_ALL, shape_compare, NULL, EW_NOGRAD_COMM, .fold = fold_ne,
    .affine = affine_ne, .instr = KI_NE);
ROW(LT, "lt", "x < y", PROMOTE_ALL, shape_compare, NULL, EW_NOGRAD, .fold = fold_lt,
    .affine = affine_lt, .instr = KI_LT);
ROW(LE, "le", "x <= y", PROMOTE_ALL, shape_compare, NULL, EW_NOGRAD, .fold = fold_le,
    .affine = affine_le, .instr = KI_LE);
ROW(GT, "gt", "x > y", PROMOTE_ALL, shape_compare, NULL, EW_NOGRAD, .fold = fold_gt,
    .affine = affine_gt, .instr = KI_GT);
ROW(GE, "ge", "x >= y", PROMOTE_ALL, shape_compare, NULL, EW_NOGRAD, .fold = fold_ge,
    .affine = affine_ge, .instr = KI_GE);

/* ---- mod, floor_divide: as Lua's % and //; rem and the integers' division cut toward zero. By 0
 * integers give what they do in jax.numpy ---- */

static uint16_t emit_constant(Emit *e, DType d, int x) {
    Scalar s = dtype_is_float(d) ? attr_scalar_float(x) : attr_scalar_int(x);
    return program_imm(e, d, &s);
}

static uint16_t emit_select(Emit *e, KType t, uint16_t c, uint16_t x, uint16_t y) {
    uint16_t dst = program_reg(e);
    program_instr(e, KI_SELECT, t, dst, c, x, y, 0);
    return dst;
}

/* A remainder (KT_I32): is it not 0, and its sign not that of y? By 0 any has another sign. */
static uint16_t emit_other_sign(Emit *e, DType d, uint16_t r, uint16_t y) {
    KType t = program_ktype(d);
    uint16_t other =
        program_op(e, KI_NE, t, program_op(e, KI_SIGN, t, r, 0), program_op(e, KI_SIGN, t, y, 0));
    return program_op(e, KI_AND, KT_I32, other, program_op(e, KI_NE, t, r, emit_constant(e, d, 0)));
}

static bool has_sign(DType d) {
    return dtype_lowest(d) < 0;
}

/* Integers by 0 are divided by 1 instead, which leaves 0. */
static void emit_mod(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    DType d = out[0]->dtype;
    KType t = program_ktype(d);
    uint16_t y = program_reg_of(e, n->in[1]);
    if (!dtype_is_float(d)) {
        uint16_t by_zero = program_op(e, KI_EQ, t, y, emit_constant(e, d, 0));
        y = emit_select(e, t, by_zero, emit_constant(e, d, 1), y);
    }
    uint16_t r = program_op(e, KI_REM, t, program_reg_of(e, n->in[0]), y);
    if (has_sign(d))
        r = emit_select(e, t, emit_other_sign(e, d, r, y), program_op(e, KI_ADD, t, r, y), r);
    program_set(e, n->out, r);
}

static void emit_floor_divide(Emit *e, const Node *n, const Type *const *in,
                              const Type *const *out) {
    DType d = out[0]->dtype;
    KType t = program_ktype(d);
    uint16_t x = program_reg_of(e, n->in[0]), y = program_reg_of(e, n->in[1]);
    uint16_t q = program_op(e, KI_DIV, t, x, y);
    if (dtype_is_float(d)) {
        q = program_op(e, KI_FLOOR, t, q, 0);
    } else if (has_sign(d)) {
        uint16_t other = emit_other_sign(e, d, program_op(e, KI_REM, t, x, y), y);
        q = emit_select(e, t, other, program_op(e, KI_SUB, t, q, emit_constant(e, d, 1)), q);
    }
    program_set(e, n->out, q);
}

ROW(MOD, "mod", "remainder, with the sign of y; integers by 0: 0", PROMOTE_NUMBER, shape_number,
    vjp_mod, EW, .emit = emit_mod);
ROW(FLOOR_DIVIDE, "floor_divide",
    "the largest whole number <= x / y; integers by 0: -2, 0 by 0 -1, without sign the largest",
    PROMOTE_NUMBER, shape_number, NULL, EW_NOGRAD, .emit = emit_floor_divide);

/* ---- where ---- */
static Err shape_where(const OpArgs *a, OutType *out, int *nout) {
    const Type *c = a->in[0], *x = a->in[1], *y = a->in[2];
    if (c->dtype != DT_BOOL) return op_error(a, E_DTYPE, "the condition is not bool");
    if (x->dtype != y->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    if (!dims_equal(&c->dims, &x->dims) || !dims_equal(&x->dims, &y->dims))
        return op_error(a, E_SHAPE, "shapes differ");
    out[0] = (OutType){x->dtype, x->weak && y->weak, x->dims};
    return E_OK;
}

static void vjp_where(Build *b, const VjpArgs *a) {
    Val zero = op_const_like(b, CT, 0);
    if (WANT(1)) a->din[1] = op3(b, OP_WHERE, a->in[0], CT, zero);
    if (WANT(2)) a->din[2] = op3(b, OP_WHERE, a->in[0], zero, CT);
}

static Val fold_where(Build *b, const Node *n, const Val *in) {
    const FullAttr *c = op_full_attr(b, in[0]);
    if (in[1] == in[2]) return in[1];
    return c ? in[c->value.i ? 1 : 2] : 0;
}

static void emit_where(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    program_set(e, n->out,
                emit_select(e, program_ktype(out[0]->dtype), program_reg_of(e, n->in[0]),
                            program_reg_of(e, n->in[1]), program_reg_of(e, n->in[2])));
}

static int64_t if_not(int64_t c, int64_t y) {
    return c ? 0 : y;
}
static int64_t if_so(int64_t c, int64_t x) {
    return c ? x : 0;
}

static bool affine_where(const AffineArgs *a, Affine *out) {
    Affine x, y;
    return affine_zip(&a->x[0], &a->x[1], if_so, &x) &&
           affine_zip(&a->x[0], &a->x[2], if_not, &y) && affine_add(&x, &y, 1, out);
}

const OpDef op_row_WHERE = {
    .name = "where",
    .operands = "condition,x,y",
    .doc = "x where the condition holds, else y",
    .nin = 3,
    .nout = 1,
    .flags = OPF_ELEMENTWISE | OPF_JOINT,
    .promote = PROMOTE_BROADCAST,
    .shape = shape_where,
    .vjp = vjp_where,
    .factors = op_factors_elementwise,
    .fold = fold_where,
    .affine = affine_where,
    .emit = emit_where,
    .linear = 6,
};
