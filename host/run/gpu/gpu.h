/* gpu.h - the GPUs that this process runs plans on: the library for them found and opened, their
 * memory as that of tensors, their errors as ours. Each is a domain (place.h). */
#ifndef MESHLUA_RUN_GPU_GPU_H
#define MESHLUA_RUN_GPU_GPU_H

#include "base/ctx.h"
#include "ir/target.h"
#include "run/bound.h"
#include "run/comm/transport.h"
#include "run/gpu/device.h"

#include <string.h>

typedef struct GpuMemory {
    Memory memory; /* first: what it is given leads back here */
    struct Gpus *gpu;
    char *scratch; /* of the kernel that runs */
    size_t scratch_bytes;
} GpuMemory;

typedef struct Gpus {
    GpuMemory of[MAX_DOMAINS];
    Ctx *cx;
    Device device;     /* version 0: there are none */
    bool chosen;       /* by number, not by the rank of the process */
    char missing[320]; /* why there is no way to other GPUs; see gpu_transport.h */
    Target target;
    int64_t moves;           /* so many times a scratch has moved */
    size_t written;          /* bytes, since the exchanges on their way were waited for */
    Transport *transport;    /* what is waited for with their queues: set before they are opened, */
    const BoundPlans *plans; /* and whose launches find faults */
} Gpus;

static inline bool gpu_is_there(const Gpus *g) {
    return g->device.version != 0;
}
/* Opens those that --devices=cuda... names: "cuda" all there are, or in several processes that of
 * this one's local number, "cuda:0,2" the first and the third, "cuda:0*8" eight virtual devices on
 * the first. How many devices there are goes to `ndevices`. E_DEVICE with the reason where one
 * cannot be used. */
Err gpu_open(Gpus *g, Ctx *cx, const char *devices, const Ranks *ranks,
             int32_t *ndevices) MUST_CHECK;
void gpu_close(Gpus *g);
/* All GPUs there are, for somebody who asks; to be closed by out->close. E_DEVICE as above. */
Err gpu_look(Ctx *cx, Device *out) MUST_CHECK;
/* What the library would make of a step's kernel, as text, for GPUs of that compute capability; and
 * whether it compiles. Neither needs a GPU. NULL and E_DEVICE where the library is missing. */
DeviceSource *gpu_source(Ctx *cx);
DeviceCompile *gpu_compile(Ctx *cx);

/* The library's latest failure, while it was at `what`. */
static inline Err gpu_error(const Gpus *g, const char *what) {
    const char *text = g->device.error(g->device.self);
    size_t n = strlen(what);
    bool said = strncmp(text, what, n) == 0 && text[n] == ':'; /* a kernel's name, once is enough */
    return err_set(g->cx, E_DEVICE, "%s%s%s", said ? "" : what, said ? "" : ": ", text);
}
/* What a kernel found wrong in its data since the last time, in what has been waited for. */
Err gpu_fault(Gpus *g) MUST_CHECK;
/* Waits for all work; E_INDEX and E_DEVICE as above. */
Err gpu_wait(Gpus *g) MUST_CHECK;
Err gpu_grow_scratch(Gpus *g, int32_t domain, size_t bytes) MUST_CHECK;
/* Runs a kernel once: one that is no step of a plan. */
Err gpu_run(Gpus *g, int32_t domain, const char *kernel, const KArgs *args) MUST_CHECK;

#endif
