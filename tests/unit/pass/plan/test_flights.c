/* What plan_verify holds of collectives that are on their way from one turn of a loop to the next:
 * a plan that is right, and then with one thing of it wrong. */
#include "op/op.h"
#include "pass/pass.h"
#include "test.h"

#include <string.h>

static Ctx cx;

/* A weight is gathered ahead, a gradient waited for late. */
static const char text[] =
    "Mesh(x=2) local\n"
    "%1 = param : float32[4,4]{V:x}\n"
    "%2 = param : float32[3,2,4]{V:x}\n"
    "%11, %12 = scan %1 %2 {ncarry=1, nxs=1, length=3} : float32[4,4]{V:x}, float32[3,2,4]{V:x} {\n"
    "  %3 = param : float32[4,4]{V:x}\n"
    "  %4 = param : float32[2,4]{V:x}\n"
    "  %5 = all_gather %4 {dim=1, axes=x}\n"
    "  %6 = done %5 %4\n"
    "  %7 = matmul %3 %6 {x_contract=[2], w_contract=[1]}\n"
    "  %8 = softmax %7\n"
    "  %9 = reduce_scatter %8 {dim=1, axes=x, kind=sum}\n"
    "  %10 = done %9 %8\n"
    "  return %7 %10\n"
    "}\n"
    "return %11 %12\n";

static Plan *planned(void) {
    Graph *g = NULL;
    Plan *p = NULL;
    PassOptions o = {.target = target_of("cpu")};
    CHECK(graph_parse(&cx, text, sizeof text - 1, &g) == E_OK);
    CHECK(pass_plan(g, &o, (const uint8_t[]){DONATE_NO, DONATE_NO}, &p) == E_OK);
    graph_free(g);
    return p;
}

static PlanStep *step_named(Plan *p, const char *op, StepKind kind, int8_t shift) {
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        if (s->kind == kind && s->shift == shift && strcmp(plan_str(p, s->op), op) == 0)
            return (PlanStep *)(uintptr_t)s;
    }
    return NULL;
}

static PlanStride *ring_of(Plan *p, PlanSpan values, int32_t k) {
    const PlanValue *v = plan_value(p, PLAN_LIST(p, int32_t, values)[k]);
    CHECK(v->per_slice.n == 1);
    return (PlanStride *)(uintptr_t)PLAN_LIST(p, PlanStride, v->per_slice);
}

static void check_bad(Plan *p, const char *what) {
    CHECK(plan_verify(&cx, p) == E_PARSE);
    CHECKF(strstr(cx.err.text, what) != NULL, "%s", cx.err.text);
    plan_free(&cx, p);
}

static void test_right(void) {
    Plan *p = planned();
    CHECK(plan_verify(&cx, p) == E_OK);
    CHECK(step_named(p, "all_gather", STEP_COLLECTIVE, 1) != NULL);
    CHECK(step_named(p, "done", STEP_DONE, -1) != NULL);
    plan_free(&cx, p);
}

/* One place for two iterations. */
static void test_one_place(void) {
    Plan *p = planned();
    PlanStep *gather = step_named(p, "all_gather", STEP_COLLECTIVE, 1);
    PlanStep *product = step_named(p, "matmul", STEP_KERNEL, 0);
    ring_of(p, gather->out, 0)->ring = 1;
    ring_of(p, product->in, 1)->ring = 1;
    check_bad(p, "a value that is still received");
}

/* The product reads the next iteration's weight. */
static void test_other_turn(void) {
    Plan *p = planned();
    step_named(p, "matmul", STEP_KERNEL, 0)->shift = 1;
    check_bad(p, "a value that is still received");
}

/* What is scattered is written over in the next turn. */
static void test_written(void) {
    Plan *p = planned();
    PlanStep *sent = step_named(p, "softmax", STEP_KERNEL, 0);
    PlanStep *scatter = step_named(p, "reduce_scatter", STEP_COLLECTIVE, 0);
    ring_of(p, sent->out, 0)->ring = 1;
    ring_of(p, scatter->in, 0)->ring = 1;
    check_bad(p, "a value that is still sent");
}

/* Its memory is somebody else's between two turns. */
static void test_given_away(void) {
    Plan *p = planned();
    PlanStep *scatter = step_named(p, "reduce_scatter", STEP_COLLECTIVE, 0);
    int32_t sent = plan_value(p, PLAN_LIST(p, int32_t, scatter->in)[0])->buffer;
    ((PlanBuffer *)(uintptr_t)plan_buffer(p, sent))->first++;
    check_bad(p, "a value that is on its way without its buffer");
}

int main(void) {
    ctx_init(&cx);
    CHECK(intern_init(&cx) == E_OK && op_init(&cx) == E_OK);
    test_right();
    test_one_place();
    test_other_turn();
    test_written();
    test_given_away();
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
