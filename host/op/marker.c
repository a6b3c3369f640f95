/* marker.c - nodes that steer: parameters, variables, constraints, barriers, fused regions. */
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
    OP_ATTR(ParamAttr, param_fields),
};

/* Stands for a value that comes later: one example of vmap's, the cotangent in a custom_vjp's bwd.
 * What is made of it is rewritten with the value, and then dead. Or for the results of a node that
 * an attempt has taken back: as many as it had. */
const OpDef op_row_PLACEHOLDER = {
    .name = "placeholder",
    .operands = "",
    .doc = "a value that is not known yet",
    .nin = 0,
    .nout = -1,
    .flags = OPF_PLACEHOLDER | OPF_TYPED | OPF_INTERNAL,
};

static void vjp_identity(Build *b, const VjpArgs *a) {
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
                                 .pads = PADS_PASS,                                                \
                                 .view = op_view_same,                                             \
                                 __VA_ARGS__}

static Val fold_to_operand(Build *b, const Node *n, const Val *in) {
    return in[0];
}

ROW(IDENTITY, "identity", "x; the fresh variable of a gradient", op_shape_same, .vjp = vjp_identity,
    .batch = batch_leading, .flags = OPF_INTERNAL, .fold = fold_to_operand,
    .affine = op_affine_same, .linear = 1);
ROW(STOP_GRADIENT, "stop_gradient", "x, as a constant to gradients", op_shape_same,
    .batch = batch_leading, .flags = OPF_NO_GRAD, .fold = fold_to_operand, .affine = op_affine_same,
    .linear = 1);
ROW(BARRIER, "opt_barrier", "x; no pass looks through it", op_shape_same, .vjp = vjp_identity,
    .batch = batch_leading, .affine = op_affine_same, .flags = OPF_BARRIER | OPF_INTERNAL);

/* ---- checkpoint_name: what policies of remat ask for ---- */
static const AttrField name_fields[] = {ATTR_FIELD(NameAttr, ATTR_NAME, name), {0}};

ROW(CHECKPOINT_NAME, "checkpoint_name", "x, under a name that policies of remat know",
    op_shape_same, .vjp = vjp_identity, .batch = batch_leading, .fold = fold_to_operand,
    OP_ATTR(NameAttr, name_fields), .affine = op_affine_same, .linear = 1);

/* ---- what only propagation sees ---- */
ROW(PROPAGATION_BARRIER, "propagation_barrier", "x; no layout propagates through it", op_shape_same,
    .vjp = vjp_identity, .batch = batch_leading, .flags = OPF_CAST | OPF_LAYOUT_STOP, .linear = 1);

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
    .batch = batch_leading,
    .factors = op_factors_elementwise,
    .pads = PADS_PASS,
    .view = op_view_same,
    .vjp = vjp_identity,
    .flags = OPF_CAST,
};

/* ---- constrain: its result has the layout, and so has its cotangent ---- */
static const AttrField constrain_fields[] = {ATTR_FIELD(ConstrainAttr, ATTR_LAYOUT, layout),
                                             ATTR_FIELD(ConstrainAttr, ATTR_FLAG, state),
                                             {0}};

static Err shape_constrain(const OpArgs *a, OutType *out, int *nout) {
    const Layout *l = ((const ConstrainAttr *)a->attr)->layout;
    if (!l || l->rank != a->in[0]->dims.rank)
        return op_error(a, E_SPEC, "the layout is of another rank");
    return op_shape_same(a, out, nout);
}

static void vjp_constrain(Build *b, const VjpArgs *a) {
    a->din[0] = build_op(b, OP_CONSTRAIN, a->ct, 1, a->node->attr);
}

/* Nothing is asked of the examples' dim, or that it lies along the axes that vmap was told;
 * explicit axes stay. */
static void batch_constrain(Build *b, const BatchArgs *a) {
    const Layout *one = ((const ConstrainAttr *)a->node->attr)->layout;
    const Layout *have = graph_type(b->g, a->in[0])->layout;
    Layout l = layout_stack(one);
    l.dim[0].open = a->naxis == 0;
    if (a->naxis == 0 && have && !(axes_mask(&have->dim[0].axes) & layout_used(one)))
        l.dim[0].axes = have->dim[0].axes;
    for (int i = 0; i < a->naxis; i++) {
        int axis = mesh_axis(one->mesh, a->axis[i]);
        bool used = axis >= 0 && layout_used(&l) >> axis & 1;
        if (axis < 0 || used) {
            build_fail(b, err_set(b->g->cx, E_SPEC, "vmap: spmd_axis '%s' %s", a->axis[i],
                                  used ? "is used by a constraint inside already"
                                       : "is no axis of the mesh of a constraint inside"));
            return;
        }
        axes_push(&l.dim[0].axes, axes_whole(one->mesh, axis));
    }
    int32_t parts = axes_product(&l.dim[0].axes);
    if (a->size % parts) {
        build_fail(
            b, err_set(b->g->cx, E_INDIVISIBLE,
                       "vmap: %lld example%s for the %d parts of spmd_axis, which must divide them",
                       (long long)a->size, str_s(a->size), (int)parts));
        return;
    }
    const Layout *layout = layout_of(b->g->cx, &l);
    if (!layout) build_fail(b, err_nomem(b->g->cx, "a layout"));
    ConstrainAttr attr = *(const ConstrainAttr *)a->node->attr;
    attr.layout = layout;
    batch_apply(b, a, a->in, &attr);
}

ROW(CONSTRAIN, "constrain", "x, with the given layout", shape_constrain, .vjp = vjp_constrain,
    .batch = batch_constrain, .flags = OPF_CONSTRAINT | OPF_INTERNAL, .affine = op_affine_same,
    OP_ATTR(ConstrainAttr, constrain_fields), .linear = 1);
#undef ROW

const OpDef op_row_FUSED = {
    .name = "fused",
    .operands = "",
    .doc = "the elementwise ops of its body, run as one kernel over tiles",
    .nin = -1,
    .nout = -1,
    .flags = OPF_TYPED | OPF_INTERNAL | OPF_LOCAL | OPF_ALIAS_ANY,
    .kernel = "fused",
};
