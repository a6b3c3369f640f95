/* plan_verify.c - what must hold of the memory of every plan: values lie within their buffers, a
 * buffer is used while it is in use, buffers that are in use at once lie apart, and a step writes
 * over what it reads only where it reads and writes the same elements in the same order. */
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

Err plan_verify(Ctx *cx, const Plan *p) {
    enum { MANY = 2000 }; /* buffers, above which pairs of them take too long */
    for (int32_t i = 0; i < p->steps.n; i++) TRY(check_step(cx, p, i));
    for (int32_t i = 0; i < p->buffers.n && p->buffers.n <= MANY; i++) TRY(check_apart(cx, p, i));
    return E_OK;
}
