/* exchange_bind.c - what the two kinds of exchange have in common. Items are added in the order in
 * which messages are counted out and sorted by phase at the end, since an operand's copies may
 * belong to any. An exchange's part of the wire begins behind those of all that may be on their way
 * together with it. */
#include "run/bind/exchange_bind.h"
#include "run/bind/collective.h"
#include "run/runtime/gpu_transport.h"

#include <stdlib.h>

/* Less than this is copied and added up by the caller alone. */
enum { INLINE_BYTES = 1 << 16, CUT_BYTES = 1 << 18, MAX_CUTS = 64 };

/* The items by phase, and otherwise in their order. */
static Err sort_items(Exec *e, Exchange *x) {
    int32_t first = e->step[x->step].first, n = e->item.n - first, done = first;
    Item *item = arena_copy(&e->arena, e->item.at + first, sizeof *item * (size_t)n);
    if (!item) return exec_no_memory(e);
    for (int k = 0; k < PHASES; k++) {
        x->phase[k].first = done;
        for (int32_t i = 0; i < n; i++)
            if (x->phase_of.at[i] == k) e->item.at[done++] = item[i];
        x->phase[k].n = done - x->phase[k].first;
    }
    return E_OK;
}

static int by_group(const void *a, const void *b) {
    const GroupDevice *x = a, *y = b;
    return x->group != y->group ? x->group - y->group : x->number - y->number;
}

/* The domain's devices, by group and number. */
static Err find_mine(Exec *e, const DeviceGroup *g, int32_t domain, GroupDeviceList *mine) {
    const Mesh *m = e->mesh;
    for (int32_t i = 0; i < m->ndevices; i++) {
        int32_t coord[MAX_AXES];
        if (place_domain(m, i) != domain) continue;
        mesh_coords(m, i, coord);
        GroupDevice one = {group_first(g, m, coord), group_number(g, coord)};
        if (!VEC_PUSH(&e->arena, mine, one)) return exec_no_memory(e);
    }
    if (mine->n) qsort(mine->at, (size_t)mine->n, sizeof *mine->at, by_group);
    return E_OK;
}

/* Where it must be over, and between which steps it may be on its way. */
static void find_over(const Exec *e, Exchange *x) {
    const Plan *p = e->plan;
    x->over = x->from = x->to = plan_done_of(p, x->step);
    if (x->over < 0) x->over = x->from = x->to = x->step;
    if (x->over >= x->step) {
        x->from = x->step;
        return;
    }
    x->from = plan_loop_around(p, x->step);
    x->to = x->from + plan_steps_in(p, plan_step(p, x->from));
}

/* What people read of it. */
static Err describe(Exec *e, const PlanStep *s, Exchange *x) {
    const Plan *p = e->plan;
    Str axes;
    str_init(&axes, &e->rt->cx->alloc);
    mesh_print_axes(e->mesh, s->coll.axes, &axes);
    char *copy = axes.failed ? NULL : arena_strdup(&e->arena, str_of(&axes));
    str_free(&axes);
    if (!copy) return exec_no_memory(e);
    x->what = (ExchangeInfo){.op = plan_str(p, s->op), .where = "", .axes = copy};
    if (s->locs.n) x->what.where = plan_str(p, PLAN_LIST(p, int32_t, s->locs)[0]);
    for (int k = 0; k < PHASES; k++)
        for (int32_t i = 0; i < x->phase[k].recv.n; i++)
            x->what.bytes += x->phase[k].recv.at[i].bytes;
    return E_OK;
}

/* Puts it behind those whose part of the wire may be in use while it is on its way. */
static void place_in_wire(Exec *e, Exchange *x) {
    for (const Exchange *y = e->exchange; y; y = y->before)
        if (y->to > x->from && x->to > y->from && y->wire_end > x->wire) x->wire = y->wire_end;
    x->wire_end = x->wire;
    x->before = e->exchange;
    e->exchange = x;
}

/* The part of this process's k-th domain. */
static Err bind_domain(Exec *e, Exchange *x, const DeviceGroup *g) {
    CollectiveKind kind = (CollectiveKind)g->step->coll.kind;
    GroupDeviceList mine = {.n = 0};
    x->wire_at = x->wire;
    TRY(find_mine(e, g, exec_domain(e, x->k), &mine));
    bool reduces = kind == COLL_ALL_REDUCE || kind == COLL_REDUCE_SCATTER;
    return reduces ? exchange_reduce(e, x, g, &mine) : exchange_move(e, x, g, &mine);
}

Err exchange_bind(Exec *e, int32_t step) {
    const PlanStep *s = plan_step(e->plan, step);
    DeviceGroup g = group_of(e->plan, s);
    if (!place_is_spread(e->mesh) || !group_crosses(&g, e->mesh)) return bind_collective(e, &g);
    if (gpu_is_there(&e->rt->gpu)) TRY(gpu_transport_need(e->rt));
    Exchange *x = ARENA_ARRAY(&e->arena, Exchange, 1);
    if (!x) return exec_no_memory(e);
    x->step = step;
    find_over(e, x);
    x->phases = s->coll.kind == COLL_ALL_REDUCE ? PHASES : PHASES - 1;
    place_in_wire(e, x);
    for (x->k = 0; x->k < e->domains; x->k++) TRY(bind_domain(e, x, &g));
    TRY(sort_items(e, x));
    for (int k = 0; k < PHASES; k++) {
        Phase *p = &x->phase[k];
        p->part = ARENA_ARRAY(&e->arena, CommPart, p->send.n + p->recv.n + 1);
        if (!p->part) return exec_no_memory(e);
    }
    if (x->wire_end > e->wire_bytes) e->wire_bytes = x->wire_end;
    e->step[step].exchange = e->step[x->over].exchange = x;
    return describe(e, s, x);
}

/* ---- stages ---- */

static int64_t written(const Item *item) {
    return item_bytes(&item->tensor[item->args.nin]);
}

/* The phase's items, cut by bytes. */
static Err add_stage(Exec *e, const Exchange *x, Phase *p) {
    int32_t step_first = e->step[x->step].first, begin = e->piece.n;
    int64_t sum = 0;
    p->stage = -1;
    for (int32_t i = p->first; i < p->first + p->n; i++) sum += written(&e->item.at[i]);
    if (sum < INLINE_BYTES || runtime_threads(e->rt) == 1) return E_OK;
    for (int32_t i = p->first; i < p->first + p->n; i++) {
        const Item *item = &e->item.at[i];
        int64_t cuts = written(item) / CUT_BYTES + 1;
        if (cuts > MAX_CUTS) cuts = MAX_CUTS;
        if (cuts > item->units) cuts = item->units > 0 ? item->units : 1;
        for (int64_t k = 0; k < cuts; k++) {
            Piece piece = {x->step, i - step_first, item->units * k / cuts,
                           item->units * (k + 1) / cuts};
            if (!VEC_PUSH(&e->arena, &e->piece, piece)) return exec_no_memory(e);
        }
    }
    int32_t lanes = e->piece.n - begin, *lane = ARENA_ARRAY(&e->arena, int32_t, lanes + 1);
    if (!lane) return exec_no_memory(e);
    for (int32_t i = 0; i <= lanes; i++) lane[i] = begin + i;
    p->stage = e->stage.n;
    if (e->most_stages < 1) e->most_stages = 1;
    if (e->most_queues < lanes) e->most_queues = lanes;
    PoolStage all = {.first = lane, .lanes = lanes, .steps = 1};
    return VEC_PUSH(&e->arena, &e->stage, all) ? E_OK : exec_no_memory(e);
}

Err exchange_schedule(Exec *e, Exchange *x) {
    for (int k = 0; k < PHASES; k++) TRY(add_stage(e, x, &x->phase[k]));
    return E_OK;
}
