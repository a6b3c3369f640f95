/* layout.h - how one tensor lies on one mesh: for each dim the mesh axes that split it, major to
 * minor, and what else is known of the axes.
 *
 * A layout on a mesh never leaves a question open at run time: an axis splits a dim, is
 * unreduced, or is replicated. `open`, `priority` and `replicated` matter to propagation only.
 * Interned layouts are compared by address. */
#ifndef MESHLUA_LAYOUT_H
#define MESHLUA_LAYOUT_H

#include "ir/axes.h"
#include "ir/spec.h"

typedef struct LayoutDim {
    AxisList axes;
    bool open;        /* propagation may add axes behind these */
    uint8_t priority; /* 0 propagates first */
    uint8_t refused;  /* axes (mask) asked for that do not divide the dim, which stays whole */
} LayoutDim;

typedef struct Layout {
    const Mesh *mesh;
    int32_t rank;
    uint8_t unreduced_kind;
    uint8_t replicated; /* axes that may not be used (masks of axes) */
    uint8_t unreduced;  /* axes over which the value is still to be reduced */
    uint8_t reduced;    /* axes over which it is replicated, and its cotangent unreduced */
    uint8_t manual;     /* axes along which dims are one device's already: inside shard_map */
    uint8_t flipped;    /* traced types: axes that are not in the mode that the mesh gives them */
    uint8_t vary;       /* partitioned graphs, and manual axes: where local values may differ */
    LayoutDim dim[MAX_RANK];
} Layout;

/* The same shards, without axes of size 1. */
void layout_drop_ones(Layout *l);
/* Cuts each dim's axes before the first that is only a part of an axis; false if none was. */
bool layout_drop_parts(Layout *l);
/* Every dim whole, closed. */
void layout_init(Layout *l, const Mesh *m, int rank);
/* With one dim more in front, whole and closed. */
Layout layout_stack(const Layout *l);
bool layout_equal(const Layout *a, const Layout *b);
/* The same shards on the same devices: trailing replication, open bits, priorities and size-1 axes
 * do not count. NULL stands for a tensor on one device. */
bool layout_same_shards(const Layout *a, const Layout *b);
const Layout *layout_of(Ctx *cx, const Layout *l); /* interned; NULL when out of memory */
/* All axes that split a dim or are unreduced. */
uint32_t layout_used(const Layout *l);
/* Those of them along which shards differ: axes of size 1 left out. 0 for NULL. */
uint32_t layout_vary(const Layout *l);
/* In how many places of the dims' lists does (some of) the axis stand? */
int layout_places(const Layout *l, AxisRef r);
int32_t layout_parts(const Layout *l, int dim);
/* Do the axes of the dim divide it? If not, its last shards are padded. */
bool layout_divides(const Layout *l, const Dims *dims, int dim);
bool layout_is_replicated(const Layout *l); /* NULL is */
/* The dims of one shard: each is ceil(dim / parts). */
Dims layout_local(const Layout *l, const Dims *global);
/* Where the shard of the device at `coord` begins along `dim`. */
int64_t layout_start(const Layout *l, const Dims *global, int dim, const int32_t coord[MAX_AXES]);

/* The part of the tensor that the device at `coord` holds: where it begins, and its dims without
 * padding. NULL: all of it. */
Dims layout_part(const Layout *l, const Dims *global, const int32_t coord[MAX_AXES],
                 int64_t start[MAX_RANK]);

/* Which of the distinct shards the device at `coord` holds, from 0; 0 for NULL. */
int32_t layout_slot(const Layout *l, const int32_t coord[MAX_AXES]);

/* What a spec says: unknown and duplicate axes, too many entries, dims that the axes do not divide
 * and that do not say what then are errors that call the tensor `what`. `open` gives open dims
 * where the spec says unconstrained. */
Err layout_from_spec(Ctx *cx, const Mesh *m, const Spec *s, const Dims *dims, const char *what,
                     Layout *out) MUST_CHECK;
/* The spec that would give a tensor of `dims` (NULL: of dims that the axes divide) this layout; one
 * entry per dim. NULL when out of memory. */
const Spec *layout_spec(Ctx *cx, const Layout *l, const Dims *dims);

#endif
