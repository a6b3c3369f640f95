#include "lua/program/exit.h"

#include "lua/core.h"
#include "lua/program/output.h"
#include "lua/program/progress.h"
#include "run/profile/profile.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a silent rank wrote to its standard error, or else where it ended; NULL: it could speak. */
static const char *reason(lua_State *L, int code) {
    const char *words = output_last_words();
    size_t n = strlen(words);
    if (!state_of(L)->rt.ranks.silent) return NULL;
    while (n && words[n - 1] == '\n') n--;
    if (n) return lua_pushlstring(L, words, n);
    luaL_where(L, 1);
    return lua_pushfstring(L, "%sos.exit(%d)", lua_tostring(L, -1), code);
}

/* Returns where there are no others. Mostly all ranks fail alike: those that could not speak let
 * those that can go first. */
static void fail_all(lua_State *L, int code) {
    enum { BEHIND = 200000 }; /* microseconds */
    if (state_of(L)->rt.ranks.silent) usleep(BEHIND);
    core_abort(L, code, reason(L, code));
}

int exit_code(lua_State *L, int code) {
    enum { ENVIRONMENT = 3 };
    Host *h = state_of(L);
    const char *fault = output_fault();
    bool failed = fault != NULL;
    if (fault) fprintf(stderr, "meshlua: standard output: %s\n", fault);
    bool ends = h && (code == 0 || profile_has_run(&h->rt));
    if (ends && profile_stop(&h->rt)) {
        fprintf(stderr, "meshlua: %s\n", h->cx.err.text);
        failed = true;
    }
    return code == 0 && failed ? ENVIRONMENT : code;
}

static int os_exit(lua_State *L) {
    int code = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : (int)luaL_optinteger(L, 1, 0);
    code = exit_code(L, code);
    progress_end(); /* the chunk does, and what is written behind it must not look for it */
    if (code & 0xff) fail_all(L, code);
    if (lua_toboolean(L, 2) || state_of(L)->rt.ranks.world > 1) lua_close(L);
    exit(code);
}

void exit_open(lua_State *L) {
    lua_getglobal(L, "os");
    lua_pushcfunction(L, os_exit);
    lua_setfield(L, -2, "exit");
    lua_pop(L, 1);
}
