/* overlap.c - collectives start as soon as they can and are waited for late, so that independent
 * work runs between.
 *
 * A collective becomes two: the collective itself, which starts it, and a `done` of each result
 * before its first use, or where the collective should be over anyway; `done` also holds the
 * operand, whose memory must stay as it is until then. What waits for nothing but parameters (a
 * weight that is gathered) could start at once, and all of them would be whole at the same time.
 * Such a one starts early enough for the work behind it to take as long as it does, and no more
 * than AHEAD of them wait at a time (Rajbhandari et al. 2020 call it prefetching). */
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
    double *seconds; /* by node of region 0: what it takes at best */
    int32_t *turn;   /* by node: 2 id + 1, or 2 id of the node that it has moved before */
    bool *waited;    /* by value: a collective's result, already waited for */
    int32_t *flying; /* collectives that are on their way, in order */
    double *over;    /* by node: when it should be over */
    int32_t nflying;
} Overlap;

static bool is_collective(const Graph *g, const Node *n) {
    return n->region == 0 && graph_opdef(g, n)->collective;
}

static double bytes_of(const Graph *g, const Node *n) {
    double bytes = 0;
    for (int i = 0; i < n->nin; i++) bytes += (double)type_bytes(graph_type(g, n->in[i]));
    for (int i = 0; i < n->nout; i++) bytes += (double)type_bytes(graph_type(g, n->out + i));
    return bytes;
}

static bool estimate(Overlap *o) {
    const Graph *g = o->g;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        if (n->region || def->flags & (OPF_PARAM | OPF_NULLARY) || def->view) continue;
        if (def->collective) {
            o->seconds[id] = o->target->latency + bytes_of(g, n) / o->target->link;
            continue;
        }
        const Type **types = ARENA_ARRAY(&o->c.arena, const Type *, n->nin + n->nout + 1);
        if (!types) return false;
        o->seconds[id] = target_seconds(o->target, op_flops(g, n, types), bytes_of(g, n));
    }
    return true;
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

/* The collective, and what moves along with it, before node `place`. */
static void move(Overlap *o, int32_t id, int32_t place) {
    const Node *n = graph_node(o->g, id);
    o->turn[id] = 2 * place;
    for (int i = 0; i < n->nin; i++) {
        const Node *source = source_of(o, n->in[i]);
        for (const Node *at = graph_def(o->g, n->in[i]); at != source;
             at = graph_def(o->g, at->in[0]))
            o->turn[id_of(o->g, at)] = 2 * place;
    }
}

/* Where each collective starts. */
static void place_starts(Overlap *o) {
    const Graph *g = o->g;
    int32_t ahead[AHEAD] = {0}; /* where the last ones that came from parameters are needed */
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        if (!is_collective(g, n)) continue;
        int32_t ready = 0;
        bool from_params = true;
        for (int i = 0; i < n->nin; i++) {
            const Node *source = source_of(o, n->in[i]);
            if (!(graph_opdef(g, source)->flags & OPF_PARAM)) from_params = false;
            if (id_of(g, source) > ready) ready = id_of(g, source);
        }
        int32_t place = id;
        if (!from_params) {
            place = ready + 1;
        } else {
            double hidden = 0;
            int32_t first = ahead[0] > ready ? ahead[0] : ready;
            while (place - 1 > first && hidden < o->seconds[id])
                hidden += is_collective(g, graph_node(g, --place)) ? 0 : o->seconds[place];
            for (int i = 0; i + 1 < AHEAD; i++) ahead[i] = ahead[i + 1];
            ahead[AHEAD - 1] = id;
        }
        if (place < id) move(o, id, place);
    }
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

/* Waits for what should be over by `now`. */
static void land(Overlap *o, double now) {
    int kept = 0;
    for (int i = 0; i < o->nflying; i++) {
        const Node *n = graph_node(o->g, o->flying[i]);
        if (o->over[o->flying[i]] > now) {
            o->flying[kept++] = o->flying[i];
            continue;
        }
        for (int k = 0; k < n->nout; k++) wait_for(o, n->out + k);
    }
    o->nflying = kept;
}

static void emit(Overlap *o, const Turn *turns, int32_t count) {
    const Graph *g = o->g;
    double now = 0, link = 0; /* when the work, and the links, are through with what came so far */
    for (int32_t i = 0; i < count && !o->c.b.err; i++) {
        const Node *n = graph_node(g, turns[i].id);
        copy_enter(&o->c, n);
        if (n->region == 0) land(o, now);
        if (is_collective(g, n)) {
            link = (link > now ? link : now) + o->seconds[turns[i].id];
            o->over[turns[i].id] = link;
            o->flying[o->nflying++] = turns[i].id;
        } else {
            now += o->seconds[turns[i].id];
        }
        for (int k = 0; n->region == 0 && k < n->nin; k++) wait_for(o, n->in[k]);
        copy_node(&o->c, n);
    }
    const Region *top = &g->region.at[0];
    for (int i = 0; i < top->result.n && !o->c.b.err; i++) {
        o->c.b.region = 0;
        wait_for(o, top->result.at[i]);
    }
    copy_results(&o->c, 0);
}

static bool prepare(Overlap *o, Turn **turns) {
    const Graph *g = o->g;
    Arena *arena = &o->c.arena;
    o->uses = graph_use_counts(g, arena);
    o->seconds = ARENA_ARRAY(arena, double, g->node.n);
    o->turn = ARENA_ARRAY(arena, int32_t, g->node.n);
    o->waited = ARENA_ARRAY(arena, bool, g->value.n);
    o->flying = ARENA_ARRAY(arena, int32_t, g->node.n);
    o->over = ARENA_ARRAY(arena, double, g->node.n);
    *turns = ARENA_ARRAY(arena, Turn, g->node.n);
    if (!o->uses || !o->seconds || !o->turn || !o->waited || !o->flying || !o->over || !*turns)
        return false;
    for (int32_t id = 1; id < g->node.n; id++) o->turn[id] = 2 * id + 1;
    return estimate(o);
}

Err pass_overlap(const Graph *g, const PassOptions *options, Graph **out) {
    Overlap o = {.g = g, .target = options->target};
    Turn *turns = NULL;
    if (!copy_begin_graph(&o.c, g, true) || !prepare(&o, &turns)) {
        copy_no_memory(&o.c);
    } else {
        place_starts(&o);
        for (int32_t id = 1; id < g->node.n; id++) turns[id - 1] = (Turn){o.turn[id], id};
        qsort(turns, (size_t)g->node.n - 1, sizeof *turns, by_turn);
        emit(&o, turns, g->node.n - 1);
    }
    return copy_end_graph(&o.c, out);
}
