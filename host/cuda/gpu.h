/* gpu.h - what the parts of this library share: the GPUs that the process uses, each with its queue
 * (a CUDA stream). One thread only calls what is here, but for the compilers of module.c. */
#ifndef MESHLUA_CUDA_GPU_H
#define MESHLUA_CUDA_GPU_H

#include "cuda/api.h"
#include "cuda/memory.h"
#include "cuda/launches.h"
#include "cuda/times.h"
#include "run/gpu/device.h"

/* Where a kernel reports what it found in its data: struct FaultRecord of kernels/cuda/device.cuh,
 * in memory of the host that the GPU writes. */
typedef struct GpuFault {
    int32_t kind; /* KFaultKind; 0 until a kernel reports */
    int64_t value, limit, tag;
} GpuFault;

typedef struct Cuda Cuda;
typedef struct Modules Modules;

typedef struct Gpu {
    Cuda *cuda;
    int device; /* CUDA's number */
    CudaGpu row;
    cudaStream_t stream; /* NULL until something is asked of the GPU: see gpu_use */
    cudaEvent_t mark;    /* for other GPUs that wait for this one's queue; NULL until one does */
    GpuFault *fault;     /* pinned: the GPU sees it at the same address */
    CudaMemory memory;
    Staging staging;
    Answers answers;
    Times times;
    int capturing;
    struct Products *products; /* what products of matrices share */
    struct Bound *unready;     /* kernels that were bound and did not run yet */
} Gpu;

struct Cuda {
    ApiCudart rt;
    int toolkit; /* version of the runtime, 13000 */
    int driver;  /* that of the newest runtime that the driver serves; 0: no driver */
    int32_t ngpu;
    Gpu *gpu;
    DeviceGpu *about; /* of each */
    int device;       /* that the calling thread is set to; < 0: none yet */
    Modules *modules;
    char *cache; /* a folder, or NULL */
    int check;   /* wait for every launch */
    char error[2048];
};

enum { GPU_LEAST = 80 }; /* the oldest compute capability whose instructions are used: 8.0 */

/* Keeps CUDA's words for a failure. Gives whether all is well. */
int gpu_ok(Cuda *c, cudaError_t code, const char *what);
/* Keeps a text. Gives 0. */
int gpu_fail(Cuda *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes the calls that follow go to this GPU, which begins with the first of them. */
int gpu_use(Gpu *g);

#endif
