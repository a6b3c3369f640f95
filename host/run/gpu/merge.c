/* merge.c - two steps as one launch, on a GPU that may be faster at both than at one and the other:
 * one that makes a temporary, and the one behind it that alone reads it; or two that read the same.
 *
 * Which kernels these are, and whether it is worth it, is the library's business (Device.merge):
 * here it is seen to that nobody misses the temporary, and that the first step may wait until the
 * second one's turn. Its place stays planned, since the library may do one after the other. */
#include "run/bind/bind.h"

#include <string.h>

struct Touch { /* of a buffer, by steps in their order */
    int32_t first, second, last, n;
};

static void touch_all(const Plan *p, PlanSpan values, int32_t step, Touch *touch) {
    for (int32_t i = 0; i < values.n; i++) {
        Touch *t = &touch[plan_value(p, PLAN_LIST(p, int32_t, values)[i])->buffer];
        if (t->n && t->last == step) continue;
        if (t->n == 0) t->first = step;
        if (t->n == 1) t->second = step;
        t->last = step;
        t->n++;
    }
}

Touch *gpu_touches(Exec *e) {
    const Plan *p = e->plan;
    Touch *touch = ARENA_ARRAY(&e->arena, Touch, p->buffers.n + 1);
    for (int32_t i = 0; touch && i < p->steps.n; i++) {
        touch_all(p, plan_step(p, i)->in, i, touch);
        touch_all(p, plan_step(p, i)->out, i, touch);
    }
    return touch;
}

static int32_t buffer_at(const Plan *p, PlanSpan values, int32_t k) {
    return plan_value(p, PLAN_LIST(p, int32_t, values)[k])->buffer;
}

static bool same_view(const Item *a, int i, const Item *b, int k) {
    const KTensor *s = &a->tensor[i], *t = &b->tensor[k];
    const OperandRef *x = &a->ref[i], *y = &b->ref[k];
    size_t list = sizeof *s->dims * (size_t)s->rank;
    return x->base == y->base && x->offset == y->offset && !x->nslice && !y->nslice &&
           s->dtype == t->dtype && s->rank == t->rank && memcmp(s->dims, t->dims, list) == 0 &&
           memcmp(s->strides, t->strides, list) == 0;
}

/* Does item b write where item a does, all of it? */
static bool writes_over(const Item *a, const Item *b) {
    for (int k = 0; k < b->args.nout; k++)
        if (same_view(a, a->args.nin, b, b->args.nin + k)) return true;
    return false;
}

/* What the first step leaves is read by that input of the second one and by nobody else. */
static bool is_private(const Exec *e, const Touch *touch, const Merge *m) {
    const Plan *p = e->plan;
    const PlanStep *b = plan_step(p, m->second);
    int32_t buffer = buffer_at(p, b->in, m->to);
    bool passes = plan_buffer(p, buffer)->kind == BUFFER_TEMP && touch[buffer].n == 2;
    if (touch[buffer].second != m->second) return false;
    for (int32_t i = 0; i < b->in.n; i++)
        if (i != m->to && buffer_at(p, b->in, i) == buffer) return false;
    for (int32_t slot = 0; slot < e->step[m->first].n; slot++) {
        const Item *x = &e->item.at[e->step[m->first].first + slot],
                   *y = &e->item.at[e->step[m->second].first + slot];
        if (!same_view(x, x->args.nin, y, m->to)) return false;
        if (!passes && !writes_over(x, y)) return false;
    }
    return true;
}

static bool is_alone(const Exec *e, int32_t step) {
    const Item *item = &e->item.at[e->step[step].first];
    return plan_step(e->plan, step)->kind == STEP_KERNEL && e->step[step].n > 0 && !item->joined &&
           item->with < 0;
}

/* Which input of the step is input k of the other, for all slots; or -1. */
static int32_t same_input(const Exec *e, int32_t step, int32_t other, int32_t k) {
    for (int32_t i = 0; i < plan_step(e->plan, step)->in.n; i++) {
        bool same = true;
        for (int32_t slot = 0; slot < e->step[step].n; slot++)
            same = same && same_view(&e->item.at[e->step[step].first + slot], i,
                                     &e->item.at[e->step[other].first + slot], k);
        if (same) return i;
    }
    return -1;
}

bool gpu_makes(const Exec *e, const Touch *touch, Merge *m) {
    const Plan *p = e->plan;
    m->first = touch[buffer_at(p, plan_step(p, m->second)->in, m->to)].first;
    m->from = plan_step(p, m->first)->in.n;
    return m->first < m->second && is_alone(e, m->first) && is_alone(e, m->second) &&
           plan_step(p, m->first)->out.n == 1 && e->step[m->first].n == e->step[m->second].n &&
           is_private(e, touch, m);
}

bool gpu_shares(const Exec *e, Merge *m) {
    if (!is_alone(e, m->first) || !is_alone(e, m->second) ||
        e->step[m->first].n != e->step[m->second].n)
        return false;
    m->from = same_input(e, m->first, m->second, m->to);
    return m->from >= 0;
}

/* An item of both, with the operands in the order of Device.merge; false when out of memory. */
static bool pair_of(Exec *e, const Item *a, const Item *b, Item *all) {
    const Item *const from[2] = {a, b};
    int nin = a->args.nin + b->args.nin, nout = a->args.nout + b->args.nout, in = 0, out = nin;
    all->tensor = ARENA_ARRAY(&e->arena, KTensor, nin + nout);
    all->ref = ARENA_ARRAY(&e->arena, OperandRef, nin + nout);
    if (!all->tensor || !all->ref) return false;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < from[i]->args.nin + from[i]->args.nout; k++)
            bind_set_view(all, k < from[i]->args.nin ? in++ : out++,
                          &(View){from[i]->tensor[k], from[i]->ref[k]});
    all->args.in = all->tensor;
    all->args.out = all->tensor + nin;
    all->args.nin = nin;
    all->args.nout = nout;
    all->sliced = a->sliced || b->sliced;
    return true;
}

static Err merge_slot(Exec *e, const Merge *m, int32_t slot, bool *done) {
    Device *d = &e->rt->gpu.device;
    Item *a = &e->item.at[e->step[m->first].first + slot],
         *b = &e->item.at[e->step[m->second].first + slot];
    Item *here = m->early ? a : b, *gone = m->early ? b : a, all = *here;
    const DeviceWork work[2] = {{a->row->name, &a->args, a->bound},
                                {b->row->name, &b->args, b->bound}};
    size_t scratch = 0;
    all.bound = d->merge(d->self, a->domain, work, m->from, m->to, &scratch);
    *done = all.bound != NULL;
    if (!*done) return E_OK;
    a->bound = b->bound = NULL;
    if (!pair_of(e, a, b, &all)) {
        d->unbind(d->self, all.bound);
        return exec_no_memory(e);
    }
    if (scratch > e->scratch) e->scratch = scratch;
    all.with = gone->step;
    *here = all;
    gone->args.nin = gone->args.nout = 0;
    gone->joined = true;
    return E_OK;
}

Err gpu_merge(Exec *e, const Merge *m, bool *done) {
    *done = true;
    for (int32_t slot = 0; slot < e->step[m->second].n && *done; slot++)
        TRY(merge_slot(e, m, slot, done));
    return E_OK;
}
