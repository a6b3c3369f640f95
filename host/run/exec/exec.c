#include "run/exec/exec.h"

int32_t exec_slot(const Exec *e, int32_t k, uint32_t vary, const int32_t coord[MAX_AXES]) {
    if (!e->mesh) return 0;
    int32_t slot = place_slot(e->mesh, vary, exec_domain(e, k), coord);
    return slot < 0 ? slot : exec_class_slots(e, vary)[k] + slot;
}

int32_t exec_slot_place(const Exec *e, uint32_t vary, int32_t slot, int32_t coord[MAX_AXES]) {
    place_own_coords(e->mesh, vary, slot, coord);
    return place_own_domain(e->mesh, vary, slot);
}

int32_t exec_device(const Exec *e, int32_t index) {
    const Mesh *m = e->mesh;
    if (!m) return 0;
    return place_is_own(m, index) ? m->device[index] - m->domain * m->each : -1;
}

bool exec_holds(const Exec *e, GuardList list) {
    for (int32_t i = list.first; i < list.first + list.n; i++) {
        int32_t at = e->guarded.at[i];
        while (at >= 0) {
            const BoundGuard *g = &e->guard.at[at];
            if (!plan_guard_holds(e->plan, g->guard, g->place, e->slice)) break;
            at = g->parent;
        }
        if (at < 0) return true;
    }
    return list.n == 0;
}

/* ---- from its binding to its end ---- */

/* A broken invariant of what runs ends the process: says which plan it was. */
static void keep_plan(void *ud) {
    const Exec *e = ud;
    Str s;
    str_init(&s, &e->rt->cx->alloc);
    plan_print(e->plan, e->mesh, &s);
    if (!s.failed) guard_keep(e->rt->cx, "the plan", str_of(&s));
    str_free(&s);
}

void exec_guard(Exec *e, Guard *g) {
    guard_enter(g, e->rt->cx, keep_plan, e);
}

Exec *exec_retain(Exec *e) {
    e->refs++;
    return e;
}

/* Adds the runs since the last time to what the devices have done. */
static void settle(Exec *e) {
    Runtime *rt = e->rt;
    int32_t n = e->runs == 0 ? 0 : e->mesh ? e->mesh->ndevices : 1;
    double runs = (double)e->runs;
    for (int32_t i = 0; i < n; i++) {
        int32_t device = exec_device(e, i);
        if (device < 0 || device >= rt->ndevices) continue;
        Counters *c = &rt->counters[device];
        const Counters *cost = &e->cost[e->ncost > 1 ? i : 0];
        c->flops += cost->flops * runs;
        c->matmul_flops += cost->matmul_flops * runs;
        c->collectives += cost->collectives * e->runs;
        c->plans += e->runs;
        for (int k = 0; k <= COLL_PERMUTE; k++) c->sent[k] += cost->sent[k] * runs;
    }
    e->runs = 0;
}

const Counters *exec_counters(Runtime *rt, int32_t device) {
    for (BoundPlan *b = rt->plans.first; b; b = b->next) settle((Exec *)(void *)b);
    return &rt->counters[device];
}

void exec_release(Exec *e) {
    if (!e || --e->refs > 0) return;
    Ctx *cx = e->rt->cx;
    settle(e);
    replay_release(e);
    for (int32_t i = 0; i < e->item.n; i++)
        if (e->item.at[i].bound)
            e->rt->gpu.device.unbind(e->rt->gpu.device.self, e->item.at[i].bound);
    bound_remove(&e->rt->plans, &e->bound);
    plan_free(cx, e->plan);
    arena_free(&e->arena);
    alloc_free(&cx->alloc, e, sizeof *e);
}
