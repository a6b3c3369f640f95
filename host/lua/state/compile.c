/* compile.c - from a traced graph to something that runs: its plan from the cache, or made now,
 * with the stages on the way there written where somebody wants them. */
#include "lua/state/state.h"

#include "base/file.h"
#include "base/log.h"
#include "run/bind/bind.h"
#include "run/bind/device_text.h"
#include "run/profile/profile.h"

#include <errno.h>
#include <string.h>

typedef struct Dump {
    Host *h;
    Str *stages; /* or NULL */
    int failed;  /* errno of what could not be written, or 0 */
} Dump;

static bool to_file(const Host *h, const char *stage) {
    if (!h->dump || !h->dump_stage) return false;
    if (strcmp(h->dump_stage, "all") == 0) /* programs */
        return strcmp(stage, "factors") != 0 && strcmp(stage, "source") != 0;
    return strcmp(h->dump_stage, stage) == 0;
}

static bool wants_dump(void *ud, const char *stage) {
    const Dump *d = ud;
    return d->stages || to_file(d->h, stage);
}

/* The first program takes the place of what was in the file. */
static bool write_dump(Host *h, const char *stage, const char *text) {
    if (!h->dumped && h->dump != stderr && !file_empty(h->dump)) return false;
    h->dumped = true;
    return fprintf(h->dump, "-- %s\n%s", stage, text) >= 0 && fflush(h->dump) == 0;
}

static void dump_stage(void *ud, const char *stage, const char *text) {
    Dump *d = ud;
    if (d->stages) {
        str_put_n(d->stages, "", 1);
        str_put_n(d->stages, stage, strlen(stage) + 1);
        str_put(d->stages, text);
    }
    if (to_file(d->h, stage) && !write_dump(d->h, stage, text)) d->failed = errno;
}

static Err dump_source(Dump *d, Runtime *rt, const Plan *p) {
    if (!to_file(d->h, "source")) return E_OK;
    Str s;
    str_init(&s, &rt->cx->alloc);
    Err e = device_text_print(rt, p, &s);
    if (!e) dump_stage(d, "source", str_of(&s));
    str_free(&s);
    return e;
}

/* Where a program was written: the same one from another line has a plan of its own, which names
 * that line. */
static uint64_t hash_places(const Graph *g) {
    uint64_t h = 0;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        for (int i = 0; i < n->nloc; i++) h = hash_u64(h, (uint64_t)(uintptr_t)n->loc[i]);
    }
    return h;
}

/* Through the passes, and bound; *out is NULL. */
static Err compile(Host *h, const Graph *g, const uint8_t *donated, Str *stages, Exec **out) {
    int32_t nresult = g->region.at[0].result.n;
    Dump dump = {.h = h, .stages = stages};
    PassOptions o = {.target = h->rt.target,
                     .expand = h->expand,
                     .verify = h->verify,
                     .reread = h->reread,
                     .on = h->passes_on,
                     .off = h->passes_off,
                     .dump = h->dump || stages ? dump_stage : NULL,
                     .dump_ud = &dump,
                     .wants = wants_dump};
    Arena scratch;
    arena_init(&scratch, &h->cx.alloc);
    const Type **types = ARENA_ARRAY(&scratch, const Type *, nresult + 1);
    Plan *plan = NULL;
    Err e = types ? E_OK : err_nomem(&h->cx, "a plan");
    int64_t start = record_now(h->rt.profile);
    if (!e) e = pipeline_run(g, &o, donated, &plan, types);
    if (!e) record_note(h->rt.profile, PROFILE_PLAN, NULL, start);
    if (!e) e = dump_source(&dump, &h->rt, plan);
    if (!e && dump.failed)
        e = err_set(&h->cx, E_IO, "--dump=%s: what it is for cannot be written: %s", h->dump_stage,
                    strerror(dump.failed));
    if (e && plan) {
        plan_free(&h->cx, plan);
        plan = NULL;
    }
    start = record_now(h->rt.profile);
    if (!e) e = bind_exec(&h->rt, plan, g->mesh, types, out);
    if (!e) record_note(h->rt.profile, PROFILE_BIND, NULL, start);
    if (!e && stages && stages->failed) e = err_nomem(&h->cx, "the text of a program");
    arena_free(&scratch);
    if (!e) return E_OK;
    exec_release(*out);
    *out = NULL;
    return e;
}

Err state_compile_as(Host *h, PlanCacheKey k, const Graph *g, const uint8_t *donated, Exec **out) {
    *out = NULL;
    TRY(compile(h, g, donated, NULL, out));
    Err e = plan_cache_add(&h->plans, k, *out);
    if (!e) return E_OK;
    exec_release(*out);
    *out = NULL;
    return e;
}

Err state_compile(Host *h, const Graph *g, const uint8_t *donated, bool by_place, Str *stages,
                  Exec **out) {
    GraphHash hash = graph_hash(g);
    PlanCacheKey k = {hash_bytes(hash.lo, donated, (size_t)g->region.at[0].param.n), hash.hi};
    k.lo = hash_u64(k.lo, (uint64_t)h->passes_on << 32 | h->passes_off);
    k.hi = hash_u64(k.hi, (uint64_t)h->expand << 8 | (uint64_t)(uintptr_t)h->rt.target);
    k.hi = hash_u64(k.hi, by_place ? hash_places(g) : 0);
    *out = stages ? NULL : plan_cache_find(&h->plans, k);
    bool kept = !stages && !h->laid; /* what is only asked about would push out what runs */
    if (*out) {
        exec_retain(*out);
        return E_OK;
    }
    return kept ? state_compile_as(h, k, g, donated, out) : compile(h, g, donated, stages, out);
}
