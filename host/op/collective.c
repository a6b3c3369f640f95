/* collective.c - what the partitioner puts between local computations. Types are local: dims of one
 * shard. A group is all devices that differ along the axes only. */
#include "op/op.h"

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
    (void)nout;
    out[0] = scaled(a, g->dim, axes_product(&g->axes), 1);
    return E_OK;
}
static uint32_t vary_all_gather(const OpArgs *a, uint32_t in) {
    return in & ~whole_axes(a, &((const GatherAttr *)a->attr)->axes);
}

/* ---- all_slice: each device keeps its part of the dim: a view ---- */
static Err shape_all_slice(const OpArgs *a, OutType *out, int *nout) {
    const GatherAttr *g = a->attr;
    (void)nout;
    TRY(check_divides(a, g->dim, axes_product(&g->axes)));
    out[0] = scaled(a, g->dim, 1, axes_product(&g->axes));
    return E_OK;
}
static uint32_t vary_all_slice(const OpArgs *a, uint32_t in) {
    return in | axes_mask(&((const GatherAttr *)a->attr)->axes);
}
static bool view_all_slice(ViewArgs *v) {
    int dim = ((const GatherAttr *)v->attr)->dim;
    for (int d = 0; d < v->in_dims->rank; d++) v->out_strides[d] = v->in_strides[d];
    v->per_offset[0] = v->in_strides[dim];
    return true;
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
    (void)nout;
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
    (void)nout;
    TRY(check_divides(a, t->split, n));
    out[0] = scaled(a, t->split, 1, n);
    out[0].dims.at[t->concat] *= n;
    return E_OK;
}
static uint32_t vary_all_to_all(const OpArgs *a, uint32_t in) {
    return in | axes_mask(&((const AllToAllAttr *)a->attr)->axes);
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
    *c = (CollectiveInfo){.kind = COLL_ALL_REDUCE, .reduce = (PartialKind)r->kind, .axes = r->axes};
}
static void info_reduce_scatter(const void *attr, CollectiveInfo *c) {
    const ScatterAttr *s = attr;
    *c = (CollectiveInfo){.kind = COLL_REDUCE_SCATTER,
                          .reduce = (PartialKind)s->kind,
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

#define ROW(NAME, name_, doc_, type_, fields_, ...)                                                \
    const OpDef op_row_##NAME = {.name = #name_,                                                   \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 .attr = fields_,                                                  \
                                 .attr_size = sizeof(type_),                                       \
                                 .shape = shape_##name_,                                           \
                                 .vary = vary_##name_,                                             \
                                 .flags = OPF_COLLECTIVE | OPF_INTERNAL,                           \
                                 __VA_ARGS__}

ROW(ALL_GATHER, all_gather, "the parts of a dim, put together on every device", GatherAttr,
    gather_fields, .nin = 1, .nout = 1, .collective = info_all_gather);
ROW(ALL_SLICE, all_slice, "this device's part of a dim; nothing is sent", GatherAttr, gather_fields,
    .nin = 1, .nout = 1, .view = view_all_slice, .linear = 1);
ROW(ALL_REDUCE, all_reduce, "the sum over the group, on every device", ReduceAttr, reduce_fields,
    .nin = -1, .nout = -1, .collective = info_all_reduce);
ROW(REDUCE_SCATTER, reduce_scatter, "this device's part of the sum over the group", ScatterAttr,
    scatter_fields, .nin = 1, .nout = 1, .collective = info_reduce_scatter);
ROW(ALL_TO_ALL, all_to_all, "the split moved from one dim to another", AllToAllAttr,
    all_to_all_fields, .nin = 1, .nout = 1, .collective = info_all_to_all);
ROW(PERMUTE, permute, "shards sent to other devices", PermuteAttr, permute_fields, .nin = 1,
    .nout = 1, .collective = info_permute);
