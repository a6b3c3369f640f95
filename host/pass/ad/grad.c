/* grad.c - reverse accumulation: walks the nodes between the variables and the results backwards
 * and appends each op's vjp rule. Higher orders need nothing more: the rules are ops like any
 * others. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/guarded.h"
#include "pass/pass.h"

/* A stretch of nodes that is computed anew, and what stands there for the values it knows: a
 * remat one, in which rules read the second computation, or a user's own backward. */
typedef struct Anew {
    const Span *span;
    struct Anew *outer; /* the stretch around it */
    Copy copy;          /* its map: 0 for what has not been asked for yet */
    VEC(Val) outside;   /* values from outside of the stretch that were asked for */
} Anew;

typedef struct Grad {
    Build *b;
    Arena arena;
    bool *active; /* value leads from a variable */
    Val *ct;      /* cotangent so far, by value */
    Anew *anew;   /* the innermost remat stretch that the walk is in, or NULL */
    Anew *spare;  /* those that it has left, whose maps are empty again */
    int32_t nvalue;
    int32_t region; /* what is walked stands in it; what is built, where `b` does */
    /* Where that is another region: what stands there for a value of the walked one. */
    Val (*primal)(void *ud, Build *b, Val v);
    void *ud;
} Grad;

static const RegionGrads region_grads;

/* The locations of a node, for what its rule builds. */
static Build at_node(const Grad *g, const Node *n) {
    Build at = build_at(g->b, g->b->g, n);
    at.nwhy = 0;
    at.role = g->b->role;
    return at;
}

/* A cotangent is in the mode of its value: it varies over the same axes; and in explicit mode it
 * lies as the value's type says. */
static void add_cotangent(Grad *g, const Node *n, Val v, Val ct) {
    if (!ct || v >= g->nvalue || !g->active[v]) return;
    Mode mode = mode_cotangent(mode_of(graph_type(g->b->g, v)));
    Build at = at_node(g, n);
    at.manual = mode.manual;
    ct = op_lay_like(&at, mode_bring(&at, ct, mode), graph_type(g->b->g, v), true);
    g->ct[v] = g->ct[v] ? op2(&at, OP_ADD, g->ct[v], ct) : ct;
    build_fail(g->b, at.err);
}

/* The results of a function with a gradient of its own lead from its arguments,
 * whatever is inside. */
static void mark_custom(Grad *g, const CustomVjp *rule) {
    bool any = false;
    for (int i = 0; i < rule->nx; i++) any = any || g->active[rule->x[i]];
    for (int i = 0; i < rule->ny; i++)
        g->active[rule->y[i]] = any && dtype_is_float(graph_type(g->b->g, rule->y[i])->dtype);
}

static bool any_active(const Grad *g, const Node *n) {
    for (int i = 0; i < n->nin; i++)
        if (g->active[n->in[i]]) return true;
    return false;
}

/* What leads from the values that are active already, which come from node `first` on. */
static void mark_active(Grad *g, int32_t first) {
    const Graph *graph = g->b->g;
    int32_t end = graph_region_end(graph, g->region), span = graph_span_ending(graph, first);
    for (int32_t id = first; id <= end; id++) {
        for (; span < graph->span.n && graph->span.at[span].end <= id; span++)
            if (graph->span.at[span].rule) mark_custom(g, graph->span.at[span].rule);
        if (id == end) break;
        const Node *n = graph_node(graph, id);
        if (n->region != g->region || !any_active(g, n) ||
            graph_opdef(graph, n)->flags & OPF_NO_GRAD)
            continue;
        for (int i = 0; i < n->nout; i++)
            if (dtype_is_float(graph_type(graph, n->out + i)->dtype)) g->active[n->out + i] = true;
    }
}

static void walk(Grad *g, int32_t first, int32_t end);

/* The cotangents of an expansion: its nodes stand at [first, end) and are
 * walked like any others. */
static void differentiate_expansion(Grad *g, const Node *n, const Val *in, const Val *ct,
                                    Val *din) {
    Graph *graph = g->b->g;
    const OpDef *def = graph_opdef(graph, n);
    enum { MAX = 8 };
    Val out[MAX] = {0};
    int32_t first = graph->node.n;
    Build at = at_node(g, n);
    def->expand(&at, n, in, out);
    build_fail(g->b, at.err);
    if (g->b->err) return;
    int32_t end = graph->node.n;
    /* A walk of its own, in which the node's operands are the variables. */
    Grad inner = {.b = g->b, .nvalue = graph->value.n, .region = g->b->region};
    arena_init(&inner.arena, &graph->cx->alloc);
    inner.active = ARENA_ARRAY(&inner.arena, bool, inner.nvalue);
    inner.ct = ARENA_ARRAY(&inner.arena, Val, inner.nvalue);
    if (!inner.active || !inner.ct) {
        build_fail(g->b, err_nomem(graph->cx, "a gradient"));
    } else {
        for (int i = 0; i < n->nin; i++)
            if (g->active[n->in[i]]) inner.active[in[i]] = true;
        for (int32_t id = first; id < end; id++) {
            const Node *m = graph_node(graph, id);
            bool any = false;
            for (int i = 0; i < m->nin; i++) any = any || inner.active[m->in[i]];
            if (!any || graph_opdef(graph, m)->flags & OPF_NO_GRAD) continue;
            for (int i = 0; i < m->nout; i++) inner.active[m->out + i] = true;
        }
        for (int i = 0; i < n->nout; i++)
            if (ct[i]) add_cotangent(&inner, n, out[i], ct[i]);
        walk(&inner, first, end);
        for (int i = 0; i < n->nin; i++) din[i] = inner.ct[in[i]];
        /* An operand given twice gets its whole cotangent once. */
        for (int i = 0; i < n->nin; i++)
            for (int k = 0; k < i; k++)
                if (in[k] == in[i]) din[i] = 0;
    }
    arena_free(&inner.arena);
}

/* ---- stretches that are computed anew ---- */

static Anew *anew_in(Grad *g, const Span *span, Anew *outer) {
    Anew *a = g->spare;
    if (a) {
        g->spare = a->outer;
        a->copy.b = *g->b;
    } else {
        a = ARENA_NEW(&g->arena, Anew);
        if (!a) {
            build_fail(g->b, err_nomem(g->b->g->cx, "a gradient"));
            return NULL;
        }
        if (copy_begin(&a->copy, g->b->g, g->b)) a->copy.region[g->region] = g->b->region;
        build_fail(g->b, a->copy.b.err);
    }
    a->span = span;
    a->outer = outer;
    return a;
}

/* A map has room for every value of the program: it is emptied, not made for each stretch. */
static void anew_end(Grad *g, Anew *a) {
    const Graph *graph = g->b->g;
    Copy *c = &a->copy;
    for (int32_t id = a->span->first; id < a->span->end && c->map && c->region; id++) {
        const Node *n = graph_node(graph, id);
        for (int i = 0; i < n->nout; i++) c->map[n->out + i] = 0;
        if (n->region != g->region) c->region[n->region] = -1;
    }
    for (int32_t i = 0; i < a->outside.n; i++) c->map[a->outside.at[i]] = 0;
    a->outside.n = 0;
    a->outer = g->spare;
    g->spare = a;
}

/* What rules inside the stretch read for v. What comes from outside of a remat one, or is
 * kept, goes through a barrier: the second computation is not to be found equal to the first. */
static Val anew_value(Grad *g, Anew *a, Val v) {
    if (v >= g->nvalue || g->b->err) return v;
    if (!a) return g->primal ? g->primal(g->ud, g->b, v) : v;
    Val *at = &a->copy.map[v];
    if (*at) return *at;
    Val outside = anew_value(g, a->outer, v);
    bool nullary = graph_opdef(g->b->g, graph_def(g->b->g, v))->flags & OPF_NULLARY;
    if (!VEC_PUSH(&g->arena, &a->outside, v))
        build_fail(g->b, err_nomem(g->b->g->cx, "a gradient"));
    if (a->span->rule || nullary || g->b->err) return *at = outside;
    /* The stretch may be entered from within shard_map, and the value come from around it. */
    Build there = *g->b;
    there.manual = mode_of(graph_type(g->b->g, outside)).manual;
    *at = op1(&there, OP_BARRIER, outside);
    build_fail(g->b, there.err);
    return *at;
}

/* Appends nodes [first, end) of the stretch once more, without those whose results are kept. */
static void compute_anew(Grad *g, Anew *a, int32_t first, int32_t end) {
    Graph *graph = g->b->g;
    int32_t clone = graph->node.n; /* no other copy has it */
    for (int32_t id = first; id < end && !g->b->err; id++) {
        Node n = *graph_node(graph, id);
        bool top = n.region == g->region;
        if (!top && !graph_within(graph, n.region, g->region)) continue;
        if (top && graph_opdef(graph, &n)->flags & OPF_PARAM) continue;
        if (n.nout == 0 || a->copy.map[n.out]) continue; /* a placeholder that has its value */
        if (top && a->span->policy && remat_keeps(graph, a->span, &n)) continue;
        for (int i = 0; top && i < n.nin; i++) anew_value(g, a, n.in[i]);
        a->copy.b.err = g->b->err;
        int32_t anew = graph->node.n;
        Val v = copy_node(&a->copy, &n);
        for (; a->span->policy && anew < graph->node.n; anew++)
            graph->node.at[anew].role = ROLE_ANEW;
        build_fail(g->b, a->copy.b.err);
        if (v && !n.clone && a->span->policy) build_set_clone(g->b, v, clone);
    }
}

static bool within(const Span *s, int32_t id) {
    return s->first <= id && id < s->end;
}

static void leave_stretch(Grad *g) {
    Anew *left = g->anew;
    g->anew = left->outer;
    anew_end(g, left);
}

/* Enters span k (from 1) at the node, after those around it. */
static void enter_span(Grad *g, int32_t k, int32_t id) {
    const Graph *graph = g->b->g;
    const Span *s = k ? &graph->span.at[k - 1] : NULL;
    if (!s || (g->anew && s == g->anew->span)) return;
    enter_span(g, s->outer, id);
    Anew *a = s->policy && !g->b->err ? anew_in(g, s, g->anew) : NULL;
    if (!a) return;
    g->anew = a;
    Build at = at_node(g, graph_node(graph, id)), *b = g->b;
    g->b = &at;
    compute_anew(g, a, s->first, s->end);
    g->b = b;
    build_fail(b, at.err);
}

/* Makes g->anew the innermost remat stretch around the node. */
static void enter_stretch(Grad *g, int32_t id) {
    const Graph *graph = g->b->g;
    while (g->anew && !within(g->anew->span, id)) leave_stretch(g);
    int32_t i = graph_span_ending(graph, id), k = i < graph->span.n ? i + 1 : 0;
    while (k && !within(&graph->span.at[k - 1], id)) k = graph->span.at[k - 1].outer;
    enter_span(g, k, id);
}

/* ---- a gradient that the user gave ---- */

static bool is_active(const void *grad, Val v) {
    return ((const Grad *)grad)->active[v];
}

static void step_custom(Grad *g, Span *s) {
    const CustomVjp *rule = s->rule;
    bool any = false;
    for (int i = 0; i < rule->ny; i++) any = any || g->ct[rule->y[i]];
    if (!any) return;
    s->taken = true;
    build_fail(g->b, custom_check_closed(g->b->g, s, is_active, g));
    if (g->b->err) return;
    enter_stretch(g, s->end - 1);
    Anew *a = g->b->err ? NULL : anew_in(g, s, g->anew);
    if (!a) return;
    const Node *last = graph_node(g->b->g, s->end - 1);
    Build at = at_node(g, last), *b = g->b;
    g->b = &at;
    for (int i = 0; i < rule->ny && !b->err; i++) {
        Val ct = g->ct[rule->y[i]];
        if (!rule->ct[i]) continue;
        a->copy.map[rule->ct[i]] = ct ? ct : op_const_like(&at, rule->ct[i], 0);
    }
    compute_anew(g, a, rule->bwd, rule->bwd_end);
    g->b = b;
    build_fail(b, at.err);
    for (int i = 0; i < rule->nx && !b->err; i++)
        if (rule->dx[i])
            add_cotangent(g, graph_node(b->g, s->end - 1), rule->x[i],
                          anew_value(g, a, rule->dx[i]));
    anew_end(g, a);
}

static void refuse(Grad *g, const Node *n) {
    Str s;
    str_init(&s, &g->b->g->cx->alloc);
    if (n->nloc) intern_print_loc(n->loc[0], &s);
    build_fail(g->b, err_set(g->b->g->cx, E_GRAD, "%s is not differentiable (written at %s)",
                             graph_opdef(g->b->g, n)->name, str_of(&s)));
    str_free(&s);
}

static void step(Grad *g, const Node *n, const Val *ct) {
    const OpDef *def = graph_opdef(g->b->g, n);
    Val *din = ARENA_ARRAY(&g->arena, Val, n->nin + 1);
    Val *in = ARENA_ARRAY(&g->arena, Val, n->nin + 1); /* what the rule reads */
    if (!din || !in) {
        build_fail(g->b, err_nomem(g->b->g->cx, "a gradient"));
        return;
    }
    for (int i = 0; i < n->nin; i++) in[i] = anew_value(g, g->anew, n->in[i]);
    bool beyond = false; /* a cotangent that the rule does not take */
    for (int i = 0; i < n->nout; i++)
        if (ct[i] && def->grad_results && !(def->grad_results >> i & 1)) beyond = true;
    if (def->vjp && !beyond) {
        VjpArgs a = {.node = n, .in = in, .ct = ct, .din = din, .regions = &region_grads};
        Val *out = ARENA_ARRAY(&g->arena, Val, n->nout);
        if (!out) {
            build_fail(g->b, err_nomem(g->b->g->cx, "a gradient"));
            return;
        }
        for (int i = 0; i < n->nout; i++) out[i] = anew_value(g, g->anew, n->out + i);
        a.out = out;
        for (int i = 0; i < n->nin; i++)
            if (g->active[n->in[i]]) a.wanted |= 1ull << (i < 63 ? i : 63);
        Build at = at_node(g, n);
        def->vjp(&at, &a);
        build_fail(g->b, at.err);
    } else if (def->expand) {
        differentiate_expansion(g, n, in, ct, din);
    } else {
        refuse(g, n);
        return;
    }
    for (int i = 0; i < n->nin; i++) add_cotangent(g, n, n->in[i], din[i]);
}

static void walk(Grad *g, int32_t first, int32_t end) {
    for (int32_t id = end - 1; id >= first && !g->b->err; id--) {
        Span *custom = graph_rule_ending(g->b->g, id);
        if (custom) {
            step_custom(g, custom);
            id -= custom->rule->ny - 1; /* its results; what is inside leads to residuals */
            continue;
        }
        Node n = *graph_node(g->b->g, id); /* a copy: the array moves as nodes are added */
        bool any = false;
        for (int i = 0; i < n.nout; i++) any = any || g->ct[n.out + i];
        if (!any || n.nin == 0 || n.region != g->region) continue;
        enter_stretch(g, id);
        step(g, &n, &g->ct[n.out]);
    }
}

static bool grad_init(Grad *g, Build *b, int32_t region) {
    *g = (Grad){.b = b, .nvalue = b->g->value.n, .region = region};
    arena_init(&g->arena, &b->g->cx->alloc);
    g->active = ARENA_ARRAY(&g->arena, bool, g->nvalue);
    g->ct = ARENA_ARRAY(&g->arena, Val, g->nvalue);
    if (g->active && g->ct) return true;
    build_fail(b, err_nomem(b->g->cx, "a gradient"));
    return false;
}

static void grad_end(Grad *g) {
    while (g->anew) leave_stretch(g);
    for (Anew *a = g->spare; a; a = a->outer) copy_end(&a->copy);
    arena_free(&g->arena);
}

static void grad_of(Build *b, const Val *y, const Val *ct, int ny, const Val *wrt, int nwrt,
                    Val *grad) {
    Grad g;
    if (grad_init(&g, b, b->region)) {
        int32_t end = b->g->node.n, first = end;
        b->role = ROLE_BACKWARD;
        for (int i = 0; i < nwrt; i++) {
            if (b->g->value.at[wrt[i]].node < first) first = b->g->value.at[wrt[i]].node;
            g.active[wrt[i]] = true;
        }
        mark_active(&g, first);
        for (int i = 0; i < ny; i++)
            if (ct[i]) add_cotangent(&g, graph_def(b->g, y[i]), y[i], ct[i]);
        walk(&g, first, end);
        for (int i = 0; i < nwrt && !b->err; i++) {
            grad[i] = g.ct[wrt[i]] ? g.ct[wrt[i]] : op_zeros_like(b, wrt[i], true);
            int32_t id = b->err ? 0 : b->g->value.at[grad[i]].node;
            if (id >= end) b->g->node.at[id].role = ROLE_GRADIENT;
        }
    }
    grad_end(&g);
}

typedef struct GradWork {
    Guarded guarded;
    Build *b;
    const Val *y, *ct, *wrt;
    int ny, nwrt;
    Val *grad;
} GradWork;

static Err run(Guarded *guarded) {
    const GradWork *w = (const GradWork *)guarded;
    grad_of(w->b, w->y, w->ct, w->ny, w->wrt, w->nwrt, w->grad);
    return w->b->err;
}

void pass_grad(Build *b, const Val *y, const Val *ct, int ny, const Val *wrt, int nwrt, Val *grad) {
    if (b->err) return;
    GradWork w = {{b->g, "grad", run}, b, y, ct, wrt, ny, nwrt, grad};
    build_fail(b, guarded_run(&w.guarded));
}

/* ---- for the rules of nodes that own regions ---- */

static void start_region(Grad *g, const bool *param) {
    const Region *r = &g->b->g->region.at[g->region];
    for (int i = 0; i < r->param.n; i++) g->active[r->param.at[i]] = param[i];
    mark_active(g, r->first);
}

static void region_active(Build *b, int32_t region, const bool *param, bool *result) {
    Grad g;
    if (b->err) return;
    if (grad_init(&g, b, region)) {
        const Region *r = &b->g->region.at[region];
        start_region(&g, param);
        for (int i = 0; i < r->result.n; i++) result[i] = g.active[r->result.at[i]];
    }
    grad_end(&g);
}

static void region_grad(Build *b, int32_t region, const bool *param, const Val *ct,
                        Val (*primal)(void *ud, Build *b, Val v), void *ud, Val *dparam) {
    Grad g;
    if (b->err) return;
    if (grad_init(&g, b, region)) {
        int32_t end = b->g->node.n; /* casts of the first cotangents come behind it */
        g.primal = primal;
        g.ud = ud;
        start_region(&g, param);
        for (int i = 0; i < b->g->region.at[region].result.n; i++) {
            Val v = b->g->region.at[region].result.at[i];
            if (ct[i]) add_cotangent(&g, graph_def(b->g, v), v, ct[i]);
        }
        walk(&g, b->g->region.at[region].first, end);
        for (int i = 0; i < b->g->region.at[region].param.n; i++)
            dparam[i] = g.ct[b->g->region.at[region].param.at[i]];
    }
    grad_end(&g);
}

static const RegionGrads region_grads = {pass_grad, region_active, region_grad};
