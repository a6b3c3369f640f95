/* pool.h - the process's threads: one per core, the caller among them. Work is a number of items;
 * who does which is left to chance, so results must not depend on it. */
#ifndef MESHLUA_POOL_H
#define MESHLUA_POOL_H

#include "base/ctx.h"

typedef struct Pool Pool;
typedef void PoolFn(void *ud, int64_t item, int thread);

/* `threads` counts the caller. NULL when a thread could not be started or out of memory. */
Pool *pool_new(Ctx *cx, int threads);
void pool_free(Ctx *cx, Pool *p);
int pool_threads(const Pool *p);
/* Calls fn(ud, item, thread) once for each item in [0, items), and returns when all are done.
 * `thread` is in [0, pool_threads), 0 for the caller. Not to be called from within fn. */
void pool_run(Pool *p, PoolFn *fn, void *ud, int64_t items);

#endif
