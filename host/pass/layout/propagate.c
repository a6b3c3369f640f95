/* propagate.c - a layout for every value: the fixpoint of the ops' sharding rules, in the order of
 * Shardy (github.com/openxla/shardy, docs/propagation.md): simple ops before others, agreement
 * before conflict.
 *
 * A few values are given a layout (seed.h), and the others are to get one with which little has to
 * be moved. An op's rule names the dims of its tensors that run together as one factor; so a visit
 * projects the layouts of its tensors onto the factors, takes for each factor the list of axes that
 * the tensors agree on (source_of), and lengthens the others' lists towards it (extend). Whoever
 * shares a value that grew is visited again.
 *
 * A list grows at its end only, by axes that its tensor has nowhere else: so what a later visit
 * finds continues what an earlier one wrote, and it ends. The order of visits is that of nodes and
 * rounds alone, so that a program has the same layouts wherever it is compiled. */
#include "op/op.h"
#include "pass/layout/constraint.h"
#include "pass/layout/flow.h"
#include "pass/layout/origin.h"
#include "pass/layout/seed.h"

/* Room for the projections of any rule: visits are many, and none needs what an earlier one had. */
typedef struct Room {
    Projection *proj;
    AxisList *list;
    int *rank;
} Room;

/* What the tiers ask of a node. */
typedef enum Trait {
    TAKES_PART = 1,
    PASS_OP = 2,   /* it has pass factors only */
    USED_ONCE = 4, /* its results are used at most once */
    EXPANDS = 8,   /* it has a factor that only its results have (a broadcast) */
} Trait;

enum { VISIT_KINDS = 8 };

typedef struct Propagate {
    const Graph *g;
    Arena arena;
    Layout *layout;    /* by value */
    int64_t *bytes;    /* by value: of the whole tensor */
    FactorRule **rule; /* by node; NULL: takes no part */
    Room room;         /* for one visit */
    FlowNodes flow;    /* numbered behind the nodes */
    int32_t *uses;     /* by value */
    Uses users;
    int32_t *queue, *other_queue; /* nodes to look at again; those of this round */
    bool *queued;
    uint8_t *traits; /* by node: a set of Trait */
    /* A visit gives nothing new unless a layout has changed since the last one of its kind: by
     * value when that was, by node and kind of visit when that was seen. */
    int32_t *changed, (*seen)[VISIT_KINDS], clock;
    Graph *sources; /* where axes come from is noted in it */
} Propagate;

/* What a tier lets through. */
typedef struct Tier {
    bool single_use, only_pass_ops, only_pass_factors, expand_backward;
} Tier;
static const Tier tiers[] = {
    {true, true, true, true},     /* elementwise, reshape, transpose: results used once */
    {false, true, true, true},    /* the same, used any number of times */
    {false, false, true, true},   /* pass factors of any op */
    {false, false, false, true},  /* everything, but an expanding op only backward */
    {false, false, false, false}, /* everything */
};

/* Has the op a factor that only its results have (a broadcast)? One of size 1 may be in no tensor:
 * that is none. */
static bool expands(const FactorRule *r, int nin, const int *ranks) {
    for (int f = 0; f < r->nfactor; f++) {
        bool in = false, out = false;
        for (int t = 0; t < nin; t++) in = in || factor_in(&r->tensor[t], ranks[t], f);
        for (int t = nin; t < r->ntensor; t++) out = out || factor_in(&r->tensor[t], ranks[t], f);
        if (out && !in) return true;
    }
    return false;
}

static bool is_pass_op(const FactorRule *r) {
    for (int f = 0; f < r->nfactor; f++)
        if (r->kind[f] != FACTOR_PASS) return false;
    return true;
}

static int rank_of(const Propagate *p, const Node *n, int tensor) {
    return graph_type(p->g, node_tensor(n, tensor))->dims.rank;
}

static Layout *layout_of_tensor(Propagate *p, const Node *n, int tensor) {
    return &p->layout[node_tensor(n, tensor)];
}

static int64_t bytes_of_tensor(const Propagate *p, const Node *n, int tensor) {
    return p->bytes[node_tensor(n, tensor)];
}

/* One op at one time: its tensors' projections, and what they may take. */
typedef struct View {
    Propagate *p;
    const Node *n;
    const FactorRule *r;
    Projection *proj; /* by tensor */
    const int *ranks;
    bool aggressive;
} View;

/* Is the axis wanted by another factor of this op that the tensor also has? Then agreement is not
 * possible and only the aggressive round decides. */
static bool contended(const View *v, int tensor, int factor, AxisRef ref) {
    for (int f = 0; f < v->r->nfactor; f++) {
        if (f == factor || !factor_in(&v->r->tensor[tensor], v->ranks[tensor], f)) continue;
        for (int t = 0; t < v->r->ntensor; t++)
            for (int i = 0; i < v->proj[t].factor[f].n; i++)
                if (axes_overlap(v->proj[t].factor[f].at[i], ref)) return true;
    }
    return false;
}

/* The list of axes that a factor is to have, and the largest tensor that has it; -1: none has any.
 * Lists agree where each is a prefix of the longest: then it is that one. Where they do not, the
 * basic round takes what they have in common, which splits no tensor against its layout, and the
 * aggressive one the list of the largest tensor, which costs most to move. */
static int source_of(const View *v, int factor, AxisList *list) {
    int source = -1;
    *list = (AxisList){0};
    for (int t = 0; t < v->r->ntensor; t++) {
        const AxisList *have = &v->proj[t].factor[factor];
        if (!have->n) continue;
        bool longer = axes_is_prefix(list, have), shorter = axes_is_prefix(have, list);
        bool larger =
            source >= 0 && bytes_of_tensor(v->p, v->n, t) > bytes_of_tensor(v->p, v->n, source);
        if (source < 0 || (longer && !shorter)) {
            *list = *have;
            source = t;
        } else if (longer && shorter) {
            if (larger) source = t;
        } else if (!shorter) { /* conflict */
            if (!v->aggressive) {
                int common = 0;
                while (common < list->n && common < have->n &&
                       axes_equal(&(AxisList){1, {list->at[common]}},
                                  &(AxisList){1, {have->at[common]}}))
                    common++;
                list->n = (uint8_t)common;
            } else if (larger) {
                *list = *have;
                source = t;
            }
        }
    }
    return source;
}

/* Extends the tensor's list for the factor towards `want`, axis by axis until one may not be; true
 * if it grew. An axis may not be where the tensor has it already, is to be whole along it, would be
 * cut unevenly, or (in the basic round) another of its factors may get it. Padding is all or
 * nothing: a list that cuts unevenly is taken whole, and only where the dim had none. A value that
 * an op has twice (a product with itself, a carry that a loop hands on unchanged) may have got an
 * axis through its other place on this visit: its layout is asked, too.
 *
 * The projection and the layout say the same before and after. A dim whose axes its factors do not
 * account for (a reshape that cuts elsewhere) stays as it is: put back together it would lose
 * them. */
static bool extend(View *v, int tensor, int factor, const AxisList *want) {
    Projection *proj = &v->proj[tensor];
    Layout *layout = layout_of_tensor(v->p, v->n, tensor);
    AxisList *have = &proj->factor[factor];
    if (have->n >= want->n || !axes_is_prefix(have, want)) return false;
    AxisList grown = *have;
    bool pads = !rule_divides(v->r, factor, want);
    if (pads && (have->n || !rule_pads(v->r, graph_opdef(v->p->g, v->n), factor))) return false;
    for (int i = have->n; i < want->n; i++) {
        AxisRef ref = want->at[i];
        AxisList longer = grown;
        axes_push(&longer, ref);
        if (!rule_is_free(v->r, proj, ref) || layout_places(layout, ref) ||
            (layout->replicated >> ref.axis & 1) || (!pads && !rule_divides(v->r, factor, &longer)))
            break;
        if (!v->aggressive && contended(v, tensor, factor, ref)) break;
        grown = longer;
    }
    if (axes_equal(&grown, have) || (pads && grown.n < want->n)) return false;
    int d = factor_dim(&v->r->tensor[tensor], layout->rank, factor);
    AxisList before = *have;
    Layout old, new;
    bool ok = layout->dim[d].open &&
              rule_unproject(v->r, tensor, layout->rank, v->p->g->mesh, proj->factor, &old) &&
              axes_equal(&old.dim[d].axes, &layout->dim[d].axes); /* no axes left over */
    *have = grown;
    ok = ok && rule_unproject(v->r, tensor, layout->rank, v->p->g->mesh, proj->factor, &new);
    if (ok)
        layout->dim[d].axes = new.dim[d].axes;
    else
        *have = before;
    return ok;
}

/* May this tier propagate along the factor? */
static bool tier_lets(const View *v, const Tier *s, int factor) {
    if (v->r->kind[factor] == FACTOR_REPLICATE) return false;
    return !s->only_pass_factors || v->r->kind[factor] == FACTOR_PASS;
}

static bool tier_takes(const Tier *s, uint32_t traits) {
    uint32_t asked =
        TAKES_PART | (s->only_pass_ops ? PASS_OP : 0u) | (s->single_use ? USED_ONCE : 0u);
    return (traits & asked) == asked;
}

/* Has a layout changed since the last visit of this kind? From now on this is the last one. */
static bool is_news(Propagate *p, const Node *n, int32_t *seen) {
    int32_t newest = 0;
    for (int t = 0; t < n->nin + n->nout; t++) {
        int32_t when = p->changed[node_tensor(n, t)];
        if (when > newest) newest = when;
    }
    bool news = newest > *seen;
    *seen = p->clock;
    return news;
}

static void requeue(Propagate *p, Val v, int32_t *n) {
    p->changed[v] = ++p->clock;
    int32_t def = p->g->value.at[v].node;
    if (!p->queued[def]) p->queued[p->queue[(*n)++] = def] = true;
    for (int32_t i = p->users.start[v]; i < p->users.start[v + 1]; i++) {
        int32_t user = p->users.list[i];
        if (!p->queued[user]) p->queued[p->queue[(*n)++] = user] = true;
    }
    for (int32_t i = p->flow.first[v]; i >= 0; i = p->flow.next[i]) {
        int32_t way = p->g->node.n + p->flow.place[i];
        if (!p->queued[way]) p->queued[p->queue[(*n)++] = way] = true;
    }
}

/* Factors in the order in which conflicts are settled: the largest source first, then the first
 * tensor, then by number. */
static void order_factors(const View *v, int *order) {
    int64_t size[MAX_FACTORS];
    int from[MAX_FACTORS];
    for (int f = 0; f < v->r->nfactor; f++) {
        AxisList list;
        int source = from[f] = source_of(v, f, &list);
        size[f] = source < 0 ? -1 : bytes_of_tensor(v->p, v->n, source);
        int at = f;
        for (; at > 0; at--) {
            int g = order[at - 1];
            if (size[g] > size[f] || (size[g] == size[f] && from[g] <= source)) break;
            order[at] = g;
        }
        order[at] = f;
    }
}

static const Node *node_at(const Propagate *p, int32_t id) {
    return id < p->g->node.n ? graph_node(p->g, id) : &p->flow.node[id - p->g->node.n];
}

static const FactorRule *rule_at(const Propagate *p, int32_t id) {
    return id < p->g->node.n ? p->rule[id] : p->flow.rule[id - p->g->node.n];
}

/* Is any of the op's tensors split? Where none is, there is nothing to pass on. */
static bool is_split(Propagate *p, const Node *n, const FactorRule *r) {
    for (int t = 0; t < r->ntensor; t++)
        if (layout_used(layout_of_tensor(p, n, t))) return true;
    return false;
}

static void visit(Propagate *p, int32_t id, const Tier *s, bool aggressive, int32_t *queue_n) {
    uint32_t traits = p->traits[id];
    if (!tier_takes(s, traits)) return;
    bool way = id >= p->g->node.n, backward_only = s->expand_backward && traits & EXPANDS;
    bool some_factors = s->only_pass_factors && !(traits & PASS_OP);
    const Node *n = node_at(p, id);
    if (!is_news(p, n, &p->seen[id][some_factors + 2 * backward_only + 4 * aggressive])) return;
    const FactorRule *r = rule_at(p, id);
    int *ranks = p->room.rank;
    View v = {p, n, r, p->room.proj, ranks, aggressive};
    if (!is_split(p, n, r)) return;
    for (int t = 0; t < r->ntensor; t++) {
        ranks[t] = rank_of(p, n, t);
        v.proj[t].factor = p->room.list + t * r->nfactor;
        rule_project(r, t, layout_of_tensor(p, n, t), &v.proj[t]);
    }
    int order[MAX_FACTORS];
    order_factors(&v, order);
    for (int k = 0; k < r->nfactor; k++) {
        AxisList want;
        int f = order[k];
        int source = tier_lets(&v, s, f) ? source_of(&v, f, &want) : -1;
        if (source < 0) continue;
        for (int t = 0; t < r->ntensor; t++) {
            if (backward_only && t >= n->nin) continue;
            if (!factor_in(&r->tensor[t], ranks[t], f)) continue;
            uint32_t had = layout_used(layout_of_tensor(p, n, t));
            if (!extend(&v, t, f, &want)) continue;
            requeue(p, node_tensor(n, t), queue_n);
            origin_note(p->sources, node_tensor(n, t), node_tensor(n, source),
                        way ? p->flow.owner[id - p->g->node.n] : id,
                        layout_used(layout_of_tensor(p, n, t)) & ~had);
        }
    }
}

static void fixpoint(Propagate *p, const Tier *s, bool aggressive) {
    int32_t n = 0;
    for (int32_t id = 1; id < p->g->node.n + p->flow.n; id++) p->queued[p->queue[n++] = id] = true;
    /* Round by round: what a round queues is for the next one. A node is queued at most once. */
    while (n > 0) {
        int32_t batch = n, *now = p->queue;
        p->queue = p->other_queue;
        p->other_queue = now;
        for (int32_t i = 0; i < batch; i++) p->queued[now[i]] = false;
        n = 0;
        for (int32_t i = 0; i < batch; i++) visit(p, now[i], s, aggressive, &n);
    }
}

/* What is to lie alike may not be asked to lie differently. */
static Err check_alike(const Graph *g, const Node *n) {
    const Node *a = graph_def(g, n->in[0]), *b = n->nin > 1 ? graph_def(g, n->in[1]) : NULL;
    const uint32_t constraint = OPF_CONSTRAINT;
    if (!b || !(graph_opdef(g, a)->flags & graph_opdef(g, b)->flags & constraint)) return E_OK;
    return constraint_agree(a, b) ? E_OK
                                  : constraint_error(g, graph_opdef(g, n)->name,
                                                     "tensors in one layout are to lie", a, b);
}

static uint8_t traits_of(const Propagate *p, int32_t id) {
    const FactorRule *r = rule_at(p, id);
    if (!r || r->nfactor == 0) return 0;
    const Node *n = node_at(p, id);
    int *ranks = p->room.rank;
    bool once = true;
    for (int t = 0; t < r->ntensor; t++) ranks[t] = rank_of(p, n, t);
    for (int i = 0; i < n->nout; i++) once = once && p->uses[n->out + i] <= 1;
    return (uint8_t)(TAKES_PART | (is_pass_op(r) ? PASS_OP : 0) | (once ? USED_ONCE : 0) |
                     (expands(r, n->nin, ranks) ? EXPANDS : 0));
}

static Err make_room(Propagate *p) {
    int32_t count = p->g->node.n + p->flow.n;
    int tensors = 1, lists = 1;
    for (int32_t id = 1; id < count; id++) {
        const FactorRule *r = rule_at(p, id);
        if (r && r->ntensor > tensors) tensors = r->ntensor;
        if (r && r->ntensor * r->nfactor > lists) lists = r->ntensor * r->nfactor;
    }
    p->room.proj = ARENA_ARRAY(&p->arena, Projection, tensors);
    p->room.list = ARENA_ARRAY(&p->arena, AxisList, lists);
    p->room.rank = ARENA_ARRAY(&p->arena, int, tensors);
    p->changed = ARENA_ARRAY(&p->arena, int32_t, p->g->value.n);
    p->traits = ARENA_ARRAY(&p->arena, uint8_t, count);
    p->seen = arena_alloc(&p->arena, sizeof *p->seen * (size_t)count);
    bool ok = p->room.proj && p->room.list && p->room.rank && p->changed && p->traits && p->seen;
    if (!ok) return err_nomem(p->g->cx, "propagation");
    for (Val v = 0; v < p->g->value.n; v++) p->changed[v] = 1;
    p->clock = 1;
    for (int32_t id = 1; id < count; id++) p->traits[id] = traits_of(p, id);
    return E_OK;
}

static Err prepare(Propagate *p) {
    const Graph *g = p->g;
    p->layout = ARENA_ARRAY(&p->arena, Layout, g->value.n);
    p->bytes = ARENA_ARRAY(&p->arena, int64_t, g->value.n);
    p->rule = ARENA_ARRAY(&p->arena, FactorRule *, g->node.n);
    p->uses = graph_use_counts(g, &p->arena);
    p->users = graph_uses(g, &p->arena);
    TRY(flow_nodes(g, &p->arena, &p->flow));
    p->queue = ARENA_ARRAY(&p->arena, int32_t, g->node.n + p->flow.n);
    p->other_queue = ARENA_ARRAY(&p->arena, int32_t, g->node.n + p->flow.n);
    p->queued = ARENA_ARRAY(&p->arena, bool, g->node.n + p->flow.n);
    if (!p->layout || !p->bytes || !p->rule || !p->uses || !p->users.start || !p->queue ||
        !p->other_queue || !p->queued)
        return err_nomem(g->cx, "propagation");
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        if (def->factors && !(def->flags & OPF_LAYOUT_STOP))
            TRY(rule_of(g, n, &p->arena, &p->rule[id]));
        if (def->flags & OPF_CAST) TRY(check_alike(g, n));
    }
    for (Val v = 1; v < g->value.n; v++) p->bytes[v] = type_bytes(graph_type(g, v));
    seed_all(g, p->layout);
    return make_room(p);
}

/* The same graph with the layouts in its types; what parameters and constraints say stays as it was
 * written. */
static Err write_types(Propagate *p, Graph *out) {
    for (Val v = 1; v < out->value.n; v++) {
        const Node *n = graph_def(out, v);
        uint32_t flags = graph_opdef(out, n)->flags;
        Layout l = p->layout[v];
        const Layout *asked = flags & OPF_CONSTRAINT ? *(const Layout *const *)n->attr : NULL;
        for (int d = 0; asked && d < l.rank; d++)
            if (!asked->dim[d].open) l.dim[d] = asked->dim[d];
        if (flags & OPF_PARAM && n->region == 0 && graph_type(out, v)->layout) continue;
        for (int d = 0; d < l.rank; d++) l.dim[d].open = false;
        l.replicated = l.flipped = 0;
        Mode mode = mode_of(graph_type(out, v));
        l.manual = (uint8_t)mode.manual;
        l.vary = (uint8_t)(mode.vary | mode.unreduced);
        const Layout *layout = layout_of(out->cx, &l);
        const Type *t = layout ? type_with_layout(out->cx, graph_type(out, v), layout) : NULL;
        if (!t) return err_nomem(out->cx, "propagation");
        out->value.at[v].type = t;
    }
    return E_OK;
}

/* Users never see parts of axes: a result split by one is asked for without. */
static Err strip_results(Graph *g) {
    Build b = build_in(g, 0);
    Region *top = &g->region.at[0];
    for (int i = 0; i < top->result.n; i++) {
        Val v = top->result.at[i];
        Layout l = *graph_type(g, v)->layout;
        if (!layout_drop_parts(&l)) continue;
        ConstrainAttr attr = {.layout = layout_of(g->cx, &l)};
        const Type *t = attr.layout ? type_with_layout(g->cx, graph_type(g, v), attr.layout) : NULL;
        if (!t) return err_nomem(g->cx, "propagation");
        b.loc = graph_def(g, v)->loc;
        b.nloc = graph_def(g, v)->nloc;
        v = build_op(&b, OP_CONSTRAIN, &v, 1, &attr);
        if (b.err) return b.err;
        g->value.at[v].type = t;
        top = &g->region.at[0];
        top->result.at[i] = v;
    }
    return E_OK;
}

static bool is_repeated(const Graph *g, const Node *n) {
    bool scalars = n->nin > 0 && n->nout == 1 && n->nbody == 0;
    for (int k = 0; scalars && k < n->nin; k++) scalars = graph_type(g, n->in[k])->dims.rank == 0;
    return graph_opdef(g, n)->flags & OPF_NULLARY || scalars;
}

/* A copy in which nullary ops, and whatever is made of scalars only, stand once per use, so that
 * two users of a constant do not pull each other's layout along. */
static Err split_nullary(const Graph *g, Graph **out) {
    Copy c;
    int32_t clone = 0;
    if (copy_begin_graph(&c, g, false)) {
        int32_t *seen = ARENA_ARRAY(&c.arena, int32_t, g->value.n);
        if (!seen) copy_no_memory(&c);
        for (int32_t id = 1; id < g->node.n && !c.b.err; id++) {
            const Node *n = graph_node(g, id);
            copy_enter(&c, n);
            Val *in = copy_operands(&c, n);
            for (int i = 0; in && i < n->nin; i++) {
                const Node *src = graph_def(g, n->in[i]);
                if (!is_repeated(g, src) || graph_type(g, n->in[i])->dims.rank == 0 ||
                    seen[n->in[i]]++ == 0)
                    continue;
                const Val *operands = copy_operands(&c, src);
                in[i] = operands ? build_like(&c.b, g, src, operands) : 0;
                if (in[i]) build_set_clone(&c.b, in[i], ++clone);
            }
            if (in) copy_node_with(&c, n, in);
        }
        copy_results(&c, 0);
    }
    return copy_end_graph(&c, out);
}

static void run_tiers(Propagate *p) {
    for (unsigned s = 0; s < sizeof tiers / sizeof tiers[0]; s++) {
        fixpoint(p, &tiers[s], false);
        fixpoint(p, &tiers[s], true);
    }
}

static void dump_factors(const Propagate *p, const PassOptions *o) {
    if (!o->dump || !o->wants(o->dump_ud, "factors")) return;
    Str s;
    str_init(&s, &p->g->cx->alloc);
    for (int32_t id = 1; id < p->g->node.n; id++) {
        const Node *n = graph_node(p->g, id);
        const FactorRule *r = p->rule[id];
        int ranks[MAX_FACTORS];
        if (!r || r->ntensor > MAX_FACTORS) continue;
        for (int t = 0; t < r->ntensor; t++) ranks[t] = rank_of(p, n, t);
        str_fmt(&s, "%%%d = %s ", n->out, graph_opdef(p->g, n)->name);
        factor_print(r, n->nin, ranks, &s);
        str_put(&s, "\n");
    }
    if (!s.failed) o->dump(o->dump_ud, "factors", str_of(&s));
    str_free(&s);
}

/* Each priority to its fixpoint before the next; in each, what is kept in Params has its say once
 * the data has been followed. */
static Err propagate(Propagate *p, const PassOptions *o) {
    TRY(prepare(p));
    dump_factors(p, o);
    int last = seed_last_priority(p->g);
    for (int priority = 0; priority <= last; priority++) {
        seed_written(p->g, p->layout, priority, false, p->changed, ++p->clock);
        run_tiers(p);
        seed_written(p->g, p->layout, priority, true, p->changed, ++p->clock);
        run_tiers(p);
    }
    return E_OK;
}

Err pass_propagate(const Graph *g, const PassOptions *o, Graph **out) {
    Graph *new_graph = NULL;
    TRY(split_nullary(g, &new_graph));
    Propagate p = {.g = new_graph, .sources = new_graph};
    arena_init(&p.arena, &g->cx->alloc);
    Err e = g->mesh ? origin_init(new_graph) : E_OK;
    if (!e && g->mesh) e = propagate(&p, o);
    if (!e && g->mesh) e = write_types(&p, new_graph);
    if (!e && g->mesh) e = strip_results(new_graph);
    arena_free(&p.arena);
    if (e)
        graph_free(new_graph);
    else
        *out = new_graph;
    return e;
}
