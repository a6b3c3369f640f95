/* partition.c - from the whole tensors of the program to what one device computes.
 *
 * Every op runs in local shapes under one assignment of mesh axes to its factors. Where the layouts
 * of its operands and results agree, that is theirs. Where they do not, the assignment that most
 * tensors already have wins, and the others are resharded: operands before the op, results after
 * it. A factor that is split and that a result lacks leaves the result a part of a sum (a maximum,
 * a minimum): it is resharded, too, which adds the parts up.
 *
 * So nodes are taken one by one, in order, and one thing holds between them: local[v] is the shard
 * of v in layout[v], which propagation settled, whatever its maker computed. Other layouts of v are
 * made for a reader, and remembered for readers alike, but never stand for v. */
#include "pass/partition/halo.h"
#include "pass/layout/origin.h"
#include "pass/partition/pad.h"
#include "pass/partition/plant.h"
#include "ir/copy.h"
#include "pass/partition/partition.h"
#include "pass/partition/reshard.h"
#include "ir/explicit.h"

Err partition_no_memory(Partition *p) {
    return err_nomem(p->g->cx, "partitioning");
}

static Build at_node(const Partition *p, const Node *n) {
    Build at = p->b;
    at.loc = n->loc;
    at.nloc = n->nloc;
    at.role = n->role;
    return at;
}

Val partition_moved(Partition *p, const Node *n, const Reason *why, Val v, const Dims *global,
                    const Layout *from, const Layout *to) {
    Build at = at_node(p, n);
    at.why = &why;
    at.nwhy = 1;
    if (!why) build_fail(&at, partition_no_memory(p));
    v = reshard(&at, v, global, from, to);
    build_fail(&p->b, at.err);
    return v;
}

/* What reasons are made of. */
static Step step_of(const Partition *p, const Split *s) {
    return (Step){p->g, s->n, s->r, s->layout, p->layout};
}

bool partition_same(const Layout *a, const Layout *b) {
    for (int d = 0; d < a->rank; d++)
        if (!axes_equal(&a->dim[d].axes, &b->dim[d].axes)) return false;
    return a->unreduced == b->unreduced;
}

static Layout plain(const Layout *l) { /* only what says where shards are */
    Layout out;
    layout_init(&out, l->mesh, l->rank);
    for (int d = 0; d < l->rank; d++) out.dim[d].axes = l->dim[d].axes;
    out.unreduced = l->unreduced;
    out.unreduced_kind = l->unreduced ? l->unreduced_kind : REDUCE_SUM;
    return out;
}

static Val build_local(Partition *p, const Split *s, const Val *in);

/* Is it kept in a Param, or such a tensor converted? */
static bool is_state(const Partition *p, Val v) {
    const Node *n = graph_def(p->g, v);
    while (n->nin == 1 && graph_opdef(p->g, n)->flags & OPF_ELEMENTWISE)
        n = graph_def(p->g, n->in[0]);
    return op_is_state(n);
}

Val partition_nullary(Partition *p, const Node *src, const Layout *to) {
    Layout layout = *to;
    Split s = {.n = src, .def = graph_opdef(p->g, src), .layout = &layout};
    return build_local(p, &s, NULL);
}

/* The value as it was moved to that layout before; 0: it was not. The layout to remember it by. */
static Val moved_before(Partition *p, Val v, const Layout *to, const Layout **key) {
    Layout asked = plain(to);
    bool reuse = pass_is_on(p->o, SWITCH_REUSE, true);
    *key = reuse ? layout_of(p->g->cx, &asked) : NULL;
    if (!*key && reuse) build_fail(&p->b, partition_no_memory(p));
    for (int i = 0; *key && i < p->moved.n; i++)
        if (p->moved.at[i].value == v && p->moved.at[i].to == *key) return p->moved.at[i].local;
    return 0;
}

static void remember(Partition *p, Val v, const Layout *key, Val moved) {
    if (!VEC_PUSH(&p->arena, &p->moved, (Moved){v, key, moved}))
        build_fail(&p->b, partition_no_memory(p));
}

/* The operand's local value in layout `to`. A value that was moved there before is used again,
 * except state (weights): what lies split is gathered for each use, so that it is never whole for
 * long. */
static Val operand(Partition *p, const Split *s, int t) {
    Val v = s->n->in[t];
    const Type *type = graph_type(p->g, v);
    const Layout *from = &p->layout[v], *to = &s->layout[t];
    if (partition_same(from, to)) return p->local[v];
    uint32_t flags = graph_opdef(p->g, graph_def(p->g, v))->flags;
    bool state = is_state(p, v);
    if (flags & OPF_NULLARY) return partition_nullary(p, graph_def(p->g, v), to);
    const Layout *key = NULL;
    Val moved = state ? 0 : moved_before(p, v, to, &key);
    if (moved) return moved;
    Step step = step_of(p, s);
    moved = partition_moved(p, s->n, origin_reshard(&step, t, from, to), p->local[v], &type->dims,
                            from, to);
    if (key) remember(p, v, key, moved);
    return moved;
}

/* The local operand with the identity of a reduction where its dims are padded along it. */
static Val masked(Partition *p, const Split *s, int t, Val v) {
    const Type *type = partition_tensor(p, s->n, t);
    for (int d = 0; v && d < type->dims.rank; d++) {
        const FactorMap *m = &s->r->tensor[t];
        int f = m->n[d] == 1 ? m->at[d][0] : -1;
        if (f < 0 || s->r->kind[f] == FACTOR_PASS || rule_divides(s->r, f, &s->axes[f])) continue;
        Build at = at_node(p, s->n);
        v = pad_mask(&at, v, d, &s->axes[f], type->dims.at[d], (FactorKind)s->r->kind[f]);
        build_fail(&p->b, at.err);
    }
    return v;
}

/* Operand 0 with what its parts need of their neighbours. */
static Val with_halo(Partition *p, const Split *s, Val v) {
    const FactorMap *m = &s->r->tensor[0];
    for (int d = 0; v && s->n->nin && d < partition_tensor(p, s->n, 0)->dims.rank; d++) {
        int f = m->n[d] ? m->at[d][0] : -1;
        if (f < 0 || !s->axes[f].n || !(s->r->before[f] || s->r->behind[f])) continue;
        Step step = step_of(p, s);
        const Reason *why = origin_halo(&step, d, s->r->before[f], s->r->behind[f]);
        Build at = at_node(p, s->n);
        at.why = &why;
        at.nwhy = 1;
        if (!why) build_fail(&at, partition_no_memory(p));
        v = halo(&at, v, d, &s->axes[f], s->r->before[f], s->r->behind[f]);
        build_fail(&p->b, at.err);
    }
    return v;
}

/* The axes over which result i is unreduced: those of factors that it does not have. */
static uint32_t unreduced_of(const Partition *p, const Split *s, int result, ReduceKind *kind) {
    int t = s->n->nin + result, rank = partition_tensor(p, s->n, t)->dims.rank;
    uint32_t mask = 0;
    for (int f = 0; f < s->r->nfactor; f++) {
        if (!s->axes[f].n || factor_in(&s->r->tensor[t], rank, f)) continue;
        ASSERT(s->r->kind[f] >= FACTOR_SUM && s->r->kind[f] <= FACTOR_MIN,
               "%s: a result without a split factor", s->def->name);
        *kind = s->r->kind[f] == FACTOR_SUM   ? REDUCE_SUM
                : s->r->kind[f] == FACTOR_MAX ? REDUCE_MAX
                                              : REDUCE_MIN;
        mask |= axes_mask(&s->axes[f]);
    }
    return mask;
}

/* Sums that its types leave to be made, and that the op lets through. */
static uint32_t through_of(Partition *p, const Node *n, const FactorRule *r) {
    uint32_t wanted = n->nout ? ~0u : 0, unreduced = 0;
    for (int i = 0; i < n->nout; i++) wanted &= p->layout[n->out + i].unreduced;
    for (int t = 0; t < n->nin; t++) unreduced |= p->layout[n->in[t]].unreduced;
    for (int f = 0; f < r->nfactor; f++)
        if (r->kind[f] == FACTOR_MAX || r->kind[f] == FACTOR_MIN) wanted = 0;
    if (!(wanted & unreduced)) return 0;
    const Type **types = ARENA_ARRAY(&p->scratch, const Type *, r->ntensor + 1);
    Layout *in = ARENA_ARRAY(&p->scratch, Layout, n->nin + 1);
    if (!types || !in) {
        build_fail(&p->b, partition_no_memory(p));
        return 0;
    }
    graph_in_types(p->g, n, types);
    graph_out_types(p->g, n, types + n->nin);
    for (int t = 0; t < n->nin; t++) in[t] = p->layout[n->in[t]];
    OpArgs a = {p->g->cx, graph_opdef(p->g, n), n->nin, types, n->attr};
    return explicit_through(&a, in, types + n->nin) & wanted;
}

/* Into how many parts the op's work is cut, and how much of it is done on padding. */
static void note_work(Build *at, const Split *s) {
    double useful = 1, all = 1;
    for (int f = 0; s->r && f < s->r->nfactor; f++) {
        int64_t size = s->r->size[f], parts = axes_product(&s->axes[f]);
        all *= (double)parts;
        if (parts > 1 && size > 0)
            useful *= (double)size / (double)((size + parts - 1) / parts * parts);
    }
    at->parts = (uint16_t)all;
    at->idle = (float)(1 - useful);
}

/* The node itself, in local shapes. */
static Val build_local(Partition *p, const Split *s, const Val *in) {
    const Node *n = s->n;
    int nt = n->nin + n->nout;
    const Type **types = ARENA_ARRAY(&p->scratch, const Type *, nt);
    const Layout **layouts = ARENA_ARRAY(&p->scratch, const Layout *, nt);
    void *attr = arena_copy(&p->scratch, n->attr, n->attr ? s->def->attr_size : 0);
    Offset *offset = ARENA_ARRAY(&p->scratch, Offset, 2 * MAX_RANK);
    if (!types || !layouts || !attr || !offset) {
        build_fail(&p->b, partition_no_memory(p));
        return 0;
    }
    for (int t = 0; t < nt; t++) {
        types[t] = partition_tensor(p, n, t);
        layouts[t] = &s->layout[t];
    }
    LocalArgs a = {p->g->cx, n->nin,           n->nout, types,  types + n->nin,
                   layouts,  layouts + n->nin, attr,    offset, 0};
    if (s->def->local) s->def->local(&a);
    Build at = at_node(p, n);
    note_work(&at, s);
    const Reason *why = NULL;
    if (s->def->flags & OPF_COLLECTIVE) {
        why = origin_written(p->g, n);
        if (!why) build_fail(&at, partition_no_memory(p));
        at.why = &why;
        at.nwhy = 1;
    }
    Val v = build_op(&at, n->op, in, n->nin, n->attr ? attr : NULL);
    if (v && n->clone) build_set_clone(&at, v, n->clone);
    bool differs = false;
    for (int i = 0; i < a.noffset; i++) differs = differs || offset[i].axes.n;
    plant_offsets(p->g->cx, n, offset, a.noffset);
    if (v && differs) build_set_offsets(&at, v, offset, a.noffset);
    build_fail(&p->b, at.err);
    return v;
}

static Err partition_node(Partition *p, const Node *n) {
    Split s = {.n = n, .def = graph_opdef(p->g, n)};
    FactorRule *r;
    TRY(rule_of(p->g, n, &p->scratch, &r));
    s.r = r;
    s.proj = rule_projections(r, &p->scratch);
    s.axes = ARENA_ARRAY(&p->scratch, AxisList, r->nfactor + 1);
    s.layout = ARENA_ARRAY(&p->scratch, Layout, r->ntensor + 1);
    Val *in = ARENA_ARRAY(&p->scratch, Val, n->nin + 1);
    if (!s.proj || !s.axes || !s.layout || !in) return partition_no_memory(p);
    for (int t = 0; t < r->ntensor; t++)
        rule_project(r, t, &p->layout[node_tensor(n, t)], &s.proj[t]);
    s.through = through_of(p, n, r);
    partition_axes(p, &s);
    for (int t = 0; t < n->nin; t++)
        s.layout[t].unreduced = (uint8_t)(p->layout[n->in[t]].unreduced & s.through);
    for (int t = 0; t < n->nin; t++) in[t] = masked(p, &s, t, operand(p, &s, t));
    if (n->nin) in[0] = with_halo(p, &s, in[0]);
    Val v = build_local(p, &s, in);
    uint32_t used = 0; /* axes that split the work */
    for (int i = 0; v && i < n->nout; i++) {
        ReduceKind kind = s.through ? p->layout[n->out + i].unreduced_kind : REDUCE_SUM;
        Layout have = s.layout[n->nin + i];
        have.unreduced = (uint8_t)(unreduced_of(p, &s, i, &kind) | s.through);
        have.unreduced_kind = (uint8_t)kind;
        const Layout *want = &p->layout[n->out + i];
        p->local[n->out + i] = v + i;
        used |= layout_used(&have);
        if (partition_same(&have, want) || !p->uses[n->out + i]) continue;
        Step step = step_of(p, &s);
        const Reason *why = have.unreduced ? origin_unreduced(&step, i, &have)
                                           : origin_reshard(&step, n->nin + i, &have, want);
        p->local[n->out + i] =
            partition_moved(p, n, why, v + i, &graph_type(p->g, n->out + i)->dims, &have, want);
    }
    Build at = at_node(p, n);
    for (int i = 0; v && i < n->nout; i++)
        p->local[n->out + i] = plant_result(&at, n, p->local[n->out + i], used);
    build_fail(&p->b, at.err);
    return p->b.err;
}

/* The result is the operand in another layout, as asked for; `global` has their dims. */
static Err partition_as(Partition *p, const Node *n, const Layout *from, const Layout *to,
                        Val global) {
    p->local[n->out] = p->local[n->in[0]];
    if (!partition_same(from, to))
        p->local[n->out] =
            partition_moved(p, n, origin_constraint(p->g, n, from, to), p->local[n->in[0]],
                            &graph_type(p->g, global)->dims, from, to);
    return p->b.err;
}

/* Of a constraint and of a cast nothing is left but what it takes to get there. */
static Err partition_constraint(Partition *p, const Node *n) {
    const Layout *from = &p->layout[n->in[0]], *to = &p->layout[n->out], *key = NULL;
    bool moves = !partition_same(from, to) && !is_state(p, n->in[0]);
    p->local[n->out] = moves ? moved_before(p, n->in[0], to, &key) : 0;
    if (p->local[n->out]) return p->b.err;
    TRY(partition_as(p, n, from, to, n->out));
    if (key) remember(p, n->in[0], key, p->local[n->out]);
    return p->b.err;
}

/* How the tensor outside lies: along the manual axes as asked, along the others as inside. */
static Layout outside_layout(const Layout *asked, const Layout *inside) {
    Layout l;
    layout_init(&l, asked->mesh, asked->rank);
    for (int d = 0; d < l.rank; d++) {
        l.dim[d].axes = (AxisList){0};
        for (int i = 0; i < asked->dim[d].axes.n; i++)
            if (asked->dim[d].axes.at[i].size > 1)
                axes_push(&l.dim[d].axes, asked->dim[d].axes.at[i]);
        for (int i = 0; i < inside->dim[d].axes.n; i++)
            axes_push(&l.dim[d].axes, inside->dim[d].axes.at[i]);
    }
    return l;
}

/* Into manual mode and out of it: the local value inside is that of the tensor outside. */
static Err partition_manual(Partition *p, const Node *n) {
    bool enters;
    const Layout *asked = graph_opdef(p->g, n)->manual(n->attr, &enters);
    Val outside = enters ? n->in[0] : n->out, inside = enters ? n->out : n->in[0];
    Layout l = outside_layout(asked, &p->layout[inside]);
    const Layout *have = enters ? &p->layout[outside] : &l;
    const Layout *want = enters ? &l : &p->layout[outside];
    return partition_as(p, n, have, want, outside);
}

const Type *partition_type(Partition *p, const Type *t, const Layout *layout) {
    Layout l;
    layout_init(&l, p->g->mesh, t->dims.rank);
    l.vary = (uint8_t)(layout_vary(layout) | layout->vary);
    Type local = {.dtype = t->dtype,
                  .weak = t->weak,
                  .local = true,
                  .dims = layout_local(layout, &t->dims),
                  .layout = layout_of(p->g->cx, &l)};
    const Type *type = local.layout ? type_of(p->g->cx, &local) : NULL;
    if (!type) build_fail(&p->b, partition_no_memory(p));
    return type;
}

static Err partition_param(Partition *p, const Node *n) {
    const Type *t = graph_type(p->g, n->out);
    const Type *type = partition_type(p, t, t->layout);
    if (type) p->local[n->out] = build_param(&p->b, n->op, n->attr, type);
    return p->b.err;
}

static Err partition(Partition *p) {
    const Graph *g = p->g;
    p->local = ARENA_ARRAY(&p->arena, Val, g->value.n);
    p->layout = ARENA_ARRAY(&p->arena, Layout, g->value.n);
    p->region = ARENA_ARRAY(&p->arena, int32_t, g->region.n);
    p->uses = graph_use_counts(g, &p->arena);
    if (!p->local || !p->layout || !p->region || !p->uses) return partition_no_memory(p);
    for (int32_t r = 1; r < g->region.n; r++) p->region[r] = -1;
    for (Val v = 1; v < g->value.n; v++) {
        Layout *l = &p->layout[v];
        *l = *graph_type(g, v)->layout;
        /* In manual mode the parts of a sum still to be made are values like others that vary. */
        l->vary |= l->unreduced & l->manual;
        l->unreduced &= (uint8_t)~l->manual;
        layout_drop_ones(&p->layout[v]);
    }
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        uint32_t flags = graph_opdef(g, n)->flags;
        arena_clear(&p->scratch);
        TRY(partition_enter(p, n->region));
        if (flags & OPF_PARAM && n->region)
            continue;
        else if (flags & OPF_PARAM)
            TRY(partition_param(p, n));
        else if (graph_opdef(g, n)->flow)
            TRY(partition_control(p, n));
        else if (graph_opdef(g, n)->manual)
            TRY(partition_manual(p, n));
        else if (flags & (OPF_CONSTRAINT | OPF_CAST))
            TRY(partition_constraint(p, n));
        else
            TRY(partition_node(p, n));
    }
    TRY(partition_enter(p, 0));
    for (int i = 0; i < g->region.at[0].result.n; i++)
        build_result(&p->b, p->local[g->region.at[0].result.at[i]]);
    return p->b.err;
}

/* Without a mesh: the same nodes, local types. */
static Err copy_unsplit(const Graph *g, const Build *b) {
    Copy c;
    if (copy_begin(&c, g, b)) {
        for (int32_t id = 1; id < g->node.n && !c.b.err; id++) copy_node(&c, graph_node(g, id));
        copy_results(&c, 0);
    }
    copy_end(&c);
    Graph *to = b->g;
    for (Val v = 1; v < to->value.n && !c.b.err; v++) {
        Type t = *graph_type(to, v);
        t.local = true;
        to->value.at[v].type = type_of(g->cx, &t);
        if (!to->value.at[v].type) c.b.err = err_nomem(g->cx, "partitioning");
    }
    return c.b.err;
}

Err pass_partition(const Graph *g, const PassOptions *o, Graph **out) {
    Graph *new_graph = graph_new(g->cx);
    if (!new_graph || !graph_room_for(new_graph, g)) {
        graph_free(new_graph);
        return err_nomem(g->cx, "a graph");
    }
    new_graph->mesh = g->mesh;
    Partition p = {.g = g, .o = o, .b = build_in(new_graph, 0)};
    p.b.local = true;
    arena_init(&p.arena, &g->cx->alloc);
    arena_init(&p.scratch, &g->cx->alloc);
    Err e = g->mesh ? partition(&p) : copy_unsplit(g, &p.b);
    arena_free(&p.scratch);
    arena_free(&p.arena);
    if (e)
        graph_free(new_graph);
    else
        *out = new_graph;
    return e;
}
