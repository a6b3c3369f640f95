/* reduce.h - reductions that are part of another kernel. */
#ifndef MESHLUA_CUDA_REDUCE_H
#define MESHLUA_CUDA_REDUCE_H

#include "view.h"

/* Adds up what lies at `scratch` as a dense [lines, parts, columns] of float32 (`wide`: float64)
 * over its parts, to operand k: `to` has dims [lines, columns]. */
void reduce_parts(Launches *p, size_t scratch, int64_t parts, int wide, int k, const KTensor *to);

#endif
