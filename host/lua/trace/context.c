/* context.c - what is in context: a mesh, with which a bare P is a sharding,
 * rules, and no locale. */
#include "lua/trace/trace.h"

#include "base/plain.h"

static const char rules_key; /* its address is the registry key of a table, or false */
static const char laid_key;  /* the same, of shardings by input */

/* in_context(mesh or nil, rules or nil, fn, ...): fn's results, with these in context meanwhile.
 * What puts the context back needs no memory and is no Lua, so that nothing can keep it from
 * happening. */
static int in_context(lua_State *L) {
    Host *h = state_of(L);
    const Mesh *mesh = lua_isnil(L, 1) ? NULL : value_mesh(L, 1), *before = h->mesh;
    int nargs = lua_gettop(L) > 3 ? lua_gettop(L) - 3 : 0;
    if (!lua_isnil(L, 2)) arg_check_type(L, 2, LUA_TTABLE, "the rules in context");
    lua_settop(L, nargs + 3);
    if (!luaL_getmetafield(L, 3, "__call")) arg_check_type(L, 3, LUA_TFUNCTION, "in_context");
    lua_settop(L, nargs + 3);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &rules_key);
    lua_replace(L, 1); /* the rules of before */
    if (lua_isnil(L, 2)) {
        lua_pushboolean(L, 0);
        lua_replace(L, 2);
    }
    lua_pushvalue(L, 2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &rules_key);
    h->mesh = mesh;
    int status = wrap_pcall(L, nargs);
    h->mesh = before;
    lua_pushvalue(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &rules_key);
    if (status != LUA_OK) return lua_error(L);
    return lua_gettop(L) - 2;
}

/* instead_of(mesh, other, fn, ...): fn's results, where meanwhile the other mesh stands in for the
 * first wherever the script names it, and in the types of tensors that a trace meets. For asking
 * what a step would be elsewhere: nothing can run that way. */
static int instead_of(lua_State *L) {
    Host *h = state_of(L);
    if (h->mesh_from) state_error(L, E_STATE, "instead_of: a mesh stands in for another already");
    const Mesh *from = value_mesh(L, 1), *to = value_mesh(L, 2), *before = h->mesh;
    arg_check_type(L, 3, LUA_TFUNCTION, "instead_of");
    h->mesh_from = from;
    h->mesh_to = to;
    h->mesh = value_mesh_now(h, before);
    int status = wrap_pcall(L, lua_gettop(L) - 3);
    h->mesh_from = h->mesh_to = NULL;
    h->mesh = before;
    if (status != LUA_OK) return lua_error(L);
    return lua_gettop(L) - 2;
}

/* laid_as(shardings, fn, ...): fn's results, where meanwhile input i of a trace lies as
 * shardings[i], where there is one, and plans are not kept. For asking what a step would be then:
 * nothing can run that way. */
static int laid_as(lua_State *L) {
    Host *h = state_of(L);
    if (h->laid) state_error(L, E_STATE, "laid_as: inputs are laid out otherwise already");
    arg_check_type(L, 1, LUA_TTABLE, "laid_as");
    arg_check_type(L, 2, LUA_TFUNCTION, "laid_as");
    lua_pushvalue(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &laid_key);
    h->laid = true;
    int status = wrap_pcall(L, lua_gettop(L) - 2);
    h->laid = false;
    lua_pushboolean(L, 0);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &laid_key);
    if (status != LUA_OK) return lua_error(L);
    return lua_gettop(L) - 1;
}

const Type *trace_input_type(lua_State *L, Host *h, const Type *t, const char *what) {
    t = value_type_now(L, h, t, what);
    if (!h->laid) return t;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &laid_key);
    lua_rawgeti(L, -1, h->trace->graph->region.at[0].param.n + 1);
    if (!lua_isnil(L, -1))
        t = type_with_layout(&h->cx, t, value_layout_at(L, h, -1, &t->dims, what));
    if (!t) state_check(L, h, err_nomem(&h->cx, "a type"));
    lua_pop(L, 2);
    return t;
}

/* mesh_current(): nil if none is in context. */
static int mesh_current(lua_State *L) {
    const Host *h = state_of(L);
    if (h->mesh)
        value_push_mesh(L, h->mesh);
    else
        lua_pushnil(L);
    return 1;
}

/* set_mesh(mesh or nil): from now on in context. Needs no memory. */
static int set_mesh(lua_State *L) {
    Host *h = state_of(L);
    const Mesh *mesh = lua_isnoneornil(L, 1) ? NULL : value_mesh(L, 1);
    if (h->trace)
        state_error(L, E_STATE,
                    "set_mesh inside a traced function: its mesh is settled when it is called; use "
                    "mesh:with(fn)");
    h->mesh = mesh;
    return 0;
}

void trace_push_rules(lua_State *L) {
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &rules_key) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_pushnil(L);
}

/* rules_current(): nil if none are in context. */
static int rules_current(lua_State *L) {
    trace_push_rules(L);
    return 1;
}

/* ---- texts that others read, in any locale ---- */

static int call_plain(lua_State *L) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    locale_t before = plain_enter();
    int status = wrap_pcall(L, lua_gettop(L) - 1);
    plain_leave(before);
    return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

/* plain(fn): the function with decimal points in the numbers that it makes text, or reads, and in
 * the bytewise order of words, whatever locale the script has set. */
static int plain(lua_State *L) {
    arg_check_type(L, 1, LUA_TFUNCTION, "plain");
    lua_settop(L, 1);
    lua_pushcclosure(L, call_plain, 1);
    return 1;
}

void trace_open_context(lua_State *L) {
    static const luaL_Reg fns[] = {{"in_context", in_context},       {"plain", plain},
                                   {"instead_of", instead_of},       {"laid_as", laid_as},
                                   {"mesh_current", mesh_current},   {"set_mesh", set_mesh},
                                   {"rules_current", rules_current}, {NULL, NULL}};
    lua_pushboolean(L, 0);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &rules_key);
    lua_pushboolean(L, 0); /* the slot is there: to empty it takes no memory */
    lua_rawsetp(L, LUA_REGISTRYINDEX, &laid_key);
    luaL_setfuncs(L, fns, 0);
}
