/* rowwise.c - softmax and cross-entropy along the last dim, in one pass over each row. The
 * expansions are their definitions; they also serve where no kernel does. */
#include "op/op.h"

#define CT        (a->ct)
#define ADD(x, y) op2(b, OP_ADD, (x), (y))
#define SUB(x, y) op2(b, OP_SUB, (x), (y))
#define MUL(x, y) op2(b, OP_MUL, (x), (y))
#define DIV(x, y) op2(b, OP_DIV, (x), (y))
#define EXP(x)    op1(b, OP_EXP, (x))
#define LOG(x)    op1(b, OP_LOG, (x))
#define WANT(i)   (a->wanted >> (i)&1)

static Err shape_rows(const OpArgs *a, OutType *out, int *nout) {
    for (int i = 0; i < a->nin; i++) {
        if (!dtype_is_float(a->in[i]->dtype)) return op_error(a, E_DTYPE, "takes floats");
        if (!dims_equal(&a->in[i]->dims, &a->in[0]->dims))
            return op_error(a, E_SHAPE, "shapes differ");
    }
    if (a->in[0]->dims.rank < 1 || a->in[0]->dims.at[a->in[0]->dims.rank - 1] < 1)
        return op_error(a, E_SHAPE, "needs a last dim of at least one element");
    return op_shape_same(a, out, nout);
}

static double flops(const OpArgs *a, const Type *const *out) {
    return 8 * (double)type_count(a->in[0]);
}

/* x less the maximum of its row, which is a constant to gradients: it cancels. */
static Val shifted(Build *b, Val x, Val *max) {
    Val m = op1(b, OP_STOP_GRADIENT, op_reduce_last(b, OP_MAX, x));
    if (max) *max = m;
    return SUB(x, op_broadcast_like(b, m, x));
}

/* ---- softmax ---- */
static void vjp_softmax(Build *b, const VjpArgs *a) {
    a->din[0] = op2(b, OP_SOFTMAX_GRAD, a->out[0], CT[0]);
}

static void expand_softmax(Build *b, const Node *n, const Val *in, Val *out) {
    Val e = EXP(shifted(b, in[0], NULL));
    out[0] = DIV(e, op_broadcast_like(b, op_reduce_last(b, OP_SUM, e), e));
}

static void expand_softmax_grad(Build *b, const Node *n, const Val *in, Val *out) {
    Val y = in[0], dy = in[1];
    Val dot = op_reduce_last(b, OP_SUM, MUL(dy, y));
    out[0] = MUL(y, SUB(dy, op_broadcast_like(b, dot, y)));
}

static void vjp_log_softmax(Build *b, const VjpArgs *a) {
    Val total = op_reduce_last(b, OP_SUM, CT[0]);
    a->din[0] = SUB(CT[0], MUL(EXP(a->out[0]), op_broadcast_like(b, total, CT[0])));
}

static void expand_log_softmax(Build *b, const Node *n, const Val *in, Val *out) {
    Val x = shifted(b, in[0], NULL);
    out[0] = SUB(x, op_broadcast_like(b, LOG(op_reduce_last(b, OP_SUM, EXP(x))), x));
}

#define ROW(NAME, name_, operands_, doc_, nin_, nout_, shape_, ...)                                \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = operands_,                                            \
                                 .doc = doc_,                                                      \
                                 .nin = nin_,                                                      \
                                 .nout = nout_,                                                    \
                                 .pads = PADS_PASS,                                                \
                                 .shape = shape_,                                                  \
                                 .batch = batch_leading,                                           \
                                 .factors = op_factors_last_whole,                                 \
                                 .flops = flops,                                                   \
                                 .kernel = name_,                                                  \
                                 __VA_ARGS__}

ROW(SOFTMAX, "softmax", "x", "exp(x) / sum(exp(x)) along the last dim", 1, 1, shape_rows,
    .vjp = vjp_softmax, .expand = expand_softmax, .promote = PROMOTE_FLOAT, .inner = 1,
    .alias = {1});
ROW(SOFTMAX_GRAD, "softmax_grad", "y,dy", "gradient of softmax", 2, 1, shape_rows,
    .expand = expand_softmax_grad, .flags = OPF_INTERNAL, .inner = 3, .alias = {2});
ROW(LOG_SOFTMAX, "log_softmax", "x", "x - log(sum(exp(x))) along the last dim", 1, 1, shape_rows,
    .vjp = vjp_log_softmax, .expand = expand_log_softmax, .promote = PROMOTE_FLOAT, .inner = 1,
    .alias = {1});

/* ---- softmax_cross_entropy: loss and log-sum-exp of each row of logits ---- */
static Err check_xent(const OpArgs *a) {
    const Dims *x = &a->in[0]->dims, *labels = &a->in[1]->dims;
    if (!dtype_is_float(a->in[0]->dtype)) return op_error(a, E_DTYPE, "logits must be floats");
    if (a->in[1]->dtype != DT_I32) return op_error(a, E_DTYPE, "labels must be int32");
    bool fits = x->rank == labels->rank + 1 && x->at[x->rank - 1] > 0;
    for (int d = 0; fits && d < labels->rank; d++) fits = x->at[d] == labels->at[d];
    if (!fits) return op_error(a, E_SHAPE, "labels must have the logits' dims less the last");
    return E_OK;
}

static Err shape_xent(const OpArgs *a, OutType *out, int *nout) {
    DType d = a->in[0]->dtype;
    TRY(check_xent(a));
    out[0] = out[1] = (OutType){.dtype = dtype_accumulator(d), .dims = a->in[1]->dims};
    return E_OK;
}

static Err shape_xent_grad(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_xent(a));
    for (int i = 2; i < 4; i++)
        if (!dims_equal(&a->in[i]->dims, &a->in[1]->dims))
            return op_error(a, E_SHAPE, "shapes differ");
    return op_shape_same(a, out, nout);
}

/* The same with dloss behind the labels, and the gradient behind the results. */
static Err shape_xent_both(const OpArgs *a, OutType *out, int *nout) {
    TRY(shape_xent(a, out, nout));
    if (!dims_equal(&a->in[2]->dims, &a->in[1]->dims)) return op_error(a, E_SHAPE, "shapes differ");
    out[2] = (OutType){.dtype = a->in[0]->dtype, .dims = a->in[0]->dims};
    return E_OK;
}

/* 1 where the class is the label; a label that is no class is found fault with. */
static Val is_label(Build *b, Val labels, Val logits) {
    Dims dims = op_dims(b, logits), classes = {0};
    dims_push(&classes, dims.rank ? dims.at[dims.rank - 1] : 1);
    Val all = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, classes, 0});
    IndexAttr t = {.axes = {1, {0}}, .size = classes};
    for (int d = 0; d < op_dims(b, labels).rank; d++) {
        dims_push(&t.table, -1);
        dims_push(&t.ids, d);
    }
    Val below = op2(b, OP_LT, labels, op_const_like(b, labels, 0)); /* no place from the end */
    labels = op3(b, OP_WHERE, below, op_const_like(b, labels, (double)classes.at[0]), labels);
    labels = build_op(b, OP_GATHER, (Val[]){all, labels}, 2, &t);
    Val cls = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, dims.rank - 1});
    return op2(b, OP_EQ, cls, op_broadcast_like(b, op_add_last(b, labels), logits));
}

static void vjp_xent(Build *b, const VjpArgs *a) {
    Val in[4] = {a->in[0], a->in[1], a->out[1], CT[0]};
    a->din[0] = build_op(b, OP_SOFTMAX_CROSS_ENTROPY_GRAD, in, 4, NULL);
}

static void expand_xent(Build *b, const Node *n, const Val *in, Val *out) {
    DType acc = dtype_accumulator(op_dtype(b, in[0]));
    Val x = op_astype(b, in[0], acc), max;
    Val e = EXP(shifted(b, x, &max));
    Val lse = ADD(max, LOG(op_reduce_last(b, OP_SUM, e)));
    Val hit = op3(b, OP_WHERE, is_label(b, in[1], x), x, op_const_like(b, x, 0));
    out[0] = op_drop_last(b, SUB(lse, op_reduce_last(b, OP_SUM, hit)));
    out[1] = op_drop_last(b, lse);
}

static void expand_xent_grad(Build *b, const Node *n, const Val *in, Val *out) {
    DType acc = dtype_accumulator(op_dtype(b, in[0]));
    Val x = op_astype(b, in[0], acc);
    Val p = EXP(SUB(x, op_broadcast_like(b, op_add_last(b, in[2]), x)));
    Val y = op_astype(b, is_label(b, in[1], x), acc);
    Val d = MUL(SUB(p, y), op_broadcast_like(b, op_add_last(b, in[3]), x));
    out[0] = op_astype(b, d, op_dtype(b, in[0]));
}

ROW(SOFTMAX_CROSS_ENTROPY, "softmax_cross_entropy", "logits,labels",
    "-log softmax(logits)[label] of each row, and log(sum(exp(logits)))", 2, 2, shape_xent,
    .vjp = vjp_xent, .expand = expand_xent, .inner = 1, .grad_results = 1, .flags = OPF_FAULTS);
ROW(SOFTMAX_CROSS_ENTROPY_GRAD, "softmax_cross_entropy_grad", "logits,labels,lse,dloss",
    "gradient of softmax_cross_entropy", 4, 1, shape_xent_grad, .expand = expand_xent_grad,
    .flags = OPF_INTERNAL | OPF_FAULTS, .inner = 1, .alias = {1},
    .pair = {OP_SOFTMAX_CROSS_ENTROPY_BOTH, OP_SOFTMAX_CROSS_ENTROPY, 2});
ROW(SOFTMAX_CROSS_ENTROPY_BOTH, "softmax_cross_entropy_both", "logits,labels,dloss",
    "softmax_cross_entropy and its gradient, where dloss does not wait for the loss", 3, 3,
    shape_xent_both, .flags = OPF_LOCAL | OPF_NO_GRAD | OPF_FAULTS, .inner = 1, .alias = {0, 0, 1});
