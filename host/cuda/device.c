/* device.c - the library meshlua_cuda.so: GPUs behind the table of run/gpu/device.h. */
#include "cuda/compile.h"
#include "cuda/graph.h"
#include "cuda/launch.h"
#include "cuda/module.h"
#include "cuda/nccl.h"
#include "cuda/products.h"
#include "cuda/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what needs no GPU ---- */

/* A GPU of that kind, as rows see it. */
static CudaGpu gpu_like(int32_t major, int32_t minor) {
    size_t shared = major == 9 || major == 10 ? 227 : major == 8 && minor == 0 ? 163 : 99;
    return (CudaGpu){.major = major, .minor = minor, .processors = 132, .shared = shared << 10};
}

__attribute__((visibility("default"))) DeviceSource device_source;
char *device_source(const char *kernel, const KArgs *args, int32_t major, int32_t minor) {
    char error[256];
    CudaGpu gpu = gpu_like(major, minor);
    const CudaRow *row = launch_row(kernel);
    Launches *p = row ? launches_new(row, args, &gpu, NULL, error, sizeof error) : NULL;
    if (!p) return NULL;
    char *text = source_of_launches(p);
    launches_free(p);
    return text;
}

typedef struct CompileTarget {
    int32_t major, minor;
    char *error;
    size_t size;
} CompileTarget;

static int compile_launch(void *state, const char *source, const char *entry) {
    const CompileTarget *t = state;
    char *cubin;
    size_t n;
    if (!compile_source(source, API_ANY, t->major, t->minor, &cubin, &n, t->error, t->size))
        return 0;
    int there = compile_has_entry(cubin, n, entry);
    if (!there) snprintf(t->error, t->size, "the device code has no function %s", entry);
    free(cubin);
    return there;
}

__attribute__((visibility("default"))) DeviceCompile device_compile;
int device_compile(const char *source, int32_t major, int32_t minor, char *error, size_t size) {
    CompileTarget target = {major, minor, error, size};
    char *text = strdup(source);
    snprintf(error, size, text ? "not the text of launches" : "out of memory");
    int done = text && source_each(text, compile_launch, &target);
    free(text);
    return done;
}

/* ---- the table ---- */

static Gpu *gpu_at(void *self, int32_t gpu) {
    return &((Cuda *)self)->gpu[gpu];
}

static const char *error_text(void *self) {
    return ((Cuda *)self)->error;
}

static char *alloc_bytes(void *self, int32_t gpu, size_t bytes) {
    return memory_alloc(gpu_at(self, gpu), bytes);
}
static void free_bytes(void *self, int32_t gpu, char *at, size_t bytes) {
    memory_free(gpu_at(self, gpu), at, bytes);
}
static size_t available(void *self, int32_t gpu) {
    return memory_available(gpu_at(self, gpu));
}
static int upload(void *self, int32_t gpu, char *to, const void *from, size_t bytes) {
    return memory_upload(gpu_at(self, gpu), to, from, bytes);
}
static int download(void *self, int32_t gpu, void *to, const char *from, size_t bytes) {
    return memory_download(gpu_at(self, gpu), to, from, bytes);
}

/* What comes into `later` from here on waits for what is in `earlier`. */
static int follow(Gpu *later, Gpu *earlier) {
    Cuda *c = later->cuda;
    if (later == earlier) return 1;
    return gpu_use(earlier) &&
           (earlier->mark ||
            gpu_ok(c, c->rt.cudaEventCreateWithFlags(&earlier->mark, cudaEventDisableTiming),
                   "cudaEventCreateWithFlags")) &&
           gpu_ok(c, c->rt.cudaEventRecord(earlier->mark, earlier->stream), "cudaEventRecord") &&
           gpu_use(later) &&
           gpu_ok(c, c->rt.cudaStreamWaitEvent(later->stream, earlier->mark, 0),
                  "cudaStreamWaitEvent");
}

static int move(void *self, int32_t gpu, char *to, int32_t source, const char *from, size_t bytes) {
    Gpu *g = gpu_at(self, gpu), *other = gpu_at(self, source);
    Cuda *c = g->cuda;
    if (bytes == 0) return 1;
    if (g == other)
        return gpu_use(g) &&
               gpu_ok(c,
                      c->rt.cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, g->stream),
                      "cudaMemcpyAsync");
    return gpu_use(g) && follow(g, other) &&
           gpu_ok(c,
                  c->rt.cudaMemcpyPeerAsync(to, g->device, from, other->device, bytes, g->stream),
                  "cudaMemcpyPeerAsync") &&
           follow(other, g);
}

static int fill(void *self, int32_t gpu, char *to, int byte, size_t bytes) {
    Gpu *g = gpu_at(self, gpu);
    Cuda *c = g->cuda;
    return gpu_use(g) && (bytes == 0 || gpu_ok(c, c->rt.cudaMemsetAsync(to, byte, bytes, g->stream),
                                               "cudaMemsetAsync"));
}

static int wait_all(void *self, int32_t gpu) {
    Gpu *g = gpu_at(self, gpu);
    Cuda *c = g->cuda;
    return gpu_use(g) && gpu_ok(c, c->rt.cudaStreamSynchronize(g->stream), "cudaStreamSynchronize");
}

/* A kernel writes the kind first, so the rest is there when it has ended. While work is kept for a
 * graph nothing may wait: what is there is found later. */
static int take_fault(void *self, int32_t gpu, DeviceFault *out) {
    Gpu *g = gpu_at(self, gpu);
    GpuFault *f = g->fault;
    if (!f || *(volatile int32_t *)&f->kind == K_FAULT_NONE) return 0;
    if (g->capturing || !wait_all(self, gpu)) return 0;
    *out = (DeviceFault){.fault = {(KFaultKind)f->kind, f->value, f->limit}, .tag = f->tag};
    *f = (GpuFault){.kind = K_FAULT_NONE};
    return 1;
}

static void *bind_kernel(void *self, int32_t gpu, const char *kernel, const KArgs *args,
                         size_t *scratch) {
    return launch_bind(gpu_at(self, gpu), kernel, args, scratch);
}
static void *pair(void *self, int32_t gpu, const DeviceWork work[2], int32_t from, int32_t to,
                  size_t *scratch) {
    return launch_pair(gpu_at(self, gpu), work, from, to, scratch);
}
static void unbind(void *self, void *bound) {
    (void)self;
    launch_unbind(bound);
}
static int launch(void *self, void *bound, const KArgs *args, char *scratch, int64_t tag) {
    (void)self;
    return launch_run(bound, args, scratch, tag);
}

static int capture(void *self, int32_t gpu) {
    return graph_capture(gpu_at(self, gpu));
}
static void *captured(void *self, int32_t gpu) {
    return graph_captured(gpu_at(self, gpu));
}
static int replay(void *self, int32_t gpu, void *graph) {
    return graph_replay(gpu_at(self, gpu), graph);
}
static void forget(void *self, void *graph) {
    graph_forget(self, graph);
}

static int64_t ask(void *self, int32_t gpu, const char *from, size_t bytes) {
    return memory_ask(gpu_at(self, gpu), from, bytes);
}
static int answer(void *self, int32_t gpu, int64_t number, void *to, size_t bytes) {
    return memory_answer(gpu_at(self, gpu), number, to, bytes);
}

static int64_t stamp(void *self, int32_t gpu) {
    return times_stamp(gpu_at(self, gpu));
}
static double between(void *self, int32_t gpu, int64_t from, int64_t to) {
    return times_between(gpu_at(self, gpu), from, to);
}
static void range(void *self, const char *name) {
    (void)self;
    times_range(name);
}

static int meet(void *self, char id[DEVICE_ID]) {
    return nccl_meet(self, id);
}
static int join(void *self, const char id[DEVICE_ID], int32_t first, int32_t world, Comm *out) {
    return nccl_join(self, id, first, world, out);
}

static void close_gpu(Gpu *g) {
    Cuda *c = g->cuda;
    int begun = g->stream && gpu_use(g);
    if (begun) c->rt.cudaStreamSynchronize(g->stream);
    products_free(g->products); /* on its GPU, and nothing of it runs */
    if (begun) {
        memory_close(g);
        times_close(g);
        if (g->mark) c->rt.cudaEventDestroy(g->mark);
        c->rt.cudaStreamDestroy(g->stream);
    }
    if (g->fault) c->rt.cudaFreeHost(g->fault);
}

static void close_all(void *self) {
    Cuda *c = self;
    for (int32_t i = 0; i < c->ngpu; i++) close_gpu(&c->gpu[i]);
    module_close_all(c);
    free(c->gpu);
    free(c->about);
    free(c->cache);
    free(c);
}

static const Device table = {
    .version = DEVICE_VERSION,
    .error = error_text,
    .alloc = alloc_bytes,
    .free = free_bytes,
    .available = available,
    .upload = upload,
    .download = download,
    .ask = ask,
    .answer = answer,
    .move = move,
    .fill = fill,
    .wait = wait_all,
    .fault = take_fault,
    .bind = bind_kernel,
    .pair = pair,
    .unbind = unbind,
    .launch = launch,
    .capture = capture,
    .captured = captured,
    .replay = replay,
    .forget = forget,
    .stamp = stamp,
    .between = between,
    .range = range,
    .meet = meet,
    .join = join,
    .close = close_all,
};

/* ---- opening ---- */

typedef struct Version { /* "12.4" */
    char text[16];
} Version;

static Version version_of(int number) {
    Version v;
    snprintf(v.text, sizeof v.text, "%d.%d", number / 1000, number % 1000 / 10);
    return v;
}

/* Why there is no GPU at all. */
static int no_device(Cuda *c, const DeviceOptions *o, cudaError_t code) {
    Version driver = version_of(c->driver), runtime = version_of(c->toolkit);
    if (code == cudaErrorInsufficientDriver && c->driver == 0)
        return gpu_fail(c,
                        "no CUDA device: there is no NVIDIA driver (libcuda.so.1), which the "
                        "CUDA runtime %s needs",
                        runtime.text);
    if (code == cudaErrorInsufficientDriver)
        return gpu_fail(c,
                        "no CUDA device: the NVIDIA driver is too old: it is for CUDA %s, and the "
                        "runtime is %s; a newer driver or an older toolkit is needed",
                        driver.text, runtime.text);
    if ((code == cudaSuccess || code == cudaErrorNoDevice) && o->visible)
        return gpu_fail(c, "no CUDA device: CUDA_VISIBLE_DEVICES=%s shows none", o->visible);
    if (code == cudaSuccess) code = cudaErrorNoDevice;
    return gpu_fail(c, "no CUDA device: %s (CUDA error %d; driver for CUDA %s, runtime %s)",
                    c->rt.cudaGetErrorString(code), (int)code, driver.text, runtime.text);
}

static int attribute(Cuda *c, int device, enum cudaDeviceAttr which, int32_t *out) {
    int value = 0;
    int there =
        gpu_ok(c, c->rt.cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    *out = value;
    return there;
}

static int describe(Cuda *c, int device, DeviceGpu *about, size_t *shared) {
    /* Name and memory stand at the front, at the same place in every version of CUDA. */
    union {
        struct cudaDeviceProp at;
        char room[8192];
    } prop;
    int32_t most;
    if (!gpu_ok(c, c->rt.cudaGetDeviceProperties(&prop.at, device), "cudaGetDeviceProperties") ||
        !gpu_ok(c, c->rt.cudaDeviceGetPCIBusId(about->bus, sizeof about->bus, device),
                "cudaDeviceGetPCIBusId") ||
        !attribute(c, device, cudaDevAttrComputeCapabilityMajor, &about->major) ||
        !attribute(c, device, cudaDevAttrComputeCapabilityMinor, &about->minor) ||
        !attribute(c, device, cudaDevAttrMultiProcessorCount, &about->processors) ||
        !attribute(c, device, cudaDevAttrMaxSharedMemoryPerBlockOptin, &most))
        return 0;
    snprintf(about->name, sizeof about->name, "%.*s", DEVICE_NAME - 1, prop.at.name);
    about->index = device;
    about->memory = prop.at.totalGlobalMem;
    *shared = (size_t)most;
    return 1;
}

static int is_new_enough(Cuda *c, const DeviceGpu *g) {
    if (g->major * 10 + g->minor >= GPU_LEAST) return 1;
    return gpu_fail(c, "GPU %d (%s) has compute capability %d.%d; 8.0 or later is needed",
                    (int)g->index, g->name, (int)g->major, (int)g->minor);
}

static int add_gpu(Cuda *c, int32_t device, const DeviceOptions *o) {
    Gpu *g = &c->gpu[c->ngpu];
    DeviceGpu *about = &c->about[c->ngpu];
    size_t shared;
    if (!describe(c, device, about, &shared) || !is_new_enough(c, about)) return 0;
    *g = (Gpu){.cuda = c,
               .device = device,
               .row = {about->major, about->minor, about->processors, shared,
                       o->wgmma && about->major == 9}};
    c->ngpu++;
    g->products = products_new(&c->rt, about, o->first_guess ? NULL : c->cache, o->tf32);
    return g->products || gpu_fail(c, "out of memory for GPUs");
}

static int add_gpus(Cuda *c, const DeviceOptions *o) {
    int count = 0;
    cudaError_t code = c->rt.cudaGetDeviceCount(&count);
    c->rt.cudaGetLastError();
    if (code != cudaSuccess || count == 0) return no_device(c, o, code);
    int32_t n = o->which ? o->n : count;
    c->gpu = calloc((size_t)n + 1, sizeof *c->gpu);
    c->about = calloc((size_t)n + 1, sizeof *c->about);
    if (!c->gpu || !c->about) return gpu_fail(c, "out of memory for GPUs");
    for (int32_t i = 0; i < n; i++) {
        int32_t device = o->which ? o->which[i] : i;
        if (device < 0 || device >= count)
            return gpu_fail(c, "there is no GPU %d: CUDA shows %d, from 0%s%s%s", (int)device,
                            count, o->visible ? " (CUDA_VISIBLE_DEVICES=" : "",
                            o->visible ? o->visible : "", o->visible ? ")" : "");
        if (!add_gpu(c, device, o)) return 0;
    }
    return 1;
}

static int open_runtime(Cuda *c) {
    const ApiLibrary library =
        API_LIBRARY("the CUDA runtime", API_CUDART, "libcudart.so.13", "libcudart.so.12");
    ApiCudart older;
    char error[256];
    if (!api_open(&library, API_ANY, &c->rt, c->error, sizeof c->error)) return 0;
    c->rt.cudaRuntimeGetVersion(&c->toolkit);
    c->rt.cudaDriverGetVersion(&c->driver);
    if (c->driver == 0 || api_version(c->driver) >= api_version(c->toolkit)) return 1;
    /* The driver may be too old for this one, and good for another that is there. */
    if (api_open(&library, api_version(c->driver), &older, error, sizeof error)) {
        c->rt = older;
        c->rt.cudaRuntimeGetVersion(&c->toolkit);
    }
    return 1;
}

__attribute__((visibility("default"))) DeviceOpen device_open;
int device_open(Device *device, const DeviceOptions *options, char *error, size_t size) {
    Cuda *c = calloc(1, sizeof *c);
    if (c) c->cache = options->cache ? strdup(options->cache) : NULL;
    if (!c || (options->cache && !c->cache)) {
        snprintf(error, size, "out of memory for GPUs");
        free(c);
        return 0;
    }
    c->device = -1;
    c->check = options->check;
    if (!open_runtime(c) || !add_gpus(c, options)) {
        snprintf(error, size, "%s", c->error);
        close_all(c);
        return 0;
    }
    *device = table;
    device->self = c;
    device->gpus = c->ngpu;
    device->gpu = c->about;
    device->driver = c->driver;
    device->runtime = c->toolkit;
    return 1;
}
