#include "lua/state/state.h"

#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "base/plain.h"
#include "lua/state/heap.h"
#include "lua/state/stop.h"
#include "op/op.h"
#include "run/profile/profile.h"
#include "run/gpu/device_text.h"

#include <errno.h>
#include <string.h>

/* Between two full collections: results of calls, and bytes of tensors, by the size of Lua's heap.
 */
enum {
    FEWEST_RESULTS = 1024,
    RESULTS_PER_KB = 4,
    FEWEST_BYTES = 8 << 20,
    BYTES_PER_KB = 16 << 10,
    MOST_BYTES = 512 << 20,
};

static void free_trace(Trace *t, Host *h) {
    graph_free(t->graph);
    arena_free(&t->arena);
    alloc_free(&h->cx.alloc, t, sizeof *t);
}

/* Runs last of all finalizers: the host was the first userdata made. */
static int host_gc(lua_State *L) {
    Host *h = lua_touserdata(L, 1);
    heap_share(L, NULL);
    if (h->trace) free_trace(h->trace, h);
    h->trace = NULL;
    if (profile_has_run(&h->rt) && profile_stop(&h->rt))
        log_line(&h->cx, LOG_ERROR, "%s", h->cx.err.text);
    plan_cache_free(&h->plans);
    runtime_free(&h->rt);
    stop_forget(h);
    alloc_free(&h->cx.alloc, h->entry, sizeof *h->entry * (size_t)h->depth_cap);
    alloc_free(&h->cx.alloc, h->dump_stage, h->dump_stage ? strlen(h->dump_stage) + 1 : 0);
    h->entry = NULL;
    h->dump_stage = NULL;
    if (h->dump && h->dump != stderr) fclose(h->dump);
    h->dump = NULL;
    str_free(&h->text);
    str_free(&h->key);
    str_free(&h->path);
    str_free(&h->describe);
    alloc_free(&h->cx.alloc, h->leaf, sizeof *h->leaf * (size_t)h->leaf_cap);
    alloc_free(&h->cx.alloc, h->number, sizeof *h->number * (size_t)h->number_cap);
    h->leaf = NULL;
    h->number = NULL;
    intern_free(&h->cx);
    return 0;
}

/* Who this process is, in one line where there are several. */
static void say_ranks(Host *h) {
    const Ranks *r = &h->rt.ranks;
    if (r->note[0]) log_line(&h->cx, LOG_WARN, "taken as one process: %s", r->note);
    if (r->world == 1 || r->silent) return;
    Str s;
    str_init(&s, &h->cx.alloc);
    ranks_print(r, &s);
    log_note(&h->cx, "%s", str_of(&s));
    str_free(&s);
}

static Err find_ranks(Ctx *cx, const RankFlags *flags, Ranks *out) {
    TRY(ranks_find(cx, flags, out));
    TRY(ranks_choose_speakers(cx, flags->log_ranks, out));
    if (out->silent && cx->log_level > LOG_ERROR) cx->log_level = LOG_ERROR;
    return E_OK;
}

Host *state_open(lua_State *L, const char *devices, const RankFlags *ranks) {
    Host *h = lua_newuserdatauv(L, sizeof *h, 0);
    memset(h, 0, sizeof *h);
    ctx_init(&h->cx);
    str_init(&h->text, &h->cx.alloc);
    str_init(&h->key, &h->cx.alloc);
    str_init(&h->path, &h->cx.alloc);
    str_init(&h->describe, &h->cx.alloc);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, host_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
    heap_share(L, &h->cx.alloc);
    state_check(L, h, intern_init(&h->cx));
    state_check(L, h, op_init(&h->cx));
    Ranks who = {.world = 1}; /* known first: an error of all is said by one */
    Err err = ranks ? find_ranks(&h->cx, ranks, &who) : E_OK;
    if (!err && ranks) err = env_check(&h->cx);
    if (!err) err = runtime_init(&h->rt, &h->cx, &who, devices);
    if (!err && ranks && env_get(ENV_BLAS)) err = blas_check(&h->cx, &h->rt.blas);
    h->rt.ranks = who;
    state_check(L, h, err);
    plan_cache_init(&h->plans, &h->cx);
    h->verify = h->reread = env_int(ENV_CHECK, 0) != 0;
#ifdef MESHLUA_CHECKED
    h->verify = true;
#endif
    h->results_to_gc = FEWEST_RESULTS;
    h->bytes_to_gc = FEWEST_BYTES;
    return h;
}

void state_connect(lua_State *L, const JoinFlags *join) {
    Host *h = state_of(L);
    if (h->rt.ranks.world > 1) stop_listen(h);
    say_ranks(h);
    state_check(L, h, runtime_connect(&h->rt, join));
}

/* ---- memory pressure: Lua does not see the bytes behind its small userdata, and lets them pile
 * up. A full collection takes about as long as Lua's heap is large: it comes after so many results
 * that its part in the time of each stays small, and while the memory of those before is still in
 * the caches. ---- */
static size_t bytes_live(const Host *h) {
    size_t live = h->cx.alloc.live;
    for (int32_t k = 0; k < h->cx.domains; k++) live += h->cx.memory[k] ? h->cx.memory[k]->live : 0;
    return live;
}

static void collect(lua_State *L, Host *h) {
    lua_gc(L, LUA_GCCOLLECT);
    int64_t heap = lua_gc(L, LUA_GCCOUNT), bytes = FEWEST_BYTES + BYTES_PER_KB * heap;
    h->bytes_at_gc = bytes_live(h);
    h->bytes_to_gc = (size_t)(bytes < MOST_BYTES ? bytes : MOST_BYTES);
    h->results_to_gc = FEWEST_RESULTS + RESULTS_PER_KB * heap;
}

void state_collect_if_needed(lua_State *L, Host *h, int32_t results) {
    h->results_to_gc -= results;
    bool many = h->results_to_gc < 0 && lua_gc(L, LUA_GCISRUNNING);
    if (many || bytes_live(h) >= h->bytes_at_gc + h->bytes_to_gc) collect(L, h);
}

bool state_collect_after(lua_State *L, Host *h, Err e) {
    if (e != E_NOMEM) return false;
    err_clear(&h->cx);
    collect(L, h);
    return true;
}

/* ---- from a traced graph to something that runs ---- */
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
    int64_t start = profile_now(h->rt.profile);
    if (!e) e = pipeline_run(g, &o, donated, &plan, types);
    if (!e) profile_note(h->rt.profile, PROFILE_PLAN, NULL, start);
    if (!e) e = dump_source(&dump, &h->rt, plan);
    if (!e && dump.failed)
        e = err_set(&h->cx, E_IO, "--dump=%s: what it is for cannot be written: %s", h->dump_stage,
                    strerror(dump.failed));
    if (e && plan) {
        plan_free(&h->cx, plan);
        plan = NULL;
    }
    start = profile_now(h->rt.profile);
    if (!e) e = bind_exec(&h->rt, plan, g->mesh, types, out);
    if (!e) profile_note(h->rt.profile, PROFILE_BIND, NULL, start);
    if (!e && stages && stages->failed) e = err_nomem(&h->cx, "the text of a program");
    arena_free(&scratch);
    if (!e) return E_OK;
    bind_release(*out);
    *out = NULL;
    return e;
}

Err state_compile_as(Host *h, PlanCacheKey k, const Graph *g, const uint8_t *donated, Exec **out) {
    *out = NULL;
    TRY(compile(h, g, donated, NULL, out));
    Err e = plan_cache_add(&h->plans, k, *out);
    if (!e) return E_OK;
    bind_release(*out);
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
    if (*out) {
        bind_retain(*out);
        return E_OK;
    }
    return stages ? compile(h, g, donated, stages, out) : state_compile_as(h, k, g, donated, out);
}
