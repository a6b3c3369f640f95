/* hash.h - hashes of 64 bits. */
#ifndef MESHLUA_HASH_H
#define MESHLUA_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3, seeded with `h`: chain calls to hash several things. */
uint64_t hash_bytes(uint64_t h, const void *p, size_t size);
uint64_t hash_u64(uint64_t h, uint64_t x);
uint64_t hash_str(uint64_t h, const char *s);

#endif
