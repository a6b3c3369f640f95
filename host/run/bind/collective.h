/* collective.h - collectives between devices of one domain: every device's result is written from
 * the others' memory in one pass. */
#ifndef MESHLUA_RUN_BIND_COLLECTIVE_H
#define MESHLUA_RUN_BIND_COLLECTIVE_H

#include "run/bind/group.h"
#include "run/exec/exec.h"

/* All groups of this process, whose members are all in one domain. */
Err bind_collective(Exec *e, const DeviceGroup *g) MUST_CHECK;

#endif
