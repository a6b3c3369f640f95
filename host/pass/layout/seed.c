#include "pass/layout/seed.h"
#include "op/op.h"
#include "pass/layout/flow.h"
#include "ir/explicit.h"

/* Is it an argument of the program? What comes into a region lies as propagation finds. */
static bool is_input(const Graph *g, Val v) {
    const Node *n = graph_def(g, v);
    return graph_opdef(g, n)->flags & OPF_PARAM && n->region == 0;
}

/* What was written about the value: an argument's layout, a constraint's, that of a global value
 * which leaves manual axes; NULL: nothing. */
static const Layout *written(const Graph *g, Val v) {
    const Node *n = graph_def(g, v);
    uint32_t flags = graph_opdef(g, n)->flags;
    bool enters = true;
    const Layout *outside = NULL;
    if (graph_opdef(g, n)->manual) outside = graph_opdef(g, n)->manual(n->attr, &enters);
    if (!enters) return outside;
    if (flags & OPF_CONSTRAINT) return *(const Layout *const *)n->attr;
    return is_input(g, v) ? graph_type(g, v)->layout : NULL;
}

/* What the type says of the explicit axes stays as it is, and they go nowhere else. */
static void seed_explicit(const Graph *g, Val v, Layout *l) {
    const Type *t = graph_type(g, v);
    uint32_t axes = explicit_axes_of(g->mesh, t->layout);
    if (!axes || is_input(g, v)) return;
    Layout view;
    explicit_view(t, g->mesh, axes, &view);
    l->replicated |= (uint8_t)axes;
    l->unreduced = view.unreduced;
    l->unreduced_kind = view.unreduced_kind;
    l->reduced = view.reduced;
    uint32_t there = layout_used(l);
    for (int d = 0; d < l->rank; d++) /* behind what was written of an open dim */
        for (int i = 0; l->dim[d].open && i < view.dim[d].axes.n; i++)
            if (!(there >> view.dim[d].axes.at[i].axis & 1))
                axes_push(&l->dim[d].axes, view.dim[d].axes.at[i]);
}

void seed_all(const Graph *g, Layout *layout) {
    for (Val v = 1; v < g->value.n; v++) {
        Layout *l = &layout[v];
        bool closed = is_input(g, v) || written(g, v);
        layout_init(l, g->mesh, graph_type(g, v)->dims.rank);
        for (int d = flow_is_stack(g, v); d < l->rank; d++) l->dim[d].open = !closed;
        l->replicated =
            (uint8_t)mode_of(graph_type(g, v)).manual; /* dims have none of these left */
        seed_explicit(g, v, l);
    }
}

void seed_written(const Graph *g, Layout *layout, int priority, bool state, int32_t *changed,
                  int32_t now) {
    for (Val v = 1; v < g->value.n; v++) {
        const Layout *w = written(g, v);
        if (!w || op_lies_as_state(graph_def(g, v)) != state) continue;
        Layout *l = &layout[v], asked = *w;
        layout_drop_ones(&asked); /* they split nothing, and would be found free again and again */
        l->replicated = (uint8_t)(asked.replicated | mode_of(graph_type(g, v)).manual);
        l->unreduced = asked.unreduced;
        l->unreduced_kind = asked.unreduced_kind;
        l->reduced = asked.reduced;
        l->manual = asked.manual;
        l->vary = asked.vary;
        for (int d = 0; d < l->rank; d++) {
            if (asked.dim[d].priority == priority) l->dim[d] = asked.dim[d];
            if (asked.dim[d].priority > priority)
                l->replicated |= (uint8_t)axes_mask(&asked.dim[d].axes);
        }
        seed_explicit(g, v, l);
        changed[v] = now;
    }
}

int seed_last_priority(const Graph *g) {
    int last = 0;
    for (Val v = 1; v < g->value.n; v++) {
        const Layout *w = written(g, v);
        for (int d = 0; w && d < w->rank; d++)
            if (w->dim[d].priority > last) last = w->dim[d].priority;
    }
    return last;
}
