/* stop.h - SIGUSR1 and SIGTERM ask the processes of a job to stop: each finishes the step that all
 * are in, runs the script's handler (ml.on_stop), and its next jitted call raises E_STOP. */
#ifndef MESHLUA_LUA_STATE_STOP_H
#define MESHLUA_LUA_STATE_STOP_H

#include "lua/state/state.h"

/* From here on the two signals are ours; a second one of a kind does what it does by default. */
void stop_listen(Host *h);
/* The host goes: such signals mean nothing any more. */
void stop_forget(const Host *h);
/* Runs the handler, unless it has run, and raises E_STOP. */
_Noreturn void stop_raise(lua_State *L, Host *h);
/* Between two steps: raises where all processes have agreed to stop. */
static inline void stop_check(lua_State *L, Host *h) {
    if (h->rt.stop_agreed && !h->stopping) stop_raise(L, h);
}
void stop_open(lua_State *L); /* adds its functions to the table on top */

#endif
