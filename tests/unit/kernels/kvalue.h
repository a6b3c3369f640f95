/* kvalue.h - elements of any dtype as doubles or 64-bit integers, and random ones. */
#ifndef MESHLUA_KVALUE_H
#define MESHLUA_KVALUE_H

#include <math.h>
#include "ktest.h"

/* bfloat16 (7 bits of fraction, bias 127) and float16 (10, 15) */
static inline double kt_decode(uint16_t h, int fraction, int bias) {
    int e = (h & 0x7fff) >> fraction, m = h & ((1 << fraction) - 1);
    double x = ldexp(e ? m + (1 << fraction) : m, (e ? e : 1) - bias - fraction);
    if (e == (1 << (15 - fraction)) - 1) x = m ? NAN : INFINITY;
    return h >> 15 ? -x : x;
}
static inline uint16_t kt_encode(double x, int fraction, int bias) { /* cuts, does not round */
    int top = (1 << (15 - fraction)) - 1, e = x == 0 || !isfinite(x) ? 0 : ilogb(x) + bias, bits;
    double a = fabs(x);
    if (x != x)
        bits = (top << fraction) + 1;
    else if (isinf(x) || e >= top)
        bits = top << fraction;
    else if (e <= 0)
        bits = (int)ldexp(a, bias - 1 + fraction);
    else
        bits = ((e - 1) << fraction) + (int)ldexp(a, fraction - e + bias);
    return (uint16_t)(bits | (signbit(x) ? 0x8000 : 0));
}

/* float8_e4m3fn; beyond 448 NaN */
static inline double kt_decode_e4m3(int b) {
    int e = b >> 3 & 15, m = b & 7;
    double x = (b & 127) == 127 ? NAN : ldexp(e ? m + 8 : m, (e ? e : 1) - 10);
    return b >> 7 ? -x : x;
}
static inline uint8_t kt_encode_e4m3(double x) { /* cuts, does not round */
    int b = 0;
    if (!(fabs(x) < 480)) return (uint8_t)(127 | (signbit(x) ? 128 : 0));
    while (b < 126 && kt_decode_e4m3(b + 1) <= fabs(x)) b++;
    return (uint8_t)(b | (signbit(x) ? 128 : 0));
}

static inline double kt_float(DType t, const void *p) {
    if (t == DT_E4M3) return kt_decode_e4m3(*(const uint8_t *)p);
    if (t == DT_E5M2) return kt_decode((uint16_t)(*(const uint8_t *)p << 8), 10, 15);
    if (t == DT_F64) return *(const double *)p;
    if (t == DT_F32) return (double)*(const float *)p;
    uint16_t h = *(const uint16_t *)p;
    return t == DT_BF16 ? kt_decode(h, 7, 127) : kt_decode(h, 10, 15);
}
static inline int64_t kt_int(DType t, const void *p) {
    switch (t) {
    case DT_U16: return *(const uint16_t *)p;
    case DT_U32: return *(const uint32_t *)p;
    case DT_I8: return *(const int8_t *)p;
    case DT_I16: return *(const int16_t *)p;
    case DT_I32: return *(const int32_t *)p;
    case DT_U64:
    case DT_I64: return *(const int64_t *)p;
    default: return *(const uint8_t *)p;
    }
}
static inline void kt_put_float(DType t, void *p, double x) {
    if (t == DT_E4M3)
        *(uint8_t *)p = kt_encode_e4m3(x);
    else if (t == DT_E5M2)
        *(uint8_t *)p = (uint8_t)((kt_encode(x, 10, 15) >> 8) | (x != x ? 1 : 0));
    else if (t == DT_F64)
        *(double *)p = x;
    else if (t == DT_F32)
        *(float *)p = (float)x;
    else
        *(uint16_t *)p = t == DT_BF16 ? kt_encode(x, 7, 127) : kt_encode(x, 10, 15);
}
static inline void kt_put_int(DType t, void *p, int64_t i) {
    if (t == DT_BOOL) i &= 1;
    memcpy(p, &i, (size_t)kt_size(t)); /* the low bytes */
}

/* Floats in [lo, hi]; integers in it too, or of all sizes and signs if it is [0, 0]. */
static inline void fill(Tensor *x, double lo, double hi) {
    DType t = x->t.dtype;
    for (Walk w = walk_of(x); w.left; walk_on(&w)) {
        void *p = w.at;
        int64_t any = (int64_t)(rnd() >> below(63)) - (rnd() % 2 ? (int64_t)1 << below(30) : 0);
        if (kt_is_float(t))
            kt_put_float(t, p, uniform(lo, hi));
        else
            kt_put_int(t, p,
                       lo == 0 && hi == 0 ? any : (int64_t)lo + below((int64_t)(hi - lo) + 1));
    }
}
/* Some elements become NaN, infinite, or a signed zero. */
static inline void sprinkle(Tensor *x) {
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
    for (Walk w = walk_of(x); kt_is_float(x->t.dtype) && w.left; walk_on(&w))
        if (rnd() % 16 == 0) kt_put_float(x->t.dtype, w.at, odd[below(5)]);
}

#endif
