/* plan_distinct.c - `vary` knows whole axes; where a dim of 2 lies over an axis of 8, four devices
 * each do the same, and only offsets and groups know of the part. So an axis is cut into digits at
 * every place where one of them does, and it is followed, step by step, along which digits values
 * differ. */
#include "ir/plan_distinct.h"

#include <string.h>

enum { MAX_DIGITS = 16 };

typedef struct Cuts { /* of each axis: where its digits begin, seen as [pre, rest] */
    int32_t pre[MAX_AXES][MAX_DIGITS + 1];
    int n[MAX_AXES];
} Cuts;

typedef struct Follow {
    const Plan *p;
    Cuts cuts;
    PlanDigits *of; /* by buffer */
    double *distinct;
    bool changed;
} Follow;

/* ---- digits ---- */

/* Cuts that do not nest (2 and 3 of 6) are none: such parts count as the whole axis. */
static void cut(Cuts *c, int axis, int32_t pre) {
    int32_t *at = c->pre[axis];
    int i = 0;
    while (i < c->n[axis] && at[i] < pre) i++;
    bool there = i < c->n[axis] && at[i] == pre;
    bool nests = (i == 0 || pre % at[i - 1] == 0) && (i == c->n[axis] || at[i] % pre == 0);
    if (there || !nests || c->n[axis] >= MAX_DIGITS) return;
    memmove(at + i + 1, at + i, sizeof *at * (size_t)(c->n[axis] - i));
    at[i] = pre;
    c->n[axis]++;
}

static void cut_at(Cuts *c, const AxisList *list) {
    for (int i = 0; i < list->n; i++) {
        cut(c, list->at[i].axis, list->at[i].pre);
        cut(c, list->at[i].axis, list->at[i].pre * list->at[i].size);
    }
}

/* Where digit i of the axis ends. */
static int32_t end_of(const Follow *f, int axis, int i) {
    return i + 1 < f->cuts.n[axis] ? f->cuts.pre[axis][i + 1] : f->p->axis_size[axis];
}

static void add_list(const Follow *f, PlanDigits *d, const AxisList *list) {
    for (int k = 0; k < list->n; k++) {
        AxisRef r = list->at[k];
        for (int i = 0; i < f->cuts.n[r.axis]; i++)
            if (f->cuts.pre[r.axis][i] < r.pre * r.size && r.pre < end_of(f, r.axis, i))
                d->at[r.axis] |= (uint16_t)(1u << i);
    }
}

static void drop_list(const Follow *f, PlanDigits *d, const AxisList *list) {
    PlanDigits gone = {{0}};
    add_list(f, &gone, list);
    for (int a = 0; a < MAX_AXES; a++) d->at[a] &= (uint16_t)~gone.at[a];
}

static AxisList whole(const Plan *p, uint32_t mask) {
    AxisList list = {0};
    for (int a = 0; a < p->naxes; a++)
        if (mask >> a & 1) list.at[list.n++] = (AxisRef){(uint16_t)a, 1, (uint16_t)p->axis_size[a]};
    return list;
}

static void add_offsets(const Follow *f, PlanDigits *d, PlanSpan offsets) {
    for (int i = 0; i < offsets.n; i++)
        add_list(f, d, &PLAN_LIST(f->p, PlanOffset, offsets)[i].axes);
}

/* Only along these axes anything differs. */
static void keep(PlanDigits *d, uint32_t mask) {
    for (int a = 0; a < MAX_AXES; a++)
        if (!(mask >> a & 1)) d->at[a] = 0;
}

static double product(const Follow *f, const PlanDigits *d) {
    double n = 1;
    for (int a = 0; a < f->p->naxes; a++)
        for (int i = 0; i < f->cuts.n[a]; i++)
            if (d->at[a] >> i & 1) n *= (double)end_of(f, a, i) / f->cuts.pre[a][i];
    return n;
}

/* ---- steps ---- */

/* What a collective makes of what its operands differ along. */
static void through(const Follow *f, const PlanCollective *c, PlanDigits *d) {
    AxisList axes = whole(f->p, c->axes);
    const AxisList *group = c->list.n ? &c->list : &axes;
    switch ((CollectiveKind)c->kind) {
    case COLL_ALL_GATHER:
    case COLL_ALL_REDUCE: drop_list(f, d, group); break;
    case COLL_PERMUTE:
        for (int i = 0; i < c->from.n; i++) drop_list(f, d, &PLAN_LIST(f->p, AxisList, c->from)[i]);
        for (int i = 0; i < c->to.n; i++) add_list(f, d, &PLAN_LIST(f->p, AxisList, c->to)[i]);
        if (!c->to.n) add_list(f, d, group);
        break;
    default: add_list(f, d, group);
    }
}

static void write_to(Follow *f, const PlanValue *v, PlanDigits d, bool again) {
    const PlanBuffer *b = plan_buffer(f->p, v->buffer);
    PlanDigits *of = &f->of[v->buffer], was = *of;
    int64_t bytes = dtype_size((DType)v->dtype);
    for (int i = 0; i < v->rank; i++) bytes *= plan_dims(f->p, v)[i];
    bool all = !again && bytes == b->bytes && !v->per_slice.n;
    add_offsets(f, &d, v->per_device);
    for (int a = 0; a < MAX_AXES; a++) of->at[a] = all ? d.at[a] : of->at[a] | d.at[a];
    keep(of, (uint32_t)b->vary);
    f->changed = f->changed || memcmp(&was, of, sizeof was) != 0;
}

static void follow_step(Follow *f, int32_t i, bool again) {
    const Plan *p = f->p;
    const PlanStep *s = plan_step(p, i);
    PlanDigits d = {{0}};
    for (int k = 0; k < s->in.n; k++) {
        const PlanValue *v = plan_value(p, PLAN_LIST(p, int32_t, s->in)[k]);
        for (int a = 0; a < MAX_AXES; a++) d.at[a] |= f->of[v->buffer].at[a];
        add_offsets(f, &d, v->per_device);
    }
    add_offsets(f, &d, s->offsets);
    if (s->kind == STEP_COLLECTIVE) through(f, &s->coll, &d);
    if (s->out.n) keep(&d, s->vary);
    double parts = product(f, &d); /* parts of what is the same everywhere are parts, too */
    f->distinct[i] = parts < s->parts ? s->parts : parts;
    for (int k = 0; k < s->out.n; k++)
        write_to(f, plan_value(p, PLAN_LIST(p, int32_t, s->out)[k]), d, again);
}

static void find_cuts(Follow *f) {
    const Plan *p = f->p;
    for (int a = 0; a < p->naxes; a++) cut(&f->cuts, a, 1), cut(&f->cuts, a, p->axis_size[a]);
    for (int32_t i = 0; i < p->values.n; i++) {
        const PlanValue *v = plan_value(p, i);
        for (int k = 0; k < v->per_device.n; k++)
            cut_at(&f->cuts, &PLAN_LIST(p, PlanOffset, v->per_device)[k].axes);
    }
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        for (int k = 0; k < s->offsets.n; k++)
            cut_at(&f->cuts, &PLAN_LIST(p, PlanOffset, s->offsets)[k].axes);
        cut_at(&f->cuts, &s->coll.list);
        for (int k = 0; k < s->coll.from.n; k++)
            cut_at(&f->cuts, &PLAN_LIST(p, AxisList, s->coll.from)[k]);
        for (int k = 0; k < s->coll.to.n; k++)
            cut_at(&f->cuts, &PLAN_LIST(p, AxisList, s->coll.to)[k]);
    }
    for (int a = 0; a < p->naxes; a++) /* the end of the axis begins no digit */
        while (f->cuts.n[a] > 1 && f->cuts.pre[a][f->cuts.n[a] - 1] >= p->axis_size[a])
            f->cuts.n[a]--;
}

void plan_distinct(const Plan *p, PlanDigits *room, double *distinct) {
    Follow f = {.p = p, .of = room, .distinct = distinct};
    find_cuts(&f);
    memset(room, 0, sizeof *room * (size_t)p->buffers.n);
    for (int32_t i = 0; i < p->buffers.n; i++) {
        AxisList list = whole(p, (uint32_t)plan_buffer(p, i)->vary);
        if (plan_buffer(p, i)->kind == BUFFER_PARAM) add_list(&f, &room[i], &list);
    }
    for (int32_t i = 0; i < p->steps.n; i++) {
        follow_step(&f, i, false);
        const PlanStep *s = plan_step(p, i);
        if (s->kind != STEP_LOOP) continue;
        int32_t end = i + plan_steps_in(p, s); /* what a turn leaves is what the next one reads */
        do {
            f.changed = false;
            for (int32_t k = i + 1; k <= end; k++) follow_step(&f, k, true);
        } while (f.changed);
        i = end;
    }
}
