/* agree.h - the processes say what they are about to do before they do it together.
 *
 * Each sends a record to the others that take part and has theirs before it waits for data, so that
 * a process that does something else becomes an error, here and there, and not a wait without end.
 * Every launch of a plan with exchanges begins with one, and so do the end of a script and a change
 * of the devices. What is local (rank 0 prints a mean) takes no part. */
#ifndef MESHLUA_RUN_RUNTIME_AGREE_H
#define MESHLUA_RUN_RUNTIME_AGREE_H

#include "run/runtime/runtime.h"

typedef enum AgreeKind {
    AGREE_DEVICES,
    AGREE_LAUNCH,
    AGREE_FAILURE, /* it cannot begin a launch */
    AGREE_END
} AgreeKind;

enum { AGREE_FIRST = 112, REPLICA_SUMS = 8 };

/* What a process holds of a launch's arguments that others may hold, too: see replicas.h. */
typedef struct ReplicaSum {
    uint64_t place; /* the same where two hold the same parts; 0: nothing is said */
    uint64_t data;
} ReplicaSum;

/* What a process was asked for, which all do at the same launch. */
enum AskedFor { ASKED_STOP = 1, ASKED_SAVE = 2 };

/* Plain bytes: it is sent as it is. */
typedef struct AgreeRecord {
    int32_t kind;   /* AgreeKind */
    uint32_t asked; /* AskedFor, or-ed */
    uint64_t value;
    char first[AGREE_FIRST]; /* for people: what a launch exchanges first; cut where longer */
    ReplicaSum sum[REPLICA_SUMS];
} AgreeRecord;

typedef struct Agreement {
    int32_t n; /* other processes */
    CommPart *send, *recv;
    AgreeRecord mine, *theirs;
    const Plan *plan; /* of a launch, else NULL */
    ExchangeInfo what;
    char launch[FLIGHT_LOG_OP]; /* "launch of all_reduce" */
    Transfer transfer;
    bool pending;
} Agreement;

/* Room to agree with `peer`, n of them. Of a launch (else NULL) the plan and what it exchanges
 * first; both stay. */
Err agree_init(Agreement *a, Ctx *cx, Arena *arena, const int32_t *peer, int32_t n,
               const Plan *plan, const ExchangeInfo *first) MUST_CHECK;
/* Says it; `value`: what all must have in common. Every begin has its end. */
Err agree_begin(Runtime *rt, Agreement *a, AgreeKind kind, uint64_t value) MUST_CHECK;
/* Hears it: E_DIVERGED where another says something else (of the devices: E_RANKS). Sets
 * rt->stop_agreed, rt->save_agreed where the processes are all there are and one was asked. */
Err agree_end(Runtime *rt, Agreement *a) MUST_CHECK;
/* The two, with all processes; nothing for one alone. */
Err agree_all(Runtime *rt, AgreeKind kind, uint64_t value) MUST_CHECK;

#endif
