/* reduce.h - the items that collectives come down to: copies, zeros, and reductions in the order of
 * a tree (group.h), by the kernels `copy`, `fused` and `tree_sum`. */
#ifndef MESHLUA_RUN_BIND_REDUCE_H
#define MESHLUA_RUN_BIND_REDUCE_H

#include "run/bind/group.h"
#include "run/bind/item.h"

Err bind_copy(Exec *e, const PlanStep *s, const ItemOperand *from,
              const ItemOperand *to) MUST_CHECK;
Err bind_zeros(Exec *e, const PlanStep *s, const ItemOperand *to) MUST_CHECK;
/* An item that reduces n tensors, the roots of a tree. */
Err bind_reduction(Exec *e, const PlanStep *s, const Subtree *root, const ItemOperand *from,
                   int32_t n, const ItemOperand *to) MUST_CHECK;

#endif
