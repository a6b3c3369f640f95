/* plan.h - what a kernel does for given operands, as its row has said it: launches, fills and
 * calls of libraries, one after the other. The functions that build it are those of
 * kernels/cuda/row.h. */
#ifndef MESHLUA_CUDA_PLAN_H
#define MESHLUA_CUDA_PLAN_H

#include "cuda/row.h"

typedef enum ParamKind {
    PARAM_OPERAND,  /* an address: `bytes` into operand k */
    PARAM_OPERANDS, /* addresses: of `bytes` operands from k on */
    PARAM_SCRATCH,  /* an address: `bytes` into the scratch */
    PARAM_FAULT,    /* struct Fault, by value */
    PARAM_VALUE     /* as it stands in the plan's values */
} ParamKind;

typedef struct PlanParam {
    ParamKind kind;
    int32_t operand;
    int64_t bytes;
    size_t at; /* where it stands in `values` */
} PlanParam;

typedef enum PlanKind { PLAN_LAUNCH, PLAN_FILL, PLAN_CALL } PlanKind;

typedef struct PlanStep {
    PlanKind kind;
    /* ---- a launch ---- */
    const char *file; /* NULL: generated */
    char *text;       /* of a generated one */
    char *defines;
    char *entry;
    int64_t blocks[3];
    int threads;
    size_t shared;
    int32_t param, nparam; /* in the plan's list */
    /* ---- a fill ---- */
    int32_t operand; /* < 0: of the scratch, at `at` */
    int byte;
    size_t at, bytes;
    /* ---- a call ---- */
    const char *what;
    CudaCall *call;
    void *state;
    void (*drop)(void *state);
} PlanStep;

struct Products; /* what the products of a GPU share: products.h */

/* Another way to what the plan makes of these operands: 1, or 0 with the failure kept by `state`.
 */
typedef struct PlanOther {
    int (*run)(void *state, char *const *address, char *scratch);
    void *state;
} PlanOther;

struct CudaPlan {
    CudaGpu gpu;
    struct Products *products; /* NULL: the plan is looked at, and never runs */
    const PlanOther *other;    /* of a merged plan; outlives it */
    int32_t written;           /* of a merged plan: the operand that its other way needs besides */
    const KArgs *args;         /* while it is being built */
    PlanStep *step;
    int32_t nstep, most_steps;
    PlanParam *param;
    int32_t nparam, most_params;
    char *values;
    size_t nvalues, most_values;
    size_t scratch;   /* bytes */
    PlanStep *launch; /* the one that is open */
    char error[256];  /* the first failure */
};

enum { PLAN_ALIGN = 256, PLAN_FAULT_BYTES = 16 };

/* Builds the plan of a kernel. NULL, with a text in `error`: there is no such kernel, or it does
 * not take these operands. */
CudaPlan *plan_new(const char *kernel, const KArgs *args, const CudaGpu *gpu,
                   struct Products *products, char *error, size_t size);
/* The plan of two kernels as one (CudaMerge); `all` has the operands of both. NULL: there is none.
 */
CudaPlan *plan_merge(const char *const kernel[2], const KArgs *const args[2], int32_t from,
                     int32_t to, const KArgs *all, const CudaGpu *gpu, struct Products *products,
                     const PlanOther *other);
void plan_free(CudaPlan *p);
/* Keeps the first failure of what builds it. */
void plan_fail(CudaPlan *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
