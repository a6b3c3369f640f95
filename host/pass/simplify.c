/* simplify.c - dead code, folding by the ops' own rules, and equal nodes made one. */
#include "pass/layout/constraint.h"
#include "op/op.h"
#include "pass/pass.h"

#include <string.h>

/* ---- what leads to a result ---- */

typedef struct Live {
    const Graph *g;
    bool *value, *node, grown;
} Live;

static void mark(Live *l, Val v) {
    l->grown = l->grown || !l->value[v];
    l->value[v] = true;
}

static void mark_result(Live *l, const Node *n, int32_t result) {
    for (int k = 0; result >= 0 && k < n->nbody; k++)
        mark(l, l->g->region.at[n->body[k]].result.at[result]);
}

/* Is the way in or out of the node's regions used? */
static bool is_used(const Live *l, const Node *n, const Flow *f) {
    bool used = f->steers || (f->out >= 0 && l->value[n->out + f->out]);
    for (int k = 0; f->param >= 0 && (f->carried || f->out < 0) && k < n->nbody; k++)
        used = used || l->value[l->g->region.at[n->body[k]].param.at[f->param]];
    return used;
}

static void mark_operands(Live *l, const Node *n, const OpDef *def) {
    Flow f;
    for (int i = 0; !def->flow && i < n->nin; i++) mark(l, n->in[i]);
    for (int k = 0; !def->flow && k < n->nbody; k++)
        for (int i = 0; i < l->g->region.at[n->body[k]].result.n; i++) mark_result(l, n, i);
    for (int i = 0; def->flow && def->flow(n, i, &f); i++) {
        if (!is_used(l, n, &f)) continue;
        if (f.in >= 0) mark(l, n->in[f.in]);
        mark_result(l, n, f.result);
    }
}

/* Regions stand before their node, and carries lead back to their beginning: the walk is repeated
 * until nothing is added. */
static bool mark_live(Live *l, const Graph *g, Arena *arena) {
    *l = (Live){g, ARENA_ARRAY(arena, bool, g->value.n), ARENA_ARRAY(arena, bool, g->node.n), true};
    if (!l->value || !l->node) return false;
    for (int i = 0; i < g->region.at[0].result.n; i++) mark(l, g->region.at[0].result.at[i]);
    while (l->grown) {
        l->grown = false;
        for (int32_t id = g->node.n - 1; id > 0; id--) {
            const Node *n = graph_node(g, id);
            const OpDef *def = graph_opdef(g, n);
            bool live = def->flags & OPF_PARAM && n->region == 0; /* the signature stays */
            for (int i = 0; i < n->nout; i++) live = live || l->value[n->out + i];
            l->node[id] = live;
            if (live) mark_operands(l, n, def);
        }
    }
    return true;
}

/* Parameters of regions that go with their way in. */
static void mark_dropped(const Live *l, bool *dropped) {
    const Graph *g = l->g;
    Flow f;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        for (int i = 0; l->node[id] && def->flow && def->flow(n, i, &f); i++)
            for (int k = 0; f.param >= 0 && !is_used(l, n, &f) && k < n->nbody; k++)
                dropped[g->region.at[n->body[k]].param.at[f.param]] = true;
    }
}

typedef struct Simplify {
    Copy c;
    Live live;
    Map seen; /* nodes of the new graph by content */
} Simplify;

typedef struct NodeProbe {
    uint16_t op;
    const Val *in;
    int nin;
    const void *attr;
    int32_t clone, region;
    const Layout *layout; /* of its first result, as far as its type says */
} NodeProbe;

static bool same_node(const void *ud, const void *probe, int32_t id) {
    const Graph *g = ud;
    const NodeProbe *c = probe;
    const Node *n = graph_node(g, id);
    const AttrField *fields = graph_opdef(g, n)->attr;
    return n->op == c->op && n->nin == c->nin && n->clone == c->clone && n->region == c->region &&
           (!n->nout || graph_type(g, n->out)->layout == c->layout) &&
           memcmp(n->in, c->in, sizeof(Val) * (size_t)n->nin) == 0 &&
           attr_equal(fields, n->attr, c->attr);
}

static uint64_t content_hash(const Graph *g, const NodeProbe *c) {
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
        if (!both) {
            copy_no_memory(&s->c);
            return;
        }
        if (into->nloc) memcpy(both, into->loc, sizeof *both * (size_t)into->nloc);
        both[into->nloc] = other->loc[i];
        into->loc = both;
        into->nloc++;
    }
}

/* A node that owns regions, without the ways in and out that nobody uses. */
static void narrow_node(Simplify *s, const Node *n, const OpDef *def) {
    Copy *c = &s->c;
    const Graph *g = c->from;
    int nresult = g->region.at[n->body[0]].result.n, most = n->nin + nresult + n->nout + 1;
    uint8_t *kept = ARENA_ARRAY(&c->arena, uint8_t, most);
    bool *result = ARENA_ARRAY(&c->arena, bool, most), *out = ARENA_ARRAY(&c->arena, bool, most);
    Val *in = ARENA_ARRAY(&c->arena, Val, most);
    const Type **types = ARENA_ARRAY(&c->arena, const Type *, most);
    int32_t *body = ARENA_ARRAY(&c->arena, int32_t, n->nbody);
    void *attr = arena_alloc(&c->arena, def->attr_size);
    if (!kept || !result || !out || !in || !types || !body || !attr) {
        copy_no_memory(c);
        return;
    }
    Flow f;
    int nin = 0, nout = 0;
    for (int i = 0; def->flow(n, i, &f); i++) {
        kept[i] = is_used(&s->live, n, &f);
        if (!kept[i]) continue;
        if (f.in >= 0) in[nin++] = c->map[n->in[f.in]];
        if (f.result >= 0) result[f.result] = true;
        if (f.out >= 0) out[f.out] = true;
    }
    for (int k = 0; k < n->nbody; k++) body[k] = copy_body(c, n->body[k], result);
    for (int i = 0; i < n->nout; i++)
        if (out[i]) types[nout++] = graph_type(g, n->out + i);
    if (n->attr) memcpy(attr, n->attr, def->attr_size);
    def->keep(n, kept, attr);
    copy_enter(c, n);
    Build at = build_at(&c->b, g, n);
    Val v = build_typed(&at, n->op, in, nin, attr, nout, types, body, n->nbody);
    build_fail(&c->b, at.err);
    if (v && n->clone) build_set_clone(&c->b, v, n->clone);
    for (int i = 0; v && i < n->nout; i++)
        if (out[i]) c->map[n->out + i] = v++;
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
    if (def->flow) {
        narrow_node(s, n, def);
        return;
    }
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
    NodeProbe want = {
        n->op, in, n->nin, n->attr, n->clone, c->b.region, type ? type->layout : NULL};
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
    Simplify s = {0};
    if (copy_begin_graph(&s.c, g, false)) {
        bool *dropped = ARENA_ARRAY(&s.c.arena, bool, g->value.n);
        Statements said = {0};
        if (!dropped || !mark_live(&s.live, g, &s.c.arena)) copy_no_memory(&s.c);
        if (!s.c.b.err) mark_dropped(&s.live, dropped);
        s.c.dropped = dropped;
        if (!s.c.b.err)
            build_fail(&s.c.b, constraint_statements(g, s.live.node, &s.c.arena, &said));
        for (int32_t id = 1; id < g->node.n && !s.c.b.err; id++) {
            if (s.live.node[id])
                simplify_node(&s, graph_node(g, id));
            else if (said.is[id])
                constraint_copy(&said, &s.c, graph_node(g, id));
        }
        copy_results(&s.c, 0);
    }
    return copy_end_graph(&s.c, out);
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
