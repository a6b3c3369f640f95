#include "ir/mode.h"
#include "lua/jit/program.h"
#include "op/manual.h"
#include "op/op.h"

#include <string.h>

/* Nodes for v, in its mode. */
static Build build_for(Graph *g, Val v) {
    Build b = build_in(g, 0);
    b.manual = mode_of(graph_type(g, v)).manual;
    return b;
}

/* v out of manual mode, if it is there, with a dim in front. */
static Val out_of_manual(Build *b, Val v) {
    Dims inner = op_dims(b, v), dims = {.rank = inner.rank + 1, .at = {1}};
    if (!v) return 0;
    memcpy(dims.at + 1, inner.at, sizeof *dims.at * (size_t)inner.rank);
    Mode mode = mode_of(graph_type(b->g, v));
    v = op_reshape(b, v, &dims);
    if (!mode.manual) return v;
    Layout l;
    layout_init(&l, b->g->mesh, dims.rank);
    for (int i = 0; i < b->g->mesh->naxes; i++)
        if (mode.vary >> i & 1) axes_push(&l.dim[0].axes, axes_whole(b->g->mesh, i));
    return manual_exit(b, v, &l, mode.manual);
}

Err program_add_blocks(Graph *g, Val v, Val *out) {
    Build b = build_for(g, v);
    *out = out_of_manual(&b, v);
    return b.err;
}

Err program_add_flag(Graph *g, Val v, bool stacked, Val *out) {
    Build b = build_for(g, v);
    Dims dims = graph_type(g, v)->dims, axes = {0};
    int64_t n = stacked && dims.rank ? dims.at[0] : 1;
    for (int d = stacked; d < dims.rank; d++) axes.at[axes.rank++] = d;
    Val finite = op_astype(&b, op1(&b, OP_ISFINITE, v), DT_F32);
    Val nan = op_astype(&b, op2(&b, OP_NE, v, v), DT_F32);
    Val flag = op_reduce(&b, OP_MAX, op2(&b, OP_SUB, nan, finite), &axes);
    *out = out_of_manual(&b, op_reshape(&b, flag, &(Dims){1, {n}}));
    return b.err;
}

Err program_add_sum(Graph *g, Val v, Val *out) {
    static const DType bits[] = {[1] = DT_U8, [2] = DT_U16, [4] = DT_U32, [8] = DT_U64};
    Build b = build_for(g, v);
    const Type *t = graph_type(g, v);
    Dims axes = {.rank = t->dims.rank};
    for (int d = 0; d < axes.rank; d++) axes.at[d] = d;
    Val x = v;
    if (dtype_is_float(t->dtype))
        x = build_op(&b, OP_BITCAST, &v, 1, &(DtypeAttr){bits[dtype_size(t->dtype)]});
    x = op_astype(&b, x, DT_U32);
    Val weight = op_const_like(&b, x, 1);
    for (int d = 0; d < axes.rank; d++) { /* odd, and not the same at other places */
        Val at = build_op(&b, OP_IOTA, NULL, 0, &(IotaAttr){DT_U32, t->dims, d});
        Val odd = op_full(&b, DT_U32, &t->dims, attr_scalar_int((0x9E3779B1 >> (3 * d)) & ~1u));
        weight = op2(&b, OP_ADD, weight, op2(&b, OP_MUL, at, odd));
    }
    x = op_reduce(&b, OP_SUM, op2(&b, OP_MUL, x, weight), &axes);
    *out = out_of_manual(&b, op_reshape(&b, x, &(Dims){0}));
    return b.err;
}

/* ---- bodies ---- */

/* Element k of a stack. */
static Val element(Graph *g, Val stack, int64_t k, Err *err) {
    if (*err || !stack) return 0;
    Build b = build_for(g, stack);
    Dims dims = op_dims(&b, stack), inner = {.rank = dims.rank - 1};
    SliceAttr s = {.start = {.rank = dims.rank}, .limit = dims, .step = {.rank = dims.rank}};
    for (int d = 0; d < dims.rank; d++) s.step.at[d] = 1;
    memcpy(inner.at, dims.at + 1, sizeof *inner.at * (size_t)inner.rank);
    s.start.at[0] = k;
    s.limit.at[0] = k + 1;
    Val v = op_reshape(&b, build_op(&b, OP_SLICE, &stack, 1, &s), &inner);
    *err = b.err;
    return v;
}

/* The stack of what parameter i of the scan's region was: op_scan keeps it among the results. */
static Val stack_of(const Graph *g, const Node *n, int i) {
    const Region *r = &g->region.at[n->body[0]];
    const ScanAttr *a = n->attr;
    for (int32_t k = (int32_t)a->ncarry; k < r->result.n; k++)
        if (r->result.at[k] == r->param.at[i]) return n->out + k;
    return 0;
}

/* What the region's parameters are in iteration k. */
static Err scan_arguments(Graph *g, const Node *n, int64_t k, Val *args) {
    const ScanAttr *a = n->attr;
    Err err = E_OK;
    for (int i = 0; i < n->nin && !err; i++) {
        bool carried = i < a->ncarry;
        Val stack = carried ? stack_of(g, n, i) : n->in[i];
        if (!stack)
            err = err_set(g->cx, E_UNSUPPORTED, "scan: what its carry %d was is not kept", i + 1);
        else
            args[i] = i < a->ncarry + a->nxs ? element(g, stack, k, &err) : stack;
    }
    return err;
}

Err program_add_body(Graph *g, int32_t id, int64_t k) {
    const Node n = *graph_node(g, id); /* the list of nodes grows */
    ControlInfo c = {0};
    if (n.nbody) graph_opdef(g, &n)->control(n.attr, &c);
    if (n.region || (n.op != OP_SCAN && !c.branch) || k < 0 || k >= (c.branch ? n.nbody : c.trips))
        return err_set(g->cx, E_UNSUPPORTED, "body: node %d has no body %lld", id, (long long)k);
    int32_t region = n.body[c.branch ? k : 0];
    Arena arena;
    arena_init(&arena, &g->cx->alloc);
    Val *args = ARENA_ARRAY(&arena, Val, n.nin + 1);
    Val *results = ARENA_ARRAY(&arena, Val, g->region.at[region].result.n + 1);
    Err err = args && results ? E_OK : err_nomem(g->cx, "a program");
    if (!err && c.branch) memcpy(args, n.in + 1, sizeof *args * (size_t)(n.nin - 1));
    if (!err && !c.branch) err = scan_arguments(g, &n, k, args);
    if (!err) {
        Build b = build_in(g, 0);
        build_inline(&b, region, args, 0, results);
        err = b.err;
    }
    arena_free(&arena);
    return err;
}
