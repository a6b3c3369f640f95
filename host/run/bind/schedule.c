/* schedule.c - from bound steps to stages of pieces for the pool.
 *
 * Consecutive steps of one slot each per thread, or more, are one stage with a lane for each slot,
 * which threads share only towards its end. Otherwise consecutive steps that do not depend on each
 * other are one stage, with a lane for each thread. Items are cut in both. The cuts depend on
 * shapes alone; the number of threads decides only who begins with which pieces. */
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
    MAX_PAIRS = 1 << 12,
    MAX_READERS_BACK = 4, /* steps: what reads the same stands close together */
    EVEN_CUTS = 8,        /* from so many on the last one's imbalance is small */
    EVEN_SLOTS = 4        /* per thread: so many that the last ones' imbalance is small */
};

/* The bytes of a value, of all slots: two values overlap only if they have the same root and their
 * bytes within a slot overlap. */
typedef struct Extent {
    int32_t root; /* a buffer; or, for temporaries, their vary class behind all buffers */
    int64_t lo, hi;
} Extent;

/* Bits of the roots that a step reads and writes: steps without a common one do not depend on each
 * other. */
typedef struct Reach {
    uint64_t in, out;
} Reach;

typedef struct Schedule {
    Exec *e;
    int threads;
    Extent *extent;     /* by value */
    Reach *reach;       /* by step */
    Touch *touch;       /* by buffer; on a GPU */
    VEC(int32_t) first; /* by stage of e: its steps, */
    VEC(int32_t) count; /* consecutive ones */
} Schedule;

static double step_seconds(const Exec *e, const PlanStep *s) {
    return STEP_OVERHEAD + target_seconds(e->rt->target, s->flops, s->bytes);
}

/* ---- dependencies ---- */

static Extent extent_of(const Plan *p, const PlanValue *v) {
    const PlanBuffer *b = plan_buffer(p, v->buffer);
    Extent r = {.root = exec_root(p, v->buffer), .hi = b->bytes};
    if (!v->per_device.n && !v->per_slice.n) {
        const int64_t *dims = plan_dims(p, v), *strides = dims + v->rank;
        r.lo = v->offset;
        r.hi = v->offset + dtype_size((DType)v->dtype);
        for (int d = 0; d < v->rank; d++) {
            int64_t reach = (dims[d] - 1) * strides[d];
            *(reach < 0 ? &r.lo : &r.hi) += reach;
        }
    }
    if (b->kind == BUFFER_TEMP) {
        r.root = p->buffers.n + b->vary;
        r.lo += b->offset;
        r.hi += b->offset;
    }
    return r;
}

static bool overlap(const Schedule *s, PlanSpan a, PlanSpan b) {
    const Plan *p = s->e->plan;
    for (int32_t i = 0; i < a.n; i++) {
        const Extent *x = &s->extent[PLAN_LIST(p, int32_t, a)[i]];
        for (int32_t k = 0; k < b.n; k++) {
            const Extent *y = &s->extent[PLAN_LIST(p, int32_t, b)[k]];
            if (x->root == y->root && x->lo < y->hi && y->lo < x->hi) return true;
        }
    }
    return false;
}

static uint64_t roots_of(const Schedule *s, PlanSpan values) {
    uint64_t bits = 0;
    for (int32_t i = 0; i < values.n; i++)
        bits |= UINT64_C(1) << (s->extent[PLAN_LIST(s->e->plan, int32_t, values)[i]].root & 63);
    return bits;
}

/* Must one of the two steps wait for the other? */
static inline bool depend(const Schedule *s, int32_t first, int32_t second) {
    const Reach *x = &s->reach[first], *y = &s->reach[second];
    if (!(x->out & (y->in | y->out)) && !(x->in & y->out)) return false;
    const PlanStep *a = plan_step(s->e->plan, first), *b = plan_step(s->e->plan, second);
    return overlap(s, a->out, b->in) || overlap(s, a->in, b->out) || overlap(s, a->out, b->out);
}

static bool any_depends(const Schedule *s, int32_t first, int32_t n, int32_t second, int32_t m) {
    if ((int64_t)n * m > MAX_PAIRS) return true;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < m; k++)
            if (depend(s, first + i, second + k)) return true;
    return false;
}

/* ---- stages ---- */

/* Opens a stage of these steps; its pieces follow, and where they begin goes to `first`. */
static Err add_stage(Schedule *s, int32_t first_step, int32_t n, int32_t begin, int32_t lanes,
                     int32_t steps, int32_t **first) {
    Exec *e = s->e;
    int32_t at = e->stage.n, after = at;
    while (after > begin && at - after < MAX_LOOK_BACK &&
           !any_depends(s, s->first.at[after - 1], s->count.at[after - 1], first_step, n))
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

typedef struct Cut { /* a step of a batch */
    int32_t step;
    int64_t cuts;  /* of each item */
    double each;   /* seconds of a piece */
    int64_t start; /* the thread that begins with its first piece, where there are few */
} Cut;

/* Who begins with piece k: neighbours stay together, so that the next step finds them there. */
static int64_t owner_of(const Cut *c, int64_t pieces, int64_t k, int threads) {
    return pieces >= threads ? k * threads / pieces : (c->start + k) % threads;
}

/* The steps' pieces by size, the longest first; few pieces go to the thread with the least to do.
 */
static Err plan_cuts(const Schedule *s, int32_t first, int32_t n, Cut *cut, double *load) {
    const Exec *e = s->e;
    for (int32_t i = 0; i < n; i++) {
        Cut c = {.step = first + i, .cuts = cuts_of(e, first + i)};
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
    Cut cut[MAX_BATCH];
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
        while (k < end && k - i < MAX_BATCH && !by_slots(s, k) && !any_depends(s, i, k - i, k, 1))
            k++;
        TRY(batch_stage(s, i, k - i, begin));
    }
    return E_OK;
}

/* ---- stretches ---- */

static Err add_stretches(Schedule *s, int32_t first, int32_t n);

/* On a GPU: makes one launch of steps of a kernel that admits it. */
static Err join_steps(const Schedule *s, int32_t first, int32_t n) {
    for (int32_t i = first, k; i < first + n; i = k) {
        k = i + 1;
        while (k < first + n && gpu_joins(s->e, i, k) && !any_depends(s, i, k - i, k, 1)) k++;
        if (k - i > 1) TRY(gpu_join(s->e, i, k - i));
    }
    return E_OK;
}

/* May the step be done on the other side of those between? */
static bool may_pass(const Schedule *s, int32_t step, int32_t first, int32_t n) {
    const Exec *e = s->e;
    if (any_depends(s, first, n, step, 1)) return false;
    for (int32_t i = first; i < first + n; i++) {
        int32_t with = e->step[i].n ? e->item.at[e->step[i].first].with : -1;
        if (with >= 0 && depend(s, with, step)) return false;
    }
    return true;
}

/* May the two be one launch, and where? */
static bool may_merge(const Schedule *s, Merge *m) {
    const Plan *p = s->e->plan;
    int32_t between = m->first + 1, n = m->second - between;
    bool makes = m->from >= plan_step(p, m->first)->in.n;
    if (makes ? overlap(s, plan_step(p, m->first)->in, plan_step(p, m->second)->out)
              : depend(s, m->first, m->second))
        return false;
    m->early = !may_pass(s, m->first, between, n);
    return !m->early || may_pass(s, m->second, between, n);
}

/* On a GPU: makes one launch of a step and the one that makes what it reads, where the library
 * knows how. */
static Err merge_makers(const Schedule *s, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        bool done = false;
        for (int32_t k = plan_step(s->e->plan, i)->in.n - 1; k >= 0 && !done; k--) {
            Merge m = {.second = i, .to = k};
            if (gpu_makes(s->e, s->touch, &m) && m.first >= first && may_merge(s, &m))
                TRY(gpu_merge(s->e, &m, &done));
        }
    }
    return E_OK;
}

/* The same of a step and one shortly before it that reads the same. */
static Err merge_readers(const Schedule *s, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) {
        int32_t nin = plan_step(s->e->plan, i)->in.n, back = i - first;
        bool done = false;
        if (back > MAX_READERS_BACK) back = MAX_READERS_BACK;
        for (int32_t k = 0; k < back * nin && !done; k++) {
            Merge m = {.first = i - 1 - k / nin, .second = i, .to = k % nin};
            if (gpu_shares(s->e, &m) && may_merge(s, &m)) TRY(gpu_merge(s->e, &m, &done));
        }
    }
    return E_OK;
}

static Err straight(Schedule *s, int32_t first, int32_t n) {
    Exec *e = s->e;
    if (gpu_is_there(&e->rt->gpu)) {
        TRY(merge_makers(s, first, n));
        TRY(merge_readers(s, first, n));
        TRY(join_steps(s, first, n));
    }
    Stretch stretch = {.first = first, .n = n, .stage = e->stage.n};
    double seconds = 0;
    for (int32_t i = first; i < first + n; i++)
        seconds += step_seconds(e, plan_step(e->plan, i)) * e->step[i].n;
    if (seconds >= INLINE_SECONDS && s->threads > 1) TRY(add_stages(s, first, n));
    stretch.nstage = e->stage.n - stretch.stage;
    if (stretch.nstage > e->most_stages) e->most_stages = stretch.nstage;
    int32_t queues = 0;
    for (int32_t i = 0; i < stretch.nstage; i++)
        queues += pool_queues(&e->stage.at[stretch.stage + i]);
    if (queues > e->most_queues) e->most_queues = queues;
    return VEC_PUSH(&e->arena, &e->stretch, stretch) ? E_OK : exec_no_memory(e);
}

/* The start or the end of a collective between domains. */
static Err exchange(Schedule *s, int32_t step) {
    Exec *e = s->e;
    Stretch stretch = {.first = step, .n = 1, .exchange = e->step[step].exchange};
    if (stretch.exchange->step == step) TRY(exchange_schedule(e, stretch.exchange));
    while (s->first.n < e->stage.n)
        if (!VEC_PUSH(&e->arena, &s->first, step) || !VEC_PUSH(&e->arena, &s->count, 1))
            return exec_no_memory(e);
    return VEC_PUSH(&e->arena, &e->stretch, stretch) ? E_OK : exec_no_memory(e);
}

/* A LOOP or BRANCH, and its bodies. */
static Err control(Schedule *s, int32_t step) {
    Exec *e = s->e;
    const Plan *p = e->plan;
    const PlanControl *c = &plan_step(p, step)->control;
    Stretch stretch = {.first = step, .n = 1, .nbody = c->body.n};
    stretch.body = ARENA_ARRAY(&e->arena, int32_t, stretch.nbody + 1);
    if (!stretch.body || !VEC_PUSH(&e->arena, &e->stretch, stretch)) return exec_no_memory(e);
    int32_t at = step + 1;
    for (int k = 0; k < c->body.n; k++) {
        int32_t before = e->stretch.n, steps = PLAN_LIST(p, int32_t, c->body)[k];
        TRY(add_stretches(s, at, steps));
        stretch.body[k] = e->stretch.n - before;
        at += steps;
    }
    return E_OK;
}

/* Cut where arguments may be written over that no caller offered: then nothing can fail any more. A
 * GPU says too late what has failed. */
static Err settled(Schedule *s, int32_t first, int32_t n) {
    const Exec *e = s->e;
    int32_t before = (int32_t)e->plan->settled - first;
    if (before <= 0 || before >= n || gpu_is_there(&e->rt->gpu)) return straight(s, first, n);
    TRY(straight(s, first, before));
    return straight(s, first + before, n - before);
}

static Err add_stretches(Schedule *s, int32_t first, int32_t n) {
    const Plan *p = s->e->plan;
    int32_t begin = first;
    for (int32_t i = first; i < first + n; i++) {
        bool alone = s->e->step[i].exchange != NULL;
        if (!plan_step(p, i)->control.body.n && !alone) continue;
        if (i > begin) TRY(settled(s, begin, i - begin));
        TRY(alone ? exchange(s, i) : control(s, i));
        i += plan_steps_in(p, plan_step(p, i));
        begin = i + 1;
    }
    return first + n > begin ? settled(s, begin, first + n - begin) : E_OK;
}

Err bind_schedule(Exec *e) {
    const Plan *p = e->plan;
    Schedule s = {.e = e, .threads = runtime_threads(e->rt)};
    s.extent = ARENA_ARRAY(&e->arena, Extent, p->values.n + 1);
    if (!s.extent) return exec_no_memory(e);
    if (gpu_is_there(&e->rt->gpu) && !(s.touch = gpu_touches(e))) return exec_no_memory(e);
    for (int32_t i = 0; i < p->values.n; i++) s.extent[i] = extent_of(p, plan_value(p, i));
    s.reach = ARENA_ARRAY(&e->arena, Reach, p->steps.n + 1);
    if (!s.reach) return exec_no_memory(e);
    for (int32_t i = 0; i < p->steps.n; i++)
        s.reach[i] = (Reach){roots_of(&s, plan_step(p, i)->in), roots_of(&s, plan_step(p, i)->out)};
    return add_stretches(&s, 0, p->steps.n);
}
