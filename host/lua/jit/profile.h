/* profile.h - a profile as Lua starts, asks and stops it. */
#ifndef MESHLUA_LUA_JIT_PROFILE_H
#define MESHLUA_LUA_JIT_PROFILE_H

#include "lua/state/state.h"
#include "run/profile/profile.h"

/* A call or a trace, begun at `start`, of the jitted function at `index`. */
void jit_profile_note(lua_State *L, int index, ProfileKind kind, int64_t start);
void jit_open_profile(lua_State *L); /* adds its functions to the table on top */

#endif
