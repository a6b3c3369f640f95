/* attr.h - what an op knows beside its operands. Each op has a struct and a table of its fields;
 * from the table alone attributes are compared, hashed, printed, parsed and bound to Lua. */
#ifndef MESHLUA_ATTR_H
#define MESHLUA_ATTR_H

#include "ir/type.h"

typedef enum AttrKind {
    ATTR_INT,    /* int64_t */
    ATTR_BOOL,   /* int32_t, 0 or 1 */
    ATTR_FLAG,   /* the same, and not printed where it is 0 */
    ATTR_FLOAT,  /* double */
    ATTR_NUMBER, /* the same, and not printed where it is 0 */
    ATTR_DTYPE,  /* int32_t, a DType */
    ATTR_SCALAR, /* Scalar: a number of the dtype field before it */
    ATTR_DIM,    /* int32_t: a dim, 0-based here, 1-based in text and in Lua */
    ATTR_DIMS,   /* Dims: a list of dims, counted as ATTR_DIM; -1: none */
    ATTR_SHAPE,  /* Dims: sizes */
    ATTR_LIST,   /* Dims: plain integers */
    ATTR_SOME,   /* the same, and not printed where there are none */
    ATTR_AXES,   /* AxisList */
    ATTR_MASK,   /* uint32_t: a set of mesh axes */
    ATTR_LAYOUT, /* const Layout *, or NULL */
    ATTR_NAME,   /* const char *, interned, or NULL */
    ATTR_ENUM,   /* int32_t, an index into `names` */
    ATTR_INTS,   /* const IntList * */
} AttrKind;

typedef struct AttrField {
    const char *name; /* NULL ends the table */
    AttrKind kind;
    size_t offset;
    const char *const *names; /* ATTR_ENUM: words, NULL-terminated */
} AttrField;

#define ATTR_FIELD(type, kind, field)                                                              \
    { #field, kind, offsetof(type, field), NULL }

/* Integers are exact in `i`, floats in `f`; the other holds the same number converted. */
typedef struct Scalar {
    int64_t i;
    double f;
} Scalar;

/* A list of any length, interned. */
typedef struct IntList {
    int32_t n, at[];
} IntList;

/* Which region of a branch runs: that of number run[i] where cut[i - 1] <= sum < cut[i], of `loops`
 * times the slices that the loops around it have come to, the innermost first, and `mesh` times the
 * device's place along each axis. */
typedef struct GuardAttr {
    Dims loops, mesh;
    const IntList *cut, *run; /* ascending; one more of these */
} GuardAttr;

/* NULL when out of memory. */
const IntList *attr_list_of(Ctx *cx, const int32_t *at, int32_t n);

Scalar attr_scalar_int(int64_t i);
Scalar attr_scalar_float(double f);

bool attr_equal(const AttrField *fields, const void *a, const void *b);
uint64_t attr_hash(const AttrField *fields, const void *a, uint64_t h);
/* Is there anything to print? Flags that are not set are never said. */
bool attr_says(const AttrField *fields, const void *a, bool full);
/* "{axes=[1], keepdims=true}"; nothing when there are no fields. */
void attr_print(const AttrField *fields, const void *a, const Mesh *m, Str *s);
/* The same in the full form (full.h), which reads back as the same bits. */
void attr_print_full(const AttrField *fields, const void *a, const Mesh *m, Str *s);

#endif
