/* graph_equal.c - are two graphs the same, node by node? And is one the same as
 * what its text says? */
#include "ir/graph.h"

#include <string.h>

typedef struct Compare {
    const Graph *a, *b;
    Str *what; /* or NULL */
} Compare;

static bool differs(const Compare *c, const char *what, int32_t at) {
    if (c->what) str_fmt(c->what, "%s differs at %d", what, (int)at);
    return false;
}

static bool same(const void *x, const void *y, int32_t n, size_t size) {
    return n == 0 || memcmp(x, y, size * (size_t)n) == 0;
}

static bool same_offsets(const Node *x, const Node *y) {
    bool ok = x->noffset == y->noffset;
    for (int i = 0; ok && i < x->noffset; i++)
        ok = x->offset[i].unit == y->offset[i].unit &&
             axes_equal(&x->offset[i].axes, &y->offset[i].axes);
    return ok;
}

static bool same_node(const Compare *c, int32_t id) {
    const Node *x = graph_node(c->a, id), *y = graph_node(c->b, id);
    if (x->op != y->op) return differs(c, "the op", id);
    if (x->nin != y->nin || !same(x->in, y->in, x->nin, sizeof *x->in))
        return differs(c, "the operands", id);
    if (x->out != y->out || x->nout != y->nout) return differs(c, "the results", id);
    if (!attr_equal(graph_opdef(c->a, x)->attr, x->attr, y->attr))
        return differs(c, "an attribute", id);
    if (x->region != y->region || x->nbody != y->nbody ||
        !same(x->body, y->body, x->nbody, sizeof *x->body))
        return differs(c, "a region", id);
    if (x->clone != y->clone || x->role != y->role) return differs(c, "clone or role", id);
    if (x->nloc != y->nloc || !same(x->loc, y->loc, x->nloc, sizeof(void *)))
        return differs(c, "a place", id);
    if (x->nwhy != y->nwhy || !same(x->why, y->why, x->nwhy, sizeof(void *)))
        return differs(c, "a reason", id);
    return same_offsets(x, y) || differs(c, "an offset", id);
}

static bool same_region(const Compare *c, int32_t r) {
    const Region *x = &c->a->region.at[r], *y = &c->b->region.at[r];
    bool ok = x->owner == y->owner && x->param.n == y->param.n && x->result.n == y->result.n &&
              same(x->param.at, y->param.at, x->param.n, sizeof(Val)) &&
              same(x->result.at, y->result.at, x->result.n, sizeof(Val));
    return ok || differs(c, "a region's parameters, results or owner", r);
}

static bool same_policy(const RematPolicy *x, const RematPolicy *y) {
    for (; x && y; x = x->also, y = y->also)
        if (x->save != y->save || x->nname != y->nname ||
            !same(x->name, y->name, x->nname, sizeof(char *)))
            return false;
    return x == y;
}

static bool same_rule(const CustomVjp *x, const CustomVjp *y) {
    if (!x || !y) return x == y;
    return x->nx == y->nx && x->ny == y->ny && x->bwd == y->bwd && x->bwd_end == y->bwd_end &&
           same(x->x, y->x, x->nx, sizeof(Val)) && same(x->dx, y->dx, x->nx, sizeof(Val)) &&
           same(x->y, y->y, x->ny, sizeof(Val)) && same(x->ct, y->ct, x->ny, sizeof(Val)) &&
           !x->t == !y->t &&
           (!x->t ||
            (same(x->t, y->t, x->nx, sizeof(Val)) && same(x->dy, y->dy, x->ny, sizeof(Val))));
}

static bool same_span(const Compare *c, int32_t i) {
    const Span *x = &c->a->span.at[i], *y = &c->b->span.at[i];
    bool ok = x->first == y->first && x->end == y->end && x->outer == y->outer &&
              x->before == y->before && same_policy(x->policy, y->policy) &&
              same_rule(x->rule, y->rule);
    return ok || differs(c, "a span", i);
}

static bool same_sources(const Compare *c) {
    const Graph *a = c->a, *b = c->b;
    if (!a->source != !b->source || (a->source && a->nsource != b->nsource)) return false;
    for (int32_t i = 0; a->source && i < a->nsource; i++)
        if (a->source[i].from != b->source[i].from || a->source[i].node != b->source[i].node)
            return false;
    return true;
}

bool graph_equal(const Graph *a, const Graph *b, Str *what) {
    Compare c = {a, b, what};
    if (a->mesh != b->mesh) return differs(&c, "the mesh", 0);
    if (a->node.n != b->node.n) return differs(&c, "the number of nodes", b->node.n);
    if (a->value.n != b->value.n) return differs(&c, "the number of values", b->value.n);
    if (a->region.n != b->region.n) return differs(&c, "the number of regions", b->region.n);
    if (a->span.n != b->span.n) return differs(&c, "the number of spans", b->span.n);
    for (int32_t i = 1; i < a->node.n; i++)
        if (!same_node(&c, i)) return false;
    for (int32_t i = 1; i < a->value.n; i++)
        if (a->value.at[i].type != b->value.at[i].type ||
            a->value.at[i].node != b->value.at[i].node)
            return differs(&c, "the type of a value", i);
    for (int32_t i = 0; i < a->region.n; i++)
        if (!same_region(&c, i)) return false;
    for (int32_t i = 0; i < a->span.n; i++)
        if (!same_span(&c, i)) return false;
    return same_sources(&c) || differs(&c, "where axes came from", 0);
}

static Err read_back(const Graph *g, const Str *text, Str *again, Str *what, Graph **out) {
    Ctx *cx = g->cx;
    if (text->failed) return err_nomem(cx, "a graph's text");
    TRY(graph_parse(cx, str_of(text), text->n, out));
    graph_print_full(*out, again);
    bool equal = graph_equal(g, *out, what);
    if (again->failed || what->failed) return err_nomem(cx, "a graph's text");
    if (equal && strcmp(str_of(text), str_of(again)) != 0) str_put(what, "its text differs");
    return what->n ? err_set(cx, E_PARSE, "%s", str_of(what)) : E_OK;
}

Err graph_check_text(const Graph *g) {
    Graph *out = NULL;
    Str text, again, what;
    str_init(&text, &g->cx->alloc);
    str_init(&again, &g->cx->alloc);
    str_init(&what, &g->cx->alloc);
    graph_print_full(g, &text);
    Err e = read_back(g, &text, &again, &what, &out);
    if (e && e != E_NOMEM) e = err_add(g->cx, "; the text:\n%s", str_of(&text));
    graph_free(out);
    str_free(&text);
    str_free(&again);
    str_free(&what);
    return e;
}
