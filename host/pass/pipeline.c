#include "pass/guarded.h"
#include "pass/pass.h"

typedef struct Pass {
    const char *stage;
    Err (*run)(const Graph *g, const PassOptions *o, Graph **out);
    bool (*is_on)(const PassOptions *o, const Graph *g); /* NULL: always */
    Err (*verify)(const Graph *g);                       /* what must hold of what it makes */
} Pass;

const char *const pipeline_switch_names[SWITCH_COUNT] = {
    "reuse", "hoist", "reassociate", "bucket", "overlap", "sum_products", "branches", "fuse"};

static bool overlaps(const PassOptions *o, const Graph *g) {
    (void)g;
    return pass_is_on(o, SWITCH_OVERLAP, !o->target->shared_memory);
}

/* With definitions for ops, layouts get further and reach others, so propagation starts again until
 * there are no more. A round costs time: what is found after the last one gathers. */
Err pipeline_propagate(const Graph *g, const PassOptions *o, Graph **out) {
    enum { ROUNDS = 8 };
    Graph *owned = NULL, *laid = NULL;
    Err e = E_OK;
    for (int round = 0; !e; round++) {
        Graph *defined = NULL, *next = NULL;
        e = pass_propagate(g, o, &laid);
        if (!e && round < ROUNDS) e = pass_define(g, laid, o, &defined);
        if (e || !defined) break;
        e = pass_simplify(defined, o, &next);
        graph_free(defined);
        graph_free(laid);
        graph_free(owned);
        laid = NULL;
        g = owned = next;
    }
    graph_free(owned);
    *out = laid;
    return e;
}

static bool expands(const PassOptions *o, const Graph *g) {
    (void)g;
    return o->expand;
}

static bool hoists(const PassOptions *o, const Graph *g) {
    (void)g;
    return pass_is_on(o, SWITCH_HOIST, true);
}

static bool sums_products(const PassOptions *o, const Graph *g) {
    (void)g;
    return pass_is_on(o, SWITCH_SUM_PRODUCTS, true);
}

static bool has_branches(const PassOptions *o, const Graph *g) {
    (void)o;
    return branches_are_there(g);
}

static const Pass passes[] = {
    {"expand", pass_expand, expands, graph_verify},
    {"simplify", pass_simplify, NULL, graph_verify},
    {"propagate", pipeline_propagate, NULL, graph_verify_laid},
    {"partition", pass_partition, NULL, graph_verify_local},
    {"hoist", pass_hoist, hoists, graph_verify_local},
    {"comm", pass_comm, NULL, graph_verify_local},
    {"overlap", pass_overlap, overlaps, graph_verify_local},
    {"branches", pass_branches, has_branches, graph_verify_local},
    {"sum_products", pass_sum_products, sums_products, graph_verify_local},
    {"split", pass_split, NULL, graph_verify_local},
    {"fuse", pass_fuse, NULL, graph_verify_local},
};

const char *pipeline_stage(int i) {
    enum { PASSES = sizeof passes / sizeof passes[0] };
    return i == 0 ? "trace" : i <= PASSES ? passes[i - 1].stage : i == PASSES + 1 ? "plan" : NULL;
}

static void dump_text(const PassOptions *o, const char *stage, const Str *s) {
    if (!s->failed) o->dump(o->dump_ud, stage, str_of(s));
}

static void dump_graph(const Graph *g, const PassOptions *o, const char *stage) {
    if (!o->dump || !o->wants(o->dump_ud, stage)) return;
    Str s;
    str_init(&s, &g->cx->alloc);
    graph_print(g, &s);
    dump_text(o, stage, &s);
    str_free(&s);
}

static void dump_plan(const Graph *g, const Plan *p, const PassOptions *o) {
    if (!o->dump || !o->wants(o->dump_ud, "plan")) return;
    Str s;
    str_init(&s, &g->cx->alloc);
    plan_print(p, g->mesh, &s);
    dump_text(o, "plan", &s);
    str_free(&s);
}

/* Runs a pass and checks what it made. */
static Err run(const Pass *pass, const Graph *g, const PassOptions *o, Graph **out) {
    TRY(pass->run(g, o, out));
    dump_graph(*out, o, pass->stage);
    Err e = o->verify ? pass->verify(*out) : E_OK;
    if (!e && o->reread) e = graph_check_text(*out);
    ASSERT(!e, "%s made a bad graph: %s", pass->stage, g->cx->err.text);
    return E_OK;
}

typedef struct Work {
    Guarded guarded;
    const PassOptions *o;
    const uint8_t *donated;
    Plan **out;
    const Type **types;
} Work;

static Err run_all(Guarded *guarded) {
    Work *w = (Work *)guarded;
    const PassOptions *o = w->o;
    Graph *owned = NULL;
    Err e = E_OK;
    dump_graph(guarded->g, o, "trace");
    if (o->reread) {
        Err bad = graph_check_text(guarded->g);
        ASSERT(!bad, "a trace that is not what its text says: %s", guarded->g->cx->err.text);
    }
    for (unsigned i = 0; !e && i < sizeof passes / sizeof passes[0]; i++) {
        Graph *next = NULL;
        if (passes[i].is_on && !passes[i].is_on(o, guarded->g)) continue;
        guarded->stage = passes[i].stage;
        e = run(&passes[i], guarded->g, o, &next);
        graph_free(owned);
        guarded->g = owned = next;
        if (!e && passes[i].run == pipeline_propagate) /* the last graph with global types */
            for (int k = 0; k < next->region.at[0].result.n; k++)
                w->types[k] = graph_type(next, next->region.at[0].result.at[k]);
    }
    guarded->stage = "plan";
    if (!e) e = pass_plan(guarded->g, o, w->donated, w->out);
    if (!e) dump_plan(guarded->g, *w->out, o);
    if (!e && o->verify) {
        Err bad = plan_verify(guarded->g->cx, *w->out);
        if (bad) { /* nothing of an arena: guard.h */
            plan_free(guarded->g->cx, *w->out);
            *w->out = NULL;
        }
        ASSERT(!bad, "a bad plan: %s", guarded->g->cx->err.text);
    }
    graph_free(owned);
    return e;
}

Err pipeline_run(const Graph *traced, const PassOptions *o, const uint8_t *donated, Plan **out,
                 const Type **types) {
    Work w = {{traced, "trace", run_all}, o, donated, out, types};
    return guarded_run(&w.guarded);
}
