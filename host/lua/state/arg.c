#include "lua/state/arg.h"

#include <lauxlib.h>
#include <string.h>

const char *arg_short_name(const char *name) {
    return strncmp(name, "meshlua.", 8) == 0 ? name + 8 : name;
}

/* "function"; of a method that stands where its result should (x.T for x:T()) how it is called. */
static const char *function_name(lua_State *L, int index) {
    index = lua_absindex(L, index);
    luaL_checkstack(L, 6, "a type's name");
    luaL_getmetatable(L, VALUE_TENSOR);
    lua_getfield(L, -1, "methods");
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
        if (lua_rawequal(L, -1, index))
            return lua_pushfstring(L, "function (x:%s() calls the method)", lua_tostring(L, -2));
    return luaL_typename(L, index);
}

const char *arg_type_name(lua_State *L, int index) {
    const char *name = luaL_typename(L, index);
    if (lua_isfunction(L, index)) return function_name(L, index);
    if (lua_type(L, index) != LUA_TUSERDATA) return name;
    const char *const fields[] = {"type", "__name"}; /* the metatable keeps them */
    for (int i = 0; i < 2; i++) {
        if (!luaL_getmetafield(L, index, fields[i])) continue;
        bool is_text = lua_type(L, -1) == LUA_TSTRING;
        if (is_text) name = lua_tostring(L, -1);
        lua_pop(L, 1);
        if (is_text) break;
    }
    return name;
}

static _Noreturn void unexpected(lua_State *L, int index, const char *what, const char *wanted) {
    state_error(L, E_VALUE, "%s: expected %s, got %s", what, wanted, arg_type_name(L, index));
}

lua_Integer arg_integer(lua_State *L, int index, const char *what) {
    int whole;
    if (lua_type(L, index) != LUA_TNUMBER) unexpected(L, index, what, "a whole number");
    lua_Integer x = lua_tointegerx(L, index, &whole);
    if (!whole)
        state_error(L, E_VALUE, "%s: %.14g is not a whole number", what, lua_tonumber(L, index));
    return x;
}

int32_t arg_int32(lua_State *L, int index, const char *what) {
    lua_Integer x = arg_integer(L, index, what);
    if (x < INT32_MIN || x > INT32_MAX)
        state_error(L, E_VALUE, "%s: %lld is out of range", what, (long long)x);
    return (int32_t)x;
}

int32_t arg_dim(lua_State *L, int index, const char *what) {
    int32_t d = arg_int32(L, index, what);
    if (d < 1 || d > MAX_RANK)
        state_error(L, E_SHAPE, "%s: dim %d; tensors have at most %d dims", what, (int)d, MAX_RANK);
    return d - 1;
}

lua_Number arg_number(lua_State *L, int index, const char *what) {
    if (lua_type(L, index) != LUA_TNUMBER) unexpected(L, index, what, "a number");
    return lua_tonumber(L, index);
}

const char *arg_string(lua_State *L, int index, size_t *n, const char *what) {
    if (lua_type(L, index) != LUA_TSTRING) unexpected(L, index, what, "a string");
    return lua_tolstring(L, index, n);
}

void arg_check_type(lua_State *L, int index, int type, const char *what) {
    if (lua_type(L, index) == type) return;
    unexpected(L, index, what, lua_pushfstring(L, "a %s", lua_typename(L, type)));
}
