/* exec.h - a plan bound to this process: which kernel on which bytes, in which order, on how many
 * threads. Bound once, run many times. */
#ifndef MESHLUA_RUN_EXEC_EXEC_H
#define MESHLUA_RUN_EXEC_EXEC_H

#include "base/guard.h"
#include "ir/place.h"
#include "run/exec/parts.h"
#include "run/exec/replay.h"
#include "run/runtime/runtime.h"

struct Agreement;
struct Replicas;

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
    VEC(BoundGuard) guard;
    VEC(int32_t) guarded; /* lists of guards */
    BoundStep *step;
    VEC(Segment) segment;
    VEC(PoolStage) stage;
    VEC(Piece) piece;
    int32_t most_stages, most_queues; /* of a segment */
    /* This process's domains, and which of them may have devices of the mesh. */
    int32_t domains, first_domain, end_domain;
    int32_t *class_slot;  /* see exec_class_slots */
    char **base;          /* by buffer and slot: see first_base */
    int32_t *base_domain; /* by base: the domain, of this process's, that it is in */
    int32_t *first_base;  /* by buffer */
    int32_t nbase;
    int32_t wire_base;  /* behind the buffers': the wires', one of each domain: see exchange.h */
    int32_t fresh_base; /* behind those: see bind/fresh.h */
    int32_t writes;     /* the first step that writes over a param's memory; NEVER_WRITTEN */
    size_t wire_bytes;  /* in each domain */
    struct Exchange *exchange;   /* all of them, the latest first */
    struct Exchange *flying;     /* during a call: those that have begun and are not over */
    struct Agreement *agreement; /* with the other processes of the mesh, before what they exchange;
                                    or NULL */
    struct Replicas
        *replicas;      /* arguments that others hold, too, and must hold the same; or NULL */
    OperandUse *use;    /* those of base i are use_start[i] .. use_start[i + 1] */
    int32_t *use_start; /* nbase + 1 */
    bool moved;         /* a base has changed since the latest graphs were captured */
    Replay replay;
    int64_t scratch_moves; /* Gpus', when the latest graphs were captured */
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
    Counters *cost;      /* of one run, by device of the mesh; or one for all: see costs_of */
    int32_t ncost;
    int64_t runs;   /* that the runtime's counters do not hold yet */
    int64_t copied; /* donations that needed a copy because somebody else held the bytes */
} Exec;

Exec *exec_retain(Exec *e);
void exec_release(Exec *e);
/* What a device has done so far. */
const Counters *exec_counters(Runtime *rt, int32_t device);
/* Between this and guard_leave a broken invariant still ends the process, with
 * the plan in a file. */
void exec_guard(Exec *e, Guard *g);
/* What becomes of an argument whose memory a result wants. */
typedef enum ArgFate {
    ARG_DONATED, /* it still has its shards after the call; the caller deletes it */
    ARG_KEPT,    /* somebody still wants it: the memory may not be taken */
    ARG_REPLACED /* its one reference goes to a result: one may be the argument itself, retained */
} ArgFate;
/* Runs it: one tensor per param, of the types it was planned for, and what becomes of it. Fills
 * `results`. On fake devices nothing runs and the results have no data (run.c). */
Err exec_run(Exec *e, Tensor *const *args, const uint8_t *fate, Tensor **results) MUST_CHECK;

/* ---- places ---- */

/* This process's slots of a vary class (exec_class_slots): which one of the k-th domain's the
 * device at `coord` would use, or -1; where a slot is: its domain, and the coordinates of the first
 * device there that uses it. */
int32_t exec_slot(const Exec *e, int32_t k, uint32_t vary, const int32_t coord[MAX_AXES]);
int32_t exec_slot_place(const Exec *e, uint32_t vary, int32_t slot, int32_t coord[MAX_AXES]);
/* This process's k-th domain, among those of all. */
static inline int32_t exec_domain(const Exec *e, int32_t k) {
    return e->mesh ? e->mesh->domain + k : k;
}
/* The number in this process of the device at `index` of the mesh, or -1 if another has it. */
int32_t exec_device(const Exec *e, int32_t index);
/* The slots of a vary class by domain: the k-th has those from [k] to [k + 1]. */
static inline const int32_t *exec_class_slots(const Exec *e, uint32_t vary) {
    return &e->class_slot[(int32_t)vary * (e->domains + 1)];
}
/* Has the k-th domain devices on the mesh? */
static inline bool exec_uses(const Exec *e, int32_t k) {
    return exec_class_slots(e, 0)[k] < exec_class_slots(e, 0)[k + 1];
}
/* From one slot's part of a vary class's workspace to the next. */
static inline int64_t exec_class_stride(const Plan *p, uint32_t vary) {
    return (int64_t)buffer_slot_stride((size_t)PLAN_LIST(p, int64_t, p->classes)[vary]);
}
/* Where it is in this call, for the slices that the loops have come to. */
static inline char *exec_address(const Exec *e, const OperandRef *r) {
    char *at = e->base[r->base] + r->offset;
    for (int32_t i = 0; i < r->nslice; i++) {
        const PlanStride *s = &r->slice[i];
        at += s->bytes * (s->ring ? e->slice[s->loop] % s->ring : e->slice[s->loop]);
    }
    return at;
}
/* In this turn of the loops around. */
bool exec_holds(const Exec *e, GuardList list);
/* The operands in that buffer's slot follow. */
static inline void exec_set_base(Exec *e, int32_t base, char *at) {
    if (e->base[base] == at) return;
    e->base[base] = at;
    e->moved = true;
    for (int32_t i = e->use_start[base]; i < e->use_start[base + 1]; i++)
        e->use[i].tensor->data = at + e->use[i].offset;
}

/* The shard of an argument that a slot of the param has: one without a mesh has a single one, which
 * all domains want. */
static inline const Shard *exec_shard(const Exec *e, const BoundParam *p, const Tensor *t,
                                      int32_t slot) {
    return &t->shard[t->nslot == p->slot[e->domains] ? slot : 0];
}

static inline Err exec_no_memory(const Exec *e) {
    return err_nomem(e->rt->cx, "binding a plan");
}

#endif
