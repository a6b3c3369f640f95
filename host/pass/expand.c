/* expand.c - every op that has a definition in simpler ops is replaced by it: what the fused ops
 * are compared to, and a way to run them where no kernel is. */
#include "pass/pass.h"

static void expand_node(Build *b, const Graph *g, const Node *n, const Val *in, Val *map) {
    const OpDef *def = graph_opdef(g, n);
    enum { MAX = 8 };
    Val out[MAX] = {0};
    Build at = *b;
    at.loc = n->loc;
    at.nloc = n->nloc;
    if (!def->expand) {
        Val v = def->flags & OPF_PARAM ? build_param(&at, n->op, n->attr, graph_type(g, n->out))
                                       : build_like(&at, g, n, in);
        for (int i = 0; i < n->nout; i++) map[n->out + i] = v + i;
    } else {
        ASSERT(n->nout <= MAX, "%s has %d results", def->name, n->nout);
        def->expand(&at, n, in, out);
        for (int i = 0; i < n->nout; i++) map[n->out + i] = out[i];
    }
    build_fail(b, at.err);
}

Err pass_expand(const Graph *g, const PassOptions *o, Graph **out) {
    (void)o;
    Graph *to = graph_new(g->cx);
    if (!to) return err_nomem(g->cx, "a graph");
    to->mesh = g->mesh;
    Build b = build_in(to, 0);
    Arena scratch;
    arena_init(&scratch, &g->cx->alloc);
    Val *map = ARENA_ARRAY(&scratch, Val, g->value.n);
    if (!map) build_fail(&b, err_nomem(g->cx, "a graph"));
    for (int32_t id = 1; id < g->node.n && !b.err; id++) {
        const Node *n = graph_node(g, id);
        Val *in = ARENA_ARRAY(&scratch, Val, n->nin + 1);
        if (!in) {
            build_fail(&b, err_nomem(g->cx, "a graph"));
            break;
        }
        for (int i = 0; i < n->nin; i++) in[i] = map[n->in[i]];
        expand_node(&b, g, n, in, map);
    }
    for (int i = 0; i < g->region.at[0].result.n && !b.err; i++)
        build_result(&b, map[g->region.at[0].result.at[i]]);
    arena_free(&scratch);
    if (b.err)
        graph_free(to);
    else
        *out = to;
    return b.err;
}
