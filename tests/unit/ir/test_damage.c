/* verify and equal: every kind of damage to a graph is found, each alone, and the message says
 * which it is and where. */
#include "ir/build.h"
#include "test.h"

#include <string.h>

enum { NONE, PARAM, ADD, OWNER, MARK, CELL, OPS };

static Err same(const OpArgs *a, OutType *out, int *nout) {
    for (int i = 0; i < *nout; i++) out[i] = (OutType){a->in[0]->dtype, false, a->in[0]->dims};
    return E_OK;
}

typedef struct ParamAttr {
    int64_t index;
} ParamAttr;
static const AttrField param_fields[] = {ATTR_FIELD(ParamAttr, ATTR_INT, index),
                                         {NULL, ATTR_INT, 0, NULL}};

typedef struct CellAttr {
    int32_t dtype, dim, word, flag;
    Dims dims, shape;
    AxisList axes;
    uint32_t mask;
    const Layout *layout;
} CellAttr;
static const char *const words[] = {"one", "two", NULL};
static const AttrField cell_fields[] = {ATTR_FIELD(CellAttr, ATTR_DTYPE, dtype),
                                        ATTR_FIELD(CellAttr, ATTR_DIM, dim),
                                        ATTR_FIELD(CellAttr, ATTR_FLAG, flag),
                                        ATTR_FIELD(CellAttr, ATTR_DIMS, dims),
                                        ATTR_FIELD(CellAttr, ATTR_SHAPE, shape),
                                        ATTR_FIELD(CellAttr, ATTR_AXES, axes),
                                        ATTR_FIELD(CellAttr, ATTR_MASK, mask),
                                        ATTR_FIELD(CellAttr, ATTR_LAYOUT, layout),
                                        {"word", ATTR_ENUM, offsetof(CellAttr, word), words},
                                        {NULL, ATTR_INT, 0, NULL}};

static void local_cell(LocalArgs *a) {
    a->offset[0] = (Offset){.unit = 1};
    a->noffset = 1;
}

static const OpDef ops[OPS] = {
    [NONE] = {.name = "none"},
    [PARAM] = {.name = "param",
               .operands = "",
               .nout = 1,
               .flags = OPF_PARAM | OPF_TYPED,
               .attr = param_fields,
               .attr_size = sizeof(ParamAttr)},
    [ADD] =
        {.name = "add", .operands = "x,y", .nin = 2, .nout = 1, .local = local_cell, .shape = same},
    [OWNER] = {.name = "owner", .operands = "x", .nin = 1, .nout = 1, .flags = OPF_TYPED},
    [MARK] = {.name = "mark",
              .operands = "x",
              .nin = 1,
              .nout = 1,
              .flags = OPF_CONSTRAINT,
              .shape = same},
    [CELL] = {.name = "cell",
              .operands = "x,y",
              .nin = 2,
              .nout = 1,
              .attr = cell_fields,
              .attr_size = sizeof(CellAttr),
              .local = local_cell,
              .shape = same},
};

static Ctx cx;
static const Mesh *mesh, *other;

static const Mesh *mesh_named(const char *name) {
    const Mesh *m = NULL;
    const char *const names[] = {name, "y"};
    CHECK(mesh_of(&cx, 2, names, (int32_t[]){2, 2}, NULL, (int32_t[]){0, 1, 2, 3}, &m) == E_OK);
    return m;
}

static const Type *type(const Mesh *m, int rank, bool local) {
    Layout l;
    layout_init(&l, m, rank);
    return type_of(&cx, &(Type){.dtype = DT_F32,
                                .local = local,
                                .dims = {rank, {4, 4}},
                                .layout = layout_of(&cx, &l)});
}

enum { X = 1, Y, P, DOUBLE, OWNED, SUM }; /* the values, and the nodes that make them */

/* (x, y) -> (owner x: p -> p + p) + y, with all that a node, a region and a span can have. */
static Graph *example(bool local) {
    Graph *g = graph_new(&cx);
    g->mesh = mesh;
    Build b = build_in(g, 0), inner = b;
    const Type *t = type(mesh, 1, local);
    const Loc *loc = intern_loc(&cx, &(Loc){.chunk = intern_name(&cx, "a.lua"), .line = 3});
    const Reason *why = reason_of(&cx, &(Reason){.text = intern_name(&cx, "because")});
    inner.loc = b.loc = &loc;
    inner.nloc = b.nloc = 1;
    inner.why = b.why = &why;
    inner.nwhy = b.nwhy = 1;
    build_param(&b, PARAM, &(ParamAttr){1}, t);
    build_param(&b, PARAM, &(ParamAttr){2}, t);
    inner.region = build_region(&b);
    build_param(&inner, PARAM, &(ParamAttr){1}, t);
    build_result(&inner, build_op(&inner, ADD, (Val[]){P, P}, 2, NULL));
    build_typed(&b, OWNER, (Val[]){X}, 1, NULL, 1, &t, &inner.region, 1);
    build_result(&b, build_op(&b, ADD, (Val[]){OWNED, Y}, 2, NULL));
    for (Val v = 1; v < g->value.n; v++) g->value.at[v].type = t;
    Offset offset = {{.n = 0}, 8};
    build_set_offsets(&b, SUM, &offset, 1);
    RematPolicy *policy = ARENA_NEW(&g->arena, RematPolicy);
    CustomVjp *rule = ARENA_NEW(&g->arena, CustomVjp);
    Val *one = ARENA_ARRAY(&g->arena, Val, 1);
    *policy = (RematPolicy){.save = SAVE_DOTS};
    one[0] = X;
    *rule = (CustomVjp){1, 1, 1, 2, one, one, one, one, one, one};
    CHECK(graph_add_span(g, (Span){1, 2, .policy = policy}));
    CHECK(graph_add_span(g, (Span){1, SUM, .rule = rule}));
    g->nsource = g->value.n * mesh->naxes;
    g->source = ARENA_ARRAY(&g->arena, AxisSource, g->nsource);
    CHECK(!b.err && !inner.err && g->node.n == SUM + 1 && g->value.n == SUM + 1);
    return g;
}

static Node *node(Graph *g, int32_t id) {
    return &g->node.at[id];
}

static void set_type(Graph *g, Val v, const Type *t) {
    g->value.at[v].type = t;
}

static const Type *type_with(bool local, bool twice, uint32_t vary) {
    Layout l;
    layout_init(&l, mesh, 2);
    axes_push(&l.dim[0].axes, axes_whole(mesh, 0));
    if (twice) axes_push(&l.dim[1].axes, axes_whole(mesh, 0));
    if (vary) layout_init(&l, mesh, 1);
    l.vary = (uint8_t)vary;
    return type_of(&cx, &(Type){.dtype = DT_F32,
                                .local = local,
                                .dims = {vary ? 1 : 2, {4, 4}},
                                .layout = layout_of(&cx, &l)});
}

/* As many dims, and the layout of a vector. */
static const Type *type_of_rank(int rank) {
    const Type *t = type(mesh, 1, false);
    return type_of(&cx, &(Type){.dtype = DT_F32, .dims = {rank, {4, 4}}, .layout = t->layout});
}

/* ---- verify ---- */

enum { VERIFY_DAMAGES = 12, LAID_DAMAGES = 2, LOCAL_DAMAGES = 4 };

/* What verify must say of it. */
static const char *damage(Graph *g, int which) {
    switch (which) {
    case 0: ((Val *)(uintptr_t)node(g, SUM)->in)[0] = SUM; return "an input that comes later";
    case 1: ((Val *)(uintptr_t)node(g, SUM)->in)[0] = 0; return "an input that comes later";
    case 2: node(g, Y)->region = 1; return "an input from another region";
    case 3: g->value.at[SUM].node = Y; return "a value of another node";
    case 4: set_type(g, SUM, type(other, 1, false)); return "a layout of another mesh or rank";
    case 5: set_type(g, SUM, type_of_rank(2)); return "a layout of another mesh or rank";
    case 6: set_type(g, SUM, type_with(false, true, 0)); return "a layout with an axis twice";
    case 7: set_type(g, SUM, type(mesh, 2, false)); return "a result type that the shape rule";
    case 8:
        *node(g, SUM) = (Node){.op = OWNER, .out = SUM, .nout = 1, .region = 1};
        return "a node behind the one that owns its region";
    case 9: g->region.at[1].owner = SUM; return "a body of another node";
    case 10: g->region.at[1].param.at[0] = X; return "a parameter of another region";
    default: g->region.at[0].result.at[0] = DOUBLE; return "a result of another region";
    }
}

/* An op whose attributes are as they may be, then one by one as they may not. */
static const char *damage_attr(Graph *g, int which) {
    static CellAttr a;
    a = (CellAttr){.dim = MAX_RANK - 1, .word = 1, .flag = 1, .layout = graph_type(g, SUM)->layout};
    node(g, SUM)->op = CELL;
    node(g, SUM)->attr = &a;
    CHECKF(graph_verify(g) == E_OK, "%s", cx.err.text);
    switch (which) {
    case 0: a.dtype = DT_COUNT; break;
    case 1: a.dim = MAX_RANK; break;
    case 2: a.word = 2; break;
    case 3: a.flag = 2; break;
    case 4: a.dims = (Dims){2, {1, -2}}; break;
    case 5: a.shape = (Dims){MAX_RANK + 1, {0}}; break;
    case 6: a.axes = (AxisList){1, {{2, 1, 2}}}; break;
    case 7: a.axes = (AxisList){1, {{1, 2, 2}}}; break;
    case 8: a.axes = (AxisList){1, {{1, 65535, 65535}}}; break;
    case 9: a.mask = 4; break;
    default: a.layout = type(other, 1, false)->layout;
    }
    return "of cell is out of its range at node";
}

static const char *damage_offsets(Graph *g, int which) {
    static CellAttr a;
    static Offset offset[2];
    a = (CellAttr){0};
    memset(offset, 0, sizeof offset);
    node(g, SUM)->op = CELL;
    node(g, SUM)->attr = &a;
    node(g, SUM)->offset = offset;
    node(g, SUM)->noffset = 1;
    CHECKF(graph_verify_local(g) == E_OK, "%s", cx.err.text);
    switch (which) {
    case 0: node(g, SUM)->noffset = 2; return "a wrong number of offsets";
    case 1: node(g, SUM)->op = OWNER; return "a wrong number of offsets";
    case 2: offset->axes = (AxisList){1, {{2, 1, 2}}}; return "an offset along no axes";
    case 3: offset->unit = -1; return "an offset out of its range";
    default: offset->unit = DIMS_MOST + 1; return "an offset out of its range";
    }
}

static const char *damage_laid(Graph *g, int which) {
    if (which == 0) {
        set_type(g, SUM, type(mesh, 1, true));
        return "a local type before partitioning";
    }
    set_type(g, SUM, type_make(&cx, DT_F32, &(Dims){1, {4}}, NULL));
    return "a value without a layout";
}

static const char *damage_local(Graph *g, int which) {
    switch (which) {
    case 0: set_type(g, SUM, type(mesh, 1, false)); return "a global type after partitioning";
    case 1: set_type(g, Y, type_with(true, false, 0)); return "a local type that is split";
    case 2: set_type(g, Y, type_with(true, false, 1)); return "a result that must vary with more";
    default:
        node(g, SUM)->op = MARK;
        node(g, SUM)->nin = 1;
        return "what partitioning leaves";
    }
}

static void check_found(bool local, Err (*verify)(const Graph *),
                        const char *(*break_it)(Graph *, int), int n) {
    for (int i = 0; i < n; i++) {
        Graph *g = example(local);
        CHECKF(verify(g) == E_OK, "%s", cx.err.text);
        const char *text = break_it(g, i);
        CHECKF(verify(g) == E_PARSE, "damage %d: %s", i, text);
        CHECKF(strstr(cx.err.text, text), "damage %d: %s", i, cx.err.text);
        err_clear(&cx);
        graph_free(g);
    }
}

/* ---- equal ---- */

enum { DIFFERENCES = 33 };

static const char *differ_in_node(Graph *g, int which) {
    Node *sum = node(g, SUM);
    switch (which) {
    case 0: sum->op = MARK; return "the op differs at 6";
    case 1: sum->nin = 1; return "the operands differs at 6";
    case 2: ((Val *)(uintptr_t)sum->in)[1] = X; return "the operands differs at 6";
    case 3: sum->out = OWNED; return "the results differs at 6";
    case 4: sum->nout = 2; return "the results differs at 6";
    case 5:
        ((ParamAttr *)(uintptr_t)node(g, Y)->attr)->index = 3;
        return "an attribute differs at 2";
    case 6: sum->region = 1; return "a region differs at 6";
    case 7: node(g, OWNED)->nbody = 0; return "a region differs at 5";
    case 8: ((int32_t *)(uintptr_t)node(g, OWNED)->body)[0] = 0; return "a region differs at 5";
    case 9: sum->clone = 1; return "clone or role differs at 6";
    case 10: sum->role = 1; return "clone or role differs at 6";
    case 11: sum->nloc = 0; return "a place differs at 6";
    case 12: sum->nwhy = 0; return "a reason differs at 6";
    case 13: sum->noffset = 0; return "an offset differs at 6";
    case 14: ((Offset *)(uintptr_t)sum->offset)->unit = 4; return "an offset differs at 6";
    default:
        axes_push(&((Offset *)(uintptr_t)sum->offset)->axes, axes_whole(mesh, 0));
        return "an offset differs at 6";
    }
}

static const char *differ(Graph *g, int which) {
    Region *r = &g->region.at[0];
    Span *span = g->span.at;
    switch (which) {
    case 16: g->mesh = other; return "the mesh differs";
    case 17:
        g->value.at[SUM].type = type(mesh, 2, false);
        return "the type of a value differs at 6";
    case 18: g->value.at[SUM].node = Y; return "the type of a value differs at 6";
    case 19:
        g->region.at[1].owner = SUM;
        return "a region's parameters, results or owner differs at 1";
    case 20: r->param.n = 1; return "a region's parameters, results or owner differs at 0";
    case 21: r->param.at[1] = X; return "a region's parameters, results or owner differs at 0";
    case 22: r->result.n = 0; return "a region's parameters, results or owner differs at 0";
    case 23: r->result.at[0] = X; return "a region's parameters, results or owner differs at 0";
    case 24: span[0].first = 2; return "a span differs at 0";
    case 25: span[1].end = OWNED; return "a span differs at 1";
    case 26:
        ((RematPolicy *)(uintptr_t)span[0].policy)->save = SAVE_NAMES;
        return "a span differs at 0";
    case 27: ((CustomVjp *)(uintptr_t)span[1].rule)->bwd_end = 4; return "a span differs at 1";
    case 28: span[1].rule = NULL; return "a span differs at 1";
    case 29: g->span.n = 1; return "the number of spans differs at 1";
    case 30: g->source[3].from = X; return "where axes came from differs";
    case 31: g->source = NULL; return "where axes came from differs";
    case 32: ((CustomVjp *)(uintptr_t)span[1].rule)->t = NULL; return "a span differs at 1";
    default: return differ_in_node(g, which);
    }
}

static void test_equal(void) {
    Graph *g = example(false);
    for (int i = 0; i < DIFFERENCES; i++) {
        Graph *again = example(false);
        Str what;
        str_init(&what, &cx.alloc);
        CHECKF(graph_equal(g, again, &what) && what.n == 0, "%s", str_of(&what));
        const char *text = differ(again, i);
        CHECKF(!graph_equal(g, again, &what), "%d: %s", i, text);
        CHECKF(strncmp(str_of(&what), text, strlen(text)) == 0, "%d: %s", i, str_of(&what));
        CHECK(!graph_equal(g, again, NULL));
        str_free(&what);
        graph_free(again);
    }
    graph_free(g);
}

int main(void) {
    ctx_init(&cx);
    CHECK(intern_init(&cx) == E_OK);
    cx.interns->ops = ops;
    mesh = mesh_named("x");
    other = mesh_named("z");
    check_found(false, graph_verify, damage, VERIFY_DAMAGES);
    check_found(false, graph_verify_laid, damage_laid, LAID_DAMAGES);
    check_found(true, graph_verify_local, damage_local, LOCAL_DAMAGES);
    check_found(false, graph_verify, damage_attr, 10);
    check_found(true, graph_verify_local, damage_offsets, 5);
    test_equal();
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
