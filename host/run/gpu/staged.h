/* staged.h - memory of a GPU between processes, through the host's memory and what carries that:
 * slow, as every message waits for the GPU and is copied twice, but there wherever MPI is. */
#ifndef MESHLUA_RUN_GPU_STAGED_H
#define MESHLUA_RUN_GPU_STAGED_H

#include "run/gpu/device.h"

/* Both stay. 0: out of memory. */
int staged_open(const Comm *host, Device *device, Comm *out);

#endif
