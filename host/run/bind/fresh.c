#include "run/bind/fresh.h"
#include "run/bind/item.h"

/* Is the value all of its buffer? */
static bool is_whole(const Plan *p, const PlanValue *v) {
    KTensor t = {.dims = plan_dims(p, v), .strides = plan_dims(p, v) + v->rank, .rank = v->rank};
    t.dtype = (DType)v->dtype;
    bool still = v->offset == 0 && !v->per_device.n && !v->per_slice.n;
    return still && item_is_dense(&(ItemOperand){.tensor = t}) &&
           item_bytes(&t) == plan_buffer(p, v->buffer)->bytes;
}

typedef struct FreshFind {
    const Exec *e;
    const int32_t *param; /* by buffer, + 1 */
    bool *once, *never;   /* by param: its kernel has been met; it needs a copy */
} FreshFind;

static int32_t param_of(const FreshFind *f, PlanSpan list, int32_t k) {
    const Plan *p = f->e->plan;
    const PlanValue *v = plan_value(p, PLAN_LIST(p, int32_t, list)[k]);
    return f->param[item_root(p, v->buffer)] - 1;
}

/* What step k does to params; `inside`: it is in a loop or branch. */
static void look_at(const FreshFind *f, int32_t k, bool inside) {
    const Plan *p = f->e->plan;
    const PlanStep *s = plan_step(p, k);
    bool kernel = s->kind == STEP_KERNEL;
    bool items = kernel || (s->kind == STEP_COLLECTIVE && !f->e->step[k].exchange);
    for (int32_t o = 0; o < s->out.n; o++) {
        int32_t i = param_of(f, s->out, o);
        if (i < 0) continue;
        const PlanValue *v = plan_value(p, PLAN_LIST(p, int32_t, s->out)[o]);
        if (!kernel || inside || f->once[i] || !is_whole(p, v)) f->never[i] = true;
        f->once[i] = true;
    }
    for (int32_t o = 0; o < s->in.n && !items; o++) {
        int32_t i = param_of(f, s->in, o);
        if (i >= 0 && f->once[i]) f->never[i] = true;
    }
}

static void look_at_all(const FreshFind *f) {
    const Plan *p = f->e->plan;
    for (int32_t k = 0, end = 0; k < p->steps.n; k++) {
        look_at(f, k, k < end);
        if (k >= end) end = k + 1 + plan_steps_in(p, plan_step(p, k));
    }
}

/* From the bases of a param to its fresh ones, by base; 0: none. */
static int32_t *give_bases(Exec *e, const FreshFind *f) {
    int32_t *move = ARENA_ARRAY(&e->arena, int32_t, e->nbase + 1), at = e->fresh_base;
    for (int32_t i = 0; move && i < e->plan->params.n; i++) {
        BoundParam *p = &e->param[i];
        int32_t n = p->slot[e->domains];
        p->fresh = f->once[i] && !f->never[i] ? at : p->base;
        for (int32_t s = 0; s < n; s++) {
            move[p->base + s] = p->fresh - p->base;
            e->base_domain[at + s] = e->base_domain[p->base + s];
        }
        at += n;
    }
    return move;
}

Err fresh_bind(Exec *e, const int32_t *param) {
    int32_t n = e->plan->params.n;
    FreshFind f = {.e = e,
                   .param = param,
                   .once = ARENA_ARRAY(&e->arena, bool, n + 1),
                   .never = ARENA_ARRAY(&e->arena, bool, n + 1)};
    if (!f.once || !f.never) return exec_no_memory(e);
    /* A GPU's memory is not held: see run/disk/writer.h. */
    if (!gpu_is_there(&e->rt->gpu)) look_at_all(&f);
    const int32_t *move = give_bases(e, &f);
    int32_t *of = ARENA_ARRAY(&e->arena, int32_t, e->nbase + 1); /* by base: the param, + 1 */
    if (!move || !of) return exec_no_memory(e);
    for (int32_t i = 0; i < n; i++)
        for (int32_t s = 0; s < e->param[i].slot[e->domains]; s++) of[e->param[i].base + s] = i + 1;
    for (int32_t k = 0; k < e->item.n; k++) {
        Item *item = &e->item.at[k];
        for (int o = 0; o < item->args.nin + item->args.nout; o++) {
            OperandRef *r = &item->ref[o];
            if (!move[r->base]) continue;
            int32_t written = e->param[of[r->base] - 1].written;
            if (item->step > written || (item->step == written && o >= item->args.nin))
                r->base += move[r->base];
        }
    }
    return E_OK;
}
