/* depend.h - which steps of a plan must wait for which: those that use the same bytes, one of them
 * writing. */
#ifndef MESHLUA_RUN_BIND_DEPEND_H
#define MESHLUA_RUN_BIND_DEPEND_H

#include "run/exec/exec.h"

/* The bytes of a value, of all slots: two values overlap only if they have the same root and their
 * bytes within a slot overlap. */
typedef struct ByteRange {
    int32_t root; /* a buffer; or, for temporaries, their vary class behind all buffers */
    int64_t lo, hi;
} ByteRange;

/* Bits of the roots that a step reads and writes: steps without a common one do not depend on each
 * other. */
typedef struct Reach {
    uint64_t in, out;
} Reach;

typedef struct Depends {
    const Plan *plan;
    ByteRange *range; /* by value; in the Exec's arena */
    Reach *reach;     /* by step; there, too */
} Depends;

Err depend_init(Exec *e, Depends *out) MUST_CHECK;
/* Do a value of one list and one of the other share bytes? */
bool depend_overlap(const Depends *d, PlanSpan a, PlanSpan b);
/* Must one of the two steps wait for the other? */
bool depend_steps(const Depends *d, int32_t first, int32_t second);
/* Or one of n steps for one of m; where that are many pairs it is taken for granted. */
bool depend_any(const Depends *d, int32_t first, int32_t n, int32_t second, int32_t m);

#endif
