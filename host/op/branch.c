/* branch.c - cond: one of its regions runs, as an index says. The gradient is a cond of the
 * regions' gradients; each makes again what its forward region made.
 *
 * Inside shard_map devices may differ in the index. Where it is known beforehand (ir/affine.h: a
 * loop's counter and the device's place within bounds), the cond stays one, and becomes a
 * static_cond when everything around it is known: each device skips what is not its own. Else all
 * regions run, and each device takes from its own. What comes into such a cond varies as its index
 * does, so that a gradient is summed over devices outside of it. */
#include "base/log.h"
#include "op/op.h"

typedef struct CondAttr {
    int32_t asked; /* it is an error where the index is not known beforehand */
} CondAttr;

static const AttrField cond_fields[] = {ATTR_FIELD(CondAttr, ATTR_FLAG, asked), {0}};

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

/* The regions' results vary over the same axes: what one of them gives, and the index. */
static void meet_modes(Build *b, const int32_t *region, int nregion, int nresult, Mode index) {
    Graph *g = b->g;
    for (int i = 0; i < nresult; i++) {
        Mode all = {.manual = index.vary, .vary = index.vary};
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

/* What is not known of the value, for messages. */
static void describe(const Graph *g, Val v, Str *s) {
    const Node *n = graph_def(g, v);
    const OpDef *def = graph_opdef(g, n);
    if (def->flags & OPF_PARAM)
        str_put(s, "what comes from outside the program or is carried by a loop");
    else if (dtype_is_float(graph_type(g, v)->dtype))
        str_fmt(s, "the %s of %s", dtype_name(graph_type(g, v)->dtype), def->name);
    else
        str_fmt(s, "the result of %s", def->name);
    if (n->nloc) str_put(s, " (");
    if (n->nloc) intern_print_loc(n->loc[0], s);
    if (n->nloc) str_put(s, ")");
}

/* Why the cond cannot be what was asked for: `stuck` is not known, or `why`. */
static void say_why(const Graph *g, const Node *n, Val stuck, const char *why, Str *s) {
    if (n && n->nloc) {
        intern_print_loc(n->loc[0], s);
        str_put(s, ": ");
    }
    if (stuck) describe(g, stuck, s);
    str_put(s, stuck ? " is not known before the program runs" : why);
}

static void refuse(Build *b, const Graph *g, const Node *n, Val stuck, const char *why) {
    Str s;
    str_init(&s, &g->cx->alloc);
    say_why(g, n, stuck, why, &s);
    build_fail(b, err_set(g->cx, E_VALUE,
                          stuck ? "static_cond: %s; the predicate must be a comparison, or "
                                  "several with &, of sums of a scan's counter (an ml.arange as "
                                  "its xs) and ml.axis_index, times whole numbers; ml.cond takes "
                                  "any"
                                : "static_cond: %s; ml.cond takes that, and has all devices run "
                                  "all branches",
                          str_of(&s)));
    str_free(&s);
}

bool op_cond_is_static(Build *b, Val index, bool asked) {
    AffineWalk w = affine_walk(b->g, true);
    Affine known;
    if (b->err || !index) return false;
    bool ok = affine_of(&w, index, &known);
    if (!ok && asked) refuse(b, b->g, NULL, w.stuck, "");
    return ok;
}

void op_cond(Build *b, const int32_t *region, int nregion, const Val *in, int nin, bool asked,
             Val *out) {
    Graph *g = b->g;
    int nresult = g->region.at[region[0]].result.n;
    Mode mode = {0};
    if (in[0]) mode = mode_of(graph_type(g, in[0]));
    bool known = (asked || mode.vary) && op_cond_is_static(b, in[0], asked);
    if (mode.vary && !b->err) op_check_varying(b, "cond", region, nregion, mode.vary);
    if (mode.vary && !known) {
        Arena arena;
        arena_init(&arena, &g->cx->alloc);
        if (!b->err) select(b, region, nregion, in, nresult, out, &arena);
        arena_free(&arena);
        return;
    }
    meet_modes(b, region, nregion, nresult, mode);
    Val v = b->err
                ? 0
                : op_control(b, OP_COND, in, nin, &(CondAttr){asked}, region, nregion, nresult, 0);
    for (int i = 0; v && i < nresult; i++) out[i] = v + i;
}

static void make_cond(Build *b, const int32_t *region, int nregion, const Val *in, int nin,
                      const void *attr, Val *out) {
    op_cond(b, region, nregion, in, nin, ((const CondAttr *)attr)->asked, out);
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
    bool asked = ((const CondAttr *)n.attr)->asked;
    if (!b->err) op_cond(b, region, n.nbody, p.in, n.nin + p.nct, asked, d);
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
    bool asked = ((const CondAttr *)n.attr)->asked;
    if (a->mapped[0] && asked) {
        refuse(b, b->g, NULL, 0, "examples differ in what they run");
        return;
    }
    if (a->mapped[0]) {
        batch_select(b, a, region, a->in);
        return;
    }
    op_cond(b, region, n.nbody, a->in, n.nin, asked, a->out);
    for (int i = 0; i < n.nout; i++) a->same[i] = !result[i];
}

/* ---- when all that is around it is known ---- */

/* Coefficients of the loops around the node, the innermost first; false: another takes part, or too
 * many. */
static bool loops_of(const Graph *g, const Node *n, const AffineSum *s, Dims *out) {
    int32_t found = 0;
    *out = (Dims){0};
    for (int32_t r = n->region; r && found < s->nloop; r = n->region) {
        ControlInfo c;
        n = graph_node(g, g->region.at[r].owner);
        graph_opdef(g, n)->control(n->attr, &c);
        if (c.branch) continue;
        if (out->rank == MAX_RANK) return false;
        dims_push(out, 0);
        for (int32_t i = 0; i < s->nloop; i++) {
            if (s->loop[i].region != r) continue;
            out->at[out->rank - 1] = s->loop[i].by;
            found++;
        }
    }
    return found == s->nloop;
}

/* Steps of one sum become the regions that run between its cuts. */
static bool guard_of(Build *b, const SettleArgs *a, GuardAttr *out) {
    int32_t cut[AFFINE_CUTS], run[AFFINE_CUTS + 1], ncut = 0, last = a->node->nbody - 1;
    const Affine *x = a->index;
    *out = (GuardAttr){.mesh = {.rank = b->g->mesh ? b->g->mesh->naxes : 0}};
    for (int i = 0; i < out->mesh.rank; i++) out->mesh.at[i] = x->sum.mesh[i];
    if (!x->stepped && last > AFFINE_CUTS) return false;
    for (int32_t i = 0; i < (x->stepped ? x->ncut : last); i++) {
        int64_t at = x->stepped ? x->cut[i] : i + 1 - x->add;
        if (at <= INT32_MIN || at >= INT32_MAX) return false;
        cut[ncut++] = (int32_t)at;
    }
    for (int32_t i = 0; i <= ncut; i++) {
        int64_t k = x->stepped ? x->value[i] : i;
        run[i] = (int32_t)(k < 0 ? 0 : k > last ? last : k);
    }
    out->cut = attr_list_of(b->g->cx, cut, ncut);
    out->run = attr_list_of(b->g->cx, run, ncut + 1);
    if (!out->cut || !out->run) build_fail(b, err_nomem(b->g->cx, "a graph"));
    return !b->err && loops_of(a->from, a->node, &x->sum, &out->loops);
}

/* What no device may miss: where data says what runs, and what devices do together that differ in
 * the index. NULL: nothing. */
static const char *what_all_run(const Graph *g, const SettleArgs *a) {
    int32_t end = g->node.n;
    for (int k = 0; k < a->node->nbody; k++)
        for (int32_t id = g->region.at[a->region[k]].first; id < end; id++) {
            const Node *n = graph_node(g, id);
            const OpDef *def = graph_opdef(g, n);
            ControlInfo c = {.trips = 0};
            if (!graph_within(g, n->region, a->region[k])) continue;
            if (def->control) def->control(n->attr, &c);
            if (c.branch && !c.guard) return "a branch inside is decided by data";
            if (c.trips < 0) return "a while_loop is inside";
            for (int i = 0; i < MAX_AXES; i++)
                if (a->index->sum.mesh[i] && graph_collective(g, n).axes >> i & 1)
                    return "a collective inside is over devices that differ in what they run";
        }
    return NULL;
}

/* All devices will run all branches: an error where that was not to be, else a line in the log. */
static void give_up(Build *b, const SettleArgs *a, const char *why) {
    Ctx *cx = b->g->cx;
    AffineWalk w = affine_walk(a->from, false);
    Affine known;
    Str s;
    Val stuck = affine_of(&w, a->node->in[0], &known) ? 0 : w.stuck;
    if (((const CondAttr *)a->node->attr)->asked) {
        refuse(b, a->from, a->node, stuck, why);
        return;
    }
    str_init(&s, &cx->alloc);
    say_why(a->from, a->node, stuck, why, &s);
    log_line(cx, LOG_INFO, "cond: all devices run all branches: %s", str_of(&s));
    str_free(&s);
}

static void settle_cond(Build *b, const SettleArgs *a) {
    const Node *n = a->node;
    Graph *g = b->g;
    const char *why = "there are too many cases or loops";
    const Type **types = ARENA_ARRAY(&g->arena, const Type *, n->nout + 1);
    GuardAttr guard;
    if (!types) build_fail(b, err_nomem(g->cx, "a graph"));
    if (b->err) return;
    graph_out_types(a->from, n, types);
    if (a->index && !a->plain && guard_of(b, a, &guard) && !(why = what_all_run(g, a))) {
        Val v = build_typed(b, OP_STATIC_COND, a->in + 1, n->nin - 1, &guard, n->nout, types,
                            a->region, n->nbody);
        for (int i = 0; v && i < n->nout; i++) a->out[i] = v + i;
        return;
    }
    if (!a->plain) give_up(b, a, why);
    if (!b->err) select(b, a->region, n->nbody, a->in, n->nout, a->out, &g->arena);
}

const OpDef op_row_COND = {
    .name = "cond",
    .operands = "index",
    .doc = "the results of the region that the index says",
    .nin = -1,
    .nout = -1,
    .flags = OPF_TYPED | OPF_INTERNAL,
    OP_ATTR(CondAttr, cond_fields),
    .flow = flow_cond,
    .keep = keep_cond,
    .make = make_cond,
    .control = control_cond,
    .settle = settle_cond,
    .vjp = vjp_cond,
    .batch = batch_cond,
};

/* ---- static_cond: no index, but which region runs on which device in which turn ---- */
static const AttrField guard_fields[] = {ATTR_FIELD(GuardAttr, ATTR_LIST, loops),
                                         ATTR_FIELD(GuardAttr, ATTR_LIST, mesh),
                                         ATTR_FIELD(GuardAttr, ATTR_INTS, cut),
                                         ATTR_FIELD(GuardAttr, ATTR_INTS, run),
                                         {0}};

static bool flow_static(const Node *n, int i, Flow *f) {
    if (i >= n->nin + n->nout) return false;
    *f = (Flow){.in = i, .out = -1, .param = i, .result = -1};
    if (i >= n->nin) *f = (Flow){.in = -1, .out = i - n->nin, .param = -1, .result = i - n->nin};
    return true;
}

static void control_static(const void *attr, ControlInfo *c) {
    *c = (ControlInfo){.branch = true, .trips = 1, .guard = attr};
}

static void make_static(Build *b, const int32_t *region, int nregion, const Val *in, int nin,
                        const void *attr, Val *out) {
    int nout = b->g->region.at[region[0]].result.n;
    Val v = op_control(b, OP_STATIC_COND, in, nin, attr, region, nregion, nout, 0);
    for (int i = 0; v && i < nout; i++) out[i] = v + i;
}

const OpDef op_row_STATIC_COND = {
    .name = "static_cond",
    .operands = "",
    .doc = "a cond of which each device knows beforehand what it runs",
    .nin = -1,
    .nout = -1,
    .flags = OPF_TYPED | OPF_INTERNAL | OPF_LOCAL,
    OP_ATTR(GuardAttr, guard_fields),
    .flow = flow_static,
    .keep = keep_cond,
    .make = make_static,
    .control = control_static,
};
