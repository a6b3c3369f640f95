/* explicit_error.h - one op's layouts under way: between explicit.c and explicit_error.c. */
#ifndef MESHLUA_EXPLICIT_ERROR_H
#define MESHLUA_EXPLICIT_ERROR_H

#include "ir/explicit.h"
#include "ir/rule.h"

typedef struct Infer {
    const Build *b;
    const OpArgs *a;
    const Val *in;
    const Type *const *out;
    int nout;
    uint32_t axes; /* that are explicit here */
    bool strict;
    const FactorRule *r;
    Projection *proj; /* by operand */
    Layout *view;     /* by operand */
    AxisList *list;   /* by factor: the axes that it has in the operands */
    int *source;      /* by factor: the operand that list comes from; -1 */
    int keep;         /* a factor that wins where one axis splits two dims; -1 */
} Infer;

/* The layout of result i from the lists as they are. Strict: an error where there is none. */
Err explicit_result(const Infer *f, int i, Layout *l) MUST_CHECK;

/* The errors of a strict build. Each lists what could be chosen, and what that costs. */
Err explicit_error_conflict(const Infer *f, int factor, int t,
                            int u);                        /* operands t and u disagree */
Err explicit_error_contracted(const Infer *f, int factor); /* a sum, or its parts? */
Err explicit_error_whole(const Infer *f, int t, int dim);  /* the op needs the dim unsplit */
Err explicit_error_illegal(const Infer *f, int result, int factor, int other);
Err explicit_error_unsaid(const Infer *f, int result,
                          int dim); /* no P says how the dim would lie */
Err explicit_error_unreduced(const Infer *f, int t,
                             uint32_t axes); /* operand t is a sum still to be made */

#endif
