/* vec.h - vectors of 64 bytes of float or double, written so that every level gives the same bits:
 * one vector is one, two or four of the processor's registers.
 *
 * The functions exist for _f32 and _f64; code for both types calls them by R(name) (real.h). */
#ifndef MESHLUA_CPU_VEC_H
#define MESHLUA_CPU_VEC_H

#include <math.h>
#include "vmath.h"
#if defined(__AVX2__)
#    include <immintrin.h>
#endif

enum { VEC_f32 = 16, VEC_f64 = 8 }; /* elements */
typedef float Vec_f32 __attribute__((vector_size(64)));
typedef double Vec_f64 __attribute__((vector_size(64)));
typedef uint32_t Bits_f32 __attribute__((vector_size(64)));
typedef uint64_t Bits_f64 __attribute__((vector_size(64)));

/* pick: a where the mask has ones, else b. head: the first n elements of a, the rest of b. max,
 * min: b if either is a NaN. load_part, put_part: the first n elements of memory; the others are 0.
 * turn_N: neighbouring groups of N elements exchanged. */
#define VEC_FUNCTIONS(t, T, U)                                                                     \
    K_INLINE Vec_##t all_##t(T x) {                                                                \
        return x - (Vec_##t){0};                                                                   \
    }                                                                                              \
    K_INLINE Vec_##t load_##t(const T *p) {                                                        \
        Vec_##t v;                                                                                 \
        memcpy(&v, p, sizeof v);                                                                   \
        return v;                                                                                  \
    }                                                                                              \
    K_INLINE void put_##t(T *p, Vec_##t v) {                                                       \
        memcpy(p, &v, sizeof v);                                                                   \
    }                                                                                              \
    K_INLINE Vec_##t pick_##t(Bits_##t mask, Vec_##t a, Vec_##t b) {                               \
        return (Vec_##t)(((Bits_##t)a & mask) | ((Bits_##t)b & ~mask));                            \
    }                                                                                              \
    K_INLINE Vec_##t head_##t(int64_t n, Vec_##t a, Vec_##t b) {                                   \
        Bits_##t index;                                                                            \
        for (int j = 0; j < VEC_##t; j++) index[j] = (U)j;                                         \
        return pick_##t((Bits_##t)(index < (U)n), a, b);                                           \
    }

VEC_FUNCTIONS(f32, float, uint32_t)
VEC_FUNCTIONS(f64, double, uint64_t)

#if defined(__AVX512F__)
#    define VEC_PARTS(t, T, pd, Mask)                                                              \
        K_INLINE Vec_##t load_part_##t(const T *p, int64_t n) {                                    \
            return (Vec_##t)_mm512_maskz_loadu_##pd((Mask)((1u << n) - 1), p);                     \
        }                                                                                          \
        K_INLINE void put_part_##t(T *p, Vec_##t v, int64_t n) {                                   \
            _mm512_mask_storeu_##pd(p, (Mask)((1u << n) - 1), v);                                  \
        }
VEC_PARTS(f32, float, ps, __mmask16)
VEC_PARTS(f64, double, pd, __mmask8)
#else
#    define VEC_PARTS(t, T)                                                                        \
        K_INLINE Vec_##t load_part_##t(const T *p, int64_t n) {                                    \
            Vec_##t v = {0};                                                                       \
            memcpy(&v, p, (size_t)n * sizeof *p);                                                  \
            return v;                                                                              \
        }                                                                                          \
        K_INLINE void put_part_##t(T *p, Vec_##t v, int64_t n) {                                   \
            memcpy(p, &v, (size_t)n * sizeof *p);                                                  \
        }
VEC_PARTS(f32, float)
VEC_PARTS(f64, double)
#endif

#define TURNED_f32(v, w)                                                                           \
    __builtin_shufflevector(v, v, w, 1 ^ w, 2 ^ w, 3 ^ w, 4 ^ w, 5 ^ w, 6 ^ w, 7 ^ w, 8 ^ w,       \
                            9 ^ w, 10 ^ w, 11 ^ w, 12 ^ w, 13 ^ w, 14 ^ w, 15 ^ w)
#define TURNED_f64(v, w)                                                                           \
    __builtin_shufflevector(v, v, w, 1 ^ w, 2 ^ w, 3 ^ w, 4 ^ w, 5 ^ w, 6 ^ w, 7 ^ w)
#define VEC_TURN(t, w)                                                                             \
    K_INLINE Vec_##t turn_##w##_##t(Vec_##t v) {                                                   \
        return TURNED_##t(v, w);                                                                   \
    }
VEC_TURN(f32, 1)
VEC_TURN(f32, 2)
VEC_TURN(f32, 4)
VEC_TURN(f32, 8)
VEC_TURN(f64, 1)
VEC_TURN(f64, 2)
VEC_TURN(f64, 4)
#define turn_half_f32 turn_8_f32
#define turn_half_f64 turn_4_f64

/* name(a, b, ...) by the instruction of 512 bits, or by two of 256, or else elementwise. */
#if defined(__AVX512F__)
#    define VEC_OPERATION(name, ps, scalar)                                                        \
        K_INLINE Vec_f32 name##_f32(Vec_f32 a, Vec_f32 b) {                                        \
            return (Vec_f32)_mm512_##ps##_ps((__m512)a, (__m512)b);                                \
        }                                                                                          \
        K_INLINE Vec_f64 name##_f64(Vec_f64 a, Vec_f64 b) {                                        \
            return (Vec_f64)_mm512_##ps##_pd((__m512d)a, (__m512d)b);                              \
        }
K_INLINE Vec_f32 vfma_f32(Vec_f32 a, Vec_f32 b, Vec_f32 c) {
    return (Vec_f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
K_INLINE Vec_f64 vfma_f64(Vec_f64 a, Vec_f64 b, Vec_f64 c) {
    return (Vec_f64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
#elif defined(__AVX2__) && defined(__FMA__)
typedef union Halves {
    Vec_f32 f32;
    Vec_f64 f64;
    __m256 ps[2];
    __m256d pd[2];
} Halves;
#    define VEC_OPERATION(name, ps_, scalar)                                                       \
        K_INLINE Vec_f32 name##_f32(Vec_f32 a, Vec_f32 b) {                                        \
            Halves x = {.f32 = a}, y = {.f32 = b};                                                 \
            for (int k = 0; k < 2; k++) x.ps[k] = _mm256_##ps_##_ps(x.ps[k], y.ps[k]);             \
            return x.f32;                                                                          \
        }                                                                                          \
        K_INLINE Vec_f64 name##_f64(Vec_f64 a, Vec_f64 b) {                                        \
            Halves x = {.f64 = a}, y = {.f64 = b};                                                 \
            for (int k = 0; k < 2; k++) x.pd[k] = _mm256_##ps_##_pd(x.pd[k], y.pd[k]);             \
            return x.f64;                                                                          \
        }
K_INLINE Vec_f32 vfma_f32(Vec_f32 a, Vec_f32 b, Vec_f32 c) {
    Halves x = {.f32 = a}, y = {.f32 = b}, z = {.f32 = c};
    for (int k = 0; k < 2; k++) x.ps[k] = _mm256_fmadd_ps(x.ps[k], y.ps[k], z.ps[k]);
    return x.f32;
}
K_INLINE Vec_f64 vfma_f64(Vec_f64 a, Vec_f64 b, Vec_f64 c) {
    Halves x = {.f64 = a}, y = {.f64 = b}, z = {.f64 = c};
    for (int k = 0; k < 2; k++) x.pd[k] = _mm256_fmadd_pd(x.pd[k], y.pd[k], z.pd[k]);
    return x.f64;
}
#else
#    define VEC_OPERATION(name, ps, scalar)                                                        \
        K_INLINE Vec_f32 name##_f32(Vec_f32 a, Vec_f32 b) {                                        \
            return pick_f32((Bits_f32)(scalar), a, b);                                             \
        }                                                                                          \
        K_INLINE Vec_f64 name##_f64(Vec_f64 a, Vec_f64 b) {                                        \
            return pick_f64((Bits_f64)(scalar), a, b);                                             \
        }
/* Without the instruction it is much code: once per file, not once per use. */
static __attribute__((noinline, unused)) void fma_16(float *a, const float *b, const float *c) {
    for (int j = 0; j < VEC_f32; j++) a[j] = k_fma(a[j], b[j], c[j]);
}
K_INLINE Vec_f32 vfma_f32(Vec_f32 a, Vec_f32 b, Vec_f32 c) {
    fma_16((float *)&a, (const float *)&b, (const float *)&c);
    return a;
}
K_INLINE Vec_f64 vfma_f64(Vec_f64 a, Vec_f64 b, Vec_f64 c) {
    for (int j = 0; j < VEC_f64; j++) a[j] = fma(a[j], b[j], c[j]);
    return a;
}
#endif
VEC_OPERATION(vmax, max, a > b)
VEC_OPERATION(vmin, min, a < b)

/* e^x for x <= 88, as vm_exp (vmath.h) but that results below the normal range are 0 or rounded
 * twice, and those from 88.4 on infinite. */
K_INLINE Vec_f32 vexp_f32(Vec_f32 x) {
    const float shift = 0x1.8000fep23f; /* x + shift holds round(x) + 127 in its low bits */
    x = vmax_f32(all_f32(-88.0f), vmin_f32(all_f32(89.0f), x)); /* a NaN stays */
    Vec_f32 t = vfma_f32(x, all_f32(VM_LOG2E), all_f32(shift)), k = t - shift;
    Vec_f32 r = vfma_f32(k, all_f32(-VM_LN2_LO), vfma_f32(k, all_f32(-VM_LN2_HI), x));
    Vec_f32 p = all_f32(VM_EXP_C6);
    p = vfma_f32(p, r, all_f32(VM_EXP_C5));
    p = vfma_f32(p, r, all_f32(VM_EXP_C4));
    p = vfma_f32(p, r, all_f32(VM_EXP_C3));
    p = vfma_f32(p, r, all_f32(VM_EXP_C2));
    p = vfma_f32(r * r, p, r) + 1.0f;
    return p * (Vec_f32)((Bits_f32)t << 23);
}
K_INLINE Vec_f64 vexp_f64(Vec_f64 x) {
    for (int j = 0; j < VEC_f64; j++) x[j] = exp(x[j]);
    return x;
}

/* ---- stores past the caches ----
 * For results so large that they would push everything else out of them, and be gone themselves
 * before anybody reads them. */
enum { K_STREAM_BYTES = 32 << 20 };

/* Does a result go past the caches? Its rows must be whole, aligned vectors. */
static inline int k_streams(const KTensor *y) {
    int64_t rest = (int64_t)(uintptr_t)y->data;
    if (k_count(y) * k_dtype_size(y->dtype) < K_STREAM_BYTES || k_dtype_size(y->dtype) < 4)
        return 0;
    for (int d = 0; d < y->rank; d++)
        rest |= d < y->rank - 1 ? y->strides[d] : y->dims[d] * y->strides[d];
    return rest % 64 == 0 && y->rank && y->strides[y->rank - 1] == k_dtype_size(y->dtype);
}
/* p is aligned to 64 bytes. The last of a call is followed by stream_end, which orders these stores
 * before whatever lets other threads know of them. */
K_INLINE void stream_f32(float *p, Vec_f32 v) {
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX2__) && defined(__FMA__)
    Halves x = {.f32 = v};
    for (int k = 0; k < 2; k++) _mm256_stream_ps(p + 8 * k, x.ps[k]);
#else
    put_f32(p, v);
#endif
}
K_INLINE void stream_f64(double *p, Vec_f64 v) {
    stream_f32((float *)(void *)p, (Vec_f32)v);
}
static inline void stream_end(void) {
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

#endif
