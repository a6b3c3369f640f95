/* schedule.c - from bound steps to stages of pieces for the pool.
 *
 * Consecutive steps of one slot each per thread, or more, are one stage with a lane for each slot,
 * which threads share only towards its end. Otherwise consecutive steps that do not depend on each
 * other are one stage, with a lane for each thread. Items are cut in both. The cuts depend on
 * shapes alone; the number of threads decides only who begins with which pieces.
 *
 * The first kind leaves a slot's rows in one thread's cache from step to step and needs no barrier
 * between them; the second is for steps with fewer slots than threads. A stage waits for the latest
 * one that it depends on, not for the one before it: who is done early goes on. Pieces are given
 * out longest first, each to the thread with the least to do. */
#include "run/bind/schedule.h"
#include "run/bind/exchange_bind.h"

/* Pieces of about this much work are worth a thread's while. */
#define CUT_SECONDS   25e-6
#define STEP_OVERHEAD 0.3e-6
/* Less work than this is done by the caller alone: waking others would cost more. */
#define INLINE_SECONDS 20e-6

enum {
    MAX_CUTS = 64,
    MAX_BATCH = 64,    /* steps that are held against each other for dependencies */
    MAX_LOOK_BACK = 4, /* stages */
    EVEN_CUTS = 8,     /* from so many on the last one's imbalance is small */
    EVEN_SLOTS = 4     /* per thread: so many that the last ones' imbalance is small */
};

typedef struct Schedule {
    Exec *e;
    int threads;
    const Depends *depends;
    VEC(int32_t) first; /* by stage of e: its steps, */
    VEC(int32_t) count; /* consecutive ones */
} Schedule;

static double step_seconds(const Exec *e, const PlanStep *s) {
    return STEP_OVERHEAD + target_seconds(e->rt->target, s->flops, s->bytes);
}

/* ---- stages ---- */

/* Opens a stage of these steps; its pieces follow, and where they begin goes to `first`. */
static Err add_stage(Schedule *s, int32_t first_step, int32_t n, int32_t begin, int32_t lanes,
                     int32_t steps, int32_t **first) {
    Exec *e = s->e;
    int32_t at = e->stage.n, after = at;
    while (after > begin && at - after < MAX_LOOK_BACK &&
           !depend_any(s->depends, s->first.at[after - 1], s->count.at[after - 1], first_step, n))
        after--;
    *first = ARENA_ARRAY(&e->arena, int32_t, lanes * steps + 1);
    PoolStage stage = {.first = *first, .lanes = lanes, .steps = steps, .after = after - begin};
    if (!*first || !VEC_PUSH(&e->arena, &e->stage, stage) ||
        !VEC_PUSH(&e->arena, &s->first, first_step) || !VEC_PUSH(&e->arena, &s->count, n))
        return exec_no_memory(e);
    return E_OK;
}

/* Piece k of the slot's item. */
static Err add_piece(Schedule *s, int32_t step, int32_t slot, int64_t k, int64_t cuts) {
    Exec *e = s->e;
    int64_t units = e->item.at[e->step[step].first + slot].units;
    Piece piece = {step, slot, units * k / cuts, units * (k + 1) / cuts};
    return VEC_PUSH(&e->arena, &e->piece, piece) ? E_OK : exec_no_memory(e);
}

static int64_t power_from(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* Depends on the step alone, not on the number of threads. Few cuts are a power of 2, which most
 * numbers of threads share evenly. */
static int64_t cuts_of(const Exec *e, int32_t step) {
    const BoundStep *b = &e->step[step];
    double pieces = step_seconds(e, plan_step(e->plan, step)) / CUT_SECONDS;
    int64_t units = INT64_MAX;
    for (int32_t i = 0; i < b->n; i++)
        if (e->item.at[b->first + i].units < units) units = e->item.at[b->first + i].units;
    if (pieces > MAX_CUTS) pieces = MAX_CUTS;
    int64_t n = pieces < 1 ? 1 : (int64_t)(pieces + 0.5);
    if (n < EVEN_CUTS) n = power_from(n);
    return n < units ? n : units < 1 ? 1 : units;
}

/* All these steps for one slot after the other. */
static Err slot_stage(Schedule *s, int32_t step, int32_t n, int32_t begin) {
    Exec *e = s->e;
    int32_t *first, slots = e->step[step].n;
    TRY(add_stage(s, step, n, begin, slots, n, &first));
    for (int32_t slot = 0; slot < slots; slot++)
        for (int32_t i = 0; i < n; i++) {
            *first++ = e->piece.n;
            int64_t cuts = cuts_of(e, step + i);
            for (int64_t k = 0; k < cuts; k++) TRY(add_piece(s, step + i, slot, k, cuts));
        }
    *first = e->piece.n;
    return E_OK;
}

typedef struct StepCut { /* a step of a batch */
    int32_t step;
    int64_t cuts;  /* of each item */
    double each;   /* seconds of a piece */
    int64_t start; /* the thread that begins with its first piece, where there are few */
} StepCut;

/* Who begins with piece k: neighbours stay together, so that the next step finds them there. */
static int64_t owner_of(const StepCut *c, int64_t pieces, int64_t k, int threads) {
    return pieces >= threads ? k * threads / pieces : (c->start + k) % threads;
}

/* The steps' pieces by size, the longest first; few pieces go to the thread
 * with the least to do. */
static Err plan_cuts(const Schedule *s, int32_t first, int32_t n, StepCut *cut, double *load) {
    const Exec *e = s->e;
    for (int32_t i = 0; i < n; i++) {
        StepCut c = {.step = first + i, .cuts = cuts_of(e, first + i)};
        c.each = step_seconds(e, plan_step(e->plan, c.step)) / (double)c.cuts;
        int32_t at = i;
        for (; at > 0 && cut[at - 1].each < c.each; at--) cut[at] = cut[at - 1];
        cut[at] = c;
    }
    for (int32_t i = 0; i < n; i++) {
        int64_t pieces = cut[i].cuts * e->step[cut[i].step].n;
        for (int t = 1; t < s->threads; t++)
            if (load[t] < load[cut[i].start]) cut[i].start = t;
        for (int64_t k = 0; k < pieces; k++)
            load[owner_of(&cut[i], pieces, k, s->threads)] += cut[i].each;
        if (pieces > INT32_MAX / MAX_BATCH) return exec_no_memory(e);
    }
    return E_OK;
}

/* Steps that do not depend on each other, their items cut. */
static Err batch_stage(Schedule *s, int32_t first, int32_t n, int32_t begin) {
    Exec *e = s->e;
    int32_t *lane;
    StepCut cut[MAX_BATCH];
    double *load = ARENA_ARRAY(&e->arena, double, s->threads);
    TRY(add_stage(s, first, n, begin, s->threads, 1, &lane));
    if (!load) return exec_no_memory(e);
    TRY(plan_cuts(s, first, n, cut, load));
    for (int t = 0; t < s->threads; t++) {
        lane[t] = e->piece.n;
        for (int32_t i = 0; i < n; i++) {
            const BoundStep *b = &e->step[cut[i].step];
            int64_t cuts = cut[i].cuts, pieces = cuts * b->n;
            for (int64_t k = 0; k < pieces; k++) {
                if (owner_of(&cut[i], pieces, k, s->threads) != t) continue;
                TRY(add_piece(s, cut[i].step, (int32_t)(k / cuts), k % cuts, cuts));
            }
        }
    }
    lane[s->threads] = e->piece.n;
    return E_OK;
}

/* Is a step run slot by slot? */
static bool by_slots(const Schedule *s, int32_t step) {
    int32_t n = s->e->step[step].n;
    return plan_step(s->e->plan, step)->kind == STEP_KERNEL && n >= s->threads &&
           (n % s->threads == 0 || n >= EVEN_SLOTS * s->threads);
}

static Err add_stages(Schedule *s, int32_t first, int32_t n) {
    const Plan *p = s->e->plan;
    int32_t begin = s->e->stage.n, end = first + n;
    for (int32_t i = first, k; i < end; i = k) {
        k = i + 1;
        if (by_slots(s, i)) {
            while (k < end && by_slots(s, k) && plan_step(p, k)->vary == plan_step(p, i)->vary) k++;
            TRY(slot_stage(s, i, k - i, begin));
            continue;
        }
        while (k < end && k - i < MAX_BATCH && !by_slots(s, k) &&
               !depend_any(s->depends, i, k - i, k, 1))
            k++;
        TRY(batch_stage(s, i, k - i, begin));
    }
    return E_OK;
}

/* Consecutive steps without a decision in between. */
static Err straight(Schedule *s, Segment *segment) {
    Exec *e = s->e;
    int32_t end = segment->first + segment->n, queues = 0;
    double seconds = 0;
    segment->stage = e->stage.n;
    for (int32_t i = segment->first; i < end; i++)
        seconds += step_seconds(e, plan_step(e->plan, i)) * e->step[i].n;
    if (seconds >= INLINE_SECONDS && s->threads > 1) TRY(add_stages(s, segment->first, segment->n));
    segment->nstage = e->stage.n - segment->stage;
    if (segment->nstage > e->most_stages) e->most_stages = segment->nstage;
    for (int32_t i = segment->stage; i < e->stage.n; i++) queues += pool_queues(&e->stage.at[i]);
    if (queues > e->most_queues) e->most_queues = queues;
    return E_OK;
}

/* The start or the end of a collective between domains. */
static Err exchange(Schedule *s, const Segment *segment) {
    Exec *e = s->e;
    if (segment->exchange->step == segment->first) TRY(exchange_schedule(e, segment->exchange));
    while (s->first.n < e->stage.n)
        if (!VEC_PUSH(&e->arena, &s->first, segment->first) || !VEC_PUSH(&e->arena, &s->count, 1))
            return exec_no_memory(e);
    return E_OK;
}

Err schedule_stages(Exec *e, const Depends *depends) {
    Schedule s = {.e = e, .threads = runtime_threads(e->rt), .depends = depends};
    for (int32_t i = 0; i < e->segment.n; i++) {
        Segment *segment = &e->segment.at[i];
        if (segment->exchange) TRY(exchange(&s, segment));
        if (!segment->exchange && !segment->nbody) TRY(straight(&s, segment));
    }
    return E_OK;
}

/* ---- segments ---- */

static Err cut(Exec *e, int32_t first, int32_t n);

static Err add_segment(Exec *e, Segment segment) {
    return VEC_PUSH(&e->arena, &e->segment, segment) ? E_OK : exec_no_memory(e);
}

/* A LOOP or BRANCH, and its bodies. */
static Err cut_control(Exec *e, int32_t step) {
    const Plan *p = e->plan;
    const PlanControl *c = &plan_step(p, step)->control;
    int32_t *body = ARENA_ARRAY(&e->arena, int32_t, c->body.n + 1), at = step + 1;
    if (!body) return exec_no_memory(e);
    TRY(add_segment(e, (Segment){.first = step, .n = 1, .nbody = c->body.n, .body = body}));
    for (int k = 0; k < c->body.n; k++) {
        int32_t before = e->segment.n, steps = PLAN_LIST(p, int32_t, c->body)[k];
        TRY(cut(e, at, steps));
        body[k] = e->segment.n - before;
        at += steps;
    }
    return E_OK;
}

/* Cut once more where arguments that no caller offered begin to be written over: then nothing can
 * fail any more, and call_take_back asks who holds them. A GPU says too late what has failed. */
static Err cut_straight(Exec *e, int32_t first, int32_t n) {
    int32_t settled = (int32_t)e->plan->settled, shift = plan_step(e->plan, first)->shift;
    int32_t before = (settled && e->writes > settled ? e->writes : settled) - first;
    if (before > 0 && before < n && !gpu_is_there(&e->rt->gpu)) {
        TRY(add_segment(e, (Segment){.first = first, .n = before, .shift = shift}));
        first += before;
        n -= before;
    }
    return add_segment(e, (Segment){.first = first, .n = n, .shift = shift});
}

/* Cut where steps of other iterations begin. */
static Err cut_shifts(Exec *e, int32_t first, int32_t n) {
    const Plan *p = e->plan;
    for (int32_t end = first + n, k; first < end; first = k) {
        for (k = first + 1; k < end && plan_step(p, k)->shift == plan_step(p, first)->shift;) k++;
        TRY(cut_straight(e, first, k - first));
    }
    return E_OK;
}

static Err cut(Exec *e, int32_t first, int32_t n) {
    const Plan *p = e->plan;
    int32_t begin = first, end = first + n;
    for (int32_t i = first; i < end; i++) {
        Exchange *x = e->step[i].exchange;
        if (!plan_step(p, i)->control.body.n && !x) continue;
        if (i > begin) TRY(cut_shifts(e, begin, i - begin));
        int32_t shift = plan_step(p, i)->shift;
        if (x)
            TRY(add_segment(e, (Segment){.first = i, .n = 1, .shift = shift, .exchange = x}));
        else
            TRY(cut_control(e, i));
        i += plan_steps_in(p, plan_step(p, i));
        begin = i + 1;
    }
    return end > begin ? cut_shifts(e, begin, end - begin) : E_OK;
}

Err schedule_cut(Exec *e) {
    return cut(e, 0, e->plan->steps.n);
}
