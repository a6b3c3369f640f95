/* unary.c - one operand, one result of the same dims. */
#include "op/op.h"

#include "ir/program.h"

#include <math.h>

#define X         (a->in[0])
#define Y         (a->out[0])
#define CT        (a->ct[0])
#define K(c)      op_const_like(b, X, (c))
#define MUL(x, y) op2(b, OP_MUL, (x), (y))
#define ADD(x, y) op2(b, OP_ADD, (x), (y))
#define SUB(x, y) op2(b, OP_SUB, (x), (y))
#define DIV(x, y) op2(b, OP_DIV, (x), (y))

static Err shape_any(const OpArgs *a, OutType *out, int *nout) {
    return op_shape_same(a, out, nout);
}

static Err shape_float(const OpArgs *a, OutType *out, int *nout) {
    if (!dtype_is_float(a->in[0]->dtype))
        return op_error(a, E_DTYPE, "takes floats; convert with astype");
    return op_shape_same(a, out, nout);
}

static Err shape_number(const OpArgs *a, OutType *out, int *nout) {
    if (a->in[0]->dtype == DT_BOOL) return op_error(a, E_DTYPE, "takes numbers, not bool");
    return op_shape_same(a, out, nout);
}

static Err shape_bits(const OpArgs *a, OutType *out, int *nout) {
    if (dtype_is_float(a->in[0]->dtype)) return op_error(a, E_DTYPE, "takes integers and bool");
    return op_shape_same(a, out, nout);
}

/* The cotangent of the operand, by that of the result. */
#define VJP(name, x)                                                                               \
    static void vjp_##name(Build *b, const VjpArgs *a) {                                           \
        a->din[0] = (x);                                                                           \
    }
VJP(neg, op1(b, OP_NEG, CT))
VJP(abs, MUL(CT, op1(b, OP_SIGN, X)))
VJP(exp, MUL(CT, Y))
VJP(expm1, MUL(CT, ADD(Y, K(1))))
VJP(log, DIV(CT, X))
VJP(log1p, DIV(CT, ADD(X, K(1))))
VJP(tanh, MUL(CT, SUB(K(1), op1(b, OP_SQUARE, Y))))
VJP(sigmoid, MUL(CT, MUL(Y, SUB(K(1), Y))))
static Val erf_slope(Build *b, const VjpArgs *a, double factor) {
    Val slope = op1(b, OP_EXP, op1(b, OP_NEG, op1(b, OP_SQUARE, X)));
    return MUL(CT, MUL(K(factor), slope));
}
VJP(erf, erf_slope(b, a, M_2_SQRTPI))
VJP(erfc, erf_slope(b, a, -M_2_SQRTPI))
VJP(lgamma, MUL(CT, op2(b, OP_POLYGAMMA, K(0), X)))
VJP(erf_inv, MUL(CT, MUL(K(1 / M_2_SQRTPI), op1(b, OP_EXP, op1(b, OP_SQUARE, Y)))))
VJP(sin, MUL(CT, op1(b, OP_COS, X)))
VJP(cos, op1(b, OP_NEG, MUL(CT, op1(b, OP_SIN, X))))
VJP(sqrt, DIV(MUL(CT, K(0.5)), Y))
VJP(rsqrt, MUL(CT, MUL(K(-0.5), DIV(Y, X))))
VJP(square, MUL(CT, MUL(K(2), X)))

static Val fold_neg(Build *b, const Node *n, const Val *in) {
    const FullAttr *f = op_full_attr(b, in[0]);
    if (graph_def(b->g, in[0])->op == OP_NEG) return graph_def(b->g, in[0])->in[0];
    if (!f || !dtype_is_float((DType)f->dtype)) return 0;
    return op_full(b, (DType)f->dtype, &f->dims, attr_scalar_float(-f->value.f));
}

static Val fold_sqrt(Build *b, const Node *n, const Val *in) {
    const FullAttr *f = op_full_attr(b, in[0]);
    if (!f) return 0;
    double x = f->dtype == DT_F64 ? sqrt(f->value.f) : (double)sqrtf((float)f->value.f);
    if (f->dtype != DT_F64 && f->dtype != DT_F32) return 0;
    return op_full(b, (DType)f->dtype, &f->dims, attr_scalar_float(x));
}

/* ---- integers that are known beforehand ---- */
static bool affine_negative(const AffineArgs *a, Affine *out) {
    Affine nought;
    affine_constant(&nought, 0);
    return affine_add(&nought, &a->x[0], -1, out);
}

static int64_t differ(int64_t x, int64_t y) {
    return x != y;
}

static bool affine_not(const AffineArgs *a, Affine *out) {
    Affine one;
    affine_constant(&one, 1);
    return a->out->dtype == DT_BOOL && affine_zip(&a->x[0], &one, differ, out);
}

/* Floats end here: what they hold need not be whole. */
static bool affine_astype(const AffineArgs *a, Affine *out) {
    Affine nought;
    affine_constant(&nought, 0);
    *out = a->x[0];
    return a->out->dtype != DT_BOOL || affine_compare(&a->x[0], &nought, true, false, true, out);
}

#define ROW(NAME, name_, doc_, instr_, promote_, shape_, vjp_, ...)                                \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 .nin = 1,                                                         \
                                 .nout = 1,                                                        \
                                 .promote = promote_,                                              \
                                 .shape = shape_,                                                  \
                                 .vjp = vjp_,                                                      \
                                 .factors = op_factors_elementwise,                                \
                                 .instr = instr_,                                                  \
                                 __VA_ARGS__}
#define EW        .flags = OPF_ELEMENTWISE
#define EW_NOGRAD .flags = OPF_ELEMENTWISE | OPF_NO_GRAD

ROW(NEG, "neg", "-x", KI_NEG, PROMOTE_ALL, shape_number, vjp_neg, EW, .linear = 1, .fold = fold_neg,
    .affine = affine_negative);
ROW(ABS, "abs", "|x|; gradient sign(x)", KI_ABS, PROMOTE_ALL, shape_number, vjp_abs, EW);
ROW(SIGN, "sign", "-1, 0 or 1; NaN stays", KI_SIGN, PROMOTE_ALL, shape_number, NULL, EW_NOGRAD);
ROW(EXP, "exp", "e to the x", KI_EXP, PROMOTE_FLOAT, shape_float, vjp_exp, EW, .work = 7);
ROW(EXPM1, "expm1", "exp(x) - 1, exact near 0", KI_EXPM1, PROMOTE_FLOAT, shape_float, vjp_expm1, EW,
    .work = 12);
ROW(LOG, "log", "natural logarithm", KI_LOG, PROMOTE_FLOAT, shape_float, vjp_log, EW, .work = 8);
ROW(LOG1P, "log1p", "log(1 + x), exact near 0", KI_LOG1P, PROMOTE_FLOAT, shape_float, vjp_log1p, EW,
    .work = 12);
ROW(TANH, "tanh", "hyperbolic tangent", KI_TANH, PROMOTE_FLOAT, shape_float, vjp_tanh, EW,
    .work = 10);
ROW(SIGMOID, "sigmoid", "1 / (1 + exp(-x))", KI_LOGISTIC, PROMOTE_FLOAT, shape_float, vjp_sigmoid,
    EW, .work = 10);
ROW(ERF, "erf", "error function", KI_ERF, PROMOTE_FLOAT, shape_float, vjp_erf, EW, .work = 15);
ROW(ERF_INV, "erf_inv", "inverse of erf on (-1, 1)", KI_ERF_INV, PROMOTE_FLOAT, shape_float,
    vjp_erf_inv, EW, .work = 20);
ROW(ERFC, "erfc", "1 - erf(x), also where that is small", KI_ERFC, PROMOTE_FLOAT, shape_float,
    vjp_erfc, EW, .work = 20);
ROW(LGAMMA, "lgamma", "log of the absolute value of the gamma function", KI_LGAMMA, PROMOTE_FLOAT,
    shape_float, vjp_lgamma, EW, .work = 60);
ROW(SIN, "sin", "sine of radians", KI_SIN, PROMOTE_FLOAT, shape_float, vjp_sin, EW, .work = 15);
ROW(COS, "cos", "cosine of radians", KI_COS, PROMOTE_FLOAT, shape_float, vjp_cos, EW, .work = 15);
ROW(SQRT, "sqrt", "square root", KI_SQRT, PROMOTE_FLOAT, shape_float, vjp_sqrt, EW, .work = 4,
    .fold = fold_sqrt);
ROW(RSQRT, "rsqrt", "1 / sqrt(x)", KI_RSQRT, PROMOTE_FLOAT, shape_float, vjp_rsqrt, EW, .work = 6);
ROW(SQUARE, "square", "x * x", KI_SQUARE, PROMOTE_NUMBER, shape_number, vjp_square, EW);
ROW(FLOOR, "floor", "largest integer <= x", KI_FLOOR, PROMOTE_FLOAT, shape_float, NULL, EW_NOGRAD);
ROW(CEIL, "ceil", "smallest integer >= x", KI_CEIL, PROMOTE_FLOAT, shape_float, NULL, EW_NOGRAD);
ROW(ROUND, "round", "nearest integer, ties to even", KI_ROUND, PROMOTE_FLOAT, shape_float, NULL,
    EW_NOGRAD);

/* ---- int_pow ---- */
static const AttrField int_pow_fields[] = {ATTR_FIELD(IntPowAttr, ATTR_INT, exponent), {0}};

static Err shape_int_pow(const OpArgs *a, OutType *out, int *nout) {
    const IntPowAttr *p = a->attr;
    if (p->exponent < 0)
        return op_error(a, E_VALUE, "exponent %lld is negative", (long long)p->exponent);
    return shape_number(a, out, nout);
}

static void vjp_int_pow(Build *b, const VjpArgs *a) {
    const IntPowAttr *p = a->node->attr;
    if (p->exponent == 0) return;
    Val slope = build_op(b, OP_INT_POW, &X, 1, &(IntPowAttr){p->exponent - 1});
    a->din[0] = MUL(CT, MUL(K((double)p->exponent), slope));
}

static Val fold_int_pow(Build *b, const Node *n, const Val *in) {
    int64_t p = ((const IntPowAttr *)n->attr)->exponent;
    if (p == 0) return op_const_like(b, in[0], 1);
    if (p == 1) return in[0];
    return p == 2 ? op1(b, OP_SQUARE, in[0]) : 0;
}

static void emit_int_pow(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    uint16_t dst = program_reg(e);
    int imm = program_imm_int(e, ((const IntPowAttr *)n->attr)->exponent);
    program_instr(e, KI_INT_POW, program_ktype(out[0]->dtype), dst, program_reg_of(e, n->in[0]),
                  imm, 0, 0);
    program_set(e, n->out, dst);
}

ROW(INT_POW, "int_pow", "x to a whole number >= 0", 0, PROMOTE_ALL, shape_int_pow, vjp_int_pow, EW,
    .work = 4, OP_ATTR(IntPowAttr, int_pow_fields), .fold = fold_int_pow, .emit = emit_int_pow);

/* ---- isfinite, bitnot ---- */
static Err shape_isfinite(const OpArgs *a, OutType *out, int *nout) {
    TRY(shape_float(a, out, nout));
    out[0].dtype = DT_BOOL;
    out[0].weak = false;
    return E_OK;
}
ROW(ISFINITE, "isfinite", "neither infinite nor NaN", KI_IS_FINITE, PROMOTE_FLOAT, shape_isfinite,
    NULL, EW_NOGRAD);

static void emit_bitnot(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    KType t = program_ktype(in[0]->dtype);
    uint16_t x = program_reg_of(e, n->in[0]);
    if (in[0]->dtype != DT_BOOL) {
        program_set(e, n->out, program_op(e, KI_NOT, t, x, 0));
        return;
    }
    Scalar one = attr_scalar_int(1);
    program_set(e, n->out, program_op(e, KI_XOR, t, x, program_imm(e, DT_BOOL, &one)));
}
ROW(BITNOT, "bitnot", "~x; of bool: not x", 0, PROMOTE_INT, shape_bits, NULL, EW_NOGRAD,
    .affine = affine_not, .emit = emit_bitnot);

/* ---- astype, bitcast ---- */
static const AttrField dtype_fields[] = {ATTR_FIELD(DtypeAttr, ATTR_DTYPE, dtype), {0}};

static Err shape_astype(const OpArgs *a, OutType *out, int *nout) {
    TRY(shape_any(a, out, nout));
    out[0].dtype = (DType)((const DtypeAttr *)a->attr)->dtype;
    out[0].weak = false;
    return E_OK;
}

static void vjp_astype(Build *b, const VjpArgs *a) {
    DType from = op_dtype(b, X);
    if (dtype_is_float(from) && dtype_is_float(op_dtype(b, CT)))
        a->din[0] = from == DT_F32 ? op_wide(b, CT) : op_astype(b, CT, from);
}

static Val fold_astype(Build *b, const Node *n, const Val *in) {
    const Type *x = graph_type(b->g, in[0]);
    DType to = (DType)((const DtypeAttr *)n->attr)->dtype;
    if (x->dtype == to && !x->weak) return in[0];
    const FullAttr *f = op_full_attr(b, in[0]);
    if (!f || !dtype_is_float(to) || dtype_is_narrow(to)) return 0;
    double v = f->value.f;
    if (!dtype_is_float(x->dtype)) /* rounded once, as kernels do */
        v = to == DT_F32 ? (double)(float)f->value.i : (double)f->value.i;
    if (x->dtype == DT_U64 && f->value.i < 0)
        v = to == DT_F32 ? (double)(float)(uint64_t)f->value.i : (double)(uint64_t)f->value.i;
    return op_full(b, to, &f->dims, attr_scalar_float(v));
}

/* An int32 register stopped at the ends of an integer of 8 or 16 bits. */
static uint16_t emit_saturate(Emit *e, DType to, uint16_t x) {
    Scalar low = attr_scalar_int(k_dtype_least(to)), high = attr_scalar_int(k_dtype_greatest(to));
    x = program_op(e, KI_MAX, KT_I32, x, program_imm(e, DT_I32, &low));
    return program_op(e, KI_MIN, KT_I32, x, program_imm(e, DT_I32, &high));
}

static void emit_astype(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    DType to = out[0]->dtype;
    KType from_k = program_ktype(in[0]->dtype), to_k = program_ktype(to);
    uint16_t x = program_reg_of(e, n->in[0]);
    if (to == DT_BOOL) {
        Scalar zero = attr_scalar_int(0);
        program_set(e, n->out,
                    program_op(e, KI_NE, from_k, x, program_imm(e, in[0]->dtype, &zero)));
        return;
    }
    if (from_k == to_k) { /* narrowing within a register type is the caller's rounding */
        program_set(e, n->out, x);
        return;
    }
    uint16_t dst = program_reg(e);
    program_instr(e, KI_CONVERT, from_k, dst, x, 0, 0, to_k);
    if (dtype_size(to) < 4 && to_k == KT_I32 && dtype_is_float(in[0]->dtype))
        dst = emit_saturate(e, to, dst);
    program_set(e, n->out, dst);
}

ROW(ASTYPE, "astype",
    "converted to a dtype; floats to integers cut toward zero and stop at the ends, NaN is 0", 0,
    PROMOTE_NONE, shape_astype, vjp_astype, EW, OP_ATTR(DtypeAttr, dtype_fields),
    .fold = fold_astype, .affine = affine_astype, .emit = emit_astype, .linear = 1);

static Err shape_bitcast(const OpArgs *a, OutType *out, int *nout) {
    DType to = (DType)((const DtypeAttr *)a->attr)->dtype, from = a->in[0]->dtype;
    if (dtype_size(to) != dtype_size(from) || dtype_size(to) < 4)
        return op_error(a, E_DTYPE, "%s and %s are not of one width of 32 or 64 bits",
                        dtype_name(from), dtype_name(to));
    TRY(shape_any(a, out, nout));
    out[0].dtype = to;
    out[0].weak = false;
    return E_OK;
}

static void emit_bitcast(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    uint16_t dst = program_reg(e);
    program_instr(e, KI_BITCAST, program_ktype(in[0]->dtype), dst, program_reg_of(e, n->in[0]), 0,
                  0, program_ktype(out[0]->dtype));
    program_set(e, n->out, dst);
}
ROW(BITCAST, "bitcast", "the same bits as another dtype", 0, PROMOTE_NONE, shape_bitcast, NULL,
    EW_NOGRAD, OP_ATTR(DtypeAttr, dtype_fields), .emit = emit_bitcast);
