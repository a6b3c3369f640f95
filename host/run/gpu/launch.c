/* launch.c - items on a GPU: what the library makes of them, how they get into the queue, and what
 * they have found wrong in their data. */
#include "run/bind/bind.h"

Err gpu_bind(Exec *e, Item *item) {
    Gpu *g = &e->rt->gpu;
    size_t scratch = 0;
    item->bound =
        g->device.bind(g->device.self, item->domain, item->row->name, &item->args, &scratch);
    if (scratch > e->scratch) e->scratch = scratch;
    return item->bound ? E_OK : gpu_error(g, item->row->name);
}

Err launch_items(Exec *e, const Item *item) {
    Gpu *g = &e->rt->gpu;
    for (int k = 0; item->sliced && k < item->args.nin + item->args.nout; k++)
        item->tensor[k].data = exec_address(e, &item->ref[k]);
    const PlanStep *s = plan_step(e->plan, item->step);
    const char *where =
        plan_str(e->plan, s->locs.n ? PLAN_LIST(e->plan, int32_t, s->locs)[0] : s->op);
    g->device.range(g->device.self, where);
    bool ok = g->device.launch(g->device.self, item->bound, &item->args,
                               g->of[item->domain].scratch, exec_tag(e, item->step));
    g->device.range(g->device.self, NULL);
    return ok ? E_OK : gpu_error(g, item->row->name);
}

static Err fault_error(const Exec *e, int32_t step, const KFault *fault) {
    const Plan *p = e->plan;
    const PlanStep *s = plan_step(p, step);
    const char *where = s->locs.n ? plan_str(p, PLAN_LIST(p, int32_t, s->locs)[0]) : "";
    return err_set(e->rt->cx, E_INDEX, "%s: id %lld is outside 0..%lld (0-based)%s%s",
                   plan_str(p, s->op), (long long)fault->value, (long long)fault->limit - 1,
                   *where ? "; the op was written at " : "", where);
}

Err launch_fault(Runtime *rt, int64_t tag, const KFault *fault) {
    const Exec *e = rt->exec;
    while (e && e->serial != tag >> 32) e = e->next;
    if (e) return fault_error(e, (int32_t)(tag & INT32_MAX), fault);
    return err_set(rt->cx, E_INDEX, "id %lld is outside 0..%lld (0-based)", (long long)fault->value,
                   (long long)fault->limit - 1);
}
