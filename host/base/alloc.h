/* alloc.h - malloc with a byte count, and a countdown that makes one allocation fail.
 *
 * Frees take the size, as lua_Alloc does, so blocks carry no header. Nothing in the
 * core calls malloc directly: `live` is what a leak test looks at, and every allocation
 * can be made to fail. */
#ifndef MESHLUA_ALLOC_H
#define MESHLUA_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ALLOC_ALIGN = 64,  /* of alloc_aligned: a cache line and an AVX-512 vector */
    ALLOC_BINS = 8,    /* sizes up to that many cache lines are kept in lists of their own */
    ALLOC_LARGE = 1024 /* that many larger blocks are kept: the state of a step, and a snapshot */
};

typedef struct Alloc {
    size_t live, peak;     /* bytes */
    int64_t fail_in;       /* the allocation that many calls ahead fails, once; < 0: none */
    struct Guard *guard;   /* arenas that begin now end with it: see guard.h; or NULL */
    size_t kept;           /* bytes of the blocks below */
    void *bin[ALLOC_BINS]; /* given back, by size; each begins with a pointer to the next */
    struct {
        void *at;
        size_t size;
    } large[ALLOC_LARGE]; /* the oldest first */
    int nlarge;
} Alloc;

/* NULL when out of memory or made to fail. Zeroed. */
void *alloc_new(Alloc *a, size_t size);
/* Not zeroed. */
void *alloc_aligned(Alloc *a, size_t size);
/* As realloc: p stays valid on failure. Growing does not zero. */
void *alloc_resize(Alloc *a, void *p, size_t old_size, size_t size);
void alloc_free(Alloc *a, void *p, size_t size);

/* Blocks that come and go with every call. As alloc_aligned and alloc_free; a block that is given
 * back is kept for the next one of its size, so that a call in steady state neither allocates nor
 * touches fresh pages. What is kept is not live; together with what is live it never passes the
 * peak, so keeping costs no memory at the peak. */
void *alloc_take(Alloc *a, size_t size);
void alloc_give(Alloc *a, void *p, size_t size);
/* Frees what is kept. */
void alloc_trim(Alloc *a);

/* For an allocator elsewhere (Lua's, a device's) that shares the countdown: must this one fail? */
bool alloc_fails(Alloc *a);

#endif
