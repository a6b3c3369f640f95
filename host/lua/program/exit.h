/* exit.h - os.exit where there may be other processes. */
#ifndef MESHLUA_EXIT_H
#define MESHLUA_EXIT_H

#include <lua.h>

/* Puts it in place of the stock one: a code that tells of a failure ends all processes with it, 0
 * is an orderly end of this one's script. */
void exit_open(lua_State *L);

#endif
