#include "pass/layout/flow.h"

/* The values of a way; `shift` of each: the dims it has in front. Returns how many. */
static int values_of(const Graph *g, const Node *n, const Flow *f, Val *v, int *shift) {
    int k = 0;
    if (f->in >= 0) {
        shift[k] = f->stacked;
        v[k++] = n->in[f->in];
    }
    for (int r = 0; r < n->nbody; r++) {
        const Region *region = &g->region.at[n->body[r]];
        if (f->param >= 0) {
            shift[k] = 0;
            v[k++] = region->param.at[f->param];
        }
        if (f->result >= 0) {
            shift[k] = 0;
            v[k++] = region->result.at[f->result];
        }
    }
    if (f->out >= 0) {
        shift[k] = f->stacked;
        v[k++] = n->out + f->out;
    }
    return k;
}

static FactorRule *rule_for(const Graph *g, Arena *arena, const Val *v, const int *shift, int n) {
    FactorRule *r = ARENA_NEW(arena, FactorRule);
    if (!r || !(r->tensor = ARENA_ARRAY(arena, FactorMap, n))) return NULL;
    r->ntensor = n;
    const Dims *dims = &graph_type(g, v[0])->dims;
    for (int d = shift[0]; d < dims->rank; d++) {
        int f = factor_add(r, FACTOR_PASS, dims->at[d]);
        for (int t = 0; t < n; t++) factor_map(r, t, d - shift[0] + shift[t], f);
    }
    return r;
}

static int32_t count_ways(const Graph *g, int32_t *places) {
    int32_t ways = 0;
    Flow f;
    *places = 0;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        for (int i = 0; def->flow && def->flow(n, i, &f); i++) {
            ways++;
            *places += 2 + 2 * n->nbody;
        }
    }
    return ways;
}

static bool add_way(const Graph *g, Arena *arena, int32_t id, const Flow *f, FlowNodes *out,
                    int32_t *nplace) {
    const Node *n = graph_node(g, id);
    Val *v = ARENA_ARRAY(arena, Val, 2 + 2 * n->nbody);
    int *shift = ARENA_ARRAY(arena, int, 2 + 2 * n->nbody);
    if (!v || !shift) return false;
    int count = values_of(g, n, f, v, shift);
    out->node[out->n] = (Node){.op = n->op, .nin = count, .in = v, .loc = n->loc, .nloc = n->nloc};
    out->rule[out->n] = rule_for(g, arena, v, shift, count);
    out->owner[out->n] = id;
    for (int i = 0; i < count; i++) {
        out->place[*nplace] = out->n;
        out->next[*nplace] = out->first[v[i]];
        out->first[v[i]] = (*nplace)++;
    }
    return out->rule[out->n++] != NULL;
}

Err flow_nodes(const Graph *g, Arena *arena, FlowNodes *out) {
    int32_t places, nplace = 0, ways = count_ways(g, &places);
    *out = (FlowNodes){.node = ARENA_ARRAY(arena, Node, ways + 1),
                       .rule = ARENA_ARRAY(arena, FactorRule *, ways + 1),
                       .owner = ARENA_ARRAY(arena, int32_t, ways + 1),
                       .first = ARENA_ARRAY(arena, int32_t, g->value.n),
                       .next = ARENA_ARRAY(arena, int32_t, places + 1),
                       .place = ARENA_ARRAY(arena, int32_t, places + 1)};
    bool ok = out->node && out->rule && out->owner && out->first && out->next && out->place;
    for (Val v = 0; ok && v < g->value.n; v++) out->first[v] = -1;
    for (int32_t id = 1; ok && id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        const OpDef *def = graph_opdef(g, n);
        Flow f;
        for (int i = 0; ok && def->flow && def->flow(n, i, &f); i++)
            ok = add_way(g, arena, id, &f, out, &nplace);
    }
    return ok ? E_OK : err_nomem(g->cx, "propagation");
}

bool flow_is_stack(const Graph *g, Val v) {
    const Node *n = graph_def(g, v);
    const OpDef *def = graph_opdef(g, n);
    Flow f;
    for (int i = 0; def->flow && def->flow(n, i, &f); i++)
        if (f.stacked && f.out >= 0 && n->out + f.out == v) return true;
    return false;
}
