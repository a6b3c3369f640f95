#include "pass/layout/constraint.h"

#include "ir/explicit.h"

static const Layout *asked_by(const Node *n) {
    return *(const Layout *const *)n->attr;
}

/* The value that a statement, or a chain of them, speaks of. */
static Val subject(const Statements *s, const Graph *g, const Node *n) {
    while (s->is[g->value.at[n->in[0]].node]) n = graph_def(g, n->in[0]);
    return n->in[0];
}

bool constraint_agree(const Node *a, const Node *b) {
    const Layout *x = asked_by(a), *y = asked_by(b);
    for (int d = 0; d < x->rank; d++)
        if (!x->dim[d].open && !y->dim[d].open && !axes_equal(&x->dim[d].axes, &y->dim[d].axes))
            return false;
    return true;
}

static void print_request(const Graph *g, const Node *n, Str *s) {
    const Spec *spec = layout_spec(g->cx, asked_by(n), &graph_type(g, n->out)->dims);
    if (spec) spec_print(spec, s);
    if (n->nloc) str_put(s, " at ");
    if (n->nloc) intern_print_loc(n->loc[0], s);
}

Err constraint_error(const Graph *g, const char *who, const char *what, const Node *a,
                     const Node *b) {
    Str s;
    str_init(&s, &g->cx->alloc);
    print_request(g, a, &s);
    str_put(&s, ", and ");
    print_request(g, b, &s);
    Err e = err_set(g->cx, E_SPEC, "%s: %s as %s; remove one of the two constraints", who, what,
                    str_of(&s));
    str_free(&s);
    return e;
}

/* In explicit mode a value lies as its type says, whatever else is made of it. */
static bool moves(const Graph *g, const Node *n) {
    uint32_t axes = g->mesh ? explicit_axes_of(g->mesh, graph_type(g, n->out)->layout) : 0;
    Layout from, to;
    if (!axes) return false;
    explicit_view(graph_type(g, n->in[0]), g->mesh, axes, &from);
    explicit_view(graph_type(g, n->out), g->mesh, axes, &to);
    return !layout_equal(&from, &to);
}

Err constraint_statements(const Graph *g, const bool *live, Arena *arena, Statements *out) {
    int32_t *uses = graph_use_counts(g, arena), *first = ARENA_ARRAY(arena, int32_t, g->value.n);
    out->is = ARENA_ARRAY(arena, bool, g->node.n);
    out->last = ARENA_ARRAY(arena, int32_t, g->value.n);
    if (!uses || !first || !out->is || !out->last) return err_nomem(g->cx, "a graph");
    for (int32_t id = g->node.n - 1; id > 0; id--) {
        const Node *n = graph_node(g, id);
        for (int i = 0; live[id] && i < n->nin; i++)
            if (!out->last[n->in[i]]) out->last[n->in[i]] = id;
        if (live[id] || !(graph_opdef(g, n)->flags & OPF_CONSTRAINT) || uses[n->out]) continue;
        if (moves(g, n)) continue;
        out->is[id] = true;
        uses[n->in[0]]--;
    }
    for (int32_t r = 0; r < g->region.n; r++)
        for (int i = 0; i < g->region.at[r].result.n; i++)
            out->last[g->region.at[r].result.at[i]] = g->node.n;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        if (!out->is[id]) continue;
        Val v = subject(out, g, n);
        if (!first[v])
            first[v] = id;
        else if (n->in[0] == v && !constraint_agree(graph_node(g, first[v]), n))
            return constraint_error(g, "constrain", "one value is to lie", graph_node(g, first[v]),
                                    n);
    }
    return E_OK;
}

void constraint_copy(const Statements *s, Copy *c, const Node *n) {
    const Graph *g = c->from;
    Val v = subject(s, g, n), now = c->map[n->in[0]];
    if (!now || s->last[v] <= c->from->value.at[n->out].node) return;
    Val made = copy_node_with(c, n, &now);
    for (const Node *at = n;; at = graph_def(g, at->in[0])) {
        c->map[at->in[0]] = made;
        if (at->in[0] == v) break;
    }
}
