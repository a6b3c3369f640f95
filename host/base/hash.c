#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>
#include <string.h>

uint64_t hash_bytes(uint64_t h, const void *p, size_t size) {
    return XXH3_64bits_withSeed(p, size, h);
}
uint64_t hash_u64(uint64_t h, uint64_t x) {
    return hash_bytes(h, &x, sizeof x);
}
uint64_t hash_str(uint64_t h, const char *s) {
    return hash_bytes(h, s, strlen(s) + 1);
}
HashWide hash_wide(const void *p, size_t size) {
    XXH128_hash_t h = XXH3_128bits(p, size);
    return (HashWide){h.high64, h.low64};
}
char *hash_text(HashWide h, char text[HASH_TEXT]) {
    snprintf(text, HASH_TEXT, "%016llx%016llx", (unsigned long long)h.high,
             (unsigned long long)h.low);
    return text;
}
