/* origin.h - who split what: propagate notes where each value got its mesh axes from, and partition
 * makes of it the reasons of the collectives. */
#ifndef MESHLUA_PASS_LAYOUT_ORIGIN_H
#define MESHLUA_PASS_LAYOUT_ORIGIN_H

#include "pass/pass.h"

Err origin_init(Graph *g) MUST_CHECK; /* nothing has come from anywhere yet */
/* Value `to` got the axes (a mask) from value `from`, by the rule of the node. */
void origin_note(Graph *g, Val to, Val from, int32_t node, uint32_t axes);

/* A line for each dim that is split: "dim 1 on data: tanh at t.lua:6, matmul at t.lua:5, argument
 * x", the way to who said so. */
void origin_print_chain(const Graph *g, Val v, Str *s);

/* An op as partition sees it. */
typedef struct Step {
    const Graph *g;
    const Node *n;
    const FactorRule *r;
    const Layout *under; /* by tensor: operands, then results: in which the op runs */
    const Layout *have;  /* by value */
} Step;

/* Each is NULL when out of memory. */
const Reason *origin_reshard(const Step *s, int tensor, const Layout *from, const Layout *to);
/* Result i is a sum (or the like) still to be made: its layout `have` says over what. */
const Reason *origin_unreduced(const Step *s, int i, const Layout *have);
/* A value that goes into or comes out of the regions of node n. */
const Reason *origin_flow(const Graph *g, const Node *n, Val v, const Flow *f, const Layout *from,
                          const Layout *to);
/* A collective of the program itself. */
const Reason *origin_written(const Graph *g, const Node *n);
/* Operand 0 is split along `dim` and needs elements of its neighbours. */
const Reason *origin_halo(const Step *s, int dim, int before, int behind);
const Reason *origin_constraint(const Graph *g, const Node *n, const Layout *from,
                                const Layout *to);

#endif
