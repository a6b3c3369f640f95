#include "run/bind/collective.h"
#include "run/bind/reduce.h"

/* Result i of the device at `coord`: the reduction of all members' operand i, or of its part. */
static Err bind_tree(Exec *e, const DeviceGroup *g, int32_t domain, const int32_t coord[MAX_AXES],
                     int i) {
    const PlanStep *s = g->step;
    ItemOperand *from = ARENA_ARRAY(&e->arena, ItemOperand, g->size);
    Subtree *root = ARENA_ARRAY(&e->arena, Subtree, g->size);
    if (!from || !root) return exec_no_memory(e);
    int32_t parts = s->coll.kind == COLL_REDUCE_SCATTER ? g->size : 1;
    int32_t part = parts > 1 ? group_number(g, coord) : 0;
    for (int32_t m = 0; m < g->size; m++) {
        int32_t at[MAX_AXES];
        group_member(g, coord, m, at);
        root[m] = (Subtree){.first = m, .n = 1};
        from[m] = item_operand(e, domain, PLAN_LIST(e->plan, int32_t, s->in)[i], at);
        if (!item_narrow(e, &from[m], s->coll.dim, part, parts)) return exec_no_memory(e);
    }
    ItemOperand to = item_operand(e, domain, PLAN_LIST(e->plan, int32_t, s->out)[i], coord);
    return bind_reduction(e, s, root, from, g->size, &to);
}

/* ---- what moves ---- */

static Err bind_sources(Exec *e, const DeviceGroup *g, int32_t domain,
                        const int32_t coord[MAX_AXES]) {
    const PlanStep *s = g->step;
    int32_t n = group_sources(g, coord), value = PLAN_LIST(e->plan, int32_t, s->out)[0];
    ItemOperand to = item_operand(e, domain, value, coord);
    if (n == 0) return bind_zeros(e, s, &to);
    for (int32_t k = 0; k < n; k++) {
        GroupSource source = group_source(g, coord, k);
        ItemOperand from =
            item_operand(e, domain, PLAN_LIST(e->plan, int32_t, s->in)[0], source.from);
        ItemOperand part = to;
        if (!item_narrow(e, &from, source.from_dim, source.from_part, source.from_parts) ||
            !item_narrow(e, &part, source.to_dim, source.to_part, source.to_parts))
            return exec_no_memory(e);
        TRY(bind_copy(e, s, &from, &part));
    }
    return E_OK;
}

Err bind_collective(Exec *e, const DeviceGroup *g) {
    const PlanStep *s = g->step;
    bool reduces = s->coll.kind == COLL_ALL_REDUCE || s->coll.kind == COLL_REDUCE_SCATTER;
    int32_t slots = exec_class_slots(e, s->vary)[e->domains];
    for (int32_t slot = 0; slot < slots; slot++) {
        int32_t coord[MAX_AXES], domain = exec_slot_place(e, s->vary, slot, coord);
        if (!reduces) TRY(bind_sources(e, g, domain, coord));
        for (int i = 0; reduces && i < s->out.n; i++) TRY(bind_tree(e, g, domain, coord, i));
    }
    return E_OK;
}
