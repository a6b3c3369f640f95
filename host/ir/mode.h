/* mode.h - manual mode: inside shard_map a value's dims are one device's along the manual axes, and
 * the value may differ between devices along those of them that it varies over. Both stand in the
 * layout of the traced type.
 *
 * An op's operands meet in one mode before it sees them: what comes from outside is entered whole,
 * what varies over fewer axes is cast (identity; its transpose sums). So an op's results vary over
 * what its operands vary over, and only the rows whose `mode` says otherwise know of it.
 *
 * Along an axis a value is one of four: the same on all devices; varying; unreduced, which is a sum
 * of the devices' parts that is still to be made, so that only linear ops take it; reduced, which
 * is the same on all, but its cotangent is unreduced. */
#ifndef MESHLUA_MODE_H
#define MESHLUA_MODE_H

#include "ir/type.h"

struct Build;
struct OpArgs;
struct OpDef;

typedef struct Mode {
    uint32_t manual;                   /* masks of mesh axes */
    uint32_t vary, unreduced, reduced; /* parts of `manual` that have nothing in common */
} Mode;

/* What an op wants of its operands, and gives its results. */
typedef struct ModeRule {
    Mode in, out;
} ModeRule;

Mode mode_of(const Type *t);
static inline bool mode_equal(Mode a, Mode b) {
    return a.manual == b.manual && a.vary == b.vary && a.unreduced == b.unreduced &&
           a.reduced == b.reduced;
}
/* The mode of a value's cotangent. */
static inline Mode mode_cotangent(Mode m) {
    return (Mode){m.manual, m.vary, m.reduced, m.unreduced};
}
/* The value, brought to a mode that says as much or less of it. */
int32_t mode_bring(struct Build *b, int32_t v, Mode m);
/* Brings the operands of an op to be built to the mode in which they meet (in place); *out is that
 * of its results. False if something went wrong. */
bool mode_meet(struct Build *b, const struct OpDef *def, int32_t *in, int nin, const void *attr,
               Mode *out);
/* The layout that says so of a value: *out is NULL outside manual mode. */
Err mode_layout(Ctx *cx, const Mesh *m, int rank, Mode mode, const Layout **out) MUST_CHECK;

#endif
