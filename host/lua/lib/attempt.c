/* attempt.c - a part of a trace that is whole or not at all. A script may catch what shard_map,
 * vmap or a loop raises and go on: the trace is then as it was before the call. The nodes that the
 * call made stay where they are, since their numbers may be in the script's hands, but as nodes
 * that compute nothing, and whoever uses one of their values is told. */
#include "lua/lib/lib.h"
#include "lua/trace/trace.h"

typedef struct TraceMark { /* how far a trace has come */
    Build build;
    const Mesh *mesh;
    const Type *plain; /* for values whose type has a layout on a mesh that is let go */
    int32_t node, region, span, capture, frame, inside;
    lua_Integer effects;
} TraceMark;

static TraceMark mark_of(lua_State *L, Host *h) {
    Trace *t = h->trace;
    Graph *g = t->graph;
    trace_push_effects(L);
    lua_Integer effects = (lua_Integer)lua_rawlen(L, -1);
    lua_pop(L, 1);
    TraceMark m = {t->build,     g->mesh,     type_of(&h->cx, &(Type){.dtype = DT_F32}),
                   g->node.n,    g->region.n, g->span.n,
                   t->capture.n, t->frame.n,  t->inside,
                   effects};
    /* What takes back must not need memory. */
    if (!m.plain || !VEC_ROOM(&t->arena, &t->gone, 1))
        state_check(L, h, err_nomem(&h->cx, "a trace"));
    return m;
}

static void drop_params(const Graph *g, Region *r, int32_t first) {
    while (r->param.n && g->value.at[r->param.at[r->param.n - 1]].node >= first) r->param.n--;
}

static void drop_captures(lua_State *L, Trace *t, int32_t keep) {
    for (; t->capture.n > keep; t->capture.n--) {
        Capture *c = &t->capture.at[t->capture.n - 1];
        tensor_release(c->tensor);
        if (c->ref != LUA_NOREF) luaL_unref(L, LUA_REGISTRYINDEX, c->ref);
    }
}

static void void_nodes(Graph *g, const TraceMark *m) {
    for (int32_t id = m->node; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        for (int i = 0; i < n->nout; i++) {
            Value *v = &g->value.at[n->out + i];
            if (v->type->layout && v->type->layout->mesh != m->mesh) v->type = m->plain;
        }
        g->node.at[id] = (Node){.op = OP_PLACEHOLDER,
                                .nout = n->nout,
                                .out = n->out,
                                .region = m->build.region,
                                .loc = n->loc,
                                .nloc = n->nloc};
    }
}

static void take_back(lua_State *L, Host *h, const TraceMark *m) {
    Trace *t = h->trace;
    Graph *g = t->graph;
    drop_captures(L, t, m->capture);
    drop_params(g, &g->region.at[0], m->node);
    t->frame.n = m->frame;
    for (int i = 0; i < t->frame.n; i++) {
        Frame *f = &t->frame.at[i];
        drop_params(g, &g->region.at[f->region], m->node);
        while (f->param.n && g->value.at[f->param.at[f->param.n - 1]].node >= m->node)
            f->outer.n = --f->param.n;
    }
    while (t->gone.n && t->gone.at[t->gone.n - 1].first >= m->node) t->gone.n--;
    if (m->node < g->node.n)
        t->gone.at[t->gone.n++] = (NodeRange){m->node, g->node.n, .failed = true};
    void_nodes(g, m);
    g->region.n = m->region;
    g->span.n = m->span;
    for (int32_t i = 0; i < g->span.n; i++)
        if (g->span.at[i].outer > g->span.n) g->span.at[i].outer = 0;
    g->mesh = m->mesh;
    t->build = m->build;
    t->inside = m->inside;
    trace_push_effects(L);
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1); i > m->effects; i--) {
        lua_pushnil(L);
        lua_rawseti(L, -2, i);
    }
    lua_pop(L, 1);
}

/* attempt(fn, ...): fn's results. If it raises, the trace under way is as it was before. */
static int attempt(lua_State *L) {
    Host *h = state_of(L);
    trace_of(L, h, "attempt");
    arg_check_type(L, 1, LUA_TFUNCTION, "attempt");
    TraceMark m = mark_of(L, h);
    uint64_t serial = h->trace->serial;
    int32_t depth = h->depth;
    int status = wrap_pcall(L, lua_gettop(L) - 1);
    if (status == LUA_OK) return lua_gettop(L);
    if (h->trace && h->trace->serial == serial) take_back(L, h, &m);
    h->depth = depth;
    return lua_error(L);
}

void lib_open_attempt(lua_State *L) {
    static const luaL_Reg fns[] = {{"attempt", attempt}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
