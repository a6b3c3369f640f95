/* lib.h - the functions that Lua calls, by what they are about. Each adds its own to the table on
 * top, and makes its metatables. */
#ifndef MESHLUA_LUA_LIB_LIB_H
#define MESHLUA_LUA_LIB_LIB_H

#include "lua/state/state.h"

#include <lua.h>

void lib_open_array(lua_State *L);
void lib_open_attempt(lua_State *L);
void lib_open_attributes(lua_State *L);
void lib_open_catalog(lua_State *L);
void lib_open_data(lua_State *L);
void lib_open_debug(lua_State *L);
void lib_open_disk(lua_State *L);
void lib_open_mesh(lua_State *L);
void lib_open_ops(lua_State *L);
void lib_open_pipe(lua_State *L);
void lib_open_ranks(lua_State *L);
void lib_open_spec(lua_State *L);
void lib_open_tensor(lua_State *L);
void lib_open_tokenizer(lua_State *L);
void lib_open_tokens(lua_State *L);
void lib_open_transfer(lua_State *L);
void lib_open_whole(lua_State *L);
void lib_open_workers(lua_State *L);

/* The file of tensors at `index`, an argument; raises where it is closed. */
struct Catalog *lib_catalog(lua_State *L, int index);
/* The same, and its entry by the number (from 1) at `number`; raises where it has none. */
struct Catalog *lib_catalog_entry(lua_State *L, int index, int number, int32_t *entry);
/* What is dumped from now on, and where: "STAGE[:FILE]". */
Err lib_debug_set_dump(Host *h, const char *text) MUST_CHECK;

#endif
