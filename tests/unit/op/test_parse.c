/* parse and print: every row with drawn attributes, types and notes reads back as it was; faults in
 * the text are told with line and column; no text at all makes the parser fall over. */
#include "ir/full.h"
#include "op/op.h"
#include "test.h"

#include <math.h>
#include <string.h>

static Ctx cx;
static uint64_t state = 12345;

static uint32_t draw(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static int64_t draw_int(void) {
    static const int64_t odd[] = {INT64_MAX, INT64_MIN + 1, -1, 1 << 20};
    return draw(8) ? (int64_t)draw(9) : odd[draw(4)];
}

static double draw_double(void) {
    double x = (draw(1000) - 500.0) / 7;
    uint64_t bits = state;
    if (!draw(4)) memcpy(&x, &bits, sizeof x);
    return x;
}

static const char *draw_name(void) {
    static const char *const names[] = {"x",          "h.0.mlp", "",   "a \"b\"\\",
                                        "two\nlines", "; why {", "nil"};
    uint32_t i = draw(8);
    return i < 7 ? intern_name(&cx, names[i]) : NULL;
}

static const Mesh *mesh_a, *mesh_b;

static AxisList draw_axes(const Mesh *m) {
    AxisList list = {0};
    uint32_t used = 0;
    for (uint32_t n = draw(3); n > 0; n--) {
        uint32_t axis = draw((uint32_t)m->naxes);
        if (used >> axis & 1) continue;
        used |= 1u << axis;
        AxisRef r = axes_whole(m, (int)axis);
        if (r.size == 4 && draw(2)) r = (AxisRef){r.axis, (uint16_t)(1 + draw(2)), 2};
        list.at[list.n++] = r;
    }
    return list;
}

static uint8_t draw_mask(const Mesh *m) {
    return draw(3) ? 0 : (uint8_t)draw(1u << m->naxes);
}

static const Layout *draw_layout(const Mesh *m, int rank) {
    Layout l;
    layout_init(&l, m, rank);
    for (int d = 0; d < rank; d++) {
        l.dim[d].axes = draw_axes(m);
        l.dim[d].open = !draw(3);
        l.dim[d].priority = draw(3) ? 0 : (uint8_t)draw(256);
        l.dim[d].refused = draw_mask(m);
    }
    l.unreduced_kind = (uint8_t)draw(3);
    l.replicated = draw_mask(m);
    l.unreduced = draw_mask(m);
    l.reduced = draw_mask(m);
    l.manual = draw_mask(m);
    l.flipped = draw_mask(m);
    l.vary = draw_mask(m);
    return layout_of(&cx, &l);
}

static Dims draw_dims(void) {
    Dims d = {0};
    for (uint32_t n = draw(4); n > 0; n--) dims_push(&d, draw(20));
    return d;
}

static const Type *draw_type(const Mesh *m) {
    Type t = {
        .dtype = (DType)draw(DT_COUNT), .weak = !draw(3), .local = !draw(2), .dims = draw_dims()};
    if (draw(3)) t.layout = draw_layout(m, t.dims.rank);
    return type_of(&cx, &t);
}

static const Loc *draw_loc(void) {
    Loc loc = {.chunk = draw_name(), .lib_chunk = draw_name(), .scope = draw_name()};
    loc.line = (int32_t)draw(3);
    loc.lib_line = (int32_t)draw(3);
    return intern_loc(&cx, &loc);
}

static const Reason *draw_reason(void) {
    Reason r;
    memset(&r, 0, sizeof r);
    r.text = draw_name();
    r.tensor = draw_name();
    r.loc = draw(2) ? draw_loc() : NULL;
    for (uint32_t n = draw(3); n > 0; n--) {
        Origin *o = &r.origin[r.norigin++];
        *o = (Origin){(uint8_t)draw(4), (uint8_t)draw(2), (int32_t)draw(3), draw_name(), NULL};
        if (!draw(3)) o->axis = ORIGIN_ANY_AXIS;
        if (draw(2)) o->loc = draw_loc();
    }
    return reason_of(&cx, &r);
}

static void draw_value(const AttrField *f, char *x, DType *dtype) {
    int32_t ints[3] = {(int32_t)draw(9), -1, INT32_MAX};
    uint32_t words = 0;
    Dims dims = {0};
    for (uint32_t n = draw(4); n > 0; n--) dims_push(&dims, draw_int());
    switch (f->kind) {
    case ATTR_INT: *(int64_t *)(void *)x = draw_int(); break;
    case ATTR_BOOL:
    case ATTR_FLAG: *(int32_t *)(void *)x = (int32_t)draw(2); break;
    case ATTR_FLOAT:
    case ATTR_NUMBER: *(double *)(void *)x = draw(4) ? draw_double() : 0; break;
    case ATTR_DTYPE: *(int32_t *)(void *)x = (int32_t)(*dtype = (DType)draw(DT_COUNT)); break;
    case ATTR_SCALAR:
        *(Scalar *)(void *)x = draw(2)   ? attr_scalar_int(draw_int())
                               : draw(2) ? attr_scalar_float(draw_double())
                                         : (Scalar){draw_int(), draw_double()};
        break;
    case ATTR_DIM: *(int32_t *)(void *)x = (int32_t)draw(4) - 1; break;
    case ATTR_DIMS:
        for (int d = 0; d < dims.rank; d++) dims.at[d] /= 2;
        *(Dims *)(void *)x = dims;
        break;
    case ATTR_SHAPE:
    case ATTR_LIST:
    case ATTR_SOME: *(Dims *)(void *)x = dims; break;
    case ATTR_AXES: *(AxisList *)(void *)x = draw_axes(mesh_a); break;
    case ATTR_MASK: *(uint32_t *)(void *)x = draw_mask(mesh_a); break;
    case ATTR_LAYOUT:
        *(const Layout **)(void *)x =
            draw(4) ? draw_layout(draw(3) ? mesh_a : mesh_b, (int)draw(3)) : NULL;
        break;
    case ATTR_NAME: *(const char **)(void *)x = draw_name(); break;
    case ATTR_ENUM:
        while (f->names[words]) words++;
        *(int32_t *)(void *)x = (int32_t)draw(words);
        break;
    case ATTR_INTS: *(const IntList **)(void *)x = attr_list_of(&cx, ints, (int32_t)draw(4)); break;
    }
}

/* A node of the op, whatever sense it makes, with all that a node can have. */
static void draw_node(Build *b, int op, Val first, int nvalue, int32_t body) {
    const OpDef *def = op_def(op);
    const Type *types[9];
    const Loc *loc[2] = {draw_loc(), draw_loc()};
    const Reason *why[2] = {draw_reason(), draw_reason()};
    Val in[9];
    int nin = def->nin < 0 ? (int)draw(4) : def->nin,
        nout = def->nout < 0 ? (int)draw(4) : def->nout;
    for (int i = 0; i < nin; i++) in[i] = first + (Val)draw((uint32_t)nvalue);
    for (int i = 0; i < nout; i++) types[i] = draw_type(mesh_a);
    char *attr = def->attr_size ? arena_alloc(&b->g->arena, def->attr_size) : NULL;
    DType dtype = DT_F32;
    for (const AttrField *f = def->attr; f && f->name; f++) draw_value(f, attr + f->offset, &dtype);
    Build at = *b;
    at.loc = loc;
    at.nloc = (int)draw(3);
    at.why = why;
    at.nwhy = (int)draw(3);
    at.role = (uint8_t)draw(3);
    if (def->flags & OPF_PARAM) {
        build_param(&at, op, attr, types[0]);
        return;
    }
    Val v = build_typed(&at, op, in, nin, attr, nout, types, &body, body != 0);
    if (nout && !draw(3)) build_set_clone(&at, v, (int32_t)draw(5) - 1);
    Offset offset[2] = {{draw_axes(mesh_a), draw_int()}, {draw_axes(mesh_a), 0}};
    if (nout && !draw(3)) build_set_offsets(&at, v, offset, 2);
    CHECK(!at.err);
}

/* Nodes of the op in a region, in another behind it, and in one that nobody owns. */
static Graph *draw_graph(int op) {
    Graph *g = graph_new(&cx);
    g->mesh = mesh_a;
    Build b = build_in(g, 0), inner = b, orphan = b;
    Val x = build_param(&b, OP_PARAM, &(ParamAttr){1, draw_name(), 1}, draw_type(mesh_a));
    Val y = build_param(&b, OP_PARAM, &(ParamAttr){7, draw_name(), 0}, draw_type(mesh_a));
    inner.region = build_region(&b);
    orphan.region = build_region(&b);
    Val p = build_param(&inner, OP_PARAM, &(ParamAttr){1, NULL, 0}, draw_type(mesh_a));
    draw_node(&b, op, x, 2, 0); /* between the nodes of a region */
    Val q = build_param(&orphan, OP_PARAM, &(ParamAttr){1, NULL, 0}, draw_type(mesh_a));
    draw_node(&inner, op, p, 1, 0);
    build_result(&inner, p);
    draw_node(&orphan, op, q, 1, 0);
    const Type *none = NULL;
    build_typed(&b, OP_WHILE, &x, 1, NULL, 0, &none, NULL, 0);
    draw_node(&b, draw(2) ? OP_SCAN : OP_FUSED, x, 2, inner.region);
    draw_node(&b, op, x, 2, 0);
    build_result(&b, y);
    build_result(&b, y);
    if (draw(2)) { /* region 0 has them in another order, and one twice */
        Region *r = &g->region.at[0];
        r->param.at[0] = y;
        r->param.at[1] = draw(2) ? x : y;
    }
    static const char *const words[] = {"a", "b"};
    RematPolicy *also = ARENA_NEW(&g->arena, RematPolicy),
                *policy = ARENA_NEW(&g->arena, RematPolicy);
    const char **names = ARENA_ARRAY(&g->arena, const char *, 2);
    for (int i = 0; i < 2; i++) names[i] = intern_name(&cx, words[i]);
    *also = (RematPolicy){.save = SAVE_NAMES, .nname = 2, .name = names};
    *policy = (RematPolicy){.save = SAVE_DOTS, .also = also};
    CustomVjp *rule = ARENA_NEW(&g->arena, CustomVjp);
    static const int32_t one[] = {1}, two[] = {2, 0};
    bool forward = draw(2);
    *rule = (CustomVjp){2, 1, 1, 2, two, two, one, one, forward ? two : NULL, forward ? one : NULL};
    if (draw(2)) graph_add_span(g, (Span){1, 2, .policy = policy});
    if (draw(2)) graph_add_span(g, (Span){1, g->node.n, .rule = rule});
    if (draw(2)) {
        g->nsource = 2 * g->mesh->naxes;
        g->source = ARENA_ARRAY(&g->arena, AxisSource, g->nsource + 1);
        g->source[3] = (AxisSource){2, 1};
        g->source[1] = (AxisSource){0, 2};
    }
    CHECK(!b.err && !inner.err && !orphan.err);
    return g;
}

static void test_rows(void) {
    for (int round = 0; round < 12; round++)
        for (int op = 1; op < OP_COUNT; op++) {
            Graph *g = draw_graph(op);
            CHECKF(graph_check_text(g) == E_OK, "%s: %s", op_def(op)->name, cx.err.text);
            graph_free(g);
        }
}

/* ---- the short form, as people write it ---- */
static const char *const program =
    "# two devices\n"
    "Mesh(x=2, y=4 explicit) laid\n"
    "%1 = param {name=\"a\"} : float32[4@x,8]\n"
    "%2 = param : float32[4,8]{weak}  ; mlp.lua:12 (h.0)\n"
    "%20 = neg %2  ; (h.1)\n"
    "%21 = neg %20  ; (h.2): for a reason\n"
    "%22 = neg %21  ; for no place\n"
    "\n"
    "%7 = add %1 %2 : float32[4@x,8]  ; mlp.lua:12 (h.0), b.lua:3: a reason\n"
    "%9 = scan %7 {ncarry=1, length=3} : float32[4@x,8] {\n"
    "  %3 = param : float32[4@x,8]\n"
    "  %4 = sin %3 : float32[4@x,8]\n"
    "  return %4\n"
    "}\n"
    "return %9 %7\n";

static void test_short(void) {
    Graph *g = NULL;
    CHECKF(graph_parse(&cx, program, strlen(program), &g) == E_OK, "%s", cx.err.text);
    if (!g) return;
    CHECKF(graph_verify(g) == E_OK && graph_check_text(g) == E_OK, "%s", cx.err.text);
    const Node *add = graph_def(g, 5);
    CHECK(add->nloc == 2 && add->loc[0]->line == 12 && add->nwhy == 1);
    CHECK(strcmp(add->loc[0]->scope, "h.0") == 0 && strcmp(add->why[0]->text, "a reason") == 0);
    const Node *scoped = graph_def(g, 7), *reasoned = graph_def(g, 8), *bare = graph_def(g, 9);
    CHECK(scoped->nloc == 1 && scoped->nwhy == 0 && !scoped->loc[0]->chunk);
    CHECK(strcmp(scoped->loc[0]->scope, "h.1") == 0 && scoped->loc[0]->line == 0);
    CHECK(reasoned->nloc == 1 && reasoned->nwhy == 1 && !reasoned->loc[0]->chunk);
    CHECK(strcmp(reasoned->why[0]->text, "for a reason") == 0);
    CHECK(bare->nloc == 0 && bare->nwhy == 1 && strcmp(bare->why[0]->text, "for no place") == 0);
    CHECK(((const ParamAttr *)graph_def(g, 2)->attr)->index == 2);
    CHECK(g->mesh->ndevices == 8 && g->mesh->type[1] == AXIS_EXPLICIT && graph_type(g, 2)->layout);
    Str s;
    str_init(&s, &cx.alloc);
    graph_print(g, &s);
    CHECKF(strstr(str_of(&s), "%5 = add %1 %2 : float32[4@x,8]  ; mlp.lua:12 (h.0), b.lua:3: a "
                              "reason\n"),
           "%s", str_of(&s));
    str_free(&s);
    graph_free(g);
}

/* Types that are left out follow from the ops' rules, in local shapes where the first line says so.
 */
static void test_inferred(void) {
    static const char text[] = "Mesh(x=2) local\n"
                               "%1 = param : float32[4]{V:x}\n"
                               "%2 = all_reduce %1 {axes=x, kind=sum}\n"
                               "%3 = exp %1\n"
                               "return %2 %3\n";
    Graph *g = NULL;
    CHECKF(graph_parse(&cx, text, strlen(text), &g) == E_OK, "%s", cx.err.text);
    if (!g) return;
    CHECK(graph_type(g, 2)->local && graph_type(g, 2)->layout->vary == 0);
    CHECK(graph_type(g, 3)->layout->vary == 1);
    graph_free(g);
}

/* A NaN is read as the one that was printed; what is none stays none. */
static void test_nan(void) {
    static const struct {
        const char *text;
        uint64_t bits;
    } rows[] = {{"nan", 0x7ff8000000000000},
                {"nan(0x7ff8000000000123)", 0x7ff8000000000123},
                {"nan(0xfff4000000000001)", 0xfff4000000000001},
                {"nan(0x3ff0000000000000)", 0x7ff8000000000000},
                {"inf", 0x7ff0000000000000},
                {"-inf", 0xfff0000000000000},
                {"-0.0", 0x8000000000000000}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        uint64_t bits = 0;
        Graph *g = NULL;
        snprintf(text, sizeof text,
                 "%%1 = param : float32[4]\n%%2, %%3 = attention %%1 %%1 %%1 {scale=%s} : "
                 "float32[4], float32[4]\n"
                 "return %%2\n",
                 rows[i].text);
        CHECKF(graph_parse(&cx, text, strlen(text), &g) == E_OK, "%s", cx.err.text);
        if (!g) continue;
        memcpy(&bits, graph_def(g, 2)->attr, sizeof bits); /* scale stands first */
        CHECKF(bits == rows[i].bits, "%s: %llx", rows[i].text, (unsigned long long)bits);
        CHECKF(graph_check_text(g) == E_OK, "%s", cx.err.text);
        graph_free(g);
    }
}

static void test_errors(void) {
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "line 1, column 1: expected '%', found the end"},
        {"return %1\n", "line 1, column 8: expected a value that is made before, found '%1'"},
        {"%1 = param : float32[4]\nreturn %1\nreturn %1\n",
         "line 3, column 1: expected the end, found 'return %1'"},
        {"%1 = parm : float32[4]\n", "line 1, column 6: expected an op, found 'parm : float32[4]'"},
        {"%1 = param : float33[4]\n", "line 1, column 14: expected a dtype, found 'float33[4]'"},
        {"%1 = param : float32[4@x]\n",
         "line 1, column 24: expected a mesh before its axes, found 'x]'"},
        {"Mesh(x=2)\n%1 = param : float32[4@y]\n",
         "line 2, column 24: expected an axis of the mesh, found 'y]'"},
        {"Mesh(x=2, x=2)\n", "line 1, column 1: expected a mesh (mesh: two axes are called 'x'), "
                             "found 'Mesh(x=2, x=2)'"},
        {"%1 = param {idx=1} : float32[4]\n",
         "line 1, column 13: expected an attribute of param, found 'idx=1} : float32[4]'"},
        {"%1 = param : float32[4]\n%2 = add %1 : float32[4]\n",
         "line 2, column 13: expected 2 operands of add (x,y), found ': float32[4]'"},
        {"%1 = param : float32[4]\n%1 = sin %1 : float32[4]\n",
         "line 2, column 1: expected a value that is not made yet (%1 is), found '%1 = sin %1 : "
         "float3'"},
        {"%1 = param : float32[4]\n%2, %4 = sin %1 : float32[4]\n",
         "line 2, column 5: expected %3, the result behind the one before, found '%4 = sin %1 : "
         "float3'"},
        {"%1 = param : float32[4]\n%2 = param : float32[5]\n%3 = add %1 %2\nreturn %3\n",
         "line 3, column 1: expected a node whose types can be found (add: shapes differ (x "},
        {"%1 = param : float32[4]\n%2 = scan %1 {ncarry=1} : float32[4] {\n%3 = param : "
         "float32[4]\n"
         "return %3\n}\nreturn %2\n",
         "line 2, column 39: expected values below %2 in its region, found the end of the line"},
        {"%1 = param : float32[4]\n%3 = scan %1 {ncarry=1} : float32[4] {\n%2 = sin %1\n",
         "line 3, column 10: expected a value of this region, which %1 is not, found '%1'"},
        {"%1 = param {name=\"a\\q\"} : float32[4]\n",
         "line 1, column 21: expected '\"', '\\' or 'x' and two hexadecimal digits behind a "
         "backslash, "
         "found 'q\"} : float32[4]'"},
        {"%1 = param {index=99999999999999999999} : float32[4]\n",
         "line 1, column 19: expected an integer from "},
        {"Mesh(x=2)\n%1 = param : float32[4]\nreturn %1\nsources 2\nsource %2 x %1 #1\n",
         "line 5, column 8: expected a value, an axis and a source among 2, found '%2 x %1 #1'"},
        {"Mesh(x=2)\n%1 = param : float32[4]\nreturn %1\nsources 2\nsource %1 x %2 #1\n",
         "line 5, column 8: expected a value, an axis and a source among 2, found '%1 x %2 #1'"},
        {"Mesh(x=2)\n%1 = param : float32[4]\nreturn %1\nsources 2\nsource %1 x %1 #2\n",
         "line 5, column 8: expected a value, an axis and a source among 2, found '%1 x %1 #2'"},
        {"%1 = param : float32[4]\nreturn %1\nsources 2\n",
         "line 3, column 10: expected a mesh before its axes, found the end of the line"},
        {"%1 = param : float32[4]\nreturn %1\nspan #1 #3\n",
         "line 3, column 11: expected nodes before this, found the end of the line"},
        {"%1 = param : float32[4]\nreturn %1\nspan #2 #1\n",
         "line 3, column 11: expected nodes before this, found the end of the line"},
        {"%1 = param : float32[4]\nreturn %1\nspan #1 #2 rule #1 #2 x %1 dx y %1 ct %1\n",
         "line 3, column 41: expected as many dx as x and as many ct as y before this, found the "
         "end of the line"},
        {"%1 = param : float32[4]\nreturn %1\nspan #1 #2 rule #1 #2 x %1 dx %1 y ct %1\n",
         "line 3, column 41: expected as many dx as x and as many ct as y before this, found the "
         "end of the line"},
        {"%1 = param : float32[4]\nreturn %1\nspan #1 #2 rule #1 #3 x %1 dx %1 y %1 ct %1\n",
         "line 3, column 44: expected nodes before this, found the end of the line"},
        {"%1 = param : float32[4]\nreturn %1\nspan #1 #2 rule #2 #1 x %1 dx %1 y %1 ct %1\n",
         "line 3, column 44: expected nodes before this, found the end of the line"},
        {"%1 = param : float32[4]\nreturn %1\norphan {#2\n%2 = param : float32[4]\nreturn %2\n}\n",
         "line 7, column 1: expected the numbers #1 to #1 of regions before this, once each, found "
         "the end"},
        {"%1 = param : float32[4]{V:x}\nreturn %1\n",
         "line 1, column 25: expected V, U, U_max, U_min, R, rep, M, F, weak, local, global, bare "
         "or laid, found 'V:x}'"},
        {"%1 = param : float32[4]{rep:()}\nreturn %1\n",
         "line 1, column 25: expected V, U, U_max, U_min, R, rep, M, F, weak, local, global, bare "
         "or laid, found 'rep:()}'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Graph *g = NULL;
        CHECKF(graph_parse(&cx, rows[i].text, strlen(rows[i].text), &g) == E_PARSE, "row %zu",
               i + 1);
        CHECKF(strncmp(cx.err.text, rows[i].error, strlen(rows[i].error)) == 0, "row %zu: %s",
               i + 1, cx.err.text);
        graph_free(g);
    }
}

/* Text with bytes changed, dropped, doubled and moved: an error, or a graph that reads back. */
static void test_mutated(int rounds) {
    int good = 0;
    for (int i = 0; i < rounds; i++) {
        Str s;
        str_init(&s, &cx.alloc);
        Graph *g = i % 4 ? draw_graph(1 + (int)draw(OP_COUNT - 1)) : NULL, *out = NULL;
        if (g)
            graph_print_full(g, &s);
        else
            str_put(&s, program);
        for (uint32_t n = 1 + draw(3); n > 0 && s.n > 8; n--) {
            static const char signs[] = "%@,:;=[](){}<>!?\"\\#0123456789axyV \n-+.";
            uint32_t at = draw((uint32_t)s.n - 4), from = draw((uint32_t)s.n - 4);
            switch (draw(5)) {
            case 0: s.at[at] = signs[draw(sizeof signs - 1)]; break;
            case 1: s.at[at] = (char)draw(256); break;
            case 2:
                memmove(s.at + at, s.at + at + 1, s.n - at);
                s.n--;
                break;
            case 3: memmove(s.at + at, s.at + from, 4); break;
            default: s.n = at + 1; break;
            }
        }
        Err e = graph_parse(&cx, str_of(&s), s.n, &out);
        CHECKF(e == E_OK || e == E_PARSE, "%s", cx.err.text);
        if (!e) {
            good++;
            CHECKF(graph_check_text(out) == E_OK, "%s\n%s", cx.err.text, str_of(&s));
            graph_print(out, &s);
        }
        graph_free(out);
        graph_free(g);
        str_free(&s);
    }
    CHECKF(good > rounds / 100, "%d", good); /* so that graphs are among them, too */
}

/* Whatever allocation fails, the parse says so and nothing leaks. */
static void starve(const char *text, size_t length) {
    bool failed = true;
    size_t live = cx.alloc.live;
    for (int n = 0; failed; n++) {
        Graph *g = NULL;
        cx.alloc.fail_in = n;
        Err e = graph_parse(&cx, text, length, &g);
        failed = cx.alloc.fail_in < 0;
        cx.alloc.fail_in = -1;
        CHECKF(failed ? e == E_NOMEM : e == E_OK, "%d: %s", n, cx.err.text);
        graph_free(g);
        CHECK(cx.alloc.live <= live + (1 << 16));
    }
}

static void test_out_of_memory(void) {
    starve(program, strlen(program));
    for (int op = 1; op < OP_COUNT; op++) { /* all kinds of attributes */
        Graph *g = draw_graph(op);
        Str s;
        str_init(&s, &cx.alloc);
        graph_print_full(g, &s);
        starve(str_of(&s), s.n);
        str_free(&s);
        graph_free(g);
    }
}

/* A graph that is not what its text says is told of with the text, and that is all. */
static void test_other_text(void) {
    Graph *g = draw_graph(OP_SIN);
    CHECK(graph_check_text(g) == E_OK);
    size_t live = cx.alloc.live;
    g->value.at[g->value.n - 1].node = 1; /* no text has that */
    CHECK(graph_check_text(g) == E_PARSE);
    CHECKF(strstr(cx.err.text, "the type of a value differs at "), "%s", cx.err.text);
    CHECKF(strstr(cx.err.text, "; the text:\nMesh("), "%s", cx.err.text);
    CHECKF(strstr(cx.err.text, "= sin"), "%s", cx.err.text);
    CHECKF(cx.alloc.live <= live, "%zu, %zu", cx.alloc.live, live);
    err_clear(&cx);
    graph_free(g);
}

int main(int argc, char **argv) {
    ctx_init(&cx);
    CHECK(intern_init(&cx) == E_OK && op_init(&cx) == E_OK);
    const char *const names[] = {"x", "an axis"};
    CHECK(mesh_of(&cx, 2, names, (int32_t[]){4, 2}, (uint8_t[]){AXIS_AUTO, AXIS_EXPLICIT},
                  (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7}, &mesh_a) == E_OK);
    CHECK(mesh_of(&cx, 1, names, (int32_t[]){4}, NULL, (int32_t[]){3, 1, 0, 2}, &mesh_b) == E_OK);
    test_rows();
    test_short();
    test_inferred();
    test_nan();
    test_errors();
    test_mutated(argc > 1 ? atoi(argv[1]) : 2000);
    test_out_of_memory();
    test_other_text();
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
