#include "ir/copy.h"

bool copy_begin(Copy *c, const Graph *from, const Build *b) {
    *c = (Copy){.from = from, .b = *b};
    arena_init(&c->arena, &from->cx->alloc);
    c->map = ARENA_ARRAY(&c->arena, Val, from->value.n);
    c->region = ARENA_ARRAY(&c->arena, int32_t, from->region.n);
    if (!c->map || !c->region) {
        copy_no_memory(c);
        return false;
    }
    for (int32_t r = 1; r < from->region.n; r++) c->region[r] = -1;
    return true;
}

void copy_end(Copy *c) {
    arena_free(&c->arena);
}

void copy_no_memory(Copy *c) {
    build_fail(&c->b, err_nomem(c->from->cx, "a graph"));
}

void copy_enter(Copy *c, const Node *n) {
    if (c->region[n->region] < 0) c->region[n->region] = build_region(&c->b);
    c->b.region = c->region[n->region];
}

Val *copy_operands(Copy *c, const Node *n) {
    Val *in = ARENA_ARRAY(&c->arena, Val, n->nin + 1);
    if (!in) copy_no_memory(c);
    for (int i = 0; in && i < n->nin; i++) in[i] = c->map[n->in[i]];
    return in;
}

void copy_results(Copy *c, int32_t region) {
    int32_t before = c->b.region;
    c->b.region = c->region[region];
    for (int i = 0; i < c->from->region.at[region].result.n; i++)
        build_result(&c->b, c->map[c->from->region.at[region].result.at[i]]);
    c->b.region = before;
}

const int32_t *copy_bodies(Copy *c, const Node *n) {
    if (!n->nbody) return NULL;
    int32_t *body = ARENA_ARRAY(&c->arena, int32_t, n->nbody);
    if (!body) copy_no_memory(c);
    for (int k = 0; body && k < n->nbody; k++) {
        if (c->region[n->body[k]] < 0) c->region[n->body[k]] = build_region(&c->b);
        body[k] = c->region[n->body[k]];
        copy_results(c, n->body[k]);
    }
    return body;
}

void copy_set(Copy *c, const Node *n, Val v) {
    for (int i = 0; i < n->nout; i++) c->map[n->out + i] = v ? v + i : 0;
}

static Val with_bodies(Copy *c, const Node *n, const Val *in) {
    const int32_t *body = copy_bodies(c, n);
    const Type **types = ARENA_ARRAY(&c->arena, const Type *, n->nout + 1);
    if (!body || !types) {
        copy_no_memory(c);
        return 0;
    }
    graph_out_types(c->from, n, types);
    Build at = c->b;
    at.loc = n->loc;
    at.nloc = n->nloc;
    at.why = n->why;
    at.nwhy = n->nwhy;
    Val v = build_typed(&at, n->op, in, n->nin, n->attr, n->nout, types, body, n->nbody);
    build_fail(&c->b, at.err);
    if (v && n->clone) build_set_clone(&c->b, v, n->clone);
    return v;
}

Val copy_node_with(Copy *c, const Node *n, const Val *in) {
    Val v;
    if (c->b.err) return 0;
    copy_enter(c, n);
    if (graph_opdef(c->from, n)->flags & OPF_PARAM)
        v = build_param(&c->b, n->op, n->attr, graph_type(c->from, n->out));
    else
        v = n->nbody ? with_bodies(c, n, in) : build_like(&c->b, c->from, n, in);
    copy_set(c, n, v);
    return v;
}

Val copy_node(Copy *c, const Node *n) {
    const Val *in = copy_operands(c, n);
    return in ? copy_node_with(c, n, in) : 0;
}
