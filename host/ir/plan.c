#include "ir/plan.h"

/* How many slots a buffer with these vary axes has, on all devices. */
static int32_t slots_of(const Plan *p, uint32_t vary) {
    int32_t n = 1;
    for (int i = 0; i < p->naxes; i++)
        if (vary >> i & 1) n *= p->axis_size[i];
    return n;
}

int64_t plan_offset(const Plan *p, const PlanOffset *o, const int32_t coord[MAX_AXES]) {
    int64_t index = 0;
    for (int i = 0; i < o->axes.n; i++) {
        AxisRef r = o->axes.at[i];
        int32_t rest = p->axis_size[r.axis] / (r.pre * r.size);
        index = index * r.size + coord[r.axis] / rest % r.size;
    }
    return index * o->unit;
}

int64_t plan_place(const Plan *p, const PlanValue *v, const int32_t coord[MAX_AXES]) {
    int64_t at = v->offset;
    for (int i = 0; i < v->per_device.n; i++)
        at += plan_offset(p, &PLAN_LIST(p, PlanOffset, v->per_device)[i], coord);
    return at;
}

double plan_operand_bytes(const Plan *p, const PlanStep *s) {
    double bytes = 0;
    for (int i = 0; i < s->in.n; i++) {
        const PlanValue *v = plan_value(p, PLAN_LIST(p, int32_t, s->in)[i]);
        double n = dtype_size((DType)v->dtype);
        for (int d = 0; d < v->rank; d++) n *= (double)plan_dims(p, v)[d];
        bytes += n;
    }
    return bytes;
}

double plan_collective_sent(CollectiveKind kind, double bytes, double n) {
    switch (kind) {
    case COLL_ALL_GATHER: return bytes * (n - 1);
    case COLL_ALL_REDUCE: return bytes * 2 * (n - 1) / n;
    case COLL_REDUCE_SCATTER:
    case COLL_ALL_TO_ALL: return bytes * (n - 1) / n;
    case COLL_PERMUTE: return bytes;
    default: return 0;
    }
}

double plan_bytes_sent(const Plan *p, const PlanStep *s) {
    double n = slots_of(p, s->coll.axes);
    if (s->coll.list.n) { /* a group along parts of axes is smaller */
        n = 1;
        for (int i = 0; i < s->coll.list.n; i++) n *= s->coll.list.at[i].size;
    }
    return plan_collective_sent((CollectiveKind)s->coll.kind, plan_operand_bytes(p, s) * s->times,
                                n);
}

void plan_free(Ctx *cx, Plan *p) {
    if (p) alloc_free(&cx->alloc, p, (size_t)p->size);
}

void plan_print_type(const Plan *p, const PlanValue *v, Str *s) {
    str_fmt(s, "%s[", dtype_name((DType)v->dtype));
    for (int d = 0; d < v->rank; d++)
        str_fmt(s, "%s%lld", d ? "," : "", (long long)plan_dims(p, v)[d]);
    str_put(s, "]");
}

static void print_value(const Plan *p, int32_t id, Str *s) {
    static const char *const kind[] = {"p", "r", "t"};
    const PlanValue *v = plan_value(p, id);
    const PlanBuffer *b = plan_buffer(p, v->buffer);
    str_fmt(s, " %s%d", kind[b->kind], v->buffer);
    if (v->offset) str_fmt(s, "+%lld", (long long)v->offset);
    if (v->per_device.n) str_put(s, "+device");
    for (int i = 0; i < v->per_slice.n; i++)
        if (i == 0 || PLAN_LIST(p, PlanStride, v->per_slice)[i].ring)
            str_put(s, PLAN_LIST(p, PlanStride, v->per_slice)[i].ring ? "+ring" : "+slice");
    str_put(s, ":");
    plan_print_type(p, v, s);
}

/* Behind the name of a step: how its bodies run. */
static void print_control(const Plan *p, const PlanStep *step, Str *s) {
    const PlanControl *c = &step->control;
    if (step->kind == STEP_LOOP && c->trips >= 0)
        str_fmt(s, " %lld times%s", (long long)c->trips, c->reverse ? " from the end" : "");
    if (step->kind == STEP_BRANCH) str_put(s, " one of");
    for (int k = 0; k < c->body.n; k++)
        str_fmt(s, "%s %d", k ? "," : "", PLAN_LIST(p, int32_t, c->body)[k]);
    if (c->body.n) str_put(s, " steps");
}

/* Under which condition the step runs: "if 0 <= loop0 - stage < 4". */
static void print_term(int64_t by, const char *name, int64_t number, bool *first, Str *s) {
    if (by == 0) return;
    str_put(s, *first ? by < 0 ? "-" : "" : by < 0 ? " - " : " + ");
    if (by != 1 && by != -1) str_fmt(s, "%lld*", (long long)(by < 0 ? -by : by));
    str_put(s, name);
    if (number >= 0) str_fmt(s, "%lld", (long long)number);
    *first = false;
}

static void print_sum(const Plan *p, const Mesh *mesh, const PlanGuard *g, Str *s) {
    const PlanGuardLoop *l = PLAN_LIST(p, PlanGuardLoop, g->loops);
    const int64_t *axis = PLAN_LIST(p, int64_t, g->axes);
    bool first = true;
    for (int i = 0; i < g->loops.n; i++) print_term(l[i].by, "loop", l[i].loop, &first, s);
    for (int i = 0; i < g->axes.n; i++)
        print_term(axis[i], mesh ? mesh->name[i] : "axis", mesh ? -1 : i, &first, s);
    if (first) str_put(s, "0");
}

static void print_guard(const Plan *p, const Mesh *mesh, const PlanGuard *g, Str *s) {
    const int32_t *cut = PLAN_LIST(p, int32_t, g->cut), *run = PLAN_LIST(p, int32_t, g->run);
    const char *before = " if ";
    if (g->parent) {
        print_guard(p, mesh, plan_guard(p, g->parent), s);
        before = " and ";
    }
    for (int i = 0; i <= g->cut.n; i++) {
        if (run[i] != g->region) continue;
        str_put(s, before);
        if (i > 0) str_fmt(s, "%d <= ", cut[i - 1]);
        print_sum(p, mesh, g, s);
        if (i < g->cut.n) str_fmt(s, " < %d", cut[i]);
        before = " or ";
    }
}

static void print_step(const Plan *p, const Mesh *mesh, int32_t i, int depth, Str *s) {
    const PlanStep *step = plan_step(p, i);
    str_fmt(s, "%4d %*s%s", i, 2 * depth, "", plan_str(p, step->name));
    if (step->shift) str_put(s, step->shift > 0 ? " ahead" : " late");
    print_control(p, step, s);
    if (step->ops.n) {
        str_put(s, "(");
        for (int k = 0; k < step->ops.n; k++)
            str_fmt(s, "%s%s", k ? " " : "", plan_str(p, PLAN_LIST(p, int32_t, step->ops)[k]));
        str_put(s, ")");
    }
    if (step->kind == STEP_COLLECTIVE && mesh) {
        str_put(s, " over ");
        mesh_print_axes(mesh, step->coll.axes, s);
    }
    str_put(s, " :");
    for (int k = 0; k < step->in.n; k++) print_value(p, PLAN_LIST(p, int32_t, step->in)[k], s);
    str_put(s, " ->");
    for (int k = 0; k < step->out.n; k++) print_value(p, PLAN_LIST(p, int32_t, step->out)[k], s);
    if (mesh && step->vary) {
        str_put(s, " {V:");
        mesh_print_axes(mesh, step->vary, s);
        str_put(s, "}");
    }
    if (step->guard) print_guard(p, mesh, plan_guard(p, step->guard), s);
    if (step->locs.n) {
        str_put(s, "  ; ");
        for (int k = 0; k < step->locs.n; k++)
            str_fmt(s, "%s%s", k ? ", " : "", plan_str(p, PLAN_LIST(p, int32_t, step->locs)[k]));
    }
    if (step->why.n) str_fmt(s, ": %s", plan_str(p, PLAN_LIST(p, PlanReason, step->why)[0].text));
    if (step->why.n > 1) str_fmt(s, " and %d more", step->why.n - 1);
    str_put(s, "\n");
}

int32_t plan_steps_in(const Plan *p, const PlanStep *s) {
    int32_t n = 0;
    for (int k = 0; k < s->control.body.n; k++) n += PLAN_LIST(p, int32_t, s->control.body)[k];
    return n;
}

int32_t plan_loop_around(const Plan *p, int32_t step) {
    for (int32_t i = step - 1; i >= 0; i--) {
        const PlanStep *s = plan_step(p, i);
        if (s->kind == STEP_LOOP && i + plan_steps_in(p, s) >= step) return i;
    }
    return -1;
}

static bool waits_for(const Plan *p, int32_t done, const PlanStep *s) {
    const PlanStep *d = plan_step(p, done);
    if (d->kind != STEP_DONE) return false;
    int32_t waited = plan_value(p, PLAN_LIST(p, int32_t, d->in)[0])->buffer;
    for (int k = 0; k < s->out.n; k++)
        if (plan_value(p, PLAN_LIST(p, int32_t, s->out)[k])->buffer == waited) return true;
    return false;
}

int32_t plan_done_of(const Plan *p, int32_t step) {
    const PlanStep *s = plan_step(p, step);
    int32_t loop = plan_loop_around(p, step), done = -1;
    for (int32_t i = loop + 1; loop >= 0 && i < step && done < 0; i++)
        if (plan_step(p, i)->shift < s->shift && waits_for(p, i, s)) done = i;
    for (int32_t i = step + 1; i < p->steps.n && done < 0; i++)
        if (waits_for(p, i, s)) done = i;
    return done;
}

static void print_steps(const Plan *p, const Mesh *mesh, int32_t first, int32_t n, int depth,
                        Str *s) {
    for (int32_t i = first; i < first + n; i++) {
        int32_t inside = plan_steps_in(p, plan_step(p, i));
        print_step(p, mesh, i, depth, s);
        if (inside) print_steps(p, mesh, i + 1, inside, depth + 1, s);
        i += inside;
    }
}

void plan_print(const Plan *p, const Mesh *mesh, Str *s) {
    char buf[BYTES_TEXT];
    if (mesh) {
        mesh_print(mesh, s);
        str_put(s, "\n");
    }
    print_steps(p, mesh, 0, p->steps.n, 0, s);
    str_put(s, "return");
    for (int32_t i = 0; i < p->results.n; i++)
        print_value(p, PLAN_LIST(p, int32_t, p->results)[i], s);
    str_fmt(s, "\n%d step%s, ", p->steps.n, str_s(p->steps.n));
    if (p->least_flops < p->flops) str_fmt(s, "%.4g to ", p->least_flops);
    str_fmt(s, "%.4g flops and %s of memory per device\n", p->flops, str_bytes(p->peak_bytes, buf));
}
