/* pool.h - the process's threads: one per core, the caller among them. Work comes in stages of
 * pieces; who does which piece is left to chance, so results must not depend on it. */
#ifndef MESHLUA_RUN_POOL_H
#define MESHLUA_RUN_POOL_H

#include "base/ctx.h"

typedef struct Pool Pool;
typedef void PoolFn(void *ud, int32_t piece, int thread);

/* Lanes of one or more steps, each of some pieces. A lane's steps are done one after the other, the
 * pieces of a step in any order; lanes do not wait for each other, but all of them for the stages
 * before stage number `after` (at most this one's own number). Each thread begins with lanes of its
 * own, one after the other; when it has none left it takes whole lanes from others, their last ones
 * first, and then shares those that others are at, piece by piece. So who works on the same rows,
 * or for the same device, in step after step finds them in its cache. */
typedef struct PoolStage {
    /* Rising, lanes * steps + 1 entries: the first piece of each step of each lane, the end. */
    const int32_t *first;
    int32_t lanes, steps, after;
} PoolStage;

static inline int32_t pool_queues(const PoolStage *s) {
    return s->lanes * s->steps;
}
/* The first lane of the thread; behind the last thread, the end. */
static inline int32_t pool_first_lane(const PoolStage *s, int thread, int threads) {
    return (int32_t)((int64_t)s->lanes * thread / threads);
}

/* `threads` counts the caller. NULL when a thread could not be started or out of memory. */
Pool *pool_new(Ctx *cx, int threads);
void pool_free(Ctx *cx, Pool *p);
int pool_threads(const Pool *p);
/* The nanoseconds that the thread has waited so far, for work or for others' work; what the caller
 * (0) does outside of pool_run is not waiting. */
int64_t pool_idle(const Pool *p, int thread);
/* Makes room for that many stages, and queues of all stages together, in one run; false when out of
 * memory. */
bool pool_reserve(Ctx *cx, Pool *p, int32_t stages, int32_t queues);
/* Calls fn(ud, piece, thread) once for each piece of each stage, and returns when all are done.
 * `thread` is in [0, pool_threads), 0 for the caller. Not to be called from within fn. */
void pool_run(Pool *p, PoolFn *fn, void *ud, const PoolStage *stage, int32_t stages);

#endif
