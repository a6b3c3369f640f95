/* dtype, dims, attr and factor: tables and small functions without a graph. */
#include "ir/attr.h"
#include "ir/dtype.h"
#include "ir/factor.h"
#include "test.h"

#include <string.h>

static void test_promote(void) {
    /* jax.numpy.promote_types with 64-bit types off, except that a 64-bit tensor keeps its width */
    static const struct {
        DType a, b, meet;
    } rows[] = {
        {DT_BOOL, DT_U8, DT_U8},   {DT_BOOL, DT_F16, DT_F16},  {DT_U8, DT_I32, DT_I32},
        {DT_U8, DT_U32, DT_U32},   {DT_U32, DT_I32, DT_I32},   {DT_I32, DT_I64, DT_I64},
        {DT_U32, DT_I64, DT_I64},  {DT_I32, DT_BF16, DT_BF16}, {DT_I32, DT_F16, DT_F16},
        {DT_U32, DT_F32, DT_F32},  {DT_I64, DT_F16, DT_F16},   {DT_BF16, DT_F16, DT_F32},
        {DT_BF16, DT_F32, DT_F32}, {DT_F16, DT_F32, DT_F32},   {DT_F32, DT_F64, DT_F64},
        {DT_I64, DT_F64, DT_F64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        DType a = rows[i].a, b = rows[i].b;
        CHECKF(dtype_promote(a, false, b, false) == rows[i].meet, "%s %s", dtype_name(a),
               dtype_name(b));
        CHECK(dtype_promote(b, false, a, false) == rows[i].meet);
    }
    for (int d = 0; d < DT_COUNT; d++) {
        DType t = (DType)d;
        CHECK(dtype_of(dtype_name(t)) == d);
        CHECK(dtype_promote(t, false, t, false) == t);
        /* a Lua number never widens a tensor within its kind */
        if (t != DT_BOOL) CHECK(dtype_promote(t, false, DT_I32, true) == t);
        CHECK(dtype_promote(t, false, DT_F32, true) == (dtype_is_float(t) ? t : DT_F32));
    }
    CHECK(dtype_promote(DT_BOOL, false, DT_I32, true) == DT_I32);
    CHECK(dtype_of("float") == -1);
    CHECK(dtype_to_float(DT_I64) == DT_F32 && dtype_to_float(DT_BF16) == DT_BF16);
    CHECK(dtype_accumulator(DT_F16) == DT_F32 && dtype_accumulator(DT_F64) == DT_F64);
}

static void test_dims(void) {
    Dims a = {3, {2, 1, 5}}, b = {2, {4, 5}}, c = {2, {3, 5}}, out;
    CHECK(dims_count(&a) == 10);
    CHECK(dims_count(&(Dims){0}) == 1);
    CHECK(dims_count(&(Dims){2, {0, 5}}) == 0);
    CHECK(dims_count(&(Dims){3, {1 << 30, 1 << 30, 16}}) == -1);
    CHECK(dims_count(&(Dims){3, {INT64_MAX, INT64_MAX, 0}}) <= 0);
    CHECK(dims_broadcast(&a, &b, &out) && dims_equal(&out, &(Dims){3, {2, 4, 5}}));
    CHECK(dims_broadcast(&b, &a, &out) && dims_equal(&out, &(Dims){3, {2, 4, 5}}));
    CHECK(!dims_broadcast(&b, &c, &out));
    CHECK(dims_broadcast(&(Dims){0}, &b, &out) && dims_equal(&out, &b));
    int64_t strides[MAX_RANK];
    dims_strides(&(Dims){3, {2, 3, 4}}, 1, strides);
    CHECK(strides[0] == 12 && strides[1] == 4 && strides[2] == 1);
    CHECK(dims_has(&b, 4) && !dims_has(&b, 3));
}

typedef struct Attr {
    int64_t i;
    int32_t flag, dtype, axis, kind;
    double f;
    Scalar value;
    Dims axes, shape;
    const char *name;
} Attr;

static const char *const kinds[] = {"sum", "max", NULL};
static const AttrField fields[] = {ATTR_FIELD(Attr, ATTR_INT, i),
                                   ATTR_FIELD(Attr, ATTR_BOOL, flag),
                                   ATTR_FIELD(Attr, ATTR_FLOAT, f),
                                   ATTR_FIELD(Attr, ATTR_DTYPE, dtype),
                                   ATTR_FIELD(Attr, ATTR_SCALAR, value),
                                   ATTR_FIELD(Attr, ATTR_DIM, axis),
                                   ATTR_FIELD(Attr, ATTR_DIMS, axes),
                                   ATTR_FIELD(Attr, ATTR_SHAPE, shape),
                                   ATTR_FIELD(Attr, ATTR_NAME, name),
                                   {"kind", ATTR_ENUM, offsetof(Attr, kind), kinds},
                                   {NULL, ATTR_INT, 0, NULL}};

static void test_attr(void) {
    Attr a = {.i = -3, .flag = 1, .dtype = DT_I32, .f = 0.5, .value = attr_scalar_int(7)};
    a.axes = (Dims){2, {0, 2}};
    a.shape = (Dims){1, {9}};
    a.name = "w";
    Alloc alloc = {.fail_in = -1};
    Str s;
    str_init(&s, &alloc);
    attr_print(fields, &a, NULL, &s);
    CHECKF(strcmp(str_of(&s), "{i=-3, flag=true, f=0.5, dtype=int32, value=7, axis=1, axes=[1,3], "
                              "shape=[9], name=\"w\", kind=sum}") == 0,
           "%s", str_of(&s));
    str_free(&s);
    Attr b = a;
    CHECK(attr_equal(fields, &a, &b) && attr_hash(fields, &a, 0) == attr_hash(fields, &b, 0));
    b.shape.at[3] = 99; /* beyond its rank: no part of it */
    CHECK(attr_equal(fields, &a, &b) && attr_hash(fields, &a, 0) == attr_hash(fields, &b, 0));
    b.axes.at[1] = 1;
    CHECK(!attr_equal(fields, &a, &b) && attr_hash(fields, &a, 0) != attr_hash(fields, &b, 0));
    CHECK(attr_scalar_float(2.75).i == 2 && attr_scalar_float(1e30).i == 0 &&
          attr_scalar_int(4).f == 4.0);
}

static void test_factor(void) {
    FactorMap maps[3] = {0};
    FactorRule r = {.ntensor = 3, .tensor = maps};
    int i = factor_add(&r, FACTOR_PASS, 64), k = factor_add(&r, FACTOR_SUM, 512),
        j = factor_add(&r, FACTOR_PASS, 2048);
    factor_map(&r, 0, 0, i), factor_map(&r, 0, 1, k);
    factor_map(&r, 1, 0, k), factor_map(&r, 1, 1, j);
    factor_map(&r, 2, 0, i), factor_map(&r, 2, 1, j);
    CHECK(factor_in(&maps[0], 2, k) && !factor_in(&maps[2], 2, k));
    Alloc alloc = {.fail_in = -1};
    Str s;
    str_init(&s, &alloc);
    factor_print(&r, 2, (int[]){2, 2, 2}, &s);
    CHECKF(strcmp(str_of(&s), "([i,j],[j,k])->([i,k]) {i=64, j=512, k=2048, sum=j}") == 0, "%s",
           str_of(&s));
    str_free(&s);
}

int main(void) {
    test_promote();
    test_dims();
    test_attr();
    test_factor();
    return test_end();
}
