/* walk.c - several operands walked together. */
#include "walk.h"

void walk_add(CudaWalk *w, int64_t n, int count, const int64_t *strides) {
    for (int k = 0; k < count; k++) w->strides[k][w->rank] = strides[k];
    w->dims[w->rank++] = n;
}

int64_t walk_finish(CudaWalk *w, int count) {
    int64_t n = 1;
    w->rank = cuda_collapse(w->rank, w->dims, count, w->strides);
    for (int d = 0; d < w->rank; d++) n *= w->dims[d];
    w->small = n <= INT32_MAX;
    return n;
}

int64_t walk_widen(CudaWalk *w, int count, uint32_t runs, int64_t size, int64_t also) {
    int last = w->rank - 1;
    int64_t unit = 16;
    if (w->rank == 0) return size;
    while (unit > size && (w->dims[last] * size | also) % unit) unit /= 2;
    for (int k = 0; k < count; k++) {
        if (!(runs >> k & 1)) continue;
        if (w->strides[k][last] != size) return size;
        for (int d = 0; d < last; d++)
            while (unit > size && w->strides[k][d] % unit) unit /= 2;
    }
    w->dims[last] = w->dims[last] * size / unit;
    for (int k = 0; k < count; k++) w->strides[k][last] *= unit / size;
    return unit;
}

void walk_launch(Launches *p, const char *file, const char *entry, int64_t n, int64_t size,
                 int64_t unit) {
    enum { THREADS = 256, EACH = 4 }; /* as in move.cuh */
    cuda_launch(p, file, entry, cuda_ceil_div(n, THREADS * EACH), THREADS);
    cuda_define(p, "SIZE", "%d", (int)size);
    cuda_define(p, "UNIT", "%d", (int)unit);
}
