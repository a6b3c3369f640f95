/* plan_control.c - a node that owns regions as a LOOP or BRANCH step and the steps of its bodies.
 *
 * A parameter of a body is the outer value itself, or its slice; a carry has a buffer of its own,
 * which lives through the loop. Results of a body are made where they are wanted outside: in the
 * carry's buffer (as soon as its old value is not needed), in the slice of the stack, in what a
 * branch gives. What could not be made there is copied at the end of the body.
 *
 * The steps of a body stand in the plan once and run many times, so that where a step stands does
 * not tell all of when it runs. Hence two rules. A carry is read as it was before it is written: a
 * result is made in its buffer only behind the last reader of the old value, and the copies at the
 * end first save what lies in a carry that one of them writes (leave). And what a body reads of
 * outside lives until the loop is over, as the next iteration reads it, too
 * (plan_control_stretch); what is made within a body lives as if it ran once, unless it belongs to
 * several iterations at once (plan_shift.c).
 *
 * A branch of which each device knows beforehand what it runs is no step: its bodies stand one
 * behind the other, and each of their steps has a guard. A result that one of them gives back as it
 * came in stays where it lies, and the others write over it there, as a loop does over a carry: who
 * runs that one does nothing. */
#include "pass/plan/plan_build.h"

#include <string.h>

/* One way in or out. */
typedef struct Way {
    Flow f;
    BuildValue outer; /* the operand, the carry, or the result */
    BuildValue inner; /* what a body has to do with: outer, or its slice */
    int32_t in_place; /* guarded: 1 + the way whose operand the result is written over; 0: none */
} Way;

typedef struct Control {
    PlanBuild *p;
    const Node *n;
    ControlInfo info;
    Way *way;
    int32_t nway, loop;
} Control;

static bool same_place(const BuildValue *a, const BuildValue *b) {
    if (a->buffer != b->buffer || a->offset != b->offset || a->noffset || b->noffset ||
        a->nslice != b->nslice)
        return false;
    for (int i = 0; i < a->nslice; i++)
        if (a->per_slice[i].loop != b->per_slice[i].loop ||
            a->per_slice[i].ring != b->per_slice[i].ring ||
            a->per_slice[i].bytes != b->per_slice[i].bytes)
            return false;
    for (int d = 0; d < a->type->dims.rank; d++)
        if (a->type->dims.at[d] > 1 && a->strides[d] != b->strides[d]) return false;
    return true;
}

/* The slice of a stack that the loop has come to. */
static void slice(Control *c, const BuildValue *stack, BuildValue *out) {
    PlanBuild *p = c->p;
    PlanStride *all = ARENA_ARRAY(p->arena, PlanStride, stack->nslice + 1);
    *out = *stack;
    out->type = type_slice(p->g->cx, stack->type);
    if (!all || !out->type) {
        plan_build_no_memory(p);
        return;
    }
    int rank = out->type->dims.rank;
    for (int d = 0; d < rank; d++) out->strides[d] = stack->strides[d + 1];
    if (stack->nslice) memcpy(all, stack->per_slice, sizeof *all * (size_t)stack->nslice);
    memset(&all[stack->nslice], 0, sizeof *all); /* no byte of a plan is undefined */
    all[stack->nslice].bytes = stack->strides[0];
    all[stack->nslice].loop = c->loop;
    out->per_slice = all;
    out->nslice = stack->nslice + 1;
}

/* Counts the node's operands by buffer (by: 1), or forgets them (-1). */
static void count_readers(const Control *c, int32_t by) {
    for (int32_t i = 0; i < c->n->nin; i++) c->p->readers[c->p->value[c->n->in[i]].buffer] += by;
}

/* A buffer that a loop writes, beginning with the operand: the operand's own if nobody needs it,
 * which includes the other operands. */
static void begin_carry(Control *c, Way *w, const Type *type) {
    PlanBuild *p = c->p;
    const BuildValue *from = &p->value[c->n->in[w->f.in]];
    w->outer = *from;
    w->outer.type = type;
    if (p->readers[from->buffer] == 1 && plan_can_take(p, from, type)) return;
    plan_own_buffer(p, &w->outer, type, BUFFER_TEMP);
    if (!p->err) plan_copy(p, c->n, from, &w->outer);
}

static bool is_kept(const Way *w) {
    return w->f.carried || w->in_place;
}

/* Does a collective read the value? It cannot write where it reads. */
static bool is_sent(const PlanBuild *p, Val v) {
    for (int32_t id = p->region_next[p->now]; id; id = p->region_next[id]) {
        const Node *n = graph_node(p->g, id);
        for (int i = 0; i < n->nin; i++)
            if (n->in[i] == v && graph_opdef(p->g, n)->flags & OPF_COLLECTIVE) return true;
    }
    return false;
}

/* Does a body give way i's operand as the result? */
static bool gives_back(const Control *c, const Way *w, const Flow *in) {
    for (int k = 0; k < c->n->nbody; k++) {
        const Region *r = &c->p->g->region.at[c->n->body[k]];
        if (r->result.at[w->f.result] == r->param.at[in->param]) return true;
    }
    return false;
}

/* A result of a guarded branch: in the place of an operand that nobody else needs, where a body
 * gives that back; else in a buffer of its own. */
static void begin_result(Control *c, Way *w, const Type *type) {
    PlanBuild *p = c->p;
    Val v = c->n->out + w->f.out;
    for (int i = 0; c->info.guard && i < c->nway && !w->in_place; i++) {
        const Flow *f = &c->way[i].f;
        if (f->in < 0 || f->param < 0 || !gives_back(c, w, f)) continue;
        const BuildValue *from = &p->value[c->n->in[f->in]];
        const BuildBuffer *b = &p->buffer.at[from->buffer];
        bool own = b->kind == BUFFER_TEMP && b->param < 0 && p->readers[from->buffer] == 1;
        for (int k = 0; k < c->nway; k++) own = own && c->way[k].in_place != i + 1;
        if (own && plan_can_take(p, from, type) && !is_sent(p, v)) w->in_place = i + 1;
        if (w->in_place) w->outer = *from;
    }
    if (!w->in_place) plan_own_buffer(p, &w->outer, type, BUFFER_TEMP);
    w->outer.type = type;
}

/* The values outside, before the step. */
static void begin(Control *c, const OpDef *def) {
    PlanBuild *p = c->p;
    const Graph *g = p->g;
    const Region *r = &g->region.at[c->n->body[0]];
    Flow f;
    while (def->flow(c->n, c->nway, &f)) c->nway++;
    c->way = ARENA_ARRAY(p->arena, Way, c->nway + 1);
    if (!c->way) plan_build_no_memory(p);
    count_readers(c, 1);
    for (int i = 0; i < c->nway && !p->err; i++) {
        Way *w = &c->way[i];
        def->flow(c->n, i, &w->f);
        if (w->f.carried)
            begin_carry(c, w, graph_type(g, r->param.at[w->f.param]));
        else if (w->f.steers && !c->info.branch)
            begin_carry(c, w, graph_type(g, r->result.at[w->f.result]));
        else if (w->f.in >= 0)
            w->outer = p->value[c->n->in[w->f.in]];
        else
            begin_result(c, w, graph_type(g, c->n->out + w->f.out));
        w->inner = w->outer;
        if (!p->err && w->f.stacked) slice(c, &w->outer, &w->inner);
    }
    count_readers(c, -1);
    if (!plan_build_room(p)) return;
    for (int i = 0; i < c->nway; i++)
        if (c->way[i].f.result >= 0) p->last_use[c->way[i].outer.buffer] = 0;
}

/* The value is wanted there, and so is what it only waits for. */
static void want(PlanBuild *p, Val v, BuildValue *place) {
    for (;;) {
        const Node *n = graph_def(p->g, v);
        if (!p->place[v] || !place) p->place[v] = place;
        if (!(graph_opdef(p->g, n)->flags & OPF_WAIT)) return;
        v = n->in[0];
    }
}

/* Parameters and places of results. */
static void enter(Control *c, const Region *r) {
    PlanBuild *p = c->p;
    for (int i = 0; i < c->nway; i++) {
        Way *w = &c->way[i];
        if (w->f.param >= 0) {
            Val v = r->param.at[w->f.param];
            p->value[v] = w->inner;
            p->value[v].type = graph_type(p->g, v);
            if (w->f.carried) p->last_use[w->outer.buffer] = p->value_last[v];
        } else if (w->in_place) {
            Val v = r->param.at[c->way[w->in_place - 1].f.param];
            p->last_use[w->outer.buffer] = p->value_last[v];
        } else if (w->f.result >= 0) {
            p->last_use[w->outer.buffer] = 0;
        }
        if (w->f.result >= 0) want(p, r->result.at[w->f.result], &w->inner);
    }
}

/* Counts the carries by buffer, or forgets them, as count_readers does. */
static void count_carries(const Control *c, int32_t by) {
    for (int i = 0; i < c->nway; i++)
        if (is_kept(&c->way[i])) c->p->readers[c->way[i].outer.buffer] += by;
}

/* Does the value lie in what the copies into carries write? Also in its own carry, as a view: a
 * copy from there would read what it has written. */
static bool in_a_carry(const Control *c, const BuildValue *v) {
    return c->p->readers[v->buffer] > 0;
}

/* Of the iteration that makes the value. */
static int32_t shift_of(const PlanBuild *p, Val v) {
    return p->shift[p->g->value.at[v].node];
}

/* What was not made where it is wanted is brought there; carries last, as
 * they are operands, too. */
static void leave(Control *c, const Region *r) {
    PlanBuild *p = c->p;
    for (int i = 0; i < c->nway && !p->err; i++) {
        Way *w = &c->way[i];
        if (w->f.result < 0) continue;
        Val v = r->result.at[w->f.result];
        want(p, v, NULL);
        if (is_kept(w) || same_place(&p->value[v], &w->inner)) continue;
        p->now_shift = shift_of(p, v);
        plan_copy(p, c->n, &p->value[v], &w->inner);
    }
    BuildValue *from = ARENA_ARRAY(p->arena, BuildValue, c->nway + 1);
    if (!from) plan_build_no_memory(p);
    count_carries(c, 1);
    for (int i = 0; i < c->nway && !p->err; i++) {
        Way *w = &c->way[i];
        if (!is_kept(w)) continue;
        from[i] = p->value[r->result.at[w->f.result]];
        if (same_place(&from[i], &w->inner) || !in_a_carry(c, &from[i])) continue;
        BuildValue saved;
        p->now_shift = shift_of(p, r->result.at[w->f.result]);
        plan_own_buffer(p, &saved, from[i].type, BUFFER_TEMP);
        if (!p->err) plan_copy(p, c->n, &from[i], &saved);
        from[i] = saved;
    }
    count_carries(c, -1);
    for (int i = 0; i < c->nway && !p->err; i++) {
        Way *w = &c->way[i];
        if (!is_kept(w) || same_place(&from[i], &w->inner)) continue;
        int32_t maker = p->g->value.at[r->result.at[w->f.result]].node;
        p->now_shift = p->shift[maker];
        plan_copy(p, c->n, &from[i], &w->inner);
        if (p->lands[maker]) p->landed[maker] = p->step.n;
    }
    p->now_shift = 0;
    plan_build_room(p);
}

/* A buffer that was there before a loop and is read in it lives until the loop ends, one of several
 * iterations as long as the loop. An inner span ends before the one around it does. */
void plan_control_stretch(PlanBuild *p) {
    int32_t *innermost = ARENA_ARRAY(p->arena, int32_t, p->step.n + 1);
    if (!innermost) {
        plan_build_no_memory(p);
        return;
    }
    for (int32_t k = 1; k <= p->span.n; k++)
        for (int32_t i = p->span.at[k - 1].at; i <= p->span.at[k - 1].end; i++) innermost[i] = k;
    for (int32_t b = 0; b < p->buffer.n; b++) {
        BuildBuffer *buf = &p->buffer.at[b];
        if (buf->ring) {
            buf->first = p->span.at[buf->ring - 1].at;
            buf->last = p->span.at[buf->ring - 1].end;
        }
        int32_t k = buf->last < p->step.n ? innermost[buf->last] : 0;
        for (; k && p->span.at[k - 1].at >= buf->first; k = p->span.at[k - 1].parent)
            buf->last = p->span.at[k - 1].end;
    }
}

/* Guards for the bodies of a branch, which follow each other; the number of the first. */
static int32_t add_guards(Control *c) {
    PlanBuild *p = c->p;
    BuildGuard g = {.attr = c->info.guard, .parent = p->guarded, .regions = c->n->nbody};
    const Dims *loops = &g.attr->loops;
    int32_t d = 0, first = p->guard.n + 1;
    for (int32_t k = p->within; k && d < loops->rank; k = p->span.at[k - 1].parent) {
        const BuildStep *s = &p->step.at[p->span.at[k - 1].at];
        if (s->kind != STEP_LOOP) continue;
        if (loops->at[d])
            g.loop[g.nloop++] = (PlanGuardLoop){loops->at[d], s->loop, s->control.trips};
        d++;
    }
    ASSERT(d == loops->rank, "a branch in fewer loops than it asks for: %d", (int)d);
    for (; g.region < g.regions; g.region++)
        if (!VEC_PUSH(p->arena, &p->guard, g)) plan_build_no_memory(p);
    return first;
}

/* The steps of body k of the node. */
static void plan_body(Control *c, int k, int32_t *count) {
    PlanBuild *p = c->p;
    const Region *r = &p->g->region.at[c->n->body[k]];
    int32_t first = p->step.n, around = p->loop;
    if (!c->info.branch) p->loop = c->loop;
    enter(c, r);
    for (int32_t i = p->region_first[c->n->body[k]]; i && !p->err; i = p->region_next[i])
        if (!(graph_opdef(p->g, graph_node(p->g, i))->flags & OPF_PARAM)) plan_node(p, i);
    if (!p->err) leave(c, r);
    if (!p->err) plan_shift_steps(p, c->n->body[k], first);
    p->loop = around;
    *count = p->step.n - first;
}

/* The results, behind the bodies. */
static void end(Control *c) {
    PlanBuild *p = c->p;
    for (int i = 0; i < c->nway; i++) {
        const Way *w = &c->way[i];
        int32_t *last = &p->buffer.at[w->outer.buffer].last;
        if ((w->f.result >= 0 || w->f.steers || w->f.in >= 0) && *last < p->step.n - 1)
            *last = p->step.n - 1;
        if (w->f.out < 0) continue;
        p->value[c->n->out + w->f.out] = w->outer;
        p->value[c->n->out + w->f.out].type = graph_type(p->g, c->n->out + w->f.out);
        p->last_use[w->outer.buffer] = 0;
    }
}

/* A branch without a step of its own. */
static void plan_guarded(Control *c, int32_t id, const OpDef *def) {
    PlanBuild *p = c->p;
    int32_t around = p->guarded, steps;
    begin(c, def);
    int32_t first = p->err ? 0 : add_guards(c);
    for (int k = 0; k < c->n->nbody && !p->err; k++) {
        p->guarded = first + k;
        plan_body(c, k, &steps);
    }
    p->guarded = around;
    p->now = id;
    if (!p->err) end(c);
}

void plan_control(PlanBuild *p, int32_t id, const OpDef *def) {
    Control c = {.p = p, .n = graph_node(p->g, id)};
    def->control(c.n->attr, &c.info);
    if (c.info.guard) {
        plan_guarded(&c, id, def);
        return;
    }
    if (!c.info.branch) c.loop = p->nloop++;
    begin(&c, def);
    int32_t around = p->within;
    if (!VEC_PUSH(p->arena, &p->span, (BuildSpan){.at = p->step.n, .parent = around}))
        plan_build_no_memory(p);
    int32_t span = p->within = p->span.n;
    BuildStep *s = p->err ? NULL : plan_add_step(p, c.n);
    int32_t *body = ARENA_ARRAY(p->arena, int32_t, c.n->nbody);
    if (!body) plan_build_no_memory(p);
    if (!s || p->err) return;
    s->kind = c.info.branch ? STEP_BRANCH : STEP_LOOP;
    s->control = c.info;
    s->loop = c.loop;
    s->body = body;
    s->nbody = c.n->nbody;
    for (int32_t i = p->region_first[c.n->body[0]]; i; i = p->region_next[i]) {
        if (p->shift[i] > s->ahead) s->ahead = p->shift[i];
        if (-p->shift[i] > s->late) s->late = -p->shift[i];
    }
    for (int i = 0; i < c.nway; i++)
        if (c.way[i].f.steers && !plan_set_operands(p, s, &c.way[i].outer, 1, NULL, 0)) return;
    double times = p->times;
    if (!c.info.branch && c.info.trips >= 0) p->times *= (double)c.info.trips;
    for (int k = 0; k < c.n->nbody && !p->err; k++) plan_body(&c, k, &body[k]);
    p->times = times;
    p->now = id;
    p->within = around;
    if (p->err) return;
    p->span.at[span - 1].end = p->step.n - 1;
    end(&c);
}
