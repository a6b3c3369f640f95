/* library.cpp - "cubins" are shared libraries of the host's: loading and launching. */
#include "block.h"
#include "runtime.h"
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

struct CUlib_st {
    void *handle;
    int file; /* open as long: the loader knows what is loaded by its name, which has the number */
    const StandinModule *module;
    std::vector<std::unique_ptr<CUkern_st>> kernels;
};
struct CUkern_st {
    const StandinModule *module;
    const StandinKernel *kernel;
    std::map<int, size_t> dynamic = {}; /* of devices: bytes of shared memory that it may ask for */
};
static size_t limit_of(const CUkern_st *k, int device) {
    auto set = k->dynamic.find(device);
    return set == k->dynamic.end() ? 48 << 10 : set->second;
}

/* Bytes of an ELF file whose section headers stand last, or 0. */
static size_t file_size(const void *code) {
    Elf64_Ehdr head;
    memcpy(&head, code, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return 0;
    return head.e_shoff + (size_t)head.e_shentsize * head.e_shnum;
}

static void *open_code(const void *code, size_t bytes, int *kept) {
    int file = memfd_create("standin", MFD_CLOEXEC);
    const char *at = (const char *)code;
    ssize_t n = 1;
    while (file >= 0 && bytes && (n = write(file, at, bytes)) > 0) {
        at += n;
        bytes -= (size_t)n;
    }
    std::string name = "/proc/self/fd/" + std::to_string(file);
    void *handle = file >= 0 && !bytes ? dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) complain("a cubin: %s", dlerror());
    if (!handle && file >= 0) close(file);
    *kept = file;
    return handle;
}

static const StandinKernel any_kernel = {"any", 0, 0, nullptr, nullptr};
static const StandinModule any_module = {nullptr, nullptr, nullptr, nullptr, &any_kernel, 1};

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, cudaJitOption *, void **,
                                unsigned, cudaLibraryOption *, void **, unsigned) {
    Call call("cudaLibraryLoadData");
    if (call.breaks()) return call(cudaErrorUnknown);
    if (dry()) {
        given_out++;
        *library = new CUlib_st{nullptr, -1, &any_module, {}};
        return call(cudaSuccess);
    }
    size_t bytes = file_size(code);
    int file = -1;
    void *handle = bytes ? open_code(code, bytes, &file) : nullptr;
    auto *module = handle ? (const StandinModule *)dlsym(handle, "standin_module") : nullptr;
    if (!module) return call(cudaErrorInvalidKernelImage);
    given_out++;
    *library = new CUlib_st{handle, file, module, {}};
    return call(cudaSuccess);
}
cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    Call call("cudaLibraryUnload");
    if (!library) return call(cudaErrorInvalidResourceHandle);
    for (int i = 0; i < device_count(); i++) drain_device(device(i));
    if (library->handle) dlclose(library->handle);
    if (library->file >= 0) close(library->file);
    delete library;
    given_out--;
    return call(cudaSuccess);
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
    Call call("cudaLibraryGetKernel", "%s", name);
    if (call.breaks()) return call(cudaErrorUnknown);
    const StandinModule *m = library->module;
    if (dry()) name = any_kernel.name;
    for (unsigned i = 0; i < m->count; i++) {
        if (strcmp(m->kernels[i].name, name) != 0) continue;
        library->kernels.emplace_back(new CUkern_st{m, &m->kernels[i]});
        *kernel = library->kernels.back().get();
        return call(cudaSuccess);
    }
    return call(cudaErrorSymbolNotFound);
}
cudaError_t cudaLibraryGetKernelCount(unsigned *count, cudaLibrary_t library) {
    Call call("cudaLibraryGetKernelCount");
    if (call.breaks()) return call(cudaErrorUnknown);
    *count = library->module->count;
    return call(cudaSuccess);
}

/* ---- attributes ---- */

static cudaError_t set_attribute(CUkern_st *k, cudaFuncAttribute attr, int value, int device) {
    if (!k) return cudaErrorInvalidResourceHandle;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > STANDIN_SHARED) return cudaErrorInvalidValue;
    k->dynamic[device] = (size_t)value;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *f, cudaFuncAttribute attr, int value) {
    Call call("cudaFuncSetAttribute", "%d, %d", (int)attr, value);
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(set_attribute((CUkern_st *)f, attr, value, current_index()));
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t k, cudaFuncAttribute attr, int value,
                                            int device) {
    Call call("cudaKernelSetAttributeForDevice", "%d, %d, %d", (int)attr, value, device);
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(set_attribute(k, attr, value, device));
}
static size_t static_shared(const StandinModule *m) {
    size_t all = (size_t)(m->shared_end - m->shared);
    return m->dynamic ? 0 : all;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *f) {
    Call call("cudaFuncGetAttributes");
    if (call.breaks()) return call(cudaErrorUnknown);
    const auto *k = (const CUkern_st *)f;
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = k->kernel->bound ? (int)k->kernel->bound : 1024;
    a->maxDynamicSharedSizeBytes = (int)limit_of(k, current_index());
    a->sharedSizeBytes = static_shared(k->module);
    a->numRegs = 32;
    return call(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads,
                                                          size_t shared) {
    Call call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", "%d, %zu", threads, shared);
    if (call.breaks()) return call(cudaErrorUnknown);
    size_t by_shared = (228u << 10) / (shared + 1024), by_threads = 2048 / (size_t)threads;
    *blocks = (int)(by_shared < by_threads ? by_shared : by_threads);
    return call(cudaSuccess);
}

/* ---- launches ---- */

static bool fits(const CUkern_st *k, dim3 blocks, dim3 threads) {
    unsigned long long n = (unsigned long long)threads.x * threads.y * threads.z;
    return blocks.x && blocks.y && blocks.z && blocks.x <= 0x7fffffff && blocks.y <= 65535 &&
           blocks.z <= 65535 && n && n <= 1024 && threads.z <= 64 &&
           (!k->kernel->bound || n <= k->kernel->bound);
}

static cudaError_t launch(const CUkern_st *k, dim3 blocks, dim3 threads, void **args,
                          size_t dynamic, cudaStream_t stream) {
    if (!k || is_foreign(stream)) return cudaErrorInvalidResourceHandle;
    if (!fits(k, blocks, threads)) return cudaErrorInvalidConfiguration;
    if (dynamic > limit_of(k, current_index())) return cudaErrorInvalidValue;
    const StandinKernel *kernel = k->kernel;
    const StandinModule *module = k->module;
    if (dry()) return cudaSuccess;
    std::vector<char> bytes; /* each parameter at a multiple of 16 */
    std::vector<size_t> at;
    for (unsigned i = 0; i < kernel->params; i++) {
        bytes.resize((bytes.size() + 15) / 16 * 16);
        at.push_back(bytes.size());
        bytes.insert(bytes.end(), (const char *)args[i], (const char *)args[i] + kernel->sizes[i]);
    }
    int index = stream_of(stream)->device;
    return enqueue(stream, [=]() mutable {
        std::vector<void *> params;
        for (size_t offset : at) params.push_back(&bytes[offset]);
        std::string wrong =
            standin_run(StandinGrid{module, kernel, blocks, threads, dynamic, params.data()});
        if (wrong.empty()) return check_guards(device(index), kernel->name);
        complain("%s", wrong.c_str());
        return cudaErrorLaunchFailure;
    });
}
cudaError_t cudaLaunchKernel(const void *f, dim3 blocks, dim3 threads, void **args, size_t dynamic,
                             cudaStream_t stream) {
    const auto *k = (const CUkern_st *)f;
    Call call("cudaLaunchKernel", "%s, %u x %u x %u, %u x %u x %u, %zu", k ? k->kernel->name : "?",
              blocks.x, blocks.y, blocks.z, threads.x, threads.y, threads.z, dynamic);
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(launch(k, blocks, threads, args, dynamic, stream));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **args) {
    return cudaLaunchKernel(f, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}
