/* ltransform.c - what the transforms of lualib/meshlua/transform/ do to the trace under way. Each
 * traces the user's function in place, and then marks or rewrites the nodes it made. */
#include "lua/trace.h"

#include <string.h>

static Trace *trace_of(lua_State *L, const char *who) {
    Host *h = state_of(L);
    if (!h->trace) state_error(L, E_STATE, "%s: no trace is under way", who);
    return h->trace;
}

/* A node number at `index`, as next_node gave it. */
static int32_t read_node(lua_State *L, const Trace *t, int index) {
    lua_Integer first = value_integer(L, index, "the first node");
    if (first < 1 || first > t->graph->node.n)
        state_error(L, E_VALUE, "node %lld of %d", (long long)first, t->graph->node.n);
    return (int32_t)first;
}

/* next_node(): the number of the node that the trace appends next. */
static int next_node(lua_State *L) {
    lua_pushinteger(L, trace_of(L, "next_node")->graph->node.n);
    return 1;
}

static const char *const save_words[] = {"nothing",    "everything",   "dots",
                                         "dots_no_batch", "names", "names_except",
                                         "anything_except", NULL};

static RematSave read_save(lua_State *L) {
    const char *word = value_string(L, -1, NULL, "the policy");
    for (int i = 0; save_words[i]; i++)
        if (strcmp(save_words[i], word) == 0) return (RematSave)i;
    state_error(L, E_VALUE, "checkpoint: unknown policy '%s'", word);
}

/* The policy {save =, names = {...}} on top of the stack; in the trace's graph. */
static RematPolicy *read_policy(lua_State *L, Host *h) {
    Arena *arena = &h->trace->graph->arena;
    RematPolicy *p = ARENA_NEW(arena, RematPolicy);
    lua_getfield(L, -1, "save");
    RematSave save = read_save(L);
    lua_pop(L, 1);
    lua_getfield(L, -1, "names");
    int n = lua_istable(L, -1) ? (int)lua_rawlen(L, -1) : 0;
    const char **names = ARENA_ARRAY(arena, const char *, n + 1);
    if (!p || !names) state_check(L, h, err_nomem(&h->cx, "a policy"));
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        names[i] = intern_name(&h->cx, value_string(L, -1, NULL, "a name"));
        if (!names[i]) state_check(L, h, err_nomem(&h->cx, "a policy"));
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    *p = (RematPolicy){.save = save, .nname = n, .name = names};
    return p;
}

static void push_span(lua_State *L, Host *h, const Span *s) {
    Graph *g = h->trace->graph;
    if (!VEC_PUSH(&g->arena, &g->span, *s)) state_check(L, h, err_nomem(&h->cx, "a trace"));
}

/* remat(first, {policy, ...}): gradients compute the nodes from `first` on again, but for what one
 * of the policies keeps. */
static int remat(lua_State *L) {
    Trace *t = trace_of(L, "remat");
    Host *h = state_of(L);
    int32_t first = read_node(L, t, 1);
    value_check_type(L, 2, LUA_TTABLE, "remat: the policies");
    RematPolicy *all = NULL;
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 2); i++) {
        lua_rawgeti(L, 2, i);
        value_check_type(L, -1, LUA_TTABLE, "remat: a policy");
        RematPolicy *p = read_policy(L, h);
        p->also = all;
        all = p;
        lua_pop(L, 1);
    }
    if (!all) state_error(L, E_VALUE, "remat: no policy");
    if (first < t->graph->node.n)
        push_span(L, h, &(Span){.first = first, .end = t->graph->node.n, .policy = all});
    return 0;
}

void ltransform_open(lua_State *L) {
    static const luaL_Reg fns[] = {{"next_node", next_node}, {"remat", remat}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
