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

int main(void) {
    check_floats();
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
