/* pad.h - dims that their axes do not divide: every shard has ceil(size / parts) elements, and the
 * last ones are padded. What is in the padding never reaches a result: NaN (1 in other dtypes), so
 * that it would show. On local values of a partitioned graph. */
#ifndef MESHLUA_PASS_PARTITION_PAD_H
#define MESHLUA_PASS_PARTITION_PAD_H

#include "op/op.h"

/* The dim with its padding: the sum of its shards. */
int64_t pad_size(const Layout *l, const Dims *global, int dim);
/* The dim put together and cut to its `size`. */
Val pad_gather(Build *b, Val v, int dim, const AxisList *axes, int64_t size);
/* The whole dim padded to `padded` elements, of which each device keeps its part. */
Val pad_slice(Build *b, Val v, int dim, const AxisList *axes, int64_t padded);
/* v with the identity of the reduction behind the dim's end. */
Val pad_mask(Build *b, Val v, int dim, const AxisList *axes, int64_t size, FactorKind kind);

#endif
