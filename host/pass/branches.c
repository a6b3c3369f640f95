/* branches.c - branches whose devices differ in what they run, once all that is around them has its
 * final form: their rows say what becomes of them (settle), by what is known of the number that
 * steers them. What is not needed any more for that goes. */
#include "ir/affine.h"
#include "ir/copy.h"
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

static void settle(Copy *c, const Node *n, bool plain) {
    Affine index;
    AffineWalk w = affine_walk(c->from, false);
    int32_t *region = ARENA_ARRAY(&c->arena, int32_t, n->nbody);
    Val *out = ARENA_ARRAY(&c->arena, Val, n->nout + 1), *in = copy_operands(c, n);
    if (!region || !out || !in) {
        copy_no_memory(c);
        return;
    }
    for (int k = 0; k < n->nbody; k++) region[k] = copy_body(c, n->body[k], NULL);
    copy_enter(c, n);
    Build at = build_at(&c->b, c->from, n);
    bool known = affine_of(&w, n->in[0], &index);
    SettleArgs a = {c->from, n, known ? &index : NULL, plain, region, in, out};
    if (!at.err) graph_opdef(c->from, n)->settle(&at, &a);
    build_fail(&c->b, at.err);
    for (int i = 0; i < n->nout; i++) c->map[n->out + i] = out[i];
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
    Copy c;
    Graph *settled = NULL;
    bool plain = !pass_is_on(o, SWITCH_BRANCHES, true);
    if (copy_begin_graph(&c, g, true)) {
        for (int32_t id = 1; id < g->node.n && !c.b.err; id++) {
            const Node *n = graph_node(g, id);
            if (is_to_settle(g, n))
                settle(&c, n, plain);
            else
                copy_node(&c, n);
        }
        copy_results(&c, 0);
    }
    TRY(copy_end_graph(&c, &settled));
    Err e = without_dead(settled, out);
    graph_free(settled);
    return e;
}
