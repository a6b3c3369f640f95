/* catalog_encoding.c - how the elements of tensors are written, by the names that formats give
 * them. */
#include "run/disk/catalog.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

/* name, dtype, elements and bytes of a block, GGUF's number, safetensors' or not, numpy's */
static const Encoding encodings[] = {
    {"BOOL", DT_BOOL, 1, 1, -1, true, "|b1"},
    {"U8", DT_U8, 1, 1, -1, true, "|u1"},
    {"U16", DT_U16, 1, 2, -1, true, "<u2"},
    {"U32", DT_U32, 1, 4, -1, true, "<u4"},
    {"U64", DT_U64, 1, 8, -1, true, "<u8"},
    {"I8", DT_I8, 1, 1, 24, true, "|i1"},
    {"I16", DT_I16, 1, 2, 25, true, "<i2"},
    {"I32", DT_I32, 1, 4, 26, true, "<i4"},
    {"I64", DT_I64, 1, 8, 27, true, "<i8"},
    {"F8_E4M3", DT_E4M3, 1, 1, -1, true, NULL},
    {"F8_E5M2", DT_E5M2, 1, 1, -1, true, NULL},
    {"BF16", DT_BF16, 1, 2, 30, true, NULL},
    {"F16", DT_F16, 1, 2, 1, true, "<f2"},
    {"F32", DT_F32, 1, 4, 0, true, "<f4"},
    {"F64", DT_F64, 1, 8, 28, true, "<f8"},
    {"Q8_0", DT_F32, BLOCK, 34, 8, false, NULL},
    {"Q4_0", DT_F32, BLOCK, 18, 2, false, NULL},
    {"Q4_1", DT_F32, BLOCK, 20, 3, false, NULL},
    /* known, and not read */
    {"C64", -1, 1, 8, -1, true, "<c8"},
    {"F4", -1, 2, 1, -1, true, NULL},
    {"F6_E2M3", -1, 4, 3, -1, true, NULL},
    {"F6_E3M2", -1, 4, 3, -1, true, NULL},
    {"F8_E8M0", -1, 1, 1, -1, true, NULL},
    {"F8_E4M3FNUZ", -1, 1, 1, -1, true, NULL},
    {"F8_E5M2FNUZ", -1, 1, 1, -1, true, NULL},
    {"Q5_0", -1, BLOCK, 22, 6, false, NULL},
    {"Q5_1", -1, BLOCK, 24, 7, false, NULL},
    {"Q8_1", -1, BLOCK, 40, 9, false, NULL},
    {"Q2_K", -1, 256, 84, 10, false, NULL},
    {"Q3_K", -1, 256, 110, 11, false, NULL},
    {"Q4_K", -1, 256, 144, 12, false, NULL},
    {"Q5_K", -1, 256, 176, 13, false, NULL},
    {"Q6_K", -1, 256, 210, 14, false, NULL},
    {"Q8_K", -1, 256, 292, 15, false, NULL},
    {"IQ2_XXS", -1, 256, 66, 16, false, NULL},
    {"IQ2_XS", -1, 256, 74, 17, false, NULL},
    {"IQ3_XXS", -1, 256, 98, 18, false, NULL},
    {"IQ1_S", -1, 256, 50, 19, false, NULL},
    {"IQ4_NL", -1, BLOCK, 18, 20, false, NULL},
    {"IQ3_S", -1, 256, 110, 21, false, NULL},
    {"IQ2_S", -1, 256, 82, 22, false, NULL},
    {"IQ4_XS", -1, 256, 136, 23, false, NULL},
    {"IQ1_M", -1, 256, 56, 29, false, NULL},
    {"TQ1_0", -1, 256, 54, 34, false, NULL},
    {"TQ2_0", -1, 256, 66, 35, false, NULL},
    {"MXFP4", -1, BLOCK, 17, 39, false, NULL},
    {"NVFP4", -1, 64, 36, 40, false, NULL},
    {"Q1_0", -1, 128, 18, 41, false, NULL},
};
enum { NENCODING = sizeof encodings / sizeof *encodings };

const Encoding *catalog_encoding(const char *name) {
    for (int i = 0; i < NENCODING; i++)
        if (strcmp(encodings[i].name, name) == 0) return &encodings[i];
    return NULL;
}

const Encoding *catalog_encoding_of_gguf(uint32_t number) {
    for (int i = 0; i < NENCODING; i++)
        if (encodings[i].gguf >= 0 && (uint32_t)encodings[i].gguf == number) return &encodings[i];
    return NULL;
}

const Encoding *catalog_encoding_of_npy(const char *descr) {
    for (int i = 0; i < NENCODING; i++)
        if (encodings[i].npy && strcmp(encodings[i].npy, descr) == 0) return &encodings[i];
    return NULL;
}

const char *catalog_encoding_of_dtype(DType d) {
    for (int i = 0; i < NENCODING; i++)
        if (encodings[i].dtype == (int32_t)d && encodings[i].block == 1) return encodings[i].name;
    return NULL;
}

/* ---- blocks: a scale in float16, Q4_1's least value, then the numbers ---- */

static float half_at(const uint8_t *p) {
    uint32_t h = (uint32_t)p[0] | (uint32_t)p[1] << 8, magnitude = h & 0x7fff;
    float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (magnitude >= 0x7c00) return magnitude == 0x7c00 ? sign * INFINITY : NAN;
    if (magnitude < 0x0400) return sign * ldexpf((float)magnitude, -24);
    return sign * ldexpf((float)(0x400 | (magnitude & 0x3ff)), (int)(magnitude >> 10) - 25);
}

/* The float16 nearest to x >= 0 (ties to even), as bits. */
static uint32_t half_of(float x) {
    double rounded = dtype_round(DT_F16, x);
    if (isnan(rounded)) return 0x7e00;
    if (isinf(rounded)) return 0x7c00;
    int exponent;
    double fraction = frexp(rounded, &exponent); /* 0.5 <= fraction < 1, or 0 */
    if (rounded == 0 || exponent < -13) return (uint32_t)ldexp(rounded, 24);
    return (uint32_t)((exponent + 14) << 10) + (uint32_t)(ldexp(fraction, 11) - 1024);
}

static void decode_q8_0(const uint8_t *p, float *to) {
    float d = half_at(p);
    for (int i = 0; i < BLOCK; i++) to[i] = (float)(int8_t)p[2 + i] * d;
}

static void decode_q4_0(const uint8_t *p, float *to) {
    float d = half_at(p);
    for (int i = 0; i < BLOCK / 2; i++) {
        to[i] = (float)((p[2 + i] & 15) - 8) * d;
        to[i + BLOCK / 2] = (float)((p[2 + i] >> 4) - 8) * d;
    }
}

static void decode_q4_1(const uint8_t *p, float *to) {
    float d = half_at(p), least = half_at(p + 2);
    for (int i = 0; i < BLOCK / 2; i++) {
        to[i] = (float)(p[4 + i] & 15) * d + least;
        to[i + BLOCK / 2] = (float)(p[4 + i] >> 4) * d + least;
    }
}

bool catalog_decode(const char *encoding, const void *blocks, int64_t nblocks, float *to) {
    static const struct {
        const char *name;
        int bytes;
        void (*decode)(const uint8_t *p, float *to);
    } kinds[] = {{"Q8_0", 34, decode_q8_0}, {"Q4_0", 18, decode_q4_0}, {"Q4_1", 20, decode_q4_1}};
    const uint8_t *p = blocks;
    for (int k = 0; k < 3; k++) {
        if (strcmp(kinds[k].name, encoding) != 0) continue;
        for (int64_t i = 0; i < nblocks; i++, p += kinds[k].bytes, to += BLOCK)
            kinds[k].decode(p, to);
        return true;
    }
    return false;
}

bool catalog_encode(const char *encoding, const float *from, int64_t nblocks, void *blocks) {
    uint8_t *p = blocks;
    if (strcmp(encoding, "Q8_0") != 0) return false;
    for (int64_t b = 0; b < nblocks; b++, p += 34, from += BLOCK) {
        float most = 0;
        for (int i = 0; i < BLOCK; i++) most = fmaxf(most, fabsf(from[i]));
        float d = most / 127, inverse = d ? 1 / d : 0;
        uint32_t h = half_of(d);
        p[0] = (uint8_t)h, p[1] = (uint8_t)(h >> 8);
        for (int i = 0; i < BLOCK; i++) {
            float x = roundf(from[i] * inverse);
            p[2 + i] = (uint8_t)(int8_t)(x >= -127 && x <= 127 ? x : 0); /* NaN has no number */
        }
    }
    return true;
}
