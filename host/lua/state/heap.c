#include "lua/state/heap.h"

#include <lauxlib.h>
#include <stdlib.h>

/* Where an allocation fails, Lua collects all garbage and tries once more. That try fails, too:
 * otherwise no failure would ever reach the script. Lua relies on shrinking, which never fails. */
static bool must_fail(Heap *h) {
    if (!h->core) return false;
    if (h->again) {
        h->again = false;
        return true;
    }
    h->again = alloc_fails(h->core);
    return h->again;
}

static void *heap_alloc(void *ud, void *p, size_t old_size, size_t size) {
    if (size == 0) {
        free(p);
        return NULL;
    }
    if ((!p || size > old_size) && must_fail(ud)) return NULL;
    return realloc(p, size);
}

lua_State *heap_new_state(Heap *h) {
    *h = (Heap){.core = NULL};
    lua_State *L = luaL_newstate(); /* its allocator is realloc and free, as the one that follows */
    if (L) lua_setallocf(L, heap_alloc, h);
    return L;
}

void heap_share(lua_State *L, Alloc *a) {
    void *ud;
    if (lua_getallocf(L, &ud) == heap_alloc) *(Heap *)ud = (Heap){.core = a};
}
