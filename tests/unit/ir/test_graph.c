/* graph, build, verify, print: with an op table of three rows, which is all that this layer asks
 * for. */
#include "ir/build.h"
#include "test.h"

#include <string.h>

enum { NONE, PARAM, ADD, SPLIT, OWNER, OPS };

static Err same(const OpArgs *a, OutType *out, int *nout) {
    for (int i = 1; i < a->nin; i++)
        if (!dims_equal(&a->in[i]->dims, &a->in[0]->dims))
            return err_set(a->cx, E_SHAPE, "%s: dims differ", a->def->name);
    for (int i = 0; i < *nout; i++) out[i] = (OutType){a->in[0]->dtype, false, a->in[0]->dims};
    return E_OK;
}

typedef struct ParamAttr {
    int64_t index;
} ParamAttr;
static const AttrField param_fields[] = {ATTR_FIELD(ParamAttr, ATTR_INT, index),
                                         {NULL, ATTR_INT, 0, NULL}};

static const OpDef ops[OPS] = {
    [NONE] = {.name = "none"},
    [PARAM] = {.name = "param",
               .operands = "",
               .nout = 1,
               .flags = OPF_PARAM | OPF_TYPED,
               .attr = param_fields,
               .attr_size = sizeof(ParamAttr)},
    [ADD] = {.name = "add", .operands = "x,y", .nin = 2, .nout = 1, .shape = same},
    [OWNER] = {.name = "owner", .operands = "x", .nin = 1, .nout = 1, .flags = OPF_TYPED},
    [SPLIT] = {.name = "split", .operands = "x", .nin = 1, .nout = 2, .shape = same},
};

static void start(Ctx *cx) {
    ctx_init(cx);
    CHECK(intern_init(cx) == E_OK);
    cx->interns->ops = ops;
}

static const Type *type(Ctx *cx, int64_t n) {
    return type_make(cx, DT_F32, &(Dims){1, {n}}, NULL);
}

/* (x, y) -> the parts of x + y, added */
static void build_example(Build *b, Ctx *cx) {
    const Type *t = type(cx, 4);
    if (!t) build_fail(b, err_nomem(cx, "a type"));
    if (b->err) return;
    Val x = build_param(b, PARAM, &(ParamAttr){1}, t),
        y = build_param(b, PARAM, &(ParamAttr){2}, t);
    Val sum = build_op(b, ADD, (Val[]){x, y}, 2, NULL);
    Val parts = build_op(b, SPLIT, &sum, 1, NULL);
    build_result(b, build_op(b, ADD, (Val[]){parts, parts ? parts + 1 : 0}, 2, NULL));
}

static void test_example(void) {
    Ctx cx;
    start(&cx);
    Graph *g = graph_new(&cx), *again = graph_new(&cx);
    Build b = build_in(g, 0), c = build_in(again, 0);
    const Loc *loc = intern_loc(
        &cx,
        &(Loc){.chunk = intern_name(&cx, "mlp.lua"), .line = 12, .scope = intern_name(&cx, "h.3")});
    b.loc = &loc;
    b.nloc = 1;
    build_example(&b, &cx);
    build_example(&c, &cx);
    CHECK(!b.err && !c.err && graph_verify(g) == E_OK);
    GraphHash h1 = graph_hash(g), h2 = graph_hash(again);
    CHECK(h1.lo == h2.lo && h1.hi == h2.hi); /* places do not count */
    Str s;
    str_init(&s, &cx.alloc);
    graph_print(g, &s);
    CHECKF(strcmp(str_of(&s), "%1 = param {index=1} : float32[4]  ; mlp.lua:12 (h.3)\n"
                              "%2 = param {index=2} : float32[4]  ; mlp.lua:12 (h.3)\n"
                              "%3 = add %1 %2 : float32[4]  ; mlp.lua:12 (h.3)\n"
                              "%4, %5 = split %3 : float32[4], float32[4]  ; mlp.lua:12 (h.3)\n"
                              "%6 = add %4 %5 : float32[4]  ; mlp.lua:12 (h.3)\n"
                              "return %6\n") == 0,
           "%s", str_of(&s));
    str_free(&s);
    Arena scratch;
    arena_init(&scratch, &cx.alloc);
    int32_t *counts = graph_use_counts(g, &scratch);
    CHECK(counts[1] == 1 && counts[3] == 1 && counts[5] == 1 && counts[6] == 1);
    Uses u = graph_uses(g, &scratch);
    CHECK(u.start[4] - u.start[3] == 1 && u.list[u.start[3]] == graph_def(g, 4) - g->node.at);
    CHECK(u.start[7] == u.start[6]); /* a region's result is no user */
    arena_free(&scratch);
    build_result(&c, 3);
    h2 = graph_hash(again);
    CHECK(h1.lo != h2.lo);
    graph_free(g);
    graph_free(again);
    graph_free(NULL);
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
}

/* A region in a region, inlined: the outer one's nodes stand where it was asked for, the inner one
 * comes along as a region of its own. */
static void test_inline(void) {
    Ctx cx;
    start(&cx);
    Graph *g = graph_new(&cx);
    Build b = build_in(g, 0), body = b, inner = b;
    const Type *t = type(&cx, 4);
    Val x = build_param(&b, PARAM, &(ParamAttr){1}, t);
    body.region = build_region(&b);
    Val p = build_param(&body, PARAM, &(ParamAttr){1}, t);
    Val q = build_param(&body, PARAM, &(ParamAttr){2}, t);
    inner.region = build_region(&body);
    Val r = build_param(&inner, PARAM, &(ParamAttr){1}, t);
    build_result(&inner, build_op(&inner, ADD, (Val[]){r, r}, 2, NULL));
    Val owned = build_typed(&body, OWNER, &p, 1, NULL, 1, &t, &inner.region, 1);
    build_result(&body, build_op(&body, ADD, (Val[]){owned, q}, 2, NULL));
    build_result(&body, p);
    CHECK(!b.err && !body.err && !inner.err && graph_within(g, inner.region, body.region));
    Val out[2];
    build_inline(&b, body.region, (Val[]){x, x}, 7, out);
    CHECK(!b.err && out[1] == x && graph_verify(g) == E_OK);
    build_result(&b, out[0]);
    const Node *sum = graph_def(g, out[0]), *owner = graph_def(g, sum->in[0]);
    CHECK(sum->op == ADD && sum->in[1] == x && sum->region == 0 && sum->clone == 7);
    CHECK(owner->op == OWNER && owner->nbody == 1 && owner->body[0] != inner.region);
    CHECK(graph_within(g, owner->body[0], 0) && g->region.at[owner->body[0]].result.n == 1);
    Str s;
    str_init(&s, &cx.alloc);
    graph_print(g, &s);
    CHECKF(strcmp(str_of(&s), "%1 = param {index=1} : float32[4]\n"
                              "%10 = owner %1 clone=7 : float32[4] {\n"
                              "  %8 = param {index=1} : float32[4]\n"
                              "  %9 = add %8 %8 clone=7 : float32[4]\n"
                              "  return %9\n"
                              "}\n"
                              "%11 = add %10 %1 clone=7 : float32[4]\n"
                              "return %11\n") == 0,
           "%s", str_of(&s));
    str_free(&s);
    graph_free(g);
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
}

static void test_errors_stick(void) {
    Ctx cx;
    start(&cx);
    Graph *g = graph_new(&cx);
    Build b = build_in(g, 0);
    Val x = build_param(&b, PARAM, NULL, type(&cx, 4)),
        y = build_param(&b, PARAM, NULL, type(&cx, 5));
    CHECK(build_op(&b, ADD, (Val[]){x, 0}, 2, NULL) == 0 && !b.err); /* a missing operand only */
    CHECK(build_op(&b, ADD, (Val[]){x, y}, 2, NULL) == 0 && b.err == E_SHAPE);
    CHECK(build_op(&b, ADD, (Val[]){x, x}, 2, NULL) == 0);
    CHECK(strcmp(cx.err.text, "add: dims differ") == 0);
    Build c = build_in(g, 0);
    CHECK(build_op(&c, ADD, &x, 1, NULL) == 0 && c.err == E_VALUE);
    CHECK(graph_verify(g) == E_OK);
    graph_free(g);
    intern_free(&cx);
}

/* Whatever allocation fails, the build says so and nothing leaks. */
static void test_out_of_memory(void) {
    bool failed = true;
    int n = 0;
    for (; failed; n++) {
        Ctx cx;
        start(&cx);
        cx.alloc.fail_in = n;
        Graph *g = graph_new(&cx);
        failed = !g;
        if (g) {
            Build b = build_in(g, 0);
            build_example(&b, &cx);
            failed = b.err != E_OK;
            CHECK(!b.err || b.err == E_NOMEM);
            if (!b.err) CHECK(graph_verify(g) == E_OK);
        }
        cx.alloc.fail_in = -1;
        graph_free(g);
        intern_free(&cx);
        CHECK(cx.alloc.live == 0);
        CHECK(n < 1000);
    }
    CHECK(n > 2);
}

int main(void) {
    test_example();
    test_inline();
    test_errors_stick();
    test_out_of_memory();
    return test_end();
}
