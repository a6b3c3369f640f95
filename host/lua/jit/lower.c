/* lower.c - a jitted function lowered for certain arguments: a sealed copy of it that knows
 * one plan and the text of every stage on the way there. */
#include "lua/jit/jit.h"
#include "lua/jit/plan_info.h"

/* ---- lowering ---- */

/* Pushes a sealed function like that at index JIT. */
static LuaJit *push_sealed(lua_State *L, Host *h, const LuaJit *j) {
    LuaJit *s = jit_push_new(L, h);
    s->static_args = j->static_args;
    s->donate_args = j->donate_args;
    s->keep_boxes = j->keep_boxes;
    s->mesh = j->mesh;
    s->sealed = true;
    for (int i = 1; i <= 2; i++) {
        lua_getiuservalue(L, JIT, i);
        lua_setiuservalue(L, -2, i);
    }
    return s;
}

/* Pushes handles of tensors without values, of the types of the results. */
static void push_result_types(lua_State *L, Host *h, const JitEntry *e) {
    luaL_checkstack(L, e->nout + LUA_MINSTACK, "too many results");
    for (int32_t i = 0; i < e->nout; i++) {
        LuaTensor *u = value_new_tensor(L);
        u->t = tensor_new(&h->cx, e->exec->result_type[i]);
        if (!u->t) state_check(L, h, err_nomem(&h->cx, "the results of a lowered function"));
    }
}

static int lower_body(lua_State *L) {
    Host *h = state_of(L);
    const LuaJit *j = value_udata(L, JIT, VALUE_JIT);
    int last = lua_gettop(L);
    LuaJit *s = push_sealed(L, h, j);
    lua_replace(L, JIT);
    Walk w = jit_walk_call(L, h, s, last);
    const JitEntry *e = jit_trace(L, h, s, &w, last);
    lua_pushvalue(L, JIT);
    lua_pushlstring(L, str_of(&s->stages), s->stages.n);
    plan_info_push(L, e->exec);
    int top = lua_gettop(L);
    lua_getiuservalue(L, JIT, 3);
    lua_rawgeti(L, -1, 1);
    push_result_types(L, h, e);
    int n = jit_push_returned(L, top + 2, top + 2);
    lua_rotate(L, top + 1, n); /* the tables and handles behind what is returned */
    lua_settop(L, top + n);
    return 3 + n;
}

/* jit_lower(step, arguments...): a sealed copy of the function, the texts of its stages, its plan,
 * and what it would return, of types. Nothing runs. */
static int jit_lower(lua_State *L) {
    const LuaJit *j = value_udata(L, 1, VALUE_JIT);
    Host *h = state_of(L);
    if (j->sealed) state_error(L, E_VALUE, "lower: the function is lowered already");
    if (h->trace)
        state_error(L, E_TRACED, "lower: inside a traced function the arguments have no types yet");
    return trace_protected(L, lower_body);
}

void jit_lower_open(lua_State *L) {
    lua_pushcfunction(L, jit_lower);
    lua_setfield(L, -2, "jit_lower");
}
