/* define.c - an op that needs a dim whole which lies split would gather it. Where its definition in
 * simpler ops, which send a maximum or a sum instead, sends less, that stands in its place.
 *
 * What either sends is not guessed: both are propagated and partitioned alone, given the operands'
 * layouts, and their collectives are added up. */
#include "ir/rule.h"
#include "op/op.h"
#include "pass/pass.h"

enum { MAX_ALONE = 8 }; /* operands, and results, of a node that is looked at */

/* What a way to compute a node costs one device, in bytes. */
typedef struct Cost {
    double sent, largest; /* by all collectives; of the largest value */
} Cost;

/* A node that was decided; others like it are decided alike. */
typedef struct Decided {
    const Node *node;
    bool defined;
} Decided;

typedef struct Define {
    const Graph *g;
    const PassOptions *o;
    Arena arena;
    VEC(Decided) decided;
} Define;

static Err no_memory(const Graph *g) {
    return err_nomem(g->cx, "choosing definitions");
}

/* Must an operand's dim be whole, by the rule? `split`: does one lie split there? */
static Err needs_whole(const Graph *g, const Node *n, Arena *arena, bool *needs, bool *split) {
    const OpDef *def = graph_opdef(g, n);
    *needs = *split = false;
    if (!def->expand || !def->factors || n->nbody) return E_OK;
    FactorRule *r;
    TRY(rule_of(g, n, arena, &r));
    Projection *proj = rule_projections(r, arena);
    if (!proj) return no_memory(g);
    for (int t = 0; t < n->nin; t++) {
        const Type *type = graph_type(g, n->in[t]);
        if (type->layout) rule_project(r, t, type->layout, &proj[t]);
        for (int f = 0; f < r->nfactor; f++) {
            if (r->kind[f] != FACTOR_REPLICATE) continue;
            *needs = *needs || factor_in(&r->tensor[t], type->dims.rank, f);
            *split = *split || axes_product(&proj[t].factor[f]) > 1;
        }
    }
    return E_OK;
}

/* The node alone, of parameters that lie as its operands do. */
static void build_alone(Build *b, const Graph *g, const Node *n, bool defined) {
    Val in[MAX_ALONE], out[MAX_ALONE] = {0};
    for (int i = 0; i < n->nin; i++) {
        int same = 0;
        while (n->in[same] != n->in[i]) same++;
        in[i] = same < i ? in[same]
                         : build_param(b, OP_PARAM, &(ParamAttr){.index = i + 1},
                                       graph_type(g, n->in[i]));
    }
    if (defined) {
        graph_opdef(g, n)->expand(b, n, in, out);
    } else {
        out[0] = build_op(b, n->op, in, n->nin, n->attr);
        for (int i = 1; i < n->nout; i++) out[i] = out[0] ? out[0] + i : 0;
    }
    for (int i = 0; i < n->nout; i++) build_result(b, out[i]);
}

static double group_size(const Mesh *m, const CollectiveInfo *info) {
    double n = 1;
    for (int i = 0; i < info->list.n; i++) n *= info->list.at[i].size;
    return info->list.n ? n : mesh_product(m, info->axes);
}

static Cost cost_of(const Graph *g) {
    Cost cost = {0, 0};
    for (Val v = 1; v < g->value.n; v++)
        if ((double)type_bytes(graph_type(g, v)) > cost.largest)
            cost.largest = (double)type_bytes(graph_type(g, v));
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        CollectiveInfo info = graph_collective(g, n);
        if (info.kind == COLL_NONE) continue;
        double bytes = 0;
        for (int i = 0; i < n->nin; i++) bytes += (double)type_bytes(graph_type(g, n->in[i]));
        cost.sent += plan_collective_sent(info.kind, bytes, group_size(g->mesh, &info));
    }
    return cost;
}

static Err plan_alone(const Define *d, const Node *n, bool defined, Cost *cost) {
    Err (*const passes[])(const Graph *, const PassOptions *,
                          Graph **) = {pass_simplify, pass_propagate, pass_partition};
    PassOptions silent = {.target = d->o->target, .on = d->o->on, .off = d->o->off};
    Graph *now = graph_new(d->g->cx);
    if (!now) return no_memory(d->g);
    now->mesh = d->g->mesh;
    Build b = build_in(now, 0);
    b.loc = n->loc;
    b.nloc = n->nloc;
    build_alone(&b, d->g, n, defined);
    Err e = b.err;
    for (unsigned i = 0; !e && i < sizeof passes / sizeof passes[0]; i++) {
        Graph *next = NULL;
        e = passes[i](now, &silent, &next);
        graph_free(now);
        now = next;
    }
    if (!e) *cost = cost_of(now);
    graph_free(now);
    return e;
}

static bool alike(const Graph *g, const Node *a, const Node *b) {
    if (a->op != b->op || a->nin != b->nin || a->nout != b->nout) return false;
    for (int i = 0; i < a->nin; i++)
        if (graph_type(g, a->in[i]) != graph_type(g, b->in[i])) return false;
    for (int i = 0; i < a->nin; i++)
        for (int k = 0; k < i; k++)
            if ((a->in[i] == a->in[k]) != (b->in[i] == b->in[k])) return false;
    return attr_equal(graph_opdef(g, a)->attr, a->attr, b->attr);
}

/* Inside shard_map nothing is split behind the user's back. */
static bool is_manual(const Graph *g, const Node *n) {
    for (int i = 0; i < n->nin; i++)
        if (mode_of(graph_type(g, n->in[i])).manual) return true;
    return false;
}

static Err decide(Define *d, const Node *n, bool *defined) {
    for (int i = 0; i < d->decided.n; i++)
        if (alike(d->g, d->decided.at[i].node, n)) {
            *defined = d->decided.at[i].defined;
            return E_OK;
        }
    Cost whole, parts;
    TRY(plan_alone(d, n, false, &whole));
    TRY(plan_alone(d, n, true, &parts));
    *defined = parts.sent < whole.sent && parts.largest <= whole.largest;
    return VEC_PUSH(&d->arena, &d->decided, (Decided){n, *defined}) ? E_OK : no_memory(d->g);
}

Err pass_define(const Graph *g, const Graph *laid, const PassOptions *o, Graph **out) {
    Define d = {.g = laid, .o = o};
    if (!g->mesh) return E_OK;
    arena_init(&d.arena, &g->cx->alloc);
    bool *chosen = ARENA_ARRAY(&d.arena, bool, g->node.n), any = false, needs, split;
    Err e = chosen ? E_OK : no_memory(g);
    /* Propagation adds nodes, but none of these: they stand in the same order in both graphs. */
    int32_t id = 0;
    for (int32_t k = 1; !e && k < laid->node.n; k++) {
        const Node *n = graph_node(laid, k);
        e = needs_whole(laid, n, &d.arena, &needs, &split);
        if (e || !needs) continue;
        bool is_same = false;
        while (!e && !is_same && ++id < g->node.n) {
            bool ignored;
            e = needs_whole(g, graph_node(g, id), &d.arena, &is_same, &ignored);
        }
        if (e) break;
        ASSERT(is_same && graph_node(g, id)->op == n->op, "%s is lost", graph_opdef(laid, n)->name);
        if (split && n->nin <= MAX_ALONE && n->nout <= MAX_ALONE && !is_manual(laid, n))
            e = decide(&d, n, &chosen[id]);
        any = any || chosen[id];
    }
    if (!e && any) e = pass_expand_chosen(g, chosen, out);
    arena_free(&d.arena);
    return e;
}
