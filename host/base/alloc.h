/* alloc.h - malloc with a byte count, and a countdown that makes one allocation fail.
 *
 * Frees take the size, as lua_Alloc does, so blocks carry no header. Nothing in the core calls
 * malloc directly: `live` is what a leak test looks at, and every allocation can be made to fail.
 */
#ifndef MESHLUA_ALLOC_H
#define MESHLUA_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Alloc {
    size_t live, peak; /* bytes */
    int64_t fail_in;   /* the allocation that many calls ahead fails, once; < 0: none */
} Alloc;

enum { ALLOC_ALIGN = 64 }; /* of alloc_aligned: a cache line and an AVX-512 vector */

/* NULL when out of memory or made to fail. Zeroed. */
void *alloc_new(Alloc *a, size_t size);
/* Not zeroed. */
void *alloc_aligned(Alloc *a, size_t size);
/* As realloc: p stays valid on failure. Growing does not zero. */
void *alloc_resize(Alloc *a, void *p, size_t old_size, size_t size);
void alloc_free(Alloc *a, void *p, size_t size);

/* For an allocator elsewhere (Lua's, a device's) that shares the countdown: must this one fail? */
bool alloc_fails(Alloc *a);

#endif
