/* rows.h - the launch of a kernel whose unit of work is a row (rows.cuh). */
#ifndef MESHLUA_CUDA_ROWS_H
#define MESHLUA_CUDA_ROWS_H

#include "view.h"

typedef enum CudaKeep { CUDA_KEEP_NOT, CUDA_KEEP_SHARED, CUDA_KEEP_REGISTERS } CudaKeep;

typedef struct CudaRows {
    int64_t rows, n;    /* rows of n elements */
    int64_t blocks;     /* of `threads` */
    int vector, per;    /* elements of a vector; vectors of a thread in a step */
    int lanes, threads; /* of a team in a warp, or 0; of a block */
    CudaKeep keep;      /* what is looked at again */
    int64_t shared;     /* bytes of shared memory */
} CudaRows;

/* How rows of `t` are computed: operands with all the dims, then vectors over the last
 * one. The first `twice` of them are looked at twice. Depends on shapes only where it
 * could change a result. */
CudaRows cuda_rows(const Launches *p, const KTensor *const *t, int count, int twice);
/* Its rows, n and vector only. */
CudaRows cuda_rows_of(const KTensor *const *t, int count);
/* Opens the launch, with what rows.cuh needs to be told. */
void cuda_rows_launch(Launches *p, const CudaRows *r, const char *file, const char *entry);
/* A parameter Lines for an operand with all the dims. */
void cuda_lines(Launches *p, const KTensor *t);

#endif
