/* split.c - in partitioned graphs: ops that would leave most threads without work become two steps,
 * as their rows say. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

/* Does the node's row split it? Then its results are mapped. */
static bool split_node(Copy *c, const Node *n) {
    const OpDef *def = graph_opdef(c->from, n);
    enum { MAX = 8 };
    Val out[MAX] = {0};
    if (!def->split) return false;
    const Val *in = copy_operands(c, n);
    if (!in) return true;
    copy_enter(c, n);
    Build at = build_at(&c->b, c->from, n);
    ASSERT(n->nout <= MAX, "%s has %d results", def->name, n->nout);
    def->split(&at, n, in, out);
    build_fail(&c->b, at.err);
    for (int i = 0; out[0] && i < n->nout; i++) c->map[n->out + i] = out[i];
    return out[0] || at.err;
}

Err pass_split(const Graph *g, const PassOptions *o, Graph **out) {
    (void)o;
    Copy c;
    if (copy_begin_graph(&c, g, true)) {
        for (int32_t id = 1; id < g->node.n && !c.b.err; id++)
            if (!split_node(&c, graph_node(g, id))) copy_node(&c, graph_node(g, id));
        copy_results(&c, 0);
    }
    return copy_end_graph(&c, out);
}
