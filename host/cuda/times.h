/* times.h - places in a GPU's queue, and the time between them, by CUDA's events. */
#ifndef MESHLUA_CUDA_TIMES_H
#define MESHLUA_CUDA_TIMES_H

#include <cuda_runtime_api.h>
#include <stdint.h>

struct Gpu;

enum { TIMES_KEPT = 4096 };

typedef struct Times {
    cudaEvent_t *event; /* TIMES_KEPT of them, made when they are first used */
    int64_t next;       /* the number of the next stamp */
} Times;

/* < 0: it failed. */
int64_t times_stamp(struct Gpu *g);
double times_between(struct Gpu *g, int64_t from, int64_t to);
void times_range(const char *name);
void times_close(struct Gpu *g);

#endif
