/* api.h - the functions of CUDA's libraries that are used: each library is opened when it is first
 * needed, so that nothing of CUDA has to be there to start, and none is linked.
 *
 * A library is a list of its functions, API_X(F), and a struct with a pointer for each. Those of
 * cublasLt, NCCL and cuDNN stand where they are called, so that only there their headers are
 * needed. */
#ifndef MESHLUA_CUDA_API_H
#define MESHLUA_CUDA_API_H

#include <cuda_runtime_api.h>
#include <nvrtc.h>
#include <stddef.h>

/* A struct's member, and a function's name, of a list. */
#define API_MEMBER(name) __typeof__(name) *name;
#define API_NAME(name)   #name,

#define API_CUDART(F)                                                                              \
    F(cudaDeviceGetAttribute)                                                                      \
    F(cudaDeviceGetPCIBusId)                                                                       \
    F(cudaDeviceGetStreamPriorityRange)                                                            \
    F(cudaDriverGetVersion)                                                                        \
    F(cudaEventCreateWithFlags)                                                                    \
    F(cudaEventDestroy)                                                                            \
    F(cudaEventElapsedTime)                                                                        \
    F(cudaEventQuery)                                                                              \
    F(cudaEventRecord)                                                                             \
    F(cudaEventSynchronize)                                                                        \
    F(cudaFree)                                                                                    \
    F(cudaFreeHost)                                                                                \
    F(cudaFuncGetAttributes)                                                                       \
    F(cudaFuncSetAttribute)                                                                        \
    F(cudaGetDeviceCount)                                                                          \
    F(cudaGetDeviceProperties)                                                                     \
    F(cudaGetErrorString)                                                                          \
    F(cudaGetLastError)                                                                            \
    F(cudaGraphDestroy)                                                                            \
    F(cudaGraphExecDestroy)                                                                        \
    F(cudaGraphInstantiate)                                                                        \
    F(cudaGraphLaunch)                                                                             \
    F(cudaGraphUpload)                                                                             \
    F(cudaHostAlloc)                                                                               \
    F(cudaLaunchKernel)                                                                            \
    F(cudaLibraryGetKernel)                                                                        \
    F(cudaLibraryLoadData)                                                                         \
    F(cudaLibraryUnload)                                                                           \
    F(cudaMalloc)                                                                                  \
    F(cudaMemGetInfo)                                                                              \
    F(cudaMemcpyAsync)                                                                             \
    F(cudaMemcpyPeerAsync)                                                                         \
    F(cudaMemsetAsync)                                                                             \
    F(cudaRuntimeGetVersion)                                                                       \
    F(cudaSetDevice)                                                                               \
    F(cudaStreamBeginCapture)                                                                      \
    F(cudaStreamCreateWithFlags)                                                                   \
    F(cudaStreamCreateWithPriority)                                                                \
    F(cudaStreamDestroy)                                                                           \
    F(cudaStreamEndCapture)                                                                        \
    F(cudaStreamIsCapturing)                                                                       \
    F(cudaStreamSynchronize)                                                                       \
    F(cudaStreamWaitEvent)

#define API_NVRTC(F)                                                                               \
    F(nvrtcCompileProgram)                                                                         \
    F(nvrtcCreateProgram)                                                                          \
    F(nvrtcDestroyProgram)                                                                         \
    F(nvrtcGetCUBIN)                                                                               \
    F(nvrtcGetCUBINSize)                                                                           \
    F(nvrtcGetErrorString)                                                                         \
    F(nvrtcGetProgramLog)                                                                          \
    F(nvrtcGetProgramLogSize)

typedef struct ApiCudart {
    API_CUDART(API_MEMBER)
} ApiCudart;

typedef struct ApiNvrtc {
    API_NVRTC(API_MEMBER)
} ApiNvrtc;

typedef struct ApiLibrary {
    const char *what;           /* "NVRTC", for messages */
    const char *const *names;   /* of the file, the best first, then NULL */
    const char *const *symbols; /* one per member of the struct */
    size_t count;
} ApiLibrary;

/* A row of ApiLibrary: API_LIBRARY("NVRTC", API_NVRTC, "libnvrtc.so.13", "libnvrtc.so.12"). */
#define API_LIBRARY(text, list, ...)                                                               \
    {                                                                                              \
        .what = text, .names = (const char *const[]){__VA_ARGS__, NULL},                           \
        .symbols = (const char *const[]){list(API_NAME)},                                          \
        .count = sizeof((const char *const[]){list(API_NAME)}) / sizeof(char *)                    \
    }

/* Opens the first that is there and fills the struct; where a version is given, only a file of that
 * version: what works together must come from one toolkit. The library stays open: those of CUDA do
 * not bear being closed. 1, or 0 with a text in `error`. */
enum { API_ANY = 0 };
int api_open(const ApiLibrary *library, int version, void *table, char *error, size_t size);
/* The version in the files' names of what CUDA says as a number, 13000. */
static inline int api_version(int number) {
    return number / 1000;
}

#endif
