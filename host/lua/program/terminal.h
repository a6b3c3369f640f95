/* terminal.h - blocks from a person: editing, history, pastes, Ctrl-C at the prompt. */
#ifndef MESHLUA_TERMINAL_H
#define MESHLUA_TERMINAL_H

#include <lua.h>

/* Adds is_terminal, has_colour, columns, editor and editor_command to the table on top. */
void terminal_open(lua_State *L);

#endif
