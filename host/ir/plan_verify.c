/* plan_verify.c - what must hold of the memory of every plan: values lie within their buffers, a
 * buffer is used while it is in use, buffers that are in use at once lie apart, a step writes over
 * what it reads only where it reads and writes the same elements in the same order, what is on its
 * way between devices is left alone, from turn to turn of a loop, too, and a kernel reads what no
 * device that runs it has skipped to write. */
#include "base/arena.h"
#include "ir/plan.h"

#include <string.h>

typedef struct Extent { /* bytes of a slot, with a slice of every loop and of every device */
    int64_t low, high;
} Extent;

static Err bad(Ctx *cx, const Plan *p, int32_t step, const char *what, int32_t which) {
    Str s;
    str_init(&s, &cx->alloc);
    plan_print(p, NULL, &s);
    Err e = err_set(cx, E_PARSE, "%s: %d, at step %d of:\n%s", what, which, step, str_of(&s));
    str_free(&s);
    return e;
}

static bool is_empty(const Plan *p, const PlanValue *v) {
    for (int d = 0; d < v->rank; d++)
        if (plan_dims(p, v)[d] == 0) return true;
    return false;
}

/* Of the first device and slice, which others lie behind. */
static Extent extent_of(const Plan *p, const PlanValue *v) {
    const int64_t *dims = plan_dims(p, v), *strides = dims + v->rank;
    Extent e = {v->offset, v->offset + (int64_t)dtype_size((DType)v->dtype)};
    for (int d = 0; d < v->rank; d++) {
        int64_t reach = (dims[d] - 1) * strides[d];
        *(reach < 0 ? &e.low : &e.high) += reach;
    }
    return e;
}

static Err check_value(Ctx *cx, const Plan *p, int32_t step, int32_t id) {
    const PlanValue *v = plan_value(p, id);
    const PlanBuffer *b = plan_buffer(p, v->buffer);
    if (step < b->first || step > b->last) return bad(cx, p, step, "a buffer out of use", id);
    Extent e = extent_of(p, v);
    for (int i = 0; i < v->per_device.n; i++) {
        const PlanOffset *o = &PLAN_LIST(p, PlanOffset, v->per_device)[i];
        int64_t reach = o->unit * (axes_product(&o->axes) - 1);
        *(reach < 0 ? &e.low : &e.high) += reach;
    }
    for (int i = 0; i < v->per_slice.n; i++) {
        const PlanStride *s = &PLAN_LIST(p, PlanStride, v->per_slice)[i];
        if (s->ring) e.high += s->bytes * (s->ring - 1);
    }
    bool runs = plan_step(p, step)->times != 0; /* a stack without slices has no bytes */
    if (runs && !is_empty(p, v) && (e.low < 0 || e.high > b->bytes))
        return bad(cx, p, step, "a value outside its buffer", id);
    return E_OK;
}

static bool same_list(const Plan *p, PlanSpan a, PlanSpan b, size_t each) {
    return a.n == b.n && (a.n == 0 || memcmp(PLAN_LIST(p, char, a), PLAN_LIST(p, char, b),
                                             each * (size_t)a.n) == 0);
}

/* Do they begin at places whose distance is known? */
static bool comparable(const Plan *p, const PlanValue *a, const PlanValue *b) {
    return a->buffer == b->buffer &&
           same_list(p, a->per_device, b->per_device, sizeof(PlanOffset)) &&
           same_list(p, a->per_slice, b->per_slice, sizeof(PlanStride));
}

static bool same_elements(const Plan *p, const PlanValue *a, const PlanValue *b) {
    const int64_t *x = plan_dims(p, a), *y = plan_dims(p, b);
    if (a->offset != b->offset || a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++) {
        if (x[d] != y[d]) return false;
        if (x[d] > 1 && x[a->rank + d] != y[b->rank + d]) return false;
    }
    return true;
}

/* A kernel reads an operand while it writes a result. */
static Err check_overwritten(Ctx *cx, const Plan *p, int32_t step) {
    const PlanStep *s = plan_step(p, step);
    for (int i = 0; i < s->in.n; i++)
        for (int k = 0; k < s->out.n; k++) {
            int32_t id = PLAN_LIST(p, int32_t, s->in)[i];
            const PlanValue *in = plan_value(p, id);
            const PlanValue *out = plan_value(p, PLAN_LIST(p, int32_t, s->out)[k]);
            if (!comparable(p, in, out) || is_empty(p, in) || is_empty(p, out)) continue;
            Extent a = extent_of(p, in), b = extent_of(p, out);
            if (a.low < b.high && b.low < a.high && !same_elements(p, in, out))
                return bad(cx, p, step, "an operand that is overwritten while it is read", id);
        }
    return E_OK;
}

static Err check_step(Ctx *cx, const Plan *p, int32_t step) {
    const PlanStep *s = plan_step(p, step);
    for (int i = 0; i < s->in.n; i++)
        TRY(check_value(cx, p, step, PLAN_LIST(p, int32_t, s->in)[i]));
    for (int i = 0; i < s->out.n; i++)
        TRY(check_value(cx, p, step, PLAN_LIST(p, int32_t, s->out)[i]));
    return s->kind == STEP_KERNEL ? check_overwritten(cx, p, step) : E_OK;
}

/* ---- collectives on their way ---- */

typedef struct PlanFlight {
    int32_t step, loop; /* the innermost loop around it, or -1 */
} PlanFlight;

static const PlanStride *stride_of(const Plan *p, const PlanValue *v, int32_t loop) {
    for (int i = 0; loop >= 0 && i < v->per_slice.n; i++) {
        const PlanStride *s = &PLAN_LIST(p, PlanStride, v->per_slice)[i];
        if (s->loop == plan_step(p, loop)->control.loop) return s;
    }
    return NULL;
}

/* May a value of the flight, and one of the step so many turns later, have bytes in common? */
static bool may_meet(const Plan *p, const PlanFlight *f, int32_t flown, int32_t step,
                     int32_t touched, int32_t turns) {
    const PlanValue *a = plan_value(p, flown), *b = plan_value(p, touched);
    if (a->buffer != b->buffer || is_empty(p, a) || is_empty(p, b)) return false;
    const PlanStride *s = stride_of(p, a, f->loop), *t = stride_of(p, b, f->loop);
    if (!s || !t || s->bytes != t->bytes || s->ring != t->ring) return true;
    int32_t own = plan_loop_around(p, step) == f->loop ? plan_step(p, step)->shift : 0;
    int32_t apart = plan_step(p, f->step)->shift - own - turns;
    return s->ring ? apart % s->ring == 0 : apart == 0;
}

static Err check_beside(Ctx *cx, const Plan *p, const PlanFlight *f, int32_t step, int32_t turns) {
    const PlanStep *c = plan_step(p, f->step), *s = plan_step(p, step);
    if (s->kind == STEP_DONE) return E_OK;
    for (int i = 0; i < s->in.n + s->out.n; i++) {
        bool writes = i >= s->in.n;
        int32_t id =
            writes ? PLAN_LIST(p, int32_t, s->out)[i - s->in.n] : PLAN_LIST(p, int32_t, s->in)[i];
        for (int k = 0; k < c->out.n; k++)
            if (may_meet(p, f, PLAN_LIST(p, int32_t, c->out)[k], step, id, turns))
                return bad(cx, p, step, "a value that is still received", id);
        for (int k = 0; writes && k < c->in.n; k++)
            if (may_meet(p, f, PLAN_LIST(p, int32_t, c->in)[k], step, id, turns))
                return bad(cx, p, step, "a value that is still sent", id);
    }
    return E_OK;
}

/* What is on its way over the end of a turn has its memory as long as the loop. */
static Err check_stays(Ctx *cx, const Plan *p, const PlanFlight *f, PlanSpan values) {
    int32_t end = f->loop + plan_steps_in(p, plan_step(p, f->loop));
    for (int i = 0; i < values.n; i++) {
        int32_t id = PLAN_LIST(p, int32_t, values)[i];
        const PlanBuffer *b = plan_buffer(p, plan_value(p, id)->buffer);
        if (b->first > f->loop || b->last < end)
            return bad(cx, p, f->step, "a value that is on its way without its buffer", id);
    }
    return E_OK;
}

static Err check_flight(Ctx *cx, const Plan *p, int32_t step) {
    const PlanStep *s = plan_step(p, step);
    PlanFlight f = {step, plan_loop_around(p, step)};
    int32_t done = s->kind == STEP_COLLECTIVE ? plan_done_of(p, step) : -1, end = done - 1;
    if (done < 0) return E_OK;
    if (done < step) {
        TRY(check_stays(cx, p, &f, s->in));
        TRY(check_stays(cx, p, &f, s->out));
        end = f.loop + plan_steps_in(p, plan_step(p, f.loop));
    }
    for (int32_t i = step + 1; i <= end; i++) TRY(check_beside(cx, p, &f, i, 0));
    for (int32_t i = f.loop + 1; done < step && i < done; i++) TRY(check_beside(cx, p, &f, i, 1));
    return E_OK;
}

/* Of one workspace, each for a while: those of a class never meet in time and in place. */
static Err check_apart(Ctx *cx, const Plan *p, int32_t i) {
    const PlanBuffer *a = plan_buffer(p, i);
    if (a->kind != BUFFER_TEMP || a->bytes == 0) return E_OK;
    for (int32_t k = 0; k < i; k++) {
        const PlanBuffer *b = plan_buffer(p, k);
        if (b->kind != BUFFER_TEMP || b->vary != a->vary || b->bytes == 0) continue;
        if (a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes &&
            b->offset < a->offset + a->bytes)
            return bad(cx, p, a->first, "buffers that lie over each other", i);
    }
    return E_OK;
}

/* ---- guards ---- */

typedef struct Written { /* a buffer, so far */
    bool any, all;       /* by a step; by all devices, or it is not known by which */
    int32_t branch;      /* the first guard of the one branch whose steps have written it, */
    uint64_t regions;    /* and whose bodies these are */
} Written;

static int32_t branch_of(const Plan *p, int32_t guard) {
    return guard - plan_guard(p, guard)->region;
}

/* The bodies that some device runs in some turn. */
static uint64_t bodies_of(const Plan *p, int32_t guard) {
    const PlanGuard *g = plan_guard(p, guard);
    uint64_t bodies = 0;
    for (int i = 0; i < g->run.n; i++) bodies |= 1ull << (PLAN_LIST(p, int32_t, g->run)[i] & 63);
    return bodies;
}

static void note_written(const Plan *p, Written *w, int32_t guard) {
    while (guard) {
        int32_t branch = branch_of(p, guard);
        if (w->any && w->branch != branch) break;
        w->any = true;
        w->branch = branch;
        w->regions |= 1ull << (plan_guard(p, guard)->region & 63);
        if (bodies_of(p, guard) & ~w->regions) return;
        guard = plan_guard(p, guard)->parent; /* all of them: who runs what is around has */
        *w = (Written){.any = guard != 0, .branch = guard ? branch_of(p, guard) : 0};
    }
    w->any = w->all = true;
}

static bool may_read(const Plan *p, const Written *w, int32_t guard) {
    if (!w->any || w->all) return true;
    for (; guard; guard = plan_guard(p, guard)->parent)
        if (branch_of(p, guard) == w->branch &&
            w->regions >> (plan_guard(p, guard)->region & 63) & 1)
            return true;
    return false;
}

static Err check_guard(Ctx *cx, const Plan *p, int32_t i) {
    const PlanGuard *g = plan_guard(p, i);
    bool ok = g->parent >= 0 && g->parent < i && g->region >= 0 && g->region < g->regions &&
              i - g->region >= 1 && g->run.n == g->cut.n + 1 && g->axes.n == p->naxes;
    for (int k = 0; ok && k < g->loops.n; k++) {
        int64_t loop = PLAN_LIST(p, PlanGuardLoop, g->loops)[k].loop;
        ok = loop >= 0 && loop < p->nloop;
    }
    return ok ? E_OK : bad(cx, p, 0, "a guard that says nothing", i);
}

/* Collectives send what lies there, and nobody reads what comes of that. */
static Err check_guards(Ctx *cx, const Plan *p) {
    Arena arena;
    Err e = E_OK;
    for (int32_t i = 1; i <= p->guards.n; i++) TRY(check_guard(cx, p, i));
    if (!p->guards.n) return E_OK;
    arena_init(&arena, &cx->alloc);
    Written *w = ARENA_ARRAY(&arena, Written, p->buffers.n + 1);
    if (!w) e = err_nomem(cx, "checking a plan");
    for (int32_t i = 0; !e && i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        for (int k = 0; !e && s->kind == STEP_KERNEL && k < s->in.n; k++) {
            int32_t b = plan_value(p, PLAN_LIST(p, int32_t, s->in)[k])->buffer;
            bool temporary = plan_buffer(p, b)->kind != BUFFER_PARAM;
            if (temporary && !may_read(p, &w[b], s->guard))
                e = bad(cx, p, i, "a buffer that a device may have skipped to write", b);
        }
        for (int k = 0; !e && k < s->out.n; k++)
            note_written(p, &w[plan_value(p, PLAN_LIST(p, int32_t, s->out)[k])->buffer], s->guard);
    }
    arena_free(&arena);
    return e;
}

Err plan_verify(Ctx *cx, const Plan *p) {
    enum { MANY = 2000 }; /* buffers, above which pairs of them take too long */
    for (int32_t i = 0; i < p->steps.n; i++) TRY(check_step(cx, p, i));
    for (int32_t i = 0; i < p->steps.n; i++) TRY(check_flight(cx, p, i));
    for (int32_t i = 0; i < p->buffers.n && p->buffers.n <= MANY; i++) TRY(check_apart(cx, p, i));
    TRY(check_guards(cx, p));
    return E_OK;
}
