/* fused.h - a register program made ready to run (fused.c), and how it is made ready (decode.c).
 *
 * A step's result is a value of its own: registers are only names between a writer and its readers,
 * so step i reads the values of the steps src[...], whatever register they shared.
 */
#ifndef MESHLUA_CPU_FUSED_H
#define MESHLUA_CPU_FUSED_H

#include "convert.h"
#include "instr.h"
#include "view.h"

enum {
    K_TILE = 256, /* elements of a value */
    K_PAD = 64,   /* bytes between values, so that they do not share cache sets */
};

typedef enum Arrangement {
    DENSE,   /* contiguous over all merged dims */
    REPEATS, /* the same in every tile: contiguous in the last dims, if any, broadcast in the others
              */
    GENERAL,
} Arrangement;

typedef struct Operand {
    char *data;
    int64_t stride[K_MAX_RANK]; /* of the merged dims */
    int64_t size;
    KLoadFn *load;
    KStoreFn *store;
    DType dtype;
    Arrangement arrangement;
} Operand;

typedef struct Step {
    const KInstr *instr;
    KInstrFn *fn;    /* NULL: fused.c does it */
    char *storage;   /* of the value, when it is not in an operand's memory */
    Operand *target; /* the output into which fn writes whole tiles, or NULL */
    int32_t last;    /* the last step that reads the value */
    int32_t uses;
    uint8_t once;   /* computed before the first tile */
    uint8_t direct; /* a LOAD whose value may be the operand's memory */
    uint8_t joined; /* fn does the work of another step too, which is gone */
    uint8_t gone;
    uint8_t freed; /* the place of the value is another's now */
    uint8_t nsrc;
    int32_t src[4]; /* steps */
} Step;

typedef struct Fused {
    const KArgs *args;
    const KTensor *shape;  /* the first output */
    const int64_t *origin; /* by dim of it: where it lies in a larger one, for indices and bits */
    const KImm *imm;
    int64_t dims[K_MAX_RANK]; /* merged */
    int32_t rank, nsteps;
    int32_t streams;  /* the operands are larger than a cache: fetch ahead */
    Operand *operand; /* inputs, then outputs */
    Step *step;
    const char **value; /* by step: where its value is in this tile */
} Fused;

#define k_decode       K_SYM(k_decode)
#define k_decode_bytes K_SYM(k_decode_bytes)
#define k_fused_run    K_SYM(k_fused_run)

/* Fills *f, but for the origin; everything it points to lies in the workspace. */
void k_decode(Fused *f, const KArgs *a);
size_t k_decode_bytes(const KArgs *a);

/* Computes the row-major positions [from, to) of the outputs. They may be a part of larger ones
 * that begins at `origin`. The workspace has k_decode_bytes. */
void k_fused_run(const KArgs *a, const int64_t *origin, int64_t from, int64_t to);

#endif
