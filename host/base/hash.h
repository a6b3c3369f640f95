/* hash.h - hashes of 64 bits, and of 128 for what lies on disk. */
#ifndef MESHLUA_HASH_H
#define MESHLUA_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3, seeded with `h`: chain calls to hash several things. */
uint64_t hash_bytes(uint64_t h, const void *p, size_t size);
uint64_t hash_u64(uint64_t h, uint64_t x);
uint64_t hash_str(uint64_t h, const char *s);

/* XXH3 of 128 bits, and as text: 32 hex digits as xxhsum has them. */
enum { HASH_TEXT = 33 };
typedef struct HashWide {
    uint64_t high, low;
} HashWide;
HashWide hash_wide(const void *p, size_t size);
char *hash_text(HashWide h, char text[HASH_TEXT]);

#endif
