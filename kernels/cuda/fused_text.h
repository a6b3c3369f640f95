/* fused_text.h - a fused program as a function of device code: what its instructions do to the
 * registers of one element. What surrounds it is fused.c's. */
#ifndef MESHLUA_CUDA_FUSED_TEXT_H
#define MESHLUA_CUDA_FUSED_TEXT_H

#include "kernel.h"
#include "text.h"

/* How device code names a dtype, and the type in which its elements are computed. */
const char *fused_type(DType t);
const char *fused_compute_type(DType t);

/* What of a program matters: registers are used again, so a value is known by the instruction that
 * makes it. */
typedef struct FusedUse {
    int32_t *source; /* [4 i + k]: the instruction that makes operand k of instruction i */
    int32_t *number; /* by instruction: of its line, or of its index */
    uint8_t *live;   /* by instruction: some output depends on it */
    uint8_t *coarse; /* by instruction: its value is rounded to 16 bits by all who read it */
    uint8_t *input;  /* by input: a live instruction loads it */
} FusedUse;
/* 0 when out of memory. */
int fused_use(const KArgs *a, FusedUse *u);
void fused_use_free(FusedUse *u);

static inline int fused_is_index(const KInstr *i) {
    return i->op == KI_IOTA || i->op == KI_RANDOM_BITS;
}

/* "fused_mul_tanh": the function's name, after what is computed. */
void fused_name(const KArgs *a, const FusedUse *u, char *name, size_t size);
/* void element(float x0, ..., i64 i0, ..., float &y0): xK is input K, iK the K-th live instruction
 * that wants an index, yK output K. */
void fused_element(Text *t, const KArgs *a, const FusedUse *u);

#endif
