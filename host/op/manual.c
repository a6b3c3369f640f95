/* manual.c - the ways into manual mode and out of it (shard_map), and what is known only there.
 *
 * manual_enter gives each device its block of a whole tensor, manual_exit puts blocks together;
 * each is the other's transpose. A tensor that the layout leaves whole along an axis enters with
 * equal copies, which the type says (it does not vary there); pcast makes copies of their own of
 * them, and its transpose is the sum over the axes. That is all that gradients need to know. */
#include "op/manual.h"

#include "ir/program.h"

typedef struct ManualAttr {
    uint32_t axes;        /* that are manual inside */
    const Layout *layout; /* of the tensor outside, along these; open for the others */
} ManualAttr;

/* ---- manual_enter, manual_exit ---- */
static const AttrField manual_fields[] = {
    ATTR_FIELD(ManualAttr, ATTR_MASK, axes), ATTR_FIELD(ManualAttr, ATTR_LAYOUT, layout), {0}};

static const ManualAttr *manual_of(const OpArgs *a) {
    return a->attr;
}

static Err check_rank(const OpArgs *a) {
    if (manual_of(a)->layout && manual_of(a)->layout->rank == a->in[0]->dims.rank) return E_OK;
    return op_error(a, E_SPEC, "the layout is of another rank");
}

static Err shape_enter(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_rank(a));
    TRY(op_shape_same(a, out, nout));
    for (int d = 0; d < a->in[0]->dims.rank; d++) {
        int64_t parts = layout_parts(manual_of(a)->layout, d);
        if (out[0].dims.at[d] % parts)
            return op_error(a, E_INDIVISIBLE, "dim %d is not divided by %lld", d + 1,
                            (long long)parts);
        out[0].dims.at[d] /= parts;
    }
    return E_OK;
}

static Err shape_exit(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_rank(a));
    TRY(op_shape_same(a, out, nout));
    for (int d = 0; d < a->in[0]->dims.rank; d++)
        out[0].dims.at[d] *= layout_parts(manual_of(a)->layout, d);
    return E_OK;
}

static Err mode_enter(const OpArgs *a, ModeRule *r) {
    TRY(check_rank(a));
    uint32_t axes = manual_of(a)->axes, vary = layout_used(manual_of(a)->layout);
    r->in.manual &= ~axes;
    r->in.vary &= ~axes;
    r->out.manual |= axes;
    r->out.vary = r->in.vary | vary;
    return E_OK;
}

static Err mode_exit(const OpArgs *a, ModeRule *r) {
    TRY(check_rank(a));
    uint32_t axes = manual_of(a)->axes, vary = layout_used(manual_of(a)->layout);
    if ((r->in.unreduced | r->in.reduced) & axes)
        return op_error(a, E_SPEC,
                        "the value is unreduced or reduced; psum the one, use the other before "
                        "pcast");
    if (r->in.vary & axes & ~vary)
        return op_error(a, E_SPEC, "the value varies over an axis that its layout does not name");
    r->in.manual |= axes;
    r->in.vary |= vary;
    r->out.manual &= ~axes;
    r->out.vary &= ~axes;
    return E_OK;
}

/* A dim outside is (what the manual axes split, the rest); inside it is the rest. */
static void factors_manual(const OpArgs *a, const Type *const *out, FactorRule *r) {
    bool enters;
    const Layout *l = a->def->manual(a->attr, &enters);
    const Dims *inside = enters ? &out[0]->dims : &a->in[0]->dims;
    for (int d = 0; d < inside->rank; d++) {
        int64_t parts = layout_parts(l, d);
        if (parts > 1) factor_map(r, enters ? 0 : 1, d, factor_add(r, FACTOR_PASS, parts));
        int rest = factor_add(r, FACTOR_PASS, inside->at[d]);
        factor_map(r, 0, d, rest);
        factor_map(r, 1, d, rest);
    }
}

static void vjp_enter(Build *b, const VjpArgs *a) {
    const ManualAttr *m = a->node->attr;
    a->din[0] = build_op(b, OP_MANUAL_EXIT, a->ct, 1, m);
}
static void vjp_exit(Build *b, const VjpArgs *a) {
    const ManualAttr *m = a->node->attr;
    a->din[0] = manual_enter(b, a->ct[0], m->layout, m->axes);
}

static const Layout *outside_of_enter(const void *attr, bool *enters) {
    *enters = true;
    return ((const ManualAttr *)attr)->layout;
}
static const Layout *outside_of_exit(const void *attr, bool *enters) {
    *enters = false;
    return ((const ManualAttr *)attr)->layout;
}

/* The examples lie as propagation finds, along axes that are not manual. */
static void batch_manual(Build *b, const BatchArgs *a) {
    ManualAttr m = *(const ManualAttr *)a->node->attr;
    Layout l = layout_stack(m.layout);
    uint32_t all = (1u << l.mesh->naxes) - 1;
    l.dim[0].open = (all & ~(l.replicated | m.axes)) != 0;
    m.layout = layout_of(b->g->cx, &l);
    if (!m.layout) build_fail(b, err_nomem(b->g->cx, "a layout"));
    batch_apply(b, a, a->in, &m);
}

/* What no axis splits is the same inside. */
static bool affine_enter(const AffineArgs *a, Affine *out) {
    *out = a->x[0];
    return dims_equal(&a->in[0]->dims, &a->out->dims);
}

#define ROW(NAME, name_, doc_, ...)                                                                \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 .nin = 1,                                                         \
                                 .nout = 1,                                                        \
                                 .flags = OPF_CAST | OPF_INTERNAL,                                 \
                                 .view = op_view_same,                                             \
                                 .linear = 1,                                                      \
                                 __VA_ARGS__}

ROW(MANUAL_ENTER, "manual_enter", "each device's block of x, as shard_map gives it to its function",
    OP_ATTR(ManualAttr, manual_fields), .shape = shape_enter, .batch = batch_manual,
    .affine = affine_enter, .mode = mode_enter, .factors = factors_manual, .vjp = vjp_enter,
    .manual = outside_of_enter);
ROW(MANUAL_EXIT, "manual_exit", "the blocks of all devices as one tensor",
    OP_ATTR(ManualAttr, manual_fields), .shape = shape_exit, .batch = batch_manual,
    .mode = mode_exit, .factors = factors_manual, .vjp = vjp_exit, .manual = outside_of_exit);

/* What may be split, and along what, in a tensor outside: the manual axes lie as the layout says,
 * the others as propagation finds. */
static const Layout *open_layout(Build *b, const Layout *l, uint32_t manual) {
    Layout out = *l;
    uint32_t all = (1u << l->mesh->naxes) - 1;
    out.replicated = (uint8_t)(manual & ~layout_used(l));
    for (int d = 0; d < l->rank; d++) out.dim[d].open = (all & ~manual) != 0;
    const Layout *interned = layout_of(b->g->cx, &out);
    if (!interned) build_fail(b, err_nomem(b->g->cx, "a layout"));
    return interned;
}

Val manual_enter(Build *b, Val x, const Layout *layout, uint32_t axes) {
    if (b->err || x == 0) return 0;
    uint32_t outside = mode_of(graph_type(b->g, x)).manual;
    const Layout *open = open_layout(b, layout, outside | axes);
    if (b->err) return 0;
    if (layout_used(layout)) { /* so that x is made as it is wanted */
        Build at = *b;
        at.manual = outside;
        x = build_op(&at, OP_CONSTRAIN, &x, 1, &(ConstrainAttr){.layout = open});
        build_fail(b, at.err);
    }
    return build_op(b, OP_MANUAL_ENTER, &x, 1, &(ManualAttr){axes, open});
}

Val manual_exit(Build *b, Val x, const Layout *layout, uint32_t axes) {
    if (b->err || x == 0) return 0;
    const Layout *open = open_layout(b, layout, mode_of(graph_type(b->g, x)).manual | axes);
    return b->err ? 0 : build_op(b, OP_MANUAL_EXIT, &x, 1, &(ManualAttr){axes, open});
}

/* ---- pcast ---- */
static const char *const pcast_words[] = {"varying", "unreduced", "reduced", "gathered", NULL};
static const AttrField pcast_fields[] = {ATTR_FIELD(PcastAttr, ATTR_MASK, axes),
                                         {"to", ATTR_ENUM, offsetof(PcastAttr, to), pcast_words},
                                         {0}};

Err manual_check(const OpArgs *a, uint32_t axes, const ModeRule *r) {
    if (axes & ~r->in.manual)
        return op_error(a, E_STATE,
                        "a collective over mesh axes that are not manual here; use it inside "
                        "shard_map, whose axis_names has them");
    return E_OK;
}

/* "gathered": of a value that varies by its type, but has come together from all devices: only
 * rules make it. */
static Err mode_pcast(const OpArgs *a, ModeRule *r) {
    const PcastAttr *p = a->attr;
    Mode m = r->in, *out = &r->out;
    uint32_t from[] = {~m.unreduced, m.vary, ~(m.vary | m.unreduced), m.vary};
    uint32_t *to[] = {&out->vary, &out->unreduced, &out->reduced, &out->reduced};
    TRY(manual_check(a, p->axes, r));
    if (p->axes & ~from[p->to])
        return op_error(a, E_SPEC,
                        "there is no cast to '%s' of this; values that are the same on all devices "
                        "become varying or reduced, reduced ones varying, varying ones unreduced",
                        pcast_words[p->to]);
    out->vary &= ~p->axes;
    out->reduced &= ~p->axes;
    *to[p->to] |= p->axes;
    return E_OK;
}

static Val pcast(Build *b, Val x, uint32_t axes, PcastTo to) {
    return axes ? build_op(b, OP_PCAST, &x, 1, &(PcastAttr){axes, to}) : x;
}

static void vjp_pcast(Build *b, const VjpArgs *a) {
    const PcastAttr *p = a->node->attr;
    uint32_t reduced = mode_of(graph_type(b->g, a->in[0])).reduced & p->axes;
    uint32_t summed = p->to == PCAST_UNREDUCED ? 0 : p->axes & ~reduced;
    Val ct = a->ct[0];
    if (p->to == PCAST_GATHERED) {
        build_fail(b, err_set(b->g->cx, E_GRAD,
                              "the gradient of psum_scatter of an unreduced value is not "
                              "differentiable again; psum_scatter the varying value"));
        return;
    }
    if (p->to == PCAST_VARYING) ct = pcast(b, ct, reduced, PCAST_UNREDUCED);
    if (p->to == PCAST_UNREDUCED) ct = pcast(b, ct, p->axes, PCAST_VARYING);
    if (summed) ct = build_op(b, OP_ALL_REDUCE, &ct, 1, &(ReduceAttr){summed, REDUCE_SUM});
    a->din[0] = ct;
}

ROW(PCAST, "pcast", "x, whose type says otherwise how it differs along the axes",
    OP_ATTR(PcastAttr, pcast_fields), .shape = op_shape_same, .batch = batch_leading,
    .mode = mode_pcast, .affine = op_affine_same, .factors = op_factors_elementwise,
    .vjp = vjp_pcast);
#undef ROW

/* What cannot be brought from one mode to the other, or NULL. */
static const char *no_way(const Build *b, Val v, Mode have, Mode m) {
    const FullAttr *f = op_full_attr(b, v);
    bool nought = f && f->value.f == 0;
    if (have.manual & ~m.manual)
        return "a value of shard_map's function is used outside it; return it through out_specs";
    if (have.unreduced & ~m.unreduced)
        return "a value is unreduced: a sum still to be made; psum it first";
    if (have.vary & ~(m.vary | m.unreduced))
        return "a value varies over mesh axes where one that is the same on all devices is needed; "
               "sum it over them with psum";
    if (have.reduced & ~(m.vary | m.reduced))
        return "a value is reduced, and its cotangent a sum still to be made; use the value before "
               "pcast";
    if (m.unreduced & ~(have.unreduced | have.vary) && !nought)
        return "one value is unreduced, a sum still to be made, and the other is not; psum it "
               "first, or pcast the other";
    return NULL;
}

Val manual_cast(Build *b, Val v, Mode m) {
    Mode have = mode_of(graph_type(b->g, v));
    const char *why = no_way(b, v, have, m);
    if (why) {
        build_fail(b, err_set(b->g->cx, have.manual & ~m.manual ? E_STATE : E_SPEC, "%s", why));
        return 0;
    }
    if (have.manual != m.manual) {
        Layout whole;
        layout_init(&whole, b->g->mesh, graph_type(b->g, v)->dims.rank);
        Build at = *b;
        at.manual = m.manual;
        v = manual_enter(&at, v, &whole, m.manual & ~have.manual);
        build_fail(b, at.err);
    }
    uint32_t parts = m.unreduced & ~have.unreduced; /* nought is a sum of noughts */
    v = pcast(b, v, (m.vary | parts) & ~have.vary, PCAST_VARYING);
    v = pcast(b, v, parts, PCAST_UNREDUCED);
    return pcast(b, v, m.reduced & ~have.reduced, PCAST_REDUCED);
}

typedef struct AxisIndexAttr {
    AxisList axes;
} AxisIndexAttr;

/* ---- axis_index ---- */
static const AttrField index_fields[] = {ATTR_FIELD(AxisIndexAttr, ATTR_AXES, axes), {0}};

static Err shape_axis_index(const OpArgs *a, OutType *out, int *nout) {
    out[0] = (OutType){DT_I32, false, {1, {1}}};
    return E_OK;
}

static Err mode_axis_index(const OpArgs *a, ModeRule *r) {
    uint32_t axes = axes_mask(&((const AxisIndexAttr *)a->attr)->axes);
    TRY(manual_check(a, axes, r));
    r->out.vary = axes;
    return E_OK;
}

static void local_axis_index(LocalArgs *a) {
    a->offset[0] = (Offset){.axes = ((const AxisIndexAttr *)a->attr)->axes, .unit = 1};
    a->noffset = 1;
}

static void emit_axis_index(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    uint16_t dst = program_reg(e);
    int offset = program_offset(e, n->noffset ? &n->offset[0] : &(Offset){.unit = 0});
    program_instr(e, KI_IOTA, program_ktype(out[0]->dtype), dst, 0, offset, 0, 0);
    program_set(e, n->out, dst);
}

static bool affine_axis_index(const AffineArgs *a, Affine *out) {
    affine_constant(out, 0);
    return affine_add_place(out, a->mesh, &((const AxisIndexAttr *)a->n->attr)->axes, 1);
}

const OpDef op_row_AXIS_INDEX = {
    .name = "axis_index",
    .operands = "",
    .doc = "the device's 0-based place along the axes, the first of them the slowest",
    .nin = 0,
    .nout = 1,
    .flags = OPF_ELEMENTWISE | OPF_NULLARY | OPF_NO_GRAD | OPF_INTERNAL,
    OP_ATTR(AxisIndexAttr, index_fields),
    .shape = shape_axis_index,
    .mode = mode_axis_index,
    .factors = op_factors_elementwise,
    .local = local_axis_index,
    .affine = affine_axis_index,
    .emit = emit_axis_index,
};
