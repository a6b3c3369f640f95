/* plan_cache.h - bound plans by what they compute: two traces of the same program share one. */
#ifndef MESHLUA_RUN_EXEC_PLAN_CACHE_H
#define MESHLUA_RUN_EXEC_PLAN_CACHE_H

#include "run/exec/exec.h"

typedef struct CacheKey {
    uint64_t lo, hi; /* of the graph, what is donated, and the options */
} CacheKey;

typedef struct CacheEntry {
    CacheKey key;
    Exec *exec;
} CacheEntry;

typedef struct Cache {
    Ctx *cx;
    CacheEntry *entry; /* all of them go when it is full */
    int32_t n;
    Map map;
    Arena arena;
} Cache;

void cache_init(Cache *c, Ctx *cx);
void cache_free(Cache *c);
void cache_clear(Cache *c);
Exec *cache_find(Cache *c, CacheKey key); /* borrowed, or NULL */
/* Keeps a reference of its own. */
Err cache_add(Cache *c, CacheKey key, Exec *e) MUST_CHECK;

#endif
