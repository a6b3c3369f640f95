/* gpu_transport.h - the GPUs of all processes: who shares one, and what carries data between them:
 * NCCL, or, where it is asked for, the host's memory and MPI. */
#ifndef MESHLUA_RUN_RUNTIME_GPU_TRANSPORT_H
#define MESHLUA_RUN_RUNTIME_GPU_TRANSPORT_H

#include "run/runtime/runtime.h"

/* Opens the way between the GPUs of the processes; all of them call it, also those without one.
 * Where NCCL is missing there is none, and gpu_transport_need says so. E_RANKS where they have not
 * as many, or where two have the same one and not all have chosen theirs by number. */
Err gpu_transport_join(Runtime *rt) MUST_CHECK;
/* Before the GPUs, or the processes, go. */
void gpu_transport_leave(Runtime *rt);
/* E_RANKS unless there is a way; a single process opens it here. */
Err gpu_transport_need(Runtime *rt) MUST_CHECK;
/* From here on data goes through the host's memory; all processes, which have one GPU each, call
 * it. */
Err gpu_transport_use_host(Runtime *rt) MUST_CHECK;
/* What carries data between processes: "mpi", "nccl". */
const char *gpu_transport_backend(const Runtime *rt);

#endif
