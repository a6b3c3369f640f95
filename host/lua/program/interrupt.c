#include "lua/program/interrupt.h"

#include "lua/state.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* What the signal handler works on: it has no argument to carry it. */
static struct {
    lua_State *L;
    Host *host;
    pthread_t thread;
    struct sigaction before;
} target;

/* Is a __close or __gc on the stack? What they put right must be put right. */
static bool is_cleaning_up(lua_State *L) {
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "n", &ar);
        if (strcmp(ar.namewhat, "metamethod") == 0 &&
            (strcmp(ar.name, "close") == 0 || strcmp(ar.name, "__gc") == 0))
            return true;
    }
    return false;
}

/* Runs before the next instruction of a Lua function, so never within C code: what C code does
 * between two calls into Lua stays whole. */
static void stop(lua_State *L, lua_Debug *ar) {
    (void)ar;
    Host *h = state_of(L);
    if (h->rt.interrupted && is_cleaning_up(L)) {
        lua_sethook(L, stop, LUA_MASKCOUNT, 1000);
        return;
    }
    lua_sethook(L, NULL, 0, 0);
    if (!h->rt.interrupted) return; /* a jitted call has seen it first */
    h->rt.interrupted = 0;
    state_error(L, E_INTERRUPT, "interrupted");
}

static void on_signal(int sig) {
    if (!pthread_equal(pthread_self(), target.thread)) { /* a worker's, or a library's thread */
        pthread_kill(target.thread, sig);
        return;
    }
    signal(sig, SIG_DFL);
    target.host->rt.interrupted = 1;
    lua_sethook(target.L, stop, LUA_MASKCOUNT, 1);
}

void interrupt_begin(lua_State *L) {
    target.L = L;
    target.host = state_of(L);
    target.thread = pthread_self();
    struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: a blocked read returns */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, &target.before);
}

void interrupt_end(lua_State *L) {
    sigaction(SIGINT, &target.before, NULL);
    lua_sethook(L, NULL, 0, 0);
    target.host->rt.interrupted = 0;
}
