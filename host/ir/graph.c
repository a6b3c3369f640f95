#include "ir/graph.h"

Graph *graph_new(Ctx *cx) {
    Arena arena;
    arena_init(&arena, &cx->alloc);
    Graph *g = ARENA_NEW(&arena, Graph);
    if (!g) return NULL;
    g->cx = cx;
    g->arena = arena;
    if (VEC_PUSH(&g->arena, &g->node, (Node){0}) && VEC_PUSH(&g->arena, &g->value, (Value){0}) &&
        VEC_PUSH(&g->arena, &g->region, (Region){.first = 1}))
        return g;
    graph_free(g);
    return NULL;
}

bool graph_room_for(Graph *g, const Graph *like) {
    return VEC_ROOM(&g->arena, &g->node, like->node.n) &&
           VEC_ROOM(&g->arena, &g->value, like->value.n);
}

void graph_free(Graph *g) {
    if (!g) return;
    Arena arena = g->arena; /* it holds g */
    arena_free(&arena);
}

bool graph_within(const Graph *g, int32_t region, int32_t outer) {
    while (region != outer && region != 0)
        region = graph_node(g, g->region.at[region].owner)->region;
    return region == outer;
}

bool graph_add_span(Graph *g, Span s) {
    int32_t k = g->span.n;
    while (k && g->span.at[k - 1].first >= s.first) {
        g->span.at[k - 1].outer = g->span.n + 1;
        k = g->span.at[k - 1].before;
    }
    s.before = k;
    s.outer = 0;
    return VEC_PUSH(&g->arena, &g->span, s);
}

int32_t graph_span_ending(const Graph *g, int32_t id) {
    int32_t lo = 0, hi = g->span.n;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (g->span.at[mid].end <= id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

Span *graph_rule_ending(const Graph *g, int32_t id) {
    for (int32_t i = graph_span_ending(g, id); i < g->span.n && g->span.at[i].end == id + 1; i++)
        if (g->span.at[i].rule) return &g->span.at[i];
    return NULL;
}

bool graph_is_ruled(const Graph *g, Val v) {
    int32_t id = g->value.at[v].node, k = graph_span_ending(g, id);
    const Span *s = k < g->span.n ? &g->span.at[k] : NULL;
    return s && s->rule && s->first <= id && id >= s->end - s->rule->ny;
}

void graph_in_types(const Graph *g, const Node *n, const Type **types) {
    for (int i = 0; i < n->nin; i++) types[i] = graph_type(g, n->in[i]);
}

void graph_out_types(const Graph *g, const Node *n, const Type **types) {
    for (int i = 0; i < n->nout; i++) types[i] = graph_type(g, n->out + i);
}

int32_t *graph_use_counts(const Graph *g, Arena *arena) {
    int32_t *uses = ARENA_ARRAY(arena, int32_t, g->value.n);
    if (!uses) return NULL;
    for (int32_t i = 1; i < g->node.n; i++) {
        const Node *n = graph_node(g, i);
        for (int k = 0; k < n->nin; k++) uses[n->in[k]]++;
    }
    for (int32_t r = 0; r < g->region.n; r++)
        for (int k = 0; k < g->region.at[r].result.n; k++) uses[g->region.at[r].result.at[k]]++;
    return uses;
}

Uses graph_uses(const Graph *g, Arena *arena) {
    Uses u = {ARENA_ARRAY(arena, int32_t, g->value.n + 1), NULL};
    int32_t total = 0;
    for (int32_t i = 1; i < g->node.n; i++) total += graph_node(g, i)->nin;
    u.list = ARENA_ARRAY(arena, int32_t, total ? total : 1);
    if (!u.start || !u.list) return (Uses){0};
    for (int32_t i = 1; i < g->node.n; i++)
        for (int k = 0; k < graph_node(g, i)->nin; k++) u.start[graph_node(g, i)->in[k] + 1]++;
    for (int32_t v = 0; v < g->value.n; v++) u.start[v + 1] += u.start[v];
    int32_t *at = ARENA_ARRAY(arena, int32_t, g->value.n);
    if (!at) return (Uses){0};
    for (int32_t i = 1; i < g->node.n; i++) {
        const Node *n = graph_node(g, i);
        for (int k = 0; k < n->nin; k++) u.list[u.start[n->in[k]] + at[n->in[k]]++] = i;
    }
    return u;
}

static uint64_t hash_node(const Graph *g, const Node *n, uint64_t h) {
    const OpDef *def = graph_opdef(g, n);
    h = hash_str(h, def->name);
    h = hash_bytes(h, n->in, sizeof *n->in * (size_t)n->nin);
    if (def->attr) h = attr_hash(def->attr, n->attr, h);
    h = hash_u64(h, (uint64_t)(uint32_t)n->region << 32 | (uint32_t)n->nbody);
    if (n->nbody) h = hash_bytes(h, n->body, sizeof *n->body * (size_t)n->nbody);
    h = hash_u64(h, (uint64_t)(uint32_t)n->clone);
    for (int i = 0; i < n->nout; i++)
        h = hash_u64(h, (uint64_t)(uint32_t)graph_type(g, n->out + i)->id);
    return h;
}

GraphHash graph_hash(const Graph *g) {
    GraphHash h = {1, 2};
    for (int32_t i = 1; i < g->node.n; i++) {
        h.lo = hash_node(g, graph_node(g, i), h.lo);
        h.hi = hash_node(g, graph_node(g, i), h.hi);
    }
    for (int32_t r = 0; r < g->region.n; r++) {
        const Region *region = &g->region.at[r];
        uint64_t *both[2] = {&h.lo, &h.hi};
        for (int k = 0; k < 2; k++) {
            *both[k] =
                hash_bytes(*both[k], region->param.at, sizeof(Val) * (size_t)region->param.n);
            *both[k] =
                hash_bytes(*both[k], region->result.at, sizeof(Val) * (size_t)region->result.n);
        }
    }
    if (g->mesh) h.hi = hash_u64(h.hi, (uint64_t)g->mesh->id);
    return h;
}
