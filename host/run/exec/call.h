/* call.h - one run of a bound plan: where its arguments, results and temporaries lie. */
#ifndef MESHLUA_RUN_EXEC_CALL_H
#define MESHLUA_RUN_EXEC_CALL_H

#include "run/exec/exec.h"

#include <stdatomic.h>

typedef struct ExecCall {
    Exec *e;
    Tensor *const *args;
    const uint8_t *fate;
    Tensor **results;
    bool late; /* a param has got other memory to be written to, and nothing is there yet */
    _Atomic int failed; /* set by the first worker that finds a fault */
    bool interrupted;
    bool
        whole; /* it writes its arguments, or others wait for it: Ctrl-C does not stop it halfway */
    Err lost;  /* what came of an exchange, or of the GPU's work, if it failed */
    KFault fault;
    int32_t fault_step;
    int32_t reached; /* no step from this one on has begun */
} ExecCall;

/* Makes workspaces and scratch as large as the plan needs them. */
Err call_grow(ExecCall *c) MUST_CHECK;
/* Gives every buffer of the plan its place in this call. */
Err call_place(ExecCall *c) MUST_CHECK;
/* Makes the result tensors, which share those places. */
Err call_results(ExecCall *c, Tensor **results) MUST_CHECK;
/* Before a param is written over: those that nobody else holds any more are written where they lie
 * after all, and the fresh memory that they would have taken is never touched. */
void call_take_back(ExecCall *c);
/* After a failure: arguments that a step has begun to write over are deleted. */
void call_drop_written(const ExecCall *c);
/* Lets go of the memory that only the results hold from here on. */
void call_release(Exec *e);

#endif
