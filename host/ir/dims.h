/* dims.h - a list of at most MAX_RANK integers: a shape, a list of dims, starts, limits. */
#ifndef MESHLUA_DIMS_H
#define MESHLUA_DIMS_H

#include "base/err.h"
#include "base/str.h"
#include "kernel.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANK = K_MAX_RANK };
#define DIMS_MOST ((int64_t)1 << 56) /* elements of a tensor: their bytes fit in 62 bits */

typedef struct Dims {
    int32_t rank;
    int64_t at[MAX_RANK]; /* unused ones are 0, so that equal lists have equal bytes */
} Dims;

bool dims_equal(const Dims *a, const Dims *b);
/* The number of elements; -1 if the sizes that are not 0 multiply to more than DIMS_MOST. */
int64_t dims_count(const Dims *d);
void dims_push(Dims *d, int64_t x);           /* room is the caller's to know */
void dims_insert(Dims *d, int at, int64_t x); /* the same */
bool dims_has(const Dims *d, int64_t x);
/* Row-major strides, the last of them `unit`: 1 counts elements, an element's size bytes. */
void dims_strides(const Dims *d, int64_t unit, int64_t strides[MAX_RANK]);
/* The shape that both broadcast to (numpy's rule); false where a dim differs and neither is 1. */
bool dims_broadcast(const Dims *a, const Dims *b, Dims *out);

#endif
