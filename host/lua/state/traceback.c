/* traceback.c - luaL_traceback goes through all that is loaded for each frame, to see whether a
 * module has the frame's function: a millisecond and more, once the library is there. Here all
 * frames are looked for on one way through. */
#include "lua/state/traceback.h"

#include <lauxlib.h>
#include <string.h>

enum {
    FIRST = 10,
    LAST = 11,
    MOST = FIRST + LAST + 1
}; /* frames that are shown, as Lua has them */

/* The frames that are shown. The name of frame i, or nil, stands at name + i on the stack. */
typedef struct Frames {
    lua_Debug ar[MOST];
    const void *fn[MOST];
    int n, name, skipped; /* frames left out behind the first ones; 0: none */
} Frames;

static int last_level(lua_State *L) {
    lua_Debug ar;
    int low = 1, high = 1;
    while (lua_getstack(L, high, &ar)) {
        low = high;
        high *= 2;
    }
    while (low < high) {
        int middle = (low + high) / 2;
        if (lua_getstack(L, middle, &ar))
            low = middle + 1;
        else
            high = middle;
    }
    return high - 1;
}

static void collect(lua_State *L, Frames *f, int level) {
    int last = last_level(L), left = last - level > FIRST + LAST ? FIRST : -1;
    while (f->n < MOST && lua_getstack(L, level++, &f->ar[f->n])) {
        if (left-- == 0) {
            f->skipped = last - level - LAST + 1;
            level += f->skipped;
            continue;
        }
        lua_getinfo(L, "Slntf", &f->ar[f->n]);
        f->fn[f->n++] = lua_topointer(L, -1);
        lua_pop(L, 1);
    }
}

/* The function on top belongs to frames that have no name yet: it is `key` of `module`, or of all.
 * Both are strings on the stack. */
static void name(lua_State *L, const Frames *f, int module, int key) {
    const void *fn = lua_topointer(L, -1);
    for (int i = 0; i < f->n; i++) {
        if (f->fn[i] != fn || !lua_isnil(L, f->name + i)) continue;
        const char *of = module ? lua_tostring(L, module) : LUA_GNAME;
        if (strcmp(of, LUA_GNAME) == 0)
            lua_pushvalue(L, key);
        else
            lua_pushfstring(L, "%s.%s", of, lua_tostring(L, key));
        lua_replace(L, f->name + i);
    }
}

/* Goes through the functions of the table on top; of the tables in it, too, where it is that of all
 * modules. */
static void look_through(lua_State *L, const Frames *f, int module) {
    int table = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, table)) {
        int key = table + 1;
        if (lua_type(L, key) == LUA_TSTRING) {
            if (lua_isfunction(L, -1)) name(L, f, module, key);
            if (!module && lua_istable(L, -1)) look_through(L, f, key);
        }
        lua_settop(L, key);
    }
}

static void add_frame(lua_State *L, luaL_Buffer *b, const Frames *f, int i) {
    const lua_Debug *ar = &f->ar[i];
    if (ar->currentline > 0)
        lua_pushfstring(L, "\n\t%s:%d: in ", ar->short_src, ar->currentline);
    else
        lua_pushfstring(L, "\n\t%s: in ", ar->short_src);
    luaL_addvalue(b);
    if (!lua_isnil(L, f->name + i))
        lua_pushfstring(L, "function '%s'", lua_tostring(L, f->name + i));
    else if (*ar->namewhat)
        lua_pushfstring(L, "%s '%s'", ar->namewhat, ar->name);
    else if (*ar->what == 'm')
        lua_pushliteral(L, "main chunk");
    else if (*ar->what != 'C')
        lua_pushfstring(L, "function <%s:%d>", ar->short_src, ar->linedefined);
    else
        lua_pushliteral(L, "?");
    luaL_addvalue(b);
    if (ar->istailcall) luaL_addstring(b, "\n\t(...tail calls...)");
}

void traceback_push(lua_State *L, int level) {
    Frames f = {.name = lua_gettop(L) + 1};
    luaL_Buffer b;
    if (!lua_checkstack(L, MOST + LUA_MINSTACK)) { /* the stack has overflowed: that is the error */
        luaL_traceback(L, L, NULL, level);
        return;
    }
    collect(L, &f, level);
    for (int i = 0; i < f.n; i++) lua_pushnil(L);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    look_through(L, &f, 0);
    lua_settop(L, f.name + f.n - 1);
    luaL_buffinit(L, &b);
    luaL_addstring(&b, "stack traceback:");
    for (int i = 0; i < f.n; i++) {
        if (f.skipped && i == FIRST) {
            lua_pushfstring(L, "\n\t...\t(skipping %d levels)", f.skipped);
            luaL_addvalue(&b);
        }
        add_frame(L, &b, &f, i);
    }
    luaL_pushresult(&b);
    lua_insert(L, f.name);
    lua_settop(L, f.name);
}
