/* device.cpp - the devices, their properties, errors. */
#include "runtime.h"
#include "standin.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

/* ---- calls ---- */

static std::recursive_mutex inside;
static thread_local cudaError_t last;

static FILE *log_file() {
    static FILE *file = [] {
        const char *name = getenv("STANDIN_LOG");
        FILE *f = name && *name ? fopen(name, "a") : nullptr;
        if (f) setvbuf(f, nullptr, _IOLBF, 0);
        return f;
    }();
    return file;
}

long given_out;
static int
    left_to_break; /* calls, the last of which fails; STANDIN_BREAK: so many from the start */

void standin_fail_in(int calls) {
    left_to_break = calls;
}
int standin_fails_in() {
    return left_to_break;
}
long standin_held() {
    return given_out;
}
bool Call::breaks() {
    static bool begun;
    if (!begun) left_to_break = (int)setting("STANDIN_BREAK", left_to_break);
    begun = true;
    return left_to_break > 0 && --left_to_break == 0;
}

Call::Call(const char *entry, const char *format, ...) : lock(inside), name(entry) {
    FILE *f = log_file();
    if (!f) return;
    fprintf(f, "%s(", name);
    if (format) {
        va_list list;
        va_start(list, format);
        vfprintf(f, format, list);
        va_end(list);
    }
    fputs(")\n", f);
}
cudaError_t Call::operator()(cudaError_t e) {
    if (e) last = e;
    if (e && log_file()) fprintf(log_file(), "%s: %s\n", name, cudaGetErrorName(e));
    return e;
}

void complain(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("standin: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
}

long long setting(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, nullptr, 10) : otherwise;
}

bool dry() {
    static bool is = setting("STANDIN_DRY", 0) != 0;
    return is;
}

/* ---- devices ---- */

static thread_local int chosen;

int device_count() {
    static int n = (int)setting("STANDIN_GPUS", 1);
    return n;
}
size_t device_memory() {
    static size_t n = (size_t)setting("STANDIN_MEMORY", 4ll << 30);
    return n;
}
static std::vector<std::unique_ptr<Device>> make_devices() {
    std::vector<std::unique_ptr<Device>> all;
    for (int i = 0; i < device_count(); i++) {
        all.emplace_back(new Device());
        all.back()->null_stream.device = i;
    }
    return all;
}
Device &device(int index) {
    static auto *all = new std::vector<std::unique_ptr<Device>>(make_devices());
    return *(*all)[(size_t)index];
}
int current_index() {
    return chosen;
}
Device &current() {
    return device(chosen);
}

/* What CUDA this is the runtime of: the file's name has the major version, so that a copy named
 * libcudart.so.12 is an older one. */
static int runtime() {
    static const int version = [] {
        Dl_info self;
        const char *dot =
            dladdr((void *)&device_count, &self) ? strrchr(self.dli_fname, '.') : nullptr;
        int major = dot ? atoi(dot + 1) : 0;
        return major ? major * 1000 + CUDART_VERSION % 1000 : CUDART_VERSION;
    }();
    return version;
}
/* What CUDA the driver is for; 0: there is none. */
static int driver() {
    return (int)setting("STANDIN_DRIVER", CUDART_VERSION);
}

cudaError_t cudaGetDeviceCount(int *count) {
    Call call("cudaGetDeviceCount");
    if (call.breaks()) return call(cudaErrorUnknown);
    *count = driver() < runtime() ? 0 : device_count();
    if (driver() < runtime()) return call(cudaErrorInsufficientDriver);
    return call(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int index) {
    Call call("cudaSetDevice", "%d", index);
    if (call.breaks()) return call(cudaErrorUnknown);
    if (index < 0 || index >= device_count()) return call(cudaErrorInvalidDevice);
    chosen = index;
    return call(cudaSuccess);
}
cudaError_t cudaGetDevice(int *index) {
    *index = chosen;
    return cudaSuccess;
}
cudaError_t cudaInitDevice(int index, unsigned, unsigned) {
    return cudaSetDevice(index);
}
cudaError_t cudaDeviceReset() {
    Call call("cudaDeviceReset");
    drain_device(current());
    return call(cudaSuccess);
}

/* ---- properties: an H200's ---- */

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int index) {
    Call call("cudaGetDeviceProperties", "%d", index);
    if (call.breaks()) return call(cudaErrorUnknown);
    if (index < 0 || index >= device_count()) return call(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    const char *name = getenv("STANDIN_NAME");
    snprintf(p->name, sizeof p->name, "%s", name ? name : "NVIDIA H200");
    p->uuid.bytes[15] = (char)(index + 1);
    p->totalGlobalMem = device_memory();
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    int capability = (int)setting("STANDIN_CAPABILITY", 90);
    p->major = capability / 10;
    p->minor = capability % 10;
    p->multiProcessorCount = (int)setting("STANDIN_PROCESSORS", 132);
    p->l2CacheSize = 60 << 20;
    p->memoryBusWidth = 6144;
    p->pciBusID = index + 1;
    p->canMapHostMemory = p->unifiedAddressing = p->concurrentKernels = 1;
    p->asyncEngineCount = 3;
    return call(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int index) {
    Call call("cudaDeviceGetAttribute", "%d", (int)attr);
    if (call.breaks()) return call(cudaErrorUnknown);
    cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, index);
    if (e) return e;
    switch (attr) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)p.reservedSharedMemPerBlock; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels: *value = 1; break;
    default: *value = 0; break;
    }
    return call(cudaSuccess);
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int index) {
    Call call("cudaDeviceGetPCIBusId", "%d", index);
    if (call.breaks()) return call(cudaErrorUnknown);
    if (index < 0 || index >= device_count()) return call(cudaErrorInvalidDevice);
    snprintf(text, (size_t)size, "0000:%02X:00.0", index + 1);
    return call(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int index, int peer) {
    *can = index != peer;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    Call call("cudaDeviceEnablePeerAccess", "%d", peer);
    if (call.breaks()) return call(cudaErrorUnknown);
    bool fresh = current().peers.insert(peer).second;
    return call(fresh ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = driver();
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = runtime();
    return cudaSuccess;
}

/* ---- errors ---- */

cudaError_t cudaGetLastError() {
    cudaError_t e = last;
    last = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError() {
    return last;
}

static const struct Word {
    cudaError_t e;
    const char *name, *text;
} words[] = {
#define WORD(name, text)                                                                           \
    { name, #name, text }
    WORD(cudaSuccess, "no error"),
    WORD(cudaErrorInvalidValue, "invalid argument"),
    WORD(cudaErrorMemoryAllocation, "out of memory"),
    WORD(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    WORD(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    WORD(cudaErrorInvalidDevice, "invalid device ordinal"),
    WORD(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    WORD(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    WORD(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    WORD(cudaErrorSymbolNotFound, "named symbol not found"),
    WORD(cudaErrorNotReady, "device not ready"),
    WORD(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    WORD(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    WORD(cudaErrorLaunchFailure, "unspecified launch failure"),
    WORD(cudaErrorAssert, "device-side assert triggered"),
    WORD(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    WORD(cudaErrorHostMemoryNotRegistered,
         "pointer does not correspond to a registered memory region"),
    WORD(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    WORD(cudaErrorStreamCaptureInvalidated,
         "operation failed due to a previous error during capture"),
    WORD(cudaErrorStreamCaptureMerge,
         "operation would result in a merge of separate capture sequences"),
    WORD(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    WORD(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    WORD(cudaErrorStreamCaptureIsolation,
         "dependency created on uncaptured work in another stream"),
    WORD(cudaErrorStreamCaptureImplicit,
         "operation would make the legacy stream depend on a capturing blocking stream"),
    WORD(cudaErrorCapturedEvent,
         "operation not permitted on an event last recorded in a capturing stream"),
    WORD(cudaErrorInsufficientDriver,
         "CUDA driver version is insufficient for CUDA runtime version"),
#undef WORD
};
static const Word &word(cudaError_t e) {
    static const Word unknown = {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
    for (const Word &w : words)
        if (w.e == e) return w;
    return unknown;
}
const char *cudaGetErrorName(cudaError_t e) {
    return word(e).name;
}
const char *cudaGetErrorString(cudaError_t e) {
    return word(e).text;
}

/* ---- what has no meaning here ---- */

cudaError_t cudaProfilerStart() {
    return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
    return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
    return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) {
    return cudaSuccess;
}
