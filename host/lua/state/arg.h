/* arg.h - arguments of C functions that are plain values: as luaL_check..., but the error is
 * E_VALUE at the user's line. `what` names the value in it. Strings are no numbers. */
#ifndef MESHLUA_LUA_STATE_ARG_H
#define MESHLUA_LUA_STATE_ARG_H

#include "lua/state/state.h"

#define VALUE_TENSOR "meshlua.Tensor"

lua_Integer arg_integer(lua_State *L, int index, const char *what);
int32_t arg_int32(lua_State *L, int index, const char *what); /* raises where it does not fit */
int32_t arg_dim(lua_State *L, int index, const char *what);   /* 1-based; gives it 0-based */
lua_Number arg_number(lua_State *L, int index, const char *what);
const char *arg_string(lua_State *L, int index, size_t *n, const char *what); /* n may be NULL */
void arg_check_type(lua_State *L, int index, int type, const char *what);     /* a LUA_T... */
/* "Mesh", "table", "nil", for messages. May leave a value on the stack, which keeps the text. */
const char *arg_type_name(lua_State *L, int index);
/* What stands behind "meshlua." in the name of a type. */
const char *arg_short_name(const char *name);

#endif
