/* matmul.h - which products are the library's. */
#ifndef MESHLUA_CUDA_MATMUL_H
#define MESHLUA_CUDA_MATMUL_H

#include "row.h"

/* Whether the library is to make this product (kernel "matmul"), and how. */
int k_cuda_library_product(const KArgs *a, CudaProduct *q);

#endif
