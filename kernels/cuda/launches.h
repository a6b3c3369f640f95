/* launches.h - what a kernel does for given operands, as its row has said it: launches, fills and
 * calls of libraries, one after the other. The functions that add them are those of row.h. It knows
 * no row and no GPU: who reads it (host/cuda) brings both. */
#ifndef MESHLUA_CUDA_LAUNCHES_H
#define MESHLUA_CUDA_LAUNCHES_H

#include "row.h"

typedef enum ParamKind {
    PARAM_OPERAND,  /* an address: `bytes` into operand k */
    PARAM_OPERANDS, /* addresses: of `bytes` operands from k on */
    PARAM_SCRATCH,  /* an address: `bytes` into the scratch */
    PARAM_FAULT,    /* struct Fault, by value */
    PARAM_VALUE     /* as it stands in `values` */
} ParamKind;

typedef struct LaunchParam {
    ParamKind kind;
    int32_t operand;
    int64_t bytes;
    size_t at; /* where it stands in `values` */
} LaunchParam;

typedef enum LaunchKind { STEP_LAUNCH, STEP_FILL, STEP_CALL } LaunchKind;

typedef struct LaunchStep {
    LaunchKind kind;
    /* ---- a launch ---- */
    const char *file; /* NULL: generated */
    char *text;       /* of a generated one */
    char *defines;
    char *entry;
    int64_t blocks[3];
    int threads;
    size_t shared;
    int32_t param, nparam; /* in the list of all */
    /* ---- a fill ---- */
    int32_t operand; /* < 0: of the scratch, at `at` */
    int byte;
    size_t at, bytes;
    /* ---- a call ---- */
    const char *what;
    CudaCall *call;
    void *state;
    void (*drop)(void *state);
} LaunchStep;

/* What makes products: host/cuda/products.h. */
typedef struct CudaLibrary {
    /* As cuda_product. */
    int (*product)(void *self, Launches *p, const CudaProduct *q);
    void *self;
} CudaLibrary;

/* Another way to what the launches make of these operands: 1, or 0 with the failure kept by
 * `state`. */
typedef struct LaunchesOther {
    int (*run)(void *state, char *const *address, char *scratch);
    void *state;
} LaunchesOther;

struct Launches {
    CudaGpu gpu;
    const CudaLibrary *library; /* NULL: they are looked at, and never run */
    const LaunchesOther *other; /* of a pair; outlives them */
    int32_t written;            /* of a pair: the operand that the other way needs besides */
    const KArgs *args;          /* while they are being added */
    LaunchStep *step;
    int32_t nstep, most_steps;
    LaunchParam *param;
    int32_t nparam, most_params;
    char *values;
    size_t nvalues, most_values;
    size_t scratch;     /* bytes */
    LaunchStep *launch; /* the one that is open */
    char error[256];    /* the first failure */
};

enum { LAUNCHES_ALIGN = 256, LAUNCHES_FAULT_BYTES = 16 };

/* What a kernel's row launches. NULL, with a text in `error`: it does not take these operands. */
Launches *launches_new(const CudaRow *row, const KArgs *args, const CudaGpu *gpu,
                       const CudaLibrary *library, char *error, size_t size);
/* What two kernels launch as one; `all` has the operands of both. NULL: there is no such way. */
Launches *launches_pair(const CudaPair *m, const KArgs *const args[2], int32_t from, int32_t to,
                        const KArgs *all, const CudaGpu *gpu, const CudaLibrary *library,
                        const LaunchesOther *other);
void launches_free(Launches *p);
/* Keeps the first failure of what adds to it. */
void launches_fail(Launches *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
