/* meshlua.h - the one public symbol: `require "meshlua"` in the program, or in a stock lua5.4 that
 * finds meshlua.so. */
#ifndef MESHLUA_H
#define MESHLUA_H

#include <lua.h>

__attribute__((visibility("default"))) int luaopen_meshlua(lua_State *L);

#endif
