/* blas.h - the BLAS library, loaded when the first large product is about to run that gains from
 * it: loading takes longer than most scripts. */
#ifndef MESHLUA_BLAS_H
#define MESHLUA_BLAS_H

#include "base/ctx.h"
#include "kernel.h"

/* Products of at least this many operations go through BLAS. */
#define BLAS_MIN_FLOPS 262144.0

typedef struct Blas {
    bool tried;
    KBlas table;                        /* empty where none was found, or MESHLUA_BLAS=off */
    char core[64], file[256], why[512]; /* why: it could not be loaded */
} Blas;

/* To be called before any thread starts: one thread per call, and the right kernels for processors
 * that the library does not know (OpenBLAS 0.3.21 takes recent ones for a Prescott). */
void blas_prepare_environment(void);
/* Loads it the first time. NULL where there is none. */
const KBlas *blas_load(Ctx *cx, Blas *b);
/* Has it LAPACK, which the op named needs? Loads it. */
Err blas_need_lapack(Ctx *cx, Blas *b, const char *op) MUST_CHECK;
/* Can the one that MESHLUA_BLAS asks for be used? Loads it. */
Err blas_check(Ctx *cx, Blas *b) MUST_CHECK;

#endif
