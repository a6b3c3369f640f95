/* runtime.h - what runs plans in this process: devices, threads, kernels, workspaces, counters. */
#ifndef MESHLUA_RUN_RUNTIME_RUNTIME_H
#define MESHLUA_RUN_RUNTIME_RUNTIME_H

#include "ir/plan.h"
#include "ir/target.h"
#include "run/blas.h"
#include "run/bound.h"
#include "run/gpu/gpu.h"
#include "run/comm/transport.h"
#include "run/pool.h"

/* What one device has done since the start, from the plans it ran. */
typedef struct Counters {
    double flops, matmul_flops;    /* operations; those of matrix products alone */
    double sent[COLL_PERMUTE + 1]; /* bytes, by CollectiveKind */
    int64_t collectives, plans;
} Counters;

typedef struct Workspace { /* memory of a domain that plans use in turn */
    char *at;
    size_t bytes;
} Workspace;

typedef struct Runtime {
    Ctx *cx;
    const Target *target;
    Ranks ranks;
    Transport transport;  /* to the other processes */
    int32_t *host;        /* of each process, from 0; NULL: all are on one */
    int32_t ndevices;     /* of this process */
    int32_t host_devices; /* fakes: how many stand in one host; 0: they are real */
    Gpus gpu;             /* where it runs plans; not there: on the processor */
    bool fake;            /* devices that can be planned for, not run on */
    const KernelRow *kernels;
    const char *level; /* of the kernels */
    Blas blas;
    Pool *pool;                       /* NULL until something runs */
    int64_t waited;                   /* nanoseconds, for other processes */
    int32_t stages, queues;           /* that it has room for */
    Workspace workspace[MAX_DOMAINS]; /* temporaries of the plan that runs */
    Workspace wire[MAX_DOMAINS];      /* what goes to other domains and comes from them */
    int64_t moves;                    /* so many times a workspace or a wire has moved */
    char *scratch;                    /* per thread */
    size_t scratch_each;
    Counters *counters;           /* by device; less what the execs have not been asked for yet */
    BoundPlans plans;             /* of all Execs */
    volatile int interrupted;     /* set by a signal handler; read between plans */
    volatile int stop_asked;      /* the signal by which this process was asked to stop, or 0 */
    volatile int stop_agreed;     /* all processes know that one was, at the same launch */
    bool interrupt_stops;         /* Ctrl-C asks to stop, it does not interrupt */
    bool save_asked, save_agreed; /* the same for a checkpoint: see core.ask_save */
    bool check_replicas;          /* see replicas.h */
    bool diverged;                /* a plan with exchanges ended in its middle here */
    bool retrying;                /* one found no memory to begin, and is tried again: see run.c */
    struct Profile *profile;      /* NULL: nothing is recorded */
} Runtime;

/* Reads --devices (or NULL) and the environment. */
Err runtime_init(Runtime *rt, Ctx *cx, const Ranks *ranks, const char *devices) MUST_CHECK;
void runtime_free(Runtime *rt);
/* Meets the other processes, once `ranks` is known. */
Err runtime_connect(Runtime *rt, const JoinFlags *join) MUST_CHECK;
/* "8", "cuda", "cuda:0,1", "cuda:0*8", "fake:64", "fake:h200:4096", "fake:h200:8x8" (hosts x
 * devices of each, which are 8 where nothing is said). */
Err runtime_set_devices(Runtime *rt, const char *devices) MUST_CHECK;
/* Threads and their memory for a plan that needs these; grows what is there. */
Err runtime_grow(Runtime *rt, size_t scratch_each, int32_t stages, int32_t queues) MUST_CHECK;
static inline bool runtime_ready(const Runtime *rt, size_t scratch_each, int32_t stages,
                                 int32_t queues) {
    return rt->pool && scratch_each <= rt->scratch_each && stages <= rt->stages &&
           queues <= rt->queues;
}
/* Of one of this process's domains. */
Err runtime_grow_workspace(Runtime *rt, int32_t domain, size_t bytes) MUST_CHECK;
Err runtime_grow_wire(Runtime *rt, int32_t domain, size_t bytes) MUST_CHECK;
const KernelRow *runtime_kernel(const Runtime *rt, const char *name); /* NULL: none */
/* Devices are numbered by process, then within it; each process has as many. */
static inline int32_t runtime_device_count(const Runtime *rt) {
    return rt->ndevices * rt->ranks.world;
}
static inline int32_t runtime_first_device(const Runtime *rt) {
    return rt->ndevices * rt->ranks.rank;
}
/* Of the pool: as many as this process has cores for, or what MESHLUA_THREADS says. Processes on
 * one host share its cores. */
int runtime_threads(const Runtime *rt);

#endif
