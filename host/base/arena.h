/* arena.h - bump allocation: a graph and everything its passes build live in one arena and go with
 * it. Nothing in an arena is freed alone. */
#ifndef MESHLUA_ARENA_H
#define MESHLUA_ARENA_H

#include "base/alloc.h"

typedef struct ArenaChunk ArenaChunk;
typedef struct Arena {
    Alloc *alloc;
    struct Guard *guard; /* that its chunks are known to, or NULL */
    ArenaChunk *chunk;   /* the newest; older ones hang behind it */
    char *at, *end;
} Arena;

void arena_init(Arena *a, Alloc *alloc);
void arena_free(Arena *a); /* idempotent */
/* Frees the chunks that a guard knows, whose arenas are lost. */
void arena_free_all(Alloc *alloc, ArenaChunk **known);
/* Empties it for what comes next, which finds the newest chunk where it was: in the caches. */
void arena_clear(Arena *a);
/* Zeroed, aligned to 16 bytes. NULL when out of memory. */
void *arena_alloc(Arena *a, size_t size);
/* These bytes, and room behind them: what is there is for the caller to write. */
void *arena_grown(Arena *a, const void *p, size_t have, size_t size);
/* A copy of the bytes, of the string. */
void *arena_copy(Arena *a, const void *p, size_t size);
char *arena_strdup(Arena *a, const char *s);

#define ARENA_NEW(a, T)          ((T *)arena_alloc((a), sizeof(T)))
#define ARENA_ARRAY(a, T, count) ((T *)arena_alloc((a), sizeof(T) * (size_t)(count)))

#endif
