#include "op/op.h"

#include "base/plain.h"
#include "ir/explicit.h"

#include <stdarg.h>
#include <string.h>

/* " (x float32[64,512], w float32[256,2048])" */
static void print_operands(const OpArgs *a, Str *s) {
    const char *name = a->def->operands;
    for (int i = 0; i < a->nin && i < 6; i++) {
        size_t n = strcspn(name, ",");
        str_put(s, i ? ", " : " (");
        str_put_n(s, name, n);
        str_put(s, n ? " " : "");
        type_print(a->in[i], s);
        name += n + (name[n] == ',');
    }
    if (a->nin) str_put(s, a->nin > 6 ? ", ...)" : ")");
}

double op_flops(const Graph *g, const Node *n, const Type **room) {
    const OpDef *def = graph_opdef(g, n);
    const Type **out = room + n->nin;
    graph_in_types(g, n, room);
    graph_out_types(g, n, out);
    OpArgs a = {g->cx, def, n->nin, room, n->attr};
    if (def->flops) return def->flops(&a, out);
    return n->nout ? (double)type_count(out[0]) : 0;
}

static double bytes_of(const Graph *g, const Node *n) {
    double bytes = 0;
    for (int i = 0; i < n->nin + n->nout; i++)
        bytes += (double)type_bytes(graph_type(g, node_tensor(n, i)));
    return bytes;
}

/* Of a loop or branch, given what its regions take. */
static double control_seconds(const Graph *g, const Node *n, const double *region) {
    double most = 0;
    ControlInfo info;
    graph_opdef(g, n)->control(n->attr, &info);
    for (int k = 0; k < n->nbody; k++)
        if (region[n->body[k]] > most) most = region[n->body[k]];
    return !info.branch && info.trips >= 0 ? most * (double)info.trips : most;
}

double *op_seconds(const Graph *g, const Target *target, Arena *arena) {
    double *seconds = ARENA_ARRAY(arena, double, g->node.n);
    double *region = ARENA_ARRAY(arena, double, g->region.n);
    for (int32_t id = 1; seconds && region && id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        if (def->flags & (OPF_PARAM | OPF_NULLARY) || def->view) continue;
        if (def->collective) {
            seconds[id] = target->latency + bytes_of(g, n) / target->link;
            continue;
        }
        const Type **types = ARENA_ARRAY(arena, const Type *, n->nin + n->nout + 1);
        if (!types) return NULL;
        if (def->control)
            seconds[id] = control_seconds(g, n, region);
        else
            seconds[id] =
                target_seconds(target, n->nbody ? 0 : op_flops(g, n, types), bytes_of(g, n));
        region[n->region] += seconds[id];
    }
    return region ? seconds : NULL;
}

Err op_error(const OpArgs *a, ErrCode code, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    plain_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    Str s;
    str_init(&s, &a->cx->alloc);
    print_operands(a, &s);
    Err e = err_set(a->cx, code, "%s: %s%s", a->def->name, text, str_of(&s));
    str_free(&s);
    return e;
}

Err op_check_axis(const OpArgs *a, int64_t axis, int rank) {
    if (axis >= 0 && axis < rank) return E_OK;
    return op_error(a, E_SHAPE, "axis %lld of a tensor of rank %d", (long long)axis + 1, rank);
}

Val op_lay_like(Build *b, Val v, const Type *like, bool cotangent) {
    const Mesh *m = b->g->mesh;
    uint32_t axes = m ? explicit_axes_of(m, like->layout) : 0;
    if (!v || b->err || !axes) return v;
    Layout have, want;
    explicit_view(graph_type(b->g, v), m, axes, &have);
    explicit_view(like, m, axes, &want);
    if (cotangent) {
        uint8_t reduced = want.reduced;
        want.reduced = want.unreduced;
        want.unreduced = reduced;
        want.unreduced_kind = REDUCE_SUM;
    }
    uint32_t settled = explicit_axes_of(m, graph_type(b->g, v)->layout); /* not in auto_axes */
    if (layout_equal(&have, &want) && !(axes & ~settled)) return v;
    want.replicated = (uint8_t)axes;
    for (int d = 0; d < want.rank; d++) want.dim[d].open = axes != (1u << m->naxes) - 1;
    Build at = *b;
    at.flipped = like->layout ? like->layout->flipped : 0;
    at.given = NULL;
    ConstrainAttr attr = {.layout = layout_of(b->g->cx, &want)};
    v = attr.layout ? build_op(&at, OP_CONSTRAIN, &v, 1, &attr) : 0;
    build_fail(b, attr.layout ? at.err : err_nomem(b->g->cx, "a layout"));
    return v;
}

Dims op_dims(const Build *b, Val v) {
    return v ? graph_type(b->g, v)->dims : (Dims){0};
}
DType op_dtype(const Build *b, Val v) {
    return v ? graph_type(b->g, v)->dtype : DT_F32;
}

const FullAttr *op_full_attr(const Build *b, Val v) {
    const Node *n = graph_def(b->g, v);
    while (graph_opdef(b->g, n)->flags & OPF_CAST && !graph_opdef(b->g, n)->manual)
        n = graph_def(b->g, n->in[0]);
    return n->op == OP_FULL ? n->attr : NULL;
}

Val op_full(Build *b, DType dtype, const Dims *dims, Scalar x) {
    if (dtype_is_float(dtype)) x = attr_scalar_float(dtype_round(dtype, x.f));
    return build_op(b, OP_FULL, NULL, 0, &(FullAttr){(int32_t)dtype, *dims, x});
}

Val op_scalar(Build *b, DType dtype, Scalar x) {
    return op_full(b, dtype, &(Dims){0}, x);
}

Val op_const_like(Build *b, Val like, double x) {
    if (!like) return 0;
    Dims dims = op_dims(b, like);
    return op_full(b, op_dtype(b, like), &dims, attr_scalar_float(x));
}

Val op_zeros_like(Build *b, Val v, bool cotangent) {
    if (!v || b->err) return 0;
    Dims dims = op_dims(b, v);
    Mode mode = mode_of(graph_type(b->g, v));
    if (cotangent) mode = mode_cotangent(mode);
    Build at = *b;
    at.manual = mode.manual;
    Val zeros = op_full(&at, op_dtype(b, v), &dims, attr_scalar_float(0));
    zeros = op_lay_like(&at, mode_bring(&at, zeros, mode), graph_type(b->g, v), cotangent);
    build_fail(b, at.err);
    return zeros;
}

Val op_astype(Build *b, Val x, DType dtype) {
    if (!x || (op_dtype(b, x) == dtype && !graph_type(b->g, x)->weak)) return x;
    return build_op(b, OP_ASTYPE, &x, 1, &(DtypeAttr){(int32_t)dtype});
}

Val op_wide(Build *b, Val x) {
    if (!x || !dtype_is_narrow(op_dtype(b, x))) return op_astype(b, x, DT_F32);
    const Node n = *graph_def(b->g, x);
    const OpDef *def = graph_opdef(b->g, &n);
    if (def->wide) {
        int32_t *attr = arena_copy(&b->g->arena, n.attr, def->attr_size);
        if (!attr) {
            build_fail(b, err_nomem(b->g->cx, "a graph"));
            return 0;
        }
        attr[def->wide / sizeof *attr] = 1;
        Val v = build_op(b, n.op, n.in, n.nin, attr);
        return v ? v + (x - n.out) : 0;
    }
    if (n.op == OP_ASTYPE && op_dtype(b, n.in[0]) == DT_F32) return n.in[0];
    bool moves =
        def->view && n.nin == 1 && !def->manual && !(def->flags & (OPF_BARRIER | OPF_CONSTRAINT));
    if (!moves) return op_astype(b, x, DT_F32);
    Val in = op_wide(b, n.in[0]);
    return build_op(b, n.op, &in, 1, n.attr);
}

Val op_reshape(Build *b, Val x, const Dims *dims) {
    if (!x) return 0;
    Dims have = op_dims(b, x);
    if (dims_equal(&have, dims)) return x;
    return build_op(b, OP_RESHAPE, &x, 1, &(ShapeAttr){*dims});
}

Val op_transpose(Build *b, Val x, const Dims *perm) {
    bool same = true;
    for (int d = 0; d < perm->rank; d++) same = same && perm->at[d] == d;
    return same ? x : build_op(b, OP_TRANSPOSE, &x, 1, &(PermAttr){*perm});
}

Val op_broadcast(Build *b, Val x, const Dims *dims, const Dims *at) {
    if (!x) return 0;
    Dims have = op_dims(b, x);
    if (dims_equal(&have, dims)) return x;
    return build_op(b, OP_BROADCAST, &x, 1, &(BroadcastAttr){*dims, *at});
}

Val op_broadcast_to(Build *b, Val x, const Dims *dims) {
    Dims have = op_dims(b, x), at = {0};
    for (int d = 0; d < have.rank; d++) dims_push(&at, dims->rank - have.rank + d);
    return op_broadcast(b, x, dims, &at);
}

Val op_broadcast_like(Build *b, Val x, Val like) {
    Dims dims = op_dims(b, like);
    return op_broadcast_to(b, x, &dims);
}

Val op_reduce(Build *b, int op, Val x, const Dims *axes) {
    if (axes->rank == 0) return x;
    return build_op(b, op, &x, 1, &(AxesAttr){*axes, 0});
}

Val op_reduce_last(Build *b, int op, Val x) {
    Dims axes = {1, {op_dims(b, x).rank - 1}};
    return op_reduce(b, op, x, &axes);
}

Val op_drop_last(Build *b, Val x) {
    Dims dims = op_dims(b, x);
    if (!x) return 0;
    dims.at[--dims.rank] = 0;
    return op_reshape(b, x, &dims);
}

Val op_add_last(Build *b, Val x) {
    Dims dims = op_dims(b, x);
    if (!x) return 0;
    dims_push(&dims, 1);
    return op_reshape(b, x, &dims);
}

void op_factors_elementwise(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *dims = &out[0]->dims;
    for (int d = 0; d < dims->rank; d++) {
        int f = factor_add(r, FACTOR_PASS, dims->at[d]);
        for (int t = 0; t < r->ntensor; t++) factor_map(r, t, d, f);
    }
}

void op_factors_last_whole(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *dims = &a->in[0]->dims;
    int last = dims->rank - 1;
    for (int d = 0; d < dims->rank; d++) {
        int f = factor_add(r, d == last ? FACTOR_REPLICATE : FACTOR_PASS, dims->at[d]);
        for (int t = 0; t < r->ntensor; t++) {
            const Type *type = t < a->nin ? a->in[t] : out[t - a->nin];
            if (d < type->dims.rank) factor_map(r, t, d, f);
        }
    }
}

Offset op_local_offset(const Layout *l, const Dims *dims, int d) {
    return (Offset){.axes = l ? l->dim[d].axes : (AxisList){0},
                    .unit = layout_local(l, dims).at[d]};
}

void op_local_offsets(LocalArgs *a, const Layout *l, const Dims *dims) {
    for (int d = 0; d < dims->rank; d++) a->offset[d] = op_local_offset(l, dims, d);
    a->noffset = dims->rank;
}

bool op_view_same(ViewArgs *v) {
    for (int d = 0; d < v->in_dims->rank; d++) v->out_strides[d] = v->in_strides[d];
    return true;
}

bool op_affine_same(const AffineArgs *a, Affine *out) {
    *out = a->x[0];
    return true;
}

double op_no_flops(const OpArgs *a, const Type *const *out) {
    return 0;
}

Err op_shape_same(const OpArgs *a, OutType *out, int *nout) {
    for (int i = 0; i < *nout; i++)
        out[i] = (OutType){a->in[0]->dtype, a->in[0]->weak, a->in[0]->dims};
    return E_OK;
}
