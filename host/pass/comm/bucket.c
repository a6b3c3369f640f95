/* bucket.c - larger collectives: all_reduces over the same axes become one with several
 * operands, made before the first of them is used or when the bucket is full. A result that only
 * the caller waits for is not held back.
 *
 * A bucket would have to be sent as soon as one member is used. So what uses one, and leads to
 * results without any further collective (updates of parameters), is put off until the bucket has
 * been sent; and so are views of one. */
#include "pass/comm/comm.h"

typedef struct Bucket {
    const Node *first; /* NULL: empty */
    int32_t region;
    VEC(const Node *) member;
    int64_t bytes;
} Bucket;

typedef struct Buckets {
    Copy copy;
    Uses users;
    int64_t limit;
    VEC(Bucket) open;
    bool *waits; /* by value: an all_reduce that is in an open bucket, or a node put off */
    bool *talks; /* by node: is it a collective, or owns one? */
    bool *last;  /* by node: no collective comes after it */
    VEC(const Node *) put_off;
} Buckets;

/* Does the node, or what stands in its regions, talk to other devices? */
static bool is_collective(const Buckets *k, int32_t id) {
    return k->talks[id];
}

static bool *mark_talks(Buckets *k) {
    const Graph *g = k->copy.from;
    bool *talks = ARENA_ARRAY(&k->copy.arena, bool, g->node.n);
    for (int32_t id = 1; talks && id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        if (!talks[id]) talks[id] = graph_opdef(g, n)->flags & OPF_COLLECTIVE;
        if (talks[id] && n->region) talks[g->region.at[n->region].owner] = true;
    }
    return talks;
}

/* Which nodes have no collective among those that depend on them. */
static bool *mark_last(Buckets *k) {
    const Graph *g = k->copy.from;
    bool *last = ARENA_ARRAY(&k->copy.arena, bool, g->node.n);
    for (int32_t id = g->node.n - 1; last && id > 0; id--) {
        const Node *n = graph_node(g, id);
        last[id] = true;
        for (int i = 0; i < n->nout; i++)
            for (int32_t u = k->users.start[n->out + i]; u < k->users.start[n->out + i + 1]; u++) {
                int32_t user = k->users.list[u];
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
        copy_node(&k->copy, n);
        for (int o = 0; o < n->nout; o++) k->waits[n->out + o] = false;
    }
    k->put_off.n = kept;
}

static void flush(Buckets *k, Bucket *bucket) {
    Copy *c = &k->copy;
    int n = bucket->member.n;
    if (!n || c->b.err) return;
    Val *in = ARENA_ARRAY(&c->arena, Val, n);
    if (!in) {
        copy_no_memory(c);
        return;
    }
    Notes notes = {0};
    copy_enter(c, bucket->first);
    for (int i = 0; i < n; i++) {
        Notes own = comm_notes_of(bucket->member.at[i]);
        in[i] = c->map[bucket->member.at[i]->in[0]];
        notes = comm_merge_notes(c, &notes, &own);
    }
    Build at = comm_build(c, &notes);
    Val v = build_op(&at, bucket->first->op, in, n, bucket->first->attr);
    build_fail(&c->b, at.err);
    for (int i = 0; i < n; i++) {
        c->map[bucket->member.at[i]->out] = v ? v + i : 0;
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
    while (is_view(k->copy.from, graph_def(k->copy.from, v))) v = graph_def(k->copy.from, v)->in[0];
    for (int i = 0; i < k->open.n; i++)
        for (int m = 0; m < k->open.at[i].member.n; m++)
            if (k->open.at[i].member.at[m]->out == v) {
                flush(k, &k->open.at[i]);
                return;
            }
}

/* One collective has one answer to which axes its results vary along. */
static bool may_share(const Graph *g, const Node *a, const Node *b) {
    return comm_same(g, a, b) &&
           graph_type(g, a->in[0])->layout->vary == graph_type(g, b->in[0])->layout->vary;
}

static void put_in_bucket(Buckets *k, const Node *n) {
    Bucket *bucket = NULL;
    int64_t bytes = type_bytes(graph_type(k->copy.from, n->in[0]));
    for (int i = 0; i < k->open.n && !bucket; i++)
        if (k->open.at[i].region == n->region &&
            (!k->open.at[i].first || may_share(k->copy.from, k->open.at[i].first, n)))
            bucket = &k->open.at[i];
    if (!bucket) {
        if (!VEC_PUSH(&k->copy.arena, &k->open, (Bucket){.region = n->region})) {
            copy_no_memory(&k->copy);
            return;
        }
        bucket = &k->open.at[k->open.n - 1];
    }
    if (bucket->member.n && bucket->bytes + bytes > k->limit) flush(k, bucket);
    bucket->first = bucket->member.n ? bucket->first : n;
    bucket->bytes += bytes;
    if (!VEC_PUSH(&k->copy.arena, &bucket->member, n)) copy_no_memory(&k->copy);
    k->waits[n->out] = true;
}

/* Nothing waits beyond the end of its region. */
static void flush_region(Buckets *k, int32_t region) {
    for (int i = 0; i < k->open.n; i++)
        if (k->open.at[i].region == region) flush(k, &k->open.at[i]);
}

static void bucket_node(Buckets *k, const Node *n) {
    Copy *c = &k->copy;
    for (int i = 0; i < n->nbody; i++) flush_region(k, n->body[i]);
    copy_enter(c, n);
    int32_t id = c->from->value.at[n->out].node;
    bool may_wait = k->last[id] || is_view(c->from, n);
    if (may_wait && !is_collective(k, id) && has_waiting_input(k, n)) {
        if (!VEC_PUSH(&c->arena, &k->put_off, n)) copy_no_memory(c);
        for (int i = 0; i < n->nout; i++) k->waits[n->out + i] = true;
        return;
    }
    for (int i = 0; i < n->nin; i++)
        if (k->waits[n->in[i]]) flush_for(k, n->in[i]);
    if (comm_is_all_reduce(c->from, n) && n->nin == 1 &&
        k->users.start[n->out + 1] > k->users.start[n->out]) {
        put_in_bucket(k, n);
        return;
    }
    copy_node(c, n);
}

Err comm_bucket(const Graph *g, int64_t limit, Graph **out) {
    Buckets k = {.limit = limit};
    if (copy_begin_graph(&k.copy, g, true)) {
        k.users = graph_uses(g, &k.copy.arena);
        k.waits = ARENA_ARRAY(&k.copy.arena, bool, g->value.n);
        k.talks = mark_talks(&k);
        k.last = k.talks && k.users.start ? mark_last(&k) : NULL;
        if (!k.waits || !k.last) copy_no_memory(&k.copy);
        for (int32_t id = 1; id < g->node.n && !k.copy.b.err; id++)
            bucket_node(&k, graph_node(g, id));
        for (int i = 0; i < k.open.n; i++) flush(&k, &k.open.at[i]);
        copy_results(&k.copy, 0);
    }
    return copy_end_graph(&k.copy, out);
}
