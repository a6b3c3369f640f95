/* bind.c - step:bind(model, optimizer): the step with its first arguments given. Their trees
 * are walked once; a call looks only at what their leaves hold now. */
#include "lua/jit/jit.h"

#include <string.h>

#define VALUE_BOUND "meshlua.bound"

static LuaBound *bound_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_BOUND);
}

static int bound_gc(lua_State *L) {
    LuaBound *b = bound_at(L, 1);
    if (!b->cx) return 0;
    Alloc *a = &b->cx->alloc;
    alloc_free(a, b->key, b->nkey);
    alloc_free(a, b->leaf, sizeof *b->leaf * (size_t)b->nleaf);
    alloc_free(a, b->number, sizeof *b->number * (size_t)b->nnumber);
    b->cx = NULL;
    return 0;
}

/* ---- binding ---- */

static Err keep_walk(Host *h, LuaBound *b, const Walk *w) {
    Alloc *a = &h->cx.alloc;
    b->nkey = h->key.n;
    b->nleaf = w->nleaf;
    b->nnumber = w->nnumber;
    size_t nleaf = sizeof *b->leaf * (size_t)w->nleaf;
    size_t nnumber = sizeof *b->number * (size_t)w->nnumber;
    b->key = alloc_new(a, b->nkey);
    b->leaf = alloc_new(a, nleaf);
    b->number = alloc_new(a, nnumber);
    if (!b->key || !b->leaf || !b->number) return err_nomem(&h->cx, "a bound function");
    memcpy(b->key, h->key.at, b->nkey);
    if (nleaf) memcpy(b->leaf, h->leaf, nleaf);
    if (nnumber) memcpy(b->number, h->number, nnumber);
    return E_OK;
}

static Walk walk_quickly(lua_State *L, Host *h, const LuaJit *j, int first, int last) {
    Walk w;
    walk_begin_quick(&w, L, h);
    jit_walk_arguments(&w, j, first, last, 0);
    return w;
}

int jit_bind(lua_State *L) {
    Host *h = state_of(L);
    const LuaJit *j = value_udata(L, JIT, VALUE_JIT);
    int last = lua_gettop(L);
    if (h->trace)
        state_error(L, E_TRACED,
                    "bind: inside a traced function; bind the arguments outside of it");
    Walk w = jit_walk_call(L, h, j, last); /* raises for what is no argument */
    LuaBound *b = lua_newuserdatauv(L, sizeof *b, 4);
    *b = (LuaBound){.cx = &h->cx, .n = last - JIT};
    luaL_setmetatable(L, VALUE_BOUND);
    lua_createtable(L, b->n, 0);
    for (int i = 1; i <= b->n; i++) {
        lua_pushvalue(L, JIT + i);
        lua_rawseti(L, -2, i);
    }
    lua_setiuservalue(L, -2, 2);
    const int kept[] = {JIT, w.leaves, w.held}, place[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) {
        lua_pushvalue(L, kept[i]);
        lua_setiuservalue(L, -2, place[i]);
    }
    Walk quick = walk_quickly(L, h, j, FIRST, last);
    if (quick.failed) state_error(L, E_STATE, "bind: the arguments change while they are bound");
    state_check(L, h, keep_walk(h, b, &quick));
    return 1;
}

/* ---- the call ---- */

/* Raises where the arguments at FIRST..last are no longer what was bound, but for types. */
static void check_unchanged(lua_State *L, Host *h, const LuaBound *b, const LuaJit *j, int last) {
    Walk w = walk_quickly(L, h, j, FIRST, last);
    if (w.failed) return; /* a call says what is wrong with them */
    bool same = h->key.n == b->nkey && w.nleaf == b->nleaf;
    for (int32_t i = 0; i < w.nleaf && same; i++) {
        const FoundLeaf *now = &h->leaf[i], *then = &b->leaf[i];
        same = now->type_at == then->type_at && now->box == then->box &&
               (now->box || now->handle == then->handle);
        if (same) memcpy(h->key.at + now->type_at, b->key + then->type_at, sizeof(Type *));
    }
    if (!same || memcmp(h->key.at, b->key, b->nkey) != 0)
        state_error(L, E_STATE,
                    "a bound argument is not what it was: its tables have other keys, Params or "
                    "plain values than when step:bind walked them; bind it again");
}

/* Puts the jitted function, which is on top of the stack, in the place of the bound one, and the
 * bound arguments before the others. */
static void expand(lua_State *L, int n) {
    luaL_checkstack(L, n + LUA_MINSTACK, "too many arguments");
    lua_getiuservalue(L, 1, 2);
    lua_insert(L, 1); /* the list, the bound function, the others, the jitted one */
    lua_replace(L, JIT + 1);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        lua_insert(L, FIRST + i);
    }
    lua_remove(L, 1);
}

static int bound_call(lua_State *L) {
    Host *h = state_of(L);
    LuaBound *b = bound_at(L, 1);
    lua_getiuservalue(L, 1, 1);
    LuaJit *j = lua_touserdata(L, -1);
    int nresults = h->trace ? -1 : jit_run_bound(L, h, j, b, b->n);
    if (nresults >= 0) return nresults;
    expand(L, b->n);
    if (h->trace) return jit_inline_call(L, h, j);
    check_unchanged(L, h, b, j, JIT + b->n);
    return jit_run_call(L, h, j);
}

static int bound_tostring(lua_State *L) {
    const LuaBound *b = bound_at(L, 1);
    lua_getiuservalue(L, 1, 1);
    lua_pushfstring(L, "%s with %d argument%s bound", luaL_tolstring(L, -1, NULL), b->n,
                    str_s(b->n));
    return 1;
}

void jit_bind_open(lua_State *L) {
    static const luaL_Reg meta[] = {
        {"__call", bound_call}, {"__gc", bound_gc}, {"__tostring", bound_tostring}, {NULL, NULL}};
    value_new_type(L, VALUE_BOUND, meta, NULL, NULL);
}
