/* core.h - what the program needs beside luaopen_meshlua. */
#ifndef MESHLUA_CORE_H
#define MESHLUA_CORE_H

#include "lua/state/state.h"

/* The Lua library, embedded at build time; ends with a row whose name is NULL. */
typedef struct EmbeddedFile {
    const char *name, *chunk; /* "meshlua.nn", "meshlua/nn.lua" */
    const char *code, *end;   /* bytecode, or the text */
} EmbeddedFile;
extern const EmbeddedFile embedded_modules[];

/* The library can be required; of it what needs no host. */
void core_preload(lua_State *L);
/* Opens the host with these devices (NULL: as the environment says); before the first require.
 * `ranks`: NULL where nothing will run, so that it does not matter which process this is. */
void core_prepare(lua_State *L, const char *devices, const RankFlags *ranks);
/* This process fails: so do the others, with this exit code, and rank 0 prints the text (NULL: it
 * was printed). Returns where there are none. */
void core_abort(lua_State *L, int code, const char *text);

#endif
