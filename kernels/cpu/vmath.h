/* vmath.h - float32 exp, log and their kin as straight-line code that a compiler turns into
 * vectors.
 *
 * Every function is a pure sequence of single roundings and bit operations, with selects in place
 * of branches, so all levels and compilers give the same bits. The polynomials are minimax fits
 * (Remez) of the function named beside them, weighted for relative error. Errors are in ulp against
 * the exact value: exp, log, log1p below 1, expm1 1.4, tanh, logistic 2.5 (test_vmath.c). */
#ifndef MESHLUA_CPU_VMATH_H
#define MESHLUA_CPU_VMATH_H

#include <math.h>
#include "level.h"

#define VM_LOG2E  0x1.715476p+0f
#define VM_LN2_HI 0x1.62e43p-1f
#define VM_LN2_LO (-0x1.05c610p-29f)
#define VM_SHIFT  0x1.8p23f /* x + VM_SHIFT holds round(x) in its low bits, for |x| < 2^22 */

/* (e^r - 1 - r) / r^2, the coefficients of r^0 .. r^4 */
#define VM_EXP_C2 0x1.fffffcp-2f
#define VM_EXP_C3 0x1.55548ap-3f
#define VM_EXP_C4 0x1.555916p-5f
#define VM_EXP_C5 0x1.123fc6p-7f
#define VM_EXP_C6 0x1.6a1a7p-10f

K_INLINE float vm_abs(float x) {
    return k_float(k_bits(x) & 0x7fffffffu);
}
K_INLINE float vm_copysign(float magnitude, float sign) {
    return k_float((k_bits(magnitude) & 0x7fffffffu) | (k_bits(sign) & 0x80000000u));
}
K_INLINE float vm_clamp(float x, float lo, float hi) { /* a NaN stays */
    x = x > hi ? hi : x;
    return x < lo ? lo : x;
}
/* 2^n for -126 <= n <= 127. */
K_INLINE float vm_pow2(int32_t n) {
    return k_float((uint32_t)(n + 127) << 23);
}

/* round to nearest, ties to even */
K_INLINE float vm_rint(float x) {
    float a = vm_abs(x);
    return vm_copysign(a < 0x1p23f ? (a + 0x1p23f) - 0x1p23f : a, x);
}
K_INLINE float vm_floor(float x) {
    float r = vm_rint(x);
    return vm_copysign(r > x ? r - 1.0f : r, x);
}
K_INLINE float vm_ceil(float x) {
    float r = vm_rint(x);
    return vm_copysign(r < x ? r + 1.0f : r, x);
}

/* n = round(x / ln 2); returns r = x - n ln 2. */
K_INLINE float vm_exp_reduce(float x, int32_t *n) {
    float t = k_fma(x, VM_LOG2E, VM_SHIFT), k = t - VM_SHIFT;
    *n = (int32_t)(k_bits(t) - k_bits(VM_SHIFT));
    return k_fma(k, -VM_LN2_LO, k_fma(k, -VM_LN2_HI, x));
}

K_INLINE float vm_exp(float x) {
    int32_t n;
    float r = vm_exp_reduce(vm_clamp(x, -104.0f, 89.0f), &n);
    float p = VM_EXP_C6;
    p = k_fma(p, r, VM_EXP_C5);
    p = k_fma(p, r, VM_EXP_C4);
    p = k_fma(p, r, VM_EXP_C3);
    p = k_fma(p, r, VM_EXP_C2);
    p = k_fma(r * r, p, r) + 1.0f;
    /* In two steps: results below the normal range round once. Unsigned: n of a NaN is any. */
    uint32_t half = (uint32_t)(n >> 1), rest = (uint32_t)n - half;
    return p * k_float((half + 127) << 23) * k_float((rest + 127) << 23);
}

/* e^x - 1 for -80 <= x <= 89 */
K_INLINE float vm_expm1_core(float x) {
    int32_t n;
    float r = vm_exp_reduce(x, &n);
    float p = 0x1.a2b054p-13f; /* (e^r - 1 - r) / r^2 */
    p = k_fma(p, r, 0x1.6d8ab4p-10f);
    p = k_fma(p, r, 0x1.111014p-7f);
    p = k_fma(p, r, 0x1.555498p-5f);
    p = k_fma(p, r, 0x1.555556p-3f);
    p = k_fma(p, r, 0.5f);
    p = k_fma(r * r, p, r);
    float h = k_float(((uint32_t)n + 126) << 23); /* 2^(n-1): 2^n may not exist */
    return 2.0f * k_fma(h, p, h - 0.5f);
}
K_INLINE float vm_expm1(float x) {
    float r = vm_expm1_core(vm_clamp(x, -20.0f, 89.0f));
    return vm_abs(x) < 0x1p-25f ? x : r;
}

/* log(2^n (1 + f) + tail) for sqrt(1/2) <= 1 + f < sqrt(2); tail is relative to 2^n (1 + f). */
K_INLINE float vm_log_core(float n, float f, float tail) {
    float q = -0x1.38b576p-4f; /* (log(1 + f) - f + f^2 / 2) / f^3 */
    q = k_fma(q, f, 0x1.055b68p-3f);
    q = k_fma(q, f, -0x1.0d8542p-3f);
    q = k_fma(q, f, 0x1.22da1ep-3f);
    q = k_fma(q, f, -0x1.547244p-3f);
    q = k_fma(q, f, 0x1.99a008p-3f);
    q = k_fma(q, f, -0x1.000226p-2f);
    q = k_fma(q, f, 0x1.555554p-2f);
    float t = k_fma(n, VM_LN2_LO, k_fma(f * f, k_fma(f, q, -0.5f), tail));
    return k_fma(n, VM_LN2_HI, f + t);
}
/* x = 2^n (1 + f) for a normal x > 0 */
K_INLINE float vm_log_reduce(float x, float *f) {
    uint32_t u = k_bits(x) - 0x3f3504f3u; /* sqrt(1/2) */
    int32_t n = (int32_t)u >> 23;
    *f = k_float((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    return (float)n;
}

K_INLINE float vm_log(float x) {
    int small = x < 0x1p-126f;
    float f, n = vm_log_reduce(small ? x * 0x1p23f : x, &f);
    float r = vm_log_core(small ? n - 23.0f : n, f, 0.0f);
    r = x < INFINITY ? r : x; /* inf, NaN */
    r = x == 0.0f ? -INFINITY : r;
    return x < 0.0f ? NAN : r;
}
K_INLINE float vm_log1p(float x) {
    float u = 1.0f + x, f, n = vm_log_reduce(u, &f);
    float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    float r = vm_log_core(n, f, lost / u);
    r = x < INFINITY ? r : x;
    r = x == -1.0f ? -INFINITY : r;
    r = x < -1.0f ? NAN : r;
    return x == 0.0f ? x : r; /* keeps -0 */
}

/* (1 - e^-2a) / (1 + e^-2a), a = |x| */
K_INLINE float vm_tanh(float x) {
    float a = vm_abs(x);
    float m = vm_expm1_core(-2.0f * (a > 10.0f ? 10.0f : a));
    return vm_copysign(-m / (2.0f + m), x);
}
K_INLINE float vm_logistic(float x) {
    float e = vm_exp(-vm_abs(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

#endif
