/* naive.h - what the naive kernels share: elements as doubles or 64-bit integers, one at a time.
 *
 * The naive table is the specification. It is written for the reader: one loop per kernel over the
 * indices of a shape, libm, sums in double. Rows have no units: one call computes everything. */
#ifndef MESHLUA_CPU_NAIVE_H
#define MESHLUA_CPU_NAIVE_H

#include <math.h>
#include <string.h>
#include "kernel.h"

/* o0 << 32 | o1 of Threefry-2x32 with 20 rounds (naive_fused.c). */
uint64_t k_naive_threefry(const uint32_t key[2], const uint32_t counter[2]);

static inline int64_t n_count(const KTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->dims[d];
    return n;
}

/* Index of the row-major position i in t's shape. */
static inline void n_index(const KTensor *t, int64_t i, int64_t *index) {
    for (int d = t->rank - 1; d >= 0; d--) {
        index[d] = i % t->dims[d];
        i /= t->dims[d];
    }
}
static inline char *n_at(const KTensor *t, const int64_t *index) {
    char *p = t->data;
    for (int d = 0; d < t->rank; d++) p += index[d] * t->strides[d];
    return p;
}
/* Address of the row-major position i. */
static inline char *n_elem(const KTensor *t, int64_t i) {
    int64_t index[K_MAX_RANK];
    n_index(t, i, index);
    return n_at(t, index);
}

static inline int n_is_float(DType t) {
    return k_dtype_is_float(t);
}

/* x rounded to `digits` bits of mantissa (the leading one included), ties to even, with exponents
 * from emin on; beyond `max` it is infinite. */
static inline double n_round(double x, int digits, int emin, double max) {
    if (x == 0 || !isfinite(x)) return x;
    int e = ilogb(x) < emin ? emin : ilogb(x);
    double unit = ldexp(1, e - digits + 1), r = rint(x / unit) * unit;
    return fabs(r) > max ? copysign(INFINITY, x) : r;
}
static inline double n_round_bf16(double x) {
    return n_round(x, 8, -126, 0x1.fep127);
}
static inline double n_round_f16(double x) {
    return n_round(x, 11, -14, 65504);
}

static inline double n_round_e5m2(double x) {
    return n_round(x, 3, -14, 57344);
}
static inline double n_round_e4m3(double x) { /* without infinities */
    double r = n_round(x, 4, -6, 448);
    return isinf(r) ? NAN : r;
}

/* An IEEE format of 16 bits with this many bits of fraction and this bias. */
static inline double n_decode16(uint16_t h, int fraction, int bias) {
    int e = (h & 0x7fff) >> fraction, max = (1 << (15 - fraction)) - 1;
    double m = h & ((1 << fraction) - 1), x;
    if (e == max)
        x = m != 0 ? NAN : INFINITY;
    else if (e == 0)
        x = ldexp(m, 1 - bias - fraction);
    else
        x = ldexp(m + (1 << fraction), e - bias - fraction);
    return h >> 15 ? -x : x;
}
static inline uint16_t n_encode16(double x, int fraction, int bias) { /* x has that precision */
    int max = (1 << (15 - fraction)) - 1, sign = signbit(x) ? 0x8000 : 0;
    if (x != x) return (uint16_t)(sign | max << fraction | 1 << (fraction - 1));
    if (isinf(x)) return (uint16_t)(sign | max << fraction);
    x = fabs(x);
    if (x < ldexp(1, 1 - bias)) return (uint16_t)(sign | (int)ldexp(x, bias - 1 + fraction));
    int e = ilogb(x);
    return (uint16_t)(sign | (e + bias) << fraction |
                      (int)(ldexp(x, fraction - e) - (1 << fraction)));
}

static inline double n_decode_e4m3(uint8_t b) {
    int e = b >> 3 & 15, m = b & 7;
    double x = (b & 127) == 127 ? NAN : e ? ldexp(m + 8, e - 10) : ldexp(m, -9);
    return b >> 7 ? -x : x;
}
static inline uint8_t n_encode_e4m3(double x) { /* x has that precision */
    int sign = signbit(x) ? 0x80 : 0, e = x == 0 ? -7 : ilogb(x);
    if (x != x) return (uint8_t)(sign | 127);
    return (uint8_t)(sign | (e < -6 ? (int)ldexp(fabs(x), 9)
                                    : (e + 7) << 3 | ((int)ldexp(fabs(x), 3 - e) - 8)));
}

static inline double n_get(const KTensor *t, const char *p) {
    uint16_t h;
    float f;
    double d;
    switch (t->dtype) {
    case DT_E4M3: return n_decode_e4m3(*(const uint8_t *)p);
    case DT_E5M2: return n_decode16((uint16_t)(*(const uint8_t *)p << 8), 10, 15);
    case DT_BF16: memcpy(&h, p, 2); return n_decode16(h, 7, 127);
    case DT_F16: memcpy(&h, p, 2); return n_decode16(h, 10, 15);
    case DT_F32: memcpy(&f, p, 4); return f;
    default: memcpy(&d, p, 8); return d;
    }
}
static inline void n_put(const KTensor *t, char *p, double x) {
    float f = (float)x;
    uint16_t h;
    switch (t->dtype) {
    case DT_E4M3: *(uint8_t *)p = n_encode_e4m3(n_round_e4m3(f)); return;
    case DT_E5M2: *(uint8_t *)p = (uint8_t)(n_encode16(n_round_e5m2(f), 10, 15) >> 8); return;
    case DT_BF16:
        h = n_encode16(n_round_bf16(f), 7, 127);
        memcpy(p, &h, 2);
        return;
    case DT_F16:
        h = n_encode16(n_round_f16(f), 10, 15);
        memcpy(p, &h, 2);
        return;
    case DT_F32: memcpy(p, &f, 4); return;
    default: memcpy(p, &x, 8); return;
    }
}

/* uint64 as the int64 of its bits. */
static inline int64_t n_get_int(const KTensor *t, const char *p) {
    uint32_t u;
    uint16_t h;
    int64_t i;
    switch (t->dtype) {
    case DT_BOOL:
    case DT_U8: return *(const uint8_t *)p;
    case DT_I8: return *(const int8_t *)p;
    case DT_U16: memcpy(&h, p, 2); return h;
    case DT_I16: memcpy(&h, p, 2); return (int16_t)h;
    case DT_U32: memcpy(&u, p, 4); return u;
    case DT_I32: memcpy(&u, p, 4); return (int32_t)u;
    default: memcpy(&i, p, 8); return i;
    }
}
static inline void n_put_int(const KTensor *t, char *p, int64_t i) {
    uint32_t u = (uint32_t)i;
    uint16_t h = (uint16_t)i;
    switch (t->dtype) {
    case DT_BOOL: *p = i != 0; return;
    case DT_U8:
    case DT_I8: *(uint8_t *)p = (uint8_t)i; return;
    case DT_U16:
    case DT_I16: memcpy(p, &h, 2); return;
    case DT_U32:
    case DT_I32: memcpy(p, &u, 4); return;
    default: memcpy(p, &i, 8); return;
    }
}

/* Whether x is less than y, integers of that dtype. */
static inline int n_less(DType t, int64_t x, int64_t y) {
    return t == DT_U64 ? (uint64_t)x < (uint64_t)y : x < y;
}

static inline int64_t n_size(DType t) {
    return k_dtype_size(t);
}

#endif
