/* nccl.h - memory of GPUs between GPUs of this process and of others, by NCCL, which is opened here
 * and where several compute together only. What waits for other processes waits without end: the
 * caller's watchdog ends the process. */
#ifndef MESHLUA_CUDA_NCCL_H
#define MESHLUA_CUDA_NCCL_H

#include "cuda/gpu.h"

/* Device.meet: 1, or 0 with a text in the error. */
int nccl_meet(Cuda *c, char *id);
/* Device.join. */
int nccl_join(Cuda *c, const char id[DEVICE_ID], int32_t first, int32_t world, Comm *out);

#endif
