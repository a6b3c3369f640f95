/* reshard.h - from one layout of a tensor to another, as collectives on local values. */
#ifndef MESHLUA_RESHARD_H
#define MESHLUA_RESHARD_H

#include "op/op.h"
#include "pass/pass.h"

/* Appends to `b` (a partitioned graph) what turns the local value `v` of a tensor with the `global`
 * dims from one layout into the other; `to` has no partial axes. Every dim must be divided evenly
 * by its axes in both. */
Val reshard(Build *b, Val v, const Dims *global, const Layout *from, const Layout *to);

#endif
