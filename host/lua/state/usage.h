/* usage.h - calls that a public function does not take, and names that a value does not have: Lua
 * says of them what the table of exports knows. Nothing here costs a right call more than a
 * comparison. */
#ifndef MESHLUA_LUA_STATE_USAGE_H
#define MESHLUA_LUA_STATE_USAGE_H

#include "lua/state/state.h"

#include <lua.h>

/* The C function that runs has more arguments than the `most` it takes: raises, or, where the
 * surplus is nil, calls it without. Returns the number of results. `who`: its name, or NULL. */
int usage_surplus(lua_State *L, Host *h, const char *who, int most);
/* For __index: raises for a value of this type, which has nothing of the name at 2. */
int usage_unknown(lua_State *L, const char *type);
/* For __newindex: raises, too. */
int usage_assigned(lua_State *L, const char *type);
/* Replaces what is on the stack, a tensor and whether it is here as a whole (nil: each device has
 * something to add), by the tensor's values as text. */
void usage_values(lua_State *L, Host *h);
/* Adds metamethods to a type of tensors for what Lua's syntax has no meaning for; each raises. */
void usage_add_refusals(lua_State *L, const char *type);
/* Pushes a C function without upvalues that checks how many arguments it is given; `name` is that
 * of its row in the table of exports. */
void usage_push_checked(lua_State *L, lua_CFunction fn, const char *name);
void usage_open(lua_State *L); /* adds its functions to the table on top */

#endif
