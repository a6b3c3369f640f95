/* exec.c - runs a bound plan: bases for this call's buffers, then stretch after stretch. */
#include "run/agree.h"
#include "run/exchange.h"
#include "run/profile.h"
#include "run/shortage.h"

#include <stdatomic.h>
#include <string.h>

/* ---- memory of one call ---- */
typedef struct Call {
    Exec *e;
    Tensor *const *args;
    const uint8_t *keep;
    _Atomic int failed; /* set by the first worker that finds a fault */
    bool interrupted;
    Err lost; /* what came of an exchange with other processes, if it failed */
    KFault fault;
    int32_t fault_step;
} Call;

/* Is every byte of the tensor held by nobody but this tensor, and by one slot only? */
static bool is_sole_owner(const Tensor *t) {
    const Shard *shard = t->shard;
    bool apart = true; /* one buffer, the slots' places rising */
    for (int32_t i = 1; i < t->nslot; i++)
        if (shard[i].buffer != shard[0].buffer || shard[i].offset <= shard[i - 1].offset)
            apart = false;
    if (apart) return shard[0].buffer->refs == t->nslot;
    for (int32_t i = 0; i < t->nslot; i++) {
        int32_t mine = 0;
        for (int32_t k = 0; k < t->nslot; k++) {
            if (shard[k].buffer != shard[i].buffer) continue;
            mine++;
            if (k != i && shard[k].offset == shard[i].offset) return false;
        }
        if (shard[i].buffer->refs != mine) return false;
    }
    return true;
}

/* A private copy of an argument that will be written but that others hold, too. */
static Err copy_param(Call *c, int32_t i) {
    Exec *e = c->e;
    const BoundParam *p = &e->param[i];
    const Tensor *t = c->args[i];
    Memory *m = e->rt->cx->memory;
    Buffer *copy = e->copy[i] = buffer_new(e->rt->cx, p->each * (size_t)t->nslot);
    if (!copy) return err_nomem(e->rt->cx, "a copy of a donated argument");
    for (int32_t s = 0; s < t->nslot; s++) {
        char *at = copy->data + p->each * (size_t)s;
        TRY(m ? m->move(m, at, tensor_data(t, s), tensor_shard_bytes(t))
              : tensor_read_shard(t, s, at));
        exec_set_base(e, p->base + s, at);
    }
    e->copied++;
    return E_OK;
}

/* A shard where it lies, as a kernel sees it. */
static KTensor view_of(const Tensor *t, int32_t slot) {
    return (KTensor){tensor_data(t, slot), t->local.at, t->strides, t->local.rank, t->type->dtype};
}

/* Replaces strided shards by row-major copies. */
static Err make_dense(const Exec *e, Tensor *t) {
    Runtime *rt = e->rt;
    Tensor *dense = tensor_alloc(rt->cx, t->type);
    if (!dense) return err_nomem(rt->cx, "a copy of a strided tensor");
    Err err = E_OK;
    for (int32_t i = 0; i < t->nslot && !err; i++) {
        KTensor from = view_of(t, i), to = view_of(dense, i);
        KArgs args = {.in = &from, .out = &to, .nin = 1, .nout = 1};
        err = gpu_is_there(&rt->gpu) ? gpu_run(&rt->gpu, "copy", &args)
                                     : tensor_read_shard(t, i, tensor_data(dense, i));
    }
    if (!err) tensor_move(t, dense);
    tensor_release(dense);
    return err;
}

static Err place_param(Call *c, int32_t i) {
    Exec *e = c->e;
    const BoundParam *p = &e->param[i];
    Tensor *t = c->args[i];
    if (!tensor_has_data(t))
        return err_set(e->rt->cx, E_VALUE,
                       "a ShapeDtypeStruct has no values to compute with; it is for step:lower and "
                       "step:plan");
    if (t->strided) TRY(make_dense(e, t));
    if (p->written && (c->keep[i] || !is_sole_owner(t))) return copy_param(c, i);
    return replay_place_param(e, i, t);
}

static Err place_result(Exec *e, int32_t i) {
    const BoundBuffer *b = &e->buffer[i];
    if (b->take >= 0) {
        int32_t from = e->param[b->take].base;
        for (int32_t s = 0; s < b->slots; s++) exec_set_base(e, b->base + s, e->base[from + s]);
        return E_OK;
    }
    size_t bytes = b->each * (size_t)b->slots;
    Buffer *own = e->own[i] = buffer_new(e->rt->cx, bytes);
    if (!own && gpu_is_there(&e->rt->gpu)) return shortage_error(e);
    if (!own) {
        char text[BYTES_TEXT];
        return err_set(e->rt->cx, E_NOMEM, "out of memory: a result needs %s",
                       bytes_text((double)bytes, text));
    }
    char *at;
    TRY(replay_place_result(e, i, &at));
    if (!at) at = own->data;
    for (int32_t s = 0; s < b->slots; s++) exec_set_base(e, b->base + s, at + b->each * (size_t)s);
    return E_OK;
}

/* Temporaries lie where they lay last time unless the workspace has moved. */
static void place_temporaries(Exec *e) {
    const Plan *p = e->plan;
    if (e->base_at == e->rt->workspace) return;
    for (int32_t i = 0; i < p->buffers.n; i++) {
        const PlanBuffer *b = plan_buffer(p, i);
        if (b->kind != BUFFER_TEMP) continue;
        int64_t each = exec_class_stride(p, b->vary);
        for (int32_t s = 0; s < exec_slots(e, b->vary); s++)
            exec_set_base(e, e->first_base[i] + s,
                          e->rt->workspace + e->class_start[b->vary] + each * s + b->offset);
    }
    e->base_at = e->rt->workspace;
}

/* A graph has the address of the kernels' scratch in it, too, which other plans may move. */
static void place_scratch(Exec *e) {
    const char *at = e->rt->gpu.scratch;
    if (e->scratch && e->scratch_at != at) e->moved = true;
    e->scratch_at = at;
}

/* Other plans may have made the wire longer, and moved it. */
static Err place_wire(Exec *e) {
    if (!e->wire_bytes) return E_OK;
    TRY(runtime_grow_wire(e->rt, e->wire_bytes));
    exec_set_base(e, e->wire_base, e->rt->wire);
    return E_OK;
}

/* ---- running ---- */

/* It failed in its middle: results, and what was donated, are half written. */
static void lose(Call *c, Err err) {
    if (!err) return;
    c->lost = err;
    if (c->e->agreement) c->e->rt->torn = true;
    atomic_store(&c->failed, 1);
}

char *exec_address(const Exec *e, const OperandRef *r) {
    char *at = e->base[r->base] + r->offset;
    for (int32_t i = 0; i < r->nslice; i++) at += r->slice[i].bytes * e->slice[r->slice[i].loop];
    return at;
}

/* The item's operands with their addresses for the slices that the loops have come to, in `room`.
 */
static void slice_operands(const Exec *e, const Item *item, KArgs *a, KTensor *room) {
    for (int k = 0; k < a->nin + a->nout; k++) {
        room[k] = item->tensor[k];
        room[k].data = exec_address(e, &item->ref[k]);
    }
    a->in = room;
    a->out = room + a->nin;
}

static void run_item(Call *c, const Item *item, int64_t lo, int64_t hi, int thread) {
    const Exec *e = c->e;
    const Runtime *rt = e->rt;
    if (atomic_load_explicit(&c->failed, memory_order_relaxed)) return;
    if (item->joined) return;
    if (item->bound) {
        if (rt->profile) profile_launch(rt->profile, item);
        lose(c, exec_launch(c->e, item));
        return;
    }
    char *scratch = rt->scratch + rt->scratch_each * (size_t)thread;
    KFault fault = {.kind = K_FAULT_NONE};
    KArgs a = item->args;
    if (item->sliced) {
        slice_operands(e, item, &a, (KTensor *)(void *)scratch);
        scratch += exec_operand_room(item);
    }
    a.workspace = scratch;
    a.lo = lo;
    a.hi = hi;
    a.fault = &fault;
    a.blas = rt->blas.table.sgemm ? &rt->blas.table : NULL;
    int64_t start = profile_now(rt->profile);
    int failed = item->row->fn(&a);
    if (start) profile_piece(rt->profile, thread, item, lo, hi, start);
    if (!failed) return;
    int expected = 0;
    if (atomic_compare_exchange_strong(&c->failed, &expected, 1)) {
        c->fault = fault;
        c->fault_step = item->step;
    }
}

static void run_piece(void *ud, int32_t index, int thread) {
    Call *c = ud;
    const Exec *e = c->e;
    const Piece *p = &e->piece.at[index];
    run_item(c, &e->item.at[e->step[p->step].first + p->slot], p->lo, p->hi, thread);
}

static void run_straight(Call *c, const Stretch *s) {
    const Exec *e = c->e;
    if (s->nstage) {
        pool_run(e->rt->pool, run_piece, c, &e->stage.at[s->stage], s->nstage);
        return;
    }
    const BoundStep *last = &e->step[s->first + s->n - 1];
    for (int32_t i = e->step[s->first].first; i < last->first + last->n; i++)
        run_item(c, &e->item.at[i], 0, e->item.at[i].units, 0);
}

/* ---- with other processes ---- */

/* The items of the step at `first`, on the stage or, for -1, here. */
static void run_items(Call *c, int32_t first, int32_t n, int32_t stage) {
    const Exec *e = c->e;
    if (stage >= 0) {
        pool_run(e->rt->pool, run_piece, c, &e->stage.at[stage], 1);
        return;
    }
    for (int32_t i = first; i < first + n; i++)
        run_item(c, &e->item.at[i], 0, e->item.at[i].units, 0);
}

/* The items of the next phase, and the start of its messages. */
static void begin_phase(Call *c, Exchange *x) {
    const Phase *p = &x->phase[x->at];
    run_items(c, p->first, p->n, p->stage);
    if (!atomic_load(&c->failed)) lose(c, exchange_post(c->e, x));
    x->at++;
}

static void begin_exchange(Call *c, Exchange *x) {
    Exec *e = c->e;
    Err err = agree_end(e->rt, e->agreement);
    if (err) {
        c->lost = err;
        atomic_store(&c->failed, 1);
        return;
    }
    x->at = 0;
    x->next = e->flying;
    e->flying = x;
    begin_phase(c, x);
}

static void end_exchange(Call *c, Exchange *x) {
    Exec *e = c->e;
    while (x->at < x->phases && !atomic_load(&c->failed)) {
        int64_t start = profile_now(e->rt->profile);
        lose(c, link_end(e->rt->cx, &e->rt->link, &x->transfer));
        if (start) profile_note(e->rt->profile, PROFILE_WAIT, x->what.where, start);
        if (!c->lost) begin_phase(c, x);
    }
    if (atomic_load(&c->failed)) return; /* land_all has it */
    Exchange **at = &e->flying;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
}

static void run_exchange(Call *c, const Stretch *s) {
    Exchange *x = s->exchange;
    if (s->first == x->step) begin_exchange(c, x);
    if (s->first == x->over && !atomic_load(&c->failed)) end_exchange(c, x);
}

/* After a failure: nothing may be written any more when the memory is gone. */
static void land_all(Call *c) {
    Exec *e = c->e;
    for (Exchange *x = e->flying; x; x = x->next) {
        Err err = link_end(e->rt->cx, &e->rt->link, &x->transfer);
        if (!c->lost) lose(c, err);
    }
    e->flying = NULL;
}

/* ---- loops and branches ---- */

static void run_stretches(Call *c, int32_t first, int32_t n);

/* What decides about a loop or a branch. */
static bool read_steer(Call *c, const OperandRef *steer, void *to, size_t bytes) {
    Memory *m = c->e->rt->cx->memory;
    const char *at = exec_address(c->e, steer);
    if (m)
        lose(c, m->read(m, to, at, bytes));
    else
        memcpy(to, at, bytes);
    return !atomic_load(&c->failed);
}

/* Does the loop go on for iteration `i`? Ctrl-C ends it here. */
static bool goes_on(Call *c, const PlanControl *control, const OperandRef *steer, int64_t i) {
    if (c->e->rt->interrupted) {
        c->interrupted = true;
        atomic_store(&c->failed, 1);
    }
    if (atomic_load(&c->failed)) return false;
    bool on = false;
    if (control->trips >= 0) return i < control->trips;
    return read_steer(c, steer, &on, sizeof on) && on;
}

static void run_control(Call *c, const Stretch *s, int32_t first) {
    Exec *e = c->e;
    const PlanStep *step = plan_step(e->plan, s->first);
    const PlanControl *control = &step->control;
    const OperandRef *steer = &e->step[s->first].steer;
    if (step->kind == STEP_BRANCH) {
        int32_t index;
        if (!read_steer(c, steer, &index, sizeof index)) return;
        index = index < 0 ? 0 : index < s->nbody ? index : s->nbody - 1;
        for (int32_t k = 0; k < index; k++) first += s->body[k];
        run_stretches(c, first, s->body[index]);
        return;
    }
    for (int64_t i = 0; goes_on(c, control, steer, i); i++) {
        e->slice[control->loop] = control->reverse ? control->trips - 1 - i : i;
        run_stretches(c, first, s->body[0]);
    }
}

static void run_stretches(Call *c, int32_t first, int32_t n) {
    Exec *e = c->e;
    for (int32_t i = first; i < first + n && !atomic_load(&c->failed); i++) {
        const Stretch *s = &e->stretch.at[i];
        if (s->exchange) {
            run_exchange(c, s);
            continue;
        }
        if (!s->nbody) {
            run_straight(c, s);
            for (Exchange *x = e->flying; x; x = x->next) link_help(&e->rt->link, &x->transfer);
            continue;
        }
        run_control(c, s, i + 1);
        for (int32_t k = 0; k < s->nbody; k++) i += s->body[k];
    }
}

/* The same as a graph, which is captured where there is none, or none that fits any more. */
static void run_graph(Call *c) {
    Exec *e = c->e;
    if (e->moved || !e->replay.graph) {
        Err err = replay_begin(e);
        if (!err) {
            run_stretches(c, 0, e->stretch.n);
            err = replay_end(e, !atomic_load(&c->failed));
        }
        if (!c->lost) lose(c, err);
        e->moved = atomic_load(&c->failed);
    }
    if (!atomic_load(&c->failed)) lose(c, replay_run(e));
    if (!atomic_load(&c->failed)) lose(c, replay_finish(e));
}

/* ---- results ---- */

static Shard shard_of(const Call *c, const BoundShard *s) {
    const Exec *e = c->e;
    if (s->param < 0) {
        const BoundBuffer *b = &e->buffer[s->own];
        return (Shard){e->own[s->own], (int64_t)b->each * s->slot + s->place};
    }
    Buffer *copy = e->copy[s->param];
    if (copy) return (Shard){copy, (int64_t)e->param[s->param].each * s->slot + s->place};
    const Shard *from = &c->args[s->param]->shard[s->slot];
    return (Shard){from->buffer, from->offset + s->place};
}

static Err make_results(Call *c, Tensor **results) {
    Exec *e = c->e;
    for (int32_t i = 0; i < e->plan->results.n; i++) {
        const BoundResult *r = &e->result[i];
        Tensor *t = results[i] = tensor_like(&r->pattern);
        if (!t) {
            while (i-- > 0) tensor_release(results[i]);
            return err_nomem(e->rt->cx, "a result");
        }
        for (int32_t s = 0; s < t->nslot; s++) {
            t->shard[s] = shard_of(c, &r->shard[s]);
            buffer_retain(t->shard[s].buffer);
        }
    }
    return E_OK;
}

/* All that may fail before anything runs: later it would leave donated arguments half written. */
static Err prepare(Call *c, Tensor **results) {
    Exec *e = c->e;
    const Plan *p = e->plan;
    if (e->mesh && e->mesh->abstract)
        return err_set(e->rt->cx, E_MESH,
                       "an AbstractMesh has no devices to run on; it is for step:lower and "
                       "step:plan");
    bool gpu = gpu_is_there(&e->rt->gpu);
    if (gpu) {
        TRY(gpu_fault(&e->rt->gpu));
        TRY(shortage_check(e));
        TRY(gpu_grow_scratch(&e->rt->gpu, e->scratch));
    }
    size_t scratch = gpu ? 0 : e->scratch;
    if (!runtime_ready(e->rt, e->workspace, scratch, e->most_stages, e->most_queues))
        TRY(runtime_grow(e->rt, e->workspace, scratch, e->most_stages, e->most_queues));
    TRY(profile_enter(e->rt->profile, e));
    replay_decide(e, c->args);
    for (int32_t i = 0; i < p->params.n; i++) TRY(place_param(c, i));
    for (int32_t i = 0; i < e->nbuffer; i++) TRY(place_result(e, i));
    place_temporaries(e);
    place_scratch(e);
    TRY(place_wire(e));
    return make_results(c, results);
}

/* Tells the other processes of the mesh what is launched here. */
static Err begin_agreement(const Exec *e) {
    const Mesh *m = e->mesh;
    uint64_t program =
        hash_bytes(e->plan->hash, m->device, sizeof *m->device * (size_t)m->ndevices);
    return agree_begin(e->rt, e->agreement, AGREE_LAUNCH, program);
}

/* Who cannot begin a launch tells the others, which wait; without memory only the second time, as
 * garbage is collected after the first. Returns what it was given. */
static Err tell_unprepared(Exec *e, Err prepared) {
    Runtime *rt = e->rt;
    bool again = prepared == E_NOMEM && !rt->starved;
    rt->starved = again;
    if (!prepared || again) return prepared;
    ErrState why = rt->cx->err;
    Err told = agree_begin(rt, e->agreement, AGREE_FAILURE, 0);
    if (!told) told = agree_end(rt, e->agreement);
    rt->cx->err = why; /* it counts for more than what came of telling it */
    return told ? (Err)why.code : prepared;
}

static Err run(Call *c, Tensor **results) {
    Exec *e = c->e;
    Err err = prepare(c, results);
    if (e->agreement) err = tell_unprepared(e, err);
    if (err) return err;
    if (e->agreement) c->lost = begin_agreement(e);
    if (!c->lost && e->replay.on)
        run_graph(c);
    else if (!c->lost)
        run_stretches(c, 0, e->stretch.n);
    land_all(c);
    if (e->rt->profile && !c->lost) lose(c, link_settle(e->rt->cx, &e->rt->link));
    profile_leave(e->rt->profile);
    if (!c->lost && e->agreement) c->lost = agree_end(e->rt, e->agreement);
    bool failed = atomic_load(&c->failed);
    if (c->lost || failed)
        for (int32_t i = 0; i < e->plan->results.n; i++) tensor_release(results[i]);
    if (c->lost) return c->lost;
    if (failed) {
        if (e->agreement) e->rt->torn = true;
        return c->interrupted ? err_set(e->rt->cx, E_INTERRUPT, "interrupted")
                              : exec_fault(e->rt, exec_tag(e, c->fault_step), &c->fault);
    }
    e->runs++;
    e->replay.calls++;
    return E_OK;
}

/* Lets go of the memory that only the results hold from here on. */
static void release_all(Buffer **list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (list[i]) buffer_release(list[i]);
        list[i] = NULL;
    }
}

/* Results that are known by type only. */
static Err run_nothing(Exec *e, Tensor **results) {
    for (int32_t i = 0; i < e->plan->results.n; i++) {
        results[i] = tensor_like(&e->result[i].pattern);
        if (results[i]) continue;
        while (i-- > 0) tensor_release(results[i]);
        return err_nomem(e->rt->cx, "a result");
    }
    return E_OK;
}

Err exec_run(Exec *e, Tensor *const *args, const uint8_t *keep, Tensor **results) {
    if (e->only_types) return run_nothing(e, results);
    Call c = {.e = e, .args = args, .keep = keep};
    Err err = run(&c, results);
    release_all(e->own, e->nbuffer);
    release_all(e->copy, e->plan->params.n);
    return err;
}
