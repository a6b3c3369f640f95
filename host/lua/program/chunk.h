/* chunk.h - runs chunks as a program does: under Ctrl-C, and with a traceback where they fail. */
#ifndef MESHLUA_CHUNK_H
#define MESHLUA_CHUNK_H

#include <lua.h>

/* As lua_pcall. What an error leaves on the stack is a text: the message, then "stack traceback:"
 * and its lines where there is one. */
int chunk_call(lua_State *L, int nargs, int nresults);
/* Puts its text for people in place of the error on top of the stack. */
void chunk_format(lua_State *L);
/* Adds `protected` to the table on top. */
void chunk_open(lua_State *L);

#endif
