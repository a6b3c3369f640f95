#include "run/exec/plan_cache.h"

/* In checked builds one plan: every second program finds out what eviction does. */
#ifdef MESHLUA_CHECKED
enum { ENTRIES = 1 };
#else
enum { ENTRIES = 4096 };
#endif

void cache_init(Cache *c, Ctx *cx) {
    *c = (Cache){.cx = cx};
    arena_init(&c->arena, &cx->alloc);
}

void cache_clear(Cache *c) {
    for (int32_t i = 0; i < c->n; i++) exec_release(c->entry[i].exec);
    c->n = 0;
    map_clear(&c->map);
}

void cache_free(Cache *c) {
    if (!c->cx) return;
    cache_clear(c);
    arena_free(&c->arena);
    alloc_free(&c->cx->alloc, c->entry, c->entry ? sizeof *c->entry * ENTRIES : 0);
    *c = (Cache){0};
}

static bool same_key(const void *ud, const void *probe, int32_t i) {
    const CacheKey *have = &((const Cache *)ud)->entry[i].key, *want = probe;
    return have->lo == want->lo && have->hi == want->hi;
}

Exec *cache_find(Cache *c, CacheKey key) {
    int32_t i = map_find(&c->map, key.lo, same_key, c, &key);
    return i < 0 ? NULL : c->entry[i].exec;
}

Err cache_add(Cache *c, CacheKey key, Exec *e) {
    if (!c->entry) {
        c->entry = alloc_new(&c->cx->alloc, sizeof *c->entry * ENTRIES);
        if (!c->entry) return err_nomem(c->cx, "the plan cache");
    }
    exec_retain(e); /* first: the cache may be all that holds it */
    if (c->n == ENTRIES) cache_clear(c);
    c->entry[c->n++] = (CacheEntry){key, e};
    if (map_add(&c->arena, &c->map, key.lo, c->n - 1)) return E_OK;
    cache_clear(c); /* an entry that cannot be found would be held for nothing */
    return err_nomem(c->cx, "the plan cache");
}
