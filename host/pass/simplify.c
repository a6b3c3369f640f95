/* simplify.c - dead code, folding by the ops' own rules, and equal nodes made one. */
#include "ir/copy.h"
#include "pass/constraint.h"
#include "op/op.h"
#include "pass/pass.h"

#include <string.h>

typedef struct Simplify {
    Copy c;
    Map seen; /* nodes of the new graph by content */
} Simplify;

static void mark_results(const Graph *g, int32_t region, bool *live) {
    const Region *r = &g->region.at[region];
    for (int i = 0; i < r->result.n; i++) live[g->value.at[r->result.at[i]].node] = true;
}

/* Which nodes lead to a result. */
static bool *mark_live(const Graph *g, Arena *arena) {
    bool *live = ARENA_ARRAY(arena, bool, g->node.n);
    if (!live) return NULL;
    mark_results(g, 0, live);
    for (int32_t id = g->node.n - 1; id > 0; id--) {
        const Node *n = graph_node(g, id);
        int32_t owner = g->region.at[n->region].owner;
        if (graph_opdef(g, n)->flags & OPF_PARAM) /* signatures stay */
            live[id] = n->region == 0 || (owner && live[owner]);
        if (!live[id]) continue;
        for (int i = 0; i < n->nin; i++) live[g->value.at[n->in[i]].node] = true;
        for (int k = 0; k < n->nbody; k++) mark_results(g, n->body[k], live);
    }
    return live;
}

typedef struct Candidate {
    uint16_t op;
    const Val *in;
    int nin;
    const void *attr;
    int32_t clone, region;
    const Layout *layout; /* of its first result, as far as its type says */
} Candidate;

static bool same_node(const void *ud, const void *probe, int32_t id) {
    const Graph *g = ud;
    const Candidate *c = probe;
    const Node *n = graph_node(g, id);
    const AttrField *fields = graph_opdef(g, n)->attr;
    return n->op == c->op && n->nin == c->nin && n->clone == c->clone && n->region == c->region &&
           (!n->nout || graph_type(g, n->out)->layout == c->layout) &&
           memcmp(n->in, c->in, sizeof(Val) * (size_t)n->nin) == 0 &&
           attr_equal(fields, n->attr, c->attr);
}

static uint64_t content_hash(const Graph *g, const Candidate *c) {
    uint64_t h = hash_u64(0, (uint64_t)c->op << 32 | (uint32_t)c->clone);
    h = hash_u64(h, (uint64_t)(uint32_t)c->region);
    h = hash_bytes(h, c->in, sizeof(Val) * (size_t)c->nin);
    return attr_hash(g->cx->interns->ops[c->op].attr, c->attr, h);
}

/* Operands of a commuting op in one order, so that x + y and y + x are found equal. */
static void order_operands(const OpDef *def, Val *in) {
    if (!(def->flags & OPF_COMMUTES) || in[0] <= in[1]) return;
    Val t = in[0];
    in[0] = in[1];
    in[1] = t;
}

/* Both were written: keep both places. */
static void merge_locations(Simplify *s, Node *into, const Node *other) {
    Graph *g = s->c.b.g;
    for (int i = 0; i < other->nloc; i++) {
        bool known = false;
        for (int k = 0; k < into->nloc; k++) known = known || into->loc[k] == other->loc[i];
        if (known || into->nloc >= 4) continue;
        const Loc **both = ARENA_ARRAY(&g->arena, const Loc *, into->nloc + 1);
        if (!both) return; /* a place less in a message is no error */
        if (into->nloc) memcpy(both, into->loc, sizeof *both * (size_t)into->nloc);
        both[into->nloc] = other->loc[i];
        into->loc = both;
        into->nloc++;
    }
}

/* The node in the new graph: folded, or an equal one, or a copy. */
static void simplify_node(Simplify *s, const Node *n) {
    Copy *c = &s->c;
    Graph *g = c->b.g;
    const OpDef *def = graph_opdef(c->from, n);
    const Type *type = n->nout ? graph_type(c->from, n->out) : NULL;
    bool free_to_change = !(def->flags & (OPF_BARRIER | OPF_PARAM)) && !n->nbody;
    if (def->flags & OPF_PLACEHOLDER)
        build_fail(&c->b, err_set(c->from->cx, E_TRACED,
                                  "a value of one example (or of a custom_vjp's bwd) is needed "
                                  "outside of what it was made in; return it from there"));
    Val *in = copy_operands(c, n);
    if (!in) return;
    copy_enter(c, n);
    order_operands(def, in);
    Build at = build_at(&c->b, c->from, n);
    if (def->fold && free_to_change && n->nout == 1) {
        Val folded = op_lay_like(&at, def->fold(&at, n, in), type, false);
        build_fail(&c->b, at.err);
        if (folded || at.err) {
            copy_set(c, n, folded);
            return;
        }
    }
    Candidate want = {n->op,    in,          n->nin, n->attr,
                      n->clone, c->b.region, type ? type->layout : NULL};
    uint64_t h = content_hash(g, &want);
    int32_t same = free_to_change ? map_find(&s->seen, h, same_node, g, &want) : -1;
    if (same >= 0) {
        merge_locations(s, &g->node.at[same], n);
        copy_set(c, n, graph_node(g, same)->out);
        return;
    }
    Val v = copy_node_with(c, n, in);
    if (v && free_to_change && !map_add(&c->arena, &s->seen, h, g->value.at[v].node))
        copy_no_memory(c);
}

static Err round_once(const Graph *g, Graph **out) {
    Graph *new_graph = graph_new(g->cx);
    if (!new_graph) return err_nomem(g->cx, "a graph");
    new_graph->mesh = g->mesh;
    Build b = build_in(new_graph, 0);
    Simplify s = {0};
    if (copy_begin(&s.c, g, &b)) {
        const bool *live = mark_live(g, &s.c.arena);
        Statements said = {0};
        if (live)
            build_fail(&s.c.b, constraint_statements(g, live, &s.c.arena, &said));
        else
            copy_no_memory(&s.c);
        for (int32_t id = 1; id < g->node.n && !s.c.b.err; id++) {
            if (live[id])
                simplify_node(&s, graph_node(g, id));
            else if (said.is[id])
                constraint_copy(&said, &s.c, graph_node(g, id));
        }
        copy_results(&s.c, 0);
    }
    copy_end(&s.c);
    if (s.c.b.err)
        graph_free(new_graph);
    else
        *out = new_graph;
    return s.c.b.err;
}

Err pass_simplify(const Graph *g, const PassOptions *o, Graph **out) {
    enum { ROUNDS = 4 }; /* a fold can open another; in practice the second round finds the rest */
    Graph *now = NULL;
    (void)o;
    TRY(round_once(g, &now));
    for (int i = 1; i < ROUNDS; i++) {
        Graph *next = NULL;
        Err e = round_once(now, &next);
        int32_t before = now->node.n;
        graph_free(now);
        if (e) return e;
        now = next;
        if (now->node.n == before) break;
    }
    *out = now;
    return E_OK;
}
