/* test_standin.cpp - the stand-ins themselves: device code from text to results, what they find
 * wrong, and that nothing runs before somebody waits for it. */
#include "runtime.h"
#include "test.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nvrtc.h>
#include <sys/wait.h>
#include <unistd.h>

static const char code[] = R"(
#include "part.cuh"
#define THREADS 64
extern "C" __global__ void add(const float *x, float *y, float by, Shape s) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < s.n) y[i] = x[i] + by;
}
template <class T> __device__ T block_sum(T x) {
    __shared__ T part[32];
    for (int m = 16; m; m /= 2) x += __shfl_xor_sync(0xffffffffu, x, m);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) x += part[w];
    return x;
}
extern "C" __global__ void __launch_bounds__(THREADS * 2) sums(const float *x, float *y, int n) {
    if ((int)threadIdx.x >= n) return;
    double d = block_sum((double)x[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x == 0) y[blockIdx.x] = (float)d;
}
extern "C" __global__ void turned(const int *x, int *y) {
    extern __shared__ alignas(16) int all[];
    all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void racy(const int *x, int *y) { /* its barrier is missing */
    __shared__ int all[256];
    all[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void votes(unsigned *y) {
    unsigned lane = threadIdx.x;
    unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
    unsigned up = __shfl_up_sync(0xffffffffu, lane, 3);
    unsigned down = __shfl_down_sync(0xffffffffu, lane, 2, 8);
    unsigned same = __match_any_sync(0xffffffffu, lane / 10);
    int count = __syncthreads_count(lane < 5);
    if (lane < 16) {
        unsigned half = __shfl_sync(0xffffu, lane * 2, 1);
        y[lane] = odd + up * 1000 + down + same + count + half;
    }
}
extern "C" __global__ void stuck() {
    if (threadIdx.x < 40) __syncthreads();
    else __syncwarp();
    __shared__ int x;
    if (threadIdx.x == 3) __syncwarp(0xff);
}
extern "C" __global__ void wild(float *x, int n) { x[n] = 1; }
extern "C" __global__ void askew(float *x, int n) { *(float4 *)(x + n) = float4{}; }
extern "C" __global__ void large(int n) {
    extern __shared__ char bytes[];
    bytes[n] = 1;
}
)";
static const char header[] = "struct Shape { long long n; };\n";

static cudaLibrary_t library;
static cudaStream_t stream;

static nvrtcResult compile(const char *text, std::string *cubin, std::string *log) {
    const char *headers[] = {header}, *names[] = {"part.cuh"}, *options[] = {"-DUNUSED=1"};
    nvrtcProgram p;
    size_t size;
    CHECK(nvrtcCreateProgram(&p, text, "code.cu", 1, headers, names) == NVRTC_SUCCESS);
    nvrtcResult r = nvrtcCompileProgram(p, 1, options);
    CHECK(nvrtcGetProgramLogSize(p, &size) == NVRTC_SUCCESS);
    log->resize(size);
    CHECK(nvrtcGetProgramLog(p, &(*log)[0]) == NVRTC_SUCCESS);
    CHECK(nvrtcGetCUBINSize(p, &size) == NVRTC_SUCCESS);
    cubin->resize(size);
    CHECK(nvrtcGetCUBIN(p, &(*cubin)[0]) == NVRTC_SUCCESS);
    CHECK(nvrtcDestroyProgram(&p) == NVRTC_SUCCESS);
    return r;
}

static cudaKernel_t kernel(const char *name) {
    cudaKernel_t k = nullptr;
    CHECKF(cudaLibraryGetKernel(&k, library, name) == cudaSuccess, "%s", name);
    return k;
}
static cudaError_t launch(const char *name, unsigned blocks, unsigned threads, size_t shared,
                          std::vector<void *> params) {
    return cudaLaunchKernel((void *)kernel(name), dim3(blocks), dim3(threads), params.data(),
                            shared, stream);
}

template <class T> struct Array {
    T *at = nullptr;
    explicit Array(size_t n) { CHECK(cudaMalloc((void **)&at, n * sizeof(T)) == cudaSuccess); }
    ~Array() { cudaFree(at); }
};

static void elements() {
    struct {
        long long n;
    } shape = {1000};
    float *host, by = 0.5f;
    Array<float> x(1000), y(1000);
    CHECK(cudaHostAlloc((void **)&host, 4000, 0) == cudaSuccess);
    for (int i = 0; i < 1000; i++) host[i] = (float)i;
    CHECK(cudaMemcpyAsync(x.at, host, 4000, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    CHECK(launch("add", 4, 256, 0, {&x.at, &y.at, &by, &shape}) == cudaSuccess);
    by = 100; /* parameters are copied */
    CHECK(cudaMemcpyAsync(host, y.at, 4000, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(host[7] == 7); /* nobody has waited */
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    for (int i = 0; i < 1000; i++) CHECK(host[i] == (float)i + 0.5f);
    CHECK(cudaFreeHost(host) == cudaSuccess);
}

static void blocks() {
    std::vector<float> host(256), sums(2);
    Array<float> x(256), y(2);
    for (int n : {128, 96}) { /* whole blocks, and some whose threads have left */
        for (int i = 0; i < 256; i++) host[(size_t)i] = (float)i;
        CHECK(!cudaMemcpy(x.at, host.data(), 1024, cudaMemcpyHostToDevice));
        CHECK(launch("sums", 2, (unsigned)n, 0, {&x.at, &y.at, &n}) == cudaSuccess);
        CHECK(cudaMemcpyAsync(sums.data(), y.at, 8, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(sums[0] == (float)(n * (n - 1) / 2));
        CHECK(sums[1] == (float)(n * (n - 1) / 2 + n * n));
    }
    int n = 1;
    CHECK(launch("sums", 1, 256, 0, {&x.at, &y.at, &n}) == cudaErrorInvalidConfiguration);
}

static std::vector<int> permuted(const char *name) {
    std::vector<int> host(256);
    Array<int> x(256), y(256);
    for (int i = 0; i < 256; i++) host[(size_t)i] = i;
    CHECK(!cudaMemcpy(x.at, host.data(), 1024, cudaMemcpyHostToDevice));
    CHECK(launch(name, 1, 256, 1024, {&x.at, &y.at}) == cudaSuccess);
    CHECK(!cudaMemcpyAsync(host.data(), y.at, 1024, cudaMemcpyDeviceToHost, stream));
    return host;
}
static void races() {
    for (const char *seed : {"0", "1", "7"}) {
        setenv("STANDIN_SEED", seed, 1);
        CHECK(permuted("turned")[3] == 252);
    }
    setenv("STANDIN_SEED", "1", 1);
    int last_first = permuted("racy")[3];
    unsetenv("STANDIN_SEED");
    CHECK(last_first == 252 && permuted("racy")[3] == -1); /* poison */
}

static void warps() {
    std::vector<unsigned> host(16);
    Array<unsigned> y(16);
    CHECK(launch("votes", 1, 32, 0, {&y.at}) == cudaSuccess);
    CHECK(!cudaMemcpyAsync(host.data(), y.at, 64, cudaMemcpyDeviceToHost, stream));
    for (unsigned l = 0; l < 16; l++) {
        unsigned up = l < 3 ? l : l - 3, down = l % 8 < 6 ? l + 2 : l;
        unsigned same = l < 10 ? 0x3ff : 0x3ff << 10;
        CHECKF(host[l] == 0xaaaaaaaau + up * 1000 + down + same + 5 + 2, "lane %u", l);
    }
}

static void graphs() {
    struct {
        long long n;
    } shape = {8};
    float by = 1;
    cudaStream_t side;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    std::vector<float> host(8, 1.0f);
    Array<float> x(8), y(8);
    CHECK(!cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(!cudaEventCreate(&fork) && !cudaEventCreate(&join));
    CHECK(!cudaMemcpy(x.at, host.data(), 32, cudaMemcpyHostToDevice));
    for (int joined = 0; joined < 2; joined++) {
        CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK(!launch("add", 1, 32, 0, {&x.at, &y.at, &by, &shape}));
        CHECK(!cudaEventRecord(fork, stream) && !cudaStreamWaitEvent(side, fork, 0));
        CHECK(!cudaMemcpyAsync(x.at, y.at, 32, cudaMemcpyDeviceToDevice, side));
        if (joined) CHECK(!cudaEventRecord(join, side) && !cudaStreamWaitEvent(stream, join, 0));
        CHECK(cudaStreamEndCapture(stream, &graph) ==
              (joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    }
    CHECK(!cudaGraphInstantiate(&exec, graph, 0) && !cudaGraphDestroy(graph));
    for (int k = 0; k < 5; k++) CHECK(!cudaGraphLaunch(exec, stream));
    CHECK(!cudaEventRecord(join, stream) && cudaEventQuery(join) == cudaErrorNotReady);
    CHECK(!cudaEventSynchronize(join));
    CHECK(!cudaMemcpy(host.data(), x.at, 32, cudaMemcpyDeviceToHost) && host[3] == 6);
    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(!cudaGraphExecDestroy(exec) && !cudaEventDestroy(fork) && !cudaEventDestroy(join));
    CHECK(!cudaStreamDestroy(side));
}

static void order() {
    cudaStream_t other;
    cudaEvent_t early, late;
    float ms = -1;
    std::vector<int> host(4);
    Array<int> x(4);
    CHECK(!cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(!cudaEventCreate(&early) && !cudaEventCreate(&late));
    CHECK(!cudaEventRecord(early, other));
    CHECK(!cudaMemsetAsync(x.at, 1, 16, other) && !cudaEventRecord(late, other));
    CHECK(!cudaStreamWaitEvent(stream, late, 0));
    CHECK(!cudaMemcpyAsync(host.data(), x.at, 16, cudaMemcpyDeviceToHost, stream));
    CHECK(host[0] == 0x01010101);
    CHECK(!cudaEventElapsedTime(&ms, early, late) && ms > 0);
    CHECK(!cudaEventDestroy(early) && !cudaEventDestroy(late) && !cudaStreamDestroy(other));
}

/* ---- several GPUs ---- */

/* What a process says that does this; it dies of it. */
static std::string last_words(const std::function<void()> &act) {
    int ends[2], status;
    std::string said;
    CHECK(pipe(ends) == 0);
    if (fork() == 0) {
        dup2(ends[1], 2);
        act();
        _exit(0);
    }
    close(ends[1]);
    char c;
    while (read(ends[0], &c, 1) == 1) said += c;
    close(ends[0]);
    CHECK(wait(&status) > 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return said;
}

/* What belongs to one is not for another that happens to be current. */
static void currents() {
    cudaEvent_t here, there;
    float ms;
    CHECK(!cudaEventCreate(&here) && !cudaSetDevice(1) && !cudaEventCreate(&there));
    int n = 0;
    CHECK(launch("large", 1, 1, 8, {&n}) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(there, stream) == cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventRecord(here, stream) && !cudaEventRecord(there, nullptr));
    CHECK(!cudaStreamWaitEvent(nullptr, here, 0) && !cudaStreamWaitEvent(stream, there, 0));
    CHECK(!cudaStreamSynchronize(stream) && !cudaEventSynchronize(there));
    CHECK(cudaEventElapsedTime(&ms, here, there) == cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventDestroy(here) && !cudaEventDestroy(there));
    /* The limit of shared memory is each device's. */
    const void *turned = kernel("turned");
    CHECK(!cudaFuncSetAttribute(turned, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    cudaFuncAttributes about;
    CHECK(!cudaFuncGetAttributes(&about, turned) && about.maxDynamicSharedSizeBytes == 65536);
    CHECK(!cudaSetDevice(0));
    CHECK(!cudaFuncGetAttributes(&about, turned) && about.maxDynamicSharedSizeBytes == 48 << 10);
}

static void strangers() {
    std::vector<int> host(4);
    Array<int> x(4);
    CHECK(!cudaSetDevice(1));
    Array<int> y(4), z(4);
    CHECK(cudaMemcpyAsync(y.at, x.at, 16, cudaMemcpyDefault, nullptr) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(host.data(), x.at, 16, cudaMemcpyDefault, 0) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(x.at, 0, 16, nullptr) == cudaErrorInvalidValue);
    CHECK(!cudaMemsetAsync(y.at, 1, 16, nullptr) && !cudaMemsetAsync(x.at, 2, 16, stream));
    CHECK(!cudaMemcpyAsync(z.at, y.at, 16, cudaMemcpyDefault, nullptr));
    CHECK(!cudaMemcpy(host.data(), z.at, 16, cudaMemcpyDefault) && host[3] == 0x01010101);
    CHECK(!cudaSetDevice(0));
    CHECK(!cudaMemcpyAsync(host.data(), x.at, 16, cudaMemcpyDefault, stream));
    CHECK(host[3] == 0x02020202);
    std::string said = last_words([&]() {
        int n = 0;
        CHECK(!launch("wild", 1, 1, 0, {&y.at, &n}) && !cudaStreamSynchronize(stream));
    });
    CHECKF(said.find("work of GPU 0 touches memory of GPU 1") != said.npos, "%s", said.c_str());
#ifndef __SANITIZE_ADDRESS__ /* which says it otherwise */
    CHECKF(said.find("kernel wild: an invalid address") != said.npos, "%s", said.c_str());
#endif
}

/* A vector that begins between two. */
static void misaligned() {
#ifndef __SANITIZE_ADDRESS__ /* which says it otherwise */
    Array<float> x(8);
    std::string said = last_words([&]() {
        int n = 1;
        CHECK(!launch("askew", 1, 1, 0, {&x.at, &n}) && !cudaStreamSynchronize(stream));
    });
    CHECKF(said.find("kernel askew: an access that is not aligned") != said.npos, "%s",
           said.c_str());
#endif
}

/* What a GPU might not have noticed. Each error sticks, so each has a process of its own. */
static void fault(const std::string &which) {
    int n = 8;
    Array<float> x(8);
    if (which == "wild") CHECK(!launch("wild", 1, 1, 0, {&x.at, &n}));
    if (which == "stuck") CHECK(!launch("stuck", 1, 64, 0, {}));
    if (which == "large") CHECK(!launch("large", 1, 1, 8, {&n}));
    cudaError_t e = cudaStreamSynchronize(stream);
    CHECK(e == (which == "wild" ? cudaErrorIllegalAddress : cudaErrorLaunchFailure));
    CHECK(cudaDeviceSynchronize() == e); /* it sticks */
}

int main(int argc, char **argv) {
    std::string cubin, log, none;
    bool several = argc > 1 && !strcmp(argv[1], "several");
    if (several) setenv("STANDIN_GPUS", "2", 1);
    CHECK(compile("extern \"C\" __global__ void f() { g(); }", &none, &log) ==
          NVRTC_ERROR_COMPILATION);
    CHECKF(log.find("code.cu") != log.npos && log.find("g") != log.npos, "%s", log.c_str());
    CHECKF(compile(code, &cubin, &log) == NVRTC_SUCCESS, "%s", log.c_str());
    if (cudaLibraryLoadData(&library, cubin.data(), 0, 0, 0, 0, 0, 0)) return 1;
    CHECK(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (several) {
        currents();
        strangers();
        return test_end();
    }
    if (argc > 1) {
        fault(argv[1]);
        return test_end();
    }
    elements();
    blocks();
    races();
    warps();
    graphs();
    misaligned();
    order();
    cudaKernel_t no;
    CHECK(cudaLibraryGetKernel(&no, library, "none") == cudaErrorSymbolNotFound);
    CHECK(!cudaStreamDestroy(stream) && !cudaLibraryUnload(library));
    return test_end();
}
