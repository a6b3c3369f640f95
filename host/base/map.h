/* map.h - an index from a 64-bit hash to small integers, for interning: the caller keeps the things
 * themselves and says whether two are equal. */
#ifndef MESHLUA_MAP_H
#define MESHLUA_MAP_H

#include "base/arena.h"
#include "base/hash.h"

typedef struct Map {
    uint64_t *hash;
    int32_t *value; /* -1: empty */
    int32_t n, cap; /* cap is a power of two, or 0 */
} Map;

typedef bool MapEq(const void *ud, const void *probe, int32_t value);

/* The value with this hash for which eq(ud, probe, value) holds, or -1. */
int32_t map_find(const Map *m, uint64_t hash, MapEq *eq, const void *ud, const void *probe);
/* Adds (does not look for an equal one first); false when out of memory. */
bool map_add(Arena *a, Map *m, uint64_t hash, int32_t value);
void map_clear(Map *m);

#endif
