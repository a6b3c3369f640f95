/* exec.h - a plan bound to this process: which kernel on which bytes, in which order, on how many
 * threads. Bound once, run many times. */
#ifndef MESHLUA_RUN_EXEC_EXEC_H
#define MESHLUA_RUN_EXEC_EXEC_H

#include "base/guard.h"
#include "run/exec/replay.h"
#include "run/runtime/runtime.h"
#include "run/memory/tensor.h"

typedef struct OperandRef { /* where an operand's bytes are */
    int32_t base;           /* index into Exec.base */
    int64_t offset;
    int32_t nslice; /* of a slice: what the loops around it add */
    const PlanStride *slice;
} OperandRef;

typedef struct Item { /* one kernel on one slot's operands; collectives become several */
    const KernelRow *row;
    KArgs args;      /* all but workspace, units and fault; in and out are `tensor` */
    KTensor *tensor; /* inputs, then outputs */
    void *bound;     /* on a GPU: what Device.bind gave */
    OperandRef *ref;
    int32_t domain; /* that its operands are in, of this process's */
    bool sliced;    /* an operand moves with a loop: its address is worked out at each run */
    bool joined;    /* another item does its work: see join.c, merge.c */
    int32_t step;
    int32_t with; /* another step that it does, too: see merge.c; or -1 */
    int64_t units;
} Item;

typedef struct Use { /* an operand that follows a base */
    KTensor *tensor;
    int64_t offset;
} Use;

enum { NEVER_WRITTEN = INT32_MAX };

typedef struct BoundParam {
    int32_t base;
    const int32_t *slot; /* exec_class_slots */
    size_t each;         /* bytes of a slot of a private copy */
    int32_t written;     /* the first step that writes over its memory; NEVER_WRITTEN */
    bool stays;          /* in this call: a result may be the argument itself, see ARG_REPLACED */
} BoundParam;

typedef struct BoundBuffer { /* one that is allocated for the caller */
    int32_t base;
    const int32_t *slot;
    size_t each;
} BoundBuffer;

typedef struct BoundShard { /* of a result: in an allocated buffer, or in a param's slot */
    int32_t own, param, domain, slot;
    int64_t place; /* within the slot */
} BoundShard;

typedef struct BoundResult {
    Tensor pattern;
    BoundShard *shard; /* pattern.nslot */
    int32_t instead;   /* the param all of whose memory it takes, slot by slot; or -1 */
} BoundResult;

struct Exchange;
struct Agreement;
struct Replicas;

typedef struct BoundStep {
    int32_t first, n;          /* items; a kernel step has one per slot of its outputs */
    struct Exchange *exchange; /* of a collective between domains, and of its DONE; or NULL */
    OperandRef steer;          /* LOOP, BRANCH: operand 0 */
} BoundStep;

/* What one thread does in one go: units [lo, hi) of a step's item for a slot. */
typedef struct Piece {
    int32_t step, slot;
    int64_t lo, hi;
} Piece;

/* Consecutive steps without a decision in between, as stages for the pool; without stages the
 * caller runs them alone. Or a LOOP or BRANCH; the stretches of its bodies follow. Or the start or
 * the end of an exchange. */
typedef struct Stretch {
    int32_t first, n; /* steps */
    int32_t stage, nstage;
    int32_t nbody, *body; /* LOOP, BRANCH: the number of stretches of each body */
    struct Exchange *exchange;
} Stretch;

typedef struct Exec {
    BoundPlan bound; /* first: the runtime's list leads back here */
    int32_t refs;
    Runtime *rt;
    Plan *plan;
    const Mesh *mesh;
    bool only_types;          /* nothing of it runs here: see bind_all */
    const Type **result_type; /* plan->results.n */
    Arena arena;
    VEC(Item) item;
    BoundStep *step;
    VEC(Stretch) stretch;
    VEC(PoolStage) stage;
    VEC(Piece) piece;
    int32_t most_stages, most_queues; /* of a stretch */
    /* This process's domains, and which of them may have devices of the mesh. */
    int32_t domains, first_domain, end_domain;
    int32_t *class_slot;       /* see exec_class_slots */
    char **base;               /* by buffer and slot: see first_base */
    int32_t *base_domain;      /* by base: the domain, of this process's, that it is in */
    int32_t *first_base;       /* by buffer */
    int32_t nbase, wire_base;  /* the last ones are the wires, one of each domain: see exchange.h */
    size_t wire_bytes;         /* in each domain */
    struct Exchange *exchange; /* all of them, the latest first */
    struct Exchange *flying;   /* during a call: those that have begun and are not over */
    struct Agreement *agreement; /* with the other processes of the mesh, before what they exchange;
                                    or NULL */
    struct Replicas
        *replicas;      /* arguments that others hold, too, and must hold the same; or NULL */
    Use *use;           /* those of base i are use_start[i] .. use_start[i + 1] */
    int32_t *use_start; /* nbase + 1 */
    bool moved;         /* a base has changed since the latest graphs were captured */
    Replay replay;
    int64_t scratch_moves; /* Gpu's, when the latest graphs were captured */
    int64_t moves;         /* Runtime's, when the bases of temporaries were set */
    int64_t *class_start;  /* by vary class and domain: where its part of the workspace begins */
    size_t workspace, scratch; /* bytes that a domain needs */
    int64_t *slice;            /* by loop: the slice it has come to */
    BoundParam *param;         /* plan->params.n */
    Buffer **copy;             /* by param and domain: during a call, its private copy, or NULL */
    BoundBuffer *buffer;       /* nbuffer: those results' that take no param's memory */
    Buffer **own;              /* by those and domain: during a call, the memory */
    int32_t nbuffer;
    BoundResult *result; /* plan->results.n */
    Counters cost;       /* of one run, one device */
    int64_t runs;        /* that the runtime's counters do not hold yet */
    int64_t copied;      /* donations that needed a copy because somebody else held the bytes */
} Exec;

/* Takes the plan. result_type has one global type per result. */
Err bind_exec(Runtime *rt, Plan *plan, const Mesh *mesh, const Type *const *result_type,
              Exec **out) MUST_CHECK;
Exec *bind_retain(Exec *e);
void bind_release(Exec *e);
/* Between this and guard_leave a broken invariant still ends the process, with the plan in a file.
 */
void exec_guard(Exec *e, Guard *g);
/* What becomes of an argument whose memory a result wants. */
typedef enum ArgFate {
    ARG_DONATED, /* it still has its shards after the call; the caller deletes it */
    ARG_KEPT,    /* somebody still wants it: the memory may not be taken */
    ARG_REPLACED /* its one reference goes to a result: one may be the argument itself, retained */
} ArgFate;
/* Runs it: one tensor per param, of the types it was planned for, and what becomes of it. Fills
 * `results`. On fake devices nothing runs and the results have no data. */
Err exec_run(Exec *e, Tensor *const *args, const uint8_t *fate, Tensor **results) MUST_CHECK;

/* What a device has done so far. */
const Counters *bind_counters(Runtime *rt, int32_t device);

#endif
