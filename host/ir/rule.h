/* rule.h - layouts seen through an op's sharding rule: shared by explicit mode, propagate and
 * partition.
 *
 * A projection is, for one tensor of an op, the mesh axes on each factor. The axes of a dim are
 * dealt to its factors from the major side; what fits no factor is left over. */
#ifndef MESHLUA_RULE_H
#define MESHLUA_RULE_H

#include "ir/graph.h"

typedef struct Projection {
    AxisList *factor; /* nfactor of them */
    uint8_t leftover; /* axes (mask) that split the tensor but lie on no factor */
} Projection;

/* The rule of a node, in `arena`; tensors are its operands, then its results. */
Err rule_make(const OpArgs *a, const Type *const *out, int nout, Arena *arena,
              FactorRule **r) MUST_CHECK;
Err rule_of(const Graph *g, const Node *n, Arena *arena, FactorRule **out) MUST_CHECK;
/* Room for the projection of every tensor of the rule; NULL when out of memory. */
Projection *rule_projections(const FactorRule *r, Arena *arena);
void rule_project(const FactorRule *r, int tensor, const Layout *l, Projection *p);
/* The layout whose projection is `factors`; false where a dim's minor factor is split although a
 * major one is not split to the end: no layout says that. */
bool rule_unproject(const FactorRule *r, int tensor, int rank, const Mesh *m,
                    const AxisList *factors, Layout *l);
/* How many devices share the factor's size evenly: its size is a multiple of the axes' product. */
bool rule_divides(const FactorRule *r, int factor, const AxisList *axes);
/* May the factor be split unevenly, with padding behind its end, in the op's tensors? */
bool rule_pads(const FactorRule *r, const OpDef *def, int factor);
/* May `ref` be added to a tensor split by `used` (its lists by factor) without
 * using an axis twice? */
bool rule_is_free(const FactorRule *r, const Projection *p, AxisRef ref);

#endif
