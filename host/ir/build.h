/* build.h - appends nodes. Errors stick: after the first, every call returns 0, and a 0 operand
 * gives 0, so that rules read like formulas; whoever made the Build checks `err` at the end. */
#ifndef MESHLUA_BUILD_H
#define MESHLUA_BUILD_H

#include "ir/graph.h"

typedef struct Build {
    Graph *g;
    int32_t region;
    const Loc *const *loc; /* given to the nodes that are built; copied */
    int32_t nloc;
    const Reason *const *why; /* the same */
    int32_t nwhy;
    uint8_t role;    /* the same */
    uint16_t parts;  /* the same */
    float idle;      /* the same */
    bool local;      /* a partitioned graph: types are of one shard, vary is inferred */
    uint32_t manual; /* axes that are manual where the nodes stand, whatever their operands say */
    /* Explicit mode (ir/explicit.h). */
    bool strict;              /* ambiguous layouts are errors: what a user writes */
    uint8_t flipped;          /* axes that are not in the mode that the mesh gives them */
    const Layout *want;       /* how the result is wanted to lie, as a hint; NULL: nobody says */
    const Type *const *given; /* the results have the layouts of these types, or NULL */
    Err err;
} Build;

/* The row of an op: by number, as rows do not refer to each other. */
static inline const OpDef *build_opdef(const Build *b, int op) {
    return &b->g->cx->interns->ops[op];
}

Build build_in(Graph *g, int32_t region);
/* The node's results start at the value returned. attr is copied (NULL: zeroed). */
Val build_op(Build *b, int op, const Val *in, int nin, const void *attr);
/* The same place, reasons and modes of axes as node `n` of `g`. */
Build build_at(const Build *b, const Graph *g, const Node *n);
/* As build_op with the result types given, and the regions it owns. */
Val build_typed(Build *b, int op, const Val *in, int nin, const void *attr, int nout,
                const Type *const *types, const int32_t *body, int nbody);
/* A node like `n` (of any graph of the same Ctx): attributes, locations, offsets, clone, reason;
 * types are inferred anew except for OPF_TYPED, but results lie as those of `n`. Regions do not
 * come along: see copy.h. */
Val build_like(Build *b, const Graph *from, const Node *n, const Val *in);
Val build_param(Build *b, int param_op, const void *attr, const Type *type);
/* Appends what is in `region` (of b->g) as if it were written here: its parameters are `args`;
 * fills `results`. `clone` (if not 0) marks the new nodes: no pass merges them with the old. */
void build_inline(Build *b, int32_t region, const Val *args, int32_t clone, Val *results);
/* A new region, owned by nobody yet; 0 when out of memory. */
int32_t build_region(Build *b);
void build_result(Build *b, Val v);
/* Fills the offsets of the node that makes `v`. */
void build_set_offsets(Build *b, Val v, const Offset *offset, int n);
/* Marks the type of v as come from a Lua number: while a trace is built, it widens nothing. */
void build_set_weak(Build *b, Val v);
void build_set_clone(Build *b, Val v, int32_t clone);
/* Remembers the error in flight. */
void build_fail(Build *b, Err e);

#endif
