/* grad.c - reverse accumulation: walks the nodes between the variables and the results backwards
 * and appends each op's vjp rule. Higher orders need nothing more: the rules are ops like any
 * others. */
#include "op/op.h"
#include "pass/pass.h"

#include <string.h>

typedef struct Grad {
    Build *b;
    Arena arena;
    bool *active; /* value leads from a variable */
    Val *ct;      /* cotangent so far, by value */
    int32_t nvalue;
} Grad;

/* The locations of a node, for what its rule builds. */
static Build at_node(const Grad *g, const Node *n) {
    Build at = *g->b;
    at.loc = n->loc;
    at.nloc = n->nloc;
    return at;
}

static void add_cotangent(Grad *g, const Node *n, Val v, Val ct) {
    if (!ct || v >= g->nvalue || !g->active[v]) return;
    Build at = at_node(g, n);
    g->ct[v] = g->ct[v] ? op2(&at, OP_ADD, g->ct[v], ct) : ct;
    build_fail(g->b, at.err);
}

static void mark_active(Grad *g, const Val *wrt, int nwrt) {
    const Graph *graph = g->b->g;
    for (int i = 0; i < nwrt; i++) g->active[wrt[i]] = true;
    for (int32_t id = 1; id < graph->node.n; id++) {
        const Node *n = graph_node(graph, id);
        bool any = false;
        for (int i = 0; i < n->nin; i++) any = any || g->active[n->in[i]];
        if (!any || graph_opdef(graph, n)->flags & OPF_NO_GRAD) continue;
        for (int i = 0; i < n->nout; i++)
            if (dtype_is_float(graph_type(graph, n->out + i)->dtype)) g->active[n->out + i] = true;
    }
}

/* The cotangents of an expansion: its nodes stand at [first, end) and are walked like any others.
 */
static void walk(Grad *g, int32_t first, int32_t end);

static void differentiate_expansion(Grad *g, const Node *n, const Val *ct, Val *din) {
    Graph *graph = g->b->g;
    const OpDef *def = graph_opdef(graph, n);
    enum { MAX = 8 };
    Val out[MAX] = {0};
    int32_t first = graph->node.n;
    Build at = at_node(g, n);
    def->expand(&at, n, n->in, out);
    build_fail(g->b, at.err);
    if (g->b->err) return;
    int32_t end = graph->node.n;
    /* A walk of its own, in which the node's operands are the variables. */
    Grad inner = {.b = g->b, .nvalue = graph->value.n};
    arena_init(&inner.arena, &graph->cx->alloc);
    inner.active = ARENA_ARRAY(&inner.arena, bool, inner.nvalue);
    inner.ct = ARENA_ARRAY(&inner.arena, Val, inner.nvalue);
    if (!inner.active || !inner.ct) {
        build_fail(g->b, err_nomem(graph->cx, "a gradient"));
    } else {
        for (int i = 0; i < n->nin; i++)
            if (g->active[n->in[i]]) inner.active[n->in[i]] = true;
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
        for (int i = 0; i < n->nin; i++) din[i] = inner.ct[n->in[i]];
        /* An operand given twice gets its whole cotangent once. */
        for (int i = 0; i < n->nin; i++)
            for (int k = 0; k < i; k++)
                if (n->in[k] == n->in[i]) din[i] = 0;
    }
    arena_free(&inner.arena);
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
    if (!din) {
        build_fail(g->b, err_nomem(g->b->g->cx, "a gradient"));
        return;
    }
    bool beyond = false; /* a cotangent that the rule does not take */
    for (int i = 0; i < n->nout; i++)
        if (ct[i] && def->grad_results && !(def->grad_results >> i & 1)) beyond = true;
    if (def->vjp && !beyond) {
        VjpArgs a = {.node = n, .in = n->in, .ct = ct, .din = din};
        Val *out = ARENA_ARRAY(&g->arena, Val, n->nout);
        if (!out) {
            build_fail(g->b, err_nomem(g->b->g->cx, "a gradient"));
            return;
        }
        for (int i = 0; i < n->nout; i++) out[i] = n->out + i;
        a.out = out;
        for (int i = 0; i < n->nin; i++)
            if (g->active[n->in[i]]) a.wanted |= 1ull << (i < 63 ? i : 63);
        Build at = at_node(g, n);
        def->vjp(&at, &a);
        build_fail(g->b, at.err);
    } else if (def->expand) {
        differentiate_expansion(g, n, ct, din);
    } else {
        refuse(g, n);
        return;
    }
    for (int i = 0; i < n->nin; i++) add_cotangent(g, n, n->in[i], din[i]);
}

static void walk(Grad *g, int32_t first, int32_t end) {
    for (int32_t id = end - 1; id >= first && !g->b->err; id--) {
        Node n = *graph_node(g->b->g, id); /* a copy: the array moves as nodes are added */
        bool any = false;
        for (int i = 0; i < n.nout; i++) any = any || g->ct[n.out + i];
        if (!any || n.nin == 0) continue;
        step(g, &n, &g->ct[n.out]);
    }
}

static Val zeros_like(Build *b, Val v) {
    Dims dims = op_dims(b, v);
    Scalar zero = scalar_float(0);
    return op_full(b, op_dtype(b, v), &dims, zero);
}

void pass_grad(Build *b, const Val *y, const Val *ct, int ny, const Val *wrt, int nwrt, Val *grad) {
    if (b->err) return;
    Grad g = {.b = b, .nvalue = b->g->value.n};
    arena_init(&g.arena, &b->g->cx->alloc);
    g.active = ARENA_ARRAY(&g.arena, bool, g.nvalue);
    g.ct = ARENA_ARRAY(&g.arena, Val, g.nvalue);
    if (!g.active || !g.ct) {
        build_fail(b, err_nomem(b->g->cx, "a gradient"));
    } else {
        int32_t end = b->g->node.n, first = end;
        for (int i = 0; i < nwrt; i++)
            if (b->g->value.at[wrt[i]].node < first) first = b->g->value.at[wrt[i]].node;
        mark_active(&g, wrt, nwrt);
        for (int i = 0; i < ny; i++)
            if (ct[i]) add_cotangent(&g, graph_def(b->g, y[i]), y[i], ct[i]);
        walk(&g, first, end);
        for (int i = 0; i < nwrt && !b->err; i++)
            grad[i] = g.ct[wrt[i]] ? g.ct[wrt[i]] : zeros_like(b, wrt[i]);
    }
    arena_free(&g.arena);
}
