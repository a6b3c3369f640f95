/* branches.c - branches whose devices differ in what they run, once all that is around them has its
 * final form: their rows say what becomes of them (settle), by what is known of the number that
 * steers them. What is not needed any more for that goes.
 *
 * A result that is only added to something, and is nought in one of the branches, is added inside:
 * sum + branch(x)   ->   branch(x, sum), where that one gives the sum back, and so does nothing.
 * (Gradients of a loop's constants.) It starts as +0 or is hoist's -0, to which a sum behind the
 * loop is added, so that no bit changes. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

static bool is_to_settle(const Graph *g, const Node *n) {
    const Layout *l = graph_opdef(g, n)->settle ? graph_type(g, n->in[0])->layout : NULL;
    return l && l->vary;
}

bool branches_are_there(const Graph *g) {
    for (int32_t id = 1; id < g->node.n; id++)
        if (is_to_settle(g, graph_node(g, id))) return true;
    return false;
}

typedef struct Settle {
    Copy c;
    bool plain;
    int32_t *count; /* of uses, by value */
    Uses uses;
    Val *inside; /* by node: of a sum that is made in a branch, the result that it is */
} Settle;

static bool is_nought(const Build *b, Val v) {
    const FullAttr *f = op_full_attr(b, v);
    return f && f->value.i == 0 && f->value.f == 0;
}

/* The sum that result v of node `id` is there for alone, of it and what is there before the node,
 * or NULL. */
static const Node *sum_of(const Settle *s, int32_t id, Val v, int *at) {
    const Graph *g = s->c.from;
    if (s->count[v] != 1 || s->uses.start[v] == s->uses.start[v + 1]) return NULL;
    const Node *m = graph_node(g, s->uses.list[s->uses.start[v]]);
    if (!(graph_opdef(g, m)->flags & OPF_ADDITION) || m->noffset) return NULL;
    *at = m->in[0] == v ? 0 : 1;
    bool fits = m->region == graph_node(g, id)->region && graph_type(g, m->out) == graph_type(g, v);
    return fits && g->value.at[m->in[1 - *at]].node < id ? m : NULL;
}

/* The branches' result i becomes its sum with one more parameter, or that where it is nought. */
static void add_inside(Settle *s, const int32_t *region, int n, int i, const Node *m, int at) {
    Graph *g = s->c.b.g;
    const Type *type = graph_type(s->c.from, m->in[1 - at]);
    for (int k = 0; k < n && !s->c.b.err; k++) {
        Build in = s->c.b;
        in.region = region[k];
        ParamAttr attr = {.index = g->region.at[region[k]].param.n + 1};
        Val own = build_param(&in, OP_PARAM, &attr, type);
        Val *result = &g->region.at[region[k]].result.at[i], pair[2];
        pair[at] = *result;
        pair[1 - at] = own;
        *result = is_nought(&in, *result) ? own : build_like(&in, s->c.from, m, pair);
        build_fail(&s->c.b, in.err);
    }
}

/* Moves such sums inside; the node's operands in the new graph are then `in`, so many. */
static int32_t move_sums(Settle *s, int32_t id, const int32_t *region, Val *in) {
    Copy *c = &s->c;
    const Node *n = graph_node(c->from, id);
    int32_t nin = n->nin;
    for (int i = 0; i < n->nout && !c->b.err; i++) {
        int at;
        bool any = false;
        const Node *m = sum_of(s, id, n->out + i, &at);
        for (int k = 0; m && k < n->nbody; k++)
            any = any || is_nought(&c->b, c->b.g->region.at[region[k]].result.at[i]);
        if (!any) continue;
        add_inside(s, region, n->nbody, i, m, at);
        in[nin++] = c->map[m->in[1 - at]];
        s->inside[c->from->value.at[m->out].node] = n->out + i;
    }
    return nin;
}

static void settle(Settle *s, int32_t id) {
    Copy *c = &s->c;
    Node n = *graph_node(c->from, id);
    Affine index;
    AffineWalk w = affine_walk(c->from, false);
    int32_t *region = ARENA_ARRAY(&c->arena, int32_t, n.nbody);
    Val *out = ARENA_ARRAY(&c->arena, Val, n.nout + 1);
    Val *in = ARENA_ARRAY(&c->arena, Val, n.nin + n.nout + 1);
    if (!region || !out || !in) {
        copy_no_memory(c);
        return;
    }
    for (int i = 0; i < n.nin; i++) in[i] = c->map[n.in[i]];
    for (int k = 0; k < n.nbody; k++) region[k] = copy_body(c, n.body[k], NULL);
    bool known = affine_of(&w, n.in[0], &index);
    if (known && !s->plain && !c->b.err) n.nin = move_sums(s, id, region, in);
    copy_enter(c, &n);
    Build at = build_at(&c->b, c->from, &n);
    SettleArgs a = {c->from, &n, known ? &index : NULL, s->plain, region, in, out};
    if (!at.err) graph_opdef(c->from, &n)->settle(&at, &a);
    build_fail(&c->b, at.err);
    for (int i = 0; i < n.nout; i++) c->map[n.out + i] = out[i];
}

/* Results of regions count as needed where their node is. */
static bool *mark_live(const Graph *g, Arena *arena) {
    bool *value = ARENA_ARRAY(arena, bool, g->value.n), *node = ARENA_ARRAY(arena, bool, g->node.n);
    if (!value || !node) return NULL;
    for (int i = 0; i < g->region.at[0].result.n; i++) value[g->region.at[0].result.at[i]] = true;
    for (int32_t id = g->node.n - 1; id > 0; id--) {
        const Node *n = graph_node(g, id);
        node[id] = n->region == 0 && graph_opdef(g, n)->flags & OPF_PARAM;
        for (int i = 0; i < n->nout; i++) node[id] = node[id] || value[n->out + i];
        for (int i = 0; node[id] && i < n->nin; i++) value[n->in[i]] = true;
        for (int k = 0; node[id] && k < n->nbody; k++)
            for (int i = 0; i < g->region.at[n->body[k]].result.n; i++)
                value[g->region.at[n->body[k]].result.at[i]] = true;
    }
    return node;
}

static Err without_dead(const Graph *g, Graph **out) {
    Copy c;
    if (copy_begin_graph(&c, g, true)) {
        const bool *live = mark_live(g, &c.arena);
        if (!live) copy_no_memory(&c);
        for (int32_t id = 1; id < g->node.n && !c.b.err; id++)
            if (live[id]) copy_node(&c, graph_node(g, id));
        copy_results(&c, 0);
    }
    return copy_end_graph(&c, out);
}

Err pass_branches(const Graph *g, const PassOptions *o, Graph **out) {
    Settle s = {.plain = !pass_is_on(o, SWITCH_BRANCHES, true)};
    Copy *c = &s.c;
    Graph *settled = NULL;
    if (copy_begin_graph(c, g, true)) {
        s.count = graph_use_counts(g, &c->arena);
        s.uses = graph_uses(g, &c->arena);
        s.inside = ARENA_ARRAY(&c->arena, Val, g->node.n);
        if (!s.count || !s.uses.start || !s.inside) copy_no_memory(c);
        for (int32_t id = 1; id < g->node.n && !c->b.err; id++) {
            const Node *n = graph_node(g, id);
            if (is_to_settle(g, n))
                settle(&s, id);
            else if (s.inside[id])
                c->map[n->out] = c->map[s.inside[id]];
            else
                copy_node(c, n);
        }
        copy_results(c, 0);
    }
    TRY(copy_end_graph(c, &settled));
    Err e = without_dead(settled, out);
    graph_free(settled);
    return e;
}
