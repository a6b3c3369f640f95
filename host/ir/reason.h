/* reason.h - why a collective stands in a program: what it moves, for which op, and who gave the
 * tensors there their layouts. Interned: equal reasons are one object. */
#ifndef MESHLUA_REASON_H
#define MESHLUA_REASON_H

#include "ir/intern.h"

typedef enum OriginKind {
    ORIGIN_ARGUMENT,   /* a tensor among the program's arguments */
    ORIGIN_PARAM,      /* one that is kept in a Param */
    ORIGIN_CONSTRAINT, /* asked for at a line */
    ORIGIN_OP,         /* the op itself */
} OriginKind;

enum { ORIGIN_ANY_AXIS = 255 }; /* the constraint itself, whatever its axes */

/* Who split a tensor along a mesh axis. */
typedef struct Origin {
    uint8_t kind, axis;
    int32_t index;    /* arguments and Params: which parameter of the program, from 1; else 0 */
    const char *name; /* of the argument, path of the Param, op; interned, never NULL */
    const Loc *loc;   /* constraints and ops: where; else NULL */
} Origin;

enum { MAX_ORIGINS = 8 };

typedef struct Reason {
    const char *text;   /* "w of matmul: dim 1 is split on data, which splits dim 1 of x" */
    const char *tensor; /* what moves, as a whole: "w float32[512@data,64]" */
    const Loc *loc;     /* the op that needs it, or NULL */
    int32_t norigin;
    Origin origin[MAX_ORIGINS];
} Reason;

/* Strings and locations in it are interned already. NULL when out of memory. */
const Reason *reason_of(Ctx *cx, const Reason *r);
/* Adds the origin unless it is there; those beyond the room are left out. */
void reason_add(Reason *r, const Origin *o);
/* "argument w", "Param h.0.mlp.up.weight", "mlp.lua:12 (h.0)". */
void reason_print_origin(const Origin *o, Str *s);

#endif
