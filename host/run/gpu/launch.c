/* launch.c - items on a GPU: what the library makes of them, how they get into the queue. */
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
                               g->of[item->domain].scratch, bound_tag(&e->bound, item->step));
    g->device.range(g->device.self, NULL);
    return ok ? E_OK : gpu_error(g, item->row->name);
}
