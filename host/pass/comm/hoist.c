/* hoist.c - a reduction over devices that a loop only adds to a carry is made once, behind the
 * loop: carry = carry + all_reduce(x)   ->   own = own + x, and at the end init + all_reduce(own)
 * where `own` starts at -0, which changes no bit, and is each device's own sum. (Gradients of
 * microbatches.) Between the reduction and the sum there may be ops that are linear in it: a mean's
 * division, a reshape. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

typedef struct Carry { /* of a loop, that a sum over devices is only added to */
    const Node *add, *reduce;
    Val param, sum;
    uint32_t axes;
} Carry;

typedef struct Hoist {
    Copy c;
    int32_t *uses;
    Carry **of_add; /* by node */
    Carry **of_out; /* by value: result of a loop */
    bool *moved;    /* by node: the reduction that goes */
    bool *through;  /* by node: takes each device's own instead of the sum over devices */
} Hoist;

/* The axes over which the node sums its one operand; 0: it does not. */
static uint32_t summed_axes(const Graph *g, const Node *n) {
    CollectiveInfo c = graph_collective(g, n);
    bool sums = c.kind == COLL_ALL_REDUCE && c.reduce == REDUCE_SUM && n->nin == 1;
    return sums ? c.axes : 0;
}

static bool is_sum(const Graph *g, const Node *n) {
    return graph_opdef(g, n)->flags & OPF_ADDITION && !n->noffset;
}

enum { FAR = 16 }; /* linear ops between a reduction and the sum, at most */

/* Is the node linear in operand i alone, of as many elements as it makes and of one dtype? `vary`:
 * also the axes along which the other operands differ. */
static bool is_linear(const Graph *g, const Node *n, int i, uint32_t *vary) {
    const OpDef *def = graph_opdef(g, n);
    if (!n->in[i] || n->nout != 1 || n->noffset || n->nbody || def->collective) return false;
    if (!(def->linear >> i & 1) || (def->flags & OPF_JOINT && n->nin > 1)) return false;
    const Type *out = graph_type(g, n->out), *in = graph_type(g, n->in[i]);
    if (in->dtype != out->dtype || type_count(in) != type_count(out)) return false;
    for (int k = 0; k < n->nin; k++) {
        const Layout *l = k != i && n->in[k] ? graph_type(g, n->in[k])->layout : NULL;
        if (l) *vary |= l->vary;
    }
    return true;
}

/* The reduction that v is, or is made of by linear ops that nothing else reads and whose other
 * operands are alike on its devices; NULL. The ops are marked. */
static const Node *reduction_of(const Hoist *h, Val v, int32_t region, uint32_t vary, int far) {
    const Graph *g = h->c.from;
    const Node *n = graph_def(g, v);
    if (h->uses[v] != 1 || n->region != region || far > FAR) return NULL;
    uint32_t axes = summed_axes(g, n);
    if (axes) return axes & vary ? NULL : n;
    for (int i = 0; i < n->nin && i < 32; i++) {
        uint32_t others = vary;
        if (!is_linear(g, n, i, &others)) continue;
        const Node *reduce = reduction_of(h, n->in[i], region, others, far + 1);
        if (!reduce) continue;
        h->through[g->value.at[v].node] = true;
        return reduce;
    }
    return NULL;
}

static bool match(const Hoist *h, const Node *n, const Flow *f, Carry *out) {
    const Graph *g = h->c.from;
    const Region *r = &g->region.at[n->body[0]];
    Val param = r->param.at[f->param], result = r->result.at[f->result];
    const Node *add = graph_def(g, result);
    if (!is_sum(g, add) || h->uses[param] != 1 || h->uses[result] != 1) return false;
    int at = add->in[0] == param ? 0 : 1;
    if (add->in[at] != param) return false;
    Val sum = add->in[1 - at];
    const Node *reduce = reduction_of(h, sum, add->region, 0, 0);
    if (!reduce) return false;
    *out = (Carry){add, reduce, param, sum, summed_axes(g, reduce)};
    return true;
}

static bool find(Hoist *h) {
    const Graph *g = h->c.from;
    Arena *arena = &h->c.arena;
    h->uses = graph_use_counts(g, arena);
    h->of_add = ARENA_ARRAY(arena, Carry *, g->node.n);
    h->of_out = ARENA_ARRAY(arena, Carry *, g->value.n);
    h->moved = ARENA_ARRAY(arena, bool, g->node.n);
    h->through = ARENA_ARRAY(arena, bool, g->node.n);
    bool ok = h->uses && h->of_add && h->of_out && h->moved && h->through;
    for (int32_t id = 1; ok && id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        Flow f;
        for (int i = 0; ok && def->flow && def->flow(n, i, &f); i++) {
            Carry found;
            if (!f.carried || !match(h, n, &f, &found)) continue;
            Carry *own = arena_copy(arena, &found, sizeof found);
            ok = own != NULL;
            if (!ok) break;
            h->of_add[g->value.at[found.add->out].node] = own;
            h->of_out[n->out + f.out] = own;
            h->moved[g->value.at[found.reduce->out].node] = true;
        }
    }
    return ok;
}

/* The value's type, varying along more axes. */
static void widen(Copy *c, Val v, uint32_t axes) {
    if (c->b.err || !v) return;
    Graph *g = c->b.g;
    Type t = *graph_type(g, v);
    Layout l = *t.layout;
    l.vary |= (uint8_t)axes;
    t.layout = layout_of(g->cx, &l);
    const Type *type = t.layout ? type_of(g->cx, &t) : NULL;
    if (!type)
        copy_no_memory(c);
    else
        g->value.at[v].type = type;
}

static Val like(Copy *c, const Node *n, const Val *in) {
    return build_like(&c->b, c->from, n, in);
}

static void hoist_add(Hoist *h, const Node *n, const Carry *k) {
    Copy *c = &h->c;
    copy_enter(c, n);
    widen(c, c->map[k->param], k->axes);
    copy_set(c, n, like(c, n, (Val[]){c->map[k->param], c->map[k->sum]}));
}

/* A linear op between the reduction and the sum: of what each device has. */
static void hoist_through(Copy *c, const Node *n) {
    Val *in = copy_operands(c, n);
    if (!in) return;
    copy_enter(c, n);
    copy_set(c, n, like(c, n, in));
}

static void hoist_loop(Hoist *h, const Node *n) {
    Copy *c = &h->c;
    const OpDef *def = graph_opdef(c->from, n);
    Val *in = copy_operands(c, n);
    Flow f;
    if (!in) return;
    copy_enter(c, n);
    for (int i = 0; def->flow(n, i, &f); i++)
        if (f.carried && h->of_out[n->out + f.out])
            in[f.in] = op_const_like(&c->b, c->map[n->in[f.in]], -0.0);
    Val v = copy_node_with(c, n, in);
    for (int i = 0; v && def->flow(n, i, &f); i++) {
        const Carry *k = f.carried ? h->of_out[n->out + f.out] : NULL;
        if (!k || c->b.err) continue;
        Val own = v + f.out;
        widen(c, own, k->axes);
        Val both[2] = {c->map[n->in[f.in]], like(c, k->reduce, &own)};
        const OpDef *add = graph_opdef(c->from, k->add);
        Val sum = both[1] && add->fold ? add->fold(&c->b, k->add, both) : 0;
        c->map[n->out + f.out] = sum || !both[1] ? sum : like(c, k->add, both);
    }
}

Err pass_hoist(const Graph *g, const PassOptions *o, Graph **out) {
    (void)o;
    Hoist h = {0};
    if (copy_begin_graph(&h.c, g, true)) {
        if (!find(&h)) copy_no_memory(&h.c);
        for (int32_t id = 1; id < g->node.n && !h.c.b.err; id++) {
            const Node *n = graph_node(g, id);
            if (h.moved[id])
                h.c.map[n->out] = h.c.map[n->in[0]];
            else if (h.through[id])
                hoist_through(&h.c, n);
            else if (h.of_add[id])
                hoist_add(&h, n, h.of_add[id]);
            else if (graph_opdef(g, n)->flow)
                hoist_loop(&h, n);
            else
                copy_node(&h.c, n);
        }
        copy_results(&h.c, 0);
    }
    return copy_end_graph(&h.c, out);
}
