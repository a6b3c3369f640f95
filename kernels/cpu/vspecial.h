/* vspecial.h - erf, its inverse, erfc, atan2, sin and cos in float32, written like vmath.h.
 *
 * Errors in ulp (test_vmath.c), of every finite x: erf 2.5, erfc 3.2, atan2 1.5, sin, cos 1.6. */
#ifndef MESHLUA_CPU_VSPECIAL_H
#define MESHLUA_CPU_VSPECIAL_H

#include "vmath.h"
#include "vpow.h"

/* On [-1, 1]. */
K_INLINE float vm_erf_near(float x) {
    float z = x * x;
    float s = 0x1.496a32p-14f; /* erf(x) / x, in x^2 */
    s = k_fma(s, z, -0x1.a3f7p-11f);
    s = k_fma(s, z, 0x1.5405b2p-8f);
    s = k_fma(s, z, -0x1.b7f90ep-6f);
    s = k_fma(s, z, 0x1.ce2cf8p-4f);
    s = k_fma(s, z, -0x1.81273ep-2f);
    s = k_fma(s, z, 0x1.20dd74p+0f);
    return x * s;
}

K_INLINE float vm_erf(float x) {
    float a = vm_abs(x);
    float b = a > 4.0f ? 4.0f : a;
    float l = 0x1.8cb178p-13f; /* log(1 - erf(x)) on [0.97, 4] */
    l = k_fma(l, b, -0x1.8611d8p-9f);
    l = k_fma(l, b, 0x1.67b96p-6f);
    l = k_fma(l, b, -0x1.a75f06p-4f);
    l = k_fma(l, b, -0x1.4692f4p-1f);
    l = k_fma(l, b, -0x1.209562p+0f);
    l = k_fma(l, b, -0x1.3344f4p-12f);
    float r = 1.0f - vm_exp(l);
    return a < 1.0f ? vm_erf_near(x) : vm_copysign(r, x);
}

/* e^(-x^2) in double, times a polynomial in (x - 2) / (x + 2) over 1 + 2 x. */
K_INLINE float vm_erfc(float x) {
    float a = vm_clamp(vm_abs(x), 0.0f, 11.0f), q = (a - 2.0f) / (a + 2.0f);
    float p = -0x1.99a934p-12f;
    p = k_fma(p, q, -0x1.3e0f94p-10f);
    p = k_fma(p, q, 0x1.57ae6ap-10f);
    p = k_fma(p, q, 0x1.1a612ap-7f);
    p = k_fma(p, q, -0x1.082c76p-7f);
    p = k_fma(p, q, -0x1.bc02a2p-5f);
    p = k_fma(p, q, 0x1.4ffc9ap-3f);
    p = k_fma(p, q, -0x1.540876p-3f);
    p = k_fma(p, q, -0x1.7bf62p-4f);
    p = k_fma(p, q, 0x1.46e80ep+0f);
    double e = vm_exp2_d((double)a * (double)a * -0x1.71547652b82fep+0);
    float r = (float)(e * (double)(p / k_fma(2.0f, a, 1.0f)));
    r = x < 0.0f ? 2.0f - r : r;
    return a < 0.5f ? 1.0f - vm_erf_near(x) : r;
}

/* The angle of the point (x, y). */
K_INLINE float vm_atan2(float y, float x) {
    float a = vm_abs(x), b = vm_abs(y), large = a > b ? a : b, small = a > b ? b : a;
    float t = small / large;
    t = small == large ? 1.0f : t; /* infinities */
    t = large == 0.0f ? 0.0f : t;
    float z = t * t, p = 0x1.7ed09ep-9f; /* (atan(t) - t) / t^3 on [0, 1], in t^2 */
    p = k_fma(p, z, -0x1.0c2b4cp-6f);
    p = k_fma(p, z, 0x1.61fd38p-5f);
    p = k_fma(p, z, -0x1.355672p-4f);
    p = k_fma(p, z, 0x1.b4e10cp-4f);
    p = k_fma(p, z, -0x1.230ad8p-3f);
    p = k_fma(p, z, 0x1.9978f4p-3f);
    p = k_fma(p, z, -0x1.5554dcp-2f);
    float r = k_fma(t * z, p, t);
    r = b > a ? (0x1.921fb6p+0f - r) - 0x1.777a5cp-25f : r;           /* pi / 2 in two parts */
    r = k_bits(x) >> 31 ? (0x1.921fb6p+1f - r) - 0x1.777a5cp-24f : r; /* pi */
    return x != x || y != y ? NAN : vm_copysign(r, y);
}

/* log(1 - t) for 0 <= t < 1 by the two approximations of the Cephes library (Moshier) that XLA
 * uses, in the order of its roundings; less exact than vm_log1p. */
K_INLINE float vm_erf_inv_log(float t) {
    float x = -t, z = x * x; /* a rational function while 1 + x is near 1 */
    float p = k_fma(4.5270000862445199635215e-5f, x, 4.9854102823193375972212e-1f), q = x;
    p = k_fma(p, x, 6.5787325942061044846969f);
    p = k_fma(p, x, 2.9911919328553073277375e1f);
    p = k_fma(p, x, 6.0949667980987787057556e1f);
    p = k_fma(p, x, 5.7112963590585538103336e1f);
    p = k_fma(p, x, 2.0039553499201281259648e1f);
    q = q + 1.5062909083469192043167e1f;
    q = k_fma(q, x, 8.3047565967967209469434e1f);
    q = k_fma(q, x, 2.2176239823732856465394e2f);
    q = k_fma(q, x, 3.0909872225312059774938e2f);
    q = k_fma(q, x, 2.1642788614495947685003e2f);
    q = k_fma(q, x, 6.0118660497603843919306e1f);
    float near = x + k_fma(z, -0.5f, x * z * (p / q));

    float f, n = vm_log_reduce(1.0f - t, &f), g = f * f, h = g * f;
    float a = k_fma(k_fma(7.0376836292e-2f, f, -1.1514610310e-1f), f, 1.1676998740e-1f);
    float b = k_fma(k_fma(-1.2420140846e-1f, f, 1.4249322787e-1f), f, -1.6668057665e-1f);
    float c = k_fma(k_fma(2.0000714765e-1f, f, -2.4999993993e-1f), f, 3.3333331174e-1f);
    float y = k_fma(k_fma(k_fma(a, h, b), h, c), h, n * -2.12194440e-4f);
    float far = k_fma(n, 0.693359375f, k_fma(g, -0.5f, f) + y);
    return t < 0.41421356237309504880f ? near : far;
}

/* M. Giles, "Approximating the erfinv function", GPU Computing Gems (2010), the single precision
 * coefficients; like vm_erf_inv_log what XLA computes, so that normal samples are those of
 * jax.random on a CPU. */
K_INLINE float vm_erf_inv(float x) {
    float w = -vm_erf_inv_log(x * x);
    int low = w < 5.0f;
    float v = low ? w - 2.5f : sqrtf(w) - 3.0f;
    float p = low ? 2.81022636e-08f : -0.000200214257f;
    p = k_fma(p, v, low ? 3.43273939e-07f : 0.000100950558f);
    p = k_fma(p, v, low ? -3.5233877e-06f : 0.00134934322f);
    p = k_fma(p, v, low ? -4.39150654e-06f : -0.00367342844f);
    p = k_fma(p, v, low ? 0.00021858087f : 0.00573950773f);
    p = k_fma(p, v, low ? -0.00125372503f : -0.0076224613f);
    p = k_fma(p, v, low ? -0.00417768164f : 0.00943887047f);
    p = k_fma(p, v, low ? 0.246640727f : 1.00167406f);
    p = k_fma(p, v, low ? 1.50140941f : 2.83297682f);
    float a = vm_abs(x), r = a == 1.0f ? x * INFINITY : p * x;
    return a > 1.0f ? NAN : r;
}

/* sin(r) (odd == 0) or cos(r), |r| <= pi/4, negated if bit 1 of quadrant is set */
K_INLINE float vm_sincos_poly(float r, uint32_t quadrant) {
    float z = r * r;
    float s = 0x1.6ccbacp-19f, c = 0x1.99f2d4p-16f;
    s = k_fma(s, z, -0x1.a00f68p-13f);
    s = k_fma(s, z, 0x1.111108p-7f);
    s = k_fma(s, z, -0x1.555556p-3f);
    s = k_fma(s * z, r, r);
    c = k_fma(c, z, -0x1.6c0c58p-10f);
    c = k_fma(c, z, 0x1.55554ap-5f);
    c = k_fma(c * z, z, k_fma(-0.5f, z, 1.0f));
    float v = quadrant & 1 ? c : s;
    return k_float(k_bits(v) ^ (quadrant & 2) << 30);
}

/* sin (shift 0) or cos (shift 1) for |x| <= VM_TRIG_MAX; larger arguments go to vm_trig_large. */
#define VM_TRIG_MAX 16384.0f
K_INLINE float vm_trig(float x, uint32_t shift) {
    float t = k_fma(x, 0x1.45f306p-1f, VM_SHIFT), n = t - VM_SHIFT; /* 2/pi */
    float r = k_fma(n, -0x1.921fb6p+0f, x); /* pi/2 as a sum of three floats (Cody and Waite) */
    r = k_fma(n, 0x1.777a5cp-25f, r);
    r = k_fma(n, 0x1.ee59dap-50f, r);
    float v = vm_sincos_poly(r, k_bits(t) - k_bits(VM_SHIFT) + shift);
    return shift == 0 && vm_abs(x) < 0x1p-12f ? x : v; /* keeps -0 */
}

/* Any x: of the product with 2/pi only the bits around the point matter (Payne and Hanek 1983). A
 * scalar path for the rare. */
static inline float vm_trig_any(float x, uint32_t shift) {
    static const uint32_t two_over_pi[] = {
        0, 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
    if (vm_abs(x) <= VM_TRIG_MAX) return vm_trig(x, shift);
    if (!(vm_abs(x) < INFINITY)) return NAN;
    uint32_t u = k_bits(x), word[4];
    uint64_t m = (u & 0x7fffffu) | 0x800000u;
    uint32_t e = (u >> 23 & 255) - 150 + 32; /* |x| = m 2^(e - 32), 23 <= e <= 136 */
    for (int i = 0; i < 4; i++) {            /* word[0].word[1..3] = 2/pi 2^(e - 32) mod 2^32 */
        const uint32_t *p = two_over_pi + e / 32 + i;
        word[i] = (uint32_t)(((uint64_t)p[0] << 32 | p[1]) << (e & 31) >> 32);
    }
    /* quarter turns: 32 bits before the point (what they lose is whole turns) and 64 after */
    uint64_t low = m * word[2] + (m * word[3] >> 32);
    uint64_t turns = (m * word[0] << 32) + m * word[1] + (low >> 32);
    uint32_t q = (uint32_t)(turns >> 32);
    double fraction = (double)(uint32_t)turns * 0x1p-32 + (double)(uint32_t)low * 0x1p-64;
    if (fraction >= 0.5) {
        q++;
        fraction -= 1.0;
    }
    float r = (float)(fraction * 0x1.921fb54442d18p+0);
    if (u >> 31) {
        r = -r;
        q = 0u - q;
    }
    return vm_sincos_poly(r, q + shift);
}

#endif
