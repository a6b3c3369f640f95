/* interrupt.h - Ctrl-C while a chunk runs: the first one stops it with E_INTERRUPT at the user's
 * line, the second one ends the process. */
#ifndef MESHLUA_INTERRUPT_H
#define MESHLUA_INTERRUPT_H

#include <lua.h>

/* From here to interrupt_end SIGINT is ours. Not to be nested; from the thread that runs L. */
void interrupt_begin(lua_State *L);
void interrupt_end(lua_State *L);
/* From here on none does: a second one stops also a chunk that took no notice of the first, and one
 * that comes between chunks is passed over. */
void interrupt_stay(void);
/* Puts functions in place of the stock ones that run coroutines: it stops these, too. */
void interrupt_open(lua_State *L);

#endif
