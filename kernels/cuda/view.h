/* view.h - what rows look for in their operands' dims and strides. */
#ifndef MESHLUA_CUDA_VIEW_H
#define MESHLUA_CUDA_VIEW_H

#include "row.h"

/* device.cuh's View: a parameter by value. */
typedef struct CudaView {
    int64_t dims[K_MAX_RANK], strides[K_MAX_RANK];
    int32_t rank;
    int32_t small;
} CudaView;

int64_t cuda_size(DType t); /* bytes of an element */
int64_t cuda_count(const KTensor *t);
int64_t cuda_ceil_div(int64_t a, int64_t b);
int64_t cuda_least(int64_t a, int64_t b);
int64_t cuda_most(int64_t a, int64_t b);
int cuda_power_of_2(int64_t n);         /* the first from n on */
int64_t cuda_magnitude(int64_t stride); /* without its sign */

/* Row-major without gaps. */
int cuda_is_dense(const KTensor *t);
/* Both have the same dims, and elements at the same places (dims of size 1 do not matter). */
int cuda_lies_as(const KTensor *a, const KTensor *b);

/* Drops dims of size 1 and merges neighbours that all `count` operands lay out as one; strides[k]
 * is operand k's. Keeps the row-major order of the elements. Returns the new rank. */
int cuda_collapse(int rank, int64_t *dims, int count, int64_t (*strides)[K_MAX_RANK]);
/* Sorts dims so that operand 0's strides fall in size; equal ones keep their order. */
void cuda_sort_dims(int rank, int64_t *dims, int count, int64_t (*strides)[K_MAX_RANK]);

/* The view of its first `rank` dims, collapsed. */
CudaView cuda_view_of(const KTensor *t, int rank);
/* A view with those dims and strides as they are. */
CudaView cuda_view(int rank, const int64_t *dims, const int64_t *strides);
/* cuda_bytes of cuda_view_of all dims. */
void cuda_view_param(Launches *p, const KTensor *t);

/* The widest vector, in elements (a power of two, at most 16 bytes), in which rows of n elements of
 * that size can be read whose first ones lie `rank` strides apart. The address of the first of all
 * is not known here: see is_aligned in device.cuh. */
int cuda_vector(int64_t n, int64_t size, int rank, const int64_t *strides);

#endif
