/* numbers.h - numbers in nested lists as the elements of a tensor. Knows a Lua state, and not
 * whose: workers, which have no tensors, use it, too. */
#ifndef MESHLUA_LUA_LIB_NUMBERS_H
#define MESHLUA_LUA_LIB_NUMBERS_H

#include "ir/dims.h"
#include "ir/dtype.h"

#include <lua.h>

enum { NUMBERS_WHY = 200 };

/* The dtype and dims of the value at `index`: whole numbers are int32, others float32. A string is
 * a text: *dtype -1. false: it is no such value, and `why`. */
bool numbers_learn(lua_State *L, int index, int32_t *dtype, Dims *dims, char why[NUMBERS_WHY]);
/* Its elements, row-major. false: it has not these dims, or a number that the dtype does not
 * hold. */
bool numbers_pack(lua_State *L, int index, DType dtype, const Dims *dims, char *out,
                  char why[NUMBERS_WHY]);
void numbers_open(lua_State *L); /* adds its functions to the table on top */

#endif
