/* wrap.c - calls of the library that know who called.
 *
 * Library functions are wrapped in a C closure that notes the caller's line before the library
 * runs: the call stack alone would not do, since a tail call drops frames. Module calls also push
 * their path, which names the scope of the ops inside. */
#include "lua/state/arg.h"
#include "lua/state/traceback.h"
#include "lua/state/usage.h"

#include <limits.h>
#include <string.h>

static const char guard_key, paths_key;

/* __close of the guard: leaves the innermost entry, also when an error
 * passes. Upvalue: the host. */
static int leave(lua_State *L) {
    Host *h = lua_touserdata(L, lua_upvalueindex(1));
    if (h->depth > 0) h->depth--;
    return 0;
}

static bool push_entry(lua_State *L, Host *h, const char *scope) {
    if (h->depth == h->depth_cap) {
        int32_t cap = h->depth_cap ? h->depth_cap * 2 : 32;
        Entry *grown = alloc_resize(&h->cx.alloc, h->entry, sizeof *grown * (size_t)h->depth_cap,
                                    sizeof *grown * (size_t)cap);
        if (!grown) return false;
        h->entry = grown;
        h->depth_cap = cap;
    }
    Entry *e = &h->entry[h->depth];
    e->scope = scope ? scope : h->depth ? h->entry[h->depth - 1].scope : NULL;
    e->L = where_frame(L, 1, &e->caller);
    e->chunk = NULL;
    h->depth++;
    return true;
}

/* The path under which the module on top of the arguments was last flattened, or its class's name
 * behind the scope around it; interned. */
static const char *module_scope(lua_State *L, Host *h) {
    const char *scope = NULL;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &paths_key);
    lua_pushvalue(L, 1);
    if (lua_rawget(L, -2) == LUA_TSTRING) {
        const char *path = lua_tostring(L, -1); /* "": the module is an argument itself */
        scope = *path ? intern_name(&h->cx, path) : NULL;
    } else if (luaL_getmetafield(L, 1, "__name") == LUA_TSTRING) {
        const char *outer = h->depth ? h->entry[h->depth - 1].scope : NULL;
        lua_pushfstring(L, "%s%s%s", outer ? outer : "", outer ? "." : "", lua_tostring(L, -1));
        scope = intern_name(&h->cx, lua_tostring(L, -1));
    }
    return scope;
}

/* ---- errors that pass through C ---- */

static const char *const traceback_key = "meshlua.traceback", *const noted_key = "meshlua.noted";

/* "mlp.lua:12: [E_STATE] ..." for what Lua says when a function called from C yields. */
static void explain_yield(lua_State *L) {
    Loc loc;
    if (strncmp(lua_tostring(L, 1), "attempt to yield", 16) != 0) return;
    where_find(L, state_of(L), &loc);
    lua_pushfstring(L, "%s:%d: [E_STATE] %s cannot yield", loc.chunk ? loc.chunk : "?",
                    (int)loc.line,
                    state_of(L)->trace ? "a traced function" : "a function called by the library");
    lua_replace(L, 1);
}

/* Keeps the traceback of an error, with its message: unwinding loses it. The message that is passed
 * on from an inner call has been noted there. */
static int note_traceback(lua_State *L) {
    lua_settop(L, 1);
    if (lua_type(L, 1) != LUA_TSTRING) return 1;
    lua_getfield(L, LUA_REGISTRYINDEX, noted_key);
    if (lua_rawequal(L, -1, 1)) return lua_settop(L, 1), 1;
    explain_yield(L);
    traceback_push(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, traceback_key);
    lua_pushvalue(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, noted_key);
    lua_settop(L, 1);
    return 1;
}

int wrap_pcall(lua_State *L, int nargs) {
    int handler = lua_gettop(L) - nargs;
    lua_pushcfunction(L, note_traceback);
    lua_insert(L, handler);
    int status = lua_pcall(L, nargs, LUA_MULTRET, handler);
    lua_remove(L, handler);
    return status;
}

/* ---- the call ---- */

enum { FUNCTION = 1, KIND, GUARD, HOST, NAME }; /* the wrapper's upvalues */

/* KIND: how many arguments the function takes, and whether its first is a module. */
static lua_Integer kind_of(int most, bool is_module) {
    return (lua_Integer)most * 2 + is_module;
}

/* A coroutine that an error ends does not close what is pending in it: the error is stopped here
 * first, so that the entry is left and the contexts of the library are. */
static int call_in_coroutine(lua_State *L, Host *h, int n) {
    lua_insert(L, 1);
    lua_pop(L, 1); /* the guard */
    int status = wrap_pcall(L, n);
    if (h->depth > 0) h->depth--;
    return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

/* Calls a function with n arguments in an entry for the caller of the C function that runs. On the
 * stack are the arguments, the guard, the function, and nothing else. */
static int call_in_entry(lua_State *L, Host *h, int n, const char *scope) {
    bool in_main = lua_pushthread(L);
    lua_pop(L, 1);
    if (!push_entry(L, h, scope)) state_check(L, h, err_nomem(&h->cx, "the call"));
    if (!in_main) return call_in_coroutine(L, h, n);
    lua_toclose(L, n + 1);
    for (int i = 1; i <= n; i++) lua_pushvalue(L, i);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L) - n - 1;
}

int wrap_call(lua_State *L, Host *h, int n) {
    luaL_checkstack(L, n + 6, "too many arguments");
    lua_rawgetp(L, LUA_REGISTRYINDEX, &guard_key);
    lua_insert(L, -2);
    return call_in_entry(L, h, n, NULL);
}

static int call_wrapped(lua_State *L) {
    Host *h = lua_touserdata(L, lua_upvalueindex(HOST));
    int n = lua_gettop(L);
    lua_Integer kind = lua_tointeger(L, lua_upvalueindex(KIND));
    const char *scope = NULL;
    if (n > kind / 2)
        return usage_surplus(L, h, lua_tostring(L, lua_upvalueindex(NAME)), (int)(kind / 2));
    if (kind & 1) {
        scope = module_scope(L, h);
        lua_settop(L, n);
    }
    luaL_checkstack(L, n + 6, "too many arguments");
    lua_pushvalue(L, lua_upvalueindex(GUARD));
    lua_pushvalue(L, lua_upvalueindex(FUNCTION));
    return call_in_entry(L, h, n, scope);
}

const char *wrap_called(lua_State *L) {
    const char *name = NULL;
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sf", &ar);
        bool is_wrapper = lua_tocfunction(L, -1) == call_wrapped;
        if (is_wrapper && lua_getupvalue(L, -1, NAME)) {
            if (lua_isstring(L, -1)) name = lua_tostring(L, -1); /* the closure holds it */
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
        if (!is_wrapper && *ar.what != 'C' && !where_is_library(&ar)) break;
    }
    return name;
}

/* in_scope(name, fn, ...): calls fn where ops carry the name behind the scope around it. */
static int in_scope(lua_State *L) {
    Host *h = state_of(L);
    int n = lua_gettop(L);
    const char *outer = h->depth ? h->entry[h->depth - 1].scope : NULL;
    lua_pushfstring(L, "%s%s%s", outer ? outer : "", outer ? "." : "",
                    arg_string(L, 1, NULL, "named_scope: the name"));
    const char *scope = intern_name(&h->cx, lua_tostring(L, -1));
    if (!scope) state_check(L, h, err_nomem(&h->cx, "a scope"));
    if (h->depth == 0) state_error(L, E_STATE, "in_scope: not called by the library");
    /* The library's wrapper has made an entry for this call, and will take it back. */
    h->entry[h->depth - 1].scope = scope;
    lua_settop(L, n);
    lua_remove(L, 1);
    lua_call(L, n - 2, LUA_MULTRET);
    return lua_gettop(L);
}

/* How many arguments a Lua function of the library takes; users' functions are called as Lua calls
 * them, with any number. */
static int most_of(lua_State *L, int index) {
    lua_Debug ar;
    lua_pushvalue(L, index);
    lua_getinfo(L, ">Su", &ar);
    return where_is_library(&ar) && !ar.isvararg ? ar.nparams : INT_MAX;
}

/* wrap(fn [, is_module [, name]]): a C function stays as it is. An op finds the user's frame by
 * itself: no tail call drops a frame in favour of a C function. */
static int wrap(lua_State *L) {
    arg_check_type(L, 1, LUA_TFUNCTION, "wrap");
    lua_settop(L, 3);
    if (lua_iscfunction(L, FUNCTION)) return lua_settop(L, FUNCTION), 1;
    lua_pushvalue(L, FUNCTION);
    lua_pushinteger(L, kind_of(most_of(L, FUNCTION), lua_toboolean(L, 2)));
    lua_rawgetp(L, LUA_REGISTRYINDEX, &guard_key);
    lua_pushlightuserdata(L, state_of(L));
    lua_pushvalue(L, 3);
    lua_pushcclosure(L, call_wrapped, NAME);
    return 1;
}

/* accepts(fn): how many arguments it takes; any number of what users write, one of what is C. */
static int accepts(lua_State *L) {
    arg_check_type(L, 1, LUA_TFUNCTION, "accepts");
    lua_settop(L, 1);
    lua_Integer most = lua_iscfunction(L, 1) ? 1 : INT_MAX;
    if (lua_tocfunction(L, 1) == call_wrapped) {
        lua_getupvalue(L, 1, KIND);
        most = lua_tointeger(L, -1) / 2;
    }
    lua_pushinteger(L, most);
    return 1;
}

/* unwrap(fn): the function behind a wrapper, or fn itself. */
static int unwrap(lua_State *L) {
    arg_check_type(L, 1, LUA_TFUNCTION, "wrap");
    lua_settop(L, 1);
    if (lua_tocfunction(L, 1) == call_wrapped) lua_getupvalue(L, 1, FUNCTION);
    return 1;
}

/* set_path(module, path) */
static int set_path(lua_State *L) {
    arg_check_type(L, 1, LUA_TTABLE, "set_path: the module");
    arg_string(L, 2, NULL, "set_path: the path");
    lua_rawgetp(L, LUA_REGISTRYINDEX, &paths_key);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_rawset(L, -3);
    return 0;
}

void wrap_set_path(lua_State *L, int module, const char *path) {
    module = lua_absindex(L, module);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &paths_key);
    lua_pushvalue(L, module);
    lua_pushstring(L, path);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

void wrap_open(lua_State *L) {
    static const luaL_Reg fns[] = {{"wrap", wrap},         {"unwrap", unwrap},
                                   {"accepts", accepts},   {"set_path", set_path},
                                   {"in_scope", in_scope}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
    lua_newuserdatauv(L, 0, 0);
    lua_createtable(L, 0, 1);
    lua_pushlightuserdata(L, state_of(L));
    lua_pushcclosure(L, leave, 1);
    lua_setfield(L, -2, "__close");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &guard_key);
    lua_newtable(L); /* module -> path, weak */
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &paths_key);
}
