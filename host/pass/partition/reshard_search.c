/* reshard_search.c - the cheapest way from one layout to another, by uniform-cost search: axes are
 * cut into parts of prime size, a state says where each part is, a step is one move. Among equal
 * costs the fewest moves win, then what was found first. */
#include "pass/partition/reshard.h"

#include <string.h>

enum { MAX_PARTS = 8, MAX_STATES = 768, NOWHERE = 0, UNREDUCED = 255 };
#define COST_EPS 1e-9

typedef struct State { /* one byte per part: */
    uint8_t
        place[MAX_PARTS]; /* 1 + MAX_RANK * position in the dim + dim, or NOWHERE, or UNREDUCED */
} State;

typedef struct Reached {
    State s;
    double cost;
    int16_t moves, parent; /* to the state before; -1: the start */
    bool done;
    Move move; /* its axes are `part` */
    uint8_t count, part[MAX_PARTS];
} Reached;

typedef struct Search {
    const Dims *global;
    const Layout *from;
    AxisRef part[MAX_PARTS];
    uint32_t wanted; /* the parts that the target uses (mask) */
    int nparts, rank, n;
    double limit; /* what costs as much is of no use */
    State goal;
    Reached reached[MAX_STATES];
} Search;

/* ---- parts and places ---- */

/* The parts of an axis, major to minor; false where there is no room. */
static bool cut_axis(Search *s, int axis, int size) {
    int pre = 1;
    for (int p = 2; size > 1; p++)
        for (; size % p == 0; size /= p, pre *= p) {
            if (s->nparts == MAX_PARTS) return false;
            s->part[s->nparts++] = (AxisRef){(uint8_t)axis, (uint16_t)pre, (uint16_t)p};
        }
    return true;
}

/* Where the parts are in a layout; false where it cuts an axis elsewhere. */
static bool place(const Search *s, const Layout *l, State *out) {
    memset(out, NOWHERE, sizeof *out);
    for (int p = 0; p < s->nparts; p++)
        if (l->unreduced >> s->part[p].axis & 1) out->place[p] = UNREDUCED;
    for (int d = 0; d < l->rank; d++)
        for (int i = 0, at = 0; i < l->dim[d].axes.n; i++) {
            AxisRef r = l->dim[d].axes.at[i];
            int size = 1;
            for (int p = 0; p < s->nparts; p++) {
                if (!axes_overlap(s->part[p], r)) continue;
                size *= s->part[p].size;
                out->place[p] = (uint8_t)(1 + MAX_RANK * at++ + d);
            }
            if (size != r.size) return false;
        }
    return true;
}

typedef struct Lists { /* a state, by dim */
    int n[MAX_RANK];
    uint8_t at[MAX_RANK][MAX_PARTS];
    int64_t parts[MAX_RANK];
    double local; /* one shard, as a share of the tensor */
} Lists;

static Lists lists_of(const Search *s, const State *state) {
    Lists l = {.local = 1};
    for (int d = 0; d < MAX_RANK; d++) l.parts[d] = 1;
    for (int p = 0; p < s->nparts; p++) {
        int at = state->place[p] - 1;
        if (state->place[p] == NOWHERE || state->place[p] == UNREDUCED) continue;
        int d = at % MAX_RANK;
        l.at[d][at / MAX_RANK] = (uint8_t)p;
        l.n[d]++;
        l.parts[d] *= s->part[p].size;
        l.local /= s->part[p].size;
    }
    return l;
}

/* Puts the part behind those that are on the dim; false where the dim cannot be cut so. */
static bool put(const Search *s, State *state, Lists *l, int d, int p) {
    if (s->global->at[d] % (l->parts[d] * s->part[p].size) != 0) return false;
    state->place[p] = (uint8_t)(1 + MAX_RANK * l->n[d] + d);
    l->at[d][l->n[d]++] = (uint8_t)p;
    l->parts[d] *= s->part[p].size;
    return true;
}

/* ---- moves ---- */

static void reach(Search *s, int parent, const State *state, double cost, Reached how) {
    const Reached *before = &s->reached[parent];
    how.s = *state;
    how.cost = before->cost + cost;
    how.moves = (int16_t)(before->moves + 1);
    how.parent = (int16_t)parent;
    if (how.cost >= s->limit - COST_EPS) return;
    for (int i = 0; i < s->n; i++) {
        Reached *r = &s->reached[i];
        if (memcmp(&r->s, state, sizeof *state) != 0) continue;
        bool equal = how.cost < r->cost + COST_EPS;
        if (!r->done && (how.cost < r->cost - COST_EPS || (equal && how.moves < r->moves)))
            *r = how;
        return;
    }
    if (s->n < MAX_STATES) s->reached[s->n++] = how;
}

static void take_part(Reached *how, int p) {
    how->part[how->count++] = (uint8_t)p;
}

static void try_slices(Search *s, int at, const Lists *l) {
    for (int d = 0; d < s->rank; d++)
        for (int p = 0; p < s->nparts; p++) {
            State state = s->reached[at].s;
            Lists more = *l;
            Reached how = {.move = {.kind = MOVE_SLICE, .dim = d, .from = d}};
            if (state.place[p] != NOWHERE || !(s->wanted >> p & 1)) continue;
            take_part(&how, p);
            if (put(s, &state, &more, d, p)) reach(s, at, &state, 0, how);
        }
}

/* The parts of the unreduced axes in `axes`, in order: onto dim d, or (d < 0) for all. */
static void try_sum(Search *s, int at, const Lists *l, uint32_t axes, int d) {
    State state = s->reached[at].s;
    Lists more = *l;
    double n = 1;
    Reached how = {.move = {.kind = d < 0 ? MOVE_REDUCE : MOVE_SCATTER}};
    if (d >= 0) how.move.dim = how.move.from = d;
    for (int p = 0; p < s->nparts; p++) {
        if (!(axes >> s->part[p].axis & 1)) continue;
        take_part(&how, p);
        n *= s->part[p].size;
        if (d < 0)
            state.place[p] = NOWHERE;
        else if (!put(s, &state, &more, d, p))
            return;
    }
    reach(s, at, &state, l->local * (d < 0 ? 2 : 1) * (n - 1) / n, how);
}

static void try_sums(Search *s, int at, const Lists *l) {
    uint32_t unreduced = 0;
    for (int p = 0; p < s->nparts; p++)
        if (s->reached[at].s.place[p] == UNREDUCED) unreduced |= 1u << s->part[p].axis;
    if (!unreduced) return;
    try_sum(s, at, l, unreduced, -1);
    for (int d = 0; d < s->rank; d++) {
        for (int i = 0; i < MAX_AXES; i++)
            if (unreduced >> i & 1) try_sum(s, at, l, 1u << i, d);
        if (unreduced & (unreduced - 1)) try_sum(s, at, l, unreduced, d);
    }
}

/* The last parts of a dim, to another one or to nobody. */
static void try_suffixes(Search *s, int at, const Lists *l) {
    for (int from = 0; from < s->rank; from++) {
        double n = 1;
        for (int k = l->n[from] - 1; k >= 0; k--) {
            n *= s->part[l->at[from][k]].size;
            State gone = s->reached[at].s;
            Reached how = {.move = {.kind = MOVE_GATHER, .dim = from, .from = from}};
            for (int i = k; i < l->n[from]; i++) {
                take_part(&how, l->at[from][i]);
                gone.place[l->at[from][i]] = NOWHERE;
            }
            reach(s, at, &gone, l->local * (n - 1), how);
            how.move.kind = MOVE_TO_ALL;
            for (int d = 0; d < s->rank; d++) {
                State moved = gone;
                Lists more = *l;
                bool ok = d != from;
                for (int i = k; ok && i < l->n[from]; i++)
                    ok = put(s, &moved, &more, d, l->at[from][i]);
                how.move.dim = d;
                if (ok) reach(s, at, &moved, l->local * (n - 1) / n, how);
            }
        }
    }
}

/* Parts that are in use and not in `state`, behind those of dim d until its product is `parts`. */
static bool fill(const Search *s, const State *used, State *state, Lists *l, int d, int64_t parts) {
    for (int p = 0; p < s->nparts && l->parts[d] < parts; p++) {
        bool free = used->place[p] != NOWHERE && used->place[p] != UNREDUCED;
        if (!free || state->place[p] != NOWHERE) continue;
        if (parts % (l->parts[d] * s->part[p].size) == 0) put(s, state, l, d, p);
    }
    return l->parts[d] == parts;
}

/* Shards of equal size change places so that only gathers are left: other moves come before. */
static void try_permute(Search *s, int at, const Lists *l) {
    State state = s->goal;
    Lists more = lists_of(s, &state);
    for (int p = 0; p < s->nparts; p++)
        if (s->reached[at].s.place[p] == UNREDUCED) return;
    for (int d = 0; d < s->rank; d++)
        if (l->parts[d] % more.parts[d] != 0 ||
            !fill(s, &s->reached[at].s, &state, &more, d, l->parts[d]))
            return;
    reach(s, at, &state, l->local, (Reached){.move = {.kind = MOVE_PERMUTE}});
}

/* ---- the search ---- */

static int cheapest(const Search *s) {
    int best = -1;
    for (int i = 0; i < s->n; i++) {
        const Reached *r = &s->reached[i], *b = &s->reached[best < 0 ? 0 : best];
        if (r->done) continue;
        if (best < 0 || r->cost < b->cost - COST_EPS ||
            (r->cost < b->cost + COST_EPS && r->moves < b->moves))
            best = i;
    }
    return best;
}

/* The moves that lead to a state; slices of a dim that follow each other are one. */
static void write_moves(const Search *s, int at, Moves *out) {
    int16_t path[MAX_MOVES];
    int n = 0;
    for (; s->reached[at].parent >= 0 && n < MAX_MOVES; at = s->reached[at].parent)
        path[n++] = (int16_t)at;
    Layout cur = *s->from;
    *out = (Moves){0};
    for (int i = n - 1; i >= 0; i--) {
        const Reached *r = &s->reached[path[i]];
        Move move = r->move;
        for (int k = 0; k < r->count; k++) axes_push(&move.axes, s->part[r->part[k]]);
        if (move.kind == MOVE_PERMUTE) {
            Lists l = lists_of(s, &r->s);
            for (int d = 0; d < s->rank; d++)
                for (int k = 0; k < l.n[d]; k++) axes_push(&out->lists[d], s->part[l.at[d][k]]);
        }
        Move *last = out->n ? &out->at[out->n - 1] : NULL;
        if (move.kind == MOVE_SLICE && last && last->kind == MOVE_SLICE && last->dim == move.dim) {
            axes_push(&last->axes, move.axes.at[0]);
            axes_push(&cur.dim[move.dim].axes, move.axes.at[0]);
        } else {
            reshard_push(out, move, &cur);
        }
    }
}

void reshard_search(const Dims *global, const Layout *from, const Layout *to, Moves *best) {
    Search *s = &(Search){.global = global, .from = from, .rank = from->rank, .limit = best->sent};
    uint32_t axes = layout_used(from) | layout_used(to);
    State start;
    for (int i = 0; i < from->mesh->naxes; i++)
        if (axes >> i & 1 && !cut_axis(s, i, from->mesh->size[i])) return;
    if (!place(s, from, &start) || !place(s, to, &s->goal)) return;
    for (int p = 0; p < s->nparts; p++)
        if (s->goal.place[p] != NOWHERE) s->wanted |= 1u << p;
    s->reached[s->n++] = (Reached){.s = start, .parent = -1};
    for (int at; (at = cheapest(s)) >= 0;) {
        s->reached[at].done = true;
        if (memcmp(&s->reached[at].s, &s->goal, sizeof s->goal) == 0) {
            write_moves(s, at, best);
            return;
        }
        Lists l = lists_of(s, &s->reached[at].s);
        try_slices(s, at, &l);
        try_sums(s, at, &l);
        try_permute(s, at, &l);
        try_suffixes(s, at, &l);
    }
}
