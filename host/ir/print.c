/* print.c - the text form of a graph: one line per node,
 *   %3 = matmul %1 %2 {...} : float32[64@data,2048@model]  ; mlp.lua:12 (h.3.mlp.up)
 * regions indented in braces after the node that owns them. parse.c reads it back. */
#include "ir/graph.h"

static void print_offsets(const Graph *g, const Node *n, Str *s) {
    str_put(s, " offset=[");
    for (int i = 0; i < n->noffset; i++) {
        const Offset *o = &n->offset[i];
        if (i) str_put(s, ",");
        if (o->axes.n == 0) {
            str_put(s, "0");
            continue;
        }
        str_fmt(s, "%lld*", (long long)o->unit);
        axes_print(&o->axes, g->mesh, s);
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

static void print_region(const Graph *g, int32_t region, int indent, Str *s);

void graph_print_node(const Graph *g, const Node *n, int indent, Str *s) {
    const OpDef *def = graph_opdef(g, n);
    str_fmt(s, "%*s", indent, "");
    for (int i = 0; i < n->nout; i++) str_fmt(s, "%s%%%d", i ? ", " : "", n->out + i);
    str_fmt(s, " = %s", def->name);
    for (int i = 0; i < n->nin; i++) str_fmt(s, " %%%d", n->in[i]);
    if (def->attr) {
        str_put(s, " ");
        attr_print(def->attr, n->attr, g->mesh, s);
    }
    if (n->noffset) print_offsets(g, n, s);
    if (n->clone) str_fmt(s, " clone=%d", n->clone);
    str_put(s, " : ");
    for (int i = 0; i < n->nout; i++) {
        if (i) str_put(s, ", ");
        type_print(graph_type(g, n->out + i), s);
    }
    for (int k = 0; k < n->nbody; k++) {
        str_put(s, " {\n");
        print_region(g, n->body[k], indent + 2, s);
        str_fmt(s, "%*s}", indent, "");
    }
    print_comment(n, s);
    str_put(s, "\n");
}

static void print_region(const Graph *g, int32_t region, int indent, Str *s) {
    for (int32_t i = g->region.at[region].first; i < graph_region_end(g, region); i++)
        if (graph_node(g, i)->region == region) graph_print_node(g, graph_node(g, i), indent, s);
    str_fmt(s, "%*sreturn", indent, "");
    const Region *r = &g->region.at[region];
    for (int i = 0; i < r->result.n; i++) str_fmt(s, " %%%d", r->result.at[i]);
    str_put(s, "\n");
}

void graph_print(const Graph *g, Str *s) {
    if (g->mesh) {
        mesh_print(g->mesh, s);
        str_put(s, "\n");
    }
    print_region(g, 0, 0, s);
}
