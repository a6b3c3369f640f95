#include "run/disk/convert.h"

#include <math.h>
#include <string.h>

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static float from_half(uint16_t h) {
    uint32_t a = h & 0x7fffu, u = bits_of(float_of(a << 13) * 0x1p112f);
    if (a >= 0x7c00u) u |= 0x7f800000u;
    return float_of(u | (uint32_t)(h & 0x8000u) << 16);
}

/* To nearest, ties to even; NaN stays one. */
static uint16_t to_half(float x) {
    uint32_t u = bits_of(x), a = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (a < 0x38800000u) return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13);
}
static uint16_t to_brain(float x) {
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* As kernels do it (kernels/cpu/convert.h). */
static float from_e4m3(uint8_t b) {
    uint32_t a = b & 0x7fu, u = bits_of(float_of(a << 20) * 0x1p120f);
    return float_of((a == 0x7fu ? 0x7fc00000u : u) | (uint32_t)(b & 0x80u) << 24);
}
static uint8_t to_e4m3(float x) {
    uint32_t u = bits_of(x), a = u & 0x7fffffffu, sign = u >> 24 & 0x80u;
    if (a > 0x43e80000u) return (uint8_t)(sign | 0x7fu); /* above 464 */
    if (a < 0x3c800000u) return (uint8_t)(sign | (bits_of(float_of(a) + 0x1p14f) - 0x46800000u));
    return (uint8_t)(sign | (a - 0x3c000000u + 0x7ffffu + (a >> 20 & 1)) >> 20);
}
static uint8_t to_e5m2(float x) {
    uint32_t u = bits_of(x), a = u & 0x7fffffffu, sign = u >> 24 & 0x80u;
    if (a > 0x7f800000u) return (uint8_t)(sign | 0x7eu);
    if (a >= 0x47700000u) return (uint8_t)(sign | 0x7cu); /* 61440 and above */
    if (a < 0x38800000u) return (uint8_t)(sign | (bits_of(float_of(a) + 0x1p7f) - 0x43000000u));
    return (uint8_t)(sign | (a - 0x38000000u + 0xfffffu + (a >> 21 & 1)) >> 21);
}

#define AS(type, at)                                                                               \
    ({                                                                                             \
        type as_;                                                                                  \
        memcpy(&as_, at, sizeof as_);                                                              \
        as_;                                                                                       \
    })
#define PUT(type, at, x)                                                                           \
    do {                                                                                           \
        type put_ = (type)(x);                                                                     \
        memcpy(at, &put_, sizeof put_);                                                            \
    } while (0)

ConvertValue convert_get(DType d, const char *at) {
    switch (d) {
    case DT_BOOL:
    case DT_U8: return (ConvertValue){true, AS(uint8_t, at), 0};
    case DT_U16: return (ConvertValue){true, AS(uint16_t, at), 0};
    case DT_U32: return (ConvertValue){true, AS(uint32_t, at), 0};
    case DT_U64: {
        uint64_t u = AS(uint64_t, at);
        return (ConvertValue){u <= INT64_MAX, (int64_t)u, (double)u};
    }
    case DT_I8: return (ConvertValue){true, AS(int8_t, at), 0};
    case DT_I16: return (ConvertValue){true, AS(int16_t, at), 0};
    case DT_I32: return (ConvertValue){true, AS(int32_t, at), 0};
    case DT_I64: return (ConvertValue){true, AS(int64_t, at), 0};
    case DT_E4M3: return (ConvertValue){false, 0, from_e4m3(AS(uint8_t, at))};
    case DT_E5M2: return (ConvertValue){false, 0, from_half((uint16_t)(AS(uint8_t, at) << 8))};
    case DT_BF16: return (ConvertValue){false, 0, float_of((uint32_t)AS(uint16_t, at) << 16)};
    case DT_F16: return (ConvertValue){false, 0, from_half(AS(uint16_t, at))};
    case DT_F32: return (ConvertValue){false, 0, AS(float, at)};
    default: return (ConvertValue){false, 0, AS(double, at)};
    }
}

double convert_value(DType d, const char *at) {
    ConvertValue v = convert_get(d, at);
    return v.whole ? (double)v.i : v.f;
}

/* Makes it a whole number of the dtype's range; false where it is none. */
static bool to_whole(DType d, ConvertValue *v) {
    if (!v->whole) {
        double x = trunc(v->f);
        if (d == DT_BOOL && x != v->f) return false;
        if (d == DT_U64 && x >= 0x1p63 && x < 0x1p64) {
            v->i = (int64_t)(uint64_t)x;
            return true;
        }
        if (!(x >= -0x1p63 && x < 0x1p63)) return false;
        v->i = (int64_t)x;
    }
    return v->i >= k_dtype_least(d) && (d == DT_U64 || v->i <= k_dtype_greatest(d));
}

static bool put(DType d, char *at, ConvertValue v) {
    if (!dtype_is_float(d)) {
        if (!to_whole(d, &v)) return false;
        memcpy(at, &v.i, (size_t)dtype_size(d)); /* the low bytes */
        return true;
    }
    float x = v.whole ? (float)v.i : (float)v.f;
    bool finite = v.whole || isfinite(v.f);
    switch (d) {
    case DT_E4M3: {
        uint8_t b = to_e4m3(x);
        PUT(uint8_t, at, b);
        return !finite || (b & 0x7f) != 0x7f;
    }
    case DT_E5M2: {
        uint8_t b = to_e5m2(x);
        PUT(uint8_t, at, b);
        return !finite || (b & 0x7f) != 0x7c;
    }
    case DT_BF16: {
        uint16_t b = to_brain(x);
        PUT(uint16_t, at, b);
        return !finite || (b & 0x7fff) != 0x7f80;
    }
    case DT_F16: {
        uint16_t h = to_half(x);
        PUT(uint16_t, at, h);
        return !finite || (h & 0x7fff) != 0x7c00;
    }
    case DT_F32: PUT(float, at, x); return !finite || isfinite(x);
    default: PUT(double, at, v.whole ? (double)v.i : v.f); return true;
    }
}

/* Elements as they are. */
static void copy_run(int size, char *out, int64_t os, const char *in, int64_t is, int64_t n) {
    if (os == size && is == size) {
        memcpy(out, in, (size_t)(n * size));
        return;
    }
#define COPY(bytes)                                                                                \
    for (int64_t i = 0; i < n; i++) memcpy(out + i * os, in + i * is, bytes)
    if (size == 1) COPY(1);
    if (size == 2) COPY(2);
    if (size == 4) COPY(4);
    if (size == 8) COPY(8);
#undef COPY
}

/* ---- floats of at most 32 bits, by way of float32 ---- */
enum { FLOATS = 256 };

static bool is_short(DType d) {
    return dtype_is_float(d) && d != DT_F64;
}

static void get_floats(DType from, const char *in, int64_t is, int64_t n, float *to) {
    if (from == DT_F32)
        for (int64_t i = 0; i < n; i++) to[i] = AS(float, in + i * is);
    else if (from == DT_F16)
        for (int64_t i = 0; i < n; i++) to[i] = from_half(AS(uint16_t, in + i * is));
    else if (from == DT_E4M3)
        for (int64_t i = 0; i < n; i++) to[i] = from_e4m3(AS(uint8_t, in + i * is));
    else if (from == DT_E5M2)
        for (int64_t i = 0; i < n; i++)
            to[i] = from_half((uint16_t)(AS(uint8_t, in + i * is) << 8));
    else
        for (int64_t i = 0; i < n; i++) to[i] = float_of((uint32_t)AS(uint16_t, in + i * is) << 16);
}

static bool is_finite(float x) {
    return (bits_of(x) & 0x7fffffffu) < 0x7f800000u;
}

/* False where one that is finite did not stay so. */
static bool put_floats(DType to, char *out, int64_t os, const float *from, int64_t n) {
    bool fits = true;
    if (to == DT_F32)
        for (int64_t i = 0; i < n; i++) PUT(float, out + i * os, from[i]);
    for (int64_t i = 0; i < n && to == DT_F16; i++) {
        uint16_t h = to_half(from[i]);
        fits &= (h & 0x7fff) != 0x7c00 || !is_finite(from[i]);
        PUT(uint16_t, out + i * os, h);
    }
    for (int64_t i = 0; i < n && to == DT_BF16; i++) {
        uint16_t b = to_brain(from[i]);
        fits &= (b & 0x7fff) != 0x7f80 || !is_finite(from[i]);
        PUT(uint16_t, out + i * os, b);
    }
    for (int64_t i = 0; i < n && to == DT_E4M3; i++) {
        uint8_t b = to_e4m3(from[i]);
        fits &= (b & 0x7f) != 0x7f || !is_finite(from[i]);
        PUT(uint8_t, out + i * os, b);
    }
    for (int64_t i = 0; i < n && to == DT_E5M2; i++) {
        uint8_t b = to_e5m2(from[i]);
        fits &= (b & 0x7f) != 0x7c || !is_finite(from[i]);
        PUT(uint8_t, out + i * os, b);
    }
    return fits;
}

/* How many were converted: n, or all before some of which one does not fit. */
static int64_t convert_floats(DType to, char *out, int64_t os, DType from, const char *in,
                              int64_t is, int64_t n) {
    float some[FLOATS];
    for (int64_t i = 0; i < n; i += FLOATS) {
        int64_t now = n - i < FLOATS ? n - i : FLOATS;
        get_floats(from, in + i * is, is, now, some);
        if (!put_floats(to, out + i * os, os, some, now)) return i;
    }
    return n;
}

int64_t convert_run(DType to, char *out, int64_t os, DType from, const char *in, int64_t is,
                    int64_t n) {
    if (convert_is_copy(to, from)) {
        copy_run(dtype_size(to), out, os, in, is, n);
        return -1;
    }
    if (is_short(from) && is_short(to)) {
        int64_t done = convert_floats(to, out, os, from, in, is, n);
        for (int64_t i = done; i < n; i++) /* which of the next does not fit? */
            if (!put(to, out + i * os, convert_get(from, in + i * is))) return i;
        return -1;
    }
    for (int64_t i = 0; i < n; i++)
        if (!put(to, out + i * os, convert_get(from, in + i * is))) return i;
    return -1;
}

/* Rows that lie along one another in `in`, columns in `out`: through tiles, so that each cache line
 * is met once. */
static const char *transpose(DType to, char *out, int64_t out_step, DType from, const char *in,
                             int64_t in_step, int64_t rows, int64_t columns) {
    enum { TILE = 32 };
    char tile[TILE * TILE * 8];
    int ts = dtype_size(to), fs = dtype_size(from);
    for (int64_t i = 0; i < rows; i += TILE)
        for (int64_t k = 0; k < columns; k += TILE) {
            int64_t high = rows - i < TILE ? rows - i : TILE;
            int64_t wide = columns - k < TILE ? columns - k : TILE;
            for (int64_t r = 0; r < high; r++) {
                const char *run = in + (i + r) * in_step + k * fs;
                int64_t bad = convert_run(to, tile + r * TILE * ts, ts, from, run, fs, wide);
                if (bad >= 0) return run + bad * fs;
            }
            for (int64_t c = 0; c < wide; c++)
                copy_run(ts, out + (k + c) * out_step + i * ts, ts, tile + c * ts, TILE * ts, high);
        }
    return NULL;
}

const char *convert_plane(DType to, char *out, const int64_t os[2], DType from, const char *in,
                          const int64_t is[2], const int64_t n[2]) {
    int ts = dtype_size(to), fs = dtype_size(from);
    if (os[0] == ts && is[1] == fs && os[1] != ts)
        return transpose(to, out, os[1], from, in, is[0], n[0], n[1]);
    if (os[1] == ts && is[0] == fs && is[1] != fs)
        return transpose(to, out, os[0], from, in, is[1], n[1], n[0]);
    for (int64_t i = 0; i < n[0]; i++) {
        int64_t bad = convert_run(to, out + i * os[0], os[1], from, in + i * is[0], is[1], n[1]);
        if (bad >= 0) return in + i * is[0] + bad * is[1];
    }
    return NULL;
}
