/* vec.h - growable arrays in an arena (the old copy stays behind until the arena goes: at most as
 * much again). Declare with VEC(T); a zeroed vec is empty. */
#ifndef MESHLUA_VEC_H
#define MESHLUA_VEC_H

#include "base/arena.h"

#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *at;                                                                                     \
        int32_t n, cap;                                                                            \
    }

/* Makes room for `more` elements, which hold anything; false when out of memory. */
#define VEC_ROOM(arena, v, more)                                                                   \
    vec_room((arena), (void **)&(v)->at, (v)->n, &(v)->cap, (more), sizeof *(v)->at)
/* Appends; false when out of memory. */
#define VEC_PUSH(arena, v, ...)                                                                    \
    (VEC_ROOM(arena, v, 1) ? ((v)->at[(v)->n++] = (__VA_ARGS__), true) : false)

bool vec_room(Arena *a, void **at, int32_t n, int32_t *cap, int32_t more, size_t elem);

#endif
