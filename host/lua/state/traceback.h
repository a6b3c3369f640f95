/* traceback.h - what luaL_traceback says, for a twentieth of the time. */
#ifndef MESHLUA_LUA_STATE_TRACEBACK_H
#define MESHLUA_LUA_STATE_TRACEBACK_H

#include <lua.h>

/* Pushes the traceback of L from the function at `level` on: "stack traceback:" and a line for each
 * frame, byte for byte what luaL_traceback(L, L, NULL, level) pushes. */
void traceback_push(lua_State *L, int level);

#endif
