/* movement.c - the same elements in another place. Most are views: new strides, no work. */
#include "op/op.h"

#include <string.h>

#define X  (a->in[0])
#define CT (a->ct[0])

/* Unchanged dims pass, changed ones must be whole. */
static void factors_changed_whole(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *x = &a->in[0]->dims, *y = &out[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        int f = factor_add(r, x->at[d] == y->at[d] ? FACTOR_PASS : FACTOR_REPLICATE, x->at[d]);
        factor_map(r, 0, d, f);
        if (x->at[d] == y->at[d]) factor_map(r, r->ntensor - 1, d, f);
    }
}

/* ---- reshape ---- */
static const AttrField shape_fields[] = {ATTR_FIELD(ShapeAttr, ATTR_SHAPE, dims), {0}};

static Err shape_reshape(const OpArgs *a, OutType *out, int *nout) {
    const Dims *to = &((const ShapeAttr *)a->attr)->dims;
    int64_t have = dims_count(&a->in[0]->dims), want = dims_count(to);
    if (have != want)
        return op_error(a, E_SHAPE, "%lld element%s for a shape of %lld", (long long)have,
                        str_s(have), (long long)want);
    out[0] = (OutType){a->in[0]->dtype, a->in[0]->weak, *to};
    return E_OK;
}

static void vjp_reshape(Build *b, const VjpArgs *a) {
    Dims dims = op_dims(b, X);
    a->din[0] = op_reshape(b, CT, &dims);
}

/* Dims of two shapes, from the major side, whose products are equal and no less of which are. */
typedef struct DimGroup {
    int start[2], end[2];
} DimGroup;

/* The group behind this one; false at the end. No dim is 0, and both shapes
 * have as many elements. */
static bool next_group(const Dims *const dims[2], DimGroup *g) {
    int64_t product[2] = {1, 1};
    memcpy(g->start, g->end, sizeof g->start);
    if (g->start[0] == dims[0]->rank && g->start[1] == dims[1]->rank) return false;
    do {
        int t = product[0] <= product[1] && g->end[0] < dims[0]->rank ? 0 : 1;
        product[t] *= dims[t]->at[g->end[t]++];
    } while (product[0] != product[1]);
    return true;
}

/* Cuts a group into common factors. Where neither of two dims divides the other, the rest of the
 * group cannot be split. */
static void factors_of_group(const Dims *const dims[2], const DimGroup *g, FactorRule *r) {
    int at[2] = {g->start[0] - 1, g->start[1] - 1};
    int64_t rest[2] = {1, 1}; /* of dims at[0], at[1] */
    for (;;) {
        for (int t = 0; t < 2; t++)
            while (rest[t] == 1 && at[t] + 1 < g->end[t]) rest[t] = dims[t]->at[++at[t]];
        int64_t common = rest[0] < rest[1] ? rest[0] : rest[1];
        if (common == 1) return;
        if (rest[0] % common || rest[1] % common) break;
        int f = factor_add(r, FACTOR_PASS, common);
        for (int t = 0; t < 2; t++) {
            factor_map(r, t, at[t], f);
            rest[t] /= common;
        }
    }
    for (int t = 0; t < 2; t++) {
        factor_map(r, t, at[t], factor_add(r, FACTOR_REPLICATE, rest[t]));
        while (++at[t] < g->end[t])
            if (dims[t]->at[at[t]] > 1)
                factor_map(r, t, at[t], factor_add(r, FACTOR_REPLICATE, dims[t]->at[at[t]]));
    }
}

static void factors_reshape(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *const dims[2] = {&a->in[0]->dims, &out[0]->dims};
    DimGroup g = {0};
    if (dims_count(dims[0]) == 0) return;
    while (next_group(dims, &g)) factors_of_group(dims, &g, r);
}

static void local_reshape(LocalArgs *a) {
    ((ShapeAttr *)a->attr)->dims = layout_local(a->out_layout[0], &a->out[0]->dims);
}

static Val fold_reshape(Build *b, const Node *n, const Val *in) {
    const Dims *to = &((const ShapeAttr *)n->attr)->dims;
    Dims have = op_dims(b, in[0]);
    const FullAttr *f = op_full_attr(b, in[0]);
    if (dims_equal(&have, to)) return in[0];
    if (f) return op_full(b, (DType)f->dtype, to, f->value);
    const Node *src = graph_def(b->g, in[0]);
    return src->op == OP_RESHAPE ? op_reshape(b, src->in[0], to) : 0;
}

/* The strides of a group of the result, if the operand's dims of the group lie without gaps. */
static bool view_group(ViewArgs *v, const DimGroup *g) {
    int64_t inner = 0, extent = 0; /* of the operand's dims so far, from the minor side */
    for (int d = g->end[0] - 1; d >= g->start[0]; d--) {
        int64_t size = v->in_dims->at[d];
        if (size == 1) continue;
        if (extent && v->in_strides[d] != extent * inner) return false;
        if (!extent) inner = v->in_strides[d];
        extent = size * (extent ? extent : 1);
    }
    int64_t stride = inner;
    for (int d = g->end[1] - 1; d >= g->start[1]; d--) {
        v->out_strides[d] = stride;
        stride *= v->out_dims->at[d];
    }
    return true;
}

static bool view_reshape(ViewArgs *v) {
    const Dims *const dims[2] = {v->in_dims, v->out_dims};
    DimGroup g = {0};
    if (dims_count(v->in_dims) == 0) { /* no element: any strides will do */
        for (int d = 0; d < v->out_dims->rank; d++) v->out_strides[d] = 0;
        return true;
    }
    while (next_group(dims, &g))
        if (!view_group(v, &g)) return false;
    return true;
}

#define ROW(NAME, name_, doc_, attr_, size_, shape_, vjp_, factors_, ...)                          \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = "x",                                                  \
                                 .doc = doc_,                                                      \
                                 .nin = 1,                                                         \
                                 .nout = 1,                                                        \
                                 .attr = attr_,                                                    \
                                 .attr_size = size_,                                               \
                                 .shape = shape_,                                                  \
                                 .vjp = vjp_,                                                      \
                                 .factors = factors_,                                              \
                                 .linear = 1,                                                      \
                                 __VA_ARGS__}

/* Of a group of dims that become others the index counts as one, row-major. */
static bool affine_reshape(const AffineArgs *a, Affine *out) {
    const Dims *const dims[2] = {&a->in[0]->dims, &a->out->dims};
    const int64_t *x = a->x[0].sum.dim;
    DimGroup g = {{0}, {0}};
    *out = a->x[0];
    memset(out->sum.dim, 0, sizeof out->sum.dim);
    if (dims_count(dims[0]) == 0) return false;
    while (next_group(dims, &g)) {
        int64_t by = 0, stride = 1;
        for (int d = g.end[0] - 1; d >= g.start[0]; stride *= dims[0]->at[d--]) {
            if (dims[0]->at[d] == 1) continue;
            if (stride == 1) by = x[d];
            if (x[d] != by * stride) return false;
        }
        stride = 1;
        for (int d = g.end[1] - 1; d >= g.start[1]; stride *= dims[1]->at[d--])
            out->sum.dim[d] = by * stride;
    }
    return true;
}

ROW(RESHAPE, "reshape", "the same elements in row-major order, another shape", shape_fields,
    sizeof(ShapeAttr), shape_reshape, vjp_reshape, factors_reshape, .local = local_reshape,
    .pads = PADS_PASS, .fold = fold_reshape, .affine = affine_reshape, .view = view_reshape,
    .batch = batch_leading);

/* ---- transpose ---- */
static const AttrField perm_fields[] = {ATTR_FIELD(PermAttr, ATTR_DIMS, perm), {0}};

static Err shape_transpose(const OpArgs *a, OutType *out, int *nout) {
    const Dims *perm = &((const PermAttr *)a->attr)->perm, *x = &a->in[0]->dims;
    uint32_t seen = 0;
    if (perm->rank != x->rank)
        return op_error(a, E_SHAPE, "%d ax%s given for a tensor of rank %d", perm->rank,
                        perm->rank == 1 ? "is" : "es", x->rank);
    out[0] = (OutType){a->in[0]->dtype, a->in[0]->weak, {.rank = x->rank}};
    for (int d = 0; d < x->rank; d++) {
        int64_t p = perm->at[d];
        if (p < 0 || p >= x->rank || (seen >> p & 1))
            return op_error(a, E_SHAPE, "the axes are not a permutation of 1..%d", x->rank);
        seen |= 1u << p;
        out[0].dims.at[d] = x->at[p];
    }
    return E_OK;
}

static void vjp_transpose(Build *b, const VjpArgs *a) {
    const Dims *perm = &((const PermAttr *)a->node->attr)->perm;
    Dims inverse = {.rank = perm->rank};
    for (int d = 0; d < perm->rank; d++) inverse.at[perm->at[d]] = d;
    a->din[0] = op_transpose(b, CT, &inverse);
}

static void factors_transpose(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *perm = &((const PermAttr *)a->attr)->perm;
    for (int d = 0; d < perm->rank; d++) {
        int f = factor_add(r, FACTOR_PASS, out[0]->dims.at[d]);
        factor_map(r, 0, (int)perm->at[d], f);
        factor_map(r, 1, d, f);
    }
}

static Val fold_transpose(Build *b, const Node *n, const Val *in) {
    const Dims *perm = &((const PermAttr *)n->attr)->perm;
    const Node *src = graph_def(b->g, in[0]);
    const FullAttr *f = op_full_attr(b, in[0]);
    bool same = true;
    for (int d = 0; d < perm->rank; d++) same = same && perm->at[d] == d;
    if (same) return in[0];
    if (f) {
        Dims dims = {.rank = perm->rank};
        for (int d = 0; d < perm->rank; d++) dims.at[d] = f->dims.at[perm->at[d]];
        return op_full(b, (DType)f->dtype, &dims, f->value);
    }
    if (src->op != OP_TRANSPOSE) return 0;
    const Dims *inner = &((const PermAttr *)src->attr)->perm;
    Dims both = {.rank = perm->rank};
    for (int d = 0; d < perm->rank; d++) both.at[d] = inner->at[perm->at[d]];
    return op_transpose(b, src->in[0], &both);
}

static bool view_transpose(ViewArgs *v) {
    const Dims *perm = &((const PermAttr *)v->attr)->perm;
    for (int d = 0; d < perm->rank; d++) v->out_strides[d] = v->in_strides[perm->at[d]];
    return true;
}

static void batch_transpose(Build *b, const BatchArgs *a) {
    PermAttr p;
    batch_shift(a, &p);
    dims_insert(&p.perm, 0, 0);
    batch_apply(b, a, a->in, &p);
}

ROW(TRANSPOSE, "transpose", "the dims in another order", perm_fields, sizeof(PermAttr),
    shape_transpose, vjp_transpose, factors_transpose, .pads = PADS_PASS, .fold = fold_transpose,
    .view = view_transpose, .batch = batch_transpose);

/* ---- broadcast ---- */
static const AttrField broadcast_fields[] = {
    ATTR_FIELD(BroadcastAttr, ATTR_SHAPE, dims), ATTR_FIELD(BroadcastAttr, ATTR_DIMS, at), {0}};

static Err shape_broadcast(const OpArgs *a, OutType *out, int *nout) {
    const BroadcastAttr *t = a->attr;
    const Dims *x = &a->in[0]->dims;
    if (t->at.rank != x->rank)
        return op_error(a, E_SHAPE, "%d dim%s placed of %d", t->at.rank, str_s(t->at.rank),
                        x->rank);
    for (int d = 0; d < x->rank; d++) {
        int64_t to = t->at.at[d];
        if (to < 0 || to >= t->dims.rank || (d && to <= t->at.at[d - 1]))
            return op_error(a, E_SHAPE, "dims must be placed in ascending order within the shape");
        if (x->at[d] != 1 && x->at[d] != t->dims.at[to])
            return op_error(a, E_SHAPE, "dim %d of size %lld does not broadcast to %lld", d + 1,
                            (long long)x->at[d], (long long)t->dims.at[to]);
    }
    out[0] = (OutType){a->in[0]->dtype, a->in[0]->weak, t->dims};
    return E_OK;
}

/* The sum over every dim that broadcasting made or stretched. */
static void vjp_broadcast(Build *b, const VjpArgs *a) {
    const BroadcastAttr *t = a->node->attr;
    Dims x = op_dims(b, X), axes = {0};
    for (int d = 0; d < t->dims.rank; d++) {
        int from = -1;
        for (int k = 0; k < t->at.rank; k++)
            if (t->at.at[k] == d) from = k;
        if (from < 0 || (x.at[from] == 1 && t->dims.at[d] != 1)) dims_push(&axes, d);
    }
    a->din[0] = op_reshape(b, op_reduce(b, OP_SUM, CT, &axes), &x);
}

static void factors_broadcast(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const BroadcastAttr *t = a->attr;
    for (int d = 0; d < t->dims.rank; d++) {
        int f = factor_add(r, FACTOR_PASS, out[0]->dims.at[d]);
        factor_map(r, 1, d, f);
        for (int k = 0; k < t->at.rank; k++)
            if (t->at.at[k] == d && a->in[0]->dims.at[k] == t->dims.at[d]) factor_map(r, 0, k, f);
    }
}

static void local_broadcast(LocalArgs *a) {
    ((BroadcastAttr *)a->attr)->dims = layout_local(a->out_layout[0], &a->out[0]->dims);
}

static Val fold_broadcast(Build *b, const Node *n, const Val *in) {
    const BroadcastAttr *t = n->attr;
    const FullAttr *f = op_full_attr(b, in[0]);
    Dims have = op_dims(b, in[0]);
    if (dims_equal(&have, &t->dims)) return in[0];
    return f ? op_full(b, (DType)f->dtype, &t->dims, f->value) : 0;
}

static bool view_broadcast(ViewArgs *v) {
    const BroadcastAttr *t = v->attr;
    for (int d = 0; d < t->dims.rank; d++) v->out_strides[d] = 0;
    for (int d = 0; d < t->at.rank; d++)
        if (v->in_dims->at[d] == v->out_dims->at[t->at.at[d]])
            v->out_strides[t->at.at[d]] = v->in_strides[d];
    return true;
}

static void batch_broadcast(Build *b, const BatchArgs *a) {
    BroadcastAttr t;
    batch_shift(a, &t);
    dims_insert(&t.at, 0, 0);
    batch_apply(b, a, a->in, &t);
}

static bool affine_broadcast(const AffineArgs *a, Affine *out) {
    const BroadcastAttr *t = a->n->attr;
    *out = a->x[0];
    memset(out->sum.dim, 0, sizeof out->sum.dim);
    for (int d = 0; d < t->at.rank; d++)
        if (a->in[0]->dims.at[d] != 1) out->sum.dim[t->at.at[d]] = a->x[0].sum.dim[d];
    return true;
}

ROW(BROADCAST, "broadcast", "repeated along new dims and dims of size 1", broadcast_fields,
    sizeof(BroadcastAttr), shape_broadcast, vjp_broadcast, factors_broadcast, .pads = PADS_PASS,
    .local = local_broadcast, .fold = fold_broadcast, .affine = affine_broadcast,
    .view = view_broadcast, .batch = batch_broadcast);

/* ---- slice ---- */
static const AttrField slice_fields[] = {ATTR_FIELD(SliceAttr, ATTR_LIST, start),
                                         ATTR_FIELD(SliceAttr, ATTR_LIST, limit),
                                         ATTR_FIELD(SliceAttr, ATTR_LIST, step),
                                         {0}};

static Err shape_slice(const OpArgs *a, OutType *out, int *nout) {
    const SliceAttr *s = a->attr;
    const Dims *x = &a->in[0]->dims;
    if (s->start.rank != x->rank || s->limit.rank != x->rank || s->step.rank != x->rank)
        return op_error(a, E_SHAPE, "one range per dim");
    out[0] = (OutType){a->in[0]->dtype, a->in[0]->weak, {.rank = x->rank}};
    for (int d = 0; d < x->rank; d++) {
        int64_t lo = s->start.at[d], hi = s->limit.at[d], step = s->step.at[d];
        if (lo < 0 || hi < lo || hi > x->at[d] || step < 1)
            return op_error(a, E_SHAPE, "range %lld..%lld step %lld of dim %d, which has %lld",
                            (long long)lo + 1, (long long)hi, (long long)step, d + 1,
                            (long long)x->at[d]);
        out[0].dims.at[d] = (hi - lo + step - 1) / step;
    }
    return E_OK;
}

static void vjp_slice(Build *b, const VjpArgs *a) {
    const SliceAttr *s = a->node->attr;
    Dims x = op_dims(b, X), y = op_dims(b, CT);
    PadAttr p = {s->start, {.rank = x.rank}, {.rank = x.rank}};
    for (int d = 0; d < x.rank; d++) {
        int64_t span = y.at[d] ? (y.at[d] - 1) * s->step.at[d] + 1 : 0;
        p.interior.at[d] = s->step.at[d] - 1;
        p.high.at[d] = x.at[d] - s->start.at[d] - span;
    }
    Val zero = op_scalar(b, op_dtype(b, CT), attr_scalar_float(0));
    a->din[0] = build_op(b, OP_PAD, (Val[]){CT, zero}, 2, &p);
}

/* A dim taken whole keeps its range, whatever its local size. */
static void local_slice(LocalArgs *a) {
    SliceAttr *s = a->attr;
    for (int d = 0; d < a->in[0]->dims.rank; d++)
        if (a->in[0]->dims.at[d] == a->out[0]->dims.at[d])
            s->limit.at[d] = layout_local(a->in_layout[0], &a->in[0]->dims).at[d];
}

static Val fold_slice(Build *b, const Node *n, const Val *in) {
    const SliceAttr *s = n->attr;
    const FullAttr *f = op_full_attr(b, in[0]);
    const Dims *y = &graph_type(b->g, in[0])->dims;
    Dims dims = {.rank = y->rank};
    for (int d = 0; d < y->rank; d++)
        dims.at[d] = (s->limit.at[d] - s->start.at[d] + s->step.at[d] - 1) / s->step.at[d];
    if (dims_equal(&dims, y)) return in[0];
    return f ? op_full(b, (DType)f->dtype, &dims, f->value) : 0;
}

static bool view_slice(ViewArgs *v) {
    const SliceAttr *s = v->attr;
    for (int d = 0; d < v->in_dims->rank; d++) {
        v->start += s->start.at[d] * v->in_strides[d];
        v->out_strides[d] = s->step.at[d] * v->in_strides[d];
    }
    return true;
}

static void batch_slice(Build *b, const BatchArgs *a) {
    SliceAttr s;
    batch_shift(a, &s);
    s.limit.at[0] = a->size;
    s.step.at[0] = 1;
    batch_apply(b, a, a->in, &s);
}

static bool affine_slice(const AffineArgs *a, Affine *out) {
    const SliceAttr *s = a->n->attr;
    *out = a->x[0];
    for (int d = 0; d < s->start.rank; d++) {
        int64_t by = out->sum.dim[d];
        out->add += by * s->start.at[d];
        for (int32_t i = 0; i < out->ncut; i++) out->cut[i] -= by * s->start.at[d];
        out->sum.dim[d] = by * s->step.at[d];
    }
    return true;
}

ROW(SLICE, "slice", "a range of each dim", slice_fields, sizeof(SliceAttr), shape_slice, vjp_slice,
    factors_changed_whole, .pads = PADS_PASS, .local = local_slice, .fold = fold_slice,
    .affine = affine_slice, .view = view_slice, .batch = batch_slice, .flags = OPF_RESIZES);

/* ---- flip ---- */
static const AttrField axes_fields[] = {ATTR_FIELD(AxesAttr, ATTR_DIMS, axes), {0}};

static Err shape_flip(const OpArgs *a, OutType *out, int *nout) {
    const Dims *axes = &((const AxesAttr *)a->attr)->axes;
    for (int i = 0; i < axes->rank; i++) TRY(op_check_axis(a, axes->at[i], a->in[0]->dims.rank));
    return op_shape_same(a, out, nout);
}

static void vjp_flip(Build *b, const VjpArgs *a) {
    a->din[0] = build_op(b, OP_FLIP, &CT, 1, a->node->attr);
}

static void factors_flip(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *axes = &((const AxesAttr *)a->attr)->axes, *x = &out[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        int f = factor_add(r, dims_has(axes, d) ? FACTOR_REPLICATE : FACTOR_PASS, x->at[d]);
        factor_map(r, 0, d, f);
        factor_map(r, 1, d, f);
    }
}

static bool view_flip(ViewArgs *v) {
    const Dims *axes = &((const AxesAttr *)v->attr)->axes;
    for (int d = 0; d < v->in_dims->rank; d++) {
        bool flip = dims_has(axes, d) && v->in_dims->at[d] > 0;
        if (flip) v->start += (v->in_dims->at[d] - 1) * v->in_strides[d];
        v->out_strides[d] = flip ? -v->in_strides[d] : v->in_strides[d];
    }
    return true;
}

ROW(FLIP, "flip", "the given axes backwards", axes_fields, sizeof(AxesAttr), shape_flip, vjp_flip,
    factors_flip, .pads = PADS_PASS, .view = view_flip, .batch = batch_leading);

/* ---- copy: put in by the plan where a kernel needs its operand without gaps ---- */
static void vjp_copy(Build *b, const VjpArgs *a) {
    a->din[0] = CT;
}

ROW(COPY, "copy", "x in memory of its own", NULL, 0, op_shape_same, vjp_copy,
    op_factors_elementwise, .pads = PADS_PASS, .flags = OPF_INTERNAL, .kernel = "copy",
    .batch = batch_leading);
