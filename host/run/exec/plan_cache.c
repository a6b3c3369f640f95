#include "run/exec/plan_cache.h"

/* In checked builds one plan: every second program finds out what eviction does. */
#ifdef MESHLUA_CHECKED
enum { ENTRIES = 1 };
#else
enum { ENTRIES = 4096 };
#endif

void plan_cache_init(PlanCache *c, Ctx *cx) {
    *c = (PlanCache){.cx = cx};
    arena_init(&c->arena, &cx->alloc);
}

void plan_cache_clear(PlanCache *c) {
    for (int32_t i = 0; i < c->n; i++) exec_release(c->entry[i].exec);
    c->n = 0;
    map_clear(&c->map);
}

void plan_cache_free(PlanCache *c) {
    if (!c->cx) return;
    plan_cache_clear(c);
    arena_free(&c->arena);
    alloc_free(&c->cx->alloc, c->entry, c->entry ? sizeof *c->entry * ENTRIES : 0);
    *c = (PlanCache){0};
}

static bool same_key(const void *ud, const void *probe, int32_t i) {
    const PlanCacheKey *have = &((const PlanCache *)ud)->entry[i].key, *want = probe;
    return have->lo == want->lo && have->hi == want->hi;
}

Exec *plan_cache_find(PlanCache *c, PlanCacheKey key) {
    int32_t i = map_find(&c->map, key.lo, same_key, c, &key);
    if (i < 0) return NULL;
    c->entry[i].used = true;
    return c->entry[i].exec;
}

/* A quarter goes: what was not found since the last time, the oldest first; then the oldest of the
 * rest. */
static void evict(PlanCache *c) {
    int32_t cold = 0, n = 0, go = ENTRIES - ENTRIES * 3 / 4;
    for (int32_t i = 0; i < c->n; i++) cold += !c->entry[i].used;
    if (cold > go) cold = go;
    int32_t used = go - cold;
    map_clear(&c->map);
    for (int32_t i = 0; i < c->n; i++) {
        PlanCacheEntry *e = &c->entry[i];
        int32_t *left = e->used ? &used : &cold;
        if (*left > 0) {
            --*left;
            exec_release(e->exec);
            continue;
        }
        c->entry[n] = (PlanCacheEntry){e->key, e->exec, false};
        bool ok = map_add(&c->arena, &c->map, e->key.lo, n);
        ASSERT(ok, "no room for entry %d of fewer than before", n);
        n++;
    }
    c->n = n;
}

Err plan_cache_add(PlanCache *c, PlanCacheKey key, Exec *e) {
    if (!c->entry) {
        c->entry = alloc_new(&c->cx->alloc, sizeof *c->entry * ENTRIES);
        if (!c->entry) return err_nomem(c->cx, "the plan cache");
    }
    exec_retain(e); /* first: the cache may be all that holds it */
    if (c->n == ENTRIES) evict(c);
    c->entry[c->n++] = (PlanCacheEntry){key, e, false};
    if (map_add(&c->arena, &c->map, key.lo, c->n - 1)) return E_OK;
    plan_cache_clear(c); /* an entry that cannot be found would be held for nothing */
    return err_nomem(c->cx, "the plan cache");
}
