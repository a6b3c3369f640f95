/* memory_check.h - on a GPU: whether there is memory for a call of a plan, before
 * anything of it runs. */
#ifndef MESHLUA_RUN_EXEC_MEMORY_CHECK_H
#define MESHLUA_RUN_EXEC_MEMORY_CHECK_H

#include "run/exec/exec.h"

/* Once its buffers are bound: E_NOMEM where the GPU's memory would not hold it alone. */
Err memory_check_plan(const Exec *e) MUST_CHECK;
/* E_NOMEM with what is needed of a GPU, what there is, and the plan's largest tensors with their
 * lines. */
Err memory_check_error(const Exec *e, int32_t domain);
/* The same where a call must take more memory of a GPU than others before it left, and there is too
 * little. */
Err memory_check(const Exec *e, int32_t domain) MUST_CHECK;

#endif
