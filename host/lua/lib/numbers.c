#include "lua/lib/numbers.h"
#include "base/plain.h"
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include <math.h>
#include <string.h>

/* ---- what a value is ---- */

/* The dims by the first element of each list; false: too deep. */
static bool learn_dims(lua_State *L, int index, Dims *dims) {
    int top = lua_gettop(L);
    *dims = (Dims){.rank = 0};
    lua_pushvalue(L, index);
    while (lua_type(L, -1) == LUA_TTABLE && dims->rank < MAX_RANK) {
        dims_push(dims, (int64_t)lua_rawlen(L, -1));
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
        if (!dims->at[dims->rank - 1]) break;
    }
    bool fits = lua_type(L, -1) != LUA_TTABLE;
    lua_settop(L, top);
    return fits;
}

/* The elements' dtype so far and with the value at `index`; DT_COUNT: none fits. */
static DType learn_dtype(lua_State *L, int index, int depth, DType so_far) {
    int type = lua_type(L, index);
    if (type == LUA_TBOOLEAN) return so_far == DT_BOOL ? DT_BOOL : DT_COUNT;
    if (type == LUA_TNUMBER) {
        lua_Integer i = lua_tointeger(L, index);
        DType own = !lua_isinteger(L, index)         ? DT_F32
                    : i < INT32_MIN || i > INT32_MAX ? DT_I64
                                                     : DT_I32;
        if (so_far == DT_BOOL) return DT_COUNT;
        return own == DT_F32 || so_far == DT_F32 ? DT_F32 : own == DT_I64 ? own : so_far;
    }
    if (type != LUA_TTABLE || depth > MAX_RANK) return DT_COUNT;
    lua_Integer n = (lua_Integer)lua_rawlen(L, index);
    for (lua_Integer i = 1; i <= n && so_far != DT_COUNT; i++) {
        lua_rawgeti(L, index, i);
        so_far = learn_dtype(L, lua_gettop(L), depth + 1, so_far);
        lua_pop(L, 1);
    }
    return so_far;
}

/* Pushes the first element of nested lists. */
static void push_first(lua_State *L, int index) {
    lua_pushvalue(L, index);
    while (lua_type(L, -1) == LUA_TTABLE) {
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
}

bool numbers_learn(lua_State *L, int index, int32_t *dtype, Dims *dims, char why[NUMBERS_WHY]) {
    luaL_checkstack(L, MAX_RANK + 4, "numbers");
    *dims = (Dims){.rank = 0};
    *dtype = -1;
    if (lua_type(L, index) == LUA_TSTRING) return true;
    if (!learn_dims(L, index, dims)) {
        plain_format(why, NUMBERS_WHY, "lists nested deeper than %d", MAX_RANK);
        return false;
    }
    push_first(L, index);
    DType from = lua_isboolean(L, -1) ? DT_BOOL : DT_I32;
    lua_pop(L, 1);
    DType found = learn_dtype(L, index, 0, from);
    if (found == DT_COUNT) {
        plain_format(why, NUMBERS_WHY, "expected numbers in (nested) lists, or a text; got a %s",
                     luaL_typename(L, index));
        return false;
    }
    *dtype = (int32_t)found;
    return true;
}

/* ---- packed ---- */

typedef struct Packing {
    lua_State *L;
    DType dtype;
    const Dims *dims;
    int size;
    char *out, *why;
} Packing;

static bool misfit(const Packing *p, const char *what) {
    plain_format(p->why, NUMBERS_WHY, "%s is not of %s", what, dtype_name(p->dtype));
    return false;
}

/* The number on top of the stack. */
static bool pack_number(Packing *p) {
    lua_State *L = p->L;
    int whole = 0;
    double x = lua_tonumber(L, -1);
    lua_Integer i = lua_tointegerx(L, -1, &whole);
    char text[40];
    if (p->dtype == DT_F32) {
        float f = (float)x;
        memcpy(p->out, &f, sizeof f);
    } else if (p->dtype == DT_F64) {
        memcpy(p->out, &x, sizeof x);
    } else {
        if (whole)
            plain_format(text, sizeof text, "%lld", (long long)i);
        else
            plain_format(text, sizeof text, "%.14g", x);
        bool fits = whole && p->dtype != DT_BOOL && dtype_kind(p->dtype) == KIND_INT;
        if (fits && p->size < 8)
            fits = (double)i >= dtype_lowest(p->dtype) && (double)i <= dtype_highest(p->dtype);
        if (!fits || (p->dtype == DT_U64 && i < 0)) return misfit(p, text);
        memcpy(p->out, &i, (size_t)p->size); /* little-endian */
    }
    p->out += p->size;
    return true;
}

/* The value on top of the stack, at depth d. */
static bool pack_value(Packing *p, int d) {
    lua_State *L = p->L;
    int type = lua_type(L, -1);
    if (d == p->dims->rank) {
        if (type == LUA_TNUMBER) return pack_number(p);
        if (type == LUA_TBOOLEAN && p->dtype == DT_BOOL) {
            *p->out++ = (char)lua_toboolean(L, -1);
            return true;
        }
        return misfit(p, luaL_typename(L, -1));
    }
    int64_t n = type == LUA_TTABLE ? (int64_t)lua_rawlen(L, -1) : -1;
    if (n != p->dims->at[d]) {
        if (n < 0)
            plain_format(p->why, NUMBERS_WHY, "dim %d is a %s", d + 1, luaL_typename(L, -1));
        else
            plain_format(p->why, NUMBERS_WHY, "dim %d has %lld of %lld", d + 1, (long long)n,
                         (long long)p->dims->at[d]);
        return false;
    }
    for (int64_t i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, i);
        if (!pack_value(p, d + 1)) return false;
        lua_pop(L, 1);
    }
    return true;
}

bool numbers_pack(lua_State *L, int index, DType dtype, const Dims *dims, char *out,
                  char why[NUMBERS_WHY]) {
    Packing p = {L, dtype, dims, dtype_size(dtype), out, why};
    int top = lua_gettop(L);
    luaL_checkstack(L, MAX_RANK + 4, "numbers");
    lua_pushvalue(L, index);
    bool done = pack_value(&p, 0);
    lua_settop(L, top);
    return done;
}

/* ---- for Lua ---- */

/* learn(value): dtype and shape of numbers in nested lists; of a string "text" alone; or nil,
 * message. */
static int learn(lua_State *L) {
    char why[NUMBERS_WHY];
    int32_t dtype;
    Dims dims;
    lua_settop(L, 1);
    if (!numbers_learn(L, 1, &dtype, &dims, why)) {
        lua_pushnil(L);
        lua_pushstring(L, why);
        return 2;
    }
    lua_pushstring(L, dtype < 0 ? "text" : dtype_name((DType)dtype));
    if (dtype < 0) return 1;
    value_push_dims(L, &dims, 0);
    return 2;
}

/* pack(value, dtype, shape): the bytes of its elements; or nil, message. */
static int pack(lua_State *L) {
    char why[NUMBERS_WHY];
    DType dtype = value_dtype(L, 2);
    Dims dims = value_dims(L, 3, 0, "pack: the shape");
    int64_t count = dims_count(&dims);
    lua_settop(L, 3);
    if (count < 0 || dtype_is_narrow(dtype))
        state_error(L, E_DTYPE, "%s: numbers of a record become float32, float64, integers or bool",
                    dtype_name(dtype));
    luaL_Buffer b;
    size_t bytes = (size_t)(count * dtype_size(dtype));
    char *out = luaL_buffinitsize(L, &b, bytes);
    lua_pushvalue(L, 1);
    bool packed = numbers_pack(L, lua_gettop(L), dtype, &dims, out, why);
    lua_pop(L, 1);
    if (packed) {
        luaL_pushresultsize(&b, bytes);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

void numbers_open(lua_State *L) {
    static const luaL_Reg fns[] = {{"learn", learn}, {"pack", pack}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
