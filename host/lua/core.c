/* core.c - luaopen_meshlua: the table `meshlua.core` that C gives, and the embedded Lua library on
 * top. */
#include "lua/core.h"
#include "lua/jit/jit.h"
#include "lua/jit/profile.h"
#include "lua/jit/plan_info.h"
#include "lua/lib/lib.h"
#include "lua/lib/numbers.h"
#include "lua/state/stop.h"
#include "lua/state/usage.h"
#include "meshlua.h"

#include <string.h>
#include <unistd.h>

static int open_core(lua_State *L) {
    lua_newtable(L);
    wrap_open(L);
    usage_open(L);
    walk_open(L);
    lib_open_tensor(L);
    lib_open_array(L);
    trace_open_box(L);
    lib_open_spec(L);
    lib_open_mesh(L);
    lib_open_pipe(L);
    lib_open_ranks(L);
    trace_open_manual(L);
    trace_open_explicit(L);
    trace_open_context(L);
    lib_open_attributes(L);
    lib_open_ops(L);
    trace_open(L);
    trace_open_region(L);
    lib_open_attempt(L);
    trace_open_control(L);
    trace_open_transform(L);
    jit_open(L);
    jit_open_program(L);
    lib_open_data(L);
    lib_open_tokens(L);
    lib_open_tokenizer(L);
    numbers_open(L);
    lib_open_workers(L);
    lib_open_transfer(L);
    lib_open_whole(L);
    lib_open_catalog(L);
    lib_open_debug(L);
    lib_open_disk(L);
    plan_info_open(L);
    jit_open_profile(L);
    stop_open(L);
    return 1;
}

/* Loads an embedded module: its name is the upvalue. */
static int load_embedded(lua_State *L) {
    const char *name = lua_tostring(L, lua_upvalueindex(1));
    for (const EmbeddedFile *f = embedded_modules; f->name; f++) {
        if (strcmp(f->name, name) != 0) continue;
        lua_pushfstring(L, "=%s", f->chunk);
        if (luaL_loadbufferx(L, f->code, (size_t)(f->end - f->code), lua_tostring(L, -1), NULL))
            return lua_error(L);
        lua_insert(L, 1);
        lua_settop(L, 2);
        lua_call(L, 1, 1);
        return 1;
    }
    return luaL_error(L, "no embedded module %s", name);
}

/* package.preload's __index: an embedded module's loader. Most are never asked for. */
static int find_embedded(lua_State *L) {
    const char *name = lua_tostring(L, 2);
    const EmbeddedFile *f = embedded_modules;
    while (name && f->name && strcmp(f->name, name) != 0) f++;
    if (!name || !f->name || strcmp(name, "meshlua") == 0) return 0;
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, load_embedded, 1);
    return 1;
}

void core_preload(lua_State *L) {
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, open_core);
    lua_setfield(L, -2, "meshlua.core");
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, find_embedded);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

void core_prepare(lua_State *L, const char *devices, const RankFlags *ranks) {
    state_open(L, devices, ranks);
    core_preload(L);
}

enum { BEFORE_SILENT = 2 }; /* seconds; mpirun takes one to end the others */

void core_abort(lua_State *L, int code, const char *text) {
    Host *h = state_of(L);
    if (!h) return;
    transport_fail(&h->rt.transport, code, text);
    /* They have not met yet. Mostly all fail alike: the end of one that speaks ends this one. */
    if (text && h->rt.ranks.silent) sleep(BEFORE_SILENT);
}

int luaopen_meshlua(lua_State *L) {
    if (!state_of(L)) {
        core_prepare(L, NULL, &(RankFlags){.log_ranks = NULL});
        state_connect(L, &(JoinFlags){.name = NULL});
    }
    lua_pushliteral(L, "meshlua");
    lua_pushcclosure(L, load_embedded, 1);
    lua_pushliteral(L, "meshlua");
    lua_call(L, 1, 1);
    return 1;
}
