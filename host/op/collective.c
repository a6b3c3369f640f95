/* collective.c - what the partitioner puts between local computations, and users write in
 * manual mode. Types are local: dims of one shard. A group is all devices that differ
 * along the axes only. */
#include "op/manual.h"

static const Mesh *mesh_of_op(const OpArgs *a) {
    return a->in[0]->layout->mesh;
}

/* The axes of the list that are whole: gathering a part of an axis leaves the rest varying. */
static uint32_t whole_axes(const OpArgs *a, const AxisList *list) {
    uint32_t mask = 0;
    for (int i = 0; i < list->n; i++)
        if (list->at[i].pre == 1 && list->at[i].size == mesh_of_op(a)->size[list->at[i].axis])
            mask |= 1u << list->at[i].axis;
    return mask;
}

static OutType scaled(const OpArgs *a, int dim, int64_t times, int64_t over) {
    OutType t = {a->in[0]->dtype, a->in[0]->weak, a->in[0]->dims};
    t.dims.at[dim] = t.dims.at[dim] * times / over;
    return t;
}

static Err check_divides(const OpArgs *a, int dim, int64_t parts) {
    if (a->in[0]->dims.at[dim] % parts != 0)
        return op_error(a, E_INDIVISIBLE, "dim %d is not divided by %lld", dim + 1,
                        (long long)parts);
    return E_OK;
}

/* ---- all_gather: every device gets the whole dim ---- */
static const AttrField gather_fields[] = {
    ATTR_FIELD(GatherAttr, ATTR_DIM, dim), ATTR_FIELD(GatherAttr, ATTR_AXES, axes), {0}};

static Err shape_all_gather(const OpArgs *a, OutType *out, int *nout) {
    const GatherAttr *g = a->attr;
    out[0] = scaled(a, g->dim, axes_product(&g->axes), 1);
    return E_OK;
}
static uint32_t vary_all_gather(const OpArgs *a, uint32_t in) {
    return in & ~whole_axes(a, &((const GatherAttr *)a->attr)->axes);
}

/* ---- all_slice: each device keeps its part of the dim: a view ---- */
static Err shape_all_slice(const OpArgs *a, OutType *out, int *nout) {
    const GatherAttr *g = a->attr;
    TRY(check_divides(a, g->dim, axes_product(&g->axes)));
    out[0] = scaled(a, g->dim, 1, axes_product(&g->axes));
    return E_OK;
}
static uint32_t vary_all_slice(const OpArgs *a, uint32_t in) {
    return in | axes_mask(&((const GatherAttr *)a->attr)->axes);
}
static bool view_all_slice(ViewArgs *v) {
    v->per_offset[0] = v->in_strides[((const GatherAttr *)v->attr)->dim];
    return op_view_same(v);
}

/* ---- all_reduce: any number of operands, one exchange ---- */
static const char *const kinds[] = {"sum", "max", "min", NULL};
static const AttrField reduce_fields[] = {ATTR_FIELD(ReduceAttr, ATTR_MASK, axes),
                                          {"kind", ATTR_ENUM, offsetof(ReduceAttr, kind), kinds},
                                          {0}};

static Err shape_all_reduce(const OpArgs *a, OutType *out, int *nout) {
    *nout = a->nin;
    for (int i = 0; i < a->nin; i++)
        out[i] = (OutType){a->in[i]->dtype, a->in[i]->weak, a->in[i]->dims};
    return E_OK;
}
static uint32_t vary_all_reduce(const OpArgs *a, uint32_t in) {
    return in & ~((const ReduceAttr *)a->attr)->axes;
}

/* ---- reduce_scatter: each device gets its part of the sum ---- */
static const AttrField scatter_fields[] = {ATTR_FIELD(ScatterAttr, ATTR_DIM, dim),
                                           ATTR_FIELD(ScatterAttr, ATTR_AXES, axes),
                                           {"kind", ATTR_ENUM, offsetof(ScatterAttr, kind), kinds},
                                           {0}};

static Err shape_reduce_scatter(const OpArgs *a, OutType *out, int *nout) {
    const ScatterAttr *s = a->attr;
    TRY(check_divides(a, s->dim, axes_product(&s->axes)));
    out[0] = scaled(a, s->dim, 1, axes_product(&s->axes));
    return E_OK;
}
static uint32_t vary_reduce_scatter(const OpArgs *a, uint32_t in) {
    return in | axes_mask(&((const ScatterAttr *)a->attr)->axes);
}

/* ---- all_to_all: the split moves from one dim to another ---- */
static const AttrField all_to_all_fields[] = {ATTR_FIELD(AllToAllAttr, ATTR_DIM, split),
                                              ATTR_FIELD(AllToAllAttr, ATTR_DIM, concat),
                                              ATTR_FIELD(AllToAllAttr, ATTR_AXES, axes),
                                              {0}};

static Err shape_all_to_all(const OpArgs *a, OutType *out, int *nout) {
    const AllToAllAttr *t = a->attr;
    int64_t n = axes_product(&t->axes);
    TRY(check_divides(a, t->split, n));
    out[0] = scaled(a, t->split, 1, n);
    out[0].dims.at[t->concat] *= n;
    return E_OK;
}
static uint32_t vary_all_to_all(const OpArgs *a, uint32_t in) {
    return in | axes_mask(&((const AllToAllAttr *)a->attr)->axes);
}

/* ---- ppermute: who gets nothing gets zeros ---- */
static const AttrField ppermute_fields[] = {
    ATTR_FIELD(PpermuteAttr, ATTR_AXES, axes), ATTR_FIELD(PpermuteAttr, ATTR_INTS, pairs), {0}};

static Err shape_ppermute(const OpArgs *a, OutType *out, int *nout) {
    return op_shape_same(a, out, nout);
}
static uint32_t vary_ppermute(const OpArgs *a, uint32_t in) {
    return in | axes_mask(&((const PpermuteAttr *)a->attr)->axes);
}

/* ---- permute: whole shards change places, as two layouts of equal shards say ---- */
static const AttrField permute_fields[] = {
    ATTR_FIELD(PermuteAttr, ATTR_LAYOUT, from), ATTR_FIELD(PermuteAttr, ATTR_LAYOUT, to), {0}};

static Err shape_permute(const OpArgs *a, OutType *out, int *nout) {
    return op_shape_same(a, out, nout);
}
static uint32_t vary_permute(const OpArgs *a, uint32_t in) {
    const PermuteAttr *p = a->attr;
    return (in & ~layout_used(p->from)) | layout_used(p->to);
}

static void info_all_gather(const void *attr, CollectiveInfo *c) {
    const GatherAttr *g = attr;
    *c = (CollectiveInfo){
        .kind = COLL_ALL_GATHER, .axes = axes_mask(&g->axes), .dim = g->dim, .list = g->axes};
}
static void info_all_reduce(const void *attr, CollectiveInfo *c) {
    const ReduceAttr *r = attr;
    *c = (CollectiveInfo){.kind = COLL_ALL_REDUCE, .reduce = (ReduceKind)r->kind, .axes = r->axes};
}
static void info_reduce_scatter(const void *attr, CollectiveInfo *c) {
    const ScatterAttr *s = attr;
    *c = (CollectiveInfo){.kind = COLL_REDUCE_SCATTER,
                          .reduce = (ReduceKind)s->kind,
                          .axes = axes_mask(&s->axes),
                          .dim = s->dim,
                          .list = s->axes};
}
static void info_all_to_all(const void *attr, CollectiveInfo *c) {
    const AllToAllAttr *t = attr;
    *c = (CollectiveInfo){.kind = COLL_ALL_TO_ALL,
                          .axes = axes_mask(&t->axes),
                          .dim = t->split,
                          .dim2 = t->concat,
                          .list = t->axes};
}
static void info_permute(const void *attr, CollectiveInfo *c) {
    const PermuteAttr *p = attr;
    *c = (CollectiveInfo){.kind = COLL_PERMUTE,
                          .axes = layout_used(p->from) | layout_used(p->to),
                          .from = p->from,
                          .to = p->to};
}

static void info_ppermute(const void *attr, CollectiveInfo *c) {
    const PpermuteAttr *p = attr;
    *c = (CollectiveInfo){
        .kind = COLL_PERMUTE, .axes = axes_mask(&p->axes), .list = p->axes, .pairs = p->pairs};
}

/* ---- in manual mode: as users write them ---- */

/* Operands vary over the axes (a copy of a value is as good as another), and so do results. A sum
 * takes the parts of one that is still to be made, too. */
static Err over(const OpArgs *a, ModeRule *r, bool sum) {
    CollectiveInfo c = {.kind = COLL_NONE};
    a->def->collective(a->attr, &c);
    TRY(manual_check(a, c.axes, r));
    uint32_t parts = sum ? r->in.unreduced & c.axes : 0;
    r->in.unreduced = parts | (r->in.unreduced & ~c.axes);
    r->in.vary |= c.axes & ~parts;
    r->in.reduced &= ~c.axes;
    r->out = r->in;
    r->out.unreduced &= ~c.axes;
    r->out.vary |= c.axes;
    return E_OK;
}
static Err mode_over(const OpArgs *a, ModeRule *r) {
    return over(a, r, false);
}
static Err mode_reduce_scatter(const OpArgs *a, ModeRule *r) {
    return over(a, r, ((const ScatterAttr *)a->attr)->kind == REDUCE_SUM);
}
/* The type of a reduction says that all have the same. */
static Err mode_all_reduce(const OpArgs *a, ModeRule *r) {
    TRY(over(a, r, ((const ReduceAttr *)a->attr)->kind == REDUCE_SUM));
    r->out.vary &= ~((const ReduceAttr *)a->attr)->axes;
    return E_OK;
}

/* Unchanged dims pass; those that change, or change hands, are whole. */
static void factors_but(const OpArgs *a, const Type *const *out, int dim, int dim2, FactorRule *r) {
    for (int d = 0; d < a->in[0]->dims.rank; d++) {
        bool changed = d == dim || d == dim2;
        int f = factor_add(r, changed ? FACTOR_REPLICATE : FACTOR_PASS, a->in[0]->dims.at[d]);
        factor_map(r, 0, d, f);
        if (changed) f = factor_add(r, FACTOR_REPLICATE, out[0]->dims.at[d]);
        factor_map(r, 1, d, f);
    }
}
static void factors_all_gather(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors_but(a, out, ((const GatherAttr *)a->attr)->dim, -1, r);
}
static void factors_reduce_scatter(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors_but(a, out, ((const ScatterAttr *)a->attr)->dim, -1, r);
}
static void factors_all_to_all(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const AllToAllAttr *t = a->attr;
    factors_but(a, out, t->split, t->concat, r);
}
static void factors_all_reduce(const OpArgs *a, const Type *const *out, FactorRule *r) {
    for (int i = 0; i < a->nin; i++)
        for (int d = 0; d < out[i]->dims.rank; d++) {
            int f = factor_add(r, FACTOR_PASS, out[i]->dims.at[d]);
            factor_map(r, i, d, f);
            factor_map(r, a->nin + i, d, f);
        }
}

static bool is_sum(Build *b, int32_t kind, const char *name) {
    if (kind == REDUCE_SUM) return true;
    build_fail(b, err_set(b->g->cx, E_GRAD,
                          "%s of a maximum or minimum is not differentiable; use stop_gradient on "
                          "what goes into pmax and pmin, or all_gather and max",
                          name));
    return false;
}
/* The cotangent is the same on all; it is cast to vary where it is added to others. */
static void vjp_all_reduce(Build *b, const VjpArgs *a) {
    if (!is_sum(b, ((const ReduceAttr *)a->node->attr)->kind, "all_reduce")) return;
    for (int i = 0; i < a->node->nin; i++) a->din[i] = a->ct[i];
}
static void vjp_all_gather(Build *b, const VjpArgs *a) {
    const GatherAttr *g = a->node->attr;
    a->din[0] = build_op(b, OP_REDUCE_SCATTER, a->ct, 1, &(ScatterAttr){g->dim, g->axes, 0});
}
static void vjp_reduce_scatter(Build *b, const VjpArgs *a) {
    const ScatterAttr *s = a->node->attr;
    if (!is_sum(b, s->kind, "reduce_scatter")) return;
    uint32_t parts = mode_of(graph_type(b->g, a->in[0])).unreduced & axes_mask(&s->axes);
    a->din[0] = build_op(b, OP_ALL_GATHER, a->ct, 1, &(GatherAttr){s->dim, s->axes});
    if (parts) a->din[0] = build_op(b, OP_PCAST, a->din, 1, &(PcastAttr){parts, PCAST_GATHERED});
}
static void vjp_all_to_all(Build *b, const VjpArgs *a) {
    const AllToAllAttr *t = a->node->attr;
    AllToAllAttr back = {.split = t->concat, .concat = t->split, .axes = t->axes};
    a->din[0] = build_op(b, OP_ALL_TO_ALL, a->ct, 1, &back);
}
static void vjp_ppermute(Build *b, const VjpArgs *a) {
    const PpermuteAttr *p = a->node->attr;
    Ctx *cx = b->g->cx;
    int32_t n = p->pairs->n, *back = ARENA_ARRAY(&b->g->arena, int32_t, n + 1);
    for (int32_t i = 0; back && i < n; i++) back[i] = p->pairs->at[i ^ 1];
    const IntList *pairs = back ? attr_list_of(cx, back, n) : NULL;
    if (!pairs)
        build_fail(b, err_nomem(cx, "a gradient"));
    else
        a->din[0] = build_op(b, OP_PPERMUTE, a->ct, 1, &(PpermuteAttr){p->axes, pairs});
}

#define ROW(NAME, name_, doc_, type_, fields_, ...)                                                \
    const OpDef op_row_##NAME = {.name = #name_,                                                   \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 OP_ATTR(type_, fields_),                                          \
                                 .shape = shape_##name_,                                           \
                                 .batch = batch_leading,                                           \
                                 .vary = vary_##name_,                                             \
                                 .flags = OPF_COLLECTIVE | OPF_INTERNAL,                           \
                                 __VA_ARGS__}

ROW(ALL_GATHER, all_gather, "the parts of a dim, put together on every device", GatherAttr,
    gather_fields, .nin = 1, .nout = 1, .collective = info_all_gather, .mode = mode_over,
    .factors = factors_all_gather, .vjp = vjp_all_gather);
ROW(ALL_SLICE, all_slice, "this device's part of a dim; nothing is sent", GatherAttr, gather_fields,
    .nin = 1, .nout = 1, .view = view_all_slice, .linear = 1);
ROW(ALL_REDUCE, all_reduce, "the sum over the group, on every device", ReduceAttr, reduce_fields,
    .nin = -1, .nout = -1, .collective = info_all_reduce, .mode = mode_all_reduce,
    .factors = factors_all_reduce, .vjp = vjp_all_reduce);
ROW(REDUCE_SCATTER, reduce_scatter, "this device's part of the sum over the group", ScatterAttr,
    scatter_fields, .nin = 1, .nout = 1, .collective = info_reduce_scatter,
    .mode = mode_reduce_scatter, .factors = factors_reduce_scatter, .vjp = vjp_reduce_scatter);
ROW(ALL_TO_ALL, all_to_all, "the split moved from one dim to another", AllToAllAttr,
    all_to_all_fields, .nin = 1, .nout = 1, .collective = info_all_to_all, .mode = mode_over,
    .factors = factors_all_to_all, .vjp = vjp_all_to_all);
ROW(PERMUTE, permute, "shards sent to other devices", PermuteAttr, permute_fields, .nin = 1,
    .nout = 1, .collective = info_permute);
ROW(PPERMUTE, ppermute, "x of the device that each is sent from, zeros where none is", PpermuteAttr,
    ppermute_fields, .nin = 1, .nout = 1, .collective = info_ppermute, .mode = mode_over,
    .factors = op_factors_elementwise, .vjp = vjp_ppermute);

/* ---- done: what a collective has made, from here on to be used ---- */
static Err shape_done(const OpArgs *a, OutType *out, int *nout) {
    return op_shape_same(a, out, nout);
}
static uint32_t vary_done(const OpArgs *a, uint32_t in) {
    return a->in[0]->layout->vary;
}

const OpDef op_row_DONE = {
    .name = "done",
    .operands = "result,operand",
    .doc = "the result of a collective once it is there; its operand is held until then",
    .nin = 2,
    .nout = 1,
    .flags = OPF_WAIT | OPF_COLLECTIVE | OPF_INTERNAL,
    .shape = shape_done,
    .vary = vary_done,
    .view = op_view_same,
};
