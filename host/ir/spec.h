/* spec.h - P: what the user wrote about a layout. Names only, bound to no mesh; interned, so that
 * equal specs are one object. layout.h turns a spec into the layout of one tensor on one mesh. */
#ifndef MESHLUA_SPEC_H
#define MESHLUA_SPEC_H

#include "ir/dims.h"
#include "ir/mesh.h"

typedef enum SpecKind {
    SPEC_NONE,         /* nil: the dim is not split */
    SPEC_AXES,         /* one or more mesh axes, major to minor */
    SPEC_UNCONSTRAINED /* left to propagation */
} SpecKind;

/* What becomes of a dim that its axes do not divide. */
typedef enum Uneven {
    UNEVEN_ERROR,
    UNEVEN_PAD,      /* the last shards are padded; what is in the padding is never seen */
    UNEVEN_REPLICATE /* it stays whole */
} Uneven;

typedef struct SpecEntry {
    uint8_t kind, n;
    bool open;                  /* propagation may add axes behind these */
    uint8_t priority;           /* 0 propagates first, to the end, then 1, ... */
    uint8_t uneven;             /* Uneven */
    const char *axis[MAX_AXES]; /* interned */
} SpecEntry;

/* How a value that is still to be reduced becomes whole. */
typedef enum ReduceKind { REDUCE_SUM, REDUCE_MAX, REDUCE_MIN } ReduceKind;

typedef struct Spec {
    int32_t n; /* entries written; dims beyond are not split */
    SpecEntry entry[MAX_RANK];
    /* Sets of axes, sorted by name: over which the value is still to be reduced; over which it is
     * replicated and its cotangent still to be reduced. */
    SpecEntry unreduced, reduced;
    uint8_t unreduced_kind; /* ReduceKind */
} Spec;

const Spec *spec_of(Ctx *cx, const Spec *s); /* interned; NULL when out of memory */
/* P("data", nil), P({"x","y",priority=1}), P("x", {unreduced={"y"}}) */
void spec_print(const Spec *s, Str *out);

#endif
