/* loop.c - scan and while: one region, run again and again.
 *
 * The gradient of a scan is a scan that runs the other way over the forward one's residuals: its
 * carries are the cotangents of the carries and, added up, those of the constants; its slices are
 * the residuals, xs, and the cotangents of ys. Which residuals it needs is known only when it is
 * built, and then the forward scan stands already: so every scan gives all that could be asked for
 * as stacks behind its ys, and what nobody reads is dropped with its row's `keep`. What costs no
 * work, or is the same in each iteration, is made again instead (primal).
 *
 * Whether a carry is active in the gradient, or mapped in a batch, depends on whether its next
 * value is, which depends on the carry: both start from the operands and grow to a fixpoint.
 *
 * In a while in shard_map devices may differ in when they are done, yet all must meet in the
 * collectives inside. So all run until the last one is done, and who is done keeps its carries
 * (varying_while). */
#include "op/op.h"

/* ---- scan ---- */
static const AttrField scan_fields[] = {ATTR_FIELD(ScanAttr, ATTR_INT, ncarry),
                                        ATTR_FIELD(ScanAttr, ATTR_INT, nxs),
                                        ATTR_FIELD(ScanAttr, ATTR_INT, length),
                                        ATTR_FIELD(ScanAttr, ATTR_BOOL, reverse),
                                        {0}};

static bool flow_scan(const Node *n, int i, Flow *f) {
    const ScanAttr *a = n->attr;
    int32_t ncarry = (int32_t)a->ncarry, nxs = (int32_t)a->nxs;
    if (i >= n->nin + n->nout - ncarry) return false;
    *f = (Flow){.in = i, .out = -1, .param = i, .result = -1};
    if (i < ncarry)
        *f = (Flow){.in = i, .out = i, .param = i, .result = i, .carried = true};
    else if (i < ncarry + nxs)
        f->stacked = true;
    else if (i >= n->nin)
        *f = (Flow){.in = -1,
                    .out = i - n->nin + ncarry,
                    .param = -1,
                    .result = i - n->nin + ncarry,
                    .stacked = true};
    return true;
}

static void keep_scan(const Node *n, const uint8_t *times, void *attr) {
    const ScanAttr *a = n->attr;
    ScanAttr *out = attr;
    out->ncarry = out->nxs = 0;
    for (int64_t i = 0; i < a->ncarry; i++) out->ncarry += times[i];
    for (int64_t i = 0; i < a->nxs; i++) out->nxs += times[a->ncarry + i];
}

static void control_scan(const void *attr, ControlInfo *c) {
    const ScanAttr *a = attr;
    *c = (ControlInfo){.reverse = a->reverse, .trips = a->length};
}

/* ---- regions ---- */

Val op_region_param(Build *b, const Type *type) {
    ParamAttr attr = {.index = b->g->region.at[b->region].param.n + 1};
    const Type *own = type ? type_undecided(b->g->cx, type) : NULL;
    if (!own) {
        build_fail(b, err_nomem(b->g->cx, "a type"));
        return 0;
    }
    return build_param(b, OP_PARAM, &attr, own);
}

void op_region_params(Build *b, int32_t region, const Val *param, int n) {
    if (b->err) return;
    Graph *g = b->g;
    Region *r = &g->region.at[region];
    Val *list = arena_alloc(&g->arena, sizeof *list * (size_t)(n + 1));
    for (int i = 0; list && i < n; i++) {
        ParamAttr attr = {.index = i + 1};
        Node *node = &g->node.at[g->value.at[param[i]].node];
        list[i] = param[i];
        node->attr = arena_copy(&g->arena, &attr, sizeof attr);
        if (!node->attr) list = NULL;
    }
    if (!list) {
        build_fail(b, err_nomem(g->cx, "a graph"));
        return;
    }
    r->param.at = list;
    r->param.n = n;
    r->param.cap = n + 1;
}

/* What costs no work is made again rather than kept, as are single whole numbers of what counts;
 * but not the results of a function whose
 * derivative the user gave, as that is theirs and not that of what they are made of. */
static bool is_free(const Graph *g, const Node *n) {
    const OpDef *def = graph_opdef(g, n);
    if (n->nbody || n->nout != 1 || graph_is_ruled(g, n->out)) return false;
    const Type *t = graph_type(g, n->out);
    bool counts = def->affine && !dtype_is_float(t->dtype) && type_count(t) == 1;
    return counts || def->flags & OPF_NULLARY || def->view;
}

/* Which values the gradient may ask for. */
static bool may_be_residual(const Graph *g, const Node *n, Val v) {
    return !is_free(g, n) && graph_type(g, v)->dims.rank < MAX_RANK;
}

/* Appends the residuals to the region's results. */
static void add_residuals(Build *b, int32_t region, int64_t ncarry) {
    Build in = build_in(b->g, region);
    for (int64_t i = 0; i < ncarry; i++) {
        Val v = b->g->region.at[region].param.at[i];
        if (may_be_residual(b->g, graph_def(b->g, v), v)) build_result(&in, v);
    }
    for (int32_t id = b->g->region.at[region].first; id < b->g->node.n && !in.err; id++) {
        const Node *n = graph_node(b->g, id);
        if (n->region != region || graph_opdef(b->g, n)->flags & OPF_PARAM) continue;
        for (int i = 0; i < n->nout; i++)
            if (may_be_residual(b->g, n, n->out + i)) build_result(&in, n->out + i);
    }
    build_fail(b, in.err);
}

static const Type *strong(Build *b, const Type *t) {
    Type out = *t;
    out.weak = false;
    return type_of(b->g->cx, &out);
}

/* The types of a node's results by its flow: those of what is inside, or stacks of them. */
Val op_control(Build *b, int op, const Val *in, int nin, const void *attr, const int32_t *region,
               int nregion, int nout, int64_t length) {
    Graph *g = b->g;
    Arena scratch;
    arena_init(&scratch, &g->cx->alloc);
    const Type **types = ARENA_ARRAY(&scratch, const Type *, nout + 1);
    Node n = {.op = (uint16_t)op, .nin = nin, .nout = nout, .attr = attr};
    Val v = 0;
    Flow f;
    bool ok = types && !b->err;
    for (int i = 0; ok && build_opdef(b, op)->flow(&n, i, &f); i++) {
        if (f.out < 0) continue;
        const Type *t = graph_type(g, g->region.at[region[0]].result.at[f.result]);
        t = type_undecided(g->cx, t);
        if (t) t = f.stacked ? type_stack(g->cx, t, length) : t;
        types[f.out] = t ? strong(b, t) : NULL;
        ok = types[f.out] != NULL;
    }
    if (ok)
        v = build_typed(b, op, in, nin, attr, nout, types, region, nregion);
    else
        build_fail(b, err_nomem(g->cx, "a graph"));
    arena_free(&scratch);
    return v;
}

Val op_scan(Build *b, int32_t region, const Val *in, int nin, const ScanAttr *attr) {
    add_residuals(b, region, attr->ncarry);
    return op_control(b, OP_SCAN, in, nin, attr, &region, 1, b->g->region.at[region].result.n,
                      attr->length);
}

static void make_scan(Build *b, const int32_t *region, int nregion, const Val *in, int nin,
                      const void *attr, Val *out) {
    int nout = b->g->region.at[region[0]].result.n;
    Val v = op_scan(b, region[0], in, nin, attr);
    for (int i = 0; v && i < nout; i++) out[i] = v + i;
}

/* ---- the gradient of a scan ---- */

/* The backward scan's carries: the cotangents of the active carries, then of
 * the active constants. */
typedef struct Carries {
    int n;
    int *of;    /* the operand of the forward scan that it is the cotangent of */
    Val *start; /* what it begins with */
    Val *param; /* in the backward region */
} Carries;

typedef struct Backward {
    const Node *n; /* the forward scan; its operands and results as they are here */
    const Val *in, *out;
    int32_t region; /* its */
    Build *b;       /* where the backward scan will stand */
    Build body;     /* in the backward region */
    Arena arena;
    Val *map; /* by value of the forward region: what stands for it in the backward one */
    int32_t nvalue;
    bool *invariant; /* by value: made of constants only */
    int32_t *result; /* by value: 1 + its number among the region's results, as a stack */
    Carries carry;
    VEC(Val) slice; /* parameters of the backward region, and the stacks they are slices of */
    VEC(Val) stack;
    VEC(Val) constant; /* the same for what does not change */
    VEC(Val) outer;
} Backward;

static void no_memory(Backward *w) {
    build_fail(&w->body, err_nomem(w->b->g->cx, "a gradient"));
}

static Val slice_of(Backward *w, Val stack) {
    const Type *t = type_slice(w->b->g->cx, graph_type(w->b->g, stack));
    Val v = op_region_param(&w->body, t);
    if (!VEC_PUSH(&w->arena, &w->slice, v) || !VEC_PUSH(&w->arena, &w->stack, stack)) no_memory(w);
    return v;
}

static Val constant_of(Backward *w, Val outer) {
    Val v = op_region_param(&w->body, graph_type(w->b->g, outer));
    if (!VEC_PUSH(&w->arena, &w->constant, v) || !VEC_PUSH(&w->arena, &w->outer, outer))
        no_memory(w);
    return v;
}

static Val primal(void *ud, Build *b, Val v);

/* Made again from its operands: what costs no work, and what no iteration changes. */
static Val made_again(Backward *w, const Node *n) {
    Val *in = ARENA_ARRAY(&w->arena, Val, n->nin + 1);
    if (!in) {
        no_memory(w);
        return 0;
    }
    for (int i = 0; i < n->nin; i++) in[i] = primal(w, &w->body, n->in[i]);
    return build_like(&w->body, w->b->g, n, in);
}

/* The forward region's value v in the backward region. */
static Val primal(void *ud, Build *b, Val v) {
    Backward *w = ud;
    const Graph *g = w->b->g;
    const ScanAttr *a = w->n->attr;
    if (w->body.err || v >= w->nvalue) return v;
    if (w->map[v]) return w->map[v];
    Node n = *graph_def(g, v);
    const OpDef *def = graph_opdef(g, &n);
    const Region *r = &g->region.at[w->region];
    Val made = 0;
    if (def->flags & OPF_PARAM) {
        int i = 0;
        while (r->param.at[i] != v) i++;
        if (i >= a->ncarry + a->nxs)
            made = constant_of(w, w->in[i]);
        else if (i >= a->ncarry)
            made = slice_of(w, w->in[i]);
    } else if (is_free(g, &n) || (!n.nbody && n.nout == 1 && w->invariant[v])) {
        made = made_again(w, &n);
    }
    if (!made && w->result[v]) made = slice_of(w, w->out[w->result[v] - 1]);
    if (!made && !w->body.err)
        build_fail(&w->body,
                   err_set(g->cx, E_UNSUPPORTED,
                           "scan: its gradient would stack %s's result of rank %d; tensors "
                           "have at most %d dims",
                           def->name, graph_type(g, v)->dims.rank, MAX_RANK));
    build_fail(b, w->body.err);
    return w->map[v] = made;
}

static bool prepare(Backward *w) {
    const Graph *g = w->b->g;
    const ScanAttr *a = w->n->attr;
    const Region *r = &g->region.at[w->region];
    w->map = ARENA_ARRAY(&w->arena, Val, w->nvalue);
    w->invariant = ARENA_ARRAY(&w->arena, bool, w->nvalue);
    w->result = ARENA_ARRAY(&w->arena, int32_t, w->nvalue);
    if (!w->map || !w->invariant || !w->result) return false;
    for (int i = (int)(a->ncarry + a->nxs); i < r->param.n; i++)
        w->invariant[r->param.at[i]] = true;
    for (int i = r->result.n - 1; i >= a->ncarry; i--) w->result[r->result.at[i]] = i + 1;
    for (int32_t id = r->first; id < graph_region_end(g, w->region); id++) {
        const Node *n = graph_node(g, id);
        if (n->region != w->region || graph_opdef(g, n)->flags & OPF_PARAM) continue;
        bool all = true;
        for (int i = 0; i < n->nin; i++) all = all && w->invariant[n->in[i]];
        for (int i = 0; i < n->nout; i++) w->invariant[n->out + i] = all;
    }
    return true;
}

/* Which parameters of the region lead from a variable: a carry does once its result does. */
static bool *active_params(Backward *w, const VjpArgs *a) {
    const ScanAttr *attr = w->n->attr;
    const Graph *g = w->b->g;
    const Region *r = &g->region.at[w->region];
    bool *param = ARENA_ARRAY(&w->arena, bool, r->param.n + 1);
    bool *result = ARENA_ARRAY(&w->arena, bool, r->result.n + 1);
    if (!param || !result) return NULL;
    for (int i = 0; i < w->n->nin; i++)
        param[i] = (a->wanted >> (i < 63 ? i : 63) & 1) &&
                   dtype_is_float(graph_type(g, r->param.at[i])->dtype);
    for (bool grown = true; grown && !w->b->err;) {
        grown = false;
        a->regions->active(w->b, w->region, param, result);
        for (int i = 0; i < attr->ncarry; i++) {
            if (param[i] || !result[i]) continue;
            param[i] = grown = true;
        }
    }
    return param;
}

static Val zeros_of(Build *b, Val like) {
    Val zeros = op_const_like(b, like, 0);
    return like ? mode_bring(b, zeros, mode_of(graph_type(b->g, like))) : 0;
}

static bool is_slice(const ScanAttr *a, int operand) {
    return operand >= a->ncarry && operand < a->ncarry + a->nxs;
}

static bool add_carries(Backward *w, const VjpArgs *a, const bool *active) {
    const ScanAttr *attr = w->n->attr;
    Carries *c = &w->carry;
    int nin = w->n->nin;
    c->of = ARENA_ARRAY(&w->arena, int, nin + 1);
    c->start = ARENA_ARRAY(&w->arena, Val, nin + 1);
    c->param = ARENA_ARRAY(&w->arena, Val, nin + 1);
    if (!c->of || !c->start || !c->param) return false;
    for (int i = 0; i < nin; i++) {
        if (!active[i] || is_slice(attr, i)) continue;
        Val start = i < attr->ncarry ? a->ct[i] : 0;
        if (!start) start = zeros_of(w->b, w->in[i]);
        c->of[c->n] = i;
        c->start[c->n] = start;
        c->param[c->n++] = op_region_param(&w->body, start ? graph_type(w->b->g, start) : NULL);
    }
    return true;
}

/* The cotangents of an iteration's operands, from those of its results: of a carry the carry here,
 * of ys a slice. */
static Val *iteration_cotangents(Backward *w, const VjpArgs *a, const bool *active) {
    const ScanAttr *attr = w->n->attr;
    int nresult = w->b->g->region.at[w->region].result.n;
    Val *ct = ARENA_ARRAY(&w->arena, Val, nresult + 1);
    Val *din = ARENA_ARRAY(&w->arena, Val, w->n->nin + 1);
    if (!ct || !din) return NULL;
    for (int k = 0; k < w->carry.n; k++)
        if (w->carry.of[k] < attr->ncarry) ct[w->carry.of[k]] = w->carry.param[k];
    for (int i = (int)attr->ncarry; i < nresult; i++)
        if (a->ct[i]) ct[i] = slice_of(w, a->ct[i]);
    a->regions->region(&w->body, w->region, active, ct, primal, w, din);
    return din;
}

/* The backward region's results: its carries, of which those of constants add up, then its ys, the
 * cotangents of the active xs. */
static void add_results(Backward *w, const bool *active, const Val *din) {
    const ScanAttr *attr = w->n->attr;
    for (int k = 0; k < w->carry.n; k++) {
        Val now = w->carry.param[k], next = din[w->carry.of[k]];
        if (w->carry.of[k] >= attr->ncarry) next = next ? op2(&w->body, OP_ADD, now, next) : now;
        build_result(&w->body, next ? next : zeros_of(&w->body, now));
    }
    for (int i = 0; i < w->n->nin; i++) {
        if (!active[i] || !is_slice(attr, i)) continue;
        Val slice = primal(w, &w->body, w->b->g->region.at[w->region].param.at[i]);
        build_result(&w->body, din[i] ? din[i] : slice ? zeros_of(&w->body, slice) : 0);
    }
}

/* The scan over the backward region, whose parameters come in the order of operands: carries,
 * slices, constants. */
static Val scan_back(Backward *w) {
    const ScanAttr *attr = w->n->attr;
    const Carries *carry = &w->carry;
    int n = carry->n, nslice = w->slice.n, total = n + nslice + w->constant.n;
    Val *in = ARENA_ARRAY(&w->arena, Val, total + 1), *all = ARENA_ARRAY(&w->arena, Val, total + 1);
    if (!in || !all) {
        no_memory(w);
        return 0;
    }
    for (int i = 0; i < total; i++) {
        int s = i - n, c = i - n - nslice;
        in[i] = i < n ? carry->start[i] : c < 0 ? w->stack.at[s] : w->outer.at[c];
        all[i] = i < n ? carry->param[i] : c < 0 ? w->slice.at[s] : w->constant.at[c];
    }
    op_region_params(w->b, w->body.region, all, total);
    ScanAttr back = {n, nslice, attr->length, !attr->reverse};
    return op_scan(w->b, w->body.region, in, total, &back);
}

static void build_backward(Backward *w, const VjpArgs *a, const bool *active) {
    bool ok = add_carries(w, a, active);
    const Val *din = ok ? iteration_cotangents(w, a, active) : NULL;
    if (!din) {
        no_memory(w);
        return;
    }
    add_results(w, active, din);
    Val v = w->body.err ? 0 : scan_back(w);
    if (!v) return;
    for (int k = 0; k < w->carry.n; k++) a->din[w->carry.of[k]] = v++;
    for (int i = 0; i < w->n->nin; i++)
        if (active[i] && is_slice(w->n->attr, i)) a->din[i] = v++;
}

static void vjp_scan(Build *b, const VjpArgs *a) {
    Node n = *a->node;
    Backward w = {.n = &n,
                  .in = a->in,
                  .out = a->out,
                  .region = n.body[0],
                  .b = b,
                  .nvalue = b->g->value.n,
                  .body = *b};
    arena_init(&w.arena, &b->g->cx->alloc);
    bool ok = prepare(&w);
    const bool *active = ok ? active_params(&w, a) : NULL;
    w.body.region = active ? build_region(b) : 0;
    if (!ok || !active)
        no_memory(&w);
    else if (w.body.region)
        build_backward(&w, a, active);
    build_fail(b, w.body.err);
    arena_free(&w.arena);
}

/* ---- many examples: what is mapped in an iteration is a carry's fixpoint ---- */

/* Room for the flags of a loop's parameters and results. */
static bool *flags_of(Build *b, int n) {
    bool *flags = ARENA_ARRAY(&b->g->arena, bool, n + 1);
    if (!flags) build_fail(b, err_nomem(b->g->cx, "vmap"));
    return flags;
}

/* Carries whose next value is mapped are mapped. */
static void settle(const BatchArgs *a, int32_t region, int ncarry, bool *param, bool *result) {
    for (bool grown = true; grown;) {
        grown = false;
        a->regions->mapped(a->regions, region, param, result);
        for (int i = 0; i < ncarry; i++) {
            if (result[i] && !param[i]) param[i] = grown = true;
            result[i] = param[i];
        }
    }
}

static void batch_scan(Build *b, const BatchArgs *a) {
    ScanAttr attr = *(const ScanAttr *)a->node->attr;
    int32_t region = a->node->body[0];
    int nin = a->node->nin, nout = a->node->nout, ncarry = (int)attr.ncarry;
    bool *param = flags_of(b, nin), *result = flags_of(b, nout);
    Val *in = ARENA_ARRAY(&b->g->arena, Val, nin + 1);
    if (!in) build_fail(b, err_nomem(b->g->cx, "vmap"));
    if (b->err) return;
    for (int i = 0; i < nin; i++) param[i] = a->mapped[i];
    settle(a, region, ncarry, param, result);
    for (int i = 0; i < nin; i++) {
        bool stack = i >= ncarry && i < ncarry + attr.nxs;
        in[i] = param[i] ? batch_operand(b, a, i) : a->in[i];
        if (stack && param[i]) in[i] = batch_from_front(b, in[i], 1);
    }
    int32_t all = a->regions->region(a->regions, b, region, param, result);
    Val v = b->err ? 0 : op_scan(b, all, in, nin, &attr);
    for (int i = 0; v && i < nout; i++) {
        a->out[i] = result[i] && i >= ncarry ? batch_to_front(b, v + i, 1) : v + i;
        a->same[i] = !result[i];
    }
}

const OpDef op_row_SCAN = {
    .name = "scan",
    .operands = "",
    .doc = "its region for each slice of xs, with carries from one to the next",
    .nin = -1,
    .nout = -1,
    .flags = OPF_TYPED | OPF_INTERNAL | OPF_FAULTS,
    OP_ATTR(ScanAttr, scan_fields),
    .flow = flow_scan,
    .keep = keep_scan,
    .make = make_scan,
    .control = control_scan,
    .vjp = vjp_scan,
    .batch = batch_scan,
};

/* ---- devices that differ in what runs ---- */

void op_check_varying(Build *b, const char *what, const int32_t *region, int nregion,
                      uint32_t vary) {
    const Graph *g = b->g;
    int32_t first = g->node.n;
    for (int k = 0; k < nregion; k++)
        if (g->region.at[region[k]].first < first) first = g->region.at[region[k]].first;
    for (int32_t id = first; id < g->node.n && !b->err; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        bool inside = false;
        for (int k = 0; k < nregion; k++) inside = inside || graph_within(g, n->region, region[k]);
        if (!inside || !def->collective) continue;
        CollectiveInfo info = {.kind = COLL_NONE};
        def->collective(n->attr, &info);
        if (!(info.axes & vary)) continue;
        Str axes;
        str_init(&axes, &g->cx->alloc);
        mesh_print_axes(g->mesh, info.axes & vary, &axes);
        str_put(&axes, "', along which devices may differ in what they run");
        if (n->nloc) str_put(&axes, "; it was written at ");
        if (n->nloc) intern_print_loc(n->loc[0], &axes);
        build_fail(b,
                   err_set(g->cx, E_VALUE,
                           "%s: %s inside is over '%s; make what decides the same on all of them "
                           "(psum, pmax), or move the collective out",
                           what, def->name, str_of(&axes)));
        str_free(&axes);
    }
}

static Val varying(Build *b, Val v, uint32_t vary) {
    Mode m = mode_of(graph_type(b->g, v));
    m.manual |= vary;
    m.vary |= vary;
    return mode_bring(b, v, m);
}

/* Is any device along the axes not done? The same on all of them. */
static Val any_device(Build *b, Val p, uint32_t vary) {
    Val one = op_astype(b, p, DT_I32);
    one = build_op(b, OP_ALL_REDUCE, &one, 1, &(ReduceAttr){vary, REDUCE_MAX});
    return one ? op2(b, OP_GT, one, op_const_like(b, one, 0)) : 0;
}

/* Operands of a while: carries, whether to begin, constants. Its region gives the next carries and
 * whether to go on. */
typedef struct WhileAttr {
    int64_t ncarry;
} WhileAttr;

/* The loop for devices that differ: one more carry says whether this device goes on. */
static void varying_while(Build *b, int32_t region, const Val *in, int nin, int64_t ncarry,
                          uint32_t vary, Val *out, Arena *arena) {
    Build body = *b;
    int total = nin + 1, nc = (int)ncarry;
    Val *own = ARENA_ARRAY(arena, Val, total), *arg = ARENA_ARRAY(arena, Val, total);
    Val *next = ARENA_ARRAY(arena, Val, total), *param = ARENA_ARRAY(arena, Val, total);
    body.region = build_region(b);
    if (!own || !arg || !next || !param || b->err) {
        build_fail(b, err_nomem(b->g->cx, "a graph"));
        return;
    }
    /* Carries, whether this device goes on, whether any does, constants. */
    for (int i = 0; i <= nc; i++) own[i] = varying(b, in[i], vary);
    own[nc + 1] = any_device(b, own[nc], vary);
    for (int i = nc + 1; i < nin; i++) own[i + 1] = in[i];
    for (int i = 0, k = 0; i < total && !b->err; i++)
        if (i != nc + 1) param[k++] = op_region_param(&body, graph_type(b->g, own[i]));
    build_fail(b, body.err);
    if (b->err) return;
    for (int i = 0; i < nc; i++) arg[i] = param[i];
    for (int i = nc; i < nin - 1; i++) arg[i] = param[i + 1];
    build_inline(&body, region, arg, 0, next);
    for (int i = 0; i < nc && !body.err; i++) {
        Val mine = op_broadcast_like(&body, param[nc], next[i]);
        Val v = op3(&body, OP_WHERE, mine, next[i], param[i]);
        build_result(&body, v ? varying(&body, v, vary) : 0);
    }
    Val on = op2(&body, OP_BITAND, param[nc], next[nc]);
    build_result(&body, on ? varying(&body, on, vary) : 0);
    build_result(&body, any_device(&body, on, vary));
    build_fail(b, body.err);
    if (b->err) return;
    Val v =
        op_control(b, OP_WHILE, own, total, &(WhileAttr){ncarry + 1}, &body.region, 1, nc + 1, 0);
    for (int i = 0; v && i < nc; i++) out[i] = v + i;
}

void op_while(Build *b, int32_t region, const Val *in, int nin, int64_t ncarry, Val *out) {
    Graph *g = b->g;
    Val again = g->region.at[region].result.at[ncarry];
    uint32_t vary = mode_of(graph_type(g, in[ncarry])).vary | mode_of(graph_type(g, again)).vary;
    if (vary) {
        Arena arena;
        arena_init(&arena, &g->cx->alloc);
        op_check_varying(b, "while_loop", &region, 1, vary);
        if (!b->err) varying_while(b, region, in, nin, ncarry, vary, out, &arena);
        arena_free(&arena);
        return;
    }
    Val v = op_control(b, OP_WHILE, in, nin, &(WhileAttr){ncarry}, &region, 1, (int)ncarry, 0);
    for (int i = 0; v && i < ncarry; i++) out[i] = v + i;
}

/* ---- while ---- */
static const AttrField while_fields[] = {ATTR_FIELD(WhileAttr, ATTR_INT, ncarry), {0}};

static bool flow_while(const Node *n, int i, Flow *f) {
    int32_t ncarry = (int32_t)((const WhileAttr *)n->attr)->ncarry;
    if (i >= n->nin) return false;
    if (i < ncarry)
        *f = (Flow){.in = i, .out = i, .param = i, .result = i, .carried = true};
    else if (i == ncarry)
        *f = (Flow){.in = i, .out = -1, .param = -1, .result = i, .steers = true};
    else
        *f = (Flow){.in = i, .out = -1, .param = i - 1, .result = -1};
    return true;
}

static void keep_while(const Node *n, const uint8_t *times, void *attr) {
    WhileAttr *out = attr;
    out->ncarry = 0;
    for (int64_t i = 0; i < ((const WhileAttr *)n->attr)->ncarry; i++) out->ncarry += times[i];
}

static void control_while(const void *attr, ControlInfo *c) {
    *c = (ControlInfo){.trips = -1};
}

static void make_while(Build *b, const int32_t *region, int nregion, const Val *in, int nin,
                       const void *attr, Val *out) {
    op_while(b, region[0], in, nin, ((const WhileAttr *)attr)->ncarry, out);
}

static void vjp_while(Build *b, const VjpArgs *a) {
    build_fail(b, err_set(b->g->cx, E_GRAD,
                          "while_loop is not differentiable: nobody knows beforehand how many "
                          "iterations' values to keep; use scan, or fori_loop with bounds that are "
                          "Lua numbers, or forward mode (jvp)"));
}

/* x where the examples still go on, else what it was. */
static Val where_going(Build *b, Val going, Val x, Val before) {
    Dims dims = op_dims(b, x);
    return op3(b, OP_WHERE, op_broadcast(b, going, &dims, &(Dims){.rank = 1}), x, before);
}

static Val any_of(Build *b, Val flags) {
    Dims scalar = {0}, axes = {1, {0}};
    return op_reshape(b, op_reduce(b, OP_ANY, flags, &axes), &scalar);
}

/* The examples stop at different times: the loop goes on until none goes on, and those that have
 * stopped keep their carries. `region`: on all examples; every carry is mapped, and one more says
 * who goes on. */
static void masked_while(Build *b, const BatchArgs *a, int32_t region, Val *in, int ncarry) {
    int nin = a->node->nin;
    Graph *g = b->g;
    Build body = *b;
    body.region = build_region(&body);
    Val *param = ARENA_ARRAY(&g->arena, Val, nin + 1), *next = ARENA_ARRAY(&g->arena, Val, nin + 1);
    Val *inner = ARENA_ARRAY(&g->arena, Val, nin + 1), *all = ARENA_ARRAY(&g->arena, Val, nin + 2);
    if (!param || !next || !inner || !all) build_fail(&body, err_nomem(g->cx, "vmap"));
    for (int i = 0; i < nin && !body.err; i++) {
        param[i] = op_region_param(&body, graph_type(g, in[i]));
        if (i != ncarry) inner[i < ncarry ? i : i - 1] = param[i];
    }
    if (!body.err) build_inline(&body, region, inner, 0, next);
    if (!body.err) {
        for (int i = 0; i < ncarry; i++)
            build_result(&body, where_going(&body, param[ncarry], next[i], param[i]));
        Val going = op2(&body, OP_BITAND, param[ncarry], next[ncarry]);
        build_result(&body, going);
        build_result(&body, any_of(&body, going));
        for (int i = 0; i < nin; i++) all[i <= ncarry ? i : i + 1] = in[i];
        all[ncarry + 1] = any_of(b, in[ncarry]);
    }
    build_fail(b, body.err);
    if (!b->err) op_while(b, body.region, all, nin + 1, ncarry + 1, next);
    for (int i = 0; !b->err && i < ncarry; i++) a->out[i] = next[i];
}

static void batch_while(Build *b, const BatchArgs *a) {
    int ncarry = (int)((const WhileAttr *)a->node->attr)->ncarry, nin = a->node->nin;
    int32_t region = a->node->body[0];
    bool *param = flags_of(b, nin), *result = flags_of(b, nin);
    Val *in = ARENA_ARRAY(&b->g->arena, Val, nin + 1);
    if (!in) build_fail(b, err_nomem(b->g->cx, "vmap"));
    if (b->err) return;
    for (int i = 0; i < nin; i++)
        if (i != ncarry) param[i < ncarry ? i : i - 1] = a->mapped[i];
    settle(a, region, ncarry, param, result);
    bool masked = result[ncarry] || a->mapped[ncarry];
    for (int i = 0; masked && i < ncarry; i++) param[i] = true;
    if (masked) settle(a, region, ncarry, param, result);
    result[ncarry] = masked;
    for (int i = 0; i < nin; i++) {
        bool is = i == ncarry ? masked : param[i < ncarry ? i : i - 1];
        in[i] = is ? batch_operand(b, a, i) : a->in[i];
    }
    int32_t all = a->regions->region(a->regions, b, region, param, result);
    if (b->err) return;
    if (masked) {
        masked_while(b, a, all, in, ncarry);
        return;
    }
    op_while(b, all, in, nin, ncarry, a->out);
    for (int i = 0; i < ncarry; i++) a->same[i] = !result[i];
}

const OpDef op_row_WHILE = {
    .name = "while",
    .operands = "",
    .doc = "its region as long as its last result is true",
    .nin = -1,
    .nout = -1,
    .flags = OPF_TYPED | OPF_INTERNAL | OPF_FAULTS,
    OP_ATTR(WhileAttr, while_fields),
    .flow = flow_while,
    .keep = keep_while,
    .make = make_while,
    .control = control_while,
    .vjp = vjp_while,
    .batch = batch_while,
};
