/* batch.c - vmap: the nodes of one example become nodes of all, by the rules of their rows. What
 * does not depend on a mapped value is the same for every example, and stays as it is.
 *
 * The function was traced on one example, so its nodes stand in the graph. They are walked in
 * order, and for each that somebody needs its row's rule appends nodes of all examples, which stand
 * in front (dim 0). `map` leads from a value of one example to that of all. An op without a rule is
 * written in terms of others for one example, and these are batched in turn; a body of a loop or
 * branch becomes a new region, in which even what is the same for every example is made again
 * (`same`).
 *
 * A value without an entry in `map` is the same for every example: it may be used as it is, or
 * repeated for each (spread). What marks nodes for a later gradient (spans) marks those of
 * all examples alike, or a gradient of vmap would not be the vmap of the gradient. */
#include "op/op.h"
#include "pass/guarded.h"
#include "pass/pass.h"

#include <string.h>

typedef struct Batch {
    Build *b;
    BatchCall *call;
    Arena arena;
    int32_t end;    /* the nodes of one example are [call->first, end), and expansions */
    int32_t nvalue; /* room in `map` */
    Val *map;       /* by value: that of all examples; 0: it is the same for every one */
    Val *same;      /* by value that is: what stands for it now; 0: itself */
    RegionBatch regions;
    bool *live; /* by node of [0, end) */
} Batch;

static void no_memory(Batch *m) {
    build_fail(m->b, err_nomem(m->b->g->cx, "vmap"));
}

static bool room_for(Batch *m, int32_t n) {
    if (n <= m->nvalue) return true;
    int32_t room = n + n / 2;
    Val *map = ARENA_ARRAY(&m->arena, Val, room), *same = ARENA_ARRAY(&m->arena, Val, room);
    if (!map || !same) {
        no_memory(m);
        return false;
    }
    if (m->nvalue) {
        memcpy(map, m->map, sizeof *map * (size_t)m->nvalue);
        memcpy(same, m->same, sizeof *same * (size_t)m->nvalue);
    }
    m->map = map;
    m->same = same;
    m->nvalue = room;
    return true;
}

static Val mapped(const Batch *m, Val v) {
    return v < m->nvalue ? m->map[v] : 0;
}

/* The value that is the same for every example, where things are built now. */
static Val plain(const Batch *m, Val v) {
    return v < m->nvalue && m->same[v] ? m->same[v] : v;
}

/* The value with the examples in front, whatever it is. */
static Val spread(Batch *m, Val v) {
    if (mapped(m, v)) return m->map[v];
    const bool no = false;
    v = plain(m, v);
    BatchArgs a = {.size = m->call->size, .in = &v, .mapped = &no};
    return batch_operand(m->b, &a, 0);
}

/* ---- what is needed ---- */

static void need(Batch *m, Val v) {
    const Value *value = &m->b->g->value.at[v];
    if (v && value->node < m->end) m->live[value->node] = true;
}

/* The results of a custom_vjp's function: their gradient's parts are needed, too. */
static void need_custom(Batch *m, const CustomVjp *c) {
    bool any = false;
    for (int i = 0; i < c->ny; i++) any = any || m->live[m->b->g->value.at[c->y[i]].node];
    for (int i = 0; any && i < c->ny; i++) need(m, c->y[i]);
    for (int i = 0; any && i < c->nx; i++) need(m, c->dx[i]);
    for (int i = 0; any && c->t && i < c->ny; i++) need(m, c->dy[i]);
}

static void mark_live(Batch *m) {
    const Graph *g = m->b->g;
    int32_t span = g->span.n - 1;
    for (int i = 0; i < m->call->nout; i++) need(m, m->call->out[i]);
    for (int32_t id = m->end - 1; id >= m->call->first; id--) {
        const Node *n = graph_node(g, id);
        /* A custom_vjp's results are the last nodes of its span. */
        for (; span >= 0 && g->span.at[span].end > id; span--) {
            const CustomVjp *c = g->span.at[span].rule;
            if (c) need_custom(m, c);
        }
        for (int i = 0; m->live[id] && i < n->nin; i++) need(m, n->in[i]);
        for (int k = 0; m->live[id] && k < n->nbody; k++) {
            const Region *r = &g->region.at[n->body[k]];
            for (int i = 0; i < r->result.n; i++) need(m, r->result.at[i]);
        }
    }
}

/* ---- one node ---- */

static void batch_node(Batch *m, const Node *n);

/* By the op's definition: that of one example is appended, and batched in turn. */
static void batch_expansion(Batch *m, const Node *n, const OpDef *def) {
    enum { MAX = 8 };
    Val out[MAX] = {0};
    Graph *g = m->b->g;
    int32_t first = g->node.n;
    Build one = *m->b;
    one.region = n->region;
    def->expand(&one, n, n->in, out);
    build_fail(m->b, one.err);
    int32_t end = g->node.n;
    for (int32_t id = first; id < end && !m->b->err; id++) {
        Node inner = *graph_node(g, id);
        batch_node(m, &inner);
    }
    if (m->b->err || !room_for(m, g->value.n)) return;
    for (int i = 0; i < n->nout; i++) m->map[n->out + i] = spread(m, out[i]);
}

static void refuse(Batch *m, const OpDef *def, const char *why) {
    build_fail(m->b, err_set(m->b->g->cx, E_VALUE, "vmap: %s %s", def->name, why));
}

static void check_rank(Batch *m, const Node *n, const OpDef *def) {
    for (int i = 0; i < n->nin + n->nout; i++) {
        Val v = node_tensor(n, i);
        if (graph_type(m->b->g, v)->dims.rank == MAX_RANK && !mapped(m, v))
            build_fail(m->b, err_set(m->b->g->cx, E_SHAPE,
                                     "vmap: %s works on rank %d for one example; %d is the most",
                                     def->name, MAX_RANK, MAX_RANK - 1));
    }
}

/* Nodes of all examples are copies where that of one is. */
static void mark_clones(Batch *m, int32_t first, int32_t clone) {
    for (int32_t id = first; clone && id < m->b->g->node.n; id++)
        build_set_clone(m->b, graph_node(m->b->g, id)->out, clone);
}

static void batch_by_rule(Batch *m, const Node *n, const bool *is_mapped, Val *in) {
    const OpDef *def = graph_opdef(m->b->g, n);
    Val *out = ARENA_ARRAY(&m->arena, Val, n->nout + 1);
    bool *same = ARENA_ARRAY(&m->arena, bool, n->nout + 1);
    BatchArgs a = {.def = def,
                   .node = n,
                   .size = m->call->size,
                   .in = in,
                   .mapped = is_mapped,
                   .axis = m->call->axis,
                   .naxis = m->call->naxis,
                   .name = m->call->name,
                   .out = out,
                   .same = same,
                   .regions = &m->regions};
    void (*rule)(Build *, const BatchArgs *) = def->batch;
    if (!rule && def->flags & OPF_ELEMENTWISE) rule = batch_leading;
    if (!out || !same) no_memory(m);
    if (rule && !m->b->err) rule(m->b, &a);
    if (m->b->err) return;
    if (rule && out[0]) {
        for (int i = 0; i < n->nout; i++) (same[i] ? m->same : m->map)[n->out + i] = out[i];
    } else if (def->expand) {
        batch_expansion(m, n, def);
    } else {
        refuse(m, def, "has no rule for many examples");
    }
}

/* Was the layout of one example's result settled by its maker (out_sharding, a gradient), since the
 * operands' leave it open? */
static bool was_settled(Batch *m, const Node *n) {
    if (graph_opdef(m->b->g, n)->flags & OPF_TYPED) return false;
    Build again = build_at(m->b, m->b->g, n);
    again.err = E_OK;
    again.strict = true;
    build_op(&again, n->op, n->in, n->nin, n->attr);
    return again.err != E_OK;
}

/* How the result then lies: as that of one example, with the examples as they come. */
static const Layout *settled_layout(Batch *m, const Node *n, const Val *in, const bool *is_mapped) {
    const Layout *one = graph_type(m->b->g, n->out)->layout;
    if (!one) return NULL;
    Layout l = layout_stack(one);
    for (int i = 0; i < n->nin; i++) {
        const Layout *have = is_mapped[i] ? graph_type(m->b->g, in[i])->layout : NULL;
        if (have && have->dim[0].axes.n > l.dim[0].axes.n) l.dim[0].axes = have->dim[0].axes;
    }
    return layout_of(m->b->g->cx, &l);
}

static void batch_node(Batch *m, const Node *n) {
    bool any = false, moved = n->region != m->b->region;
    bool *is_mapped = ARENA_ARRAY(&m->arena, bool, n->nin + 1);
    Val *in = ARENA_ARRAY(&m->arena, Val, n->nin + 1);
    if (!is_mapped || !in) {
        no_memory(m);
        return;
    }
    for (int i = 0; i < n->nin; i++) {
        is_mapped[i] = mapped(m, n->in[i]) != 0;
        in[i] = is_mapped[i] ? m->map[n->in[i]] : plain(m, n->in[i]);
        any = any || is_mapped[i];
        moved = moved || in[i] != n->in[i];
    }
    if (!moved || !room_for(m, n->out + n->nout)) return;
    if (!any && !n->nbody) { /* in a region that is built anew, or of what such a node gives */
        Val v = build_like(m->b, m->b->g, n, in);
        for (int i = 0; v && i < n->nout; i++) m->same[n->out + i] = v + i;
        return;
    }
    const OpDef *def = graph_opdef(m->b->g, n);
    int32_t first = m->b->g->node.n;
    Build at = build_at(m->b, m->b->g, n), *b = m->b;
    m->b = &at;
    if (any) check_rank(m, n, def);
    Build before = at;
    if (!at.err) batch_by_rule(m, n, is_mapped, in);
    if (at.err == E_SPEC && at.strict && was_settled(m, n)) {
        at = before;
        at.strict = false;
        at.want = settled_layout(m, n, in, is_mapped);
        batch_by_rule(m, n, is_mapped, in);
    }
    if (!at.err) mark_clones(m, first, n->clone);
    m->b = b;
    build_fail(b, at.err);
}

/* ---- spans: what one example's transforms marked is marked for all ---- */

static Val spread_if(Batch *m, Val v, bool is_mapped) {
    return is_mapped ? spread(m, v) : plain(m, v);
}

static const int32_t *spread_list(Batch *m, const Val *list, int n, bool is_mapped) {
    Val *all = ARENA_ARRAY(&m->b->g->arena, Val, n + 1);
    if (!all) no_memory(m);
    for (int i = 0; all && i < n; i++) all[i] = list[i] ? spread_if(m, list[i], is_mapped) : 0;
    return all;
}

static void spread_placeholder(Batch *m, Val one, bool is_mapped) {
    if (!one || m->b->err || !room_for(m, one + 1)) return;
    const Type *type = graph_type(m->b->g, one);
    if (is_mapped && type->dims.rank == MAX_RANK) {
        refuse(m, graph_opdef(m->b->g, graph_def(m->b->g, one)), "has no room for a dim");
        return;
    }
    if (is_mapped) type = type_stack(m->b->g->cx, type, m->call->size);
    if (!type)
        no_memory(m);
    else
        (is_mapped ? m->map : m->same)[one] =
            build_typed(m->b, OP_PLACEHOLDER, NULL, 0, NULL, 1, &type, NULL, 0);
}

/* Placeholders of the cotangents, before what computes with them: of all examples, or of what they
 * share. Those of tangents are as what they are the tangents of. */
static void spread_placeholders(Batch *m, const CustomVjp *c, bool is_mapped) {
    for (int i = 0; i < c->ny; i++) spread_placeholder(m, c->ct[i], is_mapped);
    for (int i = 0; c->t && i < c->nx; i++)
        spread_placeholder(m, c->t[i], is_mapped && mapped(m, c->x[i]));
}

/* The cotangents of what all examples share add up over them. */
static Val sum_examples(Build *b, Val dx) {
    Dims dims = op_dims(b, dx);
    Val sum = op_reduce(b, OP_SUM, dx, &(Dims){1, {0}});
    for (int d = 0; d < dims.rank; d++) dims.at[d] = d + 1 < dims.rank ? dims.at[d + 1] : 0;
    dims.rank--;
    return dx ? op_reshape(b, sum, &dims) : 0;
}

static CustomVjp *spread_custom(Batch *m, const CustomVjp *c, bool is_mapped) {
    CustomVjp *all = ARENA_NEW(&m->b->g->arena, CustomVjp);
    Val *x = ARENA_ARRAY(&m->b->g->arena, Val, c->nx + 1);
    Val *dx = ARENA_ARRAY(&m->b->g->arena, Val, c->nx + 1);
    if (!all || !x || !dx) {
        no_memory(m);
        return NULL;
    }
    for (int i = 0; i < c->nx; i++) {
        Val many = mapped(m, c->x[i]);
        x[i] = many ? many : plain(m, c->x[i]);
        if (!c->dx[i]) continue;
        /* What is computed once counts for every example. */
        dx[i] = spread_if(m, c->dx[i], is_mapped);
        if (is_mapped && !many) dx[i] = sum_examples(m->b, dx[i]);
    }
    *all = (CustomVjp){.nx = c->nx, .ny = c->ny, .x = x, .dx = dx};
    all->ct = spread_list(m, c->ct, c->ny, is_mapped);
    if (!c->t) return all;
    Val *t = ARENA_ARRAY(&m->b->g->arena, Val, c->nx + 1);
    if (!t) no_memory(m);
    for (int i = 0; t && i < c->nx; i++)
        t[i] = c->t[i] ? spread_if(m, c->t[i], is_mapped && mapped(m, c->x[i])) : 0;
    all->t = t;
    all->dy = spread_list(m, c->dy, c->ny, is_mapped);
    return all;
}

/* A span while its nodes are batched. */
typedef struct Open {
    Span one;
    bool is_mapped;              /* or all of it is the same for every example */
    int32_t first, bwd, bwd_end; /* of all examples */
} Open;

/* Do the nodes [first, end) read a value that `map` has another for? */
static bool touches(const Batch *m, const Span *s, const Val *map) {
    const Graph *g = m->b->g;
    for (int32_t id = s->first; id < s->end; id++) {
        const Node *n = graph_node(g, id);
        for (int i = 0; m->live[id] && i < n->nin; i++)
            if (n->in[i] < m->nvalue && map[n->in[i]]) return true;
    }
    return false;
}

static void close_span(Batch *m, const Open *o) {
    Graph *g = m->b->g;
    Span all = {o->first, g->node.n, .policy = o->one.policy, .taken = o->one.taken};
    if (o->one.rule) {
        CustomVjp *c = spread_custom(m, o->one.rule, o->is_mapped);
        if (!c) return;
        c->bwd = o->bwd;
        c->bwd_end = g->node.n;
        Val *y = ARENA_ARRAY(&g->arena, Val, c->ny + 1);
        if (!y) {
            no_memory(m);
            return;
        }
        for (int i = 0; i < c->ny; i++) { /* the last nodes of the span, as in that of one */
            Val one = o->one.rule->y[i], from = graph_def(g, one)->in[0];
            y[i] = op1(m->b, OP_IDENTITY, spread_if(m, from, o->is_mapped));
            (o->is_mapped ? m->map : m->same)[one] = y[i];
        }
        c->y = y;
        all.rule = c;
        all.end = g->node.n;
    }
    if (all.first < all.end && !m->b->err && !graph_add_span(g, all)) no_memory(m);
}

/* Where a span's function was called: in the region of its last node. */
static int32_t region_of(const Graph *g, const Span *s) {
    return graph_node(g, s->end - 1)->region;
}

/* The spans by their first node, from `first` on: lists from 1 on through `next`, the outer ones
 * first. */
static int32_t *spans_by_first(Batch *m, int32_t first, int32_t end, int32_t **next) {
    const Graph *g = m->b->g;
    int32_t *at = ARENA_ARRAY(&m->arena, int32_t, end - first + 1);
    *next = ARENA_ARRAY(&m->arena, int32_t, g->span.n + 1);
    if (!at || !*next) {
        no_memory(m);
        return NULL;
    }
    for (int32_t s = 1; s <= g->span.n; s++) {
        const Span *span = &g->span.at[s - 1];
        if (span->first < first || span->end > end) continue;
        (*next)[s] = at[span->first - first];
        at[span->first - first] = s;
    }
    return at;
}

/* The nodes [first, end) of a region. */
static void batch_nodes(Batch *m, int32_t first, int32_t end, int32_t region) {
    Graph *g = m->b->g;
    bool anew = region != m->b->region;
    VEC(Open) open = {0};
    int32_t *next, *spans = spans_by_first(m, first, end, &next);
    for (int32_t id = first; id <= end && !m->b->err; id++) {
        while (open.n && open.at[open.n - 1].one.end == id) {
            close_span(m, &open.at[open.n - 1]);
            open.n--;
        }
        if (id == end) break;
        for (int32_t s = spans[id - first]; s; s = next[s]) {
            Span one = g->span.at[s - 1];
            if (region_of(g, &one) != region) continue;
            bool is_mapped = touches(m, &one, m->map);
            if (!anew && !is_mapped && !touches(m, &one, m->same)) continue;
            if (one.rule) spread_placeholders(m, one.rule, is_mapped);
            if (!VEC_PUSH(&m->arena, &open, (Open){one, is_mapped, g->node.n, 0, 0})) no_memory(m);
        }
        for (int i = 0; i < open.n; i++)
            if (open.at[i].one.rule && open.at[i].one.rule->bwd == id) open.at[i].bwd = g->node.n;
        Node n = *graph_node(g, id);
        bool result = false; /* identities that close_span makes */
        for (int i = 0; i < open.n; i++)
            result = result ||
                     (open.at[i].one.rule && id >= open.at[i].one.end - open.at[i].one.rule->ny);
        if (m->live[id] && n.region == region && !result &&
            !(graph_opdef(g, &n)->flags & OPF_PARAM))
            batch_node(m, &n);
    }
}

/* ---- regions, for the rules of the nodes that own them ---- */

static Batch *batch_of(const RegionBatch *r) {
    return (Batch *)(void *)((char *)(uintptr_t)r - offsetof(Batch, regions));
}

static void region_mapped(const RegionBatch *rb, int32_t region, const bool *param, bool *result) {
    Batch *m = batch_of(rb);
    const Graph *g = m->b->g;
    const Region *r = &g->region.at[region];
    bool *is = ARENA_ARRAY(&m->arena, bool, g->value.n);
    if (!is) {
        no_memory(m);
        return;
    }
    for (int i = 0; i < r->param.n; i++) is[r->param.at[i]] = param[i];
    for (int32_t id = r->first; id < graph_region_end(g, region); id++) {
        const Node *n = graph_node(g, id);
        bool any = false;
        for (int i = 0; n->region == region && i < n->nin; i++) any = any || is[n->in[i]];
        for (int i = 0; any && i < n->nout; i++) is[n->out + i] = true;
    }
    for (int i = 0; i < r->result.n; i++) result[i] = is[r->result.at[i]];
}

/* A region's parameters in the new one. */
static void enter_params(Batch *m, Build *inside, int32_t region, const bool *param) {
    Graph *g = inside->g;
    for (int i = 0; i < g->region.at[region].param.n && !inside->err; i++) {
        Val p = g->region.at[region].param.at[i];
        const Type *t = graph_type(g, p);
        if (param[i] && t->dims.rank == MAX_RANK) {
            build_fail(inside, err_set(g->cx, E_SHAPE,
                                       "vmap: a loop carries a tensor of rank %d; "
                                       "%d is the most",
                                       MAX_RANK, MAX_RANK - 1));
            return;
        }
        t = param[i] ? type_stack(g->cx, t, m->call->size) : t;
        (param[i] ? m->map : m->same)[p] = op_region_param(inside, t);
    }
}

static int32_t batch_region(const RegionBatch *rb, Build *b, int32_t region, const bool *param,
                            const bool *result) {
    Batch *m = batch_of(rb);
    Graph *g = b->g;
    int32_t first = 0, end = g->region.at[region].owner;
    Build inside = *b, *outer = m->b;
    inside.region = build_region(&inside);
    if (inside.err || !room_for(m, g->value.n)) {
        build_fail(b, inside.err);
        return 0;
    }
    for (int32_t id = end - 1; id > 0; id--) { /* what an earlier rebuild has left */
        const Node *n = graph_node(g, id);
        if (n->region != region) continue;
        first = id;
        for (int i = 0; i < n->nout; i++) m->map[n->out + i] = m->same[n->out + i] = 0;
    }
    m->b = &inside;
    enter_params(m, &inside, region, param);
    if (first) batch_nodes(m, first, end, region);
    for (int i = 0; i < g->region.at[region].result.n && !inside.err; i++) {
        Val v = g->region.at[region].result.at[i];
        build_result(&inside, result[i] ? spread(m, v) : plain(m, v));
    }
    m->b = outer;
    build_fail(b, inside.err);
    return inside.region;
}

static void batch(Build *b, BatchCall *c) {
    Batch m = {.b = b, .call = c, .end = b->g->node.n, .regions = {region_mapped, batch_region}};
    arena_init(&m.arena, &b->g->cx->alloc);
    m.live = ARENA_ARRAY(&m.arena, bool, m.end);
    if (!m.live) no_memory(&m);
    if (!b->err && room_for(&m, b->g->value.n)) {
        for (int i = 0; i < c->nexample; i++) m.map[c->example[i]] = c->all[i];
        mark_live(&m);
        batch_nodes(&m, c->first, m.end, b->region);
        for (int i = 0; i < c->nout && !b->err; i++) {
            Val all = mapped(&m, c->out[i]);
            c->is_mapped[i] = all != 0;
            /* Not the node itself: those of one example are let go. */
            bool fresh = all && b->g->value.at[all].node >= m.end;
            c->out[i] = fresh ? all : op1(b, OP_IDENTITY, all ? all : plain(&m, c->out[i]));
        }
    }
    arena_free(&m.arena);
}

typedef struct BatchWork {
    Guarded guarded;
    Build *b;
    BatchCall *call;
} BatchWork;

static Err run(Guarded *guarded) {
    const BatchWork *w = (const BatchWork *)guarded;
    batch(w->b, w->call);
    return w->b->err;
}

void pass_batch(Build *b, BatchCall *c) {
    if (b->err) return;
    BatchWork w = {{b->g, "vmap", run}, b, c};
    build_fail(b, guarded_run(&w.guarded));
}
