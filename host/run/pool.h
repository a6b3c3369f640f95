/* pool.h - the process's threads: one per core, the caller among them. Work comes in stages of
 * pieces; who does which piece is left to chance, so results must not depend on it. */
#ifndef MESHLUA_POOL_H
#define MESHLUA_POOL_H

#include "base/ctx.h"

typedef struct Pool Pool;
typedef void PoolFn(void *ud, int32_t piece, int thread);

/* Pieces that may be done in any order, once the stages before stage number `after` (at most this
 * one's own number) are over. Thread t begins with those from own[t] on; it helps others, from
 * their last piece on, when it has none left. So who works on the same rows, or for the same
 * device, in stage after stage finds them in its cache. */
typedef struct PoolStage {
    const int32_t
        *own; /* rising, pool_threads + 1 entries: the first piece of each thread, the end */
    int32_t after;
} PoolStage;

/* `threads` counts the caller. NULL when a thread could not be started or out of memory. */
Pool *pool_new(Ctx *cx, int threads);
void pool_free(Ctx *cx, Pool *p);
int pool_threads(const Pool *p);
/* Makes room for that many stages in one run; false when out of memory. */
bool pool_reserve(Ctx *cx, Pool *p, int32_t stages);
/* Calls fn(ud, piece, thread) once for each piece of each stage, and returns when all are done.
 * `thread` is in [0, pool_threads), 0 for the caller. Not to be called from within fn. */
void pool_run(Pool *p, PoolFn *fn, void *ud, const PoolStage *stage, int32_t stages);

#endif
