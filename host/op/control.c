/* control.c - nodes that steer: parameters, variables, constraints, barriers, fused regions. */
#include "op/op.h"

static const AttrField param_fields[] = {ATTR_FIELD(ParamAttr, ATTR_INT, index),
                                         ATTR_FIELD(ParamAttr, ATTR_NAME, name),
                                         ATTR_FIELD(ParamAttr, ATTR_BOOL, state),
                                         {0}};

const OpDef op_row_PARAM = {
    .name = "param",
    .operands = "",
    .doc = "an input of the program or of a region",
    .nin = 0,
    .nout = 1,
    .flags = OPF_PARAM | OPF_TYPED | OPF_INTERNAL,
    .attr = param_fields,
    .attr_size = sizeof(ParamAttr),
};

static bool view_same(ViewArgs *v) {
    for (int d = 0; d < v->in_dims->rank; d++) v->out_strides[d] = v->in_strides[d];
    return true;
}

static void vjp_identity(Build *b, const VjpArgs *a) {
    (void)b;
    a->din[0] = a->ct[0];
}

#define ROW(NAME, name_, doc_, shape_, ...)                                                        \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 .nin = 1,                                                         \
                                 .nout = 1,                                                        \
                                 .shape = shape_,                                                  \
                                 .factors = op_factors_elementwise,                                \
                                 .view = view_same,                                                \
                                 __VA_ARGS__}

static Val fold_to_operand(Build *b, const Node *n, const Val *in) {
    (void)b;
    (void)n;
    return in[0];
}

ROW(IDENTITY, "identity", "x; the fresh variable of a gradient", op_shape_same, .vjp = vjp_identity,
    .flags = OPF_INTERNAL, .fold = fold_to_operand, .linear = 1);
ROW(STOP_GRADIENT, "stop_gradient", "x, as a constant to gradients", op_shape_same,
    .flags = OPF_NO_GRAD, .fold = fold_to_operand, .linear = 1);
ROW(BARRIER, "opt_barrier", "x; no pass looks through it", op_shape_same, .vjp = vjp_identity,
    .flags = OPF_BARRIER | OPF_INTERNAL);

/* ---- checkpoint_name: what policies of checkpoint ask for ---- */
static const AttrField name_fields[] = {ATTR_FIELD(NameAttr, ATTR_NAME, name), {0}};

ROW(CHECKPOINT_NAME, "checkpoint_name", "x, under a name that policies of checkpoint know",
    op_shape_same, .vjp = vjp_identity, .fold = fold_to_operand, .attr = name_fields,
    .attr_size = sizeof(NameAttr), .linear = 1);

/* ---- what only propagation sees ---- */
ROW(PROPAGATION_BARRIER, "propagation_barrier", "x; no layout propagates through it", op_shape_same,
    .vjp = vjp_identity, .flags = OPF_CAST | OPF_LAYOUT_STOP, .linear = 1);

static Err shape_alike(const OpArgs *a, OutType *out, int *nout) {
    if (!dims_equal(&a->in[0]->dims, &a->in[1]->dims))
        return op_error(a, E_SHAPE, "the shapes differ; one layout serves tensors of one shape");
    return op_shape_same(a, out, nout);
}

const OpDef op_row_SHARD_ALIKE = {
    .name = "shard_alike",
    .operands = "x,y",
    .doc = "x, in one layout with y",
    .nin = 2,
    .nout = 1,
    .shape = shape_alike,
    .factors = op_factors_elementwise,
    .view = view_same,
    .vjp = vjp_identity,
    .flags = OPF_CAST,
};

/* ---- constrain: its result has the layout, and so has its cotangent ---- */
static const AttrField constrain_fields[] = {ATTR_FIELD(ConstrainAttr, ATTR_LAYOUT, layout), {0}};

static Err shape_constrain(const OpArgs *a, OutType *out, int *nout) {
    const Layout *l = ((const ConstrainAttr *)a->attr)->layout;
    if (!l || l->rank != a->in[0]->dims.rank)
        return op_error(a, E_SPEC, "the layout is of another rank");
    return op_shape_same(a, out, nout);
}

static void vjp_constrain(Build *b, const VjpArgs *a) {
    a->din[0] = build_op(b, OP_CONSTRAIN, a->ct, 1, a->node->attr);
}

ROW(CONSTRAIN, "constrain", "x, with the given layout", shape_constrain, .vjp = vjp_constrain,
    .flags = OPF_CONSTRAINT | OPF_INTERNAL, .attr = constrain_fields,
    .attr_size = sizeof(ConstrainAttr), .linear = 1);
#undef ROW

const OpDef op_row_FUSED = {
    .name = "fused",
    .operands = "",
    .doc = "the elementwise ops of its body, run as one program over tiles",
    .nin = -1,
    .nout = -1,
    .flags = OPF_TYPED | OPF_INTERNAL | OPF_ALIAS_ANY,
    .kernel = "fused",
};
