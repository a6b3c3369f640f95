#include "run/bind/item.h"

Item *item_add(Exec *e, const PlanStep *s, const char *kernel, int nin, int nout) {
    Item item = {.row = runtime_kernel(e->rt, kernel),
                 .step = (int32_t)(s - plan_step(e->plan, 0)),
                 .with = -1};
    ASSERT(item.row, "no kernel named %s", kernel);
    item.tensor = ARENA_ARRAY(&e->arena, KTensor, nin + nout);
    item.ref = ARENA_ARRAY(&e->arena, OperandRef, nin + nout);
    item.args = (KArgs){.in = item.tensor, .out = item.tensor + nin, .nin = nin, .nout = nout};
    bool ok = item.tensor && item.ref && VEC_PUSH(&e->arena, &e->item, item);
    return ok ? &e->item.at[e->item.n - 1] : NULL;
}

OperandRef item_ref(const Exec *e, int32_t k, int32_t value, const int32_t coord[MAX_AXES]) {
    const Plan *p = e->plan;
    const PlanValue *v = plan_value(p, value);
    int32_t slot = exec_slot(e, k, plan_buffer(p, v->buffer)->vary, coord);
    ASSERT(slot >= 0, "value %d of another domain", value);
    return (OperandRef){.base = e->first_base[item_root(p, v->buffer)] + slot,
                        .offset = plan_place(p, v, coord),
                        .nslice = v->per_slice.n,
                        .slice = PLAN_LIST(p, PlanStride, v->per_slice)};
}

ItemOperand item_operand(const Exec *e, int32_t k, int32_t value, const int32_t coord[MAX_AXES]) {
    return (ItemOperand){.tensor = item_tensor(e->plan, value),
                         .ref = item_ref(e, k, value, coord)};
}

bool item_narrow(Exec *e, ItemOperand *v, int dim, int64_t index, int64_t parts) {
    KTensor *t = &v->tensor;
    if (parts == 1) return true;
    /* The dims lists of a plan are shared. */
    int64_t *dims = arena_copy(&e->arena, t->dims, sizeof *dims * (size_t)t->rank);
    if (!dims) return false;
    dims[dim] /= parts;
    v->ref.offset += index * dims[dim] * t->strides[dim];
    t->dims = dims;
    return true;
}

void item_set(Item *item, int k, const ItemOperand *v) {
    item->tensor[k] = v->tensor;
    item->ref[k] = v->ref;
}

void item_finish(Exec *e, Item *item) {
    const KArgs *a = &item->args;
    item->domain = e->base_domain[item->ref[0].base];
    for (int k = 0; k < a->nin + a->nout; k++)
        if (item->ref[k].nslice) item->sliced = true;
    if (gpu_is_there(&e->rt->gpu)) return; /* see combine.h */
    item->units = item->row->units ? item->row->units(a) : 1;
    size_t scratch = item->row->workspace ? item->row->workspace(a) : 0;
    if (item->sliced) scratch += exec_operand_room(item);
    if (scratch > e->scratch) e->scratch = scratch;
}

bool item_args(const Plan *p, const PlanStep *s, const int32_t coord[MAX_AXES], Arena *a,
               KArgs *args) {
    /* A kernel that reads offsets reads one per dim, also where none was needed. */
    int64_t *offsets = ARENA_ARRAY(a, int64_t, s->offsets.n > MAX_RANK ? s->offsets.n : MAX_RANK);
    if (!offsets) return false;
    for (int k = 0; k < s->offsets.n; k++)
        offsets[k] = plan_offset(p, &PLAN_LIST(p, PlanOffset, s->offsets)[k], coord);
    args->offsets = offsets;
    args->attr = s->attr.n ? PLAN_LIST(p, char, s->attr) : NULL;
    return true;
}

int64_t item_bytes(const KTensor *t) {
    int64_t n = dtype_size(t->dtype);
    for (int d = 0; d < t->rank; d++) n *= t->dims[d];
    return n;
}

bool item_is_dense(const ItemOperand *v) {
    const KTensor *t = &v->tensor;
    int64_t step = dtype_size(t->dtype);
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->dims[d] > 1 && t->strides[d] != step) return false;
        step *= t->dims[d];
    }
    return true;
}

/* ---- guards ---- */

/* The guard of devices at that place, with those around it; -1 when out of memory. */
static int32_t bound_guard(Exec *e, int32_t guard, const int32_t coord[MAX_AXES]) {
    const PlanGuard *g = plan_guard(e->plan, guard);
    BoundGuard want = {g, plan_guard_place(e->plan, g, coord), -1};
    if (g->parent && (want.parent = bound_guard(e, g->parent, coord)) < 0) return -1;
    for (int32_t i = e->guard.n - 1; i >= 0; i--) {
        const BoundGuard *b = &e->guard.at[i];
        if (b->guard == g && b->place == want.place && b->parent == want.parent) return i;
    }
    return VEC_PUSH(&e->arena, &e->guard, want) ? e->guard.n - 1 : -1;
}

bool item_guards(Exec *e, const PlanStep *s, int32_t k, uint32_t vary, int32_t slot,
                 GuardList *out) {
    const Mesh *m = e->mesh;
    int32_t first = e->guarded.n;
    *out = (GuardList){0};
    for (int32_t i = 0; s->guard && i < m->ndevices; i++) {
        int32_t coord[MAX_AXES];
        if (!place_is_own(m, i)) continue;
        mesh_coords(m, i, coord);
        if (slot >= 0 && exec_slot(e, k, vary, coord) != slot) continue;
        int32_t guard = bound_guard(e, s->guard, coord);
        bool known = false;
        for (int32_t n = first; n < e->guarded.n; n++) known = known || e->guarded.at[n] == guard;
        if (guard < 0 || (!known && !VEC_PUSH(&e->arena, &e->guarded, guard))) return false;
    }
    *out = (GuardList){first, e->guarded.n - first};
    return true;
}
