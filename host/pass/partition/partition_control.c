/* partition_control.c - nodes that own regions. Each way in or out has one layout: a carry's is
 * that of its parameter, so that every iteration finds it as the one before left it; what goes in,
 * comes back or comes out otherwise is resharded there. */
#include "pass/partition/partition.h"

#include "op/op.h"
#include "pass/layout/origin.h"

/* The layout of a way: inside the regions, or (`outside`) of the stack of what is inside. */
static Layout layout_of_way(const Partition *p, const Node *n, const Flow *f, bool outside) {
    const Region *r = &p->g->region.at[n->body[0]];
    Layout l, inner;
    bool cut = false;
    if (f->param >= 0) {
        l = p->layout[r->param.at[f->param]];
    } else if (f->out >= 0) {
        l = p->layout[n->out + f->out];
        cut = f->stacked;
    } else if (f->result >= 0) {
        l = p->layout[r->result.at[f->result]];
    } else {
        l = p->layout[n->in[f->in]];
    }
    l.unreduced = 0;
    inner = l;
    if (cut) {
        inner.rank--;
        for (int d = 0; d < inner.rank; d++) inner.dim[d] = l.dim[d + 1];
    }
    return outside && f->stacked ? layout_stack(&inner) : inner;
}

/* The local value of v, in layout `to`. */
static Val brought(Partition *p, const Node *n, const Flow *f, Val v, const Layout *to) {
    const Layout *from = &p->layout[v];
    const Node *def = graph_def(p->g, v);
    if (partition_same(from, to)) return p->local[v];
    if (graph_opdef(p->g, def)->flags & OPF_NULLARY) return partition_nullary(p, def, to);
    return partition_moved(p, n, origin_flow(p->g, n, v, f, from, to), p->local[v],
                           &graph_type(p->g, v)->dims, from, to);
}

/* The parameters of a region: in the layout of their way, and as the region wants them. */
static void add_params(Partition *p, const Node *n, int32_t region) {
    const Graph *g = p->g;
    const OpDef *def = graph_opdef(g, n);
    Flow f;
    for (int k = 0; k < g->region.at[region].param.n && !p->b.err; k++) {
        int i = 0;
        while (def->flow(n, i, &f) && f.param != k) i++;
        Val v = g->region.at[region].param.at[k];
        Layout way = layout_of_way(p, n, &f, false);
        const Type *type = partition_type(p, graph_type(g, v), &way);
        if (type)
            p->local[v] = build_param(&p->b, graph_def(g, v)->op, graph_def(g, v)->attr, type);
    }
    for (int i = 0; !p->b.err && def->flow(n, i, &f); i++) {
        if (f.param < 0) continue;
        Val v = g->region.at[region].param.at[f.param];
        Layout way = layout_of_way(p, n, &f, false);
        if (partition_same(&way, &p->layout[v]) || !p->uses[v]) continue;
        p->local[v] = partition_moved(p, n, origin_flow(g, n, v, &f, &way, &p->layout[v]),
                                      p->local[v], &graph_type(g, v)->dims, &way, &p->layout[v]);
    }
}

Err partition_enter(Partition *p, int32_t region) {
    if (p->region[region] < 0) {
        p->region[region] = build_region(&p->b);
        p->b.region = p->region[region];
        if (!p->b.err) add_params(p, graph_node(p->g, p->g->region.at[region].owner), region);
    }
    p->b.region = p->region[region];
    return p->b.err;
}

/* A node's operands and results on their ways, and its regions, all of the local program. */
typedef struct Local {
    Val *in;
    const Type **type; /* of each result */
    Layout *out;       /* the same */
    int32_t *body;
} Local;

static bool make_room(Partition *p, const Node *n, Local *own) {
    own->in = ARENA_ARRAY(&p->arena, Val, n->nin + 1);
    own->type = ARENA_ARRAY(&p->arena, const Type *, n->nout + 1);
    own->out = ARENA_ARRAY(&p->arena, Layout, n->nout + 1);
    own->body = ARENA_ARRAY(&p->arena, int32_t, n->nbody + 1);
    return own->in && own->type && own->out && own->body;
}

static void bring_operands(Partition *p, const Node *n, Local *own) {
    Flow f;
    for (int i = 0; graph_opdef(p->g, n)->flow(n, i, &f) && !p->b.err; i++) {
        Layout way = layout_of_way(p, n, &f, true);
        if (f.in >= 0) own->in[f.in] = brought(p, n, &f, n->in[f.in], &way);
        if (f.out < 0) continue;
        own->out[f.out] = way;
        own->type[f.out] = partition_type(p, graph_type(p->g, n->out + f.out), &way);
    }
}

/* Ends the region that was entered: its results leave it in the layouts of their ways. */
static void add_results(Partition *p, const Node *n, int32_t region) {
    const OpDef *def = graph_opdef(p->g, n);
    Flow f;
    for (int i = 0, result = 0; def->flow(n, i, &f); i++) {
        if (f.result < 0) continue;
        ASSERT(f.result == result++, "%s: results out of order", def->name);
        Layout way = layout_of_way(p, n, &f, false);
        Val v = p->g->region.at[region].result.at[f.result];
        build_result(&p->b, brought(p, n, &f, v, &way));
    }
}

/* The node's results, from v on, as its readers want them. */
static void bring_results(Partition *p, const Node *n, const Local *own, Val v) {
    Flow f;
    for (int i = 0; i < n->nout && !p->b.err; i++) {
        Val whole = n->out + i;
        const Layout *have = &own->out[i], *want = &p->layout[whole];
        p->local[whole] = v + i;
        if (partition_same(have, want) || !p->uses[whole]) continue;
        for (int k = 0; graph_opdef(p->g, n)->flow(n, k, &f) && f.out != i;) k++;
        p->local[whole] = partition_moved(p, n, origin_flow(p->g, n, whole, &f, have, want), v + i,
                                          &graph_type(p->g, whole)->dims, have, want);
    }
}

Err partition_control(Partition *p, const Node *n) {
    Local own;
    if (!make_room(p, n, &own)) return partition_no_memory(p);
    bring_operands(p, n, &own);
    for (int k = 0; k < n->nbody; k++) {
        TRY(partition_enter(p, n->body[k]));
        own.body[k] = p->region[n->body[k]];
        add_results(p, n, n->body[k]);
    }
    TRY(partition_enter(p, n->region));
    Build at = build_at(&p->b, p->g, n);
    Val v = build_typed(&at, n->op, own.in, n->nin, n->attr, n->nout, own.type, own.body, n->nbody);
    if (v && n->clone) build_set_clone(&at, v, n->clone);
    build_fail(&p->b, at.err);
    bring_results(p, n, &own, v);
    return p->b.err;
}
