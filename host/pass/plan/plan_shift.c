/* plan_shift.c - collectives of a loop that begin in one iteration and are over in another.
 *
 * Where an iteration has too little work between a collective and its wait, other iterations have
 * it. What is made of slices and constants alone can be made an iteration ahead: the collective
 * starts while the iteration before computes, and is waited for in its own (a layer's weights,
 * gathered while the layer before it computes). What only leads to results of the loop, or to
 * carries that nothing else reads, can be done an iteration late: the collective starts in its own
 * iteration, and is waited for in the next (a layer's gradients, on their way while the next
 * layer's are computed). So can the wait for a carry's next value, before the first that reads it
 * there (what a pipeline's stage sends on). Nothing but the flow of values decides.
 *
 * A node's shift says of which iteration it is: in turn i of the loop it does iteration i + shift,
 * where there is one. So no iteration is peeled, no step stands in the plan twice, and slices, also
 * of stacked results, are where they always were. A value that is read in a later turn than it is
 * made in lies in a ring of as many places as turns need at once.
 *
 * In a turn a wait for what began in an earlier one stands right in front of what begins in it: a
 * collective is on its way once at a time. Values and buffers are found in the order of the nodes,
 * as ever, and then the steps are brought into that of a turn: among those of one shift it is the
 * same (those ahead, of which that is not so, have rings of their own). */
#include "pass/plan/plan_build.h"

#include "op/op.h"

typedef struct Shift {
    PlanBuild *p;
    const Graph *g;
    Uses uses;
    double *seconds, *over; /* by node: what it takes; when it is over */
    bool *exposed;          /* by node: a collective that its iteration has to wait for */
    bool *is_free;          /* by value: a parameter that no iteration changes, or its slice */
    Val *next, *before;     /* by value: of a carry its next value; and back, -1: of several */
    bool *is_result;        /* by value: of the region */
    int32_t *lands;         /* by value: of a carry the late wait for its next value, or 0 */
    int32_t *stamp, round;  /* by node: round where it is in `set` */
    bool *is_put;           /* by node: it is in `order` */
    VEC(int32_t) all;       /* of the region, in their order */
    VEC(int32_t) set;
    VEC(int32_t) order;
    int32_t late; /* in `all`: late nodes before it are in `order` */
} Shift;

static bool start(Shift *s, PlanBuild *p) {
    const Graph *g = p->g;
    Arena *a = p->arena;
    *s = (Shift){.p = p, .g = g, .uses = graph_uses(g, a)};
    s->seconds = op_seconds(g, p->o->target, a);
    s->over = ARENA_ARRAY(a, double, g->node.n);
    s->exposed = ARENA_ARRAY(a, bool, g->node.n);
    s->is_free = ARENA_ARRAY(a, bool, g->value.n);
    s->next = ARENA_ARRAY(a, Val, g->value.n);
    s->before = ARENA_ARRAY(a, Val, g->value.n);
    s->is_result = ARENA_ARRAY(a, bool, g->value.n);
    s->lands = ARENA_ARRAY(a, int32_t, g->value.n);
    s->stamp = ARENA_ARRAY(a, int32_t, g->node.n);
    s->is_put = ARENA_ARRAY(a, bool, g->node.n);
    return s->uses.start && s->seconds && s->over && s->exposed && s->is_free && s->next &&
           s->before && s->is_result && s->lands && s->stamp && s->is_put;
}

static const OpDef *op_of(const Shift *s, int32_t id) {
    return graph_opdef(s->g, graph_node(s->g, id));
}

static int32_t maker(const Shift *s, Val v) {
    return s->g->value.at[v].node;
}

static bool is_param(const Shift *s, Val v) {
    return op_of(s, maker(s, v))->flags & OPF_PARAM;
}

static bool is_wait(const Shift *s, int32_t id) {
    return op_of(s, id)->flags & OPF_WAIT;
}

static void push(Shift *s, int32_t id) {
    if (s->stamp[id] == s->round) return;
    s->stamp[id] = s->round;
    if (!VEC_PUSH(s->p->arena, &s->set, id)) plan_build_no_memory(s->p);
}

static bool in_set(const Shift *s, int32_t id) {
    return s->stamp[id] == s->round;
}

static void push_users(Shift *s, Val v) {
    for (int32_t i = s->uses.start[v]; i < s->uses.start[v + 1]; i++) push(s, s->uses.list[i]);
}

static void begin_set(Shift *s) {
    s->round++;
    s->set.n = 0;
}

/* ---- what an iteration has to wait for ---- */

/* Nodes, ways in and out of the loop's region, and which collectives are exposed: the links do one
 * after the other, beside the work. */
static void read_region(Shift *s, const Node *loop) {
    PlanBuild *p = s->p;
    const Graph *g = s->g;
    const Region *r = &g->region.at[loop->body[0]];
    double now = 0, link = 0;
    Flow f;
    for (int i = 0; graph_opdef(g, loop)->flow(loop, i, &f); i++) {
        Val result = f.result >= 0 ? r->result.at[f.result] : 0;
        Val param = f.param >= 0 ? r->param.at[f.param] : 0;
        if (result) s->is_result[result] = true;
        if (param && !f.carried) s->is_free[param] = true;
        if (f.carried) s->next[param] = result;
        if (f.carried || f.steers) s->before[result] = f.steers || s->before[result] ? -1 : param;
    }
    s->all.n = 0;
    for (int32_t id = p->region_first[loop->body[0]]; id; id = p->region_next[id]) {
        if (!VEC_PUSH(p->arena, &s->all, id)) plan_build_no_memory(p);
        if (op_of(s, id)->collective) {
            link = (link > now ? link : now) + s->seconds[id];
            s->over[id] = link;
        } else if (is_wait(s, id)) {
            int32_t c = maker(s, graph_node(g, id)->in[0]);
            if (s->over[c] <= now) continue;
            now = s->over[c];
            s->exposed[c] = true;
        } else {
            now += s->seconds[id];
        }
    }
}

/* Is all that reads the collective a wait for it? */
static bool is_waited(const Shift *s, int32_t id) {
    const Node *n = graph_node(s->g, id);
    int32_t waits = 0;
    for (int k = 0; k < n->nout; k++) {
        if (s->is_result[n->out + k]) return false;
        for (int32_t i = s->uses.start[n->out + k]; i < s->uses.start[n->out + k + 1]; i++, waits++)
            if (!is_wait(s, s->uses.list[i])) return false;
    }
    return waits > 0;
}

static bool may_move(const Shift *s, int32_t id) {
    const OpDef *def = op_of(s, id);
    return !def->control && !def->collective;
}

/* ---- ahead ---- */

/* Collects what the collective is made of. Is that of any iteration there before the loop comes to
 * it? */
static bool is_made_of_slices(Shift *s, int32_t collective) {
    begin_set(s);
    push(s, collective);
    for (int32_t k = 0; k < s->set.n; k++) {
        int32_t id = s->set.at[k];
        const Node *n = graph_node(s->g, id);
        if (s->p->shift[id] < 0) return false;
        if (id != collective && (!may_move(s, id) || is_wait(s, id))) return false;
        for (int i = 0; i < n->nout; i++)
            if (s->before[n->out + i]) return false;
        for (int i = 0; i < n->nin; i++) {
            if (!is_param(s, n->in[i]))
                push(s, maker(s, n->in[i]));
            else if (!s->is_free[n->in[i]])
                return false;
        }
    }
    return true;
}

/* ---- late ---- */

static bool lead_to_results(Shift *s) {
    for (int32_t k = 0; k < s->set.n; k++) {
        int32_t id = s->set.at[k];
        const Node *n = graph_node(s->g, id);
        if (!may_move(s, id) || s->p->shift[id] > 0) return false;
        for (int i = 0; i < n->nout; i++) {
            Val carry = s->before[n->out + i];
            if (carry < 0 || (carry && s->is_result[carry])) return false;
            if (carry) push_users(s, carry);
            push_users(s, n->out + i);
        }
    }
    return true;
}

/* Is the operand of a late node there in the next turn? `held`: adds the bytes that are kept for
 * it. */
static bool is_there_later(const Shift *s, Val v, double *held) {
    for (;;) {
        if (in_set(s, maker(s, v))) return true;
        if (is_param(s, v)) return s->is_free[v] || (s->next[v] && in_set(s, maker(s, s->next[v])));
        if (s->before[v]) return false;
        const OpDef *def = op_of(s, maker(s, v));
        if (def->flags & OPF_NULLARY) return true;
        if (def->control) return false; /* it may lie in a carry */
        if (!def->view) break;
        v = graph_def(s->g, v)->in[0];
    }
    *held += (double)type_bytes(graph_type(s->g, v));
    return true;
}

/* Collects what comes of the collective. Is that the next turn's to do, without keeping more beside
 * than what is sent? */
static bool leads_to_results(Shift *s, int32_t collective) {
    const Node *n = graph_node(s->g, collective);
    double held = 0, sent = 0;
    begin_set(s);
    for (int i = 0; i < n->nin; i++) sent += (double)type_bytes(graph_type(s->g, n->in[i]));
    for (int i = 0; i < n->nout; i++) {
        sent += (double)type_bytes(graph_type(s->g, n->out + i));
        push_users(s, n->out + i);
    }
    if (s->p->shift[collective] || !lead_to_results(s)) return false;
    for (int32_t k = 0; k < s->set.n; k++) {
        const Node *late = graph_node(s->g, s->set.at[k]);
        for (int i = 0; i < late->nin; i++) {
            double own = 0;
            if (!is_there_later(s, late->in[i], &own)) return false;
            if (!is_wait(s, s->set.at[k])) held += own;
        }
    }
    return held <= sent;
}

/* The work of a turn before the first that reads the carry; -1: one that reads it is of another
 * turn. */
static double work_before(Shift *s, Val carry) {
    double work = 0, first = -1;
    begin_set(s);
    push_users(s, carry);
    for (int32_t k = 0; k < s->set.n; k++)
        if (s->p->shift[s->set.at[k]]) return -1;
    for (int32_t k = 0; k < s->all.n; k++) {
        int32_t id = s->all.at[k];
        if (first < 0 && in_set(s, id)) first = work;
        if (s->p->shift[id] == 0 && !op_of(s, id)->collective) work += s->seconds[id];
    }
    return first < 0 ? work : first;
}

/* The wait for the collective, if all that it leads to is a carry's next value, and the next turn
 * has work for half of it before it reads that; or 0. */
static int32_t wait_for_carry(Shift *s, int32_t collective) {
    const Node *n = graph_node(s->g, collective);
    double held = 0;
    if (n->nout != 1 || s->p->shift[collective]) return 0;
    int32_t first = s->uses.start[n->out], wait = s->uses.list[first];
    const Node *done = graph_node(s->g, wait);
    Val carry = s->before[done->out];
    if (s->uses.start[n->out + 1] != first + 1 || s->p->shift[wait]) return 0;
    if (s->uses.start[done->out] != s->uses.start[done->out + 1]) return 0;
    if (carry <= 0 || s->is_result[carry]) return 0;
    if (work_before(s, carry) < s->seconds[collective] / 2) return 0;
    begin_set(s);
    push(s, wait);
    if (!is_there_later(s, done->in[1], &held)) return 0;
    s->lands[carry] = wait;
    return wait;
}

static void shift_set(Shift *s, int8_t shift) {
    for (int32_t k = 0; k < s->set.n; k++) {
        int32_t id = s->set.at[k];
        s->p->shift[id] = shift;
        /* Those ahead stand in no order of their own that a place could be handed on in. */
        if (shift > 0) s->p->ring[id] = 2;
    }
}

/* ---- rings ---- */

/* Whoever makes what v may be a view of: as many places as there are turns from one to the other,
 * and the last. */
static void need_ring(const Shift *s, Val v, int32_t shift) {
    while (!is_param(s, v)) {
        int32_t id = maker(s, v), places = s->p->shift[id] - shift + 1;
        if (places > 1 && places > s->p->ring[id]) s->p->ring[id] = (int8_t)places;
        if (!op_of(s, id)->view) return;
        v = graph_node(s->g, id)->in[0];
    }
}

/* ---- the order of a turn ---- */

static void put(Shift *s, int32_t id) {
    if (s->is_put[id]) return;
    s->is_put[id] = true;
    if (!VEC_PUSH(s->p->arena, &s->order, id)) plan_build_no_memory(s->p);
}

static void put_ahead(Shift *s, int32_t id) {
    const Node *n = graph_node(s->g, id);
    if (s->p->shift[id] <= 0 || s->is_put[id]) return;
    for (int i = 0; i < n->nin; i++) put_ahead(s, maker(s, n->in[i]));
    put(s, id);
}

static bool is_ready(const Shift *s, int32_t id) {
    const Node *n = graph_node(s->g, id);
    for (int i = 0; i < n->nin; i++) {
        int32_t from = maker(s, n->in[i]);
        if (s->p->shift[from] < 0 && !s->is_put[from]) return false;
    }
    return true;
}

/* Late nodes, in their order among themselves, as far as what they wait for is over. */
static void put_late(Shift *s) {
    for (; s->late < s->all.n; s->late++) {
        int32_t id = s->all.at[s->late];
        if (s->p->shift[id] >= 0 || is_wait(s, id)) continue;
        if (!is_ready(s, id)) return;
        put(s, id);
    }
}

/* Late waits stand before the collective, and before who reads the carry that they are for; those
 * ahead start behind the wait for them. */
static void put_turn(Shift *s, int32_t id) {
    const Node *n = graph_node(s->g, id);
    if (s->p->shift[id]) return;
    for (int i = 0; i < n->nin; i++)
        if (s->lands[n->in[i]]) put(s, s->lands[n->in[i]]);
    for (int k = 0; op_of(s, id)->collective && k < n->nout; k++)
        for (int32_t i = s->uses.start[n->out + k]; i < s->uses.start[n->out + k + 1]; i++)
            if (s->p->shift[s->uses.list[i]] < 0) put(s, s->uses.list[i]);
    put_late(s);
    put(s, id);
    if (is_wait(s, id)) put_ahead(s, maker(s, n->in[0]));
}

static void order_region(Shift *s, int32_t region) {
    PlanBuild *p = s->p;
    s->order.n = s->late = 0;
    for (int32_t k = 0; k < s->all.n; k++) put_turn(s, s->all.at[k]);
    put_late(s);
    ASSERT(p->err || s->order.n == s->all.n, "%d of %d nodes of a loop", s->order.n, s->all.n);
    int32_t *turn = ARENA_ARRAY(p->arena, int32_t, s->order.n + 1);
    if (!turn) plan_build_no_memory(p);
    for (int32_t k = 0; turn && k < s->order.n; k++) turn[k] = s->order.at[k];
    p->turn[region] = turn;
}

static void shift_region(Shift *s, const Node *loop) {
    bool any = false;
    read_region(s, loop);
    for (int32_t k = 0; k < s->all.n && !s->p->err; k++) {
        int32_t id = s->all.at[k];
        if (!s->exposed[id] || !is_waited(s, id)) continue;
        bool ahead = is_made_of_slices(s, id);
        if (!ahead && !leads_to_results(s, id)) continue;
        shift_set(s, ahead ? 1 : -1);
        any = true;
    }
    for (int32_t k = 0; k < s->all.n && !s->p->err; k++) {
        int32_t id = s->all.at[k];
        int32_t wait = s->exposed[id] && is_waited(s, id) ? wait_for_carry(s, id) : 0;
        if (!wait) continue;
        s->p->shift[wait] = -1;
        s->p->lands[wait] = any = true;
    }
    if (!any || s->p->err) return;
    for (int32_t k = 0; k < s->all.n; k++) {
        const Node *n = graph_node(s->g, s->all.at[k]);
        for (int i = 0; i < n->nin; i++) need_ring(s, n->in[i], s->p->shift[s->all.at[k]]);
    }
    order_region(s, loop->body[0]);
}

static int32_t moved(const int32_t *to, int32_t first, int32_t n, int32_t step) {
    return step >= first && step < first + n ? first + to[step - first] : step;
}

void plan_shift_steps(PlanBuild *p, int32_t region, int32_t first) {
    const int32_t *turn = p->turn[region];
    int32_t n = p->step.n - first, at = 0;
    if (!turn || n == 0) return;
    BuildStep *old = arena_copy(p->arena, p->step.at + first, sizeof *old * (size_t)n);
    int32_t *to = ARENA_ARRAY(p->arena, int32_t, n);
    if (!old || !to) {
        plan_build_no_memory(p);
        return;
    }
    for (int32_t i = 0; i < n; i++) to[i] = -1;
    for (; *turn; turn++) {
        for (int32_t i = p->made[*turn].at; i < p->made[*turn].end; i++) to[i - first] = at++;
        if (p->landed[*turn]) to[p->landed[*turn] - 1 - first] = at++;
    }
    for (int32_t i = 0; i < n; i++) { /* what the body ends with stays there */
        if (to[i] < 0) to[i] = at++;
        p->step.at[first + to[i]] = old[i];
    }
    for (int32_t b = 0; b < p->buffer.n; b++) {
        BuildBuffer *buffer = &p->buffer.at[b];
        buffer->first = moved(to, first, n, buffer->first);
        buffer->last = moved(to, first, n, buffer->last);
    }
    for (int32_t k = 0; k < p->span.n; k++) {
        p->span.at[k].at = moved(to, first, n, p->span.at[k].at);
        p->span.at[k].end = moved(to, first, n, p->span.at[k].end);
    }
}

static bool has_waits(const Graph *g) {
    for (int32_t id = 1; id < g->node.n; id++)
        if (graph_node(g, id)->region && graph_opdef(g, graph_node(g, id))->flags & OPF_WAIT)
            return true;
    return false;
}

void plan_shift(PlanBuild *p) {
    const Graph *g = p->g;
    Shift s;
    if (!has_waits(g)) return;
    if (!start(&s, p)) {
        plan_build_no_memory(p);
        return;
    }
    for (int32_t id = 1; id < g->node.n && !p->err; id++) {
        const Node *n = graph_node(g, id);
        ControlInfo info;
        if (!graph_opdef(g, n)->control) continue;
        graph_opdef(g, n)->control(n->attr, &info);
        if (!info.branch && info.trips > 1) shift_region(&s, n);
    }
}
