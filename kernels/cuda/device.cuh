/* device.cuh - what device code shares: element types, vectors of them, strided views, reductions
 * of fixed order, faults.
 *
 * No CUDA header is included: NVRTC knows what is used here by itself. The few functions that are
 * PTX stand under `#ifndef STANDIN`, so that a CPU may run the rest. The types of elements are
 * bool, u8 to u64, i8 to i64, e4m3, e5m2, bf16, f16, float and double.
 *
 * Names of one capital letter are parameters of templates here, so a row defines longer ones. */
#ifndef MESHLUA_CUDA_DEVICE_CUH
#define MESHLUA_CUDA_DEVICE_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#define DEVICE __device__ __forceinline__

struct e4m3 {
    u8 bits;
};
struct e5m2 {
    u8 bits;
};
struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

/* ---- PTX: conversions of 16-bit floats, to nearest even; a power of two --------------------- */
#ifndef STANDIN
/* Two floats as the lower and the upper half of a word. */
DEVICE u32 bf16_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE u32 f16_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE float f16_value(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
/* 2^x to 2 ulp; 0 below 2^-126. */
DEVICE float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* To 2^-11, relative: for what is rounded to 16 bits. */
DEVICE float tanh_approx(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* This thread among those of all blocks. */
DEVICE i64 global_thread() {
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- elements: what a kernel computes in (Compute<T>), and the ways (widen, narrow<T>) ---- */
template <class T> struct ComputeOf { typedef T type; };
template <> struct ComputeOf<e4m3> { typedef float type; };
template <> struct ComputeOf<e5m2> { typedef float type; };
template <> struct ComputeOf<bf16> { typedef float type; };
template <> struct ComputeOf<f16> { typedef float type; };
template <> struct ComputeOf<bool> { typedef i32 type; };
template <> struct ComputeOf<u8> { typedef i32 type; };
template <> struct ComputeOf<u16> { typedef i32 type; };
template <> struct ComputeOf<i8> { typedef i32 type; };
template <> struct ComputeOf<i16> { typedef i32 type; };
template <class T> using Compute = typename ComputeOf<T>::type;
/* What sums of values of a type that is computed in are made in: integers wrap. */
template <class C> struct SumOf { typedef C type; };
template <> struct SumOf<i32> { typedef u32 type; };
template <> struct SumOf<i64> { typedef u64 type; };

template <class T> DEVICE Compute<T> widen(T x) {
    return (Compute<T>)x;
}
template <> DEVICE float widen(bf16 x) {
    return __uint_as_float((u32)x.bits << 16);
}
template <> DEVICE float widen(f16 x) {
    return f16_value(x.bits);
}
/* The 8-bit ones as kernels/cpu/convert.h has them. */
template <> DEVICE float widen(e5m2 x) {
    return f16_value((u16)(x.bits << 8));
}
template <> DEVICE float widen(e4m3 x) {
    u32 a = x.bits & 0x7fu, u = __float_as_uint(__uint_as_float(a << 20) * 0x1p120f);
    return __uint_as_float((a == 0x7fu ? 0x7fc00000u : u) | (u32)(x.bits & 0x80u) << 24);
}

template <class T> struct Narrow {
    template <class C> static DEVICE T of(C x) { return (T)x; }
};
template <> struct Narrow<bf16> {
    static DEVICE bf16 of(float x) { return bf16{(u16)bf16_pair(x, 0.0f)}; }
};
template <> struct Narrow<e4m3> {
    static DEVICE e4m3 of(float x) {
        u32 u = __float_as_uint(x), a = u & 0x7fffffffu;
        u32 normal = (a - 0x3c000000u + 0x7ffffu + (a >> 20 & 1)) >> 20;
        u32 small = __float_as_uint(__uint_as_float(a) + 0x1p14f) - 0x46800000u;
        u32 r = a > 0x43e80000u ? 0x7fu : a < 0x3c800000u ? small : normal;
        return e4m3{(u8)(r | (u >> 24 & 0x80u))};
    }
};
template <> struct Narrow<e5m2> {
    static DEVICE e5m2 of(float x) {
        u32 u = __float_as_uint(x), a = u & 0x7fffffffu;
        u32 normal = (a - 0x38000000u + 0xfffffu + (a >> 21 & 1)) >> 21;
        u32 small = __float_as_uint(__uint_as_float(a) + 0x1p7f) - 0x43000000u;
        u32 r = a > 0x7f800000u    ? 0x7eu
                : a >= 0x47700000u ? 0x7cu
                : a < 0x38800000u  ? small
                                   : normal;
        return e5m2{(u8)(r | (u >> 24 & 0x80u))};
    }
};
template <> struct Narrow<f16> {
    static DEVICE f16 of(float x) { return f16{(u16)f16_pair(x, 0.0f)}; }
};
/* Rounds to nearest even; integers wrap; bool is x != 0. */
template <class T, class C> DEVICE T narrow(C x) {
    return Narrow<T>::of(x);
}

/* ---- functions of both floating types ------------------------------------------------------- */
namespace math {
template <class C> DEVICE C infinity() {
    return (C)__int_as_float(0x7f800000);
}
/* The float one takes three instructions: relative error 2^-22 + |x| 2^-24, 0 below 2^-126. */
DEVICE float exp(float x) {
    return exp2_approx(x * 1.44269504f);
}
DEVICE double exp(double x) {
    return ::exp(x);
}
DEVICE float log(float x) {
    return logf(x);
}
DEVICE double log(double x) {
    return ::log(x);
}
DEVICE float sqrt(float x) {
    return sqrtf(x);
}
DEVICE double sqrt(double x) {
    return ::sqrt(x);
}
/* Of integers, too. */
template <class T> DEVICE T fma(T a, T b, T c) {
    return a * b + c;
}
DEVICE float fma(float a, float b, float c) {
    return fmaf(a, b, c);
}
DEVICE double fma(double a, double b, double c) {
    return ::fma(a, b, c);
}
/* Of a NaN and a number the number. */
DEVICE float max(float a, float b) {
    return fmaxf(a, b);
}
DEVICE double max(double a, double b) {
    return fmax(a, b);
}
} // namespace math

/* ---- vectors: N elements, N a power of two, in words of up to 16 bytes ---------------------- */
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec { T at[N]; };

template <int BYTES> struct WordOf;
template <> struct WordOf<1> { typedef u8 type; };
template <> struct WordOf<2> { typedef u16 type; };
template <> struct WordOf<4> { typedef u32 type; };
template <> struct WordOf<8> { typedef uint2 type; };
template <> struct WordOf<16> { typedef uint4 type; };
template <class T, int N> struct Words {
    static constexpr int bytes = sizeof(T) * N < 16 ? sizeof(T) * N : 16;
    static constexpr int count = sizeof(T) * N / bytes;
    typedef typename WordOf<bytes>::type Word;
};

/* Whether vectors of N may be loaded from there and stored. The same for all vectors of a row whose
 * stride is a multiple of theirs. */
template <int N, class T> DEVICE bool is_aligned(const T *p) {
    return (u64)p % alignof(Vec<T, N>) == 0;
}

template <int N, class T> DEVICE Vec<T, N> load(const T *p) {
    typedef Words<T, N> W;
    Vec<T, N> v;
#pragma unroll
    for (int i = 0; i < W::count; i++)
        ((typename W::Word *)&v)[i] = ((const typename W::Word *)p)[i];
    return v;
}
template <int N, class T> DEVICE void store(T *p, const Vec<T, N> &v) {
    typedef Words<T, N> W;
#pragma unroll
    for (int i = 0; i < W::count; i++)
        ((typename W::Word *)p)[i] = ((const typename W::Word *)&v)[i];
}
/* For what is not read, or not written, again soon: it goes first when a cache makes room. */
template <int N, class T> DEVICE Vec<T, N> load_once(const T *p) {
    typedef Words<T, N> W;
    Vec<T, N> v;
#pragma unroll
    for (int i = 0; i < W::count; i++)
        ((typename W::Word *)&v)[i] = __ldcs((const typename W::Word *)p + i);
    return v;
}
template <int N, class T> DEVICE void store_once(T *p, const Vec<T, N> &v) {
    typedef Words<T, N> W;
#pragma unroll
    for (int i = 0; i < W::count; i++)
        __stcs((typename W::Word *)p + i, ((const typename W::Word *)&v)[i]);
}

template <class T, int N> DEVICE Vec<Compute<T>, N> widen(const Vec<T, N> &v) {
    Vec<Compute<T>, N> r;
#pragma unroll
    for (int i = 0; i < N; i++) r.at[i] = widen(v.at[i]);
    return r;
}
/* By pairs: one instruction for each. */
template <int N> DEVICE Vec<float, N> widen(const Vec<bf16, N> &v) {
    Vec<float, N> r;
    if constexpr (N == 1) {
        r.at[0] = widen(v.at[0]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            u32 pair = ((const u32 *)&v)[i / 2];
            r.at[i] = __uint_as_float(pair << 16);
            r.at[i + 1] = __uint_as_float(pair & 0xffff0000u);
        }
    }
    return r;
}

template <class T, int N> struct NarrowVec {
    template <class C> static DEVICE Vec<T, N> of(const Vec<C, N> &v) {
        Vec<T, N> r;
#pragma unroll
        for (int i = 0; i < N; i++) r.at[i] = narrow<T>(v.at[i]);
        return r;
    }
};
/* By pairs: one instruction for both. */
template <int N> struct NarrowVec<bf16, N> {
    static DEVICE Vec<bf16, N> of(const Vec<float, N> &v) {
        Vec<bf16, N> r;
        if constexpr (N == 1) {
            r.at[0] = narrow<bf16>(v.at[0]);
        } else {
#pragma unroll
            for (int i = 0; i < N; i += 2) ((u32 *)&r)[i / 2] = bf16_pair(v.at[i], v.at[i + 1]);
        }
        return r;
    }
};
template <int N> struct NarrowVec<f16, N> {
    static DEVICE Vec<f16, N> of(const Vec<float, N> &v) {
        Vec<f16, N> r;
        if constexpr (N == 1) {
            r.at[0] = narrow<f16>(v.at[0]);
        } else {
#pragma unroll
            for (int i = 0; i < N; i += 2) ((u32 *)&r)[i / 2] = f16_pair(v.at[i], v.at[i + 1]);
        }
        return r;
    }
};
template <class T, class C, int N> DEVICE Vec<T, N> narrow(const Vec<C, N> &v) {
    return NarrowVec<T, N>::of(v);
}

/* ---- views: dims and byte strides by value (view.h has the host's side) --------------------- */
struct View {
    i64 dims[8], strides[8];
    i32 rank;
    i32 small; /* there are fewer than 2^31 elements, so that 32 bits do for an index */

    /* Bytes from element 0 to the one at row-major position i. */
    DEVICE i64 offset(i64 i) const {
        i64 bytes = 0;
        if (small) {
            u32 rest = (u32)i;
#pragma unroll 1
            for (int d = rank - 1; d > 0; d--) {
                u32 n = (u32)dims[d], next = rest / n;
                bytes += (rest - next * n) * strides[d];
                rest = next;
            }
            return rank > 0 ? bytes + rest * strides[0] : 0;
        }
#pragma unroll 1
        for (int d = rank - 1; d > 0; d--) {
            i64 next = i / dims[d];
            bytes += (i - next * dims[d]) * strides[d];
            i = next;
        }
        return rank > 0 ? bytes + i * strides[0] : 0;
    }
    template <class T> DEVICE T *at(T *first, i64 i) const {
        return (T *)((char *)first + offset(i));
    }
    template <class T> DEVICE const T *at(const T *first, i64 i) const {
        return (const T *)((const char *)first + offset(i));
    }
};
template <class T> DEVICE T *bytes_on(T *p, i64 bytes) {
    return (T *)((char *)p + bytes);
}
template <class T> DEVICE const T *bytes_on(const T *p, i64 bytes) {
    return (const T *)((const char *)p + bytes);
}

/* ---- reductions: the order depends on the number of threads only, and all threads get the result.
 * All threads of the warp, or of the block, take part; a block has 2^n warps. ---- */

/* Two values that go through a reduction together. */
template <class A, class B> struct Pair {
    A a;
    B b;
};
struct Add {
    template <class V> DEVICE V operator()(V a, V b) const { return a + b; }
    template <class A, class B> DEVICE Pair<A, B> operator()(Pair<A, B> x, Pair<A, B> y) const {
        return Pair<A, B>{x.a + y.a, x.b + y.b};
    }
};
struct Higher { /* NaN is above all */
    template <class V> DEVICE V operator()(V a, V b) const { return b > a || b != b ? b : a; }
};
struct Lower { /* NaN is below all */
    template <class V> DEVICE V operator()(V a, V b) const { return b < a || b != b ? b : a; }
};

template <class V> DEVICE V shuffle_xor(V x, int mask) {
    return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <class A, class B> DEVICE Pair<A, B> shuffle_xor(Pair<A, B> x, int mask) {
    return Pair<A, B>{shuffle_xor(x.a, mask), shuffle_xor(x.b, mask)};
}

/* Of each WIDTH neighbours in a warp. */
template <int WIDTH = 32, class Op, class V> DEVICE V warp_reduce(V x, Op op) {
#pragma unroll
    for (int m = WIDTH / 2; m > 0; m /= 2) x = op(x, shuffle_xor(x, m));
    return x;
}
template <class Op, class V> DEVICE V block_reduce(V x, Op op) {
    __shared__ V part[32];
    int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    x = warp_reduce(x, op);
    if (warps == 1) return x;
    __syncthreads(); /* what an earlier call left there has been read */
    if (lane == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[lane & (warps - 1)];
    for (int m = warps / 2; m > 0; m /= 2) x = op(x, shuffle_xor(x, m));
    return x;
}
template <class V> DEVICE V warp_sum(V x) {
    return warp_reduce(x, Add());
}
template <class V> DEVICE V warp_max(V x) {
    return warp_reduce(x, Higher());
}
template <class V> DEVICE V block_sum(V x) {
    return block_reduce(x, Add());
}
template <class V> DEVICE V block_max(V x) {
    return block_reduce(x, Higher());
}

/* ---- faults: what a kernel found in its data (kernel.h); of a step's the first is kept ---- */
struct FaultRecord {
    i32 kind; /* KFaultKind; 0 until somebody reports */
    i64 value, limit, tag;
};
struct Fault { /* a parameter, by value */
    FaultRecord *record;
    i64 tag; /* of the launch */

    /* Also by several threads at a time. The kernel goes on, and leaves out what has no result. */
    DEVICE void report(i64 value, i64 limit) const {
        if (atomicCAS(&record->kind, 0, 1 /* K_FAULT_INDEX */) != 0) return;
        record->value = value;
        record->limit = limit;
        record->tag = tag;
    }
};

#endif
