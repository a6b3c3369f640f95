#include "plan_text.h"

#include "ir/full.h"

#include <stdio.h>

static void put_buffer(const Plan *p, const Mesh *m, int32_t id, Str *s) {
    const PlanBuffer *b = plan_buffer(p, id);
    str_fmt(s, "  %c%d: %lld B", "prt"[b->kind], (int)id, (long long)b -> bytes);
    if (b->kind == BUFFER_TEMP)
        str_fmt(s, " at %lld, steps %d..%d", (long long)b->offset, (int)b->first, (int)b->last);
    if (b->take >= 0) str_fmt(s, " of p%d", (int)b->take);
    if (b->kind == BUFFER_PARAM && PLAN_LIST(p, PlanParam, p->params)[b->index].donated)
        str_put(s, " donated");
    if (b->vary) {
        str_put(s, " {V:");
        mesh_print_axes(m, (uint32_t)b->vary, s);
        str_put(s, "}");
    }
    str_put(s, "\n");
}

/* Only where the value is no whole row-major buffer. */
static void put_view(const Plan *p, const Mesh *m, int32_t id, const char *what, Str *s) {
    const PlanValue *v = plan_value(p, id);
    const int64_t *dims = plan_dims(p, v), *strides = dims + v->rank;
    int64_t want = dtype_size((DType)v->dtype);
    bool plain = !v->per_device.n && !v->per_slice.n;
    for (int d = v->rank - 1; d >= 0; want *= dims[d--])
        plain = plain && (dims[d] == 1 || strides[d] == want);
    if (plain) return;
    str_fmt(s, "  %s: strides", what);
    for (int d = 0; d < v->rank; d++) str_fmt(s, " %lld", (long long)strides[d]);
    for (int i = 0; i < v->per_device.n; i++) {
        const PlanOffset *o = &PLAN_LIST(p, PlanOffset, v->per_device)[i];
        str_fmt(s, ", %lld*", (long long)o->unit);
        full_axes(&o->axes, m, s);
    }
    for (int i = 0; i < v->per_slice.n; i++) {
        const PlanStride *o = &PLAN_LIST(p, PlanStride, v->per_slice)[i];
        str_fmt(s, ", %lld*loop %d", (long long)o->bytes, (int)o->loop);
        if (o->ring) str_fmt(s, " of %d", (int)o->ring);
    }
    str_put(s, "\n");
}

static void put_views(const Plan *p, const Mesh *m, PlanSpan list, const char *which, int32_t step,
                      Str *s) {
    for (int i = 0; i < list.n; i++) {
        char what[48];
        snprintf(what, sizeof what, "%d, %s %d", (int)step, which, i + 1);
        put_view(p, m, PLAN_LIST(p, int32_t, list)[i], what, s);
    }
}

static void put_collective(const Plan *p, const Mesh *m, int32_t i, Str *s) {
    static const char *const reduce[] = {"sum", "max", "min"};
    const PlanCollective *c = &plan_step(p, i)->coll;
    str_fmt(s, "  %d:", (int)i);
    if (c->kind == COLL_ALL_REDUCE || c->kind == COLL_REDUCE_SCATTER)
        str_fmt(s, " %s", reduce[c->reduce]);
    if (c->list.n) {
        str_put(s, " along ");
        full_axes(&c->list, m, s);
        str_fmt(s, ", dims %d %d", (int)c->dim + 1, (int)c->dim2 + 1);
    }
    for (int k = 0; k < c->pairs.n; k += 2) {
        const int32_t *pair = &PLAN_LIST(p, int32_t, c->pairs)[k];
        str_fmt(s, " %d->%d", (int)pair[0], (int)pair[1]);
    }
    for (int d = 0; d < c->from.n; d++) {
        str_put(s, d ? ", " : " ");
        full_axes(&PLAN_LIST(p, AxisList, c->from)[d], m, s);
        str_put(s, " to ");
        full_axes(&PLAN_LIST(p, AxisList, c->to)[d], m, s);
    }
    str_put(s, "\n");
}

void plan_text(const Plan *p, const Mesh *m, Str *s) {
    plan_print(p, m, s);
    str_put(s, "memory:");
    for (int i = 0; i < p->classes.n; i++) {
        int64_t bytes = PLAN_LIST(p, int64_t, p->classes)[i];
        if (!bytes) continue;
        str_fmt(s, " workspace %lld B", (long long)bytes);
        if (i) str_put(s, " {V:");
        if (i) mesh_print_axes(m, (uint32_t)i, s);
        if (i) str_put(s, "}");
    }
    str_put(s, "\n");
    for (int32_t i = 0; i < p->buffers.n; i++) put_buffer(p, m, i, s);
    for (int32_t i = 0; i < p->steps.n; i++) {
        put_views(p, m, plan_step(p, i)->in, "operand", i, s);
        put_views(p, m, plan_step(p, i)->out, "result", i, s);
        if (plan_step(p, i)->kind == STEP_COLLECTIVE) put_collective(p, m, i, s);
    }
    for (int i = 0; i < p->results.n; i++) {
        char what[32];
        snprintf(what, sizeof what, "result %d", i + 1);
        put_view(p, m, PLAN_LIST(p, int32_t, p->results)[i], what, s);
    }
}
