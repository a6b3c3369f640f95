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
    for (int32_t i = 0; i < c->n; i++) bind_release(c->entry[i].exec);
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
    return i < 0 ? NULL : c->entry[i].exec;
}

Err plan_cache_add(PlanCache *c, PlanCacheKey key, Exec *e) {
    if (!c->entry) {
        c->entry = alloc_new(&c->cx->alloc, sizeof *c->entry * ENTRIES);
        if (!c->entry) return err_nomem(c->cx, "the plan cache");
    }
    bind_retain(e); /* first: the cache may be all that holds it */
    if (c->n == ENTRIES) plan_cache_clear(c);
    c->entry[c->n++] = (PlanCacheEntry){key, e};
    if (map_add(&c->arena, &c->map, key.lo, c->n - 1)) return E_OK;
    plan_cache_clear(c); /* an entry that cannot be found would be held for nothing */
    return err_nomem(c->cx, "the plan cache");
}
