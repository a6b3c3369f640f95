#include "ir/dtype.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int8_t kind;
} rows[DT_COUNT] = {
    [DT_BOOL] = {"bool", KIND_BOOL},         [DT_U8] = {"uint8", KIND_INT},
    [DT_U16] = {"uint16", KIND_INT},         [DT_U32] = {"uint32", KIND_INT},
    [DT_U64] = {"uint64", KIND_INT},         [DT_I8] = {"int8", KIND_INT},
    [DT_I16] = {"int16", KIND_INT},          [DT_I32] = {"int32", KIND_INT},
    [DT_I64] = {"int64", KIND_INT},          [DT_E4M3] = {"float8_e4m3fn", KIND_FLOAT},
    [DT_E5M2] = {"float8_e5m2", KIND_FLOAT}, [DT_BF16] = {"bfloat16", KIND_FLOAT},
    [DT_F16] = {"float16", KIND_FLOAT},      [DT_F32] = {"float32", KIND_FLOAT},
    [DT_F64] = {"float64", KIND_FLOAT},
};

const char *dtype_name(DType d) {
    return rows[d].name;
}
int dtype_size(DType d) {
    return (int)k_dtype_size(d);
}
DKind dtype_kind(DType d) {
    return (DKind)rows[d].kind;
}
double dtype_lowest(DType d) {
    return dtype_is_float(d) ? -INFINITY : (double)k_dtype_least(d);
}
double dtype_highest(DType d) {
    if (dtype_is_float(d)) return INFINITY;
    return d == DT_U64 ? (double)UINT64_MAX : (double)k_dtype_greatest(d);
}

int dtype_of(const char *name) {
    for (int d = 0; d < DT_COUNT; d++)
        if (strcmp(rows[d].name, name) == 0) return d;
    return -1;
}

/* Two strong types, a <= b. DType's order is by kind; floats stand by width, integers by sign, then
 * by width, so that the later one holds the earlier except for the pairs below. */
static DType meet(DType a, DType b) {
    if (a == DT_BF16 && b == DT_F16) return DT_F32;
    if (dtype_is_float(a) && dtype_size(a) == 1 && a != b) return DT_COUNT;
    bool wraps = dtype_kind(a) == KIND_INT && a <= DT_U64 && b >= DT_I8 && b <= DT_I64;
    if (!wraps || dtype_size(a) < dtype_size(b)) return b;
    return a == DT_U8 ? DT_I16 : a == DT_U64 ? DT_F64 : DT_I32;
}

DType dtype_promote(DType a, bool a_weak, DType b, bool b_weak) {
    if (a_weak == b_weak) return a < b ? meet(a, b) : meet(b, a);
    DType weak = a_weak ? a : b, strong = a_weak ? b : a;
    if (dtype_kind(weak) <= dtype_kind(strong)) return strong;
    return weak; /* a float meets integers, an integer meets bool: the weak one's default type */
}

double dtype_round(DType d, double x) {
    static const struct {
        int digits, lowest; /* the exponent of the smallest normal number, as frexp has it */
        double most, beyond;
    } narrow[DT_COUNT] = {[DT_E4M3] = {4, -5, 448, NAN},
                          [DT_E5M2] = {3, -13, 57344, INFINITY},
                          [DT_BF16] = {8, -125, 0x1.fep127, INFINITY},
                          [DT_F16] = {11, -13, 65504, INFINITY}};
    int exponent, lowest = narrow[d].lowest;
    if (d == DT_F32) return (double)(float)x;
    if (!dtype_is_narrow(d)) return x;
    x = (double)(float)x;
    if (x == 0 || isnan(x)) return x;
    if (isinf(x)) return copysign(narrow[d].beyond, x);
    frexp(x, &exponent);
    double step = ldexp(1, (exponent > lowest ? exponent : lowest) - narrow[d].digits);
    double y = rint(x / step) * step;
    return fabs(y) > narrow[d].most ? copysign(narrow[d].beyond, x) : y;
}

DType dtype_to_float(DType d) {
    return dtype_is_float(d) ? d : DT_F32;
}
DType dtype_accumulator(DType d) {
    if (dtype_is_narrow(d)) return DT_F32;
    if (dtype_kind(d) != KIND_INT || dtype_size(d) >= 4) return d;
    return k_dtype_least(d) < 0 ? DT_I32 : DT_U32;
}
