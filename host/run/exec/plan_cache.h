/* plan_cache.h - bound plans by what they compute: two traces of the same program share one. */
#ifndef MESHLUA_RUN_EXEC_PLAN_CACHE_H
#define MESHLUA_RUN_EXEC_PLAN_CACHE_H

#include "run/exec/exec.h"

typedef struct PlanCacheKey {
    uint64_t lo, hi; /* of the graph, what is donated, and the options; or of an eager op */
} PlanCacheKey;

typedef struct PlanCacheEntry {
    PlanCacheKey key;
    Exec *exec;
    bool used; /* found since the cache was last full */
} PlanCacheEntry;

typedef struct PlanCache {
    Ctx *cx;
    PlanCacheEntry *entry; /* as they came; some of them go when it is full */
    int32_t n;
    Map map;
    Arena arena;
} PlanCache;

void plan_cache_init(PlanCache *c, Ctx *cx);
void plan_cache_free(PlanCache *c);
void plan_cache_clear(PlanCache *c);
Exec *plan_cache_find(PlanCache *c, PlanCacheKey key); /* borrowed, or NULL */
/* Keeps a reference of its own. */
Err plan_cache_add(PlanCache *c, PlanCacheKey key, Exec *e) MUST_CHECK;

#endif
