/* shim.h - CUDA C++ for g++: what device code finds without an include. StatusKind in front of
 * every piece of device code that the stand-in for NVRTC compiles, so it includes nothing large.
 * __global__, __shared__ and __launch_bounds__ are left for nvrtc.cpp. */
#ifndef STANDIN_SHIM_H
#define STANDIN_SHIM_H
#define STANDIN 1

#include "module.h"

#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __grid_constant__
#ifndef __CUDA_ARCH__ /* what it is compiled for */
#    define __CUDA_ARCH__ 900
#endif
#define __CUDACC__     1
#define __CUDACC_RTC__ 1

static StandinThread standin_thread __attribute__((section(".data")));
#define threadIdx standin_thread.thread
#define blockIdx  standin_thread.block
#define blockDim  standin_thread.threads
#define gridDim   standin_thread.blocks
static const int warpSize = 32;

typedef __SIZE_TYPE__ size_t;

/* ---- vectors ---- */
#define STANDIN_VECTORS(T, name)                                                                   \
    struct name##1 {                                                                               \
        T x;                                                                                       \
    };                                                                                             \
    struct alignas(2 * sizeof(T)) name##2 {                                                        \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3 {                                                                               \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 {                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name##1 make_##name##1(T x) {                                                    \
        return name##1 {x};                                                                        \
    }                                                                                              \
    static inline name##2 make_##name##2(T x, T y) {                                               \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##3 make_##name##3(T x, T y, T z) {                                          \
        return name##3 {x, y, z};                                                                  \
    }                                                                                              \
    static inline name##4 make_##name##4(T x, T y, T z, T w) {                                     \
        return name##4 {x, y, z, w};                                                               \
    }
#define uint3 standin_uint3 /* module.h has it: the type of threadIdx */
STANDIN_VECTORS(unsigned, uint)
#undef uint3
STANDIN_VECTORS(signed char, char)
STANDIN_VECTORS(unsigned char, uchar)
STANDIN_VECTORS(short, short)
STANDIN_VECTORS(unsigned short, ushort)
STANDIN_VECTORS(int, int)
STANDIN_VECTORS(long long, longlong)
STANDIN_VECTORS(unsigned long long, ulonglong)
STANDIN_VECTORS(float, float)
STANDIN_VECTORS(double, double)

/* ---- threads of a block ---- */
#define STANDIN_LINE int line = __builtin_LINE()
static inline void __syncthreads(STANDIN_LINE) {
    standin_thread.calls->barrier(STANDIN_SYNC, 0, line);
}
static inline int __syncthreads_count(int x, STANDIN_LINE) {
    return standin_thread.calls->barrier(STANDIN_COUNT, x, line);
}
static inline int __syncthreads_and(int x, STANDIN_LINE) {
    return standin_thread.calls->barrier(STANDIN_AND, x, line);
}
static inline int __syncthreads_or(int x, STANDIN_LINE) {
    return standin_thread.calls->barrier(STANDIN_OR, x, line);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) {}
[[noreturn]] static inline void __trap(STANDIN_LINE) {
    standin_thread.calls->trap("__trap", line);
    __builtin_unreachable();
}

/* ---- lanes of a warp ---- */
static inline unsigned standin_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
static inline void __syncwarp(unsigned lanes = 0xffffffffu, STANDIN_LINE) {
    standin_thread.calls->warp(STANDIN_SYNCWARP, lanes, 0, line);
}
static inline unsigned __activemask() {
    return standin_thread.calls->active();
}
template <class T> static inline T standin_shuffle(unsigned lanes, T x, unsigned from, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle carries at most 8 bytes");
    StandinShuffle slot = {0, 0, from};
    __builtin_memcpy(&slot.value, &x, sizeof x);
    standin_thread.calls->warp(STANDIN_SHUFFLE, lanes, &slot, line);
    __builtin_memcpy(&x, &slot.result, sizeof x);
    return x;
}
template <class T>
static inline T __shfl_sync(unsigned lanes, T x, int from, int width = 32, STANDIN_LINE) {
    return standin_shuffle(lanes, x, (standin_lane() & -width) + (from & (width - 1)), line);
}
template <class T>
static inline T __shfl_up_sync(unsigned lanes, T x, unsigned by, int width = 32, STANDIN_LINE) {
    unsigned lane = standin_lane();
    return standin_shuffle(lanes, x, (lane & (width - 1)) < by ? lane : lane - by, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned lanes, T x, unsigned by, int width = 32, STANDIN_LINE) {
    unsigned lane = standin_lane();
    return standin_shuffle(lanes, x,
                           (lane & (width - 1)) + by >= (unsigned)width ? lane : lane + by, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned lanes, T x, int bits, int width = 32, STANDIN_LINE) {
    unsigned lane = standin_lane(), from = lane ^ bits;
    return standin_shuffle(lanes, x, from >= (lane & -width) + width ? lane : from, line);
}
static inline unsigned __ballot_sync(unsigned lanes, int x, STANDIN_LINE) {
    StandinVote slot = {x != 0, 0};
    standin_thread.calls->warp(STANDIN_VOTE, lanes, &slot, line);
    return slot.lanes;
}
static inline int __any_sync(unsigned lanes, int x, STANDIN_LINE) {
    return __ballot_sync(lanes, x, line) != 0;
}
static inline int __all_sync(unsigned lanes, int x, STANDIN_LINE) {
    return __ballot_sync(lanes, !x, line) == 0;
}
template <class T> static inline unsigned __match_any_sync(unsigned lanes, T x, STANDIN_LINE) {
    StandinVote slot = {0, 0};
    __builtin_memcpy(&slot.value, &x, sizeof x);
    standin_thread.calls->warp(STANDIN_MATCH, lanes, &slot, line);
    return slot.lanes;
}
#define STANDIN_REDUCE(name, T, KIND)                                                              \
    static inline T name(unsigned lanes, T x, STANDIN_LINE) {                                      \
        StandinVote slot = {(unsigned long long)(long long)x, 0};                                  \
        standin_thread.calls->warp(KIND, lanes, &slot, line);                                      \
        return (T)slot.value;                                                                      \
    }
STANDIN_REDUCE(__reduce_add_sync, unsigned, STANDIN_ADD)
STANDIN_REDUCE(__reduce_add_sync, int, STANDIN_ADD)
STANDIN_REDUCE(__reduce_min_sync, unsigned, STANDIN_MIN)
STANDIN_REDUCE(__reduce_max_sync, unsigned, STANDIN_MAX)
STANDIN_REDUCE(__reduce_min_sync, int, STANDIN_MIN_SIGNED)
STANDIN_REDUCE(__reduce_max_sync, int, STANDIN_MAX_SIGNED)

/* ---- memory ---- */
template <class T> static inline T __ldg(const T *p) {
    return *p;
}
template <class T> static inline T __ldcg(const T *p) {
    return *p;
}
template <class T> static inline T __ldca(const T *p) {
    return *p;
}
template <class T> static inline T __ldcs(const T *p) {
    return *p;
}
template <class T> static inline T __ldlu(const T *p) {
    return *p;
}
template <class T> static inline T __ldcv(const T *p) {
    return *(const volatile T *)p;
}
template <class T> static inline void __stwb(T *p, T x) {
    *p = x;
}
template <class T> static inline void __stcg(T *p, T x) {
    *p = x;
}
template <class T> static inline void __stcs(T *p, T x) {
    *p = x;
}
template <class T> static inline void __stwt(T *p, T x) {
    *p = x;
}
static inline size_t __cvta_generic_to_shared(const void *p) {
    return (size_t)p;
}

/* One thread runs at a time. No atomics on floats: their order would change the bits. */
#define STANDIN_ATOMIC(T)                                                                          \
    static inline T atomicAdd(T *p, T x) {                                                         \
        T old = *p;                                                                                \
        *p = old + x;                                                                              \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicMax(T *p, T x) {                                                         \
        T old = *p;                                                                                \
        *p = old > x ? old : x;                                                                    \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicMin(T *p, T x) {                                                         \
        T old = *p;                                                                                \
        *p = old < x ? old : x;                                                                    \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicAnd(T *p, T x) {                                                         \
        T old = *p;                                                                                \
        *p = old & x;                                                                              \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicOr(T *p, T x) {                                                          \
        T old = *p;                                                                                \
        *p = old | x;                                                                              \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicXor(T *p, T x) {                                                         \
        T old = *p;                                                                                \
        *p = old ^ x;                                                                              \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicExch(T *p, T x) {                                                        \
        T old = *p;                                                                                \
        *p = x;                                                                                    \
        return old;                                                                                \
    }                                                                                              \
    static inline T atomicCAS(T *p, T is, T x) {                                                   \
        T old = *p;                                                                                \
        if (old == is) *p = x;                                                                     \
        return old;                                                                                \
    }
STANDIN_ATOMIC(int)
STANDIN_ATOMIC(unsigned)
STANDIN_ATOMIC(unsigned long long)

/* ---- calling a kernel whose parameters are known by their addresses ---- */
template <int... I> struct StandinPlaces {};
template <class F> struct StandinCall;
template <class... P> struct StandinCall<void(P...)> {
    static constexpr unsigned count = sizeof...(P), sizes[] = {sizeof(P)..., 0};
    template <int... I> static void at(void (*f)(P...), void **p, StandinPlaces<I...>) {
        f(*(P *)p[I]...);
    }
    template <void (*F)(P...)> static void run(void **p) {
        at(F, p, StandinPlaces<__integer_pack(sizeof...(P))...>());
    }
};

#include "shim_math.h"
#include "shim_ptx.h"

#endif
