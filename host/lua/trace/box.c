/* box.c - Param: a place that holds a tensor, so that modules, optimizers and rngs have state that
 * a jitted function can change. Equality is identity; a box shared by two modules is one leaf. */
#include "lua/trace/trace.h"
#include "lua/state/usage.h"

#include <string.h>

static LuaBox *box_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_BOX);
}

/* Pushes a handle of its own for the tensor at `index` (or in the box there), so that a box shares
 * its handle with nobody: a step that takes over the box's memory can tell who else holds the
 * tensor. */
static void push_own_handle(lua_State *L, Host *h, int index) {
    index = lua_absindex(L, index);
    LuaTensor *own = value_new_tensor(L), *from = value_tensor(L, h, index);
    own->serial = from->serial;
    own->v = from->v;
    if (from->t) own->t = tensor_retain(from->t);
}

/* box_new(tensor or nil, metadata table, own): `own`: nobody else has the tensor's handle. */
static int box_new(lua_State *L) {
    Host *h = state_of(L);
    lua_settop(L, 3);
    if (!lua_isnil(L, 1)) value_tensor(L, h, 1);
    arg_check_type(L, 2, LUA_TTABLE, "the metadata of a Param");
    LuaBox *b = lua_newuserdatauv(L, sizeof *b, 2);
    *b = (LuaBox){0};
    if (h->trace) *b = (LuaBox){.made_in = h->trace->serial, .region = h->trace->build.region};
    if (lua_isnil(L, 1) || lua_toboolean(L, 3))
        lua_pushvalue(L, 1);
    else
        push_own_handle(L, h, 1);
    value_put_in_box(L, -2);
    lua_pushvalue(L, 2);
    lua_setiuservalue(L, -2, 2);
    luaL_setmetatable(L, VALUE_BOX);
    return 1;
}

/* box:get(): the tensor it holds, or nil. */
static int box_get(lua_State *L) {
    Host *h = state_of(L);
    box_at(L, 1);
    if (h->trace && h->trace->reads) trace_note_read(L, 1);
    lua_getiuservalue(L, 1, 1);
    if (!lua_isnil(L, -1)) push_own_handle(L, h, 1);
    return 1;
}

/* box:set(t): t replaces the tensor; in a trace, for good when the trace ends well. */
static int box_set(lua_State *L) {
    Host *h = state_of(L);
    box_at(L, 1);
    lua_settop(L, 2);
    value_tensor(L, h, 2);
    if (h->trace) trace_note_write(L, h, 1);
    push_own_handle(L, h, 2);
    value_put_in_box(L, 1);
    lua_settop(L, 1);
    return 1;
}

/* box_swap(box, tensor or nil): sets, and returns what it held. For the library's own transforms,
 * which put things back; where one fails to, the end of the trace does. */
static int box_swap(lua_State *L) {
    box_at(L, 1);
    lua_settop(L, 2);
    if (!lua_isnil(L, 2)) value_udata(L, 2, VALUE_TENSOR);
    if (state_of(L)->trace) trace_note_swap(L, 1);
    lua_getiuservalue(L, 1, 1);
    lua_pushvalue(L, 2);
    value_put_in_box(L, 1);
    return 1;
}

/* box_meta(box): its metadata table. */
static int box_meta(lua_State *L) {
    box_at(L, 1);
    lua_getiuservalue(L, 1, 2);
    return 1;
}

/* is_box(x) */
static int is_box(lua_State *L) {
    lua_pushboolean(L, value_box(L, state_of(L), 1) != NULL);
    return 1;
}
/* is_operand(x): a tensor, or a Param */
static int is_operand(lua_State *L) {
    lua_pushboolean(L, value_is_tensor(L, state_of(L), 1));
    return 1;
}
static int is_tensor(lua_State *L) {
    lua_pushboolean(L, value_handle(L, state_of(L), 1) != NULL);
    return 1;
}

static bool is_metadata(const char *name) {
    static const char *const names[] = {"kind", "axes", "opt_axes", "opt_sharding", "role"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* type_name(x): for messages. */
static int type_name(lua_State *L) {
    lua_pushstring(L, arg_type_name(L, 1));
    return 1;
}

/* Fields: the metadata (nil where it is not set), then the box's own methods, then everything of
 * its tensor. */
static int box_index(lua_State *L) {
    if (lua_type(L, 2) == LUA_TSTRING) {
        lua_getiuservalue(L, 1, 2);
        lua_pushvalue(L, 2);
        if (lua_rawget(L, -2) != LUA_TNIL || is_metadata(lua_tostring(L, 2))) return 1;
        lua_pushvalue(L, 2);
        if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
    }
    lua_getiuservalue(L, 1, 1);
    if (lua_isnil(L, -1)) state_error(L, E_STATE, "the Param is empty");
    lua_pushvalue(L, 2);
    lua_gettable(L, -2);
    return 1;
}

/* "Param(param, float32[3])", and the values below it. */
static int box_tostring(lua_State *L) {
    lua_getiuservalue(L, 1, 2);
    lua_getfield(L, -1, "kind");
    lua_getiuservalue(L, 1, 1);
    if (lua_isnil(L, -1))
        lua_pushliteral(L, "empty");
    else
        luaL_tolstring(L, -1, NULL);
    const char *kind = lua_isstring(L, -3) ? lua_tostring(L, -3) : "param";
    const char *text = lua_tostring(L, -1), *values = strchr(text, '\n');
    lua_pushlstring(L, text, values ? (size_t)(values - text) : strlen(text));
    lua_pushfstring(L, "Param(%s, %s)%s", kind, lua_tostring(L, -1), values ? values : "");
    return 1;
}

static int box_len(lua_State *L) {
    value_tensor(L, state_of(L), 1);
    lua_getiuservalue(L, 1, 1);
    lua_pushinteger(L, luaL_len(L, -1));
    return 1;
}

static int box_newindex(lua_State *L) {
    return usage_assigned(L, "Param");
}

void trace_open_box(lua_State *L) {
    static const luaL_Reg meta[] = {{"__tostring", box_tostring},
                                    {"__len", box_len},
                                    {"__newindex", box_newindex},
                                    {NULL, NULL}};
    static const luaL_Reg methods[] = {{"get", box_get}, {"set", box_set}, {NULL, NULL}};
    static const luaL_Reg fns[] = {{"box_new", box_new},     {"box_swap", box_swap},
                                   {"box_meta", box_meta},   {"is_box", is_box},
                                   {"is_tensor", is_tensor}, {"is_operand", is_operand},
                                   {"type_name", type_name}, {NULL, NULL}};
    value_new_type(L, VALUE_BOX, meta, methods, box_index);
    usage_add_refusals(L, VALUE_BOX);
    luaL_setfuncs(L, fns, 0);
}
