/* nccl.h - memory of GPUs between processes, by NCCL, which is opened here and where there are
 * several processes only. What waits for other processes waits without end: the caller's watchdog
 * ends the process. */
#ifndef MESHLUA_CUDA_NCCL_H
#define MESHLUA_CUDA_NCCL_H

#include "cuda/api.h"
#include "run/device.h"

/* Device.meet: 1, or 0 with a text in `error`. */
int nccl_meet(char *id, char *error, size_t size);
/* Device.join, of the GPU with that number for the runtime, whose work is in `queue`. */
int nccl_join(const ApiCudart *cuda, int gpu, cudaStream_t queue, const char id[DEVICE_ID],
              int32_t rank, int32_t world, Comm *out, char *error, size_t size);

#endif
