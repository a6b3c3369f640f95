#include "ir/copy.h"

#include "ir/explicit.h"

enum { FEW = 8 }; /* operands and results that fit on the stack */

Build build_in(Graph *g, int32_t region) {
    return (Build){.g = g, .region = region};
}

void build_fail(Build *b, Err e) {
    if (!b->err) b->err = e;
}

static Val out_of_memory(Build *b) {
    build_fail(b, err_nomem(b->g->cx, "a graph"));
    return 0;
}

static bool any_missing(const Val *in, int nin) {
    for (int i = 0; i < nin; i++)
        if (in[i] == 0) return true;
    return false;
}

/* Appends a node whose results have the given types. */
static Val append(Build *b, Node n, const Type *const *types) {
    Graph *g = b->g;
    n.out = g->value.n;
    if (!VEC_ROOM(&g->arena, &g->value, n.nout) || !VEC_PUSH(&g->arena, &g->node, n))
        return out_of_memory(b);
    for (int i = 0; i < n.nout; i++) g->value.at[g->value.n++] = (Value){types[i], g->node.n - 1};
    for (int k = 0; k < n.nbody; k++) g->region.at[n.body[k]].owner = g->node.n - 1;
    return n.out;
}

/* The node with its lists copied into the graph's arena. */
static bool own(Build *b, Node *n, const Val *in, const void *attr) {
    const OpDef *def = graph_opdef(b->g, n);
    static const Val none[1];
    n->in = n->nin ? arena_copy(&b->g->arena, in, sizeof *in * (size_t)n->nin) : none;
    if (n->nloc) n->loc = arena_copy(&b->g->arena, n->loc, sizeof *n->loc * (size_t)n->nloc);
    if (n->nwhy) n->why = arena_copy(&b->g->arena, n->why, sizeof *n->why * (size_t)n->nwhy);
    if (n->nbody) n->body = arena_copy(&b->g->arena, n->body, sizeof *n->body * (size_t)n->nbody);
    if (!n->in || (n->nloc && !n->loc) || (n->nwhy && !n->why) || (n->nbody && !n->body))
        return false;
    if (def->attr_size) {
        n->attr = attr ? arena_copy(&b->g->arena, attr, def->attr_size)
                       : arena_alloc(&b->g->arena, def->attr_size);
        if (!n->attr) return false;
    }
    return true;
}

static const Type *local_type(Build *b, const OutType *t, uint32_t vary) {
    Layout l;
    layout_init(&l, b->g->mesh, t->dims.rank);
    l.vary = (uint8_t)vary;
    const Layout *layout = b->g->mesh ? layout_of(b->g->cx, &l) : NULL;
    if (b->g->mesh && !layout) return NULL;
    return type_of(
        b->g->cx,
        &(Type){
            .dtype = t->dtype, .weak = t->weak, .local = true, .dims = t->dims, .layout = layout});
}

static const Type *result_type(Build *b, const OutType *t, uint32_t vary, Mode mode) {
    const Layout *layout;
    if (b->local) return local_type(b, t, vary);
    if (mode_layout(b->g->cx, b->g->mesh, t->dims.rank, mode, &layout)) return NULL;
    return type_of(b->g->cx,
                   &(Type){.dtype = t->dtype, .weak = t->weak, .dims = t->dims, .layout = layout});
}

/* Explicit mode: the layouts in the types of the results. */
static bool lay_out(Build *b, const OpArgs *a, const Val *in, Mode mode, const Type **types,
                    int nout, Arena *scratch) {
    bool plain = !(explicit_axes(b) & ~mode.manual) && !b->flipped;
    if (b->local || (!b->given && plain)) return true;
    Layout *layouts = ARENA_ARRAY(scratch, Layout, nout + 1);
    if (!layouts) return out_of_memory(b);
    if (!b->given) {
        Err e = explicit_infer(b, a, in, types, nout, mode, layouts);
        if (e) {
            build_fail(b, e);
            return false;
        }
    }
    for (int i = 0; i < nout; i++) {
        if (b->given && !b->given[i]->layout) continue;
        if (b->given) layouts[i] = *b->given[i]->layout;
        layouts[i].manual = (uint8_t)mode.manual;
        layouts[i].vary = (uint8_t)mode.vary;
        layouts[i].unreduced = (uint8_t)((layouts[i].unreduced & ~mode.manual) | mode.unreduced);
        layouts[i].reduced = (uint8_t)((layouts[i].reduced & ~mode.manual) | mode.reduced);
        const Layout *l = layout_of(a->cx, &layouts[i]);
        types[i] = l ? type_with_layout(a->cx, types[i], l) : NULL;
        if (!types[i]) return out_of_memory(b);
    }
    return true;
}

static uint32_t vary_of(const OpArgs *a) {
    uint32_t vary = 0;
    for (int i = 0; i < a->nin; i++)
        if (a->in[i]->layout) vary |= a->in[i]->layout->vary;
    return a->def->vary ? a->def->vary(a, vary) : vary;
}

static bool check_count(Build *b, const OpDef *def, int nin) {
    if (def->nin < 0 || def->nin == nin) return true;
    build_fail(b, err_set(b->g->cx, E_VALUE, "%s: %d operand%s given, %d wanted (%s)", def->name,
                          nin, str_s(nin), def->nin, def->operands));
    return false;
}

/* Sizes that memory and arithmetic can hold, whatever an op's rule made of its attributes. */
static Err check_result(Build *b, const OpDef *def, const Dims *dims) {
    for (int d = 0; d < dims->rank; d++)
        if (dims->at[d] < 0)
            return err_set(b->g->cx, E_SHAPE, "%s: dim %d of the result has size %lld", def->name,
                           d + 1, (long long)dims->at[d]);
    if (dims_count(dims) < 0)
        return err_set(b->g->cx, E_SHAPE, "%s: the result has more than 2^56 elements", def->name);
    return E_OK;
}

/* The result types by the row's shape rule; *nout is set. `types` has room for max(nin, FEW). */
static bool infer(Build *b, const Node *n, Mode mode, const Type **types, int *nout) {
    Ctx *cx = b->g->cx;
    const OpDef *def = graph_opdef(b->g, n);
    Arena scratch;
    arena_init(&scratch, &cx->alloc);
    const Type *few_types[FEW], **in_types = few_types;
    OutType few_out[FEW] = {0}, *out = few_out;
    if (n->nin > FEW) {
        in_types = ARENA_ARRAY(&scratch, const Type *, n->nin);
        out = ARENA_ARRAY(&scratch, OutType, n->nin);
    }
    bool ok = in_types && out;
    if (!ok) out_of_memory(b);
    if (ok) {
        for (int i = 0; i < n->nin; i++) in_types[i] = graph_type(b->g, n->in[i]);
        OpArgs a = {cx, def, n->nin, in_types, n->attr};
        *nout = def->nout < 0 ? n->nin : def->nout;
        Err e = def->shape(&a, out, nout);
        for (int i = 0; !e && i < *nout; i++) e = check_result(b, def, &out[i].dims);
        if (e) build_fail(b, e);
        ok = !e;
        uint32_t vary = ok ? vary_of(&a) : 0;
        for (int i = 0; ok && i < *nout; i++) {
            types[i] = result_type(b, &out[i], vary, mode);
            if (!types[i]) {
                out_of_memory(b);
                ok = false;
            }
        }
    }
    if (ok) {
        OpArgs a = {cx, def, n->nin, in_types, n->attr};
        ok = lay_out(b, &a, n->in, mode, types, *nout, &scratch);
    }
    arena_free(&scratch);
    return ok;
}

Val build_op(Build *b, int op, const Val *in, int nin, const void *attr) {
    const OpDef *def = build_opdef(b, op);
    if (b->err || any_missing(in, nin) || !check_count(b, def, nin)) return 0;
    Node n = {.op = (uint16_t)op,
              .nin = nin,
              .region = b->region,
              .loc = b->loc,
              .nloc = b->nloc,
              .why = b->why,
              .nwhy = b->nwhy,
              .role = b->role,
              .parts = b->parts,
              .idle = b->idle};
    const Type *few[FEW], **types = few;
    Val few_in[FEW], *own_in = few_in;
    if (nin > FEW) {
        types = ARENA_ARRAY(&b->g->arena, const Type *, nin);
        own_in = ARENA_ARRAY(&b->g->arena, Val, nin);
        if (!types || !own_in) return out_of_memory(b);
    }
    for (int i = 0; i < nin; i++) own_in[i] = in[i];
    Mode mode = {0};
    if (b->given) /* the operands have met before */
        mode = mode_of(b->given[0]);
    else if (!b->local && !mode_meet(b, def, own_in, nin, attr, &mode))
        return 0;
    if (!own(b, &n, own_in, attr)) return out_of_memory(b);
    int nout = 0;
    if (!infer(b, &n, mode, types, &nout)) return 0;
    n.nout = nout;
    return append(b, n, types);
}

Val build_typed(Build *b, int op, const Val *in, int nin, const void *attr, int nout,
                const Type *const *types, const int32_t *body, int nbody) {
    if (b->err || any_missing(in, nin)) return 0;
    Node n = {.op = (uint16_t)op,
              .nin = nin,
              .nout = nout,
              .region = b->region,
              .body = body,
              .nbody = nbody,
              .loc = b->loc,
              .nloc = b->nloc,
              .why = b->why,
              .nwhy = b->nwhy,
              .role = b->role,
              .parts = b->parts,
              .idle = b->idle};
    if (!own(b, &n, in, attr)) return out_of_memory(b);
    return append(b, n, types);
}

Build build_at(const Build *b, const Graph *g, const Node *n) {
    const Layout *l = n->nout ? graph_type(g, n->out)->layout : NULL;
    Build at = *b;
    at.loc = n->loc;
    at.nloc = n->nloc;
    at.why = n->why;
    at.nwhy = n->nwhy;
    at.role = n->role;
    at.parts = n->parts;
    at.idle = n->idle;
    at.manual = n->nout ? mode_of(graph_type(g, n->out)).manual : 0;
    at.flipped = l ? l->flipped : 0;
    return at;
}

Val build_like(Build *b, const Graph *from, const Node *n, const Val *in) {
    Build like = build_at(b, from, n);
    Val v;
    const Type *few[FEW], **types = few;
    if (n->nout > FEW && !(types = ARENA_ARRAY(&b->g->arena, const Type *, n->nout)))
        return out_of_memory(b);
    graph_out_types(from, n, types);
    if (!b->local) like.given = types;
    if (graph_opdef(from, n)->flags & OPF_TYPED) {
        v = build_typed(&like, n->op, in, n->nin, n->attr, n->nout, types, NULL, 0);
    } else {
        v = build_op(&like, n->op, in, n->nin, n->attr);
    }
    build_fail(b, like.err);
    if (v && n->clone) build_set_clone(b, v, n->clone);
    if (v && n->noffset) build_set_offsets(b, v, n->offset, n->noffset);
    return v;
}

Val build_param(Build *b, int param_op, const void *attr, const Type *type) {
    Val v = build_typed(b, param_op, NULL, 0, attr, 1, &type, NULL, 0);
    if (v && !VEC_PUSH(&b->g->arena, &b->g->region.at[b->region].param, v)) return out_of_memory(b);
    return v;
}

void build_inline(Build *b, int32_t region, const Val *args, int32_t clone, Val *results) {
    if (b->err) return;
    const Graph *g = b->g;
    int32_t end = graph_region_end(g, region);
    Copy c;
    if (copy_begin(&c, g, b)) {
        c.region[region] = b->region;
        const Region *r = &g->region.at[region];
        for (int i = 0; i < r->param.n; i++) c.map[r->param.at[i]] = args[i];
        copy_stretch(&c, region, r->first, end, clone);
        r = &g->region.at[region];
        for (int i = 0; i < r->result.n; i++) results[i] = c.map[r->result.at[i]];
    }
    build_fail(b, c.b.err);
    copy_end(&c);
}

int32_t build_region(Build *b) {
    if (b->err || !VEC_PUSH(&b->g->arena, &b->g->region, (Region){.first = b->g->node.n}))
        return out_of_memory(b);
    return b->g->region.n - 1;
}

void build_result(Build *b, Val v) {
    if (b->err) return;
    /* A value that is missing although nothing went wrong: whoever was to make it had no memory. */
    if (!v || !VEC_PUSH(&b->g->arena, &b->g->region.at[b->region].result, v)) out_of_memory(b);
}

void build_set_weak(Build *b, Val v) {
    if (b->err || v == 0) return;
    Value *value = &b->g->value.at[v];
    Type t = *value->type;
    t.weak = true;
    value->type = type_of(b->g->cx, &t);
    if (!value->type) out_of_memory(b);
}

void build_set_offsets(Build *b, Val v, const Offset *offset, int n) {
    if (b->err || v == 0) return;
    Graph *g = b->g;
    Node *node = &g->node.at[g->value.at[v].node];
    node->offset = arena_copy(&g->arena, offset, sizeof *offset * (size_t)n);
    if (!node->offset) {
        out_of_memory(b);
        return;
    }
    node->noffset = n;
    uint32_t vary = 0;
    for (int i = 0; i < n; i++) vary |= axes_mask(&offset[i].axes);
    for (int i = 0; b->local && i < node->nout; i++) {
        Value *value = &g->value.at[node->out + i];
        OutType t = {value->type->dtype, value->type->weak, value->type->dims};
        uint32_t before = value->type->layout ? value->type->layout->vary : 0;
        const Type *type = local_type(b, &t, before | vary);
        if (type)
            value->type = type; /* it keeps one in any case: others may still ask for it */
        else
            out_of_memory(b);
    }
}

void build_set_clone(Build *b, Val v, int32_t clone) {
    b->g->node.at[b->g->value.at[v].node].clone = clone;
}
