/* dtype.h - names, sizes and the meeting of element types (the enum is kernel.h's). */
#ifndef MESHLUA_DTYPE_H
#define MESHLUA_DTYPE_H

#include "kernel.h"

#include <stdbool.h>

typedef enum DKind { KIND_BOOL, KIND_INT, KIND_FLOAT } DKind;

const char *dtype_name(DType d); /* in full: "float32" */
int dtype_of(const char *name);  /* a DType, or -1 */
int dtype_size(DType d);         /* bytes */
DKind dtype_kind(DType d);
static inline bool dtype_is_float(DType d) {
    return dtype_kind(d) == KIND_FLOAT;
}

/* A float that is stored, and computed in float32. */
static inline bool dtype_is_narrow(DType d) {
    return dtype_is_float(d) && dtype_size(d) < 4;
}

/* The type in which two tensors meet: JAX's lattice with 64-bit types off, except that a 64-bit
 * tensor keeps its width. A weak operand (a Lua number) takes the other's type within its kind.
 * DT_COUNT: an 8-bit float meets no other float. */
DType dtype_promote(DType a, bool a_weak, DType b, bool b_weak);
#define DTYPE_APART "%s and %s do not meet by themselves; convert one with astype"
/* What a mean, a division or a sine of `d` has: floats stay, the others become float32. */
DType dtype_to_float(DType d);
/* What sums and products of `d` are accumulated in where they have room: 32 bits of its kind, or
 * as many as it has. */
DType dtype_accumulator(DType d);
/* The lowest and highest values as doubles (64-bit integers rounded); floats: -inf, inf. In full
 * k_dtype_least, k_dtype_greatest. */
double dtype_lowest(DType d);
double dtype_highest(DType d);
/* The float of the dtype that is nearest to x, ties to even; narrow floats by way of float32. */
double dtype_round(DType d, double x);

#endif
