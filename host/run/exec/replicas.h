/* replicas.h - what several processes hold of an argument must be the same bytes in all of them.
 *
 * Where a plan with exchanges runs for the first time each process sums up its arguments: one
 * number for all that vary along the same mesh axes. It goes out with the record that agrees on the
 * launch (agree.h); processes that hold the same slots must have the same number. A run that is not
 * the first says nothing and is held to nothing, so processes that have forgotten the plan and
 * bound it again, alone, do no harm. */
#ifndef MESHLUA_RUN_EXEC_REPLICAS_H
#define MESHLUA_RUN_EXEC_REPLICAS_H

#include "run/runtime/agree.h"
#include "run/exec/exec.h"

/* By param, in the Exec's arena; NULL where nothing is to be compared. */
typedef struct Replicas {
    int32_t n;                  /* sums */
    uint8_t vary[REPLICA_SUMS]; /* of each, axes */
    int8_t *sum_of;             /* by param: the sum that it is in, or -1 */
    int32_t *use;               /* the first step that reads it, or -1 */
    uint64_t *hash;             /* of each param, since the first run */
    bool summed;
} Replicas;

/* Which params of the plan several processes have. */
Err replicas_bind(Exec *e) MUST_CHECK;
/* Sums up the arguments, which are dense, for the agreement; at the first run only. For plans that
 * have `replicas`. */
Err replicas_sum(Exec *e, Tensor *const *args) MUST_CHECK;

/* Once all have said their sums: E_DIVERGED, with the argument, where two hold different bytes of
 * the same. All that take part call it, and it is the same in all. */
Err replicas_compare(Exec *e) MUST_CHECK;

#endif
