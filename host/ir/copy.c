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

bool copy_begin_graph(Copy *c, const Graph *from, bool local) {
    Build b = build_in(graph_new(from->cx), 0);
    b.local = local;
    bool ok = copy_begin(c, from, &b);
    if (b.g) b.g->mesh = from->mesh;
    if (b.g && graph_room_for(b.g, from)) return ok;
    copy_no_memory(c);
    return false;
}

Err copy_end_graph(Copy *c, Graph **out) {
    copy_end(c);
    if (c->b.err)
        graph_free(c->b.g);
    else
        *out = c->b.g;
    return c->b.err;
}

static int32_t region_of(Copy *c, int32_t region) {
    if (c->region[region] >= 0) return c->region[region];
    Build in = c->b;
    in.region = c->region[region] = build_region(&c->b);
    for (int i = 0; i < c->from->region.at[region].param.n; i++) {
        Val v = c->from->region.at[region].param.at[i];
        const Node *n = graph_def(c->from, v);
        if (c->dropped && c->dropped[v]) continue;
        c->map[v] = build_param(&in, n->op, n->attr, graph_type(c->from, v));
    }
    build_fail(&c->b, in.err);
    return c->region[region];
}

void copy_enter(Copy *c, const Node *n) {
    c->b.region = region_of(c, n->region);
}

Val *copy_operands(Copy *c, const Node *n) {
    Val *in = ARENA_ARRAY(&c->arena, Val, n->nin + 1);
    if (!in) copy_no_memory(c);
    for (int i = 0; in && i < n->nin; i++) in[i] = c->map[n->in[i]];
    return in;
}

int32_t copy_body(Copy *c, int32_t region, const bool *kept) {
    int32_t before = c->b.region;
    c->b.region = region_of(c, region);
    for (int i = 0; i < c->from->region.at[region].result.n; i++)
        if (!kept || kept[i]) build_result(&c->b, c->map[c->from->region.at[region].result.at[i]]);
    c->b.region = before;
    return c->region[region];
}

void copy_results(Copy *c, int32_t region) {
    copy_body(c, region, NULL);
}

/* The regions of n as they are now, with their mapped results. NULL when out of memory, or n owns
 * none. */
static const int32_t *bodies(Copy *c, const Node *n) {
    if (!n->nbody) return NULL;
    int32_t *body = ARENA_ARRAY(&c->arena, int32_t, n->nbody);
    if (!body) copy_no_memory(c);
    for (int k = 0; body && k < n->nbody; k++) body[k] = copy_body(c, n->body[k], NULL);
    return body;
}

void copy_set(Copy *c, const Node *n, Val v) {
    for (int i = 0; i < n->nout; i++) c->map[n->out + i] = v ? v + i : 0;
}

static Val with_bodies(Copy *c, const Node *n, const Val *in) {
    const int32_t *body = bodies(c, n);
    const Type **types = ARENA_ARRAY(&c->arena, const Type *, n->nout + 1);
    if (!body || !types) {
        copy_no_memory(c);
        return 0;
    }
    graph_out_types(c->from, n, types);
    Build at = build_at(&c->b, c->from, n);
    Val v = build_typed(&at, n->op, in, n->nin, n->attr, n->nout, types, body, n->nbody);
    build_fail(&c->b, at.err);
    if (v && n->clone) build_set_clone(&c->b, v, n->clone);
    return v;
}

Val copy_node_with(Copy *c, const Node *n, const Val *in) {
    Val v;
    if (c->b.err) return 0;
    copy_enter(c, n);
    bool param = graph_opdef(c->from, n)->flags & OPF_PARAM;
    if (param && n->region) return c->map[n->out];
    if (param)
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

/* ---- spans go along ---- */
static Graph *graph_of(CopySpans *s) {
    return s->c->b.g;
}

bool copy_spans_begin(CopySpans *s, Copy *c, int32_t region, int32_t first, int32_t end,
                      bool deep) {
    const Graph *g = c->from;
    *s = (CopySpans){.c = c, .region = region, .first = first, .end = end, .deep = deep};
    s->at = ARENA_ARRAY(&c->arena, int32_t, end - first + 1);
    s->next = ARENA_ARRAY(&c->arena, int32_t, g->span.n + 1);
    if (!s->at || !s->next) {
        copy_no_memory(c);
        return false;
    }
    for (int32_t k = 1; k <= g->span.n; k++) { /* outer ones come last, and stand in front */
        const Span *span = &g->span.at[k - 1];
        if (span->first < first || span->end > end) continue;
        int32_t in = graph_node(g, span->end - 1)->region;
        if (deep ? !graph_within(g, in, region) : in != region) continue;
        s->next[k] = s->at[span->first - first];
        s->at[span->first - first] = k;
    }
    return true;
}

void copy_spans_open(CopySpans *s, int32_t id) {
    Graph *g = graph_of(s);
    for (int32_t k = s->at[id - s->first]; k; k = s->next[k]) {
        Span one = g->span.at[k - 1];
        /* Its gradient has been taken: what is differentiated now is the function. */
        if (!s->deep && one.rule && one.taken && !one.rule->t) continue;
        if (!VEC_PUSH(&s->c->arena, &s->open, (CopiedSpan){one, g->node.n, 0, 0}))
            copy_no_memory(s->c);
    }
    for (int32_t i = 0; i < s->open.n; i++) {
        CopiedSpan *o = &s->open.at[i];
        if (o->one.rule && o->one.rule->bwd == id) o->bwd = g->node.n;
        if (o->one.rule && o->one.rule->bwd_end == id) o->bwd_end = g->node.n;
    }
}

static const Val *mapped(CopySpans *s, const Val *list, int32_t n) {
    Val *out = list ? ARENA_ARRAY(&graph_of(s)->arena, Val, n + 1) : NULL;
    if (list && !out) copy_no_memory(s->c);
    for (int32_t i = 0; out && i < n; i++) out[i] = s->c->map[list[i]];
    return out;
}

static void close_span(CopySpans *s, const CopiedSpan *o) {
    Graph *g = graph_of(s);
    Span all = {.first = o->first, .end = g->node.n, .policy = o->one.policy};
    all.taken = o->one.taken;
    if (o->one.rule) {
        CustomVjp *rule = arena_copy(&g->arena, o->one.rule, sizeof *rule);
        if (!rule) {
            copy_no_memory(s->c);
            return;
        }
        rule->bwd = o->bwd;
        rule->bwd_end = o->bwd_end;
        rule->x = mapped(s, rule->x, rule->nx);
        rule->dx = mapped(s, rule->dx, rule->nx);
        rule->t = mapped(s, rule->t, rule->nx);
        rule->y = mapped(s, rule->y, rule->ny);
        rule->ct = mapped(s, rule->ct, rule->ny);
        rule->dy = mapped(s, rule->dy, rule->ny);
        all.rule = rule;
    }
    if (all.first < all.end && !s->c->b.err && !graph_add_span(g, all)) copy_no_memory(s->c);
}

void copy_spans_close(CopySpans *s, int32_t id) {
    while (s->open.n && s->open.at[s->open.n - 1].one.end == id)
        close_span(s, &s->open.at[--s->open.n]);
}

void copy_stretch(Copy *c, int32_t region, int32_t first, int32_t end, int32_t clone) {
    const Graph *g = c->from;
    CopySpans spans;
    if (c->b.err || !copy_spans_begin(&spans, c, region, first, end, true)) return;
    for (int32_t id = first; id < end && !c->b.err; id++) {
        copy_spans_open(&spans, id);
        const Node n = *graph_node(g, id);
        uint32_t flags = graph_opdef(g, &n)->flags;
        bool stays = n.region == region && flags & OPF_PARAM;
        if (n.nout && flags & OPF_PLACEHOLDER && c->map[n.out]) stays = true; /* it has its value */
        if (graph_within(g, n.region, region) && !stays) {
            Val v = copy_node(c, &n);
            if (v && clone && !(flags & OPF_PARAM)) build_set_clone(&c->b, v, clone);
        }
        copy_spans_close(&spans, id + 1);
    }
}
