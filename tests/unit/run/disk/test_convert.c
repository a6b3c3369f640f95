/* test_convert.c - elements from dtype to dtype. */
#include "run/disk/convert.h"
#include "test.h"

#include <math.h>
#include <string.h>

/* One number from float64 to a dtype and back. NaN: it does not fit. */
static double there(DType d, double x) {
    char bytes[8], back[8];
    if (convert_run(d, bytes, 8, DT_F64, (const char *)&x, 8, 1) >= 0) return NAN;
    convert_run(DT_F64, back, 8, d, bytes, 8, 1);
    memcpy(&x, back, 8);
    return x;
}

/* Every float16 and bfloat16 is what it was after a way through float32; floats round as
 * dtype_round says. */
static void check_floats(void) {
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i, back;
        float f;
        for (int d = DT_BF16; d <= DT_F16; d++) {
            CHECK(convert_run(DT_F32, (char *)&f, 4, (DType)d, (char *)&h, 2, 1) < 0);
            CHECK(convert_run((DType)d, (char *)&back, 2, DT_F32, (char *)&f, 4, 1) < 0);
            CHECKF(back == h || isnan(f), "%s %04x: %04x", dtype_name((DType)d), h, back);
        }
        double x = (i % 2 ? -1 : 1) * ldexp(1 + i / 65536.0, (int)(i % 60) - 40);
        for (int d = DT_BF16; d <= DT_F64; d++) {
            double want = dtype_round((DType)d, x);
            double got = there((DType)d, x);
            CHECKF(got == want || (isnan(got) && isinf(want)), "%s %a: %a", dtype_name((DType)d), x,
                   got);
        }
    }
}

/* Planes with either side turned, against element by element; and which of them does not fit. */
static void check_planes(void) {
    enum { ROWS = 70, COLUMNS = 45 };
    static float in[ROWS * COLUMNS];
    static uint16_t out[ROWS * COLUMNS];
    int64_t n[2] = {ROWS, COLUMNS}, bad = 50 * COLUMNS + 40;
    for (int32_t i = 0; i < ROWS * COLUMNS; i++) in[i] = (float)i;
    for (int turned = 0; turned < 4; turned++) {
        int64_t is[2] = {4 * COLUMNS, 4}, os[2] = {2 * COLUMNS, 2};
        if (turned & 1) is[0] = 4, is[1] = 4 * ROWS;
        if (turned & 2) os[0] = 2, os[1] = 2 * ROWS;
        CHECK(!convert_plane(DT_F16, (char *)out, os, DT_F32, (char *)in, is, n));
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
            int64_t row = i / COLUMNS, column = i % COLUMNS;
            const char *at = (char *)out + row * os[0] + column * os[1];
            float want = in[(row * is[0] + column * is[1]) / 4];
            CHECK(convert_value(DT_F16, at) == dtype_round(DT_F16, want));
        }
        in[bad] = 1e9f;
        CHECK(convert_plane(DT_F16, (char *)out, os, DT_F32, (char *)in, is, n) ==
              (char *)&in[bad]);
        in[bad] = (float)bad;
    }
}

int main(void) {
    check_floats();
    check_planes();
    CHECK(there(DT_U8, 255.9) == 255 && isnan(there(DT_U8, 256)) && isnan(there(DT_U8, -1)));
    CHECK(there(DT_U8, -0.5) == 0);
    CHECK(there(DT_I32, -0x1p31) == -0x1p31 && isnan(there(DT_I32, 0x1p31)));
    CHECK(there(DT_U32, 0x1p32 - 1) == 0x1p32 - 1 && isnan(there(DT_U32, 0x1p32)));
    CHECK(there(DT_I64, -0x1p63) == -0x1p63 && isnan(there(DT_I64, 0x1p63)));
    CHECK(there(DT_BOOL, 1) == 1 && isnan(there(DT_BOOL, 0.5)) && isnan(there(DT_BOOL, 2)));
    CHECK(isnan(there(DT_I64, INFINITY)) && there(DT_F16, -INFINITY) == -INFINITY);
    CHECK(there(DT_F16, 65504) == 65504 && isnan(there(DT_F16, 65520)));
    float many[1000] = {0};
    uint16_t halves[1000];
    many[300] = many[700] = 70000;
    CHECK(convert_run(DT_F16, (char *)halves, 2, DT_F32, (char *)many, 4, 1000) == 300);
    CHECK(convert_run(DT_BF16, (char *)halves, 2, DT_F32, (char *)many, 4, 1000) < 0);
    CHECK(convert_value(DT_BF16, (char *)&halves[300]) == 70144);
    uint8_t flag = 2;
    CHECK(convert_run(DT_BOOL, (char *)&flag, 1, DT_BOOL, (char *)&flag, 1, 1) == 0);
    return test_end();
}
