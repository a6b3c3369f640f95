/* fresh.h - params that are written without a copy though others hold their memory.
 *
 * Most params that a plan writes are written once, whole, by one kernel that may as well write
 * elsewhere. What it writes, and what reads that later, has bases of its own (BoundParam.fresh): at
 * the same addresses in most calls, in other memory where somebody holds the param's. */
#ifndef MESHLUA_RUN_BIND_FRESH_H
#define MESHLUA_RUN_BIND_FRESH_H

#include "run/exec/exec.h"

/* Moves operands of the items to those bases. `param`: by buffer, the param that it is, + 1. */
Err fresh_bind(Exec *e, const int32_t *param) MUST_CHECK;

#endif
