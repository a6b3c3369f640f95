/* plan_build.h - a plan while pass_plan makes it: growing lists, before they
 * are placed and packed. */
#ifndef MESHLUA_PASS_PLAN_PLAN_BUILD_H
#define MESHLUA_PASS_PLAN_PLAN_BUILD_H

#include "pass/pass.h"

typedef struct BuildBuffer {
    BufferKind kind;
    uint32_t vary;
    int64_t bytes, offset;
    int32_t first, last; /* steps */
    int32_t param;       /* whose memory it is, or -1 */
    int32_t take;        /* RESULT: the donated param whose memory it gets, or -1 */
    int32_t ring;        /* TEMP: it has places for several iterations of this span, from 1; or 0 */
    bool given;          /* PARAM: a result takes it */
} BuildBuffer;

typedef struct BuildValue {
    const Type *type;
    int32_t buffer, noffset;
    int64_t offset, strides[MAX_RANK]; /* bytes */
    const Offset *per_device;          /* units in bytes */
    int32_t nslice;
    const PlanStride *per_slice;
} BuildValue;

typedef struct BuildStep {
    const Node *node;
    const char *kernel;
    const BuildValue *in, *out;
    int32_t nin, nout;
    const void *attr;
    int32_t attr_size, noffset;
    const Offset *offset;
    StepKind kind;
    ControlInfo control;
    int32_t ahead, late; /* LOOP: turns, see PlanControl */
    int32_t shift, loop, nbody;
    int32_t *body; /* steps of each */
    int32_t parts;
    int32_t guard; /* from 1; 0: none */
    double flops, padded, anew, bytes, times;
} BuildStep;

typedef struct BuildRange { /* steps */
    int32_t at, end;
} BuildRange;

typedef struct BuildGuard { /* see PlanGuard */
    const GuardAttr *attr;
    int32_t parent, region, regions, nloop;
    PlanGuardLoop loop[MAX_RANK];
} BuildGuard;

/* The steps of a LOOP or BRANCH, itself the first. */
typedef struct BuildSpan {
    int32_t at, end, parent; /* parent: the span around it, from 1; 0: none */
} BuildSpan;

typedef struct PlanBuild {
    const Graph *g;
    const PassOptions *o;
    const uint8_t *donated; /* by param: a Donation */
    Arena *arena, memory;
    Err err;
    VEC(BuildStep) step;
    VEC(BuildBuffer) buffer;
    BuildValue *value;           /* by value of the graph */
    BuildValue **place;          /* by value: where it is wanted, or NULL */
    const BuildValue **source;   /* by value: of a collective's result, what is sent; else NULL */
    double times;                /* how often what is planned now runs */
    int32_t nloop, loop;         /* loop: the innermost that is planned now */
    int8_t *shift, *ring;        /* by node: see plan_shift.c */
    const int32_t **turn;        /* by region: its nodes in another order, then 0; or NULL */
    BuildRange *made;            /* by node: its steps, and those of its bodies */
    bool *lands;                 /* by node: a late wait for the next value of a carry */
    int32_t *landed;             /* by such a node: the step that copies it there, + 1 */
    int32_t now_shift, now_ring; /* of the steps and buffers that are made now */
    int32_t *region_first, *region_next; /* by region, by node: the nodes of each, or 0 */
    VEC(BuildSpan) span;
    VEC(BuildGuard) guard;
    int32_t guarded;     /* the guard of what is planned now, from 1 */
    int32_t within;      /* the span that is planned now, from 1 */
    int32_t *value_last; /* by value: the last node that reads it or a view of it */
    int32_t *last_use;   /* by buffer: the last node that reads it */
    int32_t *readers;    /* by buffer: scratch, 0 between uses */
    int32_t last_use_cap, now;
    int32_t last_fault, fault_step; /* the last node that can fault, and its step; -1: none */
    Val *param;
    int32_t nparam;
    BuildValue *result;
    int64_t class_bytes[1 << MAX_AXES];
} PlanBuild;

bool plan_build_init(PlanBuild *p, const Graph *g, const PassOptions *o, const uint8_t *donated);
void plan_build_free(PlanBuild *p);
void plan_build_no_memory(PlanBuild *p);

/* plan.c, for plan_control.c: a fresh buffer for v; a step; one that copies; may a result live in
 * the operand's buffer?; the steps of a node. */
void plan_own_buffer(PlanBuild *p, BuildValue *v, const Type *t, BufferKind kind);
BuildStep *plan_add_step(PlanBuild *p, const Node *n);
void plan_copy(PlanBuild *p, const Node *n, const BuildValue *from, const BuildValue *to);
bool plan_can_take(const PlanBuild *p, const BuildValue *in, const Type *out);
bool plan_set_operands(PlanBuild *p, BuildStep *s, const BuildValue *in, int nin,
                       const BuildValue *out, int nout);
void plan_node(PlanBuild *p, int32_t id);
/* May parameter i be written over from here on? When the program fails, one that the caller did not
 * offer must be as it was. */
bool plan_may_write(const PlanBuild *p, int32_t i, bool behind_last_fault);
/* A node that owns regions (plan_control.c). */
void plan_control(PlanBuild *p, int32_t id, const OpDef *def);
/* Once all steps are there: what lives at a LOOP or BRANCH lives until its bodies have run. */
void plan_control_stretch(PlanBuild *p);
/* Donated parameters that no step has taken over give their memory to a result of their size that
 * begins after their last use (plan_give.c). */
void plan_give_donated(PlanBuild *p);

/* Which nodes of loops belong to an iteration before or behind the one that the loop has come to,
 * and the order of their steps; into which those of a body, from `first` on, are brought at its end
 * (plan_shift.c). */
void plan_shift(PlanBuild *p);
void plan_shift_steps(PlanBuild *p, int32_t region, int32_t first);

bool plan_build_room(PlanBuild *p); /* last_use and readers reach to every buffer */
/* Offsets in the workspaces, from the steps between which buffers live. */
Err plan_build_place(PlanBuild *p) MUST_CHECK;
/* The lists as one block. */
Err plan_build_pack(PlanBuild *p, Plan **out) MUST_CHECK;

#endif
