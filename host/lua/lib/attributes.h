/* attributes.h - the attributes of an op as Lua gives them: a table by the op's fields, or what
 * core.attributes made of one. */
#ifndef MESHLUA_LUA_LIB_ATTRIBUTES_H
#define MESHLUA_LUA_LIB_ATTRIBUTES_H

#include "lua/value/value.h"

/* Made once, for many calls. */
typedef struct LuaAttr {
    const OpDef *def;
    uint64_t hash;
    char at[];
} LuaAttr;

typedef struct Attrs {
    const char *at; /* NULL: the op has none */
    uint64_t hash;  /* 0: not known, see attributes_hash */
} Attrs;

/* Those at `index`, for a call of the op; `room` is for what must be read, and large enough.
 * `dims`: of operand 0, for layouts. */
Attrs attributes_read(lua_State *L, Host *h, const OpDef *def, int index, const Dims *dims,
                      char *room);
uint64_t attributes_hash(const OpDef *def, Attrs a);

#endif
