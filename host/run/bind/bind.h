/* bind.h - a plan becomes an Exec: which kernels on which bytes of this process, in which order.
 *
 * Step after step: bases, which are the buffers' slots; items, which are kernels on operands that
 * stand at an offset from a base (item.h; collectives: collective.h, exchange_bind.h); segments of
 * steps that follow one another whatever the data says; on a GPU launches of one item or several
 * (combine.h); on the processor stages of pieces for the threads (schedule.h). What only the
 * arguments of a call can tell, where the bases are, is left to the call. */
#ifndef MESHLUA_RUN_BIND_BIND_H
#define MESHLUA_RUN_BIND_BIND_H

#include "run/exec/exec.h"

/* Takes the plan. result_type has one global type per result. */
Err bind_exec(Runtime *rt, Plan *plan, const Mesh *mesh, const Type *const *result_type,
              Exec **out) MUST_CHECK;

#endif
