
#include "base/env.h"
#include "base/log.h"
#include "lua/state/heap.h"
#include "lua/state/stop.h"
#include "op/op.h"
#include "run/profile/profile.h"

#include <string.h>

/* Between two full collections: results of calls, and bytes of tensors, by the
 * size of Lua's heap. */
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
    profile_drop(&h->rt);
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
    ctx_finish_holders(&h->cx);
    collect(L, h);
    return true;
}
