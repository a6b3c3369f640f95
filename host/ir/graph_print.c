/* graph_print.c - the text form of a graph: one line per node,
 *   %3 = matmul %1 %2 {...} : float32[64@data,2048@model]  ; mlp.lua:12 (h.3.mlp.up)
 * regions indented in braces after the node that owns them. The short form is for people; the full
 * one (full.h) leaves nothing out, and graph_parse.c reads it back as the same graph. */
#include "ir/full.h"
#include "ir/graph.h"

typedef struct Printer {
    const Graph *g;
    Str *s;
    bool full;
    FullDefault def; /* of the full form's types */
} Printer;

static void print_values(const Printer *p, const char *before, const Val *v, int n) {
    str_put(p->s, before);
    for (int i = 0; i < n; i++) str_fmt(p->s, " %%%d", (int)v[i]);
}

static void print_offsets(const Printer *p, const Node *n) {
    Str *s = p->s;
    str_put(s, " offset=[");
    for (int i = 0; i < n->noffset; i++) {
        const Offset *o = &n->offset[i];
        if (i) str_put(s, ",");
        if (o->axes.n == 0 && (!p->full || o->unit == 0)) {
            str_put(s, "0");
            continue;
        }
        str_fmt(s, "%lld*", (long long)o->unit);
        if (p->full)
            full_axes(&o->axes, p->g->mesh, s);
        else
            axes_print(&o->axes, p->g->mesh, s);
    }
    str_put(s, "]");
}

static void print_comment(const Node *n, Str *s) {
    if (n->nloc == 0 && !n->nwhy) return;
    str_put(s, "  ; ");
    for (int i = 0; i < n->nloc; i++) {
        if (i) str_put(s, ", ");
        intern_print_loc(n->loc[i], s);
    }
    if (n->nwhy) str_fmt(s, "%s%s", n->nloc ? ": " : "", n->why[0]->text);
    if (n->nwhy > 1) str_fmt(s, " and %d more", n->nwhy - 1);
}

static void print_full_comment(const Printer *p, const Node *n) {
    if (n->nloc == 0 && !n->nwhy) return;
    str_put(p->s, "  ; ");
    for (int i = 0; i < n->nloc; i++) {
        if (i) str_put(p->s, ", ");
        full_loc(n->loc[i], p->s);
    }
    for (int i = 0; i < n->nwhy; i++) {
        str_put(p->s, i || n->nloc ? " why " : "why ");
        full_reason(n->why[i], p->g->mesh, p->s);
    }
}

static void print_region(const Printer *p, int32_t region, int indent);

static void print_body(const Printer *p, int32_t region, int indent) {
    if (p->full)
        str_fmt(p->s, " {#%d\n", (int)region);
    else
        str_put(p->s, " {\n");
    print_region(p, region, indent + 2);
    str_fmt(p->s, "%*s}", indent, "");
}

static void print_node(const Printer *p, const Node *n, int indent) {
    const Graph *g = p->g;
    const OpDef *def = graph_opdef(g, n);
    Str *s = p->s;
    str_fmt(s, "%*s", indent, "");
    if (p->full && n->nout == 0) str_fmt(s, "none %%%d #%d", (int)n->out, (int)(n - g->node.at));
    for (int i = 0; i < n->nout; i++) str_fmt(s, "%s%%%d", i ? ", " : "", n->out + i);
    str_fmt(s, " = %s", def->name);
    print_values(p, "", n->in, n->nin);
    if (attr_says(def->attr, n->attr, p->full)) {
        str_put(s, " ");
        (p->full ? attr_print_full : attr_print)(def->attr, n->attr, g->mesh, s);
    }
    if (n->noffset) print_offsets(p, n);
    if (n->clone) str_fmt(s, " clone=%d", n->clone);
    if (p->full && n->role) str_fmt(s, " role=%s", role_name((Role)n->role));
    str_put(s, " : ");
    for (int i = 0; i < n->nout; i++) {
        if (i) str_put(s, ", ");
        if (p->full)
            full_type(graph_type(g, n->out + i), &p->def, s);
        else
            type_print(graph_type(g, n->out + i), s);
    }
    for (int k = 0; k < n->nbody; k++) print_body(p, n->body[k], indent);
    if (p->full)
        print_full_comment(p, n);
    else
        print_comment(n, s);
    str_put(s, "\n");
}

/* Are the region's parameters what its param nodes make, in their order? */
static bool params_as_usual(const Graph *g, int32_t region) {
    const Region *r = &g->region.at[region];
    int32_t at = 0;
    for (int32_t i = r->first; i < graph_region_end(g, region); i++) {
        const Node *n = graph_node(g, i);
        if (n->region != region || !(graph_opdef(g, n)->flags & OPF_PARAM)) continue;
        if (at == r->param.n || r->param.at[at++] != n->out) return false;
    }
    return at == r->param.n;
}

static void print_region(const Printer *p, int32_t region, int indent) {
    const Graph *g = p->g;
    const Region *r = &g->region.at[region];
    if (p->full && !params_as_usual(g, region)) {
        str_fmt(p->s, "%*sparams", indent, "");
        print_values(p, "", r->param.at, r->param.n);
        str_put(p->s, "\n");
    }
    for (int32_t i = r->first; i < graph_region_end(g, region); i++)
        if (graph_node(g, i)->region == region) print_node(p, graph_node(g, i), indent);
    str_fmt(p->s, "%*sreturn", indent, "");
    print_values(p, "", r->result.at, r->result.n);
    str_put(p->s, "\n");
}

void graph_print_node(const Graph *g, const Node *n, int indent, Str *s) {
    print_node(&(Printer){.g = g, .s = s}, n, indent);
}

void graph_print(const Graph *g, Str *s) {
    if (g->mesh) {
        mesh_print(g->mesh, s);
        str_put(s, "\n");
    }
    print_region(&(Printer){.g = g, .s = s}, 0, 0);
}

static FullDefault default_of(const Graph *g) {
    FullDefault d = {g->mesh, g->value.n > 1, g->mesh && g->value.n > 1};
    for (Val v = 1; v < g->value.n; v++) {
        d.local = d.local && graph_type(g, v)->local;
        d.laid = d.laid && graph_type(g, v)->layout;
    }
    return d;
}

/* Where the values got their axes from (AxisSource); the graph's own list may end before them. */
static void print_sources(const Graph *g, Str *s) {
    if (!g->source) return;
    str_fmt(s, "sources %d\n", (int)g->nsource);
    for (int32_t i = 0; i < g->nsource; i++) {
        const AxisSource *from = &g->source[i];
        if (!from->from && !from->node) continue;
        str_fmt(s, "source %%%d ", (int)(i / g->mesh->naxes));
        full_mask(g->mesh, 1u << i % g->mesh->naxes, s);
        str_fmt(s, " %%%d #%d\n", (int)from->from, (int)from->node);
    }
}

void graph_print_full(const Graph *g, Str *s) {
    Printer p = {.g = g, .s = s, .full = true, .def = default_of(g)};
    if (g->mesh) full_mesh(g->mesh, s);
    if (p.def.local || p.def.laid)
        str_fmt(s, "%s%s", g->mesh ? " " : "", p.def.local ? "local" : "laid");
    if (p.def.local && g->mesh && !p.def.laid) str_put(s, " bare");
    if (g->mesh || p.def.local) str_put(s, "\n");
    print_region(&p, 0, 0);
    for (int32_t r = 1; r < g->region.n; r++) {
        if (g->region.at[r].owner) continue;
        str_put(s, "orphan");
        print_body(&p, r, 0);
        str_put(s, "\n");
    }
    print_sources(g, s);
    for (int32_t i = 0; i < g->span.n; i++) full_span(&g->span.at[i], s);
}
