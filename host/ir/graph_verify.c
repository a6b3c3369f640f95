#include "ir/graph.h"

#include <string.h>

static Err bad(const Graph *g, int32_t id, const char *what) {
    Str s;
    str_init(&s, &g->cx->alloc);
    for (int32_t i = id > 5 ? id - 5 : 1; i <= id + 2 && i < g->node.n; i++)
        graph_print_node(g, graph_node(g, i), i == id ? 0 : 2, &s);
    Err e = err_set(g->cx, E_PARSE, "graph: %s at node %d:\n%s", what, id, str_of(&s));
    str_free(&s);
    return e;
}

static Err check_inputs(const Graph *g, int32_t id) {
    const Node *n = graph_node(g, id);
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] <= 0 || n->in[i] >= n->out) return bad(g, id, "an input that comes later");
        if (graph_def(g, n->in[i])->region != n->region)
            return bad(g, id, "an input from another region");
    }
    return E_OK;
}

static bool uses_twice(const Layout *l) {
    for (int d = 0; d < l->rank; d++)
        for (int i = 0; i < l->dim[d].axes.n; i++)
            if (layout_places(l, l->dim[d].axes.at[i]) > 1) return true;
    return false;
}

static Err check_types(const Graph *g, int32_t id) {
    const Node *n = graph_node(g, id);
    for (int i = 0; i < n->nout; i++) {
        const Type *t = graph_type(g, n->out + i);
        if (g->value.at[n->out + i].node != id) return bad(g, id, "a value of another node");
        if (!t) return bad(g, id, "a value without a type");
        if (t->layout && (t->layout->mesh != g->mesh || t->layout->rank != t->dims.rank))
            return bad(g, id, "a layout of another mesh or rank");
        if (t->layout && uses_twice(t->layout)) return bad(g, id, "a layout with an axis twice");
    }
    return E_OK;
}

static Err check_again(const Graph *g, int32_t id) {
    const Node *n = graph_node(g, id);
    const OpDef *def = graph_opdef(g, n);
    enum { FEW = 64 };
    if (def->flags & OPF_TYPED || n->nin > FEW || n->nout > FEW) return E_OK;
    const Type *in[FEW];
    OutType out[FEW];
    int nout = def->nout < 0 ? n->nin : def->nout;
    graph_in_types(g, n, in);
    OpArgs a = {g->cx, def, n->nin, in, n->attr};
    TRY(def->shape(&a, out, &nout));
    if (nout != n->nout) return bad(g, id, "a wrong number of results");
    for (int i = 0; i < nout; i++) {
        const Type *t = graph_type(g, n->out + i);
        if (t->dtype != out[i].dtype || !dims_equal(&t->dims, &out[i].dims))
            return bad(g, id, "a result type that the shape rule does not give");
    }
    return E_OK;
}

/* ---- attributes and offsets ---- */

static bool fits_mesh(const Mesh *m, const AxisList *a) {
    if (a->n > MAX_AXES || (a->n && !m)) return false;
    for (int i = 0; i < a->n; i++) {
        const AxisRef *r = &a->at[i];
        if (r->axis >= m->naxes || r->pre < 1 || r->size < 1 ||
            m->size[r->axis] % ((int64_t)r->pre * r->size) != 0)
            return false;
    }
    return true;
}

static bool fits_dims(const Dims *d, int64_t least, int64_t most) {
    if (d->rank < 0 || d->rank > MAX_RANK) return false;
    for (int i = 0; i < d->rank; i++)
        if (d->at[i] < least || d->at[i] > most) return false;
    return true;
}

/* Whatever the op: what printers, rules and kernels take as an index of a table. */
static bool fits_field(const AttrField *f, const void *at, const Mesh *m) {
    const int32_t i = *(const int32_t *)at;
    int words = 0;
    switch (f->kind) {
    case ATTR_BOOL:
    case ATTR_FLAG: return i == 0 || i == 1;
    case ATTR_DTYPE: return i >= 0 && i < DT_COUNT;
    case ATTR_DIM: return i >= -1 && i < MAX_RANK;          /* -1: none */
    case ATTR_DIMS: return fits_dims(at, -1, MAX_RANK - 1); /* the same */
    case ATTR_SHAPE: return fits_dims(at, 0, DIMS_MOST);
    case ATTR_LIST:
    case ATTR_SOME: return fits_dims(at, INT64_MIN, INT64_MAX);
    case ATTR_AXES: return fits_mesh(m, at);
    case ATTR_MASK: return (*(const uint32_t *)at >> (m ? m->naxes : 0)) == 0;
    case ATTR_LAYOUT: return !*(const Layout *const *)at || (*(const Layout *const *)at)->mesh == m;
    case ATTR_ENUM:
        while (f->names[words]) words++;
        return i >= 0 && i < words;
    default: return true;
    }
}

/* Not printed: printers trust what this looks for. */
static Err check_attr(const Graph *g, int32_t id) {
    const Node *n = graph_node(g, id);
    const OpDef *def = graph_opdef(g, n);
    for (const AttrField *f = def->attr; f && n->attr && f->name; f++)
        if (!fits_field(f, (const char *)n->attr + f->offset, g->mesh))
            return err_set(g->cx, E_PARSE,
                           "graph: attribute %s of %s is out of its range at node %d", f->name,
                           def->name, id);
    return E_OK;
}

/* How many offsets the op's row gives a node: kernels and views read so many. -1: any. */
static int count_offsets(const Graph *g, const Node *n) {
    enum { FEW = 32 };
    const OpDef *def = graph_opdef(g, n);
    const Type *type[2 * FEW];
    const Layout *layout[2 * FEW];
    _Alignas(16) char attr[1024];
    Offset offset[2 * MAX_RANK];
    if (!def->local) return def->flags & OPF_COLLECTIVE ? 1 : 0;
    if (n->nin > FEW || n->nout > FEW || def->attr_size > sizeof attr) return -1;
    graph_in_types(g, n, type);
    graph_out_types(g, n, type + n->nin);
    for (int i = 0; i < n->nin + n->nout; i++) layout[i] = type[i]->layout;
    if (n->attr) memcpy(attr, n->attr, def->attr_size);
    LocalArgs a = {g->cx,  n->nin,          n->nout, type,   type + n->nin,
                   layout, layout + n->nin, attr,    offset, 0};
    def->local(&a);
    return a.noffset;
}

static Err check_offsets(const Graph *g, int32_t id) {
    const Node *n = graph_node(g, id);
    if (!n->noffset) return E_OK;
    int wanted = g->mesh ? count_offsets(g, n) : 0;
    if (wanted >= 0 && n->noffset != wanted) return bad(g, id, "a wrong number of offsets");
    for (int i = 0; i < n->noffset; i++) {
        const Offset *o = &n->offset[i];
        if (!fits_mesh(g->mesh, &o->axes)) return bad(g, id, "an offset along no axes of the mesh");
        if (o->unit < 0 || o->unit > DIMS_MOST) return bad(g, id, "an offset out of its range");
    }
    return E_OK;
}

static Err check_region(const Graph *g, int32_t r) {
    const Region *region = &g->region.at[r];
    for (int i = 0; i < region->param.n; i++) {
        const Node *n = graph_def(g, region->param.at[i]);
        if (n->region != r || !(graph_opdef(g, n)->flags & OPF_PARAM))
            return bad(g, g->value.at[region->param.at[i]].node, "a parameter of another region");
    }
    for (int i = 0; i < region->result.n; i++)
        if (graph_def(g, region->result.at[i])->region != r)
            return bad(g, g->value.at[region->result.at[i]].node, "a result of another region");
    return E_OK;
}

Err graph_verify(const Graph *g) {
    for (int32_t id = 1; id < g->node.n; id++) {
        TRY(check_inputs(g, id));
        TRY(check_types(g, id));
        TRY(check_attr(g, id));
        TRY(check_again(g, id));
        const Node *n = graph_node(g, id);
        int32_t owner = g->region.at[n->region].owner;
        if (owner && owner <= id) return bad(g, id, "a node behind the one that owns its region");
        for (int k = 0; k < n->nbody; k++)
            if (g->region.at[n->body[k]].owner != id) return bad(g, id, "a body of another node");
    }
    for (int32_t r = 0; r < g->region.n; r++) TRY(check_region(g, r));
    return E_OK;
}

/* ---- what holds after some passes only ---- */

Err graph_verify_laid(const Graph *g) {
    TRY(graph_verify(g));
    for (Val v = 1; v < g->value.n; v++) {
        const Type *t = graph_type(g, v);
        int32_t id = g->value.at[v].node;
        if (t->local) return bad(g, id, "a local type before partitioning");
        if (g->mesh && !t->layout) return bad(g, id, "a value without a layout");
    }
    return E_OK;
}

static uint32_t vary_of(const Graph *g, Val v) {
    const Layout *l = graph_type(g, v)->layout;
    return l ? l->vary : 0;
}

/* Results vary along all that their operands and offsets do, unless the op's
 * row takes axes away. */
static Err check_vary(const Graph *g, int32_t id) {
    const Node *n = graph_node(g, id);
    const OpDef *def = graph_opdef(g, n);
    enum { FEW = 64 };
    const Type *in[FEW];
    if (def->flags & OPF_PARAM || n->nbody || n->nin > FEW) return E_OK;
    uint32_t vary = 0;
    graph_in_types(g, n, in);
    for (int i = 0; i < n->nin; i++) vary |= vary_of(g, n->in[i]);
    OpArgs a = {g->cx, def, n->nin, in, n->attr};
    if (def->vary) vary = def->vary(&a, vary);
    for (int i = 0; i < n->noffset; i++) vary |= axes_mask(&n->offset[i].axes);
    for (int i = 0; i < n->nout; i++)
        if (vary & ~vary_of(g, n->out + i)) return bad(g, id, "a result that must vary with more");
    return E_OK;
}

Err graph_verify_local(const Graph *g) {
    TRY(graph_verify(g));
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        if (graph_opdef(g, n)->flags & (OPF_CONSTRAINT | OPF_PLACEHOLDER))
            return bad(g, id, "what partitioning leaves nothing of");
        for (int i = 0; i < n->nout; i++) {
            const Type *t = graph_type(g, n->out + i);
            if (!t->local) return bad(g, id, "a global type after partitioning");
            if (t->layout && layout_used(t->layout))
                return bad(g, id, "a local type that is split");
        }
        TRY(check_offsets(g, id));
        TRY(check_vary(g, id));
    }
    return E_OK;
}
