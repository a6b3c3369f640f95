/* module.h - compiled device code, once for each source and kind of GPU: found in this process, in
 * the cache on disk, or compiled, by a few threads while the host goes on. */
#ifndef MESHLUA_CUDA_MODULE_H
#define MESHLUA_CUDA_MODULE_H

#include "cuda/gpu.h"

typedef struct Module Module;

/* Begins to get the code of a source ready for that GPU; it stays until module_close_all. NULL: out
 * of memory. */
Module *module_get(Cuda *c, const CudaGpu *gpu, const char *source);
/* Waits until the code is ready, and gives one of its functions. */
int module_kernel(Cuda *c, Module *m, const char *entry, cudaKernel_t *kernel);
void module_close_all(Cuda *c);

#endif
