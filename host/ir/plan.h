/* plan.h - the contract between the passes and run/: a program as a flat list of steps.
 *
 * A plan is one block of memory without pointers: the same bytes on every process, and hashable. It
 * knows the mesh's shape but no device, no address and no Lua. Everything per device follows from
 * the coordinates: which slot of a buffer a device uses, where a view starts, what an offset is.
 *
 * Slots: devices that agree along the axes of `vary` hold equal bytes, so a buffer has one slot for
 * each combination of coordinates along its vary axes (row-major in mesh order), where memory is
 * shared, and one for each device where it is not. */
#ifndef MESHLUA_PLAN_H
#define MESHLUA_PLAN_H

#include "ir/axes.h"
#include "ir/collective.h"
#include "ir/dtype.h"
#include "ir/role.h"

typedef struct PlanSpan { /* a list somewhere in the block */
    int32_t at, n;        /* byte offset, count */
} PlanSpan;

typedef enum BufferKind {
    BUFFER_PARAM,  /* an argument's memory */
    BUFFER_RESULT, /* allocated for the caller */
    BUFFER_TEMP    /* in the workspace of its vary class, at `offset` of each slot's part */
} BufferKind;

typedef struct PlanBuffer {
    int32_t kind, vary;
    int32_t index;  /* PARAM: which */
    int32_t take;   /* RESULT: the param whose memory it takes over when that is donated, or -1 */
    int64_t bytes;  /* of one slot */
    int64_t offset; /* TEMP */
    int32_t first, last; /* steps between which it is in use */
} PlanBuffer;

typedef struct PlanOffset { /* unit * index of the device along the axes */
    int64_t unit;
    AxisList axes;
} PlanOffset;

typedef struct PlanStride { /* bytes for each slice that a loop has come to */
    int64_t bytes;
    int32_t loop, ring; /* ring: behind so many the first place follows; 0: a place for each */
} PlanStride;

typedef struct PlanValue { /* a tensor as a kernel sees it: a view of a buffer's slot */
    int32_t buffer;
    uint8_t dtype, rank;
    uint8_t vary;        /* axes along which its bytes or its place differ */
    int64_t offset;      /* bytes from the slot's start */
    PlanSpan dims;       /* int64: rank dims, then rank byte strides */
    PlanSpan per_device; /* PlanOffset: bytes to add */
    PlanSpan per_slice;  /* PlanStride: the same, where it is a slice of a stack */
} PlanValue;

/* The steps of the bodies of a LOOP or BRANCH stand behind it. A collective starts where it stands;
 * where it overlaps with other steps, a DONE (operands: a result, and what it was made from) stands
 * where it must be over. A loop whose steps are shifted takes more turns than it has iterations: in
 * turn i a step does the work of iteration i + shift, if there is one. A DONE in front of its
 * collective, with a lower shift, waits for what began in an earlier turn. */
typedef enum StepKind { STEP_KERNEL, STEP_COLLECTIVE, STEP_LOOP, STEP_BRANCH, STEP_DONE } StepKind;
typedef struct PlanCollective {
    uint8_t kind, reduce; /* CollectiveKind, ReduceKind */
    uint8_t axes;         /* mask of the group's mesh axes */
    int32_t dim, dim2;    /* gather and scatter: the dim; all_to_all: split, concat */
    AxisList list;        /* gather, scatter, all_to_all: major to minor */
    PlanSpan from, to;    /* permute: AxisList of each dim */
    PlanSpan pairs;       /* permute without these: int32 source, destination, ... */
} PlanCollective;

typedef struct PlanOrigin { /* see Origin */
    uint16_t kind, axis;
    int32_t index, name, loc; /* the last two: strings, or 0 */
} PlanOrigin;

typedef struct PlanReason {    /* see Reason */
    int32_t text, tensor, loc; /* strings; loc may be 0 */
    PlanSpan origins;          /* PlanOrigin */
} PlanReason;

typedef struct PlanControl {
    int32_t loop;  /* LOOP: its number, for strides */
    bool reverse;  /* LOOP: the last slice first */
    int64_t trips; /* LOOP: -1: as long as operand 0 (bool) is true; BRANCH: operand 0 says which */
    int32_t ahead,
        late;      /* LOOP: turns before iteration 0 and behind the last, by its steps' shifts */
    PlanSpan body; /* int32: the number of steps of each body */
} PlanControl;

/* Of the loop with that number, whose slice counts `by` times. */
typedef struct PlanGuardLoop {
    int64_t by, loop, trips;
} PlanGuardLoop;

/* Which devices run a step, in which turns of the loops around it: those for which `region` stands
 * in `run` where the sum, of `axes` times the device's place and `loops` times slices, lies among
 * `cut` (see GuardAttr), and who run what `parent` guards. Those of a branch stand together. */
typedef struct PlanGuard {
    int32_t parent; /* from 1; 0: none */
    int32_t region, regions, unused;
    PlanSpan loops; /* PlanGuardLoop */
    PlanSpan axes;  /* int64: by axis of the mesh */
    PlanSpan cut;   /* int32, as run */
    PlanSpan run;
} PlanGuard;

typedef struct PlanStep {
    uint8_t kind, vary;
    uint8_t role;     /* Role */
    uint8_t product;  /* its operations are those of matrix products */
    uint8_t combines; /* see OPF_COMBINES */
    int8_t shift;     /* in a loop: 1: an iteration ahead of those of shift 0; -1: behind */
    int32_t name;     /* string: the kernel's, or the collective's */
    int32_t op;       /* string: the op's, for messages */
    PlanSpan in, out; /* int32: values */
    PlanSpan attr;    /* bytes: the kernel's struct */
    PlanSpan offsets; /* PlanOffset: the kernel's `offsets` */
    PlanCollective coll;
    PlanControl control;
    int32_t guard; /* from 1; 0: all devices run it, always */
    double times;  /* how often it runs, as far as known: the trips of the loops around it; with a
                    * guard, on the device that runs it most */
    double rounds; /* the trips alone */
    int32_t parts; /* into which its work is cut, where that is known; 0 */
    double flops;  /* of one device, each time; of these: */
    double padded; /* spent on padding */
    double anew;   /* done once more, in place of being kept */
    double bytes;  /* read and written by one device */
    PlanSpan locs; /* int32: strings, where it was written */
    PlanSpan why;  /* PlanReason: collectives have at least one */
    PlanSpan ops;  /* int32: strings, the ops of a fused step */
} PlanStep;

typedef struct PlanParam {
    int32_t value, name; /* value; string or 0 */
    int32_t donated;
} PlanParam;

typedef struct Plan {
    int64_t size;  /* bytes of the block */
    uint64_t hash; /* of everything behind this field */
    int32_t naxes, axis_size[MAX_AXES], ndevices;
    int32_t alignment, nloop;
    PlanSpan steps, values, buffers, params, guards;
    PlanSpan results;         /* int32: values */
    PlanSpan classes;         /* int64 per vary mask: workspace bytes of one slot */
    int64_t settled;          /* steps from here on do not fail; they alone write over Params */
    double flops, peak_bytes; /* one device: operations; params + results + workspace */
    double least_flops;       /* operations of the device that has the fewest; `flops`: the most */
} Plan;

/* A plan's bytes are hashed: what is copied into it as a whole has no padding, whose bytes nobody
 * sets. (PlanOffset, PlanValue and PlanStep are zeroed and filled member by member.) */
_Static_assert(sizeof(AxisList) == sizeof(uint16_t) * (1 + 3 * MAX_AXES), "padding");
_Static_assert(sizeof(PlanBuffer) == 4 * 4 + 2 * 8 + 2 * 4, "padding");
_Static_assert(sizeof(PlanStride) == 2 * 8, "padding");
_Static_assert(sizeof(PlanOrigin) == 2 * 2 + 3 * 4, "padding");
_Static_assert(sizeof(PlanReason) == 3 * 4 + sizeof(PlanSpan), "padding");
_Static_assert(sizeof(PlanParam) == 3 * 4, "padding");
_Static_assert(sizeof(PlanGuardLoop) == 3 * 8, "padding");
_Static_assert(sizeof(PlanGuard) == 4 * 4 + 4 * sizeof(PlanSpan), "padding");

#define PLAN_LIST(plan, T, span) ((const T *)(const void *)((const char *)(plan) + (span).at))
static inline const char *plan_str(const Plan *p, int32_t at) {
    return (const char *)p + at;
}
static inline const PlanStep *plan_step(const Plan *p, int32_t i) {
    return &PLAN_LIST(p, PlanStep, p->steps)[i];
}
static inline const PlanValue *plan_value(const Plan *p, int32_t i) {
    return &PLAN_LIST(p, PlanValue, p->values)[i];
}
static inline const PlanBuffer *plan_buffer(const Plan *p, int32_t i) {
    return &PLAN_LIST(p, PlanBuffer, p->buffers)[i];
}
static inline const int64_t *plan_dims(const Plan *p, const PlanValue *v) {
    return PLAN_LIST(p, int64_t, v->dims);
}
int64_t plan_offset(const Plan *p, const PlanOffset *o, const int32_t coord[MAX_AXES]);
/* Where in its buffer the value begins for the device at `coord`, in bytes; in a loop, the slice of
 * iteration 0. */
int64_t plan_place(const Plan *p, const PlanValue *v, const int32_t coord[MAX_AXES]);
/* The bytes that one device sends in a collective, all its times, counted as a ring would send
 * them: n - 1 of n parts for a gather or a scatter, twice that for an all_reduce, (n - 1) / n for
 * the others. */
double plan_collective_sent(CollectiveKind kind, double bytes, double n);
double plan_bytes_sent(const Plan *p, const PlanStep *s);
double plan_operand_bytes(const Plan *p, const PlanStep *s); /* of its inputs, one device */

/* guard: from 1. */
static inline const PlanGuard *plan_guard(const Plan *p, int32_t guard) {
    return &PLAN_LIST(p, PlanGuard, p->guards)[guard - 1];
}
/* What the device's place adds to the guard's sum. */
int64_t plan_guard_place(const Plan *p, const PlanGuard *g, const int32_t coord[MAX_AXES]);
/* Is what the guard alone guards run, for that, and slices by loop? */
bool plan_guard_holds(const Plan *p, const PlanGuard *g, int64_t place, const int64_t *slice);
/* How often the device runs the step. */
double plan_times_on(const Plan *p, const PlanStep *s, const int32_t coord[MAX_AXES]);
/* All operations of the device. */
double plan_flops_on(const Plan *p, const int32_t coord[MAX_AXES]);
uint32_t plan_guard_axes(const Plan *p); /* along which devices differ in what they run */
/* The coordinates of the i-th device of those that differ so, from 0; false behind the last. */
bool plan_guard_device(const Plan *p, int32_t i, int32_t coord[MAX_AXES]);

int32_t plan_steps_in(const Plan *p, const PlanStep *s); /* of all its bodies */
int32_t plan_loop_around(const Plan *p, int32_t step);   /* the innermost LOOP, or -1 */
/* The DONE that waits for the collective first, or -1: in front of it where that is for what began
 * in an earlier turn of the loop. */
int32_t plan_done_of(const Plan *p, int32_t step);

void plan_free(Ctx *cx, Plan *p);
/* Does every value lie in its buffer, while that is its own, is no operand overwritten while it is
 * read, and does nobody touch what a collective receives, or write what it sends, until its DONE?
 * E_PARSE if not. */
Err plan_verify(Ctx *cx, const Plan *p) MUST_CHECK;
void plan_print(const Plan *p, const Mesh *mesh, Str *s);
void plan_print_type(const Plan *p, const PlanValue *v, Str *s); /* "float32[8,4]" */

#endif
