#include "lua/program/chunk.h"

#include "lua/program/interrupt.h"
#include "lua/program/progress.h"

#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

static const char *const noted = "meshlua.traceback"; /* see note_traceback in wrap.c */

/* An error that came out of a trace has lost the frames inside it; they were noted on the way. The
 * note is of this error if it names the place that the message names. */
static bool push_noted(lua_State *L, const char *message) {
    const char *text =
        lua_getfield(L, LUA_REGISTRYINDEX, noted) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
    const char *end = text ? strstr(message, ": ") : NULL;
    if (end) {
        lua_pushlstring(L, message, (size_t)(end - message));
        bool same = strstr(text, lua_pushfstring(L, "\n\t%s:", lua_tostring(L, -1))) != NULL;
        lua_pop(L, 2);
        if (same) return true;
    }
    lua_pop(L, 1);
    return false;
}

static int handle_error(lua_State *L) {
    const char *message = lua_tostring(L, 1);
    if (!message) {
        if (luaL_callmeta(L, 1, "__tostring") && lua_type(L, -1) == LUA_TSTRING) return 1;
        message = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    }
    if (strstr(message, "[E_INTERRUPT] ")) return 1; /* asked for: nobody looks for its cause */
    lua_pushfstring(L, "%s\n", message);
    if (!push_noted(L, message)) luaL_traceback(L, L, NULL, 1);
    lua_concat(L, 2);
    return 1;
}

int chunk_call(lua_State *L, int nargs, int nresults) {
    int handler = lua_gettop(L) - nargs;
    lua_pushcfunction(L, handle_error);
    lua_insert(L, handler);
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, noted);
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, "meshlua.noted");
    interrupt_begin(L);
    progress_begin();
    int status = lua_pcall(L, nargs, nresults, handler);
    progress_end();
    interrupt_end(L);
    lua_remove(L, handler);
    return status;
}

/* report.lua orders the frames; where even that fails, the text as it is will do. */
static int format(lua_State *L) {
    lua_getglobal(L, "require");
    lua_pushliteral(L, "meshlua.program.report");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "format");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

void chunk_format(lua_State *L) {
    lua_pushcfunction(L, format);
    lua_pushvalue(L, -2);
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
        lua_pop(L, 1);
        lua_pushfstring(L, "meshlua: %s", lua_tostring(L, -1));
    }
    lua_remove(L, -2);
}

/* protected(fn, ...): true and fn's results, or false and the error's text. */
static int protected_call(lua_State *L) {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    int status = chunk_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    lua_pushboolean(L, status == LUA_OK);
    lua_insert(L, 1);
    return lua_gettop(L);
}

void chunk_open(lua_State *L) {
    lua_pushcfunction(L, protected_call);
    lua_setfield(L, -2, "protected");
}
