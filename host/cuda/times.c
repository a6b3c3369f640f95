#include "cuda/gpu.h"

#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>

int64_t times_stamp(Gpu *g) {
    Cuda *c = g->cuda;
    Times *t = &g->times;
    if (!gpu_use(g)) return -1;
    if (g->capturing) {
        gpu_fail(c, "a time cannot be taken while work is kept for a graph");
        return -1;
    }
    if (!t->event && !(t->event = calloc(TIMES_KEPT, sizeof *t->event))) {
        gpu_fail(c, "out of memory for events");
        return -1;
    }
    cudaEvent_t *event = &t->event[t->next % TIMES_KEPT];
    if (!*event && !gpu_ok(c, c->rt.cudaEventCreateWithFlags(event, cudaEventDefault),
                           "cudaEventCreateWithFlags"))
        return -1;
    if (!gpu_ok(c, c->rt.cudaEventRecord(*event, g->stream), "cudaEventRecord")) return -1;
    return t->next++;
}

static int is_known(const Times *t, int64_t stamp) {
    return stamp >= 0 && stamp < t->next && t->next - stamp <= TIMES_KEPT;
}

double times_between(Gpu *g, int64_t from, int64_t to) {
    Cuda *c = g->cuda;
    Times *t = &g->times;
    float ms = 0;
    if (!is_known(t, from) || !is_known(t, to)) return -1;
    cudaEvent_t begin = t->event[from % TIMES_KEPT], end = t->event[to % TIMES_KEPT];
    if (!gpu_ok(c, c->rt.cudaEventSynchronize(end), "cudaEventSynchronize") ||
        !gpu_ok(c, c->rt.cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime"))
        return -1;
    return (double)ms * 1e-3;
}

/* Where no profiler is there, a call is a test of a pointer. */
void times_range(const char *name) {
    if (name)
        nvtxRangePushA(name);
    else
        nvtxRangePop();
}

void times_close(Gpu *g) {
    for (int i = 0; g->times.event && i < TIMES_KEPT; i++)
        if (g->times.event[i]) g->cuda->rt.cudaEventDestroy(g->times.event[i]);
    free(g->times.event);
    g->times = (Times){.event = NULL};
}
