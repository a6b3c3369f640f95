/* memory.cpp - device memory is the host's, with guards around it: poisoned when it is given out,
 * looked at after every kernel and when it is freed. */
#include "runtime.h"
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

static const size_t GUARD = 256;
static const unsigned char GUARD_BYTE = 0xa5, POISON = 0xff;
static const size_t POISONED = 64 << 20; /* of larger pieces no more than so much */

static std::map<const char *, size_t> pinned;

/* ---- guards ---- */

static bool is_guard(const char *at) {
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)at[i] != GUARD_BYTE) return false;
    return true;
}

static size_t guard() { /* AddressSanitizer has better ones for what lies on the heap */
#ifdef __SANITIZE_ADDRESS__
    return isolated() ? GUARD : 0;
#else
    return GUARD;
#endif
}

static cudaError_t check(const char *at, const Allocation &a, const char *who) {
    if (!guard()) return cudaSuccess;
    bool low = is_guard(at - GUARD), high = is_guard(at + a.bytes);
    if (low && high) return cudaSuccess;
    complain("%s wrote %s a piece of %zu bytes of device memory", who,
             low ? "behind" : "in front of", a.bytes);
    memset((char *)at - GUARD, GUARD_BYTE, GUARD); /* says it once */
    memset((char *)at + a.bytes, GUARD_BYTE, GUARD);
    return cudaErrorIllegalAddress;
}

cudaError_t check_guards(Device &d, const char *who) {
    cudaError_t e = cudaSuccess;
    if (d.memory.size() > 64) return e; /* then only when they are freed */
    open_memory(d.null_stream.device);
    for (const auto &m : d.memory) {
        cudaError_t one = check(m.first, m.second, who);
        if (one) e = one;
    }
    return e;
}

static char *take_block(Device &d, size_t size) {
    void *block = nullptr;
    if (isolated()) return range_take(d, size);
    if (dry()) {
        block = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return block == MAP_FAILED ? nullptr : (char *)block;
    }
    return posix_memalign(&block, 256, size) ? nullptr : (char *)block;
}

static void give_block(const Allocation &a) {
    if (isolated())
        range_give(a.block, a.size);
    else if (dry())
        munmap(a.block, a.size);
    else
        free(a.block);
}

static char *make(Device &d, size_t bytes) {
    size_t size = bytes + 2 * guard();
    char *block = take_block(d, size), *at = block + guard();
    if (!block) return nullptr;
    open_memory(d.null_stream.device);
    memset(block, GUARD_BYTE, guard());
    memset(at + bytes, GUARD_BYTE, guard());
    if (!dry()) memset(at, POISON, bytes < POISONED ? bytes : POISONED);
    d.memory[at] = Allocation{bytes, block, size};
    return at;
}

/* ---- what lies where ---- */

static const std::pair<char *const, Allocation> *find(const void *p) {
    char *at = (char *)p;
    for (int i = 0; i < device_count(); i++) {
        auto &memory = device(i).memory;
        auto next = memory.upper_bound(at);
        if (next == memory.begin()) continue;
        --next;
        if (at < next->first + next->second.bytes) return &*next;
    }
    return nullptr;
}
static int device_of(const void *at) { /* < 0: none */
    const auto *m = find(at);
    for (int i = 0; m && i < device_count(); i++)
        if (device(i).memory.count(m->first)) return i;
    return -1;
}
bool touches_device(const void *at) {
    return find(at) != nullptr;
}
bool is_device(const void *at, size_t bytes) {
    const auto *m = find(at);
    return m && (const char *)at + bytes <= m->first + m->second.bytes;
}
bool is_pinned(const void *at) {
    auto next = pinned.upper_bound((const char *)at);
    if (next == pinned.begin()) return false;
    --next;
    return (const char *)at < next->first + next->second;
}

/* ---- giving and taking ---- */

/* STANDIN_FAIL = n: the n-th from here on fails. */
static bool fails() {
    static long long left = setting("STANDIN_FAIL", 0);
    return left > 0 && --left == 0;
}

cudaError_t cudaMalloc(void **at, size_t bytes) {
    Call call("cudaMalloc", "%zu", bytes);
    if (call.breaks()) return call(cudaErrorUnknown);
    Device &d = current();
    *at = nullptr;
    if (d.fault) return call(d.fault);
    if (forbidden_unless_relaxed()) return call(cudaErrorStreamCaptureUnsupported);
    if (!bytes) return call(cudaSuccess);
    size_t taken = (bytes + 511) / 512 * 512;
    if (fails() || taken > device_memory() - d.used) return call(cudaErrorMemoryAllocation);
    char *p = make(d, bytes);
    if (!p) return call(cudaErrorMemoryAllocation);
    d.used += taken;
    given_out++;
    *at = p;
    return call(cudaSuccess);
}

static cudaError_t take_back(void *p) {
    for (int i = 0; i < device_count(); i++) {
        Device &d = device(i);
        auto m = d.memory.find((char *)p);
        if (m == d.memory.end()) continue;
        open_memory(i);
        cudaError_t e = check(m->first, m->second, "something");
        if (e) d.fault = e;
        d.used -= (m->second.bytes + 511) / 512 * 512;
        give_block(m->second);
        d.memory.erase(m);
        given_out--;
        return d.fault;
    }
    complain("cudaFree of %p, which is no device memory", p);
    return cudaErrorInvalidValue;
}
cudaError_t cudaFree(void *at) {
    Call call("cudaFree", "%p", at);
    if (!at) return call(cudaSuccess);
    if (forbidden()) return call(cudaErrorStreamCaptureUnsupported);
    for (int i = 0; i < device_count(); i++)
        if (device(i).memory.count((char *)at)) drain_device(device(i));
    return call(take_back(at));
}
cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t) {
    return cudaMalloc(at, bytes);
}
cudaError_t cudaFreeAsync(void *at, cudaStream_t stream) {
    Call call("cudaFreeAsync", "%p", at);
    return call(enqueue(stream, [at]() { return take_back(at); }));
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    Call call("cudaMemGetInfo");
    if (call.breaks()) return call(cudaErrorUnknown);
    *total = device_memory();
    *available = *total - current().used;
    return call(current().fault);
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags) {
    Call call("cudaHostAlloc", "%zu, %u", bytes, flags);
    if (call.breaks()) return call(cudaErrorUnknown);
    *at = nullptr;
    if (current().fault) return call(current().fault);
    if (fails() || posix_memalign(at, 4096, bytes ? bytes : 1)) {
        *at = nullptr;
        return call(cudaErrorMemoryAllocation);
    }
    memset(*at, POISON, bytes);
    pinned[(char *)*at] = bytes;
    given_out++;
    return call(cudaSuccess);
}
cudaError_t cudaMallocHost(void **at, size_t bytes) {
    return cudaHostAlloc(at, bytes, 0);
}
cudaError_t cudaFreeHost(void *at) {
    Call call("cudaFreeHost", "%p", at);
    if (!at) return call(cudaSuccess);
    for (int i = 0; i < device_count(); i++) drain_device(device(i));
    if (!pinned.erase((char *)at)) return call(cudaErrorInvalidValue);
    given_out--;
    free(at);
    return call(cudaSuccess);
}
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned) {
    Call call("cudaHostRegister", "%p, %zu", at, bytes);
    if (call.breaks()) return call(cudaErrorUnknown);
    pinned[(char *)at] = bytes;
    return call(cudaSuccess);
}
cudaError_t cudaHostUnregister(void *at) {
    Call call("cudaHostUnregister", "%p", at);
    return call(pinned.erase((char *)at) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void **device_at, void *at, unsigned) {
    Call call("cudaHostGetDevicePointer", "%p", at);
    if (call.breaks()) return call(cudaErrorUnknown);
    *device_at = at;
    return call(is_pinned(at) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *at) {
    Call call("cudaPointerGetAttributes", "%p", at);
    if (call.breaks()) return call(cudaErrorUnknown);
    *out = cudaPointerAttributes{};
    out->type = touches_device(at) ? cudaMemoryTypeDevice
                : is_pinned(at)    ? cudaMemoryTypeHost
                                   : cudaMemoryTypeUnregistered;
    out->device = device_of(at) < 0 ? current_index() : device_of(at);
    if (out->type == cudaMemoryTypeDevice) out->devicePointer = (void *)at;
    if (out->type != cudaMemoryTypeDevice) out->hostPointer = (void *)at;
    return call(cudaSuccess);
}

/* ---- copies ---- */

static bool valid(const void *at, size_t bytes, bool on_device) {
    return on_device ? is_device(at, bytes) : !touches_device(at);
}

/* Whether it is memory of another device than the stream's. */
static bool is_strange(const void *at, cudaStream_t stream) {
    int index = stream_of(stream)->device;
    if (!isolated() || device_of(at) < 0 || device_of(at) == index) return false;
    complain("a stream of GPU %d is given memory of GPU %d", index, device_of(at));
    return true;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                        cudaStream_t stream, bool wait) {
    if (!bytes) return cudaSuccess;
    if (kind == cudaMemcpyDefault)
        kind = (cudaMemcpyKind)(2 * touches_device(from) + touches_device(to));
    if (!valid(to, bytes, kind & 1) || !valid(from, bytes, kind & 2)) {
        complain("a copy of %zu bytes leaves device memory, or goes in another direction", bytes);
        return cudaErrorInvalidValue;
    }
    if (is_strange(to, stream) || is_strange(from, stream)) return cudaErrorInvalidValue;
    /* Memory that is not pinned: CUDA has read it, or written it, when it returns. */
    std::string read;
    if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) read.assign((const char *)from, bytes);
    if (kind == cudaMemcpyDeviceToHost && !is_pinned(to)) wait = true;
    if (wait && forbidden()) return cudaErrorStreamCaptureUnsupported;
    cudaError_t e = enqueue(stream, [to, from, bytes, read]() {
        memmove(to, read.empty() ? from : read.data(), bytes);
        return cudaSuccess;
    });
    return e || !wait ? e : drain(stream_of(stream));
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    Call call("cudaMemcpyPeerAsync", "%p, %d, %p, %d, %zu, %p", to, to_device, from, from_device,
              bytes, (void *)stream);
    if (call.breaks()) return call(cudaErrorUnknown);
    if (!bytes) return call(cudaSuccess);
    bool theirs = !isolated() || (device_of(to) == to_device && device_of(from) == from_device);
    if (!is_device(to, bytes) || !is_device(from, bytes) || !theirs) {
        complain("a copy of %zu bytes between GPUs leaves their memory", bytes);
        return call(cudaErrorInvalidValue);
    }
    return call(enqueue(stream, [=]() {
        open_memory(from_device);
        std::string read((const char *)from, bytes);
        open_memory(to_device);
        memcpy(to, read.data(), bytes);
        return cudaSuccess;
    }));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    Call call("cudaMemcpyAsync", "%p, %p, %zu, %d", to, from, bytes, (int)kind);
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(copy(to, from, bytes, kind, stream, false));
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    Call call("cudaMemcpy", "%p, %p, %zu, %d", to, from, bytes, (int)kind);
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(copy(to, from, bytes, kind, nullptr, true));
}
cudaError_t cudaMemcpyPeer(void *to, int, const void *from, int, size_t bytes) {
    return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    Call call("cudaMemcpy2DAsync", "%p, %p, %zu x %zu", to, from, width, height);
    if (call.breaks()) return call(cudaErrorUnknown);
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < height && !e; i++)
        e = copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width, kind,
                 stream, false);
    return call(e);
}

static cudaError_t set(void *at, int byte, size_t bytes, cudaStream_t stream) {
    if (!bytes) return cudaSuccess;
    if (!is_device(at, bytes) && !is_pinned(at)) {
        complain("a memset of %zu bytes leaves device memory", bytes);
        return cudaErrorInvalidValue;
    }
    if (is_strange(at, stream)) return cudaErrorInvalidValue;
    if (dry()) return cudaSuccess;
    return enqueue(stream, [at, byte, bytes]() { return memset(at, byte, bytes), cudaSuccess; });
}
cudaError_t cudaMemsetAsync(void *at, int byte, size_t bytes, cudaStream_t stream) {
    Call call("cudaMemsetAsync", "%p, %d, %zu", at, byte, bytes);
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(set(at, byte, bytes, stream));
}
cudaError_t cudaMemset(void *at, int byte, size_t bytes) {
    return cudaMemsetAsync(at, byte, bytes, nullptr);
}
