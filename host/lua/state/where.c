/* where.c - which line of the user's script is behind what runs now.
 *
 * An op looks at its caller's frame; if that is the user's code, it is the place, else the
 * innermost note is that wrap.c has made. Chunks called =meshlua/... are library.
 *
 * A note keeps the caller's frame, and the line is read from it when an op is traced or an error is
 * raised: most calls do neither. */
#include "lua/state/state.h"

#include <string.h>

bool where_is_library(const lua_Debug *ar) {
    return strncmp(ar->source, "=meshlua/", 9) == 0;
}

/* The frame of the nearest Lua function at or above `level`; false at the end of the stack. */
static bool lua_frame(lua_State *L, int *level, lua_Debug *ar) {
    for (; lua_getstack(L, *level, ar); (*level)++) {
        lua_getinfo(L, "f", ar);
        bool is_lua = !lua_iscfunction(L, -1);
        lua_pop(L, 1);
        if (is_lua) return true;
    }
    return false;
}

static lua_State *main_thread(lua_State *L) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    lua_State *main = lua_tothread(L, -1);
    lua_pop(L, 1);
    return main;
}

lua_State *where_frame(lua_State *L, int level, lua_Debug *ar) {
    if (lua_frame(L, &level, ar)) return L;
    lua_State *main = main_thread(L);
    level = 0;
    return main != L && lua_frame(main, &level, ar) ? main : NULL;
}

static void read_caller(Host *h, Entry *e) {
    if (!e->L) return;
    lua_getinfo(e->L, "Sl", &e->caller);
    e->L = NULL;
    if (where_is_library(&e->caller)) return;
    e->chunk = intern_name(&h->cx, e->caller.short_src);
    e->line = e->caller.currentline;
}

void where_find(lua_State *L, Host *h, Loc *loc) {
    lua_Debug ar;
    *loc = (Loc){.scope = h->depth ? h->entry[h->depth - 1].scope : NULL};
    lua_State *at = where_frame(L, 0, &ar);
    if (!at) return;
    lua_getinfo(at, "Sl", &ar);
    if (!where_is_library(&ar)) {
        loc->chunk = intern_name(&h->cx, ar.short_src);
        loc->line = ar.currentline;
        return;
    }
    loc->lib_chunk = intern_name(&h->cx, ar.short_src);
    loc->lib_line = ar.currentline;
    for (int32_t i = h->depth - 1; i >= 0; i--) {
        Entry *e = &h->entry[i];
        read_caller(h, e);
        if (!e->chunk) continue;
        loc->chunk = e->chunk;
        loc->line = e->line;
        return;
    }
    /* Library code that nothing wraps (a script run from the library): the nearest user frame. */
    for (int level = 0; lua_frame(L, &level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (where_is_library(&ar)) continue;
        loc->chunk = intern_name(&h->cx, ar.short_src);
        loc->line = ar.currentline;
        return;
    }
}

const Loc *where_loc(lua_State *L, Host *h) {
    Loc loc;
    where_find(L, h, &loc);
    return intern_loc(&h->cx, &loc);
}
