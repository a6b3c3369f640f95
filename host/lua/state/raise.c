/* raise.c - errors at the user's line. What is raised says E_... first, and a traceback is made by
 * whoever prints it. */
#include "lua/state/state.h"

#include "base/plain.h"

#include <stdarg.h>

const char state_key;

Host *state_of(lua_State *L) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
    Host *h = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return h;
}

_Noreturn void state_raise(lua_State *L, Host *h) {
    Loc loc;
    where_find(L, h, &loc);
    if (h->cx.err.code == E_INTERRUPT) {
        h->rt.interrupted = 0;
        h->interrupted_in = L;
    }
    const char *chunk = loc.chunk;
    if (chunk)
        lua_pushfstring(L, "%s:%d: ", chunk, (int)loc.line);
    else
        lua_pushliteral(L, "");
    lua_pushfstring(L, "[%s] %s", err_name(h->cx.err.code), h->cx.err.text);
    lua_concat(L, 2);
    err_clear(&h->cx);
    lua_error(L);
    __builtin_unreachable();
}

int state_failed(lua_State *L, Host *h, Err e) {
    if (e == E_NOMEM || e == E_INTERRUPT) state_raise(L, h);
    lua_pushnil(L);
    lua_pushstring(L, h->cx.err.text);
    lua_pushstring(L, err_name(e));
    err_clear(&h->cx);
    return 3;
}

_Noreturn void state_error(lua_State *L, ErrCode code, const char *fmt, ...) {
    Host *h = state_of(L);
    va_list ap;
    va_start(ap, fmt);
    h->cx.err.code = (Err)code;
    plain_vformat(h->cx.err.text, sizeof h->cx.err.text, fmt, ap);
    va_end(ap);
    state_raise(L, h);
}

Str *state_text(Host *h) {
    str_clear(&h->text);
    h->text.failed = false;
    return &h->text;
}

int state_push_text(lua_State *L, Host *h) {
    if (h->text.failed) state_check(L, h, err_nomem(&h->cx, "a text"));
    lua_pushlstring(L, str_of(&h->text), h->text.n);
    return 1;
}
