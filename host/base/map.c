#include "base/map.h"

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
