/* fused.h - a register program made ready to run (fused.c), and how it is made ready (decode.c).
 *
 * A step's result is a value of its own: registers are only names between a writer and its readers,
 * so step i reads the values of the steps src[...], whatever register they shared. */
#ifndef MESHLUA_CPU_FUSED_H
#define MESHLUA_CPU_FUSED_H

#include "convert.h"
#include "instr.h"
#include "view.h"

enum {
    K_TILE = 128, /* elements of a value */
    K_PAD = 64,   /* bytes between values, so that they do not share cache sets */
};

typedef enum Arrangement {
    K_DENSE,   /* contiguous over all merged dims */
    K_REPEATS, /* the same in every tile: broadcast but for the last dims, if at all */
    K_GENERAL,
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
    uint8_t direct; /* a LOAD whose value may be the operand's memory, if it has whole steps */
    uint8_t super;  /* fn does the work of other steps too */
    uint8_t gone;
    uint8_t freed; /* the place of the value is another's now */
    uint8_t nsrc;
    int32_t src[K_TREE_LEAVES]; /* steps */
} Step;

typedef struct Fused {
    const KArgs *args;
    const KTensor *shape; /* the first output */
    const KImm *imm;
    int64_t dims[K_MAX_RANK];  /* merged */
    int64_t index[K_MAX_RANK]; /* in them, of the tile's first position */
    int32_t rank, nsteps, nrun;
    int64_t share;    /* elements of a tile to fetch ahead at a time; 0: none */
    int32_t *run;     /* the steps of every tile */
    Operand *operand; /* inputs, then outputs */
    Step *step;
    const char **value; /* by step: where its value is in this tile */
    char *memory;       /* of the values */
} Fused;

#define k_decode       K_SYM(k_decode)
#define k_decode_bytes K_SYM(k_decode_bytes)
#define k_superinstr   K_SYM(k_superinstr)

/* Fills *f; everything it points to lies in the workspace. */
void k_decode(Fused *f, const KArgs *a);
size_t k_decode_bytes(const KArgs *a);
/* Gives one function to steps that it can compute together (superinstr.c); the same bits. Changes
 * sources and uses, and marks the steps that are no longer needed. */
void k_superinstr(Fused *f);

#endif
