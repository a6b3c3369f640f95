/* vpow.h - pow in float32, through log2 and exp2 in double.
 *
 * The double functions are exact to about 1e-15 and use no fused multiply-add, which is slow where
 * the processor has none; written like vmath.h. Error of pow: below 0.6 ulp (test_vmath.c). */
#ifndef MESHLUA_CPU_VPOW_H
#define MESHLUA_CPU_VPOW_H

#include "vmath.h"

/* log2 of a positive, finite, normal double, by 2 atanh(s) = log((1 + s) / (1 - s)) */
K_INLINE double vm_log2_d(double x) {
    uint64_t u = k_bits64(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    double n = k_double(u >> 52 | 0x4330000000000000u) - (0x1p52 + 1023.0);
    double m = k_double((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0x1.f19063523ecf5p-3;
    p = p * z + 0x1.0bb74581f3bc0p-2;
    p = p * z + 0x1.484fafc054e7dp-2;
    p = p * z + 0x1.a617566a60332p-2;
    p = p * z + 0x1.2776c516b346fp-1;
    p = p * z + 0x1.ec709dc39c98bp-1;
    p = p * z + 0x1.71547652b82ffp+1;
    return n + s * p;
}
/* 2^x for |x| <= 1000 */
K_INLINE double vm_exp2_d(double x) {
    double t = x + 0x1.8p52, r = x - (t - 0x1.8p52);
    double p = 0x1.e398fba8925abp-28;
    p = p * r + 0x1.b67431fc054bdp-24;
    p = p * r + 0x1.62c1582fb442ep-20;
    p = p * r + 0x1.ffcb55c62fcfep-17;
    p = p * r + 0x1.4309126026d78p-13;
    p = p * r + 0x1.5d87fe9cd0e5dp-10;
    p = p * r + 0x1.3b2ab6fbde273p-7;
    p = p * r + 0x1.c6b08d703d437p-5;
    p = p * r + 0x1.ebfbdff82c3b8p-3;
    p = p * r + 0x1.62e42fefa3a18p-1;
    p = p * r + 1.0;
    return k_double(k_bits64(p) + (k_bits64(t) << 52));
}

/* x^y with the special cases of C's pow */
K_INLINE float vm_pow(float x, float y) {
    float a = vm_abs(x);
    double l = vm_log2_d(a);
    l = a == 0.0f ? -(double)INFINITY : l;
    l = a == INFINITY ? (double)INFINITY : l;
    double e = (double)y * l;
    e = e > 200.0 ? 200.0 : e;
    e = e < -200.0 ? -200.0 : e;
    float r = (float)vm_exp2_d(e);
    r = a == 1.0f ? 1.0f : r;
    int whole = vm_rint(y) == y;
    int odd = whole & (vm_rint(y * 0.5f) != y * 0.5f);
    uint32_t sign = k_bits(x) & (odd ? 0x80000000u : 0);
    r = k_float(k_bits(r) | sign);
    int wrong = (x < 0.0f) & (a < INFINITY) & !whole, one = (x == 1.0f) | (y == 0.0f);
    wrong |= (x != x) | (y != y);
    r = wrong ? NAN : r;
    return one ? 1.0f : r;
}

#endif
