/* ids.cuh - where ids lead (KIndex in kernel.h), and what an update becomes with what is there.
 *
 * Files that combine are compiled with TABLE and UPDATE, the types of elements, and COMBINE, a
 * KCombine. */
#ifndef MESHLUA_CUDA_IDS_CUH
#define MESHLUA_CUDA_IDS_CUH

#include "walk.cuh"

struct Axes { /* index.c has the same */
    /* Rows of axis k are ids first .. first + rows - 1 of size; `step` bytes lead to the next. */
    i64 size[8], first[8], rows[8], step[8];
    i64 between; /* bytes from an id to that of the next axis */
    i32 n, outside;

    enum { DROP = 1, CLIP, WRAP, STRICT };

    /* `bytes`: from the table's first element; `line`: which row of all it is. False: it is
     * elsewhere or nowhere. */
    DEVICE bool find(const char *at, i64 *bytes, i64 *line, const Fault &fault) const {
        bool here = true;
        *bytes = *line = 0;
#pragma unroll 1
        for (int k = 0; k < n; k++) {
            i64 id = *(const i32 *)(at + k * between), all = size[k];
            i64 row = id < 0 && outside != STRICT ? id + all : id;
            if (outside == CLIP && all > 0) row = row < 0 ? 0 : row >= all ? all - 1 : row;
            if (outside == WRAP && all > 0) row = (id % all + all) % all;
            if (row < 0 || row >= all) {
                if (outside != DROP) fault.report(id, all);
                return false;
            }
            row -= first[k];
            here = here && row >= 0 && row < rows[k];
            *bytes += row * step[k];
            *line = *line * rows[k] + row;
        }
        return here;
    }
};

#ifdef COMBINE
#    if COMBINE == 1 || COMBINE == 2
typedef SumOf<Compute<UPDATE>>::type Sum; /* integers wrap */
#    else
typedef Compute<UPDATE> Sum;
#    endif

DEVICE Sum combine(Sum x, Sum u) {
#    if COMBINE == 1
    return x + u;
#    elif COMBINE == 2
    return x * u;
#    elif COMBINE == 3
    return x > u || x != x ? x : u;
#    elif COMBINE == 4
    return x < u || x != x ? x : u;
#    else
    return u;
#    endif
}
#endif

#endif
