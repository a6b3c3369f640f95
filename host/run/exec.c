/* exec.c - runs a bound plan: bases for this call's buffers, then segment after segment. */
#include "run/exec.h"

#include <stdatomic.h>
#include <string.h>

/* ---- memory of one call ---- */
typedef struct Call {
    Exec *e;
    Tensor *const *args;
    const uint8_t *keep;
    Buffer **owned; /* by plan buffer: RESULT memory; by param (index + nbuffers): a private copy */
    _Atomic int failed; /* set by the first worker that finds a fault */
    bool interrupted;
    KFault fault;
    int32_t fault_step;
} Call;

static size_t slot_bytes(const Plan *p, const PlanBuffer *b) {
    return (size_t)((b->bytes + p->alignment - 1) / p->alignment * p->alignment);
}

/* Is every byte of the tensor held by nobody but this tensor, and by one slot only? */
static bool is_sole_owner(const Tensor *t) {
    for (int32_t i = 0; i < t->nslot; i++) {
        int32_t mine = 0;
        for (int32_t k = 0; k < t->nslot; k++) {
            if (t->shard[k].buffer != t->shard[i].buffer) continue;
            mine++;
            if (k != i && t->shard[k].offset == t->shard[i].offset) return false;
        }
        if (t->shard[i].buffer->refs != mine) return false;
    }
    return true;
}

/* Points the bases of param i at its shards, or at a private copy where it will be written but
 * others hold it too. */
static Err place_param(Call *c, int32_t i) {
    Exec *e = c->e;
    const Plan *p = e->plan;
    Tensor *t = c->args[i];
    if (!tensor_has_data(t))
        return err_set(e->rt->cx, E_VALUE,
                       "a ShapeDtypeStruct has no values to compute with; it is for step:lower and "
                       "step:plan");
    int32_t buffer = plan_value(p, PLAN_LIST(p, PlanParam, p->params)[i].value)->buffer;
    char **base = &e->base[e->first_base[buffer]];
    TRY(tensor_make_dense(t));
    for (int32_t s = 0; s < t->nslot; s++) base[s] = tensor_data(t, s);
    if (!e->written[i] || (!c->keep[i] && is_sole_owner(t))) return E_OK;
    size_t each = slot_bytes(p, plan_buffer(p, buffer));
    Buffer *copy = buffer_new(&e->rt->cx->alloc, each * (size_t)t->nslot);
    if (!copy) return err_nomem(e->rt->cx, "a copy of a donated argument");
    for (int32_t s = 0; s < t->nslot; s++) {
        tensor_read_shard(t, s, copy->data + each * (size_t)s);
        base[s] = copy->data + each * (size_t)s;
    }
    c->owned[p->buffers.n + i] = copy;
    e->copied++;
    return E_OK;
}

static Err place_results(Call *c) {
    Exec *e = c->e;
    const Plan *p = e->plan;
    for (int32_t i = 0; i < p->buffers.n; i++) {
        const PlanBuffer *b = plan_buffer(p, i);
        if (b->kind != BUFFER_RESULT) continue;
        char **base = &e->base[e->first_base[i]];
        int32_t slots = plan_slots(p, b->vary);
        if (b->take >= 0) {
            int32_t from = plan_value(p, PLAN_LIST(p, PlanParam, p->params)[b->take].value)->buffer;
            for (int32_t s = 0; s < slots; s++) base[s] = e->base[e->first_base[from] + s];
            continue;
        }
        size_t each = slot_bytes(p, b);
        c->owned[i] = buffer_new(&e->rt->cx->alloc, each * (size_t)slots);
        if (!c->owned[i]) {
            char text[BYTES_TEXT];
            return err_set(e->rt->cx, E_NOMEM, "out of memory: a result needs %s",
                           bytes_text((double)(each * (size_t)slots), text));
        }
        for (int32_t s = 0; s < slots; s++) base[s] = c->owned[i]->data + each * (size_t)s;
    }
    return E_OK;
}

/* Temporaries lie where they lay last time unless the workspace has moved. */
static void place_temporaries(Exec *e) {
    const Plan *p = e->plan;
    if (e->base_at == e->rt->workspace) return;
    for (int32_t i = 0; i < p->buffers.n; i++) {
        const PlanBuffer *b = plan_buffer(p, i);
        if (b->kind != BUFFER_TEMP) continue;
        int64_t each = PLAN_LIST(p, int64_t, p->classes)[b->vary];
        for (int32_t s = 0; s < plan_slots(p, b->vary); s++)
            e->base[e->first_base[i] + s] =
                e->rt->workspace + e->class_start[b->vary] + each * s + b->offset;
    }
    e->base_at = e->rt->workspace;
}

/* ---- running ---- */

/* Less work than this is done by the caller alone: waking others would cost more. */
#define INLINE_SECONDS 20e-6

static char *address(const Exec *e, const OperandRef *r) {
    char *at = e->base[r->base] + r->offset;
    for (int32_t i = 0; i < r->nslice; i++) at += r->slice[i].bytes * e->slice[r->slice[i].loop];
    return at;
}

static void run_item(Call *c, int32_t step, const Item *item, int64_t lo, int64_t hi, int thread) {
    Exec *e = c->e;
    Runtime *rt = e->rt;
    if (atomic_load_explicit(&c->failed, memory_order_relaxed)) return;
    char *scratch = rt->scratch + rt->scratch_each * (size_t)thread;
    KTensor *t = (KTensor *)(void *)scratch;
    int n = item->nin + item->nout;
    size_t used = (sizeof *t * (size_t)n + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
    for (int k = 0; k < n; k++) {
        t[k] = item->tensor[k];
        t[k].data = address(e, &item->ref[k]);
    }
    KFault fault = {.kind = K_FAULT_NONE};
    KArgs a = {.in = t,
               .out = t + item->nin,
               .nin = item->nin,
               .nout = item->nout,
               .attr = item->attr,
               .offsets = item->offsets,
               .workspace = scratch + used,
               .lo = lo,
               .hi = hi,
               .fault = &fault,
               .blas = rt->blas.table.sgemm ? &rt->blas.table : NULL};
    if (!item->row->fn(&a)) return;
    int expected = 0;
    if (atomic_compare_exchange_strong(&c->failed, &expected, 1)) {
        c->fault = fault;
        c->fault_step = step;
    }
}

typedef struct Work {
    Call *c;
    const Segment *seg;
    int32_t step; /* the one that is cut */
} Work;

/* Item `slot` of every step of the segment, one after the other. */
static void run_slot(void *ud, int64_t slot, int thread) {
    const Work *w = ud;
    const Exec *e = w->c->e;
    for (int32_t i = w->seg->first; i < w->seg->first + w->seg->n; i++) {
        const Item *item = &e->item[e->step[i].first + slot];
        run_item(w->c, i, item, 0, item->units, thread);
    }
}

static void run_cut(void *ud, int64_t index, int thread) {
    const Work *w = ud;
    const Exec *e = w->c->e;
    const BoundStep *b = &e->step[w->step];
    const Item *item = &e->item[b->first + index / b->cuts];
    int64_t cut = index % b->cuts;
    run_item(w->c, w->step, item, item->units * cut / b->cuts, item->units * (cut + 1) / b->cuts,
             thread);
}

static void run_segment(Call *c, const Segment *seg) {
    Exec *e = c->e;
    Pool *pool = e->rt->pool;
    bool small = seg->seconds < INLINE_SECONDS;
    Work w = {c, seg, 0};
    if (small && !seg->collective) {
        for (int32_t s = 0; s < seg->slots; s++) run_slot(&w, s, 0);
        return;
    }
    if (!seg->collective && seg->slots >= pool_threads(pool)) {
        pool_run(pool, run_slot, &w, seg->slots);
        return;
    }
    for (w.step = seg->first; w.step < seg->first + seg->n; w.step++) {
        const BoundStep *b = &e->step[w.step];
        int64_t pieces = (int64_t)b->n * b->cuts;
        if (small || pieces == 1)
            for (int64_t i = 0; i < pieces; i++) run_cut(&w, i, 0);
        else
            pool_run(pool, run_cut, &w, pieces);
    }
}

/* ---- loops and branches ---- */

static void run_segments(Call *c, int32_t first, int32_t n);

/* Does the loop go on for iteration `i`? Ctrl-C ends it here. */
static bool goes_on(Call *c, const PlanControl *control, const OperandRef *steer, int64_t i) {
    if (c->e->rt->interrupted) {
        c->interrupted = true;
        atomic_store(&c->failed, 1);
    }
    if (atomic_load(&c->failed)) return false;
    return control->trips >= 0 ? i < control->trips : *address(c->e, steer) != 0;
}

static void run_control(Call *c, const Segment *seg, int32_t first) {
    Exec *e = c->e;
    const PlanStep *s = plan_step(e->plan, seg->first);
    const PlanControl *control = &s->control;
    const OperandRef *steer = &e->step[seg->first].steer;
    if (s->kind == STEP_BRANCH) {
        int32_t index;
        memcpy(&index, address(e, steer), sizeof index);
        index = index < 0 ? 0 : index < seg->nbody ? index : seg->nbody - 1;
        for (int32_t k = 0; k < index; k++) first += seg->body[k];
        run_segments(c, first, seg->body[index]);
        return;
    }
    for (int64_t i = 0; goes_on(c, control, steer, i); i++) {
        e->slice[control->loop] = control->reverse ? control->trips - 1 - i : i;
        run_segments(c, first, seg->body[0]);
    }
}

static void run_segments(Call *c, int32_t first, int32_t n) {
    const Exec *e = c->e;
    for (int32_t i = first; i < first + n && !atomic_load(&c->failed); i++) {
        const Segment *seg = &e->segment.at[i];
        if (!seg->nbody) {
            run_segment(c, seg);
            continue;
        }
        run_control(c, seg, i + 1);
        for (int32_t k = 0; k < seg->nbody; k++) i += seg->body[k];
    }
}

/* ---- results ---- */

/* The shard of a value that the device at `coord` has: its buffer as a counted object, and where.
 */
static Shard shard_of(Call *c, int32_t value, const int32_t coord[MAX_AXES]) {
    Exec *e = c->e;
    const Plan *p = e->plan;
    const PlanValue *v = plan_value(p, value);
    const PlanBuffer *b = plan_buffer(p, v->buffer);
    int32_t slot = plan_slot(p, b->vary, coord);
    int64_t offset = plan_place(p, v, coord);
    int32_t param = b->kind == BUFFER_PARAM ? b->index : b->take;
    if (param < 0) {
        Buffer *own = c->owned[v->buffer];
        return (Shard){own, e->base[e->first_base[v->buffer] + slot] - own->data + offset};
    }
    Buffer *copy = c->owned[p->buffers.n + param];
    if (copy) return (Shard){copy, e->base[e->first_base[v->buffer] + slot] - copy->data + offset};
    const Shard *s = &c->args[param]->shard[slot];
    return (Shard){s->buffer, s->offset + offset};
}

static Err make_result(Call *c, int32_t i, Tensor **out) {
    Exec *e = c->e;
    const Plan *p = e->plan;
    int32_t value = PLAN_LIST(p, int32_t, p->results)[i];
    const PlanValue *v = plan_value(p, value);
    Tensor *t = tensor_new(e->rt->cx, e->result_type[i]);
    if (!t) return err_nomem(e->rt->cx, "a result");
    memcpy(t->strides, plan_dims(p, v) + v->rank, sizeof(int64_t) * v->rank);
    uint32_t used = layout_vary(t->type->layout);
    for (int32_t s = 0; s < t->nslot; s++) {
        int32_t coord[MAX_AXES];
        exec_slot_coords(p, used, s, coord);
        t->shard[s] = shard_of(c, value, coord);
        buffer_retain(t->shard[s].buffer);
    }
    *out = t;
    return E_OK;
}

static Err make_results(Call *c, Tensor **results) {
    for (int32_t i = 0; i < c->e->plan->results.n; i++) {
        Err err = make_result(c, i, &results[i]);
        if (!err) continue;
        while (i-- > 0) tensor_release(results[i]);
        return err;
    }
    return E_OK;
}

static Err fault_error(Call *c) {
    const Plan *p = c->e->plan;
    const PlanStep *s = plan_step(p, c->fault_step);
    Str where;
    str_init(&where, &c->e->rt->cx->alloc);
    if (s->locs.n) str_put(&where, plan_str(p, PLAN_LIST(p, int32_t, s->locs)[0]));
    Err err = err_set(c->e->rt->cx, E_INDEX, "%s: id %lld is outside 0..%lld (0-based)%s%s",
                      plan_str(p, s->op), (long long)c->fault.value, (long long)c->fault.limit - 1,
                      where.n ? "; the op was written at " : "", str_of(&where));
    str_free(&where);
    return err;
}

static void count(Exec *e) {
    Runtime *rt = e->rt;
    int32_t n = e->mesh ? e->mesh->ndevices : 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t device = e->mesh ? e->mesh->device[i] : 0;
        if (device >= rt->ndevices) continue;
        Counters *c = &rt->counters[device];
        c->flops += e->cost.flops;
        c->matmul_flops += e->cost.matmul_flops;
        c->collectives += e->cost.collectives;
        c->plans++;
        for (int k = 0; k <= COLL_PERMUTE; k++) c->sent[k] += e->cost.sent[k];
    }
}

static Err run(Call *c, Tensor **results) {
    Exec *e = c->e;
    const Plan *p = e->plan;
    if (e->mesh && e->mesh->abstract)
        return err_set(e->rt->cx, E_MESH,
                       "an AbstractMesh has no devices to run on; it is for step:lower and "
                       "step:plan");
    TRY(runtime_ready(e->rt, e->workspace, e->scratch));
    for (int32_t i = 0; i < p->params.n; i++) TRY(place_param(c, i));
    TRY(place_results(c));
    place_temporaries(e);
    /* Before anything runs: what fails from here on would leave donated arguments half written. */
    TRY(make_results(c, results));
    run_segments(c, 0, e->segment.n);
    if (atomic_load(&c->failed)) {
        for (int32_t i = 0; i < p->results.n; i++) tensor_release(results[i]);
        return c->interrupted ? err_set(e->rt->cx, E_INTERRUPT, "interrupted") : fault_error(c);
    }
    count(e);
    return E_OK;
}

/* Results that are known by type only. */
static Err run_fake(Exec *e, Tensor **results) {
    for (int32_t i = 0; i < e->plan->results.n; i++) {
        results[i] = tensor_new(e->rt->cx, e->result_type[i]);
        if (results[i]) continue;
        while (i-- > 0) tensor_release(results[i]);
        return err_nomem(e->rt->cx, "a result");
    }
    return E_OK;
}

Err exec_run(Exec *e, Tensor *const *args, const uint8_t *keep, Tensor **results) {
    Ctx *cx = e->rt->cx;
    const Plan *p = e->plan;
    if (e->rt->fake) return run_fake(e, results);
    size_t n = (size_t)(p->buffers.n + p->params.n);
    Buffer **owned = alloc_new(&cx->alloc, sizeof *owned * n);
    if (!owned) return err_nomem(cx, "running a plan");
    Call c = {.e = e, .args = args, .keep = keep, .owned = owned};
    Err err = run(&c, results);
    for (size_t i = 0; i < n; i++) buffer_release(owned[i]);
    alloc_free(&cx->alloc, owned, sizeof *owned * n);
    return err;
}
