/* usage.c - wrong calls of public functions, found in C and told by the library, and what else C
 * leaves to it: see on_misuse. */
#include "lua/state/usage.h"

#include "lua/state/arg.h"

#include <string.h>

static const char handlers_key;

/* Calls a handler with what is on the stack; returns the number of results. */
static int call_handler(lua_State *L, Host *h, const char *name) {
    int n = lua_gettop(L);
    luaL_checkstack(L, 4, "too many arguments");
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &handlers_key) != LUA_TTABLE)
        state_error(L, E_VALUE, "a wrong call of a public function (%s)", name);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    return wrap_call(L, h, n);
}

int usage_surplus(lua_State *L, Host *h, const char *who, int most) {
    lua_Debug ar;
    luaL_checkstack(L, 8, "too many arguments");
    lua_getstack(L, 0, &ar);
    lua_getinfo(L, "f", &ar);
    lua_pushinteger(L, most);
    lua_pushstring(L, who);
    lua_rotate(L, 1, 3);
    return call_handler(L, h, "surplus");
}

static int call_unknown(lua_State *L, const char *type, const char *handler) {
    lua_settop(L, 2);
    lua_remove(L, 1);
    lua_pushstring(L, type);
    lua_insert(L, 1);
    return call_handler(L, state_of(L), handler);
}

int usage_unknown(lua_State *L, const char *type) {
    return call_unknown(L, type, "unknown");
}

int usage_assigned(lua_State *L, const char *type) {
    return call_unknown(L, type, "assigned");
}

void usage_values(lua_State *L, Host *h) {
    call_handler(L, h, "values");
}

/* ---- syntax ---- */

static int refuse(lua_State *L) {
    state_error(L, E_VALUE, "%s", lua_tostring(L, lua_upvalueindex(1)));
}

void usage_add_refusals(lua_State *L, const char *type) {
    static const char *const order =
        "tensors have no Lua order: `<` would give one boolean; use x:lt(y), x:le(y), x:gt(y), "
        "x:ge(y)";
    const struct {
        const char *event, *text;
    } refusals[] = {
        {"__lt", order},
        {"__le", order},
        {"__concat", "a tensor is no text: tostring(x) is one, and x:item() the number of a tensor "
                     "of one element"},
        {"__call", "a tensor is not called: x:at(i) is its i-th row, `for i = 1, #x do` goes "
                   "through them, and x.shape is a field"},
        {"__pairs", "a tensor is no table: `for i = 1, #x do` with x:at(i) goes through its rows, "
                    "x:totable() gives lists"}};
    luaL_getmetatable(L, type);
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        lua_pushstring(L, refusals[i].text);
        lua_pushcclosure(L, refuse, 1);
        lua_setfield(L, -2, refusals[i].event);
    }
    /* As functions of C call it: "number expected, got ..." */
    lua_pushfstring(L, "%s (x:item() is the number of one element)", strchr(type, '.') + 1);
    lua_setfield(L, -2, "__name");
    lua_pop(L, 1);
}

/* ---- C functions ---- */

enum { FUNCTION = 1, MOST, NAME }; /* MOST: -1 until it is asked for */

/* The number of arguments that the row says. */
static int find_most(lua_State *L) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &handlers_key);
    lua_getfield(L, -1, "most");
    lua_pushvalue(L, lua_upvalueindex(NAME));
    lua_call(L, 1, 1);
    int most = (int)lua_tointeger(L, -1);
    lua_replace(L, lua_upvalueindex(MOST));
    lua_pop(L, 1);
    return most;
}

/* A method that has nothing to work on was called with a dot. */
static void check_called_on(lua_State *L) {
    const char *name = lua_tostring(L, lua_upvalueindex(NAME)), *method = strchr(name, ':');
    if (method) state_error(L, E_VALUE, "%s: a method is called with a colon: x%s()", name, method);
}

static int call_checked(lua_State *L) {
    int n = lua_gettop(L), most = (int)lua_tointeger(L, lua_upvalueindex(MOST));
    if (n == 0) check_called_on(L);
    if (n > most) {
        luaL_checkstack(L, 4, "too many arguments");
        if (most < 0) most = find_most(L);
        if (n > most)
            return usage_surplus(L, state_of(L), lua_tostring(L, lua_upvalueindex(NAME)), most);
    }
    return lua_tocfunction(L, lua_upvalueindex(FUNCTION))(L);
}

void usage_push_checked(lua_State *L, lua_CFunction fn, const char *name) {
    lua_pushcfunction(L, fn);
    lua_pushinteger(L, -1);
    lua_pushstring(L, name);
    lua_pushcclosure(L, call_checked, NAME);
}

/* checked(name, fn): fn, a C function, which then checks how many arguments it is given. */
static int checked(lua_State *L) {
    const char *name = arg_string(L, 1, NULL, "checked: the name");
    if (!lua_iscfunction(L, 2) || lua_getupvalue(L, 2, 1))
        state_error(L, E_VALUE, "checked: %s is no C function without upvalues", name);
    usage_push_checked(L, lua_tocfunction(L, 2), name);
    return 1;
}

/* on_misuse{surplus = fn, unknown = fn, assigned = fn, most = fn, values = fn} */
static int on_misuse(lua_State *L) {
    arg_check_type(L, 1, LUA_TTABLE, "on_misuse");
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &handlers_key);
    return 0;
}

void usage_open(lua_State *L) {
    static const luaL_Reg fns[] = {{"checked", checked}, {"on_misuse", on_misuse}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
    lua_pushboolean(L, state_of(L)->verify);
    lua_setfield(L, -2, "verifies"); /* the checked build, or MESHLUA_CHECK: see lib.strict */
}
