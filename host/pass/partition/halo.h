/* halo.h - parts of a dim with the edges of their neighbours, which travel instead of the dim. */
#ifndef MESHLUA_PASS_PARTITION_HALO_H
#define MESHLUA_PASS_PARTITION_HALO_H

#include "op/op.h"

/* v with `before` elements of the part before it along the axes in front, and `behind` of the next
 * part at its end; zeros where there is none. A part has at least as many. */
Val halo(Build *b, Val v, int dim, const AxisList *axes, int64_t before, int64_t behind);

#endif
