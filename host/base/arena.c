#include "base/guard.h"

#include <string.h>

/* In checked builds a gap that the address sanitizer guards lies behind every allocation, each is
 * one that can be made to fail, and an arena that is cleared keeps nothing. */
#ifdef MESHLUA_CHECKED
#    include <sanitizer/asan_interface.h>
static const bool checked = true;
enum { CHUNK_MIN = 512, CHUNK_MAX = 1 << 16, GRAIN = 16, GAP = GRAIN, FILL = 0xa5 };
#else
#    define ASAN_POISON_MEMORY_REGION(p, size)   ((void)0)
#    define ASAN_UNPOISON_MEMORY_REGION(p, size) ((void)0)
static const bool checked = false;
enum { CHUNK_MIN = 4096, CHUNK_MAX = 1 << 18, GRAIN = 16, GAP = 0 };
#endif

struct ArenaChunk {
    ArenaChunk *older;
    size_t size;             /* of the whole chunk */
    ArenaChunk *prev, *next; /* among those that the arena's guard knows */
};
/* Chunks as large are kept for the next of that size: each pass over a large graph takes those that
 * the one before it took, and the system would hand them out anew, page by page. */
enum { HEAD = (sizeof(ArenaChunk) + 15) / 16 * 16, KEPT = 1 << 20 };

static ArenaChunk *take_chunk(Alloc *a, size_t size) {
    return size < KEPT ? alloc_resize(a, NULL, 0, size) : alloc_take(a, size);
}

static void give_chunk(Alloc *a, ArenaChunk *c) {
    if (c->size < KEPT)
        alloc_free(a, c, c->size);
    else
        alloc_give(a, c, c->size);
}

void arena_init(Arena *a, Alloc *alloc) {
    *a = (Arena){.alloc = alloc, .guard = alloc->guard};
}

static void enter(Guard *g, ArenaChunk *c) {
    c->prev = NULL;
    c->next = g->chunk;
    if (c->next) c->next->prev = c;
    g->chunk = c;
}

static void leave(Guard *g, ArenaChunk *c) {
    if (c->next) c->next->prev = c->prev;
    *(c->prev ? &c->prev->next : &g->chunk) = c->next;
}

static void free_chunks(Arena *a, ArenaChunk *c) {
    for (ArenaChunk *older; c; c = older) {
        older = c->older;
        if (a->guard) leave(a->guard, c);
        give_chunk(a->alloc, c);
    }
}

void arena_free_all(Alloc *alloc, ArenaChunk **known) {
    for (ArenaChunk *c; (c = *known);) {
        *known = c->next;
        give_chunk(alloc, c);
    }
}

void arena_free(Arena *a) {
    free_chunks(a, a->chunk);
    a->chunk = NULL;
    a->at = a->end = NULL;
}

void arena_clear(Arena *a) {
    if (!a->chunk || checked) {
        arena_free(a);
        return;
    }
    free_chunks(a, a->chunk->older);
    a->chunk->older = NULL;
    a->at = (char *)a->chunk + HEAD;
}

static bool grow(Arena *a, size_t size) {
    size_t want = a->chunk ? a->chunk->size * 2 : CHUNK_MIN;
    if (want > CHUNK_MAX) want = CHUNK_MAX;
    if (want < size + HEAD) want = size + HEAD;
    ArenaChunk *c = take_chunk(a->alloc, want);
    if (!c) return false;
    c->older = a->chunk;
    c->size = want;
    if (a->guard) enter(a->guard, c);
    a->chunk = c;
    a->at = (char *)c + HEAD;
    a->end = (char *)c + want;
    ASAN_POISON_MEMORY_REGION(a->at, want - HEAD);
    return true;
}

static void *take(Arena *a, size_t size) {
    if (size > SIZE_MAX / 4 || (checked && alloc_fails(a->alloc))) return NULL;
    size_t room = (size + GRAIN - 1) / GRAIN * GRAIN + GAP;
    if (room == 0) room = GRAIN;
    if ((size_t)(a->end - a->at) < room && !grow(a, room)) return NULL;
    void *p = a->at;
    a->at += room;
    ASAN_UNPOISON_MEMORY_REGION(p, size);
    return p;
}

/* Zeroed here, and not where a chunk is made: most arenas are small and leave much of it unused. */
void *arena_alloc(Arena *a, size_t size) {
    void *p = take(a, size);
    return p ? memset(p, 0, size) : NULL;
}

void *arena_grown(Arena *a, const void *p, size_t have, size_t size) {
    char *grown = take(a, size);
    if (!grown) return NULL;
    if (have) memcpy(grown, p, have);
#ifdef MESHLUA_CHECKED
    memset(grown + have, FILL, size - have);
#endif
    return grown;
}

void *arena_copy(Arena *a, const void *p, size_t size) {
    void *copy = take(a, size);
    if (copy && size) memcpy(copy, p, size);
    return copy;
}

char *arena_strdup(Arena *a, const char *s) {
    return arena_copy(a, s, strlen(s) + 1);
}
