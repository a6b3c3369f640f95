/* convert.h - runs of elements of one dtype to another, as astype does it; but a value that the
 * other cannot hold is not made to fit. */
#ifndef MESHLUA_RUN_DISK_CONVERT_H
#define MESHLUA_RUN_DISK_CONVERT_H

#include "ir/dtype.h"

/* n elements, strides in bytes. The first that does not fit, or -1: a number becoming infinite, NaN
 * or what is out of range becoming an integer, a bool neither 0 nor 1. Fractions are cut. */
int64_t convert_run(DType to, char *out, int64_t out_stride, DType from, const char *in,
                    int64_t in_stride, int64_t n);
/* n[0] times n[1] elements; strides of the outer loop, of the inner. The element that does not fit,
 * or NULL. */
const char *convert_plane(DType to, char *out, const int64_t out_stride[2], DType from,
                          const char *in, const int64_t in_stride[2], const int64_t n[2]);
/* Are the bytes of the one those of the other, whatever they are? */
static inline bool convert_is_copy(DType to, DType from) {
    return to == from && to != DT_BOOL;
}
/* An element: a whole number that an int64 holds, or not. */
typedef struct ConvertValue {
    bool whole;
    int64_t i;
    double f;
} ConvertValue;
ConvertValue convert_get(DType d, const char *at);
/* The same as a double, for messages. */
double convert_value(DType d, const char *at);

#endif
