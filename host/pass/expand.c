/* expand.c - ops that have a definition in simpler ops are replaced by it: every one, which is what
 * the fused ops are compared to and a way to run them where no kernel is, or those chosen. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

static void expand_node(Copy *c, const Node *n) {
    const OpDef *def = graph_opdef(c->from, n);
    enum { MAX = 8 };
    Val out[MAX] = {0};
    const Val *in = copy_operands(c, n);
    if (!in) return;
    copy_enter(c, n);
    Build at = build_at(&c->b, c->from, n);
    ASSERT(n->nout <= MAX, "%s has %d results", def->name, n->nout);
    def->expand(&at, n, in, out);
    for (int i = 0; i < n->nout; i++)
        c->map[n->out + i] = op_lay_like(&at, out[i], graph_type(c->from, n->out + i), false);
    build_fail(&c->b, at.err);
}

/* `chosen`: by node, or NULL: all. */
static Err expand(const Graph *g, const bool *chosen, Graph **out) {
    Copy c;
    if (copy_begin_graph(&c, g, false)) {
        for (int32_t id = 1; id < g->node.n && !c.b.err; id++) {
            const Node *n = graph_node(g, id);
            if (graph_opdef(g, n)->expand && (!chosen || chosen[id]))
                expand_node(&c, n);
            else
                copy_node(&c, n);
        }
        copy_results(&c, 0);
    }
    return copy_end_graph(&c, out);
}

Err pass_expand(const Graph *g, const PassOptions *o, Graph **out) {
    (void)o;
    return expand(g, NULL, out);
}

Err pass_expand_chosen(const Graph *g, const bool *chosen, Graph **out) {
    return expand(g, chosen, out);
}
