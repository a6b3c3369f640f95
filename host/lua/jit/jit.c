/* jit.c - jit: a function traced once for each kind of arguments, and from then on a plan. */
#include "lua/jit/jit.h"
#include "lua/jit/plan_info.h"

static LuaJit *jit_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_JIT);
}

static int jit_gc(lua_State *L) {
    LuaJit *j = jit_at(L, 1);
    if (!j->cx) return 0;
    jit_drop_entries(j);
    str_free(&j->why);
    str_free(&j->stages);
    j->cx = NULL;
    return 0;
}

static int jit_call(lua_State *L) {
    Host *h = state_of(L);
    LuaJit *j = jit_at(L, JIT);
    return h->trace ? jit_inline_call(L, h, j) : jit_run_call(L, h, j);
}

static int plan_body(lua_State *L) {
    Walk w;
    const JitEntry *e = jit_entry_for(L, state_of(L), jit_at(L, JIT), lua_gettop(L), &w);
    plan_info_push(L, e->exec);
    return 1;
}

/* step:plan(arguments...): the plan for a call with these arguments, without running it. */
static int jit_plan(lua_State *L) {
    jit_at(L, JIT);
    return trace_protected(L, plan_body);
}

/* step:why_miss(): why the latest trace was made. */
static int jit_why_miss(lua_State *L) {
    const LuaJit *j = jit_at(L, 1);
    lua_pushstring(L, j->why.n ? str_of(&j->why) : "it has not been called");
    return 1;
}

/* step:stats(): calls that found a plan, calls that were traced. */
static int jit_stats(lua_State *L) {
    const LuaJit *j = jit_at(L, 1);
    lua_pushinteger(L, j->hits);
    lua_pushinteger(L, j->misses);
    return 2;
}

static uint64_t mask_field(lua_State *L, int index, const char *name) {
    lua_getfield(L, index, name);
    uint64_t mask = (uint64_t)lua_tointeger(L, -1);
    lua_pop(L, 1);
    return mask;
}

/* jit_new{fn =, call =, static = mask, donate = mask, keep_boxes =, mesh =} */
static int jit_new(lua_State *L) {
    Host *h = state_of(L);
    arg_check_type(L, 1, LUA_TTABLE, "jit_new");
    lua_settop(L, 1);
    LuaJit *j = jit_push_new(L, h);
    lua_getfield(L, 1, "fn");
    arg_check_type(L, -1, LUA_TFUNCTION, "jit_new: fn");
    lua_setiuservalue(L, 2, 1);
    lua_getfield(L, 1, "call");
    arg_check_type(L, -1, LUA_TFUNCTION, "jit_new: call");
    lua_setiuservalue(L, 2, 2);
    j->static_args = mask_field(L, 1, "static");
    j->donate_args = mask_field(L, 1, "donate");
    lua_getfield(L, 1, "keep_boxes");
    j->keep_boxes = lua_toboolean(L, -1);
    if (lua_getfield(L, 1, "mesh") != LUA_TNIL) j->mesh = value_mesh(L, -1);
    lua_settop(L, 2);
    return 1;
}

/* "jit(models/gpt.lua:12), 2 plans" */
static int jit_tostring(lua_State *L) {
    const LuaJit *j = value_udata(L, 1, VALUE_JIT);
    lua_Debug ar;
    lua_getiuservalue(L, 1, 1);
    lua_getinfo(L, ">S", &ar);
    lua_pushfstring(L, "jit(%s:%d), %d plan%s", ar.short_src, ar.linedefined, (int)j->n,
                    str_s(j->n));
    return 1;
}

void jit_open(lua_State *L) {
    static const luaL_Reg meta[] = {
        {"__call", jit_call}, {"__gc", jit_gc}, {"__tostring", jit_tostring}, {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"bind", jit_bind},         {"plan", jit_plan},   {"program", jit_program_trace},
        {"why_miss", jit_why_miss}, {"stats", jit_stats}, {NULL, NULL}};
    value_new_type(L, VALUE_JIT, meta, methods, NULL);
    lua_pushcfunction(L, jit_new);
    lua_setfield(L, -2, "jit_new");
    jit_bind_open(L);
    jit_lower_open(L);
}
