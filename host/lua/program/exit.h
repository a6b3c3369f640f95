/* exit.h - the end of a program: os.exit where there may be other processes, and what must have
 * been written by then. */
#ifndef MESHLUA_EXIT_H
#define MESHLUA_EXIT_H

#include <lua.h>

/* Puts it in place of the stock one: a code that tells of a failure ends all processes with it, 0
 * is an orderly end of this one's script. */
void exit_open(lua_State *L);
/* The exit code of a script that ends with this one: another where files or streams of ours could
 * not be written, which is said. */
int exit_code(lua_State *L, int code);

#endif
