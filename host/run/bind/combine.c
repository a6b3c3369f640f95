#include "run/bind/combine.h"
#include "run/bind/item.h"

#include <string.h>

enum { MAX_READERS_BACK = 4 }; /* steps: what reads the same stands close together */

typedef struct BufferSteps { /* of a buffer, by steps in their order */
    int32_t first, second, last, n;
} BufferSteps;

/* Two steps that may be one launch, as far as their operands say: see Device.pair. */
typedef struct LaunchPair {
    int32_t first, second, from, to;
    bool early; /* it stands in the place of the first */
} LaunchPair;

typedef struct Combination {
    Exec *e;
    const Depends *depends;
    BufferSteps *touch; /* by buffer */
} Combination;

/* Does the one run whenever the other does? */
static bool same_guards(const Exec *e, const Item *a, const Item *b) {
    const int32_t *x = e->guarded.at + a->guards.first, *y = e->guarded.at + b->guards.first;
    if (a->guards.n != b->guards.n) return false;
    return !a->guards.n || memcmp(x, y, sizeof *x * (size_t)a->guards.n) == 0;
}

/* ---- several steps of a kernel ---- */

static bool may_combine(const Exec *e, int32_t first, int32_t other) {
    const Plan *p = e->plan;
    const PlanStep *a = plan_step(p, first), *b = plan_step(p, other);
    const BoundStep *x = &e->step[first], *y = &e->step[other];
    if (a->kind != STEP_KERNEL || b->kind != STEP_KERNEL || x->n != y->n || !a->combines)
        return false;
    for (int32_t i = 0; i < x->n; i++) {
        const Item *own = &e->item.at[x->first + i], *its = &e->item.at[y->first + i];
        if (own->row != its->row || own->sliced || its->sliced) return false;
        if (!same_guards(e, own, its)) return false;
    }
    return a->attr.n == b->attr.n &&
           memcmp(PLAN_LIST(p, char, a->attr), PLAN_LIST(p, char, b->attr), (size_t)a->attr.n) == 0;
}

/* The items of one slot. */
static Err combine_slot(Exec *e, int32_t first, int32_t n, int32_t slot) {
    Item all = e->item.at[e->step[first].first + slot];
    int nin = all.args.nin, nout = all.args.nout, inputs = n * nin;
    all.tensor = ARENA_ARRAY(&e->arena, KTensor, n * (nin + nout));
    all.ref = ARENA_ARRAY(&e->arena, OperandRef, n * (nin + nout));
    if (!all.tensor || !all.ref) return exec_no_memory(e);
    for (int32_t i = 0; i < n; i++) {
        Item *item = &e->item.at[e->step[first + i].first + slot];
        for (int k = 0; k < nin + nout; k++) {
            int to = k < nin ? i * nin + k : inputs + i * nout + k - nin;
            item_set(&all, to, &(ItemOperand){item->tensor[k], item->ref[k]});
        }
        item->args.nin = item->args.nout = 0;
        item->combined = true;
    }
    all.args.in = all.tensor;
    all.args.out = all.tensor + inputs;
    all.args.nin = inputs;
    all.args.nout = n * nout;
    e->item.at[e->step[first].first + slot] = all;
    return E_OK;
}

/* Makes one launch of steps of a kernel that admits it. */
static Err combine_steps(Combination *c, const Segment *s) {
    Exec *e = c->e;
    for (int32_t i = s->first, k, end = s->first + s->n; i < end; i = k) {
        k = i + 1;
        while (k < end && may_combine(e, i, k) && !depend_any(c->depends, i, k - i, k, 1)) k++;
        for (int32_t slot = 0; k - i > 1 && slot < e->step[i].n; slot++)
            TRY(combine_slot(e, i, k - i, slot));
    }
    return E_OK;
}

/* ---- two steps ---- */

static void touch_all(const Plan *p, PlanSpan values, int32_t step, BufferSteps *touch) {
    for (int32_t i = 0; i < values.n; i++) {
        BufferSteps *t = &touch[plan_value(p, PLAN_LIST(p, int32_t, values)[i])->buffer];
        if (t->n && t->last == step) continue;
        if (t->n == 0) t->first = step;
        if (t->n == 1) t->second = step;
        t->last = step;
        t->n++;
    }
}

static BufferSteps *touches_of(Exec *e) {
    const Plan *p = e->plan;
    BufferSteps *touch = ARENA_ARRAY(&e->arena, BufferSteps, p->buffers.n + 1);
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
static bool is_private(const Exec *e, const BufferSteps *touch, const LaunchPair *m) {
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

/* Do the items do that step, and no other? */
static bool is_alone(const Exec *e, int32_t step) {
    const PlanStep *s = plan_step(e->plan, step);
    const Item *item = &e->item.at[e->step[step].first];
    return s->kind == STEP_KERNEL && e->step[step].n > 0 && item->args.nin == s->in.n &&
           !item->combined && item->with < 0;
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

/* The step that makes what input `to` of the second one reads, for it alone:
 * sets `first`, `from`. */
static bool makes(const Exec *e, const BufferSteps *touch, LaunchPair *m) {
    const Plan *p = e->plan;
    m->first = touch[buffer_at(p, plan_step(p, m->second)->in, m->to)].first;
    m->from = plan_step(p, m->first)->in.n;
    return m->first < m->second && is_alone(e, m->first) && is_alone(e, m->second) &&
           plan_step(p, m->first)->out.n == 1 && e->step[m->first].n == e->step[m->second].n &&
           is_private(e, touch, m);
}

/* Whether the first step reads what input `to` of the second one does: sets `from`. */
static bool shares(const Exec *e, LaunchPair *m) {
    if (!is_alone(e, m->first) || !is_alone(e, m->second) ||
        e->step[m->first].n != e->step[m->second].n)
        return false;
    m->from = same_input(e, m->first, m->second, m->to);
    return m->from >= 0;
}

/* An item of both, with the operands in the order of Device.pair; false when out of memory. */
static bool pair_of(Exec *e, const Item *a, const Item *b, Item *all) {
    const Item *const from[2] = {a, b};
    int nin = a->args.nin + b->args.nin, nout = a->args.nout + b->args.nout, in = 0, out = nin;
    all->tensor = ARENA_ARRAY(&e->arena, KTensor, nin + nout);
    all->ref = ARENA_ARRAY(&e->arena, OperandRef, nin + nout);
    if (!all->tensor || !all->ref) return false;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < from[i]->args.nin + from[i]->args.nout; k++)
            item_set(all, k < from[i]->args.nin ? in++ : out++,
                     &(ItemOperand){from[i]->tensor[k], from[i]->ref[k]});
    all->args.in = all->tensor;
    all->args.out = all->tensor + nin;
    all->args.nin = nin;
    all->args.nout = nout;
    all->sliced = a->sliced || b->sliced;
    return true;
}

static Err pair_slot(Exec *e, const LaunchPair *m, int32_t slot, bool *done) {
    Device *d = &e->rt->gpu.device;
    Item *a = &e->item.at[e->step[m->first].first + slot],
         *b = &e->item.at[e->step[m->second].first + slot];
    Item *here = m->early ? a : b, *gone = m->early ? b : a, all = *here;
    const DeviceWork work[2] = {{a->row->name, &a->args, a->bound},
                                {b->row->name, &b->args, b->bound}};
    size_t scratch = 0;
    *done = same_guards(e, a, b);
    if (!*done) return E_OK;
    all.bound = d->pair(d->self, a->domain, work, m->from, m->to, &scratch);
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
    gone->combined = true;
    return E_OK;
}

/* The launch, if the library has one for the two. */
static Err pair(Exec *e, const LaunchPair *m, bool *done) {
    *done = true;
    for (int32_t slot = 0; slot < e->step[m->second].n && *done; slot++)
        TRY(pair_slot(e, m, slot, done));
    return E_OK;
}

/* May the step be done on the other side of those between? */
static bool may_pass(const Combination *c, int32_t step, int32_t first, int32_t n) {
    const Exec *e = c->e;
    if (depend_any(c->depends, first, n, step, 1)) return false;
    for (int32_t i = first; i < first + n; i++) {
        int32_t with = e->step[i].n ? e->item.at[e->step[i].first].with : -1;
        if (with >= 0 && depend_steps(c->depends, with, step)) return false;
    }
    return true;
}

/* May the two be one launch, and where? */
static bool may_pair(const Combination *c, LaunchPair *m) {
    const Plan *p = c->e->plan;
    int32_t between = m->first + 1, n = m->second - between;
    bool made = m->from >= plan_step(p, m->first)->in.n;
    if (made ? depend_overlap(c->depends, plan_step(p, m->first)->in, plan_step(p, m->second)->out)
             : depend_steps(c->depends, m->first, m->second))
        return false;
    m->early = !may_pass(c, m->first, between, n);
    return !m->early || may_pass(c, m->second, between, n);
}

/* Makes one launch of a step and the one that makes what it reads, where the library
 * knows how. */
static Err pair_makers(const Combination *c, const Segment *s) {
    Exec *e = c->e;
    int32_t first = s->first, n = s->n;
    for (int32_t i = first; i < first + n; i++) {
        bool done = false;
        for (int32_t k = plan_step(e->plan, i)->in.n - 1; k >= 0 && !done; k--) {
            LaunchPair m = {.second = i, .to = k};
            if (makes(e, c->touch, &m) && m.first >= first && may_pair(c, &m))
                TRY(pair(e, &m, &done));
        }
    }
    return E_OK;
}

/* The same of a step and one shortly before it that reads the same. */
static Err pair_readers(const Combination *c, const Segment *s) {
    Exec *e = c->e;
    int32_t first = s->first, n = s->n;
    for (int32_t i = first; i < first + n; i++) {
        int32_t nin = plan_step(e->plan, i)->in.n, back = i - first;
        bool done = false;
        if (back > MAX_READERS_BACK) back = MAX_READERS_BACK;
        for (int32_t k = 0; k < back * nin && !done; k++) {
            LaunchPair m = {.first = i - 1 - k / nin, .second = i, .to = k % nin};
            if (shares(e, &m) && may_pair(c, &m)) TRY(pair(e, &m, &done));
        }
    }
    return E_OK;
}

/* ---- all of a plan ---- */

/* Of every item that no other one does, what the GPU runs. */
static Err bind_items(Exec *e) {
    Gpus *g = &e->rt->gpu;
    for (int32_t i = 0; i < e->item.n; i++) {
        Item *item = &e->item.at[i];
        size_t scratch = 0;
        if (item->combined) continue;
        item->bound =
            g->device.bind(g->device.self, item->domain, item->row->name, &item->args, &scratch);
        if (!item->bound) return gpu_error(g, item->row->name);
        if (scratch > e->scratch) e->scratch = scratch;
    }
    return E_OK;
}

static bool is_straight(const Segment *s) {
    return !s->nbody && !s->exchange;
}

Err combine_launches(Exec *e, const Depends *depends) {
    Combination c = {.e = e, .depends = depends, .touch = touches_of(e)};
    const Segment *end = e->segment.at + e->segment.n;
    if (!c.touch) return exec_no_memory(e);
    for (const Segment *s = e->segment.at; s < end; s++)
        if (is_straight(s)) TRY(combine_steps(&c, s));
    TRY(bind_items(e));
    for (const Segment *s = e->segment.at; s < end; s++) {
        if (!is_straight(s)) continue;
        TRY(pair_makers(&c, s));
        TRY(pair_readers(&c, s));
    }
    return E_OK;
}
