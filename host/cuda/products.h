/* products.h - products of matrices by cublasLt, which is opened for the first of them. */
#ifndef MESHLUA_CUDA_PRODUCTS_H
#define MESHLUA_CUDA_PRODUCTS_H

#include "cuda/api.h"
#include "cuda/launches.h"
#include "run/gpu/device.h"

/* What the products of one GPU share. */
typedef struct Products Products;

/* `folder`: where the choice of an algorithm is kept between runs; NULL: nowhere, and then nothing
 * is timed. `tf32`: operands of float32 are rounded to it. `rt`, `gpu` and `folder` must outlive
 * it. NULL: out of memory. */
Products *products_new(const ApiCudart *rt, const DeviceGpu *gpu, const char *folder, int tf32);
/* What rows ask for them; lives as long. */
const CudaLibrary *products_library(const Products *p);
/* After everything that was bound with it. */
void products_free(Products *p);

#endif
