/* simplify.c - dead code, folding by the ops' own rules, and equal nodes made one. */
#include "pass/pass.h"

#include <string.h>

typedef struct Simplify {
    const Graph *from;
    Build b;
    Arena arena;
    Val *map; /* value of `from` -> value of the new graph */
    Map seen; /* nodes of the new graph by content */
} Simplify;

/* Which nodes lead to a result. */
static bool *mark_live(const Graph *g, Arena *arena) {
    bool *live = ARENA_ARRAY(arena, bool, g->node.n);
    if (!live) return NULL;
    const Region *top = &g->region.at[0];
    for (int i = 0; i < top->result.n; i++) live[g->value.at[top->result.at[i]].node] = true;
    for (int32_t id = g->node.n - 1; id > 0; id--) {
        const Node *n = graph_node(g, id);
        if (graph_opdef(g, n)->flags & OPF_PARAM) live[id] = true; /* the signature stays */
        for (int i = 0; live[id] && i < n->nin; i++) live[g->value.at[n->in[i]].node] = true;
    }
    return live;
}

typedef struct Candidate {
    uint16_t op;
    const Val *in;
    int nin;
    const void *attr;
    int32_t clone;
} Candidate;

static bool same_node(const void *ud, const void *probe, int32_t id) {
    const Graph *g = ud;
    const Candidate *c = probe;
    const Node *n = graph_node(g, id);
    const AttrField *fields = graph_opdef(g, n)->attr;
    return n->op == c->op && n->nin == c->nin && n->clone == c->clone &&
           memcmp(n->in, c->in, sizeof(Val) * (size_t)n->nin) == 0 &&
           attr_equal(fields, n->attr, c->attr);
}

static uint64_t content_hash(const Graph *g, const Candidate *c) {
    uint64_t h = hash_u64(0, (uint64_t)c->op << 32 | (uint32_t)c->clone);
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
    Graph *g = s->b.g;
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
static Val simplified(Simplify *s, const Node *n, Val *in) {
    Graph *g = s->b.g;
    const OpDef *def = graph_opdef(s->from, n);
    if (def->flags & OPF_PARAM)
        return build_param(&s->b, n->op, n->attr, graph_type(s->from, n->out));
    order_operands(def, in);
    Build at = s->b;
    at.loc = n->loc;
    at.nloc = n->nloc;
    bool free_to_change = !(def->flags & OPF_BARRIER);
    if (def->fold && free_to_change && n->nout == 1) {
        Val folded = def->fold(&at, n, in);
        s->b.err = at.err;
        if (folded || at.err) return folded;
    }
    Candidate c = {n->op, in, n->nin, n->attr, n->clone};
    uint64_t h = content_hash(g, &c);
    int32_t same = free_to_change ? map_find(&s->seen, h, same_node, g, &c) : -1;
    if (same >= 0) {
        merge_locations(s, &g->node.at[same], n);
        return graph_node(g, same)->out;
    }
    Val v = build_like(&s->b, s->from, n, in);
    if (v && !map_add(&s->arena, &s->seen, h, g->value.at[v].node))
        build_fail(&s->b, err_nomem(g->cx, "a graph"));
    return v;
}

static void rewrite(Simplify *s) {
    const Graph *from = s->from;
    bool *live = mark_live(from, &s->arena);
    s->map = ARENA_ARRAY(&s->arena, Val, from->value.n);
    if (!live || !s->map) {
        build_fail(&s->b, err_nomem(from->cx, "a graph"));
        return;
    }
    for (int32_t id = 1; id < from->node.n && !s->b.err; id++) {
        const Node *n = graph_node(from, id);
        if (!live[id]) continue;
        Val *in = ARENA_ARRAY(&s->arena, Val, n->nin + 1);
        if (!in) {
            build_fail(&s->b, err_nomem(from->cx, "a graph"));
            return;
        }
        for (int i = 0; i < n->nin; i++) in[i] = s->map[n->in[i]];
        Val v = simplified(s, n, in);
        for (int i = 0; i < n->nout; i++) s->map[n->out + i] = v + i;
    }
    for (int i = 0; i < from->region.at[0].result.n; i++)
        build_result(&s->b, s->map[from->region.at[0].result.at[i]]);
}

static Err round_once(const Graph *g, Graph **out) {
    Graph *new_graph = graph_new(g->cx);
    if (!new_graph) return err_nomem(g->cx, "a graph");
    new_graph->mesh = g->mesh;
    Simplify s = {.from = g, .b = build_in(new_graph, 0)};
    arena_init(&s.arena, &g->cx->alloc);
    rewrite(&s);
    arena_free(&s.arena);
    if (s.b.err)
        graph_free(new_graph);
    else
        *out = new_graph;
    return s.b.err;
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
