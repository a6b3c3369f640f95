/* terminal.h - lines from a person: editing, history, Ctrl-C at the prompt. */
#ifndef MESHLUA_TERMINAL_H
#define MESHLUA_TERMINAL_H

#include <lua.h>

/* Adds is_terminal, has_colour and editor to the table on top. */
void terminal_open(lua_State *L);

#endif
