/* movement.h - copies, as a part of other kernels. */
#ifndef MESHLUA_CUDA_MOVEMENT_H
#define MESHLUA_CUDA_MOVEMENT_H

#include "row.h"

/* Copies operand k_from (`from`) to operand k_to (`to`), so many bytes into it, whose dims are at
 * least as large; nothing is done where both are one memory. */
void movement_copy(Launches *p, const KTensor *from, int k_from, const KTensor *to, int k_to,
                   int64_t bytes);

#endif
