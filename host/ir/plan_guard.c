/* plan_guard.c - steps that not all devices run in every turn: who does, and how often. */
#include "ir/plan.h"

int64_t plan_guard_place(const Plan *p, const PlanGuard *g, const int32_t coord[MAX_AXES]) {
    int64_t sum = 0;
    for (int i = 0; i < g->axes.n; i++) sum += PLAN_LIST(p, int64_t, g->axes)[i] * coord[i];
    return sum;
}

bool plan_guard_holds(const Plan *p, const PlanGuard *g, int64_t place, const int64_t *slice) {
    const PlanGuardLoop *l = PLAN_LIST(p, PlanGuardLoop, g->loops);
    const int32_t *cut = PLAN_LIST(p, int32_t, g->cut);
    for (int i = 0; i < g->loops.n; i++) place += l[i].by * slice[l[i].loop];
    int at = 0;
    while (at < g->cut.n && place >= cut[at]) at++;
    return PLAN_LIST(p, int32_t, g->run)[at] == g->region;
}

enum { MOST_LOOPS = 64 };

typedef struct Count { /* of the turns in which a guard and those around it hold */
    const Plan *p;
    int32_t guard;
    int64_t place[MOST_LOOPS]; /* by guard, from the inner one on */
    int64_t loop[MOST_LOOPS], trips[MOST_LOOPS];
    int32_t nloop, nguard;
    int64_t *slice; /* by loop */
} Count;

static void add_loops(Count *c, const PlanGuard *g) {
    const PlanGuardLoop *l = PLAN_LIST(c->p, PlanGuardLoop, g->loops);
    for (int i = 0; i < g->loops.n; i++) {
        int32_t k = 0;
        while (k < c->nloop && c->loop[k] != l[i].loop) k++;
        if (k < c->nloop || k == MOST_LOOPS) continue;
        c->loop[k] = l[i].loop;
        c->trips[k] = l[i].trips;
        c->nloop++;
    }
}

static bool all_hold(const Count *c) {
    int32_t k = 0;
    for (int32_t at = c->guard; at; at = plan_guard(c->p, at)->parent)
        if (!plan_guard_holds(c->p, plan_guard(c->p, at), c->place[k++], c->slice)) return false;
    return true;
}

static double count(const Count *c, int32_t k) {
    double n = 0;
    if (k == c->nloop) return all_hold(c);
    for (int64_t i = 0; i < c->trips[k]; i++) {
        c->slice[c->loop[k]] = i;
        n += count(c, k + 1);
    }
    return n;
}

double plan_times_on(const Plan *p, const PlanStep *s, const int32_t coord[MAX_AXES]) {
    enum { FEW = 256 };
    int64_t slice[FEW];
    Count c = {.p = p, .guard = s->guard, .slice = slice};
    double all = 1;
    if (!s->guard || p->nloop > FEW) return s->rounds;
    for (int32_t at = s->guard; at && c.nguard < MOST_LOOPS; at = plan_guard(p, at)->parent) {
        const PlanGuard *g = plan_guard(p, at);
        c.place[c.nguard++] = plan_guard_place(p, g, coord);
        add_loops(&c, g);
    }
    for (int32_t k = 0; k < c.nloop; k++) all *= (double)c.trips[k];
    return all == 0 ? 0 : s->rounds / all * count(&c, 0);
}

double plan_flops_on(const Plan *p, const int32_t coord[MAX_AXES]) {
    double flops = 0, times = 0;
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i), *before = i ? s - 1 : NULL;
        bool same = before && s->guard == before->guard && s->rounds == before->rounds;
        if (!same) times = plan_times_on(p, s, coord);
        flops += s->flops * times;
    }
    return flops;
}

uint32_t plan_guard_axes(const Plan *p) {
    uint32_t axes = 0;
    for (int32_t i = 1; i <= p->guards.n; i++)
        for (int k = 0; k < plan_guard(p, i)->axes.n; k++)
            if (PLAN_LIST(p, int64_t, plan_guard(p, i)->axes)[k]) axes |= 1u << k;
    return axes;
}

bool plan_guard_device(const Plan *p, int32_t i, int32_t coord[MAX_AXES]) {
    uint32_t axes = plan_guard_axes(p);
    for (int k = MAX_AXES - 1; k >= 0; k--) {
        coord[k] = 0;
        if (!(axes >> k & 1)) continue;
        coord[k] = i % p->axis_size[k];
        i /= p->axis_size[k];
    }
    return i == 0;
}
