#include "ir/dtype.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int8_t size, kind;
    double lowest, highest;
} rows[DT_COUNT] = {
    [DT_BOOL] = {"bool", 1, KIND_BOOL, 0, 1},
    [DT_U8] = {"uint8", 1, KIND_INT, 0, 255},
    [DT_U32] = {"uint32", 4, KIND_INT, 0, 4294967295.0},
    [DT_I32] = {"int32", 4, KIND_INT, -2147483648.0, 2147483647.0},
    [DT_I64] = {"int64", 8, KIND_INT, -9223372036854775808.0, 9223372036854775807.0},
    [DT_BF16] = {"bfloat16", 2, KIND_FLOAT, -INFINITY, INFINITY},
    [DT_F16] = {"float16", 2, KIND_FLOAT, -INFINITY, INFINITY},
    [DT_F32] = {"float32", 4, KIND_FLOAT, -INFINITY, INFINITY},
    [DT_F64] = {"float64", 8, KIND_FLOAT, -INFINITY, INFINITY},
};

const char *dtype_name(DType d) {
    return rows[d].name;
}
int dtype_size(DType d) {
    return rows[d].size;
}
DKind dtype_kind(DType d) {
    return (DKind)rows[d].kind;
}
double dtype_lowest(DType d) {
    return rows[d].lowest;
}
double dtype_highest(DType d) {
    return rows[d].highest;
}

int dtype_of(const char *name) {
    for (int d = 0; d < DT_COUNT; d++)
        if (strcmp(rows[d].name, name) == 0) return d;
    return -1;
}

/* Two strong types of different name. The table is symmetric: only the upper half is written. */
static DType meet(DType a, DType b) {
    if (a == b) return a;
    if (a > b) {
        DType t = a;
        a = b;
        b = t;
    }
    /* DType's order within a kind is by width, so the later one holds the earlier except for the
     * pairs below. */
    if (a == DT_BF16 && b == DT_F16) return DT_F32;
    return b;
}

DType dtype_promote(DType a, bool a_weak, DType b, bool b_weak) {
    if (a_weak == b_weak) return meet(a, b);
    DType weak = a_weak ? a : b, strong = a_weak ? b : a;
    if (dtype_kind(weak) <= dtype_kind(strong)) return strong;
    return weak; /* a float meets integers, an integer meets bool: the weak one's default type */
}

double dtype_round(DType d, double x) {
    bool half = d == DT_F16;
    if (d != DT_F32 && !half && d != DT_BF16) return x;
    x = (double)(float)x;
    if (d == DT_F32 || x == 0 || !isfinite(x)) return x;
    int exponent, lowest = half ? -13 : -125; /* of the smallest normal number, as frexp has it */
    frexp(x, &exponent);
    double step = ldexp(1, (exponent > lowest ? exponent : lowest) - (half ? 11 : 8));
    double y = rint(x / step) * step;
    return fabs(y) > (half ? 65504.0 : 0x1.fep127) ? copysign(INFINITY, x) : y;
}

DType dtype_to_float(DType d) {
    return dtype_is_float(d) ? d : DT_F32;
}
DType dtype_accumulator(DType d) {
    return d == DT_BF16 || d == DT_F16 ? DT_F32 : d;
}
