#include "lua/state/stop.h"

#include "lua/state/arg.h"

#include <signal.h>

/* What the signal handler works on: it has no argument to carry it. */
static Runtime *volatile target;

static const char handler_key, place_key; /* their addresses are registry keys */

/* Several processes agree when they next launch a plan together; one alone need not. */
static void on_signal(int sig) {
    Runtime *rt = target;
    if (!rt) return;
    rt->stop_asked = sig;
    if (rt->ranks.world == 1) rt->stop_agreed = true;
}

void stop_listen(Host *h) {
    static const int signals[] = {SIGUSR1, SIGTERM};
    if (target) return;
    target = &h->rt;
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
        struct sigaction before;
        sigemptyset(&sa.sa_mask);
        sigaction(signals[i], &sa, &before);
        if (before.sa_handler == SIG_IGN) sigaction(signals[i], &before, NULL);
    }
}

void stop_forget(const Host *h) {
    if (target == &h->rt) target = NULL;
}

static const char *cause(const Host *h) {
    switch (h->rt.stop_asked) {
    case SIGUSR1: return "SIGUSR1";
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "Ctrl-C";
    default: return "a signal to another process";
    }
}

/* The results of the step are in the script's hands: the handler may call what it likes. */
static void run_handler(lua_State *L, Host *h) {
    if (h->stop_handled) return;
    h->stop_handled = true;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &handler_key) == LUA_TNIL) return;
    int32_t depth = h->depth;
    h->stopping = true;
    int status = wrap_pcall(L, 0);
    h->stopping = false;
    h->stop_failed = status != LUA_OK;
    if (!h->stop_failed) return;
    h->depth = depth;
    lua_error(L);
}

_Noreturn void stop_raise(lua_State *L, Host *h) {
    luaL_checkstack(L, LUA_MINSTACK, "too many results of the handler of ml.on_stop");
    run_handler(L, h);
    if (h->stop_failed) state_error(L, E_STATE, "the handler of ml.on_stop has failed");
    lua_rawgetp(L, LUA_REGISTRYINDEX, &place_key);
    state_error(L, E_STOP, "stopped by %s%s", cause(h), luaL_optstring(L, -1, ""));
}

/* on_stop(fn): fn() is called when the processes were asked to stop, once the step is over; nil: no
 * more. Returns what was there. */
static int on_stop(lua_State *L) {
    if (!lua_isnoneornil(L, 1)) arg_check_type(L, 1, LUA_TFUNCTION, "on_stop");
    lua_settop(L, 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &handler_key);
    lua_insert(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &handler_key);
    stop_listen(state_of(L));
    return 1;
}

/* check_stop(place): between two steps of a loop of the library's own; until the next one, the
 * place (" after step 3") goes behind what is said of a stop. */
static int check_stop(lua_State *L) {
    Host *h = state_of(L);
    arg_string(L, 1, NULL, "check_stop");
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &place_key);
    stop_listen(h);
    stop_check(L, h);
    return 0;
}

/* interrupt_stops(on): from here on the first Ctrl-C asks to stop, as the two signals do. */
static int interrupt_stops(lua_State *L) {
    state_of(L)->rt.interrupt_stops = lua_toboolean(L, 1);
    return 0;
}

/* ask_save(): some step from here on is one at which all processes save. */
static int ask_save(lua_State *L) {
    Runtime *rt = &state_of(L)->rt;
    rt->save_asked = true;
    if (rt->ranks.world == 1) rt->save_agreed = true;
    return 0;
}

/* take_save(): is this step it? The same in all processes; asked once behind each step. */
static int take_save(lua_State *L) {
    Runtime *rt = &state_of(L)->rt;
    lua_pushboolean(L, rt->save_agreed);
    if (rt->save_agreed) rt->save_asked = rt->save_agreed = false;
    return 1;
}

void stop_open(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"on_stop", on_stop},   {"check_stop", check_stop}, {"interrupt_stops", interrupt_stops},
        {"ask_save", ask_save}, {"take_save", take_save},   {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
