/* entry.c - what a trace of a jitted function leaves behind: a plan, and what a call needs to
 * know of it. */
#include "lua/jit/jit.h"
#include "lua/jit/profile.h"

#include <string.h>

static void free_entry(Ctx *cx, JitEntry *e) {
    Alloc *a = &cx->alloc;
    size_t nin = (size_t)(e->nleaf + e->nnumber + e->ncapture) + 1;
    size_t nres = (size_t)(e->nout + e->nwrite) + 1;
    exec_release(e->exec);
    alloc_free(a, e->key, e->nkey);
    alloc_free(a, e->describe, e->ndescribe);
    alloc_free(a, e->write_leaf, sizeof *e->write_leaf * (size_t)e->nwrite);
    alloc_free(a, e->donated, nin);
    alloc_free(a, e->fate, nin);
    alloc_free(a, e->args, sizeof *e->args * nin);
    alloc_free(a, e->results, sizeof *e->results * nres);
    alloc_free(a, e->capture, sizeof *e->capture * (size_t)e->ncapture);
    for (int32_t i = 0; e->number && i < e->nnumber; i++) tensor_release(e->number[i]);
    alloc_free(a, e->number, sizeof *e->number * (size_t)e->nnumber);
    *e = (JitEntry){0};
}

/* So many traces does a function keep. When there are more, all go: what is called again is traced
 * again, and finds its plan in the cache. */
#ifdef MESHLUA_CHECKED
enum { MOST_TRACES = 64 };
#else
enum { MOST_TRACES = 4096 };
#endif

void jit_drop_aliases(LuaJit *j) {
    Alloc *a = &j->cx->alloc;
    for (int32_t i = 0; i < j->naliases; i++) {
        alloc_free(a, j->alias[i].key, j->alias[i].nkey);
        alloc_free(a, j->alias[i].order, sizeof(int32_t) * (size_t)j->alias[i].nleaf);
    }
    alloc_free(a, j->alias, sizeof *j->alias * (size_t)j->alias_cap);
    j->alias = NULL;
    j->naliases = j->alias_cap = j->latest = 0;
}

void jit_drop_entries(LuaJit *j) {
    jit_drop_aliases(j);
    for (int32_t i = 0; i < j->n; i++) free_entry(j->cx, &j->entry[i]);
    alloc_free(&j->cx->alloc, j->entry, sizeof *j->entry * (size_t)j->cap);
    j->entry = NULL;
    j->n = j->cap = 0;
}

static void bound_entries(lua_State *L, LuaJit *j) {
    if (j->n < MOST_TRACES) return;
    lua_newtable(L);
    jit_drop_entries(j);
    lua_setiuservalue(L, JIT, 3);
}

static bool room_for_entry(LuaJit *j) {
    if (j->n < j->cap) return true;
    int32_t cap = j->cap ? j->cap * 2 : 4;
    JitEntry *grown = alloc_resize(&j->cx->alloc, j->entry, sizeof *grown * (size_t)j->cap,
                                   sizeof *grown * (size_t)cap);
    if (!grown) return false;
    j->entry = grown;
    j->cap = cap;
    return true;
}

static void *copy_bytes(Alloc *a, const void *p, size_t n) {
    void *copy = alloc_new(a, n);
    if (copy && n) memcpy(copy, p, n);
    return copy;
}

static Err fill_entry(Ctx *cx, JitEntry *e, const char *key, size_t nkey, const char *describe,
                      const int32_t *write_leaf, const uint8_t *donated) {
    Alloc *a = &cx->alloc;
    size_t nin = (size_t)(e->nleaf + e->nnumber + e->ncapture) + 1;
    size_t nres = (size_t)(e->nout + e->nwrite) + 1;
    e->hash = hash_bytes(0, key, nkey);
    e->nkey = nkey;
    e->key = copy_bytes(a, key, nkey);
    e->ndescribe = strlen(describe) + 1;
    e->describe = copy_bytes(a, describe, e->ndescribe);
    e->write_leaf = copy_bytes(a, write_leaf, sizeof *write_leaf * (size_t)e->nwrite);
    e->donated = copy_bytes(a, donated, nin);
    e->asked = memchr(donated, DONATE_ASKED, nin) != NULL;
    e->fate = alloc_new(a, nin);
    e->args = alloc_new(a, sizeof *e->args * nin);
    e->results = alloc_new(a, sizeof *e->results * nres);
    e->capture = alloc_new(a, sizeof *e->capture * (size_t)e->ncapture);
    e->number = alloc_new(a, sizeof *e->number * (size_t)e->nnumber);
    bool ok = e->key && e->describe && e->write_leaf && e->donated && e->fate && e->args &&
              e->results && e->capture && e->number;
    return ok ? E_OK : err_nomem(cx, "a jitted function");
}

/* What the call returns, in few words: see JitEntry. */
static void note_returned(lua_State *L, JitEntry *e, int side) {
    int top = lua_gettop(L);
    e->effects = lua_getfield(L, side, "effects") != LUA_TNIL;
    lua_getfield(L, side, "n");
    e->direct = !e->effects && lua_tointeger(L, -1) == e->nout;
    lua_getfield(L, side, "template");
    for (int32_t i = 1; i <= e->nout && e->direct; i++) {
        bool result = lua_rawgeti(L, top + 3, i) == LUA_TLIGHTUSERDATA;
        e->direct = result && (uintptr_t)lua_touserdata(L, -1) == (uintptr_t)i;
        lua_pop(L, 1);
    }
    lua_settop(L, top);
}

/* The captures in the list at `list`, which the entry's table keeps. Cannot raise. */
static void note_captures(lua_State *L, const Host *h, JitEntry *e, int list) {
    for (int32_t i = 0; i < e->ncapture; i++) {
        lua_rawgeti(L, list, i + 1);
        LuaBox *b = value_box(L, h, -1);
        e->capture[i] = (JitCapture){.box = b, .handle = b ? b->held : lua_touserdata(L, -1)};
        lua_pop(L, 1);
    }
}

JitEntry *jit_trace(lua_State *L, Host *h, LuaJit *j, const Walk *w, int last) {
    int base = lua_gettop(L);
    bound_entries(L, j);
    size_t nkey = h->key.n;
    char *key = lua_newuserdatauv(L, nkey + 1, 0); /* the walks below use h->key again */
    memcpy(key, str_of(&h->key), nkey);
    int64_t start = record_now(h->rt.profile);
    Traced t = jit_trace_call(L, h, j, w, last);
    if (start) jit_profile_note(L, JIT, PROFILE_TRACE, start);
    JitEntry e = t.e;
    note_returned(L, &e, t.side);
    lua_getiuservalue(L, JIT, 3);
    lua_pushvalue(L, t.side);
    lua_rawseti(L, -2, j->n + 1);
    lua_getfield(L, t.side, "captures");
    int captures = lua_gettop(L);
    /* From here on nothing raises until the entry is owned. */
    Err err = room_for_entry(j) ? E_OK : err_nomem(&h->cx, "a jitted function");
    if (!err) err = fill_entry(&h->cx, &e, key, nkey, t.describe, t.write_leaf, t.donated);
    Str *stages = j->sealed ? &j->stages : NULL;
    if (!err) err = state_compile(h, h->trace->graph, t.donated, true, stages, &e.exec);
    if (err) {
        free_entry(&h->cx, &e);
        state_check(L, h, err);
    }
    note_captures(L, h, &e, captures);
    j->entry[j->n++] = e;
    trace_end(L, h);
    lua_settop(L, base);
    return &j->entry[j->n - 1];
}

LuaJit *jit_push_new(lua_State *L, Host *h) {
    LuaJit *j = lua_newuserdatauv(L, sizeof *j, 3);
    *j = (LuaJit){.cx = &h->cx};
    str_init(&j->why, &h->cx.alloc);
    str_init(&j->stages, &h->cx.alloc);
    luaL_setmetatable(L, VALUE_JIT);
    lua_newtable(L);
    lua_setiuservalue(L, -2, 3);
    return j;
}
