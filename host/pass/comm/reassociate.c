/* reassociate.c - fewer collectives: a sum of partial sums is reduced once. (Larger: bucket.c.)
 *
 * The sum of two products that are each split along what they contract would be reduced twice; yet
 * reduce(a) + reduce(b) is reduce(a + b), and a slice of reduce(a) that of a slice. So a reduction
 * is not made where it stands. Its value is unreduced and stands for
 *     reduce_1(raw_1) + reduce_2(raw_2) + ... + rest
 * and linear ops go through it part by part. Parts that meet under one reduction become one.
 * Reductions are made where a value is needed after all, or waiting gains nothing.
 *
 * What must hold on the way: an op is linear in what is unreduced, and does the same on all devices
 * that are summed over (same_along); a value has one user, or its reduction would be made twice;
 * nothing grows, or more would be sent than before. `rest` is the same on all devices already, and
 * is never reduced. */
#include "pass/comm/comm.h"
#include "op/op.h"

/* ---- shared with bucket.c ---- */

Notes comm_notes_of(const Node *n) {
    return (Notes){n->loc, n->why, n->nloc, n->nwhy, n->role};
}

Notes comm_merge_notes(Copy *c, const Notes *a, const Notes *b) {
    const Loc **loc = ARENA_ARRAY(&c->arena, const Loc *, a->nloc + b->nloc + 1);
    const Reason **why = ARENA_ARRAY(&c->arena, const Reason *, a->nwhy + b->nwhy + 1);
    Notes out = {loc, why, 0, 0, a->nwhy ? a->role : b->role};
    if (!loc || !why) {
        copy_no_memory(c);
        return *a;
    }
    const Notes *both[2] = {a, b};
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < both[s]->nloc; i++) {
            int k = 0;
            while (k < out.nloc && loc[k] != both[s]->loc[i]) k++;
            if (k == out.nloc) loc[out.nloc++] = both[s]->loc[i];
        }
        for (int i = 0; i < both[s]->nwhy; i++) {
            int k = 0;
            while (k < out.nwhy && why[k] != both[s]->why[i]) k++;
            if (k == out.nwhy) why[out.nwhy++] = both[s]->why[i];
        }
    }
    return out;
}

Build comm_build(const Copy *c, const Notes *notes) {
    Build at = c->b;
    at.loc = notes->loc;
    at.nloc = notes->nloc;
    at.why = notes->why;
    at.nwhy = notes->nwhy;
    at.role = notes->role;
    return at;
}

bool comm_is_all_reduce(const Graph *g, const Node *n) {
    return graph_collective(g, n).kind == COLL_ALL_REDUCE;
}

bool comm_same(const Graph *g, const Node *a, const Node *b) {
    return a->op == b->op && attr_equal(graph_opdef(g, a)->attr, a->attr, b->attr);
}

/* ---- sums of partial sums ---- */
enum { MAX_PARTS = 4 };

typedef struct UnreducedPart {
    const Node *reduce; /* of the old graph: the collective to make */
    Val raw;            /* what it reduces */
    Notes notes;
} UnreducedPart;

typedef struct Unreduced {
    int32_t n;
    UnreducedPart part[MAX_PARTS];
    Val rest; /* 0: nothing */
} Unreduced;

typedef struct Reassociation {
    const Graph *g;
    Copy copy;     /* its map: a value, once made */
    int32_t *uses; /* by value: its users, results included */
    Uses users;
    Unreduced **unreduced; /* by value of `g`: not made yet */
} Reassociation;

/* What v is a sum of: nothing where it has been made. */
static const Unreduced *unreduced_of(const Reassociation *c, Val v) {
    return c->copy.map[v] ? NULL : c->unreduced[v];
}

static Val like(Reassociation *c, const Node *n, const Val *in) {
    return build_like(&c->copy.b, c->g, n, in);
}

/* The value itself: makes the reductions that are still to be made. */
static Val made(Reassociation *c, Val v) {
    const Unreduced *p = unreduced_of(c, v);
    if (!p) return c->copy.map[v];
    copy_enter(&c->copy, graph_def(c->g, v));
    Val sum = p->rest;
    for (int i = 0; i < p->n; i++) {
        const UnreducedPart *part = &p->part[i];
        Build at = comm_build(&c->copy, &part->notes);
        Val reduced = build_op(&at, part->reduce->op, &part->raw, 1, part->reduce->attr);
        at.nwhy = 0;
        sum = sum ? op2(&at, OP_ADD, reduced, sum) : reduced;
        build_fail(&c->copy.b, at.err);
    }
    return c->copy.map[v] = sum;
}

/* The node in the new graph, of operands that are made. */
static void copy_made(Reassociation *c, const Node *n) {
    for (int i = 0; i < n->nin; i++) made(c, n->in[i]);
    for (int k = 0; k < n->nbody; k++)
        for (int i = 0; i < c->g->region.at[n->body[k]].result.n; i++)
            made(c, c->g->region.at[n->body[k]].result.at[i]);
    copy_node(&c->copy, n);
}

/* Does the node sum its one operand over devices? */
static bool sums(const Graph *g, const Node *n) {
    CollectiveInfo c = graph_collective(g, n);
    bool reduces = c.kind == COLL_ALL_REDUCE || c.kind == COLL_REDUCE_SCATTER;
    return reduces && n->nin == 1 && c.reduce == REDUCE_SUM;
}

/* ---- linear ops over unreduced operands ---- */

/* The axes over which the parts are reduced. */
static uint32_t reduced_axes(const Reassociation *c, const Unreduced *p) {
    uint32_t axes = 0;
    for (int i = 0; i < p->n; i++) axes |= graph_collective(c->g, p->part[i].reduce).axes;
    return axes;
}

/* Does the node do the same on all devices that differ along the axes only,
 * but for operand `but`? */
static bool same_along(const Reassociation *c, const Node *n, int but, uint32_t axes) {
    for (int i = 0; i < n->noffset; i++)
        if (axes_mask(&n->offset[i].axes) & axes) return false;
    for (int k = 0; k < n->nin; k++)
        if (k != but && graph_type(c->g, n->in[k])->layout->vary & axes) return false;
    return true;
}

/* Is f linear in operand i, the same on all devices of the group, and no larger in result? */
static bool goes_through(const Reassociation *c, const Node *n, int i, const Unreduced *p) {
    const OpDef *def = graph_opdef(c->g, n);
    const Type *x = graph_type(c->g, n->in[i]), *y = graph_type(c->g, n->out);
    if (n->nout != 1 || n->nin > 8 || !(def->linear >> i & 1) || def->flags & OPF_JOINT)
        return false;
    if (type_bytes(y) > type_bytes(x) || x->dtype != y->dtype) return false;
    if (p->rest && n->nin > 1) return false;
    if (!same_along(c, n, i, reduced_axes(c, p))) return false;
    for (int k = 0; k < p->n; k++)
        if (!comm_is_all_reduce(c->g, p->part[k].reduce) &&
            (n->nin > 1 || !(def->flags & OPF_ELEMENTWISE)))
            return false;
    return true;
}

/* Every part goes through f. */
static bool through_one(Reassociation *c, const Node *n, int i, Unreduced *out) {
    const Unreduced *p = unreduced_of(c, n->in[i]);
    if (!goes_through(c, n, i, p)) return false;
    *out = *p;
    Val in[8];
    for (int k = 0; k < n->nin; k++) in[k] = k == i ? 0 : made(c, n->in[k]);
    for (int k = 0; k < p->n; k++) {
        in[i] = p->part[k].raw;
        out->part[k].raw = like(c, n, in);
    }
    in[i] = p->rest;
    if (p->rest) out->rest = like(c, n, in);
    return true;
}

/* f(x, y) jointly linear: parts with the same reduction meet; a part without a partner stays, which
 * is right where f(x, 0) = f(0, x) = x. */
static bool through_two(Reassociation *c, const Node *n, Unreduced *out) {
    const OpDef *def = graph_opdef(c->g, n);
    if (n->nin != 2 || n->nout != 1 || def->linear != 3 || !(def->flags & OPF_JOINT)) return false;
    const Unreduced *x = unreduced_of(c, n->in[0]), *y = unreduced_of(c, n->in[1]);
    Unreduced px = {.rest = x ? 0 : made(c, n->in[0])}, py = {.rest = y ? 0 : made(c, n->in[1])};
    if (x) px = *x;
    if (y) py = *y;
    bool neutral = def->flags & OPF_ADDITION;
    if (!neutral && (px.n != 1 || py.n != 1 || !px.rest != !py.rest ||
                     !comm_same(c->g, px.part[0].reduce, py.part[0].reduce)))
        return false;
    *out = px;
    for (int i = 0; i < py.n; i++) {
        int k = 0;
        while (k < out->n && !comm_same(c->g, out->part[k].reduce, py.part[i].reduce)) k++;
        if (k == MAX_PARTS) return false;
        if (k == out->n) {
            out->part[out->n++] = py.part[i];
            continue;
        }
        Val both[2] = {out->part[k].raw, py.part[i].raw};
        out->part[k].raw = like(c, n, both);
        out->part[k].notes = comm_merge_notes(&c->copy, &out->part[k].notes, &py.part[i].notes);
    }
    Val rests[2] = {px.rest, py.rest};
    if (px.rest && py.rest)
        out->rest = like(c, n, rests);
    else
        out->rest = px.rest ? px.rest : py.rest;
    return true;
}

/* Tries to keep the node's result unreduced. Operands must have no other user; the result may have
 * many, it is made for the first. */
static bool stays_unreduced(Reassociation *c, const Node *n, Unreduced *out) {
    int sums = 0, last = 0;
    for (int i = 0; i < n->nin; i++) {
        if (!unreduced_of(c, n->in[i])) continue;
        if (c->uses[n->in[i]] != 1) return false;
        sums++;
        last = i;
    }
    if (!sums || n->nout != 1) return false;
    if (graph_opdef(c->g, n)->flags & OPF_JOINT) return through_two(c, n, out);
    return sums == 1 && through_one(c, n, last, out);
}

/* Is anything gained by waiting: does v come, through its only users, to where sums
 * meet or get smaller? What stands already and is not unreduced brings nothing to meet,
 * but may lie on the way. */
static bool pays_to_wait(const Reassociation *c, Val v, const Unreduced *p) {
    for (;;) {
        if (c->uses[v] != 1 || c->users.start[v] == c->users.start[v + 1]) return false;
        const Node *u = graph_node(c->g, c->users.list[c->users.start[v]]);
        const OpDef *def = graph_opdef(c->g, u);
        if (u->nbody) return false;
        if (def->flags & OPF_JOINT) {
            if (u->nin != 2 || def->linear != 3) return false;
            if (!c->copy.map[u->in[u->in[0] == v ? 1 : 0]]) return true;
            if (!(def->flags & OPF_COMMUTES)) return false;
        } else {
            int i = 0;
            while (u->in[i] != v) i++;
            if (!goes_through(c, u, i, p)) return false;
            if (type_bytes(graph_type(c->g, u->out)) < type_bytes(graph_type(c->g, v))) return true;
        }
        v = u->out;
    }
}

/* Keeps the value unreduced, or makes it at once: the earlier a reduction stands, the more of them
 * can go together, and the more work is left to hide it behind. */
static void keep(Reassociation *c, Val v, const Unreduced *p) {
    c->unreduced[v] = ARENA_NEW(&c->copy.arena, Unreduced);
    if (!c->unreduced[v]) {
        copy_no_memory(&c->copy);
        return;
    }
    *c->unreduced[v] = *p;
    if (!pays_to_wait(c, v, p)) made(c, v);
}

static void reassociate_node(Reassociation *c, const Node *n) {
    Unreduced p = {0};
    copy_enter(&c->copy, n);
    if (sums(c->g, n) && c->uses[n->out] == 1) {
        p = (Unreduced){.n = 1, .part = {{n, made(c, n->in[0]), comm_notes_of(n)}}};
        keep(c, n->out, &p);
        return;
    }
    if (stays_unreduced(c, n, &p)) {
        keep(c, n->out, &p);
        return;
    }
    copy_made(c, n);
}

/* ---- the pass ---- */
static bool comm_init(Reassociation *c, const Graph *g) {
    *c = (Reassociation){.g = g};
    if (!copy_begin_graph(&c->copy, g, true)) return false;
    c->uses = graph_use_counts(g, &c->copy.arena);
    c->users = graph_uses(g, &c->copy.arena);
    c->unreduced = ARENA_ARRAY(&c->copy.arena, Unreduced *, g->value.n);
    if (!c->users.start || !c->uses || !c->unreduced) copy_no_memory(&c->copy);
    return !c->copy.b.err;
}

/* The program's results. */
static void finish(Reassociation *c) {
    const Region *top = &c->g->region.at[0];
    for (int i = 0; i < top->result.n && !c->copy.b.err; i++) made(c, top->result.at[i]);
    copy_results(&c->copy, 0);
}

static Err reassociate(const Graph *g, Graph **out) {
    Reassociation c;
    if (comm_init(&c, g)) {
        for (int32_t id = 1; id < g->node.n && !c.copy.b.err; id++)
            reassociate_node(&c, graph_node(g, id));
        finish(&c);
    }
    return copy_end_graph(&c.copy, out);
}

/* Is a sum over one axis summed over another? */
static bool sums_of_sums(const Graph *g) {
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        if (sums(g, n) && sums(g, graph_def(g, n->in[0]))) return true;
    }
    return false;
}

/* Joining the outer ones of sums of sums brings the inner ones together, for another round. */
static Err reassociate_all(const Graph *g, Graph **out) {
    enum { MOST = 3 };
    const Graph *now = g;
    bool nested = sums_of_sums(g), again = true;
    Err e = E_OK;
    for (int i = 0; !e && again && i < MOST; i++) {
        Graph *next = NULL;
        bool was = nested;
        e = reassociate(now, &next);
        graph_free(*out);
        now = *out = next;
        nested = !e && sums_of_sums(now);
        again = was || nested;
    }
    return e;
}

Err pass_comm(const Graph *g, const PassOptions *o, Graph **out) {
    Graph *first = NULL;
    int64_t limit = pass_is_on(o, SWITCH_BUCKET, g->mesh) ? o->target->bucket_bytes : 0;
    Err e = E_OK;
    if (pass_is_on(o, SWITCH_REASSOCIATE, true) && g->mesh) e = reassociate_all(g, &first);
    if (!e) e = comm_bucket(first ? first : g, limit, out);
    graph_free(first);
    return e;
}
