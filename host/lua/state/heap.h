/* heap.h - Lua's own memory. A state made here shares the core's countdown (base/alloc.h), so that
 * fault tests reach Lua's allocations, too. */
#ifndef MESHLUA_LUA_STATE_HEAP_H
#define MESHLUA_LUA_STATE_HEAP_H

#include "base/alloc.h"

#include <lua.h>

typedef struct Heap { /* outlives the state */
    Alloc *core;      /* whose countdown counts; NULL: none */
    bool again;       /* the next allocation fails, too */
} Heap;

/* As luaL_newstate; NULL when out of memory. */
lua_State *heap_new_state(Heap *h);
/* Lua's allocations count down `a` from here on (NULL: no more). Nothing happens in a state that
 * heap_new_state did not make. */
void heap_share(lua_State *L, Alloc *a);

#endif
