/* plan_cost.c - a kernel takes as long as the larger of its operations, at the rate of its dtype,
 * and its traffic. A collective over several hosts is made in two: within hosts by their links,
 * and between them by the network, where a device sends what its host's others do not. */
#include "lua/jit/plan_cost.h"

#include "run/bind/group.h"
#include "run/runtime/hosts.h"

static double kernel_seconds(const Exec *e, const PlanStep *s) {
    const Target *t = e->rt->target;
    if (!s->product || !s->in.n) return target_seconds(t, s->flops, s->bytes);
    const PlanValue *v = plan_value(e->plan, PLAN_LIST(e->plan, int32_t, s->in)[0]);
    double work = s->flops / target_products(t, (DType)v->dtype);
    double traffic = target_seconds(t, 0, s->bytes);
    return work > traffic ? work : traffic;
}

/* How many members of the first group stand in the host of its first. */
static int32_t count_together(const Exec *e, const DeviceGroup *g) {
    int32_t zero[MAX_AXES] = {0}, coord[MAX_AXES], n = 0;
    if (!hosts_several(e->rt) || e->mesh->abstract) return g->size;
    int32_t host = hosts_of(e->rt, e->mesh->device[0]);
    for (int32_t i = 0; i < g->size; i++) {
        group_member(g, zero, i, coord);
        n += hosts_of(e->rt, e->mesh->device[place_index(e->mesh, coord)]) == host;
    }
    return n;
}

static int32_t members_together(const Exec *e, const PlanStep *s, const DeviceGroup *g,
                                KnownGroups *known) {
    enum { ROOM = sizeof known->axes / sizeof *known->axes };
    uint32_t axes = s->coll.list.n ? 0 : (uint32_t)s->coll.axes;
    int i = 0;
    while (i < known->n && (known->axes[i] != axes || !axes_equal(&known->list[i], &s->coll.list)))
        i++;
    if (i < known->n) return known->together[i];
    int32_t together = count_together(e, g);
    if (i == ROOM) return together;
    known->axes[i] = axes;
    known->list[i] = s->coll.list;
    known->together[i] = together;
    known->n++;
    return together;
}

static StepCost collective_cost(const Exec *e, const PlanStep *s, KnownGroups *known) {
    const Target *t = e->rt->target;
    StepCost c = {.sent = plan_bytes_sent(e->plan, s)};
    if (!e->mesh) return c;
    DeviceGroup g = group_of(e->plan, s);
    double near = members_together(e, s, &g, known), n = g.size;
    double bytes = plan_operand_bytes(e->plan, s) * s->times;
    CollectiveKind kind = (CollectiveKind)s->coll.kind;
    bool sums = kind == COLL_ALL_REDUCE || kind == COLL_REDUCE_SCATTER;
    if (near < n && kind == COLL_ALL_TO_ALL)
        c.between = bytes * (n - near) / n;
    else if (near < n)
        c.between = plan_collective_sent(kind, sums ? bytes / near : bytes, n / near);
    c.seconds = t->latency * s->times + (c.sent - c.between) / t->link + c.between / t->network;
    return c;
}

StepCost plan_cost(const Exec *e, const PlanStep *s, KnownGroups *known) {
    if (s->kind == STEP_COLLECTIVE) return collective_cost(e, s, known);
    return (StepCost){.seconds = kernel_seconds(e, s) * s->times};
}
