#include "pass/layout/origin.h"

#include "op/op.h"

#include <stdio.h>
#include <string.h>

/* ---- where axes come from ---- */

Err origin_init(Graph *g) {
    g->nsource = g->value.n * g->mesh->naxes;
    g->source = ARENA_ARRAY(&g->arena, AxisSource, g->nsource + 1);
    return g->source ? E_OK : err_nomem(g->cx, "propagation");
}

void origin_note(Graph *g, Val to, Val from, int32_t node, uint32_t axes) {
    for (int a = 0; a < g->mesh->naxes; a++)
        if (axes >> a & 1) g->source[to * g->mesh->naxes + a] = (AxisSource){from, node};
}

static const char *name_or_empty(const Graph *g, const char *name) {
    return name ? name : intern_name(g->cx, "");
}

/* 0: there is no such Param. */
static int32_t param_index(const Graph *g, const char *name) {
    const Region *top = &g->region.at[0];
    for (int i = 0; i < top->param.n; i++) {
        const ParamAttr *attr = graph_def(g, top->param.at[i])->attr;
        if (attr->name == name) return (int32_t)attr->index;
    }
    return 0;
}

/* What is asked to lie as a Param does (its gradient) is used with it: the Param, or NULL. */
static const Node *param_beside(const Graph *g, const Node *n) {
    if (op_is_state(n) || !op_lies_as_state(n)) return NULL;
    for (int32_t id = g->value.at[n->out].node + 1; id < g->node.n; id++) {
        const Node *user = graph_node(g, id), *param = NULL;
        bool uses = false;
        for (int i = user->nin - 1; i >= 0; i--) {
            const Node *def = graph_def(g, user->in[i]);
            uses = uses || user->in[i] == n->out;
            if (graph_opdef(g, def)->flags & OPF_PARAM && op_is_state(def)) param = def;
        }
        if (uses && param) return param;
    }
    return NULL;
}

/* Who split the value along the axis, in the end. */
static Origin origin_of(const Graph *g, Val v, int axis) {
    /* A value takes an axis from one that has it already: no value comes twice. */
    for (int32_t i = v * g->mesh->naxes + axis; i < g->nsource && g->source[i].from;
         i = v * g->mesh->naxes + axis)
        v = g->source[i].from;
    const Node *n = graph_def(g, v), *beside = param_beside(g, n);
    if (beside) n = beside;
    uint32_t flags = graph_opdef(g, n)->flags;
    Origin o = {.kind = ORIGIN_OP, .axis = (uint8_t)axis, .loc = n->nloc ? n->loc[0] : NULL};
    if (flags & OPF_PARAM) {
        const ParamAttr *attr = n->attr;
        o.kind = op_is_state(n) ? ORIGIN_PARAM : ORIGIN_ARGUMENT;
        o.index = (int32_t)attr->index;
        o.name = name_or_empty(g, attr->name);
        o.loc = NULL;
    } else if (flags & OPF_CONSTRAINT && o.loc && !o.loc->chunk && o.loc->scope &&
               param_index(g, o.loc->scope)) { /* what a Param keeps */
        o.kind = ORIGIN_PARAM;
        o.name = o.loc->scope;
        o.index = param_index(g, o.name);
        o.loc = NULL;
    } else if (flags & OPF_CONSTRAINT) {
        o.kind = ORIGIN_CONSTRAINT;
        o.name = name_or_empty(g, NULL);
    } else {
        o.name = intern_name(g->cx, graph_opdef(g, n)->name);
    }
    return o;
}

/* The ops on the way from v to who split it: the first and the last few. */
static void print_steps(const Graph *g, Val v, int axis, Str *s) {
    enum { ENDS = 3 };
    int n = 0, at = 0, naxes = g->mesh->naxes;
    for (Val w = v; w * naxes + axis < g->nsource && g->source[w * naxes + axis].from;
         w = g->source[w * naxes + axis].from)
        n++;
    for (Val w = v; at < n; at++, w = g->source[w * naxes + axis].from) {
        const Node *step = graph_node(g, g->source[w * naxes + axis].node);
        if (at == ENDS && n > 2 * ENDS)
            str_fmt(s, "%d more op%s, ", n - 2 * ENDS, str_s(n - 2 * ENDS));
        if (n > 2 * ENDS && at >= ENDS && at < n - ENDS) continue;
        str_fmt(s, "%s at ", graph_opdef(g, step)->name);
        intern_print_loc(step->nloc ? step->loc[0] : NULL, s);
        str_put(s, ", ");
    }
}

void origin_print_chain(const Graph *g, Val v, Str *s) {
    const Layout *l = graph_type(g, v)->layout;
    for (int d = 0; l && d < l->rank; d++)
        for (int i = 0; i < l->dim[d].axes.n; i++) {
            int axis = l->dim[d].axes.at[i].axis;
            Origin o = origin_of(g, v, axis);
            if (s->n) str_put(s, "\n");
            str_fmt(s, "dim %d on %s: ", d + 1, g->mesh->name[axis]);
            print_steps(g, v, axis, s);
            if (o.kind == ORIGIN_CONSTRAINT) str_put(s, "constrained at ");
            if (o.name) reason_print_origin(&o, s);
        }
}

/* ---- reasons ---- */

typedef struct Draft { /* a reason being written */
    const Graph *g;
    Reason r;
    Str text;
} Draft;

static Draft draft(const Graph *g, const Node *n) {
    Draft d = {.g = g, .r = {.loc = n->nloc ? n->loc[0] : NULL}};
    str_init(&d.text, &g->cx->alloc);
    return d;
}

static const char *take_text(Draft *d) {
    const char *s = d->text.failed ? NULL : intern_name(d->g->cx, str_of(&d->text));
    str_clear(&d->text);
    return s;
}

/* What moves: its name and its type as a whole, in the layout it has. */
static void set_tensor(Draft *d, Val v, const Layout *layout) {
    const Node *n = graph_def(d->g, v);
    const ParamAttr *attr = n->attr;
    Type t = *graph_type(d->g, v);
    t.layout = layout;
    bool named = graph_opdef(d->g, n)->flags & OPF_PARAM && attr->name && attr->name[0];
    str_fmt(&d->text, "%s ", named ? attr->name : graph_opdef(d->g, n)->name);
    type_print(&t, &d->text);
    d->r.tensor = take_text(d);
}

static void add_origins(Draft *d, Val v, uint32_t axes) {
    for (int a = 0; a < d->g->mesh->naxes; a++) {
        if (!(axes >> a & 1)) continue;
        Origin o = origin_of(d->g, v, a);
        if (o.name)
            reason_add(&d->r, &o);
        else
            d->text.failed = true;
    }
}

static const Reason *finish(Draft *d) {
    bool failed = d->text.failed || !d->r.tensor;
    d->r.text = take_text(d);
    str_free(&d->text);
    return failed || !d->r.text ? NULL : reason_of(d->g->cx, &d->r);
}

static const char *tensor_name(const Step *s, int t, char buf[32]) {
    const char *name = graph_opdef(s->g, s->n)->operands;
    if (t >= s->n->nin) return "the result";
    for (int i = t; i > 0 && *name; i--) {
        name += strcspn(name, ",");
        name += *name == ',';
    }
    snprintf(buf, 32, "%.*s", (int)strcspn(name, ","), name);
    return buf[0] ? buf : "operand";
}

/* The tensor (not `but`) and dim that the op splits on one of the axes, one that has the axis
 * itself before one that gets it for this op; false if there is none. */
static bool splits(const Step *s, int but, uint32_t axes, int *tensor, int *dim) {
    bool any = false, own = false;
    for (int t = 0; t < s->r->ntensor && !own; t++)
        for (int d = 0; t != but && d < s->under[t].rank && !own; d++) {
            uint32_t on = axes_mask(&s->under[t].dim[d].axes) & axes;
            own = on & layout_used(&s->have[node_tensor(s->n, t)]);
            if (!own && (!on || any)) continue;
            any = true;
            *tensor = t;
            *dim = d;
        }
    return any;
}

/* Those of the axes that the tensor has itself: it may be about to get others for this op. */
static void add_split(const Step *s, Draft *d, int tensor, uint32_t axes) {
    Val v = node_tensor(s->n, tensor);
    add_origins(d, v, axes & layout_used(&s->have[v]));
}

static void say_conflict(const Step *s, Draft *d, int t, int dim, uint32_t lost,
                         const AxisList *want) {
    const FactorMap *m = &s->r->tensor[t];
    char name[32];
    int other, other_dim;
    if (m->n[dim] > 0 && s->r->kind[m->at[dim][0]] == FACTOR_REPLICATE) {
        str_put(&d->text, " but is needed whole");
    } else if (splits(s, t, lost, &other, &other_dim)) {
        str_fmt(&d->text, ", which splits dim %d of %s", other_dim + 1,
                tensor_name(s, other, name));
        add_split(s, d, other, lost);
    } else if (want->n) {
        str_put(&d->text, ", and the op splits it on ");
        axes_print(want, s->g->mesh, &d->text);
    } else {
        str_put(&d->text, ", which the others leave whole");
    }
}

const Reason *origin_reshard(const Step *s, int t, const Layout *from, const Layout *to) {
    Draft d = draft(s->g, s->n);
    char name[32];
    const char *op = graph_opdef(s->g, s->n)->name;
    Val v = node_tensor(s->n, t);
    bool operand = t < s->n->nin, said = false;
    uint32_t gained = 0;
    Layout full = *from;
    full.vary = 0;
    set_tensor(&d, v, &full);
    for (int k = 0; k < to->rank && !said; k++) {
        const AxisList *have = &from->dim[k].axes, *want = &to->dim[k].axes;
        uint32_t lost = axes_mask(have) & ~axes_mask(want);
        gained |= axes_mask(want) & ~axes_mask(have);
        if (axes_is_prefix(have, want)) continue;
        said = true;
        if (!lost) lost = axes_mask(have);
        str_fmt(&d.text, "%s of %s: dim %d is split on ",
                operand ? tensor_name(s, t, name) : "result", op, k + 1);
        axes_print(have, s->g->mesh, &d.text);
        add_origins(&d, v, operand ? lost : axes_mask(want));
        if (operand) {
            say_conflict(s, &d, t, k, lost, want);
        } else {
            str_put(&d.text, want->n ? ", and wanted split on " : ", and wanted whole");
            if (want->n) axes_print(want, s->g->mesh, &d.text);
            int other, dim;
            if (splits(s, t, lost, &other, &dim)) add_split(s, &d, other, lost);
        }
    }
    if (!said) {
        uint32_t sums = from->unreduced & ~(uint32_t)to->unreduced;
        str_fmt(&d.text, "%s of %s is %s", operand ? tensor_name(s, t, name) : "result", op,
                sums ? "a sum that is still to be made over " : "split further");
        if (sums) mesh_print_axes(s->g->mesh, sums, &d.text);
        add_origins(&d, v, gained | sums);
    }
    return finish(&d);
}

const Reason *origin_unreduced(const Step *s, int i, const Layout *have) {
    Draft d = draft(s->g, s->n);
    char name[32];
    bool first = true;
    Layout full = *have;
    full.vary = 0;
    set_tensor(&d, s->n->out + i, &full);
    str_fmt(&d.text, "%s runs over ", graph_opdef(s->g, s->n)->name);
    for (int t = 0; t < s->n->nin; t++)
        for (int k = 0; k < s->under[t].rank; k++) {
            uint32_t over = axes_mask(&s->under[t].dim[k].axes) & have->unreduced;
            const FactorMap *m = &s->r->tensor[t];
            if (!over || !m->n[k] || s->r->kind[m->at[k][0]] == FACTOR_PASS) continue;
            str_fmt(&d.text, "%sdim %d of %s", first ? "" : " and ", k + 1,
                    tensor_name(s, t, name));
            add_split(s, &d, t, over);
            first = false;
        }
    str_put(&d.text, ", split on ");
    mesh_print_axes(s->g->mesh, have->unreduced, &d.text);
    return finish(&d);
}

const Reason *origin_halo(const Step *s, int dim, int before, int behind) {
    Draft d = draft(s->g, s->n);
    char name[32];
    const AxisList *axes = &s->under[0].dim[dim].axes;
    set_tensor(&d, s->n->in[0], &s->under[0]);
    str_fmt(&d.text, "%s of %s: dim %d is split on ", tensor_name(s, 0, name),
            graph_opdef(s->g, s->n)->name, dim + 1);
    axes_print(axes, s->g->mesh, &d.text);
    str_fmt(&d.text, ", and each part needs %d of the part before it and %d of the next", before,
            behind);
    add_origins(&d, s->n->in[0], axes_mask(axes));
    return finish(&d);
}

const Reason *origin_constraint(const Graph *g, const Node *n, const Layout *from,
                                const Layout *to) {
    Draft d = draft(g, n);
    set_tensor(&d, n->in[0], from);
    const Type *in = graph_type(g, n->in[0]), *out = graph_type(g, n->out);
    const Dims *whole = type_count(in) >= type_count(out) ? &in->dims : &out->dims;
    const Spec *spec = layout_spec(g->cx, to, whole);
    bool asked = n->out * g->mesh->naxes < g->nsource; /* else propagate's own, for a result */
    str_put(&d.text, asked ? "asked for here: " : "a result is split on whole axes only: ");
    if (spec)
        spec_print(spec, &d.text);
    else
        d.text.failed = true;
    uint32_t lost = layout_used(from) & ~layout_used(to);
    Origin o = {.kind = ORIGIN_CONSTRAINT,
                .axis = ORIGIN_ANY_AXIS,
                .name = intern_name(g->cx, ""),
                .loc = d.r.loc};
    if (!o.name) d.text.failed = true;
    if (asked) reason_add(&d.r, &o);
    add_origins(&d, n->in[0], lost ? lost : layout_used(from));
    return finish(&d);
}

/* Where a value lies that a loop or branch wants otherwise. */
static void say_layout(Draft *d, const Layout *l) {
    uint32_t split = layout_used(l);
    if (l->unreduced) {
        str_put(&d->text, " is a sum that is still to be made over ");
        mesh_print_axes(d->g->mesh, l->unreduced, &d->text);
    } else {
        str_put(&d->text, split ? " is split on " : " is whole");
        mesh_print_axes(d->g->mesh, split, &d->text);
    }
}

const Reason *origin_flow(const Graph *g, const Node *n, Val v, const Flow *f, const Layout *from,
                          const Layout *to) {
    Draft d = draft(g, n);
    uint32_t lost = layout_used(from) & ~layout_used(to);
    set_tensor(&d, v, from);
    str_put(&d.text, graph_opdef(g, n)->name);
    bool outside = graph_def(g, v)->region == n->region;
    bool slices = outside && f->stacked && from->rank && from->dim[0].axes.n;
    str_put(&d.text, slices       ? " runs along dim 1, which"
                     : f->carried ? " keeps its carry in one layout; this one"
                     : outside    ? " has it in another layout inside; here it"
                                  : " gives it in another layout; here it");
    say_layout(&d, from);
    add_origins(&d, v, lost ? lost : layout_used(from));
    return finish(&d);
}

const Reason *origin_written(const Graph *g, const Node *n) {
    Draft d = draft(g, n);
    set_tensor(&d, n->in[0], graph_type(g, n->in[0])->layout);
    str_put(&d.text, "written here");
    Origin o = {.kind = ORIGIN_OP,
                .axis = ORIGIN_ANY_AXIS,
                .name = intern_name(g->cx, graph_opdef(g, n)->name),
                .loc = d.r.loc};
    reason_add(&d.r, &o);
    return finish(&d);
}
