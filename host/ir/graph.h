/* graph.h - a program as data: SSA nodes in an arena.
 *
 * Invariants, held by graph_verify:
 *  - a node comes after the nodes that make its inputs; ids ascend in program order;
 *  - a value belongs to one region, and only nodes of that region use it: what a region needs from
 *    outside enters as a parameter;
 *  - the nodes of a region stand before the node that owns it;
 *  - node and value 0 exist and mean "none".
 * Nodes are appended, and changed only while their graph is built (types, offsets, clone); a pass
 * that rewrites builds a new one. Pointers to nodes stay readable (the arena keeps what a growing
 * vec leaves behind) but go stale: hold ids. */
#ifndef MESHLUA_GRAPH_H
#define MESHLUA_GRAPH_H

#include "ir/attr.h"
#include "ir/opdef.h"
#include "ir/reason.h"
#include "ir/role.h"
#include "ir/span.h"
#include "ir/val.h"

typedef struct Node {
    uint16_t op;
    int32_t nin, nout;
    const Val *in;
    Val out;             /* the results are out .. out + nout - 1 */
    const void *attr;    /* the op's struct, or NULL */
    int32_t region;      /* it stands in; 0 is the program's */
    const int32_t *body; /* the regions it owns: one for a loop, one for each branch */
    int32_t nbody;
    int32_t clone; /* two nodes are the same only if this is, too: 0 unless copied on purpose */
    int32_t nloc, noffset;
    const Loc *const *loc;    /* where it was written: more than one where it stands for several */
    const Offset *offset;     /* partitioned graphs: see OpDef.local */
    const Reason *const *why; /* collectives: one reason for each that it stands for */
    int32_t nwhy;
    uint8_t role;   /* Role */
    uint16_t parts; /* partitioned graphs: into so many its work is cut, or 0 */
    float idle;     /* and the part of it that is spent on padding */
} Node;

typedef struct Value {
    const Type *type;
    int32_t node;
} Value;

/* Where a value got a mesh axis from: the value `from`, by the rule of `node`; 0: it says so
 * itself. */
typedef struct AxisSource {
    Val from;
    int32_t node;
} AxisSource;

typedef struct Region {
    int32_t owner; /* node, or 0 */
    int32_t first; /* its nodes, and those of regions in it, have numbers from here on */
    VEC(Val) param;
    VEC(Val) result;
} Region;

typedef struct Graph {
    Ctx *cx;
    Arena arena;      /* the graph itself lies in it, too */
    const Mesh *mesh; /* of every layout in it; NULL: one device */
    VEC(Node) node;
    VEC(Value) value;
    VEC(Region) region;
    AxisSource *source; /* by value and axis (v * naxes + axis), from propagate on; or NULL */
    int32_t nsource;
    VEC(Span) span; /* by their ends, ascending: an inner one before the one around it */
} Graph;

/* NULL when out of memory. */
Graph *graph_new(Ctx *cx);
/* Makes room for about as many nodes and values as the other has: what is made from it needs no
 * growing, which leaves old copies behind. False when out of memory. */
bool graph_room_for(Graph *g, const Graph *like);
void graph_free(Graph *g); /* NULL is fine */

static inline const Node *graph_node(const Graph *g, int32_t id) {
    return &g->node.at[id];
}
static inline const Node *graph_def(const Graph *g, Val v) {
    return &g->node.at[g->value.at[v].node];
}
static inline const Type *graph_type(const Graph *g, Val v) {
    return g->value.at[v].type;
}
static inline const OpDef *graph_opdef(const Graph *g, const Node *n) {
    return &g->cx->interns->ops[n->op];
}
/* Of the node's operands and, behind them, results: number t, from 0. */
static inline Val node_tensor(const Node *n, int t) {
    return t < n->nin ? n->in[t] : n->out + t - n->nin;
}
/* What the node sends and makes of it; kind COLL_NONE: it is no collective. */
static inline CollectiveInfo graph_collective(const Graph *g, const Node *n) {
    CollectiveInfo info = {.kind = COLL_NONE};
    const OpDef *def = graph_opdef(g, n);
    if (def->collective) def->collective(n->attr, &info);
    return info;
}
/* Behind the last of them. */
static inline int32_t graph_region_end(const Graph *g, int32_t region) {
    int32_t owner = g->region.at[region].owner;
    return owner ? owner : g->node.n;
}
/* Is `region` this one, or of a node that stands in it at any depth? */
bool graph_within(const Graph *g, int32_t region, int32_t outer);
/* The node's operand and result types, for the functions of its row: arrays in the arena of `g`
 * would grow without end, so the caller gives room for nin (nout) pointers. */
void graph_in_types(const Graph *g, const Node *n, const Type **types);
void graph_out_types(const Graph *g, const Node *n, const Type **types);

/* How often each value is used (by nodes and as a region's result); indexed by Val, in `arena`. */
int32_t *graph_use_counts(const Graph *g, Arena *arena);
/* The users of each value: user node ids of v are list[start[v]] .. list[start[v + 1] - 1]. A
 * region's result counts as no user. NULL start when out of memory. */
typedef struct Uses {
    int32_t *start, *list;
} Uses;
Uses graph_uses(const Graph *g, Arena *arena);

/* Equal for programs that compute the same from the same inputs: everything but locations. */
typedef struct GraphHash {
    uint64_t lo, hi;
} GraphHash;
GraphHash graph_hash(const Graph *g);

/* Adds a span that ends behind the last node; false when out of memory. */
bool graph_add_span(Graph *g, Span s);
/* The number of the first span that ends behind the node. */
int32_t graph_span_ending(const Graph *g, int32_t id);
/* The span with a rule whose last node it is, or NULL. */
Span *graph_rule_ending(const Graph *g, int32_t id);
/* Is it a result of such a span's function? */
bool graph_is_ruled(const Graph *g, Val v);

/* The text form for people, ending with a "return" line; and the full one (full.h), which
 * graph_parse reads back as an equal graph. */
void graph_print(const Graph *g, Str *s);
void graph_print_node(const Graph *g, const Node *n, int indent, Str *s);
void graph_print_full(const Graph *g, Str *s);
/* Reads either form. Of what the short one leaves out the rest is said in graph_parse.c.
 * E_PARSE with line and column where the text is no graph; whether its types are right is
 * graph_verify's to say. */
Err graph_parse(Ctx *cx, const char *text, size_t n, Graph **out) MUST_CHECK;
/* Equal in everything that is there, ids and places included; what differs first goes to `what`. */
bool graph_equal(const Graph *a, const Graph *b, Str *what);
/* Is the graph what its full text reads back as? E_PARSE if not. */
Err graph_check_text(const Graph *g) MUST_CHECK;
Err graph_verify(const Graph *g) MUST_CHECK;
/* And what holds besides where layouts are decided, and in partitioned graphs. */
Err graph_verify_laid(const Graph *g) MUST_CHECK;
Err graph_verify_local(const Graph *g) MUST_CHECK;

#endif
