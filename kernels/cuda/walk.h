/* walk.h - several operands walked together: device code's Walk, and how wide a unit of elements
 * may be that all of them are moved in. */
#ifndef MESHLUA_CUDA_WALK_H
#define MESHLUA_CUDA_WALK_H

#include "view.h"

enum { WALK_OPERANDS = 5 };

/* walk.cuh's Walk: a parameter by value. */
typedef struct CudaWalk {
    int64_t dims[K_MAX_RANK], strides[WALK_OPERANDS][K_MAX_RANK];
    int32_t rank;
    int32_t small;
} CudaWalk;

/* A dim behind the others, with its stride in each of `count` operands. */
void walk_add(CudaWalk *w, int64_t n, int count, const int64_t *strides);
/* Merges what all operands lay out as one, and counts the positions; called once, last. */
int64_t walk_finish(CudaWalk *w, int count);

/* The bytes of a unit: the widest power of two up to 16 that divides the last dim's run, which the
 * operands of `runs` (a bit each) have without gaps, their other strides, and `also`: those that
 * are not in the walk, or-ed together. Where that is more than an element of `size` bytes, the last
 * dim counts units from then on. */
int64_t walk_widen(CudaWalk *w, int count, uint32_t runs, int64_t size, int64_t also);

/* The launch of a kernel that moves `n` units (move.cuh). */
void walk_launch(Launches *p, const char *file, const char *entry, int64_t n, int64_t size,
                 int64_t unit);

#endif
