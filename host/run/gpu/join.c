/* join.c - one launch for several steps of a kernel, on a GPU.
 *
 * A kernel that many small tensors go through one by one, as AdamW's does with parameters, leaves a
 * GPU idle between launches. Its items that follow one another and do not depend on each other
 * become one, which has the inputs of them all, then their outputs. */
#include "run/bind/bind.h"

#include <string.h>

bool gpu_joins(const Exec *e, int32_t first, int32_t other) {
    const Plan *p = e->plan;
    const PlanStep *a = plan_step(p, first), *b = plan_step(p, other);
    const BoundStep *x = &e->step[first], *y = &e->step[other];
    if (a->kind != STEP_KERNEL || b->kind != STEP_KERNEL || x->n != y->n || !a->joins)
        return false;
    for (int32_t i = 0; i < x->n; i++) {
        const Item *own = &e->item.at[x->first + i], *its = &e->item.at[y->first + i];
        if (own->row != its->row || own->sliced || its->sliced) return false;
    }
    return a->attr.n == b->attr.n &&
           memcmp(PLAN_LIST(p, char, a->attr), PLAN_LIST(p, char, b->attr), (size_t)a->attr.n) == 0;
}

/* The items of one slot. */
static Err join_slot(Exec *e, int32_t first, int32_t n, int32_t slot) {
    Device *d = &e->rt->gpu.device;
    Item all = e->item.at[e->step[first].first + slot];
    int nin = all.args.nin, nout = all.args.nout, inputs = n * nin;
    all.tensor = ARENA_ARRAY(&e->arena, KTensor, n * (nin + nout));
    all.ref = ARENA_ARRAY(&e->arena, OperandRef, n * (nin + nout));
    if (!all.tensor || !all.ref) return exec_no_memory(e);
    for (int32_t i = 0; i < n; i++) {
        Item *item = &e->item.at[e->step[first + i].first + slot];
        for (int k = 0; k < nin + nout; k++) {
            int to = k < nin ? i * nin + k : inputs + i * nout + k - nin;
            bind_set_view(&all, to, &(View){item->tensor[k], item->ref[k]});
        }
        d->unbind(d->self, item->bound);
        item->bound = NULL;
        item->args.nin = item->args.nout = 0;
        item->joined = true;
    }
    all.args.in = all.tensor;
    all.args.out = all.tensor + inputs;
    all.args.nin = inputs;
    all.args.nout = n * nout;
    e->item.at[e->step[first].first + slot] = all;
    return bind_finish_item(e, &e->item.at[e->step[first].first + slot]);
}

Err gpu_join(Exec *e, int32_t first, int32_t n) {
    for (int32_t slot = 0; slot < e->step[first].n; slot++) TRY(join_slot(e, first, n, slot));
    return E_OK;
}
