#include "lua/program/interrupt.h"

#include "lua/state/state.h"

#include <lauxlib.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

/* What the signal handler works on: it has no argument to carry it. */
static struct {
    lua_State *L; /* the coroutine that runs, or the main thread: hooks are of each by itself */
    Host *host;
    pthread_t thread;
    struct sigaction before;
    volatile sig_atomic_t stays;   /* no second Ctrl-C ends the program */
    volatile sig_atomic_t pressed; /* so often since the chunk began */
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
    bool insists = target.stays && target.pressed > 1; /* the script may catch the first error */
    if (insists) h->rt.interrupted = 1;
    if (h->rt.interrupted && is_cleaning_up(L)) {
        lua_sethook(L, stop, LUA_MASKCOUNT, 1000);
        return;
    }
    if (!insists) lua_sethook(L, NULL, 0, 0);
    if (!h->rt.interrupted) return; /* a jitted call has seen it first */
    state_error(L, E_INTERRUPT, "interrupted");
}

static void on_signal(int sig) {
    if (!pthread_equal(pthread_self(), target.thread)) { /* a worker's, or a library's thread */
        pthread_kill(target.thread, sig);
        return;
    }
    if (!target.stays) signal(sig, SIG_DFL);
    target.pressed++;
    Runtime *rt = &target.host->rt;
    if (rt->interrupt_stops) {
        rt->stop_asked = sig;
        if (rt->ranks.world == 1) rt->stop_agreed = true;
        return;
    }
    rt->interrupted = 1;
    lua_sethook(target.L, stop, LUA_MASKCOUNT, 1);
}

static void pass_over(int sig) {
    (void)sig;
}

void interrupt_stay(void) {
    target.stays = true;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = pass_over, .sa_flags = SA_RESTART}, NULL);
}

void interrupt_begin(lua_State *L) {
    target.L = L;
    target.host = state_of(L);
    target.thread = pthread_self();
    target.pressed = 0;
    struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: a blocked read returns */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, &target.before);
}

void interrupt_end(lua_State *L) {
    sigaction(SIGINT, &target.before, NULL);
    lua_sethook(L, NULL, 0, 0);
    target.host->rt.interrupted = 0;
}

/* ---- coroutines ---- */

/* Calls the function on top of the stack below nargs arguments, which runs the coroutine. */
static int call_running(lua_State *L, lua_State *co, int nargs) {
    Host *h = target.host;
    lua_State *before = target.L;
    target.L = co;
    int status = lua_pcall(L, nargs, LUA_MULTRET, 0);
    target.L = before;
    /* It came when the coroutine had just given way. */
    if (h && h->rt.interrupted) lua_sethook(before, stop, LUA_MASKCOUNT, 1);
    return status;
}

/* resume(co, ...): whoever takes no notice of what ended the coroutine is stopped, too. Upvalue:
 * the stock one. */
static int resume(lua_State *L) {
    Host *h = target.host;
    luaL_checktype(L, 1, LUA_TTHREAD);
    lua_State *co = lua_tothread(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    if (h) h->interrupted_in = NULL;
    if (call_running(L, co, lua_gettop(L) - 1) != LUA_OK) return lua_error(L);
    const char *text = lua_toboolean(L, 1) ? NULL : lua_tostring(L, 2);
    if (h && h->interrupted_in == co && text && strstr(text, "[E_INTERRUPT]")) {
        h->rt.interrupted = 1;
        lua_sethook(L, stop, LUA_MASKCOUNT, 1);
    }
    return lua_gettop(L);
}

/* What wrap gives. Upvalues: what the stock one gives, and its coroutine. */
static int wrapped(lua_State *L) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    if (call_running(L, lua_tothread(L, lua_upvalueindex(2)), lua_gettop(L) - 1) == LUA_OK)
        return lua_gettop(L);
    if (lua_type(L, -1) == LUA_TSTRING) { /* as the stock one does for its caller */
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

/* wrap(fn). Upvalue: the stock one. */
static int wrap(lua_State *L) {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    if (!lua_getupvalue(L, -1, 1)) return 1;
    lua_pushcclosure(L, wrapped, 2);
    return 1;
}

void interrupt_open(lua_State *L) {
    static const luaL_Reg fns[] = {{"resume", resume}, {"wrap", wrap}, {NULL, NULL}};
    lua_getglobal(L, "coroutine");
    for (const luaL_Reg *f = fns; f->name; f++) {
        lua_getfield(L, -1, f->name);
        lua_pushcclosure(L, f->func, 1);
        lua_setfield(L, -2, f->name);
    }
    lua_pop(L, 1);
}
