/* holes.h - memory that grows at its end, and the free places in it: what is taken gets the
 * smallest that is large enough, of equal ones the first. Each call takes time by the logarithm of
 * the number of holes. */
#ifndef MESHLUA_HOLES_H
#define MESHLUA_HOLES_H

#include "base/vec.h"

typedef struct Hole {
    int64_t at, size;
    int32_t child[2][2]; /* in the trees by place and by size: before it, behind it */
    uint32_t priority;   /* no lower than its children's */
} Hole;

typedef struct Holes { /* zeroed: none, and no memory */
    VEC(Hole) hole;    /* number 0 is none; holes never touch */
    int32_t root[2], spare;
    int64_t top; /* the end of the memory */
} Holes;

/* Where the bytes lie. */
int64_t holes_take(Holes *h, int64_t size);
/* They are free again; false when out of memory. */
bool holes_give(Arena *a, Holes *h, int64_t at, int64_t size);

#endif
