/* custom.c - functions whose derivative the user gives (ir/span.h). */
#include "op/op.h"

/* The first value from outside that the function reads and that is `active`, but no argument; 0:
 * there is none. */
static Val stray(const Graph *g, const Span *s, bool (*active)(const void *ud, Val v),
                 const void *ud) {
    for (int32_t id = s->first; id < s->rule->bwd; id++) {
        const Node *n = graph_node(g, id);
        for (int k = 0; k < n->nin; k++) {
            if (g->value.at[n->in[k]].node >= s->first || !active(ud, n->in[k])) continue;
            bool argument = false;
            for (int i = 0; i < s->rule->nx; i++) argument = argument || s->rule->x[i] == n->in[k];
            if (!argument) return n->in[k];
        }
    }
    return 0;
}

Err custom_check_closed(const Graph *g, const Span *s, bool (*active)(const void *ud, Val v),
                        const void *ud) {
    Val v = stray(g, s, active, ud);
    if (!v) return E_OK;
    Str t;
    str_init(&t, &g->cx->alloc);
    type_print(graph_type(g, v), &t);
    Err e = err_set(g->cx, E_GRAD,
                    "custom_%s: the function uses a %s from outside of it that is differentiated, "
                    "and its %s gives nothing for it; pass it as an argument",
                    s->rule->t ? "jvp" : "vjp", str_of(&t), s->rule->t ? "rule" : "bwd");
    str_free(&t);
    return e;
}
