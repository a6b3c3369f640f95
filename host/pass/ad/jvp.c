/* jvp.c - forward mode: the nodes of a function once more, each with the tangents of its results
 * behind it. No op has a rule for it: what is linear in an operand is applied to its tangent, an
 * elementwise op's vjp is its own transpose, and of any other the vjp is transposed: it is linear
 * in the cotangent, so that its own gradient is the tangent, and what it is made of is dead.
 *
 * Nodes that own regions get regions in which every value has its tangent beside it: a loop carries
 * both, and keeps nothing. As their results come out of the new node, all that follows is made
 * anew; what stood there before is dead unless somebody else reads it. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/guarded.h"
#include "pass/pass.h"

#include <string.h>

/* Nodes [first, end) of a region, which compute y of x. */
typedef struct JvpRange {
    int32_t region, first, end;
    int nx, ny;
    const Val *x, *now, *t; /* what stands for x, and its tangent (0: zero) */
    const Val *y;
    const bool *wants;  /* the tangent of y */
    Val *y_now, *y_tan; /* to fill; tangents that are 0 are zero */
} JvpRange;

typedef struct Jvp {
    Build *b;
    const JvpRange *s;
    Copy c;          /* its map: what stands now for a value */
    CopySpans spans; /* those that are copied */
    int32_t nvalue;  /* that were there before */
    Val *t;          /* by value: its tangent; 0: zero, or nobody asks */
    bool *live;      /* by value: somebody reads it, */
    bool *wanted;    /* or its tangent */
} Jvp;

static void forward(Build *b, const JvpRange *s);

static void no_memory(Build *b) {
    build_fail(b, err_nomem(b->g->cx, "a tangent"));
}

static bool is_float(const Graph *g, Val v) {
    return dtype_is_float(graph_type(g, v)->dtype);
}

/* ---- what is needed ---- */

static void need(Jvp *m, const Val *list, int n, bool tangent) {
    for (int i = 0; list && i < n; i++) {
        m->live[list[i]] = true;
        if (tangent) m->wanted[list[i]] = true;
    }
}

/* All parts of a rule go along with its results. */
static void need_rule(Jvp *m, const CustomVjp *r) {
    bool any = false, tangent = false;
    for (int i = 0; i < r->ny; i++) {
        any = any || m->live[r->y[i]];
        tangent = tangent || m->wanted[r->y[i]];
    }
    if (!any) return;
    need(m, r->x, r->nx, tangent);
    need(m, r->y, r->ny, false);
    need(m, r->dx, r->nx, false);
    need(m, r->dy, r->ny, false);
    need(m, r->ct, r->ny, false);
    need(m, r->t, r->nx, false);
}

static void mark_needed(Jvp *m) {
    const Graph *g = m->b->g;
    for (int i = 0; i < m->s->ny; i++) need(m, &m->s->y[i], 1, m->s->wants[i]);
    for (int32_t id = m->s->end - 1; id >= m->s->first; id--) {
        const Node *n = graph_node(g, id);
        const Span *rule = n->region == m->s->region ? graph_rule_ending(g, id) : NULL;
        bool any = false, tangent = false;
        if (n->region != m->s->region) continue;
        if (rule && rule->first >= m->s->first) need_rule(m, rule->rule);
        for (int i = 0; i < n->nout; i++) {
            any = any || m->live[n->out + i];
            tangent = tangent || m->wanted[n->out + i];
        }
        if (!any) continue;
        m->live[n->out] = true; /* of a node that has several, the first speaks for it */
        need(m, n->in, n->nin, tangent && !(graph_opdef(g, n)->flags & OPF_NO_GRAD));
    }
}

/* ---- one node ---- */

/* A node, what stands for its operands and results, and their tangents. */
typedef struct JvpNode {
    const Node *n;
    const OpDef *def;
    const Val *in, *t;
    const bool *wants; /* by result */
    Val *out, *dout;   /* of the results; to fill */
} JvpNode;

static Val add(Build *b, Val x, Val y) {
    return x && y ? op2(b, OP_ADD, x, y) : x ? x : y;
}

static bool covers(uint32_t mask, const JvpNode *p) {
    for (int i = 0; i < p->n->nin; i++)
        if (p->t[i] && !(mask >> (i < 31 ? i : 31) & 1)) return false;
    return true;
}

/* The op on tangents: of all operands together, or on that of each. */
static void apply_linear(Build *b, const JvpNode *p) {
    bool joint = p->def->flags & OPF_JOINT;
    Val *in = ARENA_ARRAY(&b->g->arena, Val, p->n->nin + 1);
    if (!in) no_memory(b);
    for (int k = 0; k < p->n->nin && !b->err; k++) {
        if (!p->t[k]) continue;
        for (int i = 0; i < p->n->nin; i++) {
            bool linear = joint && p->def->linear >> (i < 31 ? i : 31) & 1;
            in[i] = p->t[i] && (joint || i == k) ? p->t[i]
                    : linear                     ? op_zeros_like(b, p->in[i], false)
                                                 : p->in[i];
        }
        Val v = build_like(b, b->g, p->n, in);
        for (int i = 0; i < p->n->nout; i++) p->dout[i] = add(b, p->dout[i], v ? v + i : 0);
        if (joint) break;
    }
}

static VjpArgs vjp_args(const JvpNode *p, const Val *ct, Val *din) {
    return (VjpArgs){.node = p->n, .in = p->in, .out = p->out, .ct = ct, .din = din};
}

static uint64_t bit_of(int operand) {
    return 1ull << (operand < 63 ? operand : 63);
}

/* An element of the result depends on that of the operand alone: the derivative is diagonal, and
 * equal to its transpose. */
static bool is_diagonal(const Graph *g, const JvpNode *p) {
    if (!(p->def->flags & OPF_ELEMENTWISE) || !p->def->vjp || p->n->nout != 1) return false;
    for (int i = 0; i < p->n->nin; i++)
        if (p->t[i] && graph_type(g, p->in[i])->dtype != graph_type(g, p->out[0])->dtype)
            return false;
    return true;
}

static void apply_diagonal(Build *b, const JvpNode *p) {
    Val *din = ARENA_ARRAY(&b->g->arena, Val, p->n->nin + 1);
    if (!din) no_memory(b);
    for (int i = 0; i < p->n->nin && !b->err; i++) {
        if (!p->t[i]) continue;
        memset(din, 0, sizeof *din * (size_t)p->n->nin);
        VjpArgs a = vjp_args(p, &p->t[i], din);
        a.wanted = bit_of(i);
        p->def->vjp(b, &a);
        p->dout[0] = add(b, p->dout[0], din[i]);
    }
}

/* d in the mode and layout of the tangent, or cotangent, of v. */
static Val like(Build *b, Val d, Val v, bool cotangent) {
    const Type *type = graph_type(b->g, v);
    Mode mode = cotangent ? mode_cotangent(mode_of(type)) : mode_of(type);
    Build at = *b;
    at.manual = mode.manual;
    d = op_lay_like(&at, mode_bring(&at, d, mode), type, cotangent);
    build_fail(b, at.err);
    return d;
}

/* The gradient of the op's gradient with respect to the cotangent, of which nothing remains. */
static void transpose_vjp(Build *b, const JvpNode *p) {
    int nin = p->n->nin, nout = p->n->nout, ny = 0, nct = 0;
    int32_t first = b->g->node.n;
    uint8_t role = b->role;
    Arena *arena = &b->g->arena;
    Val *ct = ARENA_ARRAY(arena, Val, nout + 1), *din = ARENA_ARRAY(arena, Val, nin + 1);
    Val *wrt = ARENA_ARRAY(arena, Val, nout + 1), *d = ARENA_ARRAY(arena, Val, nout + 1);
    Val *t = ARENA_ARRAY(arena, Val, nin + 1);
    if (!ct || !din || !wrt || !d || !t) {
        no_memory(b);
        return;
    }
    for (int i = 0; i < nout; i++)
        if (p->wants[i])
            wrt[nct++] = ct[i] = op1(b, OP_IDENTITY, op_zeros_like(b, p->out[i], true));
    VjpArgs a = vjp_args(p, ct, din);
    for (int i = 0; i < nin; i++)
        if (p->t[i]) a.wanted |= bit_of(i);
    if (!b->err) p->def->vjp(b, &a);
    for (int i = 0; i < nin; i++) {
        if (!p->t[i] || !din[i]) continue;
        t[ny] = p->t[i];
        din[ny++] = like(b, din[i], p->in[i], true);
    }
    pass_grad(b, din, t, ny, wrt, nct, d);
    for (int32_t id = first; id < b->g->node.n; id++) b->g->node.at[id].role = role;
    for (int i = 0, k = 0; i < nout; i++)
        if (ct[i]) p->dout[i] = d[k++];
}

/* By the op's definition. */
static void expand(Build *b, const JvpNode *p) {
    enum { MAX = 8 };
    Val y[MAX] = {0}, y_now[MAX];
    int nin = p->n->nin;
    Val *x = ARENA_ARRAY(&b->g->arena, Val, nin + 1);
    if (!x) no_memory(b);
    for (int i = 0; i < nin && !b->err; i++) /* an operand given twice is two */
        x[i] = p->t[i] ? op1(b, OP_IDENTITY, p->in[i]) : p->in[i];
    JvpRange s = {.region = b->region, .first = b->g->node.n, .nx = nin, .ny = p->n->nout};
    if (!b->err) p->def->expand(b, p->n, x, y);
    s.end = b->g->node.n;
    s.x = s.now = x;
    s.t = p->t;
    s.y = y;
    s.wants = p->wants;
    s.y_now = y_now;
    s.y_tan = p->dout;
    forward(b, &s);
}

static void refuse(Build *b, const Node *n) {
    Str s;
    str_init(&s, &b->g->cx->alloc);
    if (n->nloc) intern_print_loc(n->loc[0], &s);
    build_fail(b, err_set(b->g->cx, E_GRAD, "%s is not differentiable (written at %s)",
                          graph_opdef(b->g, n)->name, str_of(&s)));
    str_free(&s);
}

static void tangents(Build *b, const JvpNode *p) {
    bool beyond = false; /* a cotangent that the vjp does not take */
    for (int i = 0; i < p->n->nout; i++)
        if (p->wants[i] && p->def->grad_results && !(p->def->grad_results >> i & 1)) beyond = true;
    if (p->def->linear && covers(p->def->linear, p))
        apply_linear(b, p);
    else if (is_diagonal(b->g, p))
        apply_diagonal(b, p);
    else if (p->def->vjp && !beyond)
        transpose_vjp(b, p);
    else if (p->def->expand)
        expand(b, p);
    else
        refuse(b, p->n);
}

/* ---- nodes that own regions ---- */

/* A way in or out of them; what is carried or given as a pair has a twin for its tangent, which
 * stands behind all ways of its kind. */
typedef struct TwinWay {
    Flow f;
    bool kept, twin;
} TwinWay;

typedef struct TwinControl {
    TwinWay *way;
    int nway;
    int *order; /* ways in their new order: i, or nway + i for its twin */
    int n;
    void *attr;
} TwinControl;

static bool same_kind(const Flow *a, const Flow *b) {
    return a->carried == b->carried && a->stacked == b->stacked && a->steers == b->steers &&
           (a->in >= 0) == (b->in >= 0) && (a->out >= 0) == (b->out >= 0);
}

static void put_in_order(TwinControl *c) {
    for (int from = 0, to; from < c->nway; from = to) {
        for (to = from + 1; to < c->nway && same_kind(&c->way[from].f, &c->way[to].f);) to++;
        for (int i = from; i < to; i++)
            if (c->way[i].kept) c->order[c->n++] = i;
        for (int i = from; i < to; i++)
            if (c->way[i].twin) c->order[c->n++] = c->nway + i;
    }
}

/* Which results lead from a parameter with a tangent. */
static void flow_tangents(Jvp *m, int32_t region, const bool *param, bool *result) {
    const Graph *g = m->b->g;
    const Region *r = &g->region.at[region];
    int32_t end = graph_region_end(g, region);
    bool *has = ARENA_ARRAY(&m->c.arena, bool, g->value.n);
    if (!has) {
        no_memory(m->b);
        return;
    }
    for (int i = 0; i < r->param.n; i++) has[r->param.at[i]] = param[i];
    for (int32_t id = r->first; id < end; id++) {
        const Node *n = graph_node(g, id);
        bool any = false;
        if (n->region != region) continue;
        for (int i = 0; i < n->nin; i++) any = any || has[n->in[i]];
        if (any && !(graph_opdef(g, n)->flags & OPF_NO_GRAD))
            for (int i = 0; i < n->nout; i++) has[n->out + i] = is_float(g, n->out + i);
        const Span *rule = graph_rule_ending(g, id);
        for (int i = 0; rule && i < rule->rule->nx; i++)
            for (int k = 0; has[rule->rule->x[i]] && k < rule->rule->ny; k++)
                has[rule->rule->y[k]] = is_float(g, rule->rule->y[k]);
    }
    for (int i = 0; i < r->result.n; i++) result[i] = result[i] || has[r->result.at[i]];
}

static bool read_ways(Jvp *m, const Node *n, const Val *t, bool wanted, TwinControl *c) {
    const Graph *g = m->b->g;
    const OpDef *def = graph_opdef(g, n);
    Arena *arena = &m->c.arena;
    int nresult = g->region.at[n->body[0]].result.n, most = n->nin + nresult + n->nout + 1;
    c->way = ARENA_ARRAY(arena, TwinWay, most);
    c->order = ARENA_ARRAY(arena, int, 2 * most);
    c->attr = arena_alloc(arena, def->attr_size + 1);
    uint8_t *times = ARENA_ARRAY(arena, uint8_t, most);
    bool *param = ARENA_ARRAY(arena, bool, most), *result = ARENA_ARRAY(arena, bool, most);
    if (!c->way || !c->order || !c->attr || !times || !param || !result) return false;
    while (def->flow(n, c->nway, &c->way[c->nway].f)) {
        TwinWay *w = &c->way[c->nway++];
        w->kept = w->f.out < 0 || w->f.in >= 0 || m->live[n->out + w->f.out];
        if (wanted && w->f.in >= 0 && w->f.param >= 0) param[w->f.param] = t[w->f.in] != 0;
    }
    for (bool grown = wanted; grown && !m->b->err;) {
        grown = false;
        for (int k = 0; k < n->nbody; k++) flow_tangents(m, n->body[k], param, result);
        for (int i = 0; i < c->nway; i++) {
            const Flow *f = &c->way[i].f;
            if (!f->carried || param[f->param] || !result[f->result]) continue;
            param[f->param] = grown = true;
        }
    }
    for (int i = 0; i < c->nway; i++) {
        TwinWay *w = &c->way[i];
        w->twin = w->f.param >= 0 ? param[w->f.param]
                                  : w->kept && w->f.out >= 0 && m->wanted[n->out + w->f.out] &&
                                        result[w->f.result];
        times[i] = (uint8_t)(w->kept + w->twin);
    }
    put_in_order(c);
    if (n->attr) memcpy(c->attr, n->attr, def->attr_size);
    def->keep(n, times, c->attr);
    return true;
}

/* Region k of the node, with tangents. */
static int32_t twin_region(Jvp *m, const Node *n, const TwinControl *c, int k) {
    Build *b = m->b, inside = *b;
    Graph *g = b->g;
    Arena *arena = &m->c.arena;
    int32_t old = n->body[k];
    int np = g->region.at[old].param.n, nr = g->region.at[old].result.n;
    Val *now = ARENA_ARRAY(arena, Val, np + 1), *t = ARENA_ARRAY(arena, Val, np + 1);
    Val *y = ARENA_ARRAY(arena, Val, nr + 1), *y_now = ARENA_ARRAY(arena, Val, nr + 1);
    Val *dy = ARENA_ARRAY(arena, Val, nr + 1);
    int *place = ARENA_ARRAY(arena, int, nr + 1);
    bool *wants = ARENA_ARRAY(arena, bool, nr + 1);
    inside.region = build_region(b);
    if (b->err || !now || !t || !y || !y_now || !dy || !wants || !place) {
        no_memory(b);
        return 0;
    }
    const Val *param = g->region.at[old].param.at;
    int ny = 0;
    for (int i = 0; i < c->n; i++) {
        bool twin = c->order[i] >= c->nway;
        const TwinWay *w = &c->way[c->order[i] % c->nway];
        if (w->f.param >= 0)
            (twin ? t : now)[w->f.param] =
                op_region_param(&inside, graph_type(g, param[w->f.param]));
        if (w->f.result < 0 || twin) continue;
        place[w->f.result] = ny;
        wants[ny] = w->twin;
        y[ny++] = g->region.at[old].result.at[w->f.result];
    }
    JvpRange s = {old,
                  g->region.at[old].first,
                  graph_region_end(g, old),
                  np,
                  ny,
                  param,
                  now,
                  t,
                  y,
                  wants,
                  y_now,
                  dy};
    if (!inside.err) forward(&inside, &s);
    for (int i = 0; i < c->n && !inside.err; i++) {
        const TwinWay *w = &c->way[c->order[i] % c->nway];
        if (w->f.result < 0) continue;
        int at = place[w->f.result];
        if (c->order[i] < c->nway)
            build_result(&inside, y_now[at]);
        else
            build_result(&inside, dy[at] ? dy[at] : op_zeros_like(&inside, y_now[at], false));
    }
    build_fail(b, inside.err);
    return inside.region;
}

/* The node over regions with tangents; its results, and theirs. */
static void forward_control(Jvp *m, const Node *n, const Val *in, const Val *t) {
    Build *b = m->b;
    Arena *arena = &m->c.arena;
    const OpDef *def = graph_opdef(b->g, n);
    TwinControl c = {0};
    bool wanted = false;
    for (int i = 0; i < n->nout; i++) wanted = wanted || m->wanted[n->out + i];
    int32_t *region = ARENA_ARRAY(arena, int32_t, n->nbody);
    if (!region || !read_ways(m, n, t, wanted, &c)) no_memory(b);
    for (int k = 0; k < n->nbody && !b->err; k++) region[k] = twin_region(m, n, &c, k);
    Val *own = ARENA_ARRAY(arena, Val, c.n + 1);
    int nin = 0, nout = 0;
    if (!own) no_memory(b);
    if (b->err) return;
    for (int i = 0; i < c.n; i++) {
        const TwinWay *w = &c.way[c.order[i] % c.nway];
        if (w->f.in < 0) continue;
        bool twin = c.order[i] >= c.nway;
        own[nin++] = !twin        ? in[w->f.in]
                     : t[w->f.in] ? t[w->f.in]
                                  : op_zeros_like(b, in[w->f.in], false);
    }
    Val *out = ARENA_ARRAY(arena, Val, b->g->region.at[region[0]].result.n + 1);
    if (!out) no_memory(b);
    if (!b->err) def->make(b, region, n->nbody, own, nin, c.attr, out);
    for (int i = 0; i < c.n && !b->err; i++) {
        const TwinWay *w = &c.way[c.order[i] % c.nway];
        if (w->f.out >= 0) (c.order[i] < c.nway ? m->c.map : m->t)[n->out + w->f.out] = out[nout++];
    }
}

/* ---- a stretch ---- */

static void forward_plain(Jvp *m, const Node *n, const Val *in, const Val *t, bool wanted) {
    Build *b = m->b;
    Arena *arena = &m->c.arena;
    Val v = build_like(b, b->g, n, in);
    for (int i = 0; i < n->nout; i++) m->c.map[n->out + i] = v ? v + i : 0;
    if (!wanted || b->err) return;
    bool *wants = ARENA_ARRAY(arena, bool, n->nout + 1);
    Val *dout = ARENA_ARRAY(arena, Val, n->nout + 1);
    if (!wants || !dout) {
        no_memory(b);
        return;
    }
    for (int i = 0; i < n->nout; i++)
        wants[i] = m->wanted[n->out + i] && is_float(b->g, n->out + i);
    JvpNode p = {n, graph_opdef(b->g, n), in, t, wants, &m->c.map[n->out], dout};
    tangents(b, &p);
    for (int i = 0; i < n->nout && !b->err; i++)
        if (wants[i] && dout[i]) m->t[n->out + i] = like(b, dout[i], p.out[i], false);
}

static void forward_node(Jvp *m, const Node *n) {
    Graph *g = m->b->g;
    uint32_t flags = graph_opdef(g, n)->flags;
    if (flags & OPF_PARAM || (n->nout && m->c.map[n->out])) return;
    Val *in = ARENA_ARRAY(&m->c.arena, Val, n->nin + 1),
        *t = ARENA_ARRAY(&m->c.arena, Val, n->nin + 1);
    if (!in || !t) {
        no_memory(m->b);
        return;
    }
    bool any = false, wanted = false, ruled = false;
    for (int32_t i = 0; i < m->spans.open.n; i++)
        ruled = ruled || m->spans.open.at[i].one.rule; /* the rule says its tangents */
    for (int i = 0; i < n->nin; i++) {
        in[i] = m->c.map[n->in[i]];
        t[i] = ruled ? 0 : m->t[n->in[i]];
        any = any || t[i];
    }
    for (int i = 0; i < n->nout; i++) wanted = wanted || m->wanted[n->out + i];
    Build at = build_at(m->b, g, n), *b = m->b;
    m->b = &at;
    if (n->nbody)
        forward_control(m, n, in, t);
    else
        forward_plain(m, n, in, t, any && wanted && !(flags & OPF_NO_GRAD));
    m->b = b;
    build_fail(b, at.err);
}

static bool has_tangent(const void *jvp, Val v) {
    return ((const Jvp *)jvp)->t[v] != 0;
}

/* The tangents of a span's results by its rule, which is computed once more. */
static void follow_rule(Jvp *m, const Span *s) {
    const CustomVjp *r = s->rule;
    Build *b = m->b;
    bool any = false, wanted = false;
    for (int i = 0; i < r->nx; i++) any = any || m->t[r->x[i]];
    for (int i = 0; i < r->ny; i++) wanted = wanted || m->wanted[r->y[i]];
    if (!wanted || (s->taken && !r->t)) return;
    build_fail(b, custom_check_closed(b->g, s, has_tangent, m));
    if (!any || b->err) return;
    if (!r->t) {
        build_fail(b, err_set(b->g->cx, E_GRAD,
                              "custom_vjp: the function has a rule for gradients only, and forward "
                              "mode (jvp, linearize, jacfwd) needs its tangents; use custom_jvp, "
                              "which serves both, or jacrev"));
        return;
    }
    Copy c;
    if (copy_begin(&c, b->g, b)) {
        memcpy(c.map, m->c.map, sizeof *c.map * (size_t)m->nvalue);
        c.region[m->s->region] = b->region;
        for (int i = 0; i < r->nx && !c.b.err; i++)
            if (r->t[i])
                c.map[r->t[i]] =
                    m->t[r->x[i]] ? m->t[r->x[i]] : op_zeros_like(&c.b, m->c.map[r->x[i]], false);
        copy_stretch(&c, m->s->region, r->bwd, r->bwd_end, 0);
        for (int i = 0; i < r->ny && !c.b.err; i++)
            if (r->dy[i] && m->wanted[r->y[i]])
                m->t[r->y[i]] = like(&c.b, c.map[r->dy[i]], m->c.map[r->y[i]], false);
    }
    build_fail(b, c.b.err);
    copy_end(&c);
}

static void walk(Jvp *m) {
    Graph *g = m->b->g;
    for (int32_t id = m->s->first; id < m->s->end && !m->b->err; id++) {
        copy_spans_open(&m->spans, id);
        Node n = *graph_node(g, id);
        bool here = n.region == m->s->region;
        if (here && n.nout && m->live[n.out]) forward_node(m, &n);
        copy_spans_close(&m->spans, id + 1);
        build_fail(m->b, m->c.b.err);
        const Span *rule = here ? graph_rule_ending(g, id) : NULL;
        if (rule && rule->first >= m->s->first && !m->b->err) {
            Span s = *rule;
            follow_rule(m, &s);
        }
    }
}

static void forward(Build *b, const JvpRange *s) {
    Graph *g = b->g;
    if (b->err) return;
    int32_t nvalue = g->value.n;
    Jvp m = {.b = b, .s = s, .nvalue = nvalue};
    if (copy_begin(&m.c, g, b)) {
        Arena *arena = &m.c.arena;
        m.t = ARENA_ARRAY(arena, Val, nvalue);
        m.live = ARENA_ARRAY(arena, bool, nvalue);
        m.wanted = ARENA_ARRAY(arena, bool, nvalue);
        if (!m.t || !m.live || !m.wanted) copy_no_memory(&m.c);
    }
    bool ok = !m.c.b.err && copy_spans_begin(&m.spans, &m.c, s->region, s->first, s->end, false);
    for (Val v = 1; ok && v < nvalue; v++) {
        const Node *n = graph_def(g, v);
        bool inside = g->value.at[v].node >= s->first && g->value.at[v].node < s->end;
        if (!inside || (n->region == s->region && graph_opdef(g, n)->flags & OPF_PARAM))
            m.c.map[v] = v;
    }
    for (int i = 0; ok && i < s->nx; i++) {
        m.c.map[s->x[i]] = s->now[i];
        m.t[s->x[i]] = s->t[i];
    }
    build_fail(b, m.c.b.err);
    if (ok) mark_needed(&m);
    if (ok) walk(&m);
    for (int i = 0; ok && i < s->ny && !b->err; i++) {
        s->y_now[i] = m.c.map[s->y[i]];
        s->y_tan[i] = s->wants[i] ? m.t[s->y[i]] : 0;
    }
    copy_end(&m.c);
}

typedef struct JvpWork {
    Guarded guarded;
    Build *b;
    JvpCall *call;
} JvpWork;

static Err run(Guarded *guarded) {
    const JvpWork *w = (const JvpWork *)guarded;
    JvpCall *c = w->call;
    Graph *g = w->b->g;
    Val *now = ARENA_ARRAY(&g->arena, Val, c->ny + 1);
    bool *wants = ARENA_ARRAY(&g->arena, bool, c->ny + 1);
    if (!now || !wants) return err_nomem(g->cx, "a tangent");
    for (int i = 0; i < c->ny; i++) wants[i] = is_float(g, c->y[i]);
    JvpRange s = {w->b->region, c->first, g->node.n, c->nx, c->ny, c->x,
                  c->x,         c->t,     c->y,      wants, now,   c->dy};
    forward(w->b, &s);
    for (int i = 0; i < c->ny && !w->b->err; i++) {
        c->y[i] = now[i];
        if (wants[i] && !c->dy[i]) c->dy[i] = op_zeros_like(w->b, now[i], false);
    }
    return w->b->err;
}

void pass_jvp(Build *b, JvpCall *c) {
    if (b->err) return;
    JvpWork w = {{b->g, "jvp", run}, b, c};
    build_fail(b, guarded_run(&w.guarded));
}
