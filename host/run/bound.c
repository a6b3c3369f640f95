#include "run/bound.h"

void bound_add(BoundPlans *all, BoundPlan *b, const Plan *plan) {
    *b = (BoundPlan){.next = all->first, .plan = plan, .serial = ++all->serials};
    if (all->first) all->first->prev = b;
    all->first = b;
}

void bound_remove(BoundPlans *all, BoundPlan *b) {
    if (b->prev) b->prev->next = b->next;
    if (!b->prev) all->first = b->next;
    if (b->next) b->next->prev = b->prev;
}

static Err fault_of(Ctx *cx, const Plan *p, int32_t step, const KFault *fault) {
    const PlanStep *s = plan_step(p, step);
    const char *where = s->locs.n ? plan_str(p, PLAN_LIST(p, int32_t, s->locs)[0]) : "";
    return err_set(cx, E_INDEX, "%s: id %lld is outside 0..%lld (0-based)%s%s", plan_str(p, s->op),
                   (long long)fault->value, (long long)fault->limit - 1,
                   *where ? "; the op was written at " : "", where);
}

Err bound_fault(Ctx *cx, const BoundPlans *all, int64_t tag, const KFault *fault) {
    const BoundPlan *b = all->first;
    while (b && b->serial != tag >> 32) b = b->next;
    if (b) return fault_of(cx, b->plan, (int32_t)(tag & INT32_MAX), fault);
    return err_set(cx, E_INDEX, "id %lld is outside 0..%lld (0-based)", (long long)fault->value,
                   (long long)fault->limit - 1);
}
