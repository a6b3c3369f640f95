/* plan_build.h - a plan while pass_plan makes it: growing lists, before they are placed and packed.
 */
#ifndef MESHLUA_PLAN_BUILD_H
#define MESHLUA_PLAN_BUILD_H

#include "pass/pass.h"

typedef struct BuildBuffer {
    BufferKind kind;
    uint32_t vary;
    int64_t bytes, offset;
    int32_t first, last; /* steps */
    int32_t param;       /* whose memory it is, or -1 */
    int32_t take;        /* RESULT: the donated param whose memory it gets, or -1 */
    bool given;          /* PARAM: a result takes it */
} BuildBuffer;

typedef struct BuildValue {
    const Type *type;
    int32_t buffer, noffset;
    int64_t offset, strides[MAX_RANK]; /* bytes */
    const Offset *per_device;          /* units in bytes */
} BuildValue;

typedef struct BuildStep {
    const Node *node;
    const char *kernel;
    const BuildValue *in, *out;
    int32_t nin, nout;
    const void *attr;
    int32_t attr_size, noffset;
    const Offset *offset;
    bool collective;
    double flops, bytes;
} BuildStep;

typedef struct PlanBuild {
    const Graph *g;
    const PassOptions *o;
    const uint8_t *donated; /* by param: a Donation */
    Arena *arena, memory;
    Err err;
    VEC(BuildStep) step;
    VEC(BuildBuffer) buffer;
    BuildValue *value;   /* by value of the graph */
    int32_t *value_last; /* by value: the last node that reads it or a view of it */
    int32_t *last_use;   /* by buffer: the last node that reads it */
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
bool plan_build_room(PlanBuild *p); /* last_use reaches to every buffer */
/* Offsets in the workspaces, from the steps between which buffers live. */
Err plan_build_place(PlanBuild *p) MUST_CHECK;
/* The lists as one block. */
Err plan_build_pack(PlanBuild *p, Plan **out) MUST_CHECK;

#endif
