/* overlap.c - collectives start as soon as they can and are waited for late, so that independent
 * work runs between.
 *
 * A collective becomes two: the collective itself, which starts it, and a `done` of each result
 * before its first use, or where the collective should be over anyway; `done` also holds the
 * operand, whose memory must stay as it is until then. What waits for nothing but parameters (a
 * weight that is gathered) could start at once, and all of them would be whole at the same time.
 * Such a one starts early enough for the work behind it to take as long as it does, and no more
 * than AHEAD of them wait at a time (Rajbhandari et al. 2020 call it prefetching). All this holds
 * of each region by itself; what crosses from one iteration of a loop to another is for the plan to
 * say (plan/plan_shift.c). */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

#include <stdlib.h>

enum { AHEAD = 2 };

typedef struct Overlap {
    const Graph *g;
    const Target *target;
    Copy c;
    int32_t *uses;
    double *seconds;      /* by node: op_seconds */
    int32_t *turn;        /* by node: 2 id + 1, or 2 id of the node that it has moved before */
    int32_t *prev, *next; /* by node: its neighbours in its region, or 0 */
    int32_t *begin;       /* by node: the first of those in its regions, or itself */
    int32_t (
        *ahead)[AHEAD]; /* by region: where the last ones that came from parameters are needed */
    bool *waited;       /* by value: a collective's result, already waited for */
    int32_t *flying;    /* collectives that are on their way, in order */
    double *over;       /* by node: when it should be over */
    double *now, *link; /* by region: when the work, and the links, are through with what came */
    int32_t nflying;
} Overlap;

static bool is_collective(const Graph *g, const Node *n) {
    return graph_opdef(g, n)->collective;
}

/* The node that makes the operand, or what it is only a view or a conversion of, if nobody else
 * reads that: it moves along. */
static const Node *source_of(const Overlap *o, Val v) {
    const Node *n = graph_def(o->g, v);
    while (n->nin == 1 && n->nout == 1 && o->uses[n->out] == 1 &&
           (graph_opdef(o->g, n)->view || graph_opdef(o->g, n)->flags & OPF_ELEMENTWISE))
        n = graph_def(o->g, n->in[0]);
    return n;
}

static int32_t id_of(const Graph *g, const Node *n) {
    return g->value.at[n->out].node;
}

/* The collective, and what moves along with it, before node `place` and what that owns. */
static void move(Overlap *o, int32_t id, int32_t place) {
    const Node *n = graph_node(o->g, id);
    int32_t turn = 2 * o->begin[place];
    o->turn[id] = turn;
    for (int i = 0; i < n->nin; i++) {
        const Node *source = source_of(o, n->in[i]);
        for (const Node *at = graph_def(o->g, n->in[i]); at != source;
             at = graph_def(o->g, at->in[0]))
            o->turn[id_of(o->g, at)] = turn;
    }
}

static void place_start(Overlap *o, int32_t id) {
    const Graph *g = o->g;
    const Node *n = graph_node(g, id);
    int32_t ready = 0, *ahead = o->ahead[n->region];
    bool from_params = true;
    for (int i = 0; i < n->nin; i++) {
        const Node *source = source_of(o, n->in[i]);
        if (!(graph_opdef(g, source)->flags & OPF_PARAM)) from_params = false;
        if (id_of(g, source) > ready) ready = id_of(g, source);
    }
    int32_t place = id;
    if (!from_params) {
        place = o->next[ready];
    } else {
        double hidden = 0;
        int32_t first = ahead[0] > ready ? ahead[0] : ready;
        while (o->prev[place] > first && hidden < o->seconds[id]) {
            place = o->prev[place];
            hidden += is_collective(g, graph_node(g, place)) ? 0 : o->seconds[place];
        }
        for (int i = 0; i + 1 < AHEAD; i++) ahead[i] = ahead[i + 1];
        ahead[AHEAD - 1] = id;
    }
    if (place < id) move(o, id, place);
}

/* ---- the new graph ---- */

typedef struct Turn {
    int32_t turn, id;
} Turn;

static int by_turn(const void *a, const void *b) {
    const Turn *x = a, *y = b;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Waits for v if it is a collective's result that nobody has waited for. */
static void wait_for(Overlap *o, Val v) {
    const Node *n = graph_def(o->g, v);
    if (!is_collective(o->g, n) || o->waited[v]) return;
    o->waited[v] = true;
    int result = v - n->out;
    Val held = o->c.map[n->in[result < n->nin ? result : 0]];
    Build at = build_at(&o->c.b, o->g, n);
    at.nwhy = 0;
    o->c.map[v] = build_op(&at, OP_DONE, (Val[]){o->c.map[v], held}, 2, NULL);
    build_fail(&o->c.b, at.err);
}

/* Waits for what of the region should be over by now. */
static void land(Overlap *o, int32_t region) {
    int kept = 0;
    for (int i = 0; i < o->nflying; i++) {
        const Node *n = graph_node(o->g, o->flying[i]);
        if (n->region != region || o->over[o->flying[i]] > o->now[region]) {
            o->flying[kept++] = o->flying[i];
            continue;
        }
        for (int k = 0; k < n->nout; k++) wait_for(o, n->out + k);
    }
    o->nflying = kept;
}

/* Waits for the region's results, at its end. */
static void wait_for_results(Overlap *o, int32_t region) {
    const Region *r = &o->g->region.at[region];
    o->c.b.region = o->c.region[region];
    for (int i = 0; i < r->result.n && !o->c.b.err; i++) wait_for(o, r->result.at[i]);
}

static void emit_node(Overlap *o, int32_t id) {
    const Node *n = graph_node(o->g, id);
    double *now = &o->now[n->region], *link = &o->link[n->region];
    for (int k = 0; k < n->nbody; k++)
        if (o->c.region[n->body[k]] >= 0) wait_for_results(o, n->body[k]);
    copy_enter(&o->c, n);
    land(o, n->region);
    if (is_collective(o->g, n)) {
        *link = (*link > *now ? *link : *now) + o->seconds[id];
        o->over[id] = *link;
        o->flying[o->nflying++] = id;
    } else {
        *now += o->seconds[id];
    }
    for (int k = 0; k < n->nin; k++) wait_for(o, n->in[k]);
    copy_node(&o->c, n);
}

/* Who stands beside whom. */
static void find_neighbours(Overlap *o, int32_t *last, int32_t *first) {
    const Graph *g = o->g;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        o->begin[id] = id;
        for (int k = 0; k < n->nbody; k++)
            if (first[n->body[k]] && first[n->body[k]] < o->begin[id])
                o->begin[id] = first[n->body[k]];
        if (!first[n->region] || o->begin[id] < first[n->region]) first[n->region] = o->begin[id];
        o->prev[id] = last[n->region];
        o->next[last[n->region]] = id;
        last[n->region] = id;
    }
    o->next[0] = o->prev[0] = 0;
}

static bool prepare(Overlap *o, Turn **turns) {
    const Graph *g = o->g;
    Arena *arena = &o->c.arena;
    int32_t *last = ARENA_ARRAY(arena, int32_t, g->region.n);
    int32_t *first = ARENA_ARRAY(arena, int32_t, g->region.n);
    o->uses = graph_use_counts(g, arena);
    o->seconds = op_seconds(g, o->target, arena);
    o->turn = ARENA_ARRAY(arena, int32_t, g->node.n);
    o->prev = ARENA_ARRAY(arena, int32_t, g->node.n);
    o->next = ARENA_ARRAY(arena, int32_t, g->node.n);
    o->begin = ARENA_ARRAY(arena, int32_t, g->node.n);
    o->ahead = arena_alloc(arena, sizeof *o->ahead * (size_t)g->region.n);
    o->waited = ARENA_ARRAY(arena, bool, g->value.n);
    o->flying = ARENA_ARRAY(arena, int32_t, g->node.n);
    o->over = ARENA_ARRAY(arena, double, g->node.n);
    o->now = ARENA_ARRAY(arena, double, g->region.n);
    o->link = ARENA_ARRAY(arena, double, g->region.n);
    *turns = ARENA_ARRAY(arena, Turn, g->node.n);
    if (!last || !first || !o->uses || !o->seconds || !o->turn || !o->prev || !o->next ||
        !o->begin || !o->ahead || !o->waited || !o->flying || !o->over || !o->now || !o->link ||
        !*turns)
        return false;
    find_neighbours(o, last, first);
    for (int32_t id = 1; id < g->node.n; id++) o->turn[id] = 2 * id + 1;
    return true;
}

Err pass_overlap(const Graph *g, const PassOptions *options, Graph **out) {
    Overlap o = {.g = g, .target = options->target};
    Turn *turns = NULL;
    if (!copy_begin_graph(&o.c, g, true) || !prepare(&o, &turns)) {
        copy_no_memory(&o.c);
    } else {
        for (int32_t id = 1; id < g->node.n; id++)
            if (is_collective(g, graph_node(g, id))) place_start(&o, id);
        for (int32_t id = 1; id < g->node.n; id++) turns[id - 1] = (Turn){o.turn[id], id};
        qsort(turns, (size_t)g->node.n - 1, sizeof *turns, by_turn);
        for (int32_t i = 0; i < g->node.n - 1 && !o.c.b.err; i++) emit_node(&o, turns[i].id);
        if (!o.c.b.err) wait_for_results(&o, 0);
        copy_results(&o.c, 0);
    }
    return copy_end_graph(&o.c, out);
}
