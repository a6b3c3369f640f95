#include "run/bind/depend.h"
#include "run/bind/item.h"

enum { MAX_PAIRS = 1 << 12 };

static ByteRange range_of(const Plan *p, const PlanValue *v) {
    const PlanBuffer *b = plan_buffer(p, v->buffer);
    ByteRange r = {.root = item_root(p, v->buffer), .hi = b->bytes};
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

bool depend_overlap(const Depends *d, PlanSpan a, PlanSpan b) {
    const Plan *p = d->plan;
    for (int32_t i = 0; i < a.n; i++) {
        const ByteRange *x = &d->range[PLAN_LIST(p, int32_t, a)[i]];
        for (int32_t k = 0; k < b.n; k++) {
            const ByteRange *y = &d->range[PLAN_LIST(p, int32_t, b)[k]];
            if (x->root == y->root && x->lo < y->hi && y->lo < x->hi) return true;
        }
    }
    return false;
}

static uint64_t roots_of(const Depends *d, PlanSpan values) {
    uint64_t bits = 0;
    for (int32_t i = 0; i < values.n; i++)
        bits |= UINT64_C(1) << (d->range[PLAN_LIST(d->plan, int32_t, values)[i]].root & 63);
    return bits;
}

bool depend_steps(const Depends *d, int32_t first, int32_t second) {
    const Reach *x = &d->reach[first], *y = &d->reach[second];
    if (!(x->out & (y->in | y->out)) && !(x->in & y->out)) return false;
    const PlanStep *a = plan_step(d->plan, first), *b = plan_step(d->plan, second);
    return depend_overlap(d, a->out, b->in) || depend_overlap(d, a->in, b->out) ||
           depend_overlap(d, a->out, b->out);
}

bool depend_any(const Depends *d, int32_t first, int32_t n, int32_t second, int32_t m) {
    if ((int64_t)n * m > MAX_PAIRS) return true;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < m; k++)
            if (depend_steps(d, first + i, second + k)) return true;
    return false;
}

Err depend_init(Exec *e, Depends *out) {
    const Plan *p = e->plan;
    *out = (Depends){.plan = p,
                     .range = ARENA_ARRAY(&e->arena, ByteRange, p->values.n + 1),
                     .reach = ARENA_ARRAY(&e->arena, Reach, p->steps.n + 1)};
    if (!out->range || !out->reach) return exec_no_memory(e);
    for (int32_t i = 0; i < p->values.n; i++) out->range[i] = range_of(p, plan_value(p, i));
    for (int32_t i = 0; i < p->steps.n; i++)
        out->reach[i] =
            (Reach){roots_of(out, plan_step(p, i)->in), roots_of(out, plan_step(p, i)->out)};
    return E_OK;
}
