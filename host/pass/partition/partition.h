/* partition.h - partitioning under way: shared by partition.c, partition_axes.c and
 * partition_control.c. */
#ifndef MESHLUA_PASS_PARTITION_PARTITION_H
#define MESHLUA_PASS_PARTITION_PARTITION_H

#include "ir/rule.h"
#include "pass/pass.h"

typedef struct Moved { /* a value in a layout that some user asked for */
    Val value;         /* of the old graph */
    const Layout *to;
    Val local;
} Moved;

typedef struct Partition {
    const Graph *g;
    const PassOptions *o;
    Build b;              /* the partitioned graph */
    Arena arena, scratch; /* scratch: for the node under way */
    Val *local;           /* by value of `g`: its local value, in the layout of its type */
    Layout *layout;       /* by value of `g`: that of its type, without axes of size 1 */
    int32_t *uses;        /* by value of `g`: what nobody reads is moved nowhere */
    VEC(Moved) moved;
    int32_t *region; /* by region of `g`: that of the partitioned graph; -1: none yet */
} Partition;

/* One op under way. */
typedef struct Split {
    const Node *n;
    const OpDef *def;
    const FactorRule *r;
    Projection *proj; /* by tensor: what it has */
    AxisList *axes;   /* by factor: what the op will use */
    Layout *layout;   /* by tensor: under `axes` */
    uint32_t through; /* axes over which unreduced operands give unreduced results */
} Split;

/* The type of the node's operand or result number t. */
static inline const Type *partition_tensor(const Partition *p, const Node *n, int t) {
    return graph_type(p->g, node_tensor(n, t));
}

/* Fills s->axes and s->layout from what the tensors have. */
void partition_axes(const Partition *p, Split *s);

Err partition_no_memory(Partition *p) MUST_CHECK;
/* Do two layouts put the same shards on the same devices? */
bool partition_same(const Layout *a, const Layout *b);
/* `v` in another layout, for the reason; NULL: there was no memory for it. */
Val partition_moved(Partition *p, const Node *n, const Reason *why, Val v, const Dims *global,
                    const Layout *from, const Layout *to);
/* A nullary op costs nothing to run again, in the layout in which it is wanted. */
Val partition_nullary(Partition *p, const Node *src, const Layout *to);
/* The type of one device's part of a tensor in that layout; NULL when out of memory. */
const Type *partition_type(Partition *p, const Type *t, const Layout *layout);

/* ---- nodes that own regions (partition_control.c) ---- */
/* What is built from now on stands in the region; it is made, with its parameters, at first. */
Err partition_enter(Partition *p, int32_t region) MUST_CHECK;
Err partition_control(Partition *p, const Node *n) MUST_CHECK;

#endif
