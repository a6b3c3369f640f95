/* key.c - what the key of a jitted call is made of: the context, what the function closes over,
 * the arguments. The same for a walk in the one order and for a quick one. */
#include "lua/jit/jit.h"

#include <string.h>

/* What the function closes over directly: plain values and tensors are compared at each call. */
static void walk_upvalues(Walk *w, int fn) {
    lua_State *L = w->L;
    const char *name;
    for (int i = 1; (name = lua_getupvalue(L, fn, i)); i++) {
        int type = lua_type(L, -1);
        bool plain = type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TBOOLEAN;
        const LuaTensor *u = type == LUA_TUSERDATA ? value_handle(L, w->h, -1) : NULL;
        if (plain || (u && u->t)) { /* what an earlier trace left behind is of no use to this one */
            str_clear(&w->h->path);
            if (w->describe) str_fmt(&w->h->path, "upvalue %s", name);
            walk_static(w, lua_gettop(L));
        }
        lua_pop(L, 1);
    }
}

static void walk_context(Walk *w) {
    lua_State *L = w->L;
    Host *h = w->h;
    const void *context[2] = {h->mesh, h->rt.target};
    str_put_n(&h->key, (const char *)context, sizeof context);
    str_put_n(&h->key, h->expand ? "e" : "-", 1);
    const uint32_t passes[2] = {h->passes_on, h->passes_off};
    str_put_n(&h->key, (const char *)passes, sizeof passes);
    if (w->describe) {
        str_put(&h->describe, "the mesh in context = ");
        if (h->mesh) mesh_print(h->mesh, &h->describe);
        str_fmt(&h->describe, "\nexpanded = %d\npasses switched on %x, off %x\n", h->expand,
                h->passes_on, h->passes_off);
    }
    trace_push_rules(L);
    walk_value(w, -1, "the rules in context");
    lua_pop(L, 1);
}

void jit_walk_around(Walk *w, int fn) {
    walk_context(w);
    walk_upvalues(w, fn);
}

/* The name of the function's i-th parameter, from 0; the function keeps it. */
static const char *param_name(lua_State *L, int fn, int i) {
    lua_pushvalue(L, fn);
    const char *name = lua_getlocal(L, NULL, i + 1);
    lua_pop(L, 1);
    return name ? name : "argument";
}

bool jit_is_number(lua_State *L, const LuaJit *j, int index, int i) {
    return lua_type(L, index) == LUA_TNUMBER && !jit_has(j->static_args, i);
}

/* Does the number at `index` fit an input? */
static bool is_in_range(lua_State *L, int index) {
    lua_Integer n = lua_tointeger(L, index);
    return !lua_isinteger(L, index) || (n >= INT32_MIN && n <= INT32_MAX);
}

static bool fits_static(lua_State *L, const Host *h, const LuaJit *j, int index, int i) {
    return !jit_has(j->static_args, i) || (!lua_istable(L, index) && !value_is_tensor(L, h, index));
}

void jit_check_static(lua_State *L, const Host *h, const LuaJit *j, int index, int i) {
    if (!fits_static(L, h, j, index, i))
        state_error(L, E_VALUE,
                    "static argument %d is a %s; only numbers, strings and booleans can be static",
                    i + 1, arg_type_name(L, index));
}

void jit_walk_arguments(Walk *w, const LuaJit *j, int first, int last, int i) {
    lua_State *L = w->L;
    for (int at = first; at <= last && !w->failed; at++, i++) {
        bool number = jit_is_number(L, j, at, i);
        if (number ? !is_in_range(L, at) : !fits_static(L, w->h, j, at, i))
            w->failed = true;
        else if (number)
            walk_number(w, at);
        else
            walk_value(w, at, NULL);
    }
}

/* The same, described; raises for what does not fit. */
static void describe_arguments(Walk *w, const LuaJit *j, int fn, int last) {
    lua_State *L = w->L;
    for (int at = FIRST; at <= last; at++) {
        int i = at - FIRST;
        const char *name = param_name(L, fn, i);
        jit_check_static(L, w->h, j, at, i);
        if (!jit_is_number(L, j, at, i)) {
            walk_value(w, at, name);
            continue;
        }
        if (!is_in_range(L, at))
            state_error(L, E_VALUE,
                        "argument %s: the number %lld is out of range for int32; make it static or "
                        "a float",
                        name, (long long)lua_tointeger(L, at));
        walk_number(w, at);
        str_fmt(&w->h->describe, "%s = %s\n", name,
                lua_isinteger(L, at) ? "a whole number" : "a number");
    }
}

Walk jit_walk_call(lua_State *L, Host *h, const LuaJit *j, int last) {
    Walk w;
    lua_settop(L, last);
    luaL_checkstack(L, 2 * LUA_MINSTACK, "too many arguments");
    lua_getiuservalue(L, JIT, 1);
    walk_begin(&w, L, h, true);
    w.describe = w.name_modules = true;
    lua_newtable(L);
    w.names = lua_gettop(L);
    lua_newtable(L);
    w.held = lua_gettop(L);
    jit_walk_around(&w, last + 1);
    w.around = h->describe.n;
    describe_arguments(&w, j, last + 1, last);
    walk_check(&w);
    return w;
}

void jit_walk_bound(Walk *w, LuaBound *b) {
    Host *h = w->h;
    size_t from = h->key.n;
    char *key = str_extend(&h->key, b->nkey);
    if (!key) state_check(w->L, h, err_nomem(&h->cx, "the key of a call"));
    memcpy(key, b->key, b->nkey);
    walk_room_for_leaves(w, b->nleaf);
    for (int32_t i = 0; i < b->nleaf; i++) {
        FoundLeaf *l = &b->leaf[i];
        if (l->box) l->handle = l->box->held;
        const Type *type = l->handle && l->handle->t ? l->handle->t->type : NULL;
        if (!type) { /* empty, traced or deleted */
            w->failed = true;
            return;
        }
        memcpy(key + l->type_at, &type, sizeof type);
        walk_add_leaf(w, l, from);
    }
    for (int32_t i = 0; i < b->nnumber; i++) walk_add_number(w, b->number[i]);
}
