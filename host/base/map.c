#include "base/map.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

#ifdef MESHLUA_CHECKED
enum { FIRST = 2 };
#else
enum { FIRST = 32 };
#endif

int32_t map_find(const Map *m, uint64_t hash, MapEq *eq, const void *ud, const void *probe) {
    if (m->cap == 0) return -1;
    uint32_t mask = (uint32_t)m->cap - 1;
    for (uint32_t i = (uint32_t)hash & mask; m->value[i] >= 0; i = (i + 1) & mask)
        if (m->hash[i] == hash && eq(ud, probe, m->value[i])) return m->value[i];
    return -1;
}

static void put(Map *m, uint64_t hash, int32_t value) {
    uint32_t mask = (uint32_t)m->cap - 1, i = (uint32_t)hash & mask;
    while (m->value[i] >= 0) i = (i + 1) & mask;
    m->hash[i] = hash;
    m->value[i] = value;
}

static bool grow(Arena *a, Map *m) {
    Map bigger = {.cap = m->cap ? m->cap * 2 : FIRST};
    bigger.hash = ARENA_ARRAY(a, uint64_t, bigger.cap);
    bigger.value = ARENA_ARRAY(a, int32_t, bigger.cap);
    if (!bigger.hash || !bigger.value) return false;
    map_clear(&bigger);
    for (int32_t i = 0; i < m->cap; i++)
        if (m->value[i] >= 0) put(&bigger, m->hash[i], m->value[i]);
    bigger.n = m->n;
    *m = bigger;
    return true;
}

bool map_add(Arena *a, Map *m, uint64_t hash, int32_t value) {
    if (m->n >= m->cap / 2 && !grow(a, m)) return false;
    put(m, hash, value);
    m->n++;
    return true;
}

void map_clear(Map *m) {
    for (int32_t i = 0; i < m->cap; i++) m->value[i] = -1;
    m->n = 0;
}

uint64_t hash_bytes(uint64_t h, const void *p, size_t size) {
    return XXH3_64bits_withSeed(p, size, h);
}
uint64_t hash_u64(uint64_t h, uint64_t x) {
    return hash_bytes(h, &x, sizeof x);
}
uint64_t hash_str(uint64_t h, const char *s) {
    return hash_bytes(h, s, strlen(s) + 1);
}
