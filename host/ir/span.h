/* span.h - a stretch of a traced graph that a transform has marked, for the gradient to read. Only
 * the trace has spans: passes drop them.
 *
 * A transform traces the user's function in place: its nodes are [first, end), and whatever it did
 * inside lies within, so that spans nest or do not meet. */
#ifndef MESHLUA_SPAN_H
#define MESHLUA_SPAN_H

#include <stdbool.h>
#include <stdint.h>

typedef enum RematSave {
    SAVE_NOTHING,
    SAVE_EVERYTHING,
    SAVE_DOTS,            /* matrix products and what else is OPF_SAVE */
    SAVE_DOTS_NO_BATCH,   /* those of them without batch dims */
    SAVE_NAMES,           /* values with one of the names */
    SAVE_NAMES_EXCEPT,    /* named values with none of them */
    SAVE_ANYTHING_EXCEPT, /* values, named or not, with none of them */
} RematSave;

/* Which values of a remat stretch are kept for the gradient. */
typedef struct RematPolicy {
    RematSave save;
    int32_t nname;
    const char *const *name;        /* interned */
    const struct RematPolicy *also; /* what this one keeps is kept, too; or NULL */
} RematPolicy;

/* A gradient given by the user: that of y follows from nodes [bwd, bwd_end), in which `ct` are
 * placeholders of y's cotangents, and which give `dx`, the cotangents of `x` (0: none). y are
 * identities, the last nodes of the span. Where the user gave the tangents of y instead, they are
 * `dy` (0: zero), computed there from `t`, placeholders of x's (0: none); else both are NULL. */
typedef struct CustomVjp {
    int32_t nx, ny, bwd, bwd_end;
    const int32_t *x, *dx, *y, *ct;
    const int32_t *t, *dy;
} CustomVjp;

typedef struct Span {
    int32_t first, end;        /* nodes */
    const RematPolicy *policy; /* a stretch that the gradient computes again, or */
    const CustomVjp *rule;     /* one whose gradient the user gives */
    bool taken;                /* a gradient has been taken by the rule */
    int32_t outer, before;     /* spans, from 1; 0: none: the innermost around it, and the latest
                                * of those before it that does not lie in it */
} Span;

#endif
