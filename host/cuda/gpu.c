#include "cuda/gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int gpu_ok(Cuda *c, cudaError_t code, const char *what) {
    if (code == cudaSuccess) return 1;
    c->rt.cudaGetLastError(); /* or the next call would give it again */
    return gpu_fail(c, "%s: %s (CUDA error %d)", what, c->rt.cudaGetErrorString(code), (int)code);
}

int gpu_fail(Cuda *c, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(c->error, sizeof c->error, format, list);
    va_end(list);
    return 0;
}

/* The queue, and the place for faults. */
static int begin(Gpu *g) {
    Cuda *c = g->cuda;
    void *fault = g->fault;
    if (!fault && !gpu_ok(c, c->rt.cudaHostAlloc(&fault, sizeof *g->fault, cudaHostAllocMapped),
                          "cudaHostAlloc"))
        return 0;
    g->fault = fault;
    memset(fault, 0, sizeof *g->fault);
    return gpu_ok(c, c->rt.cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
                  "cudaStreamCreateWithFlags");
}

int gpu_use(Gpu *g) {
    Cuda *c = g->cuda;
    if (c->device != g->device) {
        if (!gpu_ok(c, c->rt.cudaSetDevice(g->device), "cudaSetDevice")) return 0;
        c->device = g->device;
    }
    return g->stream || begin(g);
}
