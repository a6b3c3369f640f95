/* Broken invariants of passes: each comes back as E_INTERNAL, with the graph in a file, all memory
 * as before, and the next program planned as if nothing had happened. */
#include "op/op.h"
#include "pass/pass.h"
#include "test.h"

#include <string.h>
#include <unistd.h>

static Ctx cx;
static OpDef rows[OP_COUNT];
static const char *breaks_in; /* the name in what is asserted */

static void breaks(void) {
    ASSERT(!breaks_in, "%s", breaks_in);
}
static void broken_factors(const OpArgs *a, const Type *const *out, FactorRule *r) {
    breaks();
    op_def(OP_SIN)->factors(a, out, r);
}
static int32_t broken_fold(Build *b, const Node *n, const int32_t *in) {
    breaks();
    (void)b, (void)n, (void)in;
    return 0;
}
static double broken_flops(const OpArgs *a, const Type *const *out) {
    breaks();
    (void)a, (void)out;
    return 1;
}
static void broken_vjp(Build *b, const VjpArgs *a) {
    breaks();
    op_def(OP_SIN)->vjp(b, a);
}
static void broken_batch(Build *b, const BatchArgs *a) {
    breaks();
    op_def(OP_CUMSUM)->batch(b, a);
}

static Graph *sine(const Mesh *m) {
    Graph *g = graph_new(&cx);
    g->mesh = m;
    Build b = build_in(g, 0);
    Layout l;
    layout_init(&l, m, 1);
    axes_push(&l.dim[0].axes, axes_whole(m, 0));
    const Type *t = type_make(&cx, DT_F32, &(Dims){1, {64}}, layout_of(&cx, &l));
    Val x = build_param(&b, OP_PARAM, &(ParamAttr){.index = 1}, t);
    build_result(&b, op1(&b, OP_SIN, x));
    CHECK(b.err == E_OK);
    return g;
}

static Err plan(const Graph *g) {
    const uint8_t donated[] = {DONATE_NO};
    const Type *types[1];
    Plan *p = NULL;
    PassOptions o = {.target = target_of("h200"), .verify = true};
    Err e = pipeline_run(g, &o, donated, &p, types);
    if (!e) plan_free(&cx, p);
    return e;
}

/* The file that the error in flight names, as text; it is removed. */
static void read_kept(char *to, size_t room) {
    to[0] = '\0';
    const char *at = strstr(cx.err.text, "/meshlua-");
    CHECKF(at != NULL, "%s", cx.err.text);
    if (!at) return;
    while (at > cx.err.text && at[-1] != ' ') at--;
    char path[512];
    snprintf(path, sizeof path, "%s", at);
    FILE *f = fopen(path, "r");
    CHECKF(f != NULL, "%s", path);
    if (!f) return;
    to[fread(to, 1, room - 1, f)] = '\0';
    fclose(f);
    unlink(path);
}

static void check_broken(Err e, const char *stage, const char *what, size_t live) {
    CHECKF(e == E_INTERNAL, "%s: %d", stage, e);
    CHECKF(strstr(cx.err.text, "broken invariant at ") &&
               strstr(cx.err.text, "tests/unit/pass/test_guarded.c:"),
           "%s", cx.err.text);
    char expected[64], text[4096];
    snprintf(expected, sizeof expected, "the graph before '%s' is in ", stage);
    CHECKF(strstr(cx.err.text, expected) && strstr(cx.err.text, what), "%s", cx.err.text);
    read_kept(text, sizeof text);
    CHECKF(strstr(text, "= sin %") || strstr(text, "= cumsum %"), "%s", text);
    CHECKF(cx.alloc.live == live, "%zu bytes, not %zu", cx.alloc.live, live);
    CHECK(cx.alloc.guard == NULL);
    err_clear(&cx);
}

static void test_pipeline(void) {
    const int32_t sizes[] = {4}, ids[] = {0, 1, 2, 3};
    const Mesh *m = NULL;
    CHECK(mesh_of(&cx, 1, (const char *const[]){"x"}, sizes, NULL, ids, &m) == E_OK);
    Graph *g = sine(m);
    CHECK(plan(g) == E_OK);
    size_t live = cx.alloc.live;
    static const struct {
        const char *stage;
        size_t field;
        void (*fn)(void);
    } at[] = {
        {"simplify", offsetof(OpDef, fold), (void (*)(void))broken_fold},
        {"propagate", offsetof(OpDef, factors), (void (*)(void))broken_factors},
        {"overlap", offsetof(OpDef, flops), (void (*)(void))broken_flops},
    };
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        memcpy((char *)&rows[OP_SIN] + at[i].field, &at[i].fn, sizeof at[i].fn);
        breaks_in = at[i].stage;
        check_broken(plan(g), at[i].stage, at[i].stage, live);
        breaks_in = NULL;
        CHECK(plan(g) == E_OK);
        rows[OP_SIN] = *op_def(OP_SIN);
    }
    graph_free(g);
}

static bool broken_view(ViewArgs *v) {
    bool ok = op_def(OP_TRANSPOSE)->view(v);
    v->start = 1 << 20;
    return ok;
}

/* A plan that its verifier refuses is freed, too: it lies in no arena. */
static void test_bad_plan(void) {
    Graph *g = graph_new(&cx);
    Build b = build_in(g, 0);
    const Type *t = type_make(&cx, DT_F32, &(Dims){2, {8, 4}}, NULL);
    Val x = build_param(&b, OP_PARAM, &(ParamAttr){.index = 1}, t);
    build_result(&b, op1(&b, OP_SIN, op_transpose(&b, x, &(Dims){2, {1, 0}})));
    CHECK(b.err == E_OK && plan(g) == E_OK);
    size_t live = cx.alloc.live;
    rows[OP_TRANSPOSE].view = broken_view;
    CHECK(plan(g) == E_INTERNAL);
    CHECKF(strstr(cx.err.text, "a bad plan: a value outside its buffer"), "%s", cx.err.text);
    char text[4096];
    read_kept(text, sizeof text);
    CHECKF(cx.alloc.live == live, "%zu bytes, not %zu", cx.alloc.live, live);
    err_clear(&cx);
    rows[OP_TRANSPOSE] = *op_def(OP_TRANSPOSE);
    CHECK(plan(g) == E_OK);
    graph_free(g);
}

static Graph *summed(Build *b, Val *x, Val *y) {
    Graph *g = graph_new(&cx);
    *b = build_in(g, 0);
    const Type *t = type_make(&cx, DT_F32, &(Dims){1, {8}}, NULL);
    *x = build_param(b, OP_PARAM, &(ParamAttr){.index = 1}, t);
    *y = op1(b, OP_SIN, build_op(b, OP_CUMSUM, x, 1, NULL));
    return g;
}

static void test_traced(void) {
    Build b;
    Val x, y, grad;
    Graph *g = summed(&b, &x, &y);
    size_t live = cx.alloc.live;
    rows[OP_SIN].vjp = broken_vjp;
    breaks_in = "vjp";
    Build at = b;
    pass_grad(&at, &y, &y, 1, &x, 1, &grad);
    check_broken(at.err, "grad", "vjp", cx.alloc.live);
    rows[OP_CUMSUM].batch = broken_batch;
    breaks_in = "batch";
    const Type *t = type_make(&cx, DT_F32, &(Dims){2, {3, 8}}, NULL);
    Val all = build_param(&b, OP_PARAM, &(ParamAttr){.index = 2}, t);
    bool mapped;
    BatchCall c = {.first = 2,
                   .example = &x,
                   .all = &all,
                   .nexample = 1,
                   .size = 3,
                   .out = &y,
                   .is_mapped = &mapped,
                   .nout = 1};
    at = b;
    pass_batch(&at, &c);
    check_broken(at.err, "vmap", "batch", cx.alloc.live);
    breaks_in = NULL;
    at = b;
    pass_batch(&at, &c);
    CHECK(at.err == E_OK && mapped);
    graph_free(g);
    CHECK(cx.alloc.live <= live);
}

int main(void) {
    ctx_init(&cx);
    CHECK(intern_init(&cx) == E_OK && op_init(&cx) == E_OK);
    memcpy(rows, cx.interns->ops, sizeof rows);
    cx.interns->ops = rows;
    test_pipeline();
    test_bad_plan();
    test_traced();
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
