/* parts.h - what a bound plan is made of: items, which are kernels on operands, by step; and in
 * which order they run. */
#ifndef MESHLUA_RUN_EXEC_PARTS_H
#define MESHLUA_RUN_EXEC_PARTS_H

#include "ir/plan.h"
#include "kernel.h"
#include "run/memory/tensor.h"
#include "run/pool.h"

typedef struct OperandRef { /* where an operand's bytes are */
    int32_t base;           /* index into Exec.base */
    int64_t offset;
    int32_t nslice; /* of a slice: what the loops around it add */
    const PlanStride *slice;
} OperandRef;

/* Which of several devices' guards hold in this turn: of those that share a slot, one is enough. */
typedef struct BoundGuard {
    const PlanGuard *guard;
    int64_t place;  /* plan_guard_place */
    int32_t parent; /* the guard around it of the same device, or -1 */
} BoundGuard;

typedef struct GuardList { /* of Exec.guarded: guards of devices; n 0: it always runs */
    int32_t first, n;
} GuardList;

typedef struct Item { /* one kernel on one slot's operands; collectives become several */
    const KernelRow *row;
    KArgs args;      /* all but workspace, units and fault; in and out are `tensor` */
    KTensor *tensor; /* inputs, then outputs */
    void *bound;     /* on a GPU: what Device.bind gave */
    OperandRef *ref;
    int32_t domain; /* that its operands are in, of this process's */
    bool sliced;    /* an operand moves with a loop: its address is worked out at each run */
    bool combined;  /* another item does its work: see combine.h */
    bool flipped;   /* its first result has a bit wrong: see Ctx */
    GuardList guards;
    int32_t step;
    int32_t with; /* another step that it does, too: see combine.h; or -1 */
    int64_t units;
} Item;

typedef struct OperandUse { /* an operand that follows a base */
    KTensor *tensor;
    int64_t offset;
} OperandUse;

enum { NEVER_WRITTEN = INT32_MAX };

typedef struct BoundParam {
    int32_t base, fresh; /* of its first slot; of what is written over it: see bind/fresh.h */
    const int32_t *slot; /* exec_class_slots */
    size_t each;         /* bytes of a slot of a private copy */
    int32_t written;     /* the first step that writes over its memory; NEVER_WRITTEN */
    bool stays;          /* in this call: a result may be the argument itself, see ARG_REPLACED */
    bool back;           /* in this call: see call_take_back */
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

typedef struct BoundStep {
    int32_t first, n;          /* items; a kernel step has one per slot of its outputs */
    struct Exchange *exchange; /* of a collective between domains, and of its DONE; or NULL */
    OperandRef steer;          /* LOOP, BRANCH: operand 0 */
    GuardList guards;          /* LOOP: those of all devices here; none where others wait inside */
} BoundStep;

/* What one thread does in one go: units [lo, hi) of a step's item for a slot. */
typedef struct Piece {
    int32_t step, slot;
    int64_t lo, hi;
} Piece;

/* Consecutive steps without a decision in between, as stages for the pool; without stages the
 * caller runs them alone. Or a LOOP or BRANCH; the segments of its bodies follow. Or the start or
 * the end of an exchange. */
typedef struct Segment {
    int32_t first, n; /* steps */
    int32_t shift;    /* of these */
    int32_t stage, nstage;
    int32_t nbody, *body; /* LOOP, BRANCH: the number of segments of each body */
    struct Exchange *exchange;
} Segment;

/* Scratch bytes for the operands of a sliced item, in front of the kernel's workspace. */
static inline size_t exec_operand_room(const Item *item) {
    size_t bytes = sizeof(KTensor) * (size_t)(item->args.nin + item->args.nout);
    return (bytes + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
}

#endif
