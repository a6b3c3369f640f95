/* copy.h - a graph, or a part of one, node by node into another: what every pass that rewrites does
 * between its own decisions. Nodes are visited in the order of their ids, in all regions, so that
 * the regions of a node have been copied when the node's turn comes. */
#ifndef MESHLUA_COPY_H
#define MESHLUA_COPY_H

#include "ir/build.h"

typedef struct Copy {
    const Graph *from; /* may be the graph that is built: nodes added since are not looked at */
    Build b;           /* stands in the region that copy_enter chose last */
    Arena arena;
    Val *map;            /* by value of `from`: its value in the new graph; 0: none yet */
    int32_t *region;     /* by region of `from`: that of the new graph; -1: none yet */
    const bool *dropped; /* by value, or NULL: parameters of regions that stay behind */
} Copy;

/* Builds with what `b` says, errors in c->b. Region 0 goes to region 0. False when out of memory
 * (copy_end is called all the same). */
bool copy_begin(Copy *c, const Graph *from, const Build *b);
void copy_end(Copy *c);
/* The same into a new graph on the mesh of `from`; `local`: types are of one shard. */
bool copy_begin_graph(Copy *c, const Graph *from, bool local);
/* Its end: *out is the new graph, or an error is returned and nothing is left of it. */
Err copy_end_graph(Copy *c, Graph **out) MUST_CHECK;
void copy_no_memory(Copy *c);
/* c->b stands in the region that node n's became; it is made, with all its parameters, where there
 * is none yet. */
void copy_enter(Copy *c, const Node *n);
/* The operands' new values, in the copy's arena; NULL when out of memory. */
Val *copy_operands(Copy *c, const Node *n);
/* The node, its parameters mapped and its regions along; its results are mapped. */
Val copy_node(Copy *c, const Node *n);
/* As copy_node, of these operands. */
Val copy_node_with(Copy *c, const Node *n, const Val *in);
/* v .. are the new results of n. */
void copy_set(Copy *c, const Node *n, Val v);
/* The results of `from`'s region, appended to its new one. */
void copy_results(Copy *c, int32_t region);
/* The same for those that are kept; the new region. */
int32_t copy_body(Copy *c, int32_t region, const bool *kept);
/* Appends the nodes [first, end) of the region, and of regions within, once more, with the spans
 * that lie there; `clone`: as in build_inline. c->from is the graph that is built; c->region says
 * where the region's copies stand, c->map knows its parameters and what comes from outside. */
void copy_stretch(Copy *c, int32_t region, int32_t first, int32_t end, int32_t clone);

/* The spans alone, for who copies nodes by itself, in their order: open before node `id` is copied,
 * close(id + 1) behind it. `deep`: also the spans of regions within. */
typedef struct CopiedSpan {
    Span one;
    int32_t first, bwd, bwd_end; /* of the new one */
} CopiedSpan;

typedef struct CopySpans {
    Copy *c;
    int32_t region, first, end;
    bool deep;
    int32_t *at, *next; /* spans, from 1, by their first node; and lists of them */
    VEC(CopiedSpan) open;
} CopySpans;

bool copy_spans_begin(CopySpans *s, Copy *c, int32_t region, int32_t first, int32_t end, bool deep);
void copy_spans_open(CopySpans *s, int32_t id);
void copy_spans_close(CopySpans *s, int32_t id);

#endif
