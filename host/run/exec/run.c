/* run.c - a call of a bound plan, segment after segment. */
#include "base/log.h"
#include "run/exec/call.h"
#include "run/exec/exchange.h"
#include "run/exec/record.h"
#include "run/exec/replicas.h"

#include <string.h>

/* ---- running ---- */

/* It failed in its middle: results, and what was donated, may be half written. */
static void lose(ExecCall *c, Err err) {
    if (!err) return;
    c->lost = err;
    if (c->e->agreement) c->e->rt->diverged = true;
    atomic_store(&c->failed, 1);
}

/* The item's operands with their addresses for the slices that the loops have
 * come to, in `room`. */
static void slice_operands(const Exec *e, const Item *item, KArgs *a, KTensor *room) {
    for (int k = 0; k < a->nin + a->nout; k++) {
        room[k] = item->tensor[k];
        room[k].data = exec_address(e, &item->ref[k]);
    }
    a->in = room;
    a->out = room + a->nin;
}

/* Ctrl-C ends it here. */
static void interrupt(ExecCall *c) {
    c->interrupted = true;
    atomic_store(&c->failed, 1);
}

/* Puts it into the GPU's queue. */
static Err launch(Exec *e, const Item *item) {
    Gpus *g = &e->rt->gpu;
    for (int k = 0; item->sliced && k < item->args.nin + item->args.nout; k++)
        item->tensor[k].data = exec_address(e, &item->ref[k]);
    const PlanStep *s = plan_step(e->plan, item->step);
    const char *where =
        plan_str(e->plan, s->locs.n ? PLAN_LIST(e->plan, int32_t, s->locs)[0] : s->op);
    g->device.range(g->device.self, where);
    bool ok = g->device.launch(g->device.self, item->bound, &item->args,
                               g->of[item->domain].scratch, bound_tag(&e->bound, item->step));
    g->device.range(g->device.self, NULL);
    return ok ? E_OK : gpu_error(g, item->row->name);
}

static void run_item(ExecCall *c, const Item *item, int64_t lo, int64_t hi, int thread) {
    const Exec *e = c->e;
    const Runtime *rt = e->rt;
    if (atomic_load_explicit(&c->failed, memory_order_relaxed)) return;
    if (item->combined || !exec_holds(e, item->guards)) return;
    if (item->bound) {
        if (rt->profile) record_launch(rt->profile, item);
        lose(c, launch(c->e, item));
        return;
    }
    if (thread == 0 && rt->interrupted && !c->whole) return interrupt(c);
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
    int64_t start = record_now(rt->profile);
    int failed = item->row->fn(&a);
    if (start) record_piece(rt->profile, thread, item, lo, hi, start);
    if (item->flipped && lo == 0) *(unsigned char *)a.out[0].data ^= 1;
    if (!failed) return;
    int expected = 0;
    if (atomic_compare_exchange_strong(&c->failed, &expected, 1)) {
        c->fault = fault;
        c->fault_step = item->step;
    }
}

static void run_piece(void *ud, int32_t index, int thread) {
    ExecCall *c = ud;
    const Exec *e = c->e;
    const Piece *p = &e->piece.at[index];
    run_item(c, &e->item.at[e->step[p->step].first + p->slot], p->lo, p->hi, thread);
}

static void run_straight(ExecCall *c, const Segment *s) {
    const Exec *e = c->e;
    if (s->nstage) {
        pool_run(e->rt->pool, run_piece, c, &e->stage.at[s->stage], s->nstage);
        return;
    }
    const BoundStep *last = &e->step[s->first + s->n - 1];
    for (int32_t i = e->step[s->first].first; i < last->first + last->n; i++)
        run_item(c, &e->item.at[i], 0, e->item.at[i].units, 0);
}

/* ---- with other domains ---- */

/* The items of the step at `first`, on the stage or, for -1, here. */
static void run_items(ExecCall *c, int32_t first, int32_t n, int32_t stage) {
    const Exec *e = c->e;
    if (stage >= 0) {
        pool_run(e->rt->pool, run_piece, c, &e->stage.at[stage], 1);
        return;
    }
    for (int32_t i = first; i < first + n; i++)
        run_item(c, &e->item.at[i], 0, e->item.at[i].units, 0);
}

static CommPart part_of(const Exec *e, const ExchangePart *p) {
    return (CommPart){p->peer, exec_address(e, &p->at), p->bytes, p->own};
}

/* Begins to send and receive what belongs to phase `at`; the last has nothing. */
static Err post(Exec *e, Exchange *x) {
    Phase *p = &x->phase[x->at];
    CommPart *send = p->part, *recv = p->part + p->send.n;
    if (x->at + 1 == x->phases) return E_OK;
    for (int32_t i = 0; i < p->send.n; i++) send[i] = part_of(e, &p->send.at[i]);
    for (int32_t i = 0; i < p->recv.n; i++) recv[i] = part_of(e, &p->recv.at[i]);
    bool gpu = gpu_is_there(&e->rt->gpu);
    return (gpu ? transport_begin_device : transport_begin)(
        e->rt->cx, &e->rt->transport, &x->what, send, p->send.n, recv, p->recv.n, &x->transfer);
}

/* The items of the next phase, and the start of its messages. */
static void begin_phase(ExecCall *c, Exchange *x) {
    const Phase *p = &x->phase[x->at];
    run_items(c, p->first, p->n, p->stage);
    if (!atomic_load(&c->failed)) lose(c, post(c->e, x));
    x->at++;
}

/* Hears what the other processes launch, and whether their arguments are the same, once. */
static Err end_agreement(Exec *e) {
    if (!e->agreement || !e->agreement->pending) return E_OK;
    TRY(agree_end(e->rt, e->agreement));
    return replicas_compare(e);
}

static void begin_exchange(ExecCall *c, Exchange *x) {
    Exec *e = c->e;
    Err err = end_agreement(e);
    if (err) {
        c->lost = err;
        atomic_store(&c->failed, 1);
        return;
    }
    for (const Exchange *y = e->flying; y; y = y->next)
        ASSERT(y->wire_end <= x->wire || x->wire_end <= y->wire, "steps %d and %d, one wire",
               (int)y->step, (int)x->step);
    x->at = 0;
    x->next = e->flying;
    e->flying = x;
    begin_phase(c, x);
}

static void end_exchange(ExecCall *c, Exchange *x) {
    Exec *e = c->e;
    while (x->at < x->phases && !atomic_load(&c->failed)) {
        int64_t start = profile_clock();
        lose(c, transport_end(e->rt->cx, &e->rt->transport, &x->transfer));
        e->rt->waited += profile_clock() - start;
        if (e->rt->profile) record_note(e->rt->profile, PROFILE_WAIT, x->what.where, start);
        if (!c->lost) begin_phase(c, x);
    }
    if (atomic_load(&c->failed)) return; /* land_all has it */
    Exchange **at = &e->flying;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
}

static void run_exchange(ExecCall *c, const Segment *s) {
    Exchange *x = s->exchange;
    if (s->first == x->step) begin_exchange(c, x);
    if (s->first == x->over) end_exchange(c, x);
}

/* After a failure: nothing may be written any more when the memory is gone. */
static void land_all(ExecCall *c) {
    Exec *e = c->e;
    for (Exchange *x = e->flying; x; x = x->next) {
        Err err = transport_end(e->rt->cx, &e->rt->transport, &x->transfer);
        if (!c->lost) lose(c, err);
    }
    e->flying = NULL;
}

/* ---- loops and branches ---- */

typedef struct LoopTurn { /* of the innermost loop */
    const PlanControl *loop;
    int64_t i;
} LoopTurn;

static void run_segments(ExecCall *c, int32_t first, int32_t n, const LoopTurn *turn);

/* Has the segment an iteration to do in this turn? Its operands are that one's. */
static bool enter_turn(Exec *e, const Segment *s, const LoopTurn *turn) {
    if (!turn) return true;
    const PlanControl *loop = turn->loop;
    int64_t i = turn->i + s->shift;
    e->slice[loop->loop] = loop->reverse ? loop->trips - 1 - i : i;
    return loop->trips < 0 || (i >= 0 && i < loop->trips);
}

/* What decides about a loop or a branch. */
static bool read_steer(ExecCall *c, const OperandRef *steer, void *to, size_t bytes) {
    Memory *m = c->e->rt->cx->memory[c->e->base_domain[steer->base]];
    const char *at = exec_address(c->e, steer);
    if (m)
        lose(c, m->read(m, to, at, bytes));
    else
        memcpy(to, at, bytes);
    return !atomic_load(&c->failed);
}

/* Does the loop go on for turn `i`? */
static bool goes_on(ExecCall *c, const PlanControl *control, const OperandRef *steer, int64_t i) {
    if (c->e->rt->interrupted) interrupt(c);
    if (atomic_load(&c->failed)) return false;
    bool on = false;
    if (control->trips >= 0) return i < control->trips + control->late;
    return read_steer(c, steer, &on, sizeof on) && on;
}

static void run_control(ExecCall *c, const Segment *s, int32_t first, const LoopTurn *turn) {
    Exec *e = c->e;
    const PlanStep *step = plan_step(e->plan, s->first);
    const PlanControl *control = &step->control;
    const OperandRef *steer = &e->step[s->first].steer;
    if (step->kind == STEP_BRANCH) {
        int32_t index;
        if (!read_steer(c, steer, &index, sizeof index)) return;
        index = index < 0 ? 0 : index < s->nbody ? index : s->nbody - 1;
        for (int32_t k = 0; k < index; k++) first += s->body[k];
        run_segments(c, first, s->body[index], turn);
        return;
    }
    if (!exec_holds(e, e->step[s->first].guards)) return;
    for (int64_t i = -control->ahead; goes_on(c, control, steer, i); i++)
        run_segments(c, first, s->body[0], &(LoopTurn){control, i});
}

static void reach(ExecCall *c, const Segment *s) {
    if (c->reached < s->first + s->n) c->reached = s->first + s->n;
}

static void run_segments(ExecCall *c, int32_t first, int32_t n, const LoopTurn *turn) {
    Exec *e = c->e;
    for (int32_t i = first; i < first + n && !atomic_load(&c->failed); i++) {
        const Segment *s = &e->segment.at[i];
        if (!enter_turn(e, s, turn)) {
            for (int32_t k = 0; k < s->nbody; k++) i += s->body[k];
            continue;
        }
        if (c->late && e->writes < s->first + s->n) call_take_back(c);
        reach(c, s);
        if (s->exchange) {
            run_exchange(c, s);
            continue;
        }
        if (!s->nbody) {
            run_straight(c, s);
            for (Exchange *x = e->flying; x; x = x->next)
                transport_help(&e->rt->transport, &x->transfer);
            continue;
        }
        run_control(c, s, i + 1, turn);
        for (int32_t k = 0; k < s->nbody; k++) i += s->body[k];
    }
}

/* Makes the graphs of a part. False: that cannot be, and nothing of it has run; launched one by
 * one it may run. */
static bool capture(ExecCall *c, ReplayPart *s) {
    Exec *e = c->e;
    bool diverged = e->rt->diverged;
    Err err = replay_capture(e);
    if (!err) run_segments(c, s->first, s->n, NULL);
    Err ended = replay_captured(e, s, !err && !atomic_load(&c->failed));
    if (s->captured || c->interrupted) return true;
    if (err || ended || c->lost)
        log_line(e->rt->cx, LOG_INFO, "launches that cannot be captured: %s", e->rt->cx->err.text);
    atomic_store(&c->failed, 0);
    c->lost = E_OK;
    e->rt->diverged = diverged;
    return false;
}

/* The same as graphs, which are captured where there are none. */
static void run_graphs(ExecCall *c, ReplayPart *s) {
    reach(c, &c->e->segment.at[s->first + s->n - 1]);
    if (!s->captured && !capture(c, s))
        run_segments(c, s->first, s->n, NULL);
    else if (!atomic_load(&c->failed))
        lose(c, replay_run(c->e, s));
}

static void run_parts(ExecCall *c) {
    Replay *r = &c->e->replay;
    replay_begin(c->e);
    for (int32_t i = 0; i < r->nparts && !atomic_load(&c->failed); i++) {
        ReplayPart *s = &r->part[i];
        if (s->graph)
            run_graphs(c, s);
        else
            run_segments(c, s->first, s->n, NULL);
    }
    if (!atomic_load(&c->failed)) lose(c, replay_finish(c->e));
}

/* All that may fail before anything runs: later it would lose the arguments
 * that are written over. */
static Err prepare(ExecCall *c, Tensor **results) {
    Exec *e = c->e;
    if (e->mesh && e->mesh->abstract)
        return err_set(e->rt->cx, E_MESH,
                       "an AbstractMesh has no devices to run on; it is for step:lower and "
                       "step:plan");
    TRY(call_grow(c));
    TRY(record_enter(e->rt->profile, e));
    replay_decide(e, c->args);
    TRY(call_place(c));
    if (e->replicas) TRY(replicas_sum(e, c->args));
    c->results = results;
    return call_results(c, results);
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
    bool again = prepared == E_NOMEM && !rt->retrying;
    rt->retrying = again;
    if (!prepared || again) return prepared;
    ErrState why = rt->cx->err;
    Err told = agree_begin(rt, e->agreement, AGREE_FAILURE, 0);
    if (!told) told = end_agreement(e);
    rt->cx->err = why; /* it counts for more than what came of telling it */
    return told ? (Err)why.code : prepared;
}

static Err run(ExecCall *c, Tensor **results) {
    Exec *e = c->e;
    Err err = prepare(c, results);
    if (e->agreement) err = tell_unprepared(e, err);
    if (err) return err;
    if (e->agreement) c->lost = begin_agreement(e);
    if (e->replicas) e->replicas->summed = true;
    if (!c->lost && e->replay.on)
        run_parts(c);
    else if (!c->lost)
        run_segments(c, 0, e->segment.n, NULL);
    land_all(c);
    if (e->rt->profile && !c->lost) lose(c, transport_settle(e->rt->cx, &e->rt->transport));
    record_leave(e->rt->profile);
    if (!c->lost) c->lost = end_agreement(e);
    bool failed = atomic_load(&c->failed);
    if (c->lost || failed) {
        for (int32_t i = 0; i < e->plan->results.n; i++) tensor_release(results[i]);
        call_drop_written(c);
    }
    if (c->lost) return c->lost;
    if (failed) {
        if (e->agreement) e->rt->diverged = true;
        return c->interrupted ? err_set(e->rt->cx, E_INTERRUPT, "interrupted")
                              : bound_fault(e->rt->cx, &e->rt->plans,
                                            bound_tag(&e->bound, c->fault_step), &c->fault);
    }
    e->runs++;
    e->replay.calls++;
    return E_OK;
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

Err exec_run(Exec *e, Tensor *const *args, const uint8_t *fate, Tensor **results) {
    if (e->only_types) return run_nothing(e, results);
    /* What came before the run is for who called it to see. */
    bool whole = e->agreement || e->rt->interrupted;
    ExecCall c = {.e = e, .args = args, .fate = fate, .whole = whole};
    Guard guard;
    exec_guard(e, &guard);
    Err err = run(&c, results);
    guard_leave(&guard);
    call_release(e);
    return err;
}
