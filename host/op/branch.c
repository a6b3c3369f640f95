/* branch.c - cond: one of its regions runs, as an index says. The gradient is a cond of the
 * regions' gradients; each makes again what its forward region made. */
#include "op/op.h"

static bool flow_cond(const Node *n, int i, Flow *f) {
    if (i >= n->nin + n->nout) return false;
    if (i == 0)
        *f = (Flow){.in = 0, .out = -1, .param = -1, .result = -1, .steers = true};
    else if (i < n->nin)
        *f = (Flow){.in = i, .out = -1, .param = i - 1, .result = -1};
    else
        *f = (Flow){.in = -1, .out = i - n->nin, .param = -1, .result = i - n->nin};
    return true;
}

static void keep_cond(const Node *n, const uint8_t *times, void *attr) {} /* it has none */

static void control_cond(const void *attr, ControlInfo *c) {
    *c = (ControlInfo){.branch = true, .trips = 1};
}

/* All regions, and the results of the one that the index says. */
static void select(Build *b, const int32_t *region, int nregion, const Val *in, int nresult,
                   Val *out, Arena *arena) {
    Val *own = ARENA_ARRAY(arena, Val, nresult + 1);
    if (!own) {
        build_fail(b, err_nomem(b->g->cx, "a graph"));
        return;
    }
    build_inline(b, region[nregion - 1], in + 1, 0, out);
    for (int k = nregion - 2; k >= 0 && !b->err; k--) {
        Val mine = op2(b, OP_LE, in[0], op_const_like(b, in[0], k));
        build_inline(b, region[k], in + 1, 0, own);
        for (int i = 0; i < nresult && !b->err; i++)
            out[i] = op3(b, OP_WHERE, op_broadcast_like(b, mine, out[i]), own[i], out[i]);
    }
}

/* The regions' results vary over the same axes: what one of them gives. */
static void meet_modes(Build *b, const int32_t *region, int nregion, int nresult) {
    Graph *g = b->g;
    for (int i = 0; i < nresult; i++) {
        Mode all = {0};
        for (int k = 0; k < nregion; k++) {
            Mode m = mode_of(graph_type(g, g->region.at[region[k]].result.at[i]));
            all.manual |= m.manual;
            all.vary |= m.vary;
        }
        for (int k = 0; k < nregion && !b->err; k++) {
            Build in = *b;
            in.region = region[k];
            Val v = mode_bring(&in, g->region.at[region[k]].result.at[i], all);
            if (v) g->region.at[region[k]].result.at[i] = v;
            build_fail(b, in.err);
        }
    }
}

void op_cond(Build *b, const int32_t *region, int nregion, const Val *in, int nin, Val *out) {
    Graph *g = b->g;
    int nresult = g->region.at[region[0]].result.n;
    uint32_t vary = in[0] ? mode_of(graph_type(g, in[0])).vary : 0;
    if (vary) {
        Arena arena;
        arena_init(&arena, &g->cx->alloc);
        op_check_varying(b, "cond", region, nregion, vary);
        if (!b->err) select(b, region, nregion, in, nresult, out, &arena);
        arena_free(&arena);
        return;
    }
    meet_modes(b, region, nregion, nresult);
    Val v = b->err ? 0 : op_control(b, OP_COND, in, nin, NULL, region, nregion, nresult, 0);
    for (int i = 0; v && i < nresult; i++) out[i] = v + i;
}

static void make_cond(Build *b, const int32_t *region, int nregion, const Val *in, int nin,
                      const void *attr, Val *out) {
    op_cond(b, region, nregion, in, nin, out);
}

/* What the gradient's regions have in common. */
typedef struct BranchGrad {
    const Node *n;
    Val *in;    /* operands of the gradient's cond: index, those of the forward one, cotangents */
    int *ct_of; /* by cotangent: the result it is of */
    int *wrt;   /* the operands that lead to a variable */
    int nct, nwrt;
} BranchGrad;

/* The gradient of region k, as a region. */
static int32_t branch_gradient(Build *b, const VjpArgs *a, const BranchGrad *p, int k,
                               Arena *arena) {
    const Node *n = p->n;
    Graph *g = b->g;
    Build body = *b;
    body.region = build_region(b);
    int nparam = n->nin - 1, nresult = n->nout;
    Val *param = ARENA_ARRAY(arena, Val, nparam + p->nct + 1);
    Val *y = ARENA_ARRAY(arena, Val, nresult + 1), *ct = ARENA_ARRAY(arena, Val, nresult + 1);
    Val *wrt = ARENA_ARRAY(arena, Val, p->nwrt + 1), *d = ARENA_ARRAY(arena, Val, p->nwrt + 1);
    if (!body.region || !param || !y || !ct || !wrt || !d) {
        build_fail(b, err_nomem(g->cx, "a gradient"));
        return 0;
    }
    for (int i = 0; i < nparam + p->nct; i++)
        param[i] = op_region_param(&body, graph_type(g, p->in[1 + i]));
    Val *variable = ARENA_ARRAY(arena, Val, nparam + 1);
    if (!variable) {
        build_fail(b, err_nomem(g->cx, "a gradient"));
        return 0;
    }
    for (int i = 0; i < nparam; i++) variable[i] = param[i];
    for (int i = 0; i < p->nwrt; i++) {
        int at = p->wrt[i] - 1;
        wrt[i] = variable[at] = op1(&body, OP_IDENTITY, param[at]);
    }
    build_inline(&body, n->body[k], variable, 0, y);
    int ny = 0;
    for (int i = 0; i < p->nct; i++) {
        y[ny] = y[p->ct_of[i]]; /* ct_of ascends */
        ct[ny++] = param[nparam + i];
    }
    a->regions->grad(&body, y, ct, ny, wrt, p->nwrt, d);
    for (int i = 0; i < p->nwrt; i++) build_result(&body, d[i]);
    build_fail(b, body.err);
    return body.region;
}

static void vjp_cond(Build *b, const VjpArgs *a) {
    const Node n = *a->node;
    Graph *g = b->g;
    Arena arena;
    arena_init(&arena, &g->cx->alloc);
    BranchGrad p = {.n = &n};
    p.in = ARENA_ARRAY(&arena, Val, n.nin + n.nout + 1);
    p.ct_of = ARENA_ARRAY(&arena, int, n.nout + 1);
    p.wrt = ARENA_ARRAY(&arena, int, n.nin + 1);
    int32_t *region = ARENA_ARRAY(&arena, int32_t, n.nbody + 1);
    if (!p.in || !p.ct_of || !p.wrt || !region) build_fail(b, err_nomem(g->cx, "a gradient"));
    for (int i = 0; !b->err && i < n.nin; i++) {
        p.in[i] = a->in[i];
        bool wanted = a->wanted >> (i < 63 ? i : 63) & 1;
        if (i > 0 && wanted && dtype_is_float(graph_type(g, a->in[i])->dtype)) p.wrt[p.nwrt++] = i;
    }
    for (int i = 0; !b->err && i < n.nout; i++)
        if (a->ct[i]) {
            p.in[n.nin + p.nct] = a->ct[i];
            p.ct_of[p.nct++] = i;
        }
    for (int k = 0; !b->err && k < n.nbody; k++) region[k] = branch_gradient(b, a, &p, k, &arena);
    Val *d = ARENA_ARRAY(&arena, Val, p.nwrt + 1);
    if (!d) build_fail(b, err_nomem(g->cx, "a gradient"));
    if (!b->err) op_cond(b, region, n.nbody, p.in, n.nin + p.nct, d);
    for (int i = 0; !b->err && i < p.nwrt; i++) a->din[p.wrt[i]] = d[i];
    arena_free(&arena);
}

/* ---- many examples ---- */

/* Each its own branch: all of them run, and each example takes from its own. */
static void batch_select(Build *b, const BatchArgs *a, const int32_t *region, const Val *in) {
    int nout = a->node->nout, n = a->node->nbody;
    Val **y = ARENA_ARRAY(&b->g->arena, Val *, n + 1);
    for (int k = 0; y && k < n && !b->err; k++) {
        y[k] = ARENA_ARRAY(&b->g->arena, Val, nout + 1);
        if (y[k])
            build_inline(b, region[k], in + 1, 0, y[k]);
        else
            y = NULL;
    }
    if (!y) build_fail(b, err_nomem(b->g->cx, "vmap"));
    for (int i = 0; i < nout && !b->err; i++) {
        Val x = y[n - 1][i];
        Dims dims = op_dims(b, x);
        for (int k = n - 2; k >= 0; k--) {
            Val number = op_full(b, DT_I32, &(Dims){1, {a->size}}, attr_scalar_int(k));
            Val mine = op2(b, OP_LE, in[0], number);
            x = op3(b, OP_WHERE, op_broadcast(b, mine, &dims, &(Dims){.rank = 1}), y[k][i], x);
        }
        a->out[i] = x;
    }
}

static void batch_cond(Build *b, const BatchArgs *a) {
    const Node n = *a->node;
    Arena *arena = &b->g->arena;
    bool *result = ARENA_ARRAY(arena, bool, n.nout + 1),
         *one = ARENA_ARRAY(arena, bool, n.nout + 1);
    int32_t *region = ARENA_ARRAY(arena, int32_t, n.nbody + 1);
    if (!result || !one || !region) build_fail(b, err_nomem(b->g->cx, "vmap"));
    for (int k = 0; k < n.nbody && !b->err; k++) {
        a->regions->mapped(a->regions, n.body[k], a->mapped + 1, one);
        for (int i = 0; i < n.nout; i++) result[i] = result[i] || one[i] || a->mapped[0];
    }
    for (int k = 0; k < n.nbody && !b->err; k++)
        region[k] = a->regions->region(a->regions, b, n.body[k], a->mapped + 1, result);
    if (b->err) return;
    if (a->mapped[0]) {
        batch_select(b, a, region, a->in);
        return;
    }
    op_cond(b, region, n.nbody, a->in, n.nin, a->out);
    for (int i = 0; i < n.nout; i++) a->same[i] = !result[i];
}

const OpDef op_row_COND = {
    .name = "cond",
    .operands = "index",
    .doc = "the results of the region that the index says",
    .nin = -1,
    .nout = -1,
    .flags = OPF_TYPED | OPF_INTERNAL,
    .flow = flow_cond,
    .keep = keep_cond,
    .make = make_cond,
    .control = control_cond,
    .vjp = vjp_cond,
    .batch = batch_cond,
};
