/* probe.h - what this machine has for the program: libraries, kernels. */
#ifndef MESHLUA_PROBE_H
#define MESHLUA_PROBE_H

#include <lua.h>

/* Adds real_path, library and kernels to the table on top. */
void probe_open(lua_State *L);

#endif
