/* launch.h - a kernel that is ready for operands of some shape, and its way into the queue. */
#ifndef MESHLUA_CUDA_LAUNCH_H
#define MESHLUA_CUDA_LAUNCH_H

#include "cuda/gpu.h"

typedef struct Bound Bound;

/* NULL: there is no such kernel for CUDA. */
const CudaRow *launch_row(const char *kernel);

/* Its code may be compiled after it returns: the first launch waits for it. NULL: it failed. */
Bound *launch_bind(Gpu *g, const char *kernel, const KArgs *args, size_t *scratch);
void launch_unbind(Bound *b);
/* See Device.pair. */
Bound *launch_pair(Gpu *g, const DeviceWork work[2], int32_t from, int32_t to, size_t *scratch);
int launch_run(Bound *b, const KArgs *args, char *scratch, int64_t tag);
/* Waits until all that was bound can run, but for what never will: launching that says why. */
int launch_ready_all(Gpu *g);

#endif
