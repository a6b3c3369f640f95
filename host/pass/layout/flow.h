/* flow.h - the ways in and out of regions as propagation sees them: each is a node that is no node,
 * whose operands are the values that belong together, with a rule by which their dims run together.
 * The dim along which a stack is stacked belongs to no factor. */
#ifndef MESHLUA_PASS_LAYOUT_FLOW_H
#define MESHLUA_PASS_LAYOUT_FLOW_H

#include "ir/rule.h"

typedef struct FlowNodes {
    int32_t n;
    Node *node;
    FactorRule **rule;
    int32_t *owner;        /* the node whose way it is */
    int32_t *first, *next; /* by value: the first place it has in a way, or -1; by place */
    int32_t *place;        /* by place: the way */
} FlowNodes;

Err flow_nodes(const Graph *g, Arena *arena, FlowNodes *out) MUST_CHECK;
/* Is it a stack that a loop makes? Its first dim is never split. */
bool flow_is_stack(const Graph *g, Val v);

#endif
