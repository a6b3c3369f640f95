/* bind.c - from a plan's steps to items: kernel, operands, attributes, one per slot. */
#include "run/exec.h"

#include <string.h>

static Err no_memory(Exec *e) {
    return err_nomem(e->rt->cx, "binding a plan");
}

void exec_slot_coords(const Plan *p, uint32_t vary, int32_t slot, int32_t coord[MAX_AXES]) {
    memset(coord, 0, sizeof *coord * MAX_AXES);
    for (int i = p->naxes - 1; i >= 0; i--) {
        if (!(vary >> i & 1)) continue;
        coord[i] = slot % p->axis_size[i];
        slot /= p->axis_size[i];
    }
}

Item *exec_add_item(Exec *e, const char *kernel, int nin, int nout) {
    Item *item = &e->item[e->nitem++];
    item->row = runtime_kernel(e->rt, kernel);
    ASSERT(item->row, "no kernel named %s", kernel);
    item->nin = nin;
    item->nout = nout;
    item->tensor = ARENA_ARRAY(&e->arena, KTensor, nin + nout);
    item->ref = ARENA_ARRAY(&e->arena, OperandRef, nin + nout);
    return item->tensor && item->ref ? item : NULL;
}

static OperandRef ref_of(Exec *e, int32_t value, const int32_t coord[MAX_AXES]) {
    const Plan *p = e->plan;
    const PlanValue *v = plan_value(p, value);
    const PlanBuffer *b = plan_buffer(p, v->buffer);
    return (OperandRef){e->first_base[v->buffer] + plan_slot(p, b->vary, coord),
                        plan_place(p, v, coord), v->per_slice.n,
                        PLAN_LIST(p, PlanStride, v->per_slice)};
}

void exec_set_operand(Exec *e, Item *item, int k, int32_t value, const int32_t coord[MAX_AXES]) {
    const PlanValue *v = plan_value(e->plan, value);
    const int64_t *dims = plan_dims(e->plan, v);
    item->tensor[k] = (KTensor){
        .dims = dims, .strides = dims + v->rank, .rank = v->rank, .dtype = (DType)v->dtype};
    item->ref[k] = ref_of(e, value, coord);
}

void exec_finish_item(Exec *e, Item *item) {
    KArgs a = {.in = item->tensor,
               .out = item->tensor + item->nin,
               .nin = item->nin,
               .nout = item->nout,
               .attr = item->attr,
               .offsets = item->offsets};
    item->units = item->row->units ? item->row->units(&a) : 1;
    size_t scratch = item->row->workspace ? item->row->workspace(&a) : 0;
    scratch += sizeof(KTensor) * (size_t)(item->nin + item->nout) + ALLOC_ALIGN;
    if (scratch > e->scratch) e->scratch = scratch;
}

static Err bind_kernel(Exec *e, const PlanStep *s, BoundStep *b) {
    const Plan *p = e->plan;
    b->n = plan_slots(p, s->vary);
    for (int32_t slot = 0; slot < b->n; slot++) {
        int32_t coord[MAX_AXES];
        exec_slot_coords(p, s->vary, slot, coord);
        Item *item = exec_add_item(e, plan_str(p, s->name), s->in.n, s->out.n);
        /* A kernel that reads offsets reads one per dim, also where none was needed. */
        int32_t room = s->offsets.n > MAX_RANK ? s->offsets.n : MAX_RANK;
        int64_t *offsets = ARENA_ARRAY(&e->arena, int64_t, room);
        if (!item || !offsets) return no_memory(e);
        for (int k = 0; k < s->in.n; k++)
            exec_set_operand(e, item, k, PLAN_LIST(p, int32_t, s->in)[k], coord);
        for (int k = 0; k < s->out.n; k++)
            exec_set_operand(e, item, s->in.n + k, PLAN_LIST(p, int32_t, s->out)[k], coord);
        for (int k = 0; k < s->offsets.n; k++)
            offsets[k] = plan_offset(p, &PLAN_LIST(p, PlanOffset, s->offsets)[k], coord);
        item->attr = s->attr.n ? PLAN_LIST(p, char, s->attr) : NULL;
        item->offsets = offsets;
        exec_finish_item(e, item);
    }
    return E_OK;
}

/* How many items a step becomes at most. */
static int64_t item_count(const Plan *p, const PlanStep *s) {
    if (s->kind == STEP_KERNEL) return plan_slots(p, s->vary);
    if (s->kind != STEP_COLLECTIVE) return 0;
    return (int64_t)s->in.n * p->ndevices * plan_slots(p, s->coll.axes);
}

/* Pieces of about this much work are worth a thread's while. */
#define CUT_SECONDS   25e-6
#define STEP_OVERHEAD 0.3e-6
enum { MAX_CUTS = 64 };

static double step_seconds(const Exec *e, const PlanStep *s) {
    return STEP_OVERHEAD + target_seconds(e->rt->target, s->flops, s->bytes);
}

/* Depends on the step alone, not on the number of threads. */
static int32_t cuts_of(const Exec *e, const PlanStep *s, const BoundStep *b) {
    double pieces = step_seconds(e, s) / CUT_SECONDS;
    int64_t units = INT64_MAX;
    for (int32_t i = 0; i < b->n; i++)
        if (e->item[b->first + i].units < units) units = e->item[b->first + i].units;
    if (pieces > MAX_CUTS) pieces = MAX_CUTS;
    int64_t n = pieces < 1 ? 1 : (int64_t)pieces;
    return (int32_t)(n < units ? n : units < 1 ? 1 : units);
}

static Err bind_steps(Exec *e) {
    const Plan *p = e->plan;
    int64_t items = 0;
    for (int32_t i = 0; i < p->steps.n; i++) items += item_count(p, plan_step(p, i));
    if (items > INT32_MAX / 2) return no_memory(e);
    e->item = ARENA_ARRAY(&e->arena, Item, items + 1);
    e->step = ARENA_ARRAY(&e->arena, BoundStep, p->steps.n + 1);
    if (!e->item || !e->step) return no_memory(e);
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        BoundStep *b = &e->step[i];
        b->first = e->nitem;
        if (s->kind == STEP_LOOP || s->kind == STEP_BRANCH) {
            const int32_t first[MAX_AXES] = {0};
            if (s->in.n) b->steer = ref_of(e, PLAN_LIST(p, int32_t, s->in)[0], first);
            continue;
        }
        if (s->kind == STEP_DONE) continue; /* here a collective is over when it has been run */
        TRY(s->kind == STEP_KERNEL ? bind_kernel(e, s, b) : exec_bind_collective(e, s, b));
        b->cuts = cuts_of(e, s, b);
    }
    return E_OK;
}

static Err bind_segments(Exec *e, int32_t first, int32_t n);

/* A LOOP or BRANCH, and its bodies. */
static Err bind_control(Exec *e, int32_t step) {
    const Plan *p = e->plan;
    const PlanControl *c = &plan_step(p, step)->control;
    Segment seg = {.first = step, .n = 1, .slots = 1, .nbody = c->body.n};
    seg.body = ARENA_ARRAY(&e->arena, int32_t, seg.nbody + 1);
    if (!seg.body || !VEC_PUSH(&e->arena, &e->segment, seg)) return no_memory(e);
    int32_t at = step + 1;
    for (int k = 0; k < c->body.n; k++) {
        int32_t before = e->segment.n, steps = PLAN_LIST(p, int32_t, c->body)[k];
        TRY(bind_segments(e, at, steps));
        seg.body[k] = e->segment.n - before;
        at += steps;
    }
    return E_OK;
}

static Err bind_segments(Exec *e, int32_t first, int32_t n) {
    const Plan *p = e->plan;
    int32_t begin = e->segment.n;
    for (int32_t i = first; i < first + n; i++) {
        const PlanStep *s = plan_step(p, i);
        bool collective = s->kind != STEP_KERNEL;
        if (s->control.body.n) {
            TRY(bind_control(e, i));
            i += plan_steps_in(p, s);
            begin = e->segment.n;
            continue;
        }
        Segment *last = e->segment.n > begin ? &e->segment.at[e->segment.n - 1] : NULL;
        bool joins =
            last && !collective && !last->collective && plan_step(p, i - 1)->vary == s->vary;
        if (!joins) {
            Segment seg = {.first = i, .slots = e->step[i].n, .collective = collective};
            if (!VEC_PUSH(&e->arena, &e->segment, seg)) return no_memory(e);
            last = &e->segment.at[e->segment.n - 1];
        }
        last->n++;
        last->seconds += step_seconds(e, s) * last->slots;
    }
    return E_OK;
}

/* A slot for every combination of the vary axes of every buffer. */
static Err bind_buffers(Exec *e) {
    const Plan *p = e->plan;
    e->slice = ARENA_ARRAY(&e->arena, int64_t, p->nloop + 1);
    e->first_base = ARENA_ARRAY(&e->arena, int32_t, p->buffers.n + 1);
    e->class_start = ARENA_ARRAY(&e->arena, int64_t, p->classes.n + 1);
    if (!e->slice || !e->first_base || !e->class_start) return no_memory(e);
    for (int32_t i = 0; i < p->buffers.n; i++) {
        e->first_base[i] = e->nbase;
        e->nbase += plan_slots(p, plan_buffer(p, i)->vary);
    }
    e->base = ARENA_ARRAY(&e->arena, char *, e->nbase + 1);
    if (!e->base) return no_memory(e);
    int64_t at = 0;
    for (int32_t c = 0; c < p->classes.n; c++) {
        e->class_start[c] = at;
        at += PLAN_LIST(p, int64_t, p->classes)[c] * plan_slots(p, (uint32_t)c);
    }
    e->workspace = (size_t)at;
    return E_OK;
}

static Err bind_params(Exec *e) {
    const Plan *p = e->plan;
    e->written = ARENA_ARRAY(&e->arena, bool, p->params.n + 1);
    if (!e->written) return no_memory(e);
    for (int32_t i = 0; i < p->params.n; i++) {
        int32_t buffer = plan_value(p, PLAN_LIST(p, PlanParam, p->params)[i].value)->buffer;
        for (int32_t k = 0; k < p->steps.n && !e->written[i]; k++) {
            const PlanStep *s = plan_step(p, k);
            for (int o = 0; o < s->out.n; o++)
                if (plan_value(p, PLAN_LIST(p, int32_t, s->out)[o])->buffer == buffer)
                    e->written[i] = true;
        }
    }
    for (int32_t i = 0; i < p->buffers.n; i++)
        if (plan_buffer(p, i)->take >= 0) e->written[plan_buffer(p, i)->take] = true;
    return E_OK;
}

static void add_costs(Exec *e) {
    const Plan *p = e->plan;
    e->cost.plans = 1;
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        e->cost.flops += s->flops * s->times;
        if (s->kind == STEP_COLLECTIVE) {
            e->cost.sent[s->coll.kind] += plan_bytes_sent(p, s);
            e->cost.collectives += (int64_t)s->times;
            continue;
        }
        const char *op = plan_str(p, s->op);
        bool product = strcmp(op, "matmul") == 0 || strncmp(op, "attention", 9) == 0;
        if (product) e->cost.matmul_flops += s->flops * s->times;
        if (product && s->flops >= BLAS_MIN_FLOPS) blas_load(e->rt->cx, &e->rt->blas);
    }
}

Err exec_bind(Runtime *rt, Plan *plan, const Mesh *mesh, const Type *const *result_type,
              Exec **out) {
    Exec *e = alloc_new(&rt->cx->alloc, sizeof *e);
    if (!e) {
        plan_free(rt->cx, plan);
        return err_nomem(rt->cx, "binding a plan");
    }
    *e = (Exec){.refs = 1, .rt = rt, .plan = plan, .mesh = mesh};
    arena_init(&e->arena, &rt->cx->alloc);
    e->result_type =
        arena_copy(&e->arena, result_type, sizeof *result_type * (size_t)plan->results.n);
    Err err = e->result_type ? E_OK : no_memory(e);
    if (!err && !rt->fake) {
        err = bind_buffers(e);
        if (!err) err = bind_steps(e);
        if (!err) err = bind_segments(e, 0, plan->steps.n);
        if (!err) err = bind_params(e);
    }
    if (err) {
        exec_release(e);
        return err;
    }
    add_costs(e);
    *out = e;
    return E_OK;
}

Exec *exec_retain(Exec *e) {
    e->refs++;
    return e;
}

void exec_release(Exec *e) {
    if (!e || --e->refs > 0) return;
    Ctx *cx = e->rt->cx;
    plan_free(cx, e->plan);
    arena_free(&e->arena);
    alloc_free(&cx->alloc, e, sizeof *e);
}
