/* comm.c - fewer and larger collectives.
 *
 * Reassociation: a sum of partial sums is reduced once. A pending value stands for
 *     reduce_1(raw_1) + reduce_2(raw_2) + ... + rest
 * and linear ops go through it part by part, as long as each value on the way has one user and
 * nothing grows. Reductions are made where a value is needed after all.
 *
 * Bucketing: all_reduces over the same axes become one with several operands, made before the first
 * of them is used or when the bucket is full. A result that only the caller waits for is not held
 * back. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

#include <string.h>

enum { MAX_PARTS = 4 };

typedef struct Notes { /* places and reasons of nodes that became one, and the role of the first */
    const Loc *const *loc;
    const Reason *const *why;
    int32_t nloc, nwhy;
    uint8_t role;
} Notes;

typedef struct Part {
    const Node *reduce; /* of the old graph: the collective to make */
    Val raw;            /* what it reduces */
    Notes notes;
} Part;

typedef struct Pending {
    int32_t n;
    Part part[MAX_PARTS];
    Val rest; /* 0: nothing */
} Pending;

typedef struct Comm {
    const Graph *g;
    Copy copy;     /* its map: a value, once made */
    int32_t *uses; /* by value: its users, results included */
    Uses users;
    Pending **pending; /* by value of `g`: not made yet */
} Comm;

/* What is pending of v: nothing where it has been made. */
static const Pending *pending_of(const Comm *c, Val v) {
    return c->copy.map[v] ? NULL : c->pending[v];
}

static void no_memory(Comm *c) {
    build_fail(&c->copy.b, err_nomem(c->g->cx, "a graph"));
}

static Val like(Comm *c, const Node *n, const Val *in) {
    return build_like(&c->copy.b, c->g, n, in);
}

static Notes notes_of(const Node *n) {
    return (Notes){n->loc, n->why, n->nloc, n->nwhy, n->role};
}

/* Those of both, each once, in order. */
static Notes join(Comm *c, const Notes *a, const Notes *b) {
    const Loc **loc = ARENA_ARRAY(&c->copy.arena, const Loc *, a->nloc + b->nloc + 1);
    const Reason **why = ARENA_ARRAY(&c->copy.arena, const Reason *, a->nwhy + b->nwhy + 1);
    Notes out = {loc, why, 0, 0, a->nwhy ? a->role : b->role};
    if (!loc || !why) {
        no_memory(c);
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

static Build noted(const Comm *c, const Notes *notes) {
    Build at = c->copy.b;
    at.loc = notes->loc;
    at.nloc = notes->nloc;
    at.why = notes->why;
    at.nwhy = notes->nwhy;
    at.role = notes->role;
    return at;
}

/* The value itself: makes the reductions that are still to be made. */
static Val made(Comm *c, Val v) {
    const Pending *p = pending_of(c, v);
    if (!p) return c->copy.map[v];
    copy_enter(&c->copy, graph_def(c->g, v));
    Val sum = p->rest;
    for (int i = 0; i < p->n; i++) {
        const Part *part = &p->part[i];
        Build at = noted(c, &part->notes);
        Val reduced = build_op(&at, part->reduce->op, &part->raw, 1, part->reduce->attr);
        at.nwhy = 0;
        sum = sum ? op2(&at, OP_ADD, reduced, sum) : reduced;
        build_fail(&c->copy.b, at.err);
    }
    return c->copy.map[v] = sum;
}

/* The node in the new graph, of operands that are made. */
static void copy_made(Comm *c, const Node *n) {
    for (int i = 0; i < n->nin; i++) made(c, n->in[i]);
    for (int k = 0; k < n->nbody; k++)
        for (int i = 0; i < c->g->region.at[n->body[k]].result.n; i++)
            made(c, c->g->region.at[n->body[k]].result.at[i]);
    copy_node(&c->copy, n);
}

static bool is_all_reduce(const Graph *g, const Node *n) {
    return graph_collective(g, n).kind == COLL_ALL_REDUCE;
}

/* Does the node sum its one operand over devices? */
static bool sums(const Graph *g, const Node *n) {
    CollectiveInfo c = graph_collective(g, n);
    bool reduces = c.kind == COLL_ALL_REDUCE || c.kind == COLL_REDUCE_SCATTER;
    return reduces && n->nin == 1 && c.reduce == PARTIAL_SUM;
}

static bool same_collective(const Graph *g, const Node *a, const Node *b) {
    return a->op == b->op && attr_equal(graph_opdef(g, a)->attr, a->attr, b->attr);
}

/* ---- linear ops over pending operands ---- */

/* The axes over which the parts are reduced. */
static uint32_t reduced_axes(const Comm *c, const Pending *p) {
    uint32_t axes = 0;
    for (int i = 0; i < p->n; i++) axes |= graph_collective(c->g, p->part[i].reduce).axes;
    return axes;
}

/* Does the node do the same on all devices that differ along the axes only, but for operand `but`?
 */
static bool same_along(const Comm *c, const Node *n, int but, uint32_t axes) {
    for (int i = 0; i < n->noffset; i++)
        if (axes_mask(&n->offset[i].axes) & axes) return false;
    for (int k = 0; k < n->nin; k++)
        if (k != but && graph_type(c->g, n->in[k])->layout->vary & axes) return false;
    return true;
}

/* Is f linear in operand i, the same on all devices of the group, and no larger in result? */
static bool goes_through(const Comm *c, const Node *n, int i, const Pending *p) {
    const OpDef *def = graph_opdef(c->g, n);
    const Type *x = graph_type(c->g, n->in[i]), *y = graph_type(c->g, n->out);
    if (n->nout != 1 || n->nin > 8 || !(def->linear >> i & 1) || def->flags & OPF_JOINT)
        return false;
    if (type_bytes(y) > type_bytes(x) || x->dtype != y->dtype) return false;
    if (p->rest && n->nin > 1) return false;
    if (!same_along(c, n, i, reduced_axes(c, p))) return false;
    for (int k = 0; k < p->n; k++)
        if (!is_all_reduce(c->g, p->part[k].reduce) &&
            (n->nin > 1 || !(def->flags & OPF_ELEMENTWISE)))
            return false;
    return true;
}

/* Every part goes through f. */
static bool through_one(Comm *c, const Node *n, int i, Pending *out) {
    const Pending *p = pending_of(c, n->in[i]);
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
static bool through_two(Comm *c, const Node *n, Pending *out) {
    const OpDef *def = graph_opdef(c->g, n);
    if (n->nin != 2 || n->nout != 1 || def->linear != 3 || !(def->flags & OPF_JOINT)) return false;
    const Pending *x = pending_of(c, n->in[0]), *y = pending_of(c, n->in[1]);
    Pending px = {.rest = x ? 0 : made(c, n->in[0])}, py = {.rest = y ? 0 : made(c, n->in[1])};
    if (x) px = *x;
    if (y) py = *y;
    bool neutral = def->flags & OPF_COMMUTES;
    if (!neutral && (px.n != 1 || py.n != 1 || !px.rest != !py.rest ||
                     !same_collective(c->g, px.part[0].reduce, py.part[0].reduce)))
        return false;
    *out = px;
    for (int i = 0; i < py.n; i++) {
        int k = 0;
        while (k < out->n && !same_collective(c->g, out->part[k].reduce, py.part[i].reduce)) k++;
        if (k == MAX_PARTS) return false;
        if (k == out->n) {
            out->part[out->n++] = py.part[i];
            continue;
        }
        Val both[2] = {out->part[k].raw, py.part[i].raw};
        out->part[k].raw = like(c, n, both);
        out->part[k].notes = join(c, &out->part[k].notes, &py.part[i].notes);
    }
    Val rests[2] = {px.rest, py.rest};
    if (px.rest && py.rest)
        out->rest = like(c, n, rests);
    else
        out->rest = px.rest ? px.rest : py.rest;
    return true;
}

/* Tries to keep the node's result pending. Operands must have no other user; the result may have
 * many, it is made for the first. */
static bool stays_pending(Comm *c, const Node *n, Pending *out) {
    int pending = 0, last = 0;
    for (int i = 0; i < n->nin; i++) {
        if (!pending_of(c, n->in[i])) continue;
        if (c->uses[n->in[i]] != 1) return false;
        pending++;
        last = i;
    }
    if (!pending || n->nout != 1) return false;
    if (graph_opdef(c->g, n)->flags & OPF_JOINT) return through_two(c, n, out);
    return pending == 1 && through_one(c, n, last, out);
}

/* Is anything gained by waiting: does v come, through its only users, to where sums meet or get
 * smaller? What stands already and is not pending brings nothing to meet, but may lie on the way.
 */
static bool pays_to_wait(const Comm *c, Val v, const Pending *p) {
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

/* Keeps the value pending, or makes it at once: the earlier a reduction stands, the more of them
 * can go together, and the more work is left to hide it behind. */
static void keep(Comm *c, Val v, const Pending *p) {
    c->pending[v] = ARENA_NEW(&c->copy.arena, Pending);
    if (!c->pending[v]) {
        no_memory(c);
        return;
    }
    *c->pending[v] = *p;
    if (!pays_to_wait(c, v, p)) made(c, v);
}

static void reassociate_node(Comm *c, const Node *n) {
    Pending p = {0};
    copy_enter(&c->copy, n);
    if (sums(c->g, n) && c->uses[n->out] == 1) {
        p = (Pending){.n = 1, .part = {{n, made(c, n->in[0]), notes_of(n)}}};
        keep(c, n->out, &p);
        return;
    }
    if (stays_pending(c, n, &p)) {
        keep(c, n->out, &p);
        return;
    }
    copy_made(c, n);
}

/* ---- buckets ----
 * A bucket would have to be sent as soon as one member is used. So what uses one, and leads to
 * results without any further collective (updates of parameters), is put off until the bucket has
 * been sent; and so are views of one. */
typedef struct Bucket {
    const Node *first; /* NULL: empty */
    int32_t region;
    VEC(const Node *) member;
    int64_t bytes;
} Bucket;

typedef struct Buckets {
    Comm c;
    int64_t limit;
    VEC(Bucket) open;
    bool *waits; /* by value of `g`: an all_reduce that is in an open bucket, or a node put off */
    bool *talks; /* by node of `g`: is it a collective, or owns one? */
    bool *last;  /* by node of `g`: no collective comes after it */
    VEC(const Node *) put_off;
} Buckets;

/* Does the node, or what stands in its regions, talk to other devices? */
static bool is_collective(const Buckets *k, int32_t id) {
    return k->talks[id];
}

static bool *mark_talks(Comm *c) {
    const Graph *g = c->g;
    bool *talks = ARENA_ARRAY(&c->copy.arena, bool, g->node.n);
    for (int32_t id = 1; talks && id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        if (!talks[id]) talks[id] = graph_opdef(g, n)->flags & OPF_COLLECTIVE;
        if (talks[id] && n->region) talks[g->region.at[n->region].owner] = true;
    }
    return talks;
}

/* Which nodes have no collective among those that depend on them. */
static bool *mark_last(Buckets *k) {
    Comm *c = &k->c;
    const Graph *g = c->g;
    bool *last = ARENA_ARRAY(&c->copy.arena, bool, g->node.n);
    for (int32_t id = g->node.n - 1; last && id > 0; id--) {
        const Node *n = graph_node(g, id);
        last[id] = true;
        for (int i = 0; i < n->nout; i++)
            for (int32_t u = c->users.start[n->out + i]; u < c->users.start[n->out + i + 1]; u++) {
                int32_t user = c->users.list[u];
                last[id] = last[id] && last[user] && !is_collective(k, user);
            }
    }
    return last;
}

static bool has_waiting_input(const Buckets *k, const Node *n) {
    for (int i = 0; i < n->nin; i++)
        if (k->waits[n->in[i]]) return true;
    return false;
}

/* Makes what was put off and now has all its operands. */
static void resume(Buckets *k) {
    int kept = 0;
    for (int i = 0; i < k->put_off.n; i++) {
        const Node *n = k->put_off.at[i];
        if (has_waiting_input(k, n)) {
            k->put_off.at[kept++] = n;
            continue;
        }
        copy_made(&k->c, n);
        for (int o = 0; o < n->nout; o++) k->waits[n->out + o] = false;
    }
    k->put_off.n = kept;
}

static void flush(Buckets *k, Bucket *bucket) {
    Comm *c = &k->c;
    int n = bucket->member.n;
    if (!n || c->copy.b.err) return;
    Val *in = ARENA_ARRAY(&c->copy.arena, Val, n);
    if (!in) {
        no_memory(c);
        return;
    }
    Notes notes = {0};
    copy_enter(&c->copy, bucket->first);
    for (int i = 0; i < n; i++) {
        Notes own = notes_of(bucket->member.at[i]);
        in[i] = c->copy.map[bucket->member.at[i]->in[0]];
        notes = join(c, &notes, &own);
    }
    Build at = noted(c, &notes);
    Val v = build_op(&at, bucket->first->op, in, n, bucket->first->attr);
    build_fail(&c->copy.b, at.err);
    for (int i = 0; i < n; i++) {
        c->copy.map[bucket->member.at[i]->out] = v ? v + i : 0;
        k->waits[bucket->member.at[i]->out] = false;
    }
    bucket->member.n = 0;
    bucket->bytes = 0;
    bucket->first = NULL;
    resume(k);
}

/* A view costs nothing, and may be made as late as what it looks at. */
static bool is_view(const Graph *g, const Node *n) {
    return n->nin == 1 && graph_opdef(g, n)->view;
}

/* Sends the bucket that v, or what it is a view of, waits for. */
static void flush_for(Buckets *k, Val v) {
    while (is_view(k->c.g, graph_def(k->c.g, v))) v = graph_def(k->c.g, v)->in[0];
    for (int i = 0; i < k->open.n; i++)
        for (int m = 0; m < k->open.at[i].member.n; m++)
            if (k->open.at[i].member.at[m]->out == v) {
                flush(k, &k->open.at[i]);
                return;
            }
}

/* One collective has one answer to which axes its results vary along. */
static bool may_share(const Graph *g, const Node *a, const Node *b) {
    return same_collective(g, a, b) &&
           graph_type(g, a->in[0])->layout->vary == graph_type(g, b->in[0])->layout->vary;
}

static void put_in_bucket(Buckets *k, const Node *n) {
    Bucket *bucket = NULL;
    int64_t bytes = type_bytes(graph_type(k->c.g, n->in[0]));
    for (int i = 0; i < k->open.n && !bucket; i++)
        if (k->open.at[i].region == n->region &&
            (!k->open.at[i].first || may_share(k->c.g, k->open.at[i].first, n)))
            bucket = &k->open.at[i];
    if (!bucket) {
        if (!VEC_PUSH(&k->c.copy.arena, &k->open, (Bucket){.region = n->region})) {
            no_memory(&k->c);
            return;
        }
        bucket = &k->open.at[k->open.n - 1];
    }
    if (bucket->member.n && bucket->bytes + bytes > k->limit) flush(k, bucket);
    bucket->first = bucket->member.n ? bucket->first : n;
    bucket->bytes += bytes;
    if (!VEC_PUSH(&k->c.copy.arena, &bucket->member, n)) no_memory(&k->c);
    k->waits[n->out] = true;
}

/* Nothing waits beyond the end of its region. */
static void flush_region(Buckets *k, int32_t region) {
    for (int i = 0; i < k->open.n; i++)
        if (k->open.at[i].region == region) flush(k, &k->open.at[i]);
}

static void bucket_node(Buckets *k, const Node *n) {
    Comm *c = &k->c;
    for (int i = 0; i < n->nbody; i++) flush_region(k, n->body[i]);
    copy_enter(&c->copy, n);
    int32_t id = c->g->value.at[n->out].node;
    bool may_wait = k->last[id] || is_view(c->g, n);
    if (may_wait && !is_collective(k, id) && has_waiting_input(k, n)) {
        if (!VEC_PUSH(&c->copy.arena, &k->put_off, n)) no_memory(c);
        for (int i = 0; i < n->nout; i++) k->waits[n->out + i] = true;
        return;
    }
    for (int i = 0; i < n->nin; i++)
        if (k->waits[n->in[i]]) flush_for(k, n->in[i]);
    if (is_all_reduce(c->g, n) && n->nin == 1 &&
        c->users.start[n->out + 1] > c->users.start[n->out]) {
        put_in_bucket(k, n);
        return;
    }
    copy_made(c, n);
}

/* ---- the pass ---- */
static bool comm_init(Comm *c, const Graph *g, Graph *to) {
    Build b = build_in(to, 0);
    b.local = true;
    to->mesh = g->mesh;
    *c = (Comm){.g = g};
    if (!copy_begin(&c->copy, g, &b)) return false;
    c->uses = graph_use_counts(g, &c->copy.arena);
    c->users = graph_uses(g, &c->copy.arena);
    c->pending = ARENA_ARRAY(&c->copy.arena, Pending *, g->value.n);
    if (!c->users.start || !c->uses || !c->pending) no_memory(c);
    return !c->copy.b.err;
}

/* The program's results. */
static void finish(Comm *c) {
    const Region *top = &c->g->region.at[0];
    for (int i = 0; i < top->result.n && !c->copy.b.err; i++) made(c, top->result.at[i]);
    copy_results(&c->copy, 0);
}

static Err reassociate(const Graph *g, Graph *to) {
    Comm c;
    if (comm_init(&c, g, to)) {
        for (int32_t id = 1; id < g->node.n && !c.copy.b.err; id++)
            reassociate_node(&c, graph_node(g, id));
        finish(&c);
    }
    copy_end(&c.copy);
    return c.copy.b.err;
}

/* Is a sum over one axis summed over another? Then joining the outer sums brings the inner ones
 * together, for another round. */
static bool sums_of_sums(const Graph *g) {
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        if (sums(g, n) && sums(g, graph_def(g, n->in[0]))) return true;
    }
    return false;
}

static Err reassociate_all(const Graph *g, Graph **out) {
    enum { MOST = 3 };
    const Graph *now = g;
    Err e = E_OK;
    for (int i = 0; !e && i < MOST && (i == 0 || sums_of_sums(now)); i++) {
        Graph *next = graph_new(g->cx);
        e = next ? reassociate(now, next) : err_nomem(g->cx, "a graph");
        graph_free(*out);
        now = *out = next;
    }
    return e;
}

static Err bucket(const Graph *g, Graph *to, int64_t limit) {
    Buckets k = {.limit = limit};
    if (comm_init(&k.c, g, to)) {
        k.waits = ARENA_ARRAY(&k.c.copy.arena, bool, g->value.n);
        k.talks = mark_talks(&k.c);
        k.last = k.talks ? mark_last(&k) : NULL;
        if (!k.waits || !k.last) no_memory(&k.c);
        for (int32_t id = 1; id < g->node.n && !k.c.copy.b.err; id++)
            bucket_node(&k, graph_node(g, id));
        for (int i = 0; i < k.open.n; i++) flush(&k, &k.open.at[i]);
        finish(&k.c);
    }
    copy_end(&k.c.copy);
    return k.c.copy.b.err;
}

Err pass_comm(const Graph *g, const PassOptions *o, Graph **out) {
    Graph *first = NULL, *second = graph_new(g->cx);
    Err e = second ? E_OK : err_nomem(g->cx, "a graph");
    if (!e && pass_is_on(o, SWITCH_REASSOCIATE, true) && g->mesh) e = reassociate_all(g, &first);
    if (!e)
        e = bucket(first ? first : g, second,
                   pass_is_on(o, SWITCH_BUCKET, g->mesh) ? o->target->bucket_bytes : 0);
    graph_free(first);
    if (e)
        graph_free(second);
    else
        *out = second;
    return e;
}
