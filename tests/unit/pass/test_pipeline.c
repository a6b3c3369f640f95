/* The pipeline as a whole: which stages run and are told of, what of the results is known, and that
 * memory that runs out anywhere in it ends in an error and leaves nothing. */
#include "ir/full.h"
#include "op/op.h"
#include "pass/pass.h"
#include "test.h"

#include <string.h>

static Ctx cx;

enum { MOST_RESULTS = 4 };

/* Two rounds of propagation (a softmax over split rows goes by its definition), a loop whose sum is
 * hoisted, sums that go together, and elementwise ops that are fused. */
static const char *const programs[] = {
    "Mesh(x=2)\n"
    "%1 = param : float32[64,64@x]\n"
    "%2 = softmax %1\n"
    "%3 = exp %2\n"
    "%4 = neg %3\n"
    "return %4 %2\n",
    "Mesh(x=2)\n"
    "%1 = param : float32[8@x,16]\n"
    "%2 = param : float32[16,16]\n"
    "%3 = param : float32[4,8@x]\n"
    "%4 = matmul %1 %2 {x_contract=[2], w_contract=[1]}\n"
    "%5 = matmul %3 %4 {x_contract=[2], w_contract=[1]}\n"
    "%6 = matmul %3 %1 {x_contract=[2], w_contract=[1]}\n"
    "%7 = add %5 %6\n"
    "%8 = tanh %7\n"
    "return %8\n",
    "%1 = param : float32[4]\n"
    "%2 = param : float32[3,4]\n"
    "%9 = scan %1 %2 {ncarry=1, nxs=1, length=3} : float32[4] {\n"
    "  %3 = param : float32[4]\n"
    "  %4 = param : float32[4]\n"
    "  %5 = add %3 %4\n"
    "  %6 = sin %5\n"
    "  return %6\n"
    "}\n"
    "return %9\n"};
enum { PROGRAMS = sizeof programs / sizeof *programs };

typedef struct Told {
    char names[256]; /* of the stages, with blanks between them */
    const char *only;
    int texts;
} Told;

static bool wants(void *ud, const char *stage) {
    const Told *t = ud;
    return !t->only || strcmp(t->only, stage) == 0;
}

static void note(void *ud, const char *stage, const char *text) {
    Told *t = ud;
    CHECKF(strlen(text) > 10 && text[strlen(text) - 1] == '\n', "%s: %s", stage, text);
    strcat(strcat(t->names, t->names[0] ? " " : ""), stage);
    t->texts++;
}

static Graph *read(const char *text) {
    Graph *g = NULL;
    CHECKF(graph_parse(&cx, text, strlen(text), &g) == E_OK, "%s", cx.err.text);
    return g;
}

static Err run(const Graph *g, PassOptions o, Told *told, Plan **p, const Type **types) {
    static const uint8_t donated[8];
    if (told) {
        o.dump = note;
        o.wants = wants;
        o.dump_ud = told;
    }
    *p = NULL;
    return pipeline_run(g, &o, donated, p, types);
}

static void check_stages(const char *text, PassOptions o, const char *only, const char *want) {
    Told told = {.only = only};
    const Type *types[MOST_RESULTS];
    Plan *p;
    Graph *g = read(text);
    CHECKF(run(g, o, &told, &p, types) == E_OK, "%s", cx.err.text);
    CHECKF(strcmp(told.names, want) == 0, "%s, not %s", told.names, want);
    plan_free(&cx, p);
    graph_free(g);
}

static void test_stages(void) {
    const PassOptions cpu = {.target = target_of("cpu"), .verify = true},
                      gpu = {.target = target_of("h200"), .verify = true, .reread = true};
    PassOptions o = cpu;
    check_stages(
        programs[1], cpu, NULL,
        "trace simplify factors propagate partition hoist comm sum_products split fuse plan");
    check_stages(programs[1], gpu, NULL,
                 "trace simplify factors propagate partition hoist comm overlap sum_products split "
                 "fuse plan");
    o.expand = true;
    o.off = 1u << SWITCH_HOIST | 1u << SWITCH_SUM_PRODUCTS;
    o.on = 1u << SWITCH_OVERLAP;
    check_stages(programs[1], o, NULL,
                 "trace expand simplify factors propagate partition comm overlap split fuse plan");
    for (int i = 0; pipeline_stage(i); i++) {
        const char *name = pipeline_stage(i);
        bool is_there = strcmp(name, "expand") != 0 && strcmp(name, "overlap") != 0 &&
                        strcmp(name, "branches") != 0;
        check_stages(programs[1], cpu, name, is_there ? name : "");
        if (i == 0) CHECK(strcmp(name, "trace") == 0);
        if (!pipeline_stage(i + 1)) CHECK(strcmp(name, "plan") == 0 && i == 12);
    }
    check_stages(programs[1], cpu, "no stage", "");
}

/* Types of results are the global ones. */
static void test_types(void) {
    const PassOptions o = {.target = target_of("cpu"), .verify = true};
    const Type *types[MOST_RESULTS];
    Plan *p;
    Graph *g = read(programs[0]);
    CHECK(run(g, o, NULL, &p, types) == E_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(types[i]->dims.rank == 2 && types[i]->dims.at[0] == 64 && types[i]->dims.at[1] == 64);
        CHECK(!types[i]->local && types[i]->layout && types[i]->layout->dim[1].axes.n == 1);
    }
    plan_free(&cx, p);
    graph_free(g);
}

static void test_out_of_memory(void) {
    for (int k = 0; k < PROGRAMS; k++)
        for (int gpu = 0; gpu < 2; gpu++) {
            const PassOptions o = {.target = target_of(gpu ? "h200" : "cpu")};
            const Type *types[MOST_RESULTS];
            Told told = {.only = k ? "fuse" : "plan"};
            Plan *p;
            Graph *g = read(programs[k]);
            bool failed = true;
            for (int warm = 0; warm < 2; warm++) { /* what is interned stays */
                CHECK(run(g, o, &told, &p, types) == E_OK);
                plan_free(&cx, p);
            }
            size_t live = cx.alloc.live;
            for (int n = 0; failed; n++) {
                told.names[0] = '\0';
                cx.alloc.fail_in = n;
                Err e = run(g, o, &told, &p, types);
                failed = cx.alloc.fail_in < 0;
                cx.alloc.fail_in = -1;
                CHECKF(failed ? e == E_NOMEM || p : e == E_OK, "%d: %s", n, cx.err.text);
                CHECKF(!e == (p != NULL), "%d", n);
                if (p) plan_free(&cx, p);
                CHECKF(cx.alloc.live == live, "%d %d: %zu bytes, not %zu", k, n, cx.alloc.live,
                       live);
                if (cx.alloc.live != live) break;
                err_clear(&cx);
            }
            graph_free(g);
        }
}

int main(void) {
    ctx_init(&cx);
    CHECK(intern_init(&cx) == E_OK && op_init(&cx) == E_OK);
    test_stages();
    test_types();
    test_out_of_memory();
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
