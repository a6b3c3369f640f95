/* explicit.c - explicit mode in the trace under way: which axes are explicit, and whether
 * ambiguous layouts are errors. Both hold for a scope, which ends when it is closed. */
#include "ir/explicit.h"
#include "lua/trace/trace.h"

#define VALUE_SCOPE "meshlua.explicit_scope"

typedef struct Scope {
    uint64_t serial; /* of the trace; 0: closed */
    bool strict;
    uint8_t flipped;
    const Layout *want;
} Scope;

/* Pushes a scope that brings back what holds now. */
static Build *push_scope(lua_State *L, Host *h) {
    Trace *t = trace_of(L, h, "types of axes");
    Scope *s = lua_newuserdatauv(L, sizeof *s, 0);
    *s = (Scope){t->serial, t->build.strict, t->build.flipped, t->build.want};
    luaL_setmetatable(L, VALUE_SCOPE);
    return &t->build;
}

static int scope_close(lua_State *L) {
    Host *h = state_of(L);
    Scope *s = value_udata(L, 1, VALUE_SCOPE);
    if (h->trace && h->trace->serial == s->serial) {
        h->trace->build.strict = s->strict;
        h->trace->build.flipped = s->flipped;
        h->trace->build.want = s->want;
    }
    s->serial = 0;
    return 0;
}

/* resolving(sharding): ambiguous layouts are settled, in favour of the sharding where it can be. */
static int resolving(lua_State *L) {
    Host *h = state_of(L);
    LuaSharding s = value_sharding(L, h, 1);
    Layout l;
    trace_of(L, h, "types of axes");
    if (s.mesh) value_use_mesh(L, h, s.mesh, "out_sharding");
    Dims any = {.rank = s.mesh ? s.spec->n : 0};
    if (s.mesh)
        state_check(L, h, layout_from_spec(&h->cx, s.mesh, s.spec, &any, "out_sharding", &l));
    const Layout *want = s.mesh ? layout_of(&h->cx, &l) : NULL;
    if (s.mesh && !want) state_check(L, h, err_nomem(&h->cx, "a layout"));
    Build *b = push_scope(L, h);
    b->strict = false;
    b->want = want;
    return 1;
}

/* switching(mesh, axes, "auto" | "explicit"): the axes are in that mode. Manual axes stay so. */
static int switching(lua_State *L) {
    Host *h = state_of(L);
    const Mesh *m = value_mesh(L, 1);
    arg_check_type(L, 2, LUA_TTABLE, "switching: axes");
    bool to_explicit = arg_string(L, 3, NULL, "switching")[0] == 'e';
    uint32_t flipped = h->trace ? h->trace->build.flipped : 0;
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 2); i++) {
        lua_rawgeti(L, 2, i);
        int axis = mesh_axis(m, arg_string(L, -1, NULL, "switching: axis"));
        if (axis < 0)
            state_error(L, E_SPEC, "switching: '%s' is no axis of the mesh", lua_tostring(L, -1));
        lua_pop(L, 1);
        bool now = m->type[axis] == AXIS_EXPLICIT;
        flipped &= ~(1u << axis);
        if (now != to_explicit) flipped |= 1u << axis;
    }
    trace_of(L, h, "types of axes");
    value_use_mesh(L, h, m, to_explicit ? "explicit_axes: its mesh" : "auto_axes: its mesh");
    push_scope(L, h)->flipped = (uint8_t)flipped;
    return 1;
}

/* mesh_here(): the mesh in context, else that of the trace under way; nil. */
static int mesh_here(lua_State *L) {
    Host *h = state_of(L);
    const Mesh *m = h->mesh ? h->mesh : h->trace ? h->trace->graph->mesh : NULL;
    if (m)
        value_push_mesh(L, m);
    else
        lua_pushnil(L);
    return 1;
}

/* mesh_now(mesh): the mesh, or what stands in for it: see instead_of. */
static int mesh_now(lua_State *L) {
    value_push_mesh(L, value_mesh(L, 1));
    return 1;
}

/* mesh_traced(): the mesh of the trace under way; nil. */
static int mesh_traced(lua_State *L) {
    const Host *h = state_of(L);
    if (h->trace && h->trace->graph->mesh)
        value_push_mesh(L, h->trace->graph->mesh);
    else
        lua_pushnil(L);
    return 1;
}

/* explicit_here(mesh): the axes of the mesh that are explicit at this place, in its order. */
static int explicit_here(lua_State *L) {
    Host *h = state_of(L);
    const Mesh *m = value_mesh(L, 1);
    uint32_t mask = mesh_axes_of(m, AXIS_EXPLICIT) ^ (h->trace ? h->trace->build.flipped : 0u);
    value_push_axes(L, m, mask);
    return 1;
}

/* Is the value on top a table with this key, or one whose first key is a text? */
static bool has_options(lua_State *L, int key) {
    if (!lua_istable(L, -1)) return false;
    int n = lua_gettop(L);
    lua_pushvalue(L, key);
    bool found = lua_rawget(L, n) != LUA_TNIL;
    lua_pop(L, 1);
    if (found) return true;
    lua_pushnil(L);
    if (!lua_next(L, n)) return false;
    found = lua_type(L, -2) == LUA_TSTRING;
    lua_settop(L, n);
    return found;
}

/* upvalues: the option, the function, what is called instead where the last argument has options */
static int call_with_option(lua_State *L) {
    int n = lua_gettop(L);
    lua_pushvalue(L, lua_upvalueindex(n > 0 && has_options(L, lua_upvalueindex(1)) ? 3 : 2));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

/* with_option(name, fn, instead): a function that calls `instead` if its last argument is
 * a table with that field, or of names, else fn. No Lua frame of it stands between the
 * user's line and fn. */
static int with_option(lua_State *L) {
    arg_string(L, 1, NULL, "with_option");
    arg_check_type(L, 2, LUA_TFUNCTION, "with_option: fn");
    arg_check_type(L, 3, LUA_TFUNCTION, "with_option: instead");
    lua_settop(L, 3);
    lua_pushcclosure(L, call_with_option, 3);
    return 1;
}

void trace_open_explicit(lua_State *L) {
    static const luaL_Reg meta[] = {{"__close", scope_close}, {"__gc", scope_close}, {NULL, NULL}};
    static const luaL_Reg fns[] = {{"with_option", with_option},     {"resolving", resolving},
                                   {"switching", switching},         {"mesh_here", mesh_here},
                                   {"mesh_now", mesh_now},           {"mesh_traced", mesh_traced},
                                   {"explicit_here", explicit_here}, {NULL, NULL}};
    value_new_type(L, VALUE_SCOPE, meta, NULL, NULL);
    luaL_setfuncs(L, fns, 0);
}
