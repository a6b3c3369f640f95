/* transform.c - what the transforms of lualib/meshlua/transform/ do to the trace under way. Each
 * traces the user's function in place, and then marks or rewrites the nodes it made. */
#include "lua/trace/trace.h"

#include <string.h>

/* A node number at `index`, as next_node gave it. */
static int32_t read_node(lua_State *L, const Trace *t, int index) {
    lua_Integer first = arg_integer(L, index, "the first node");
    if (first < 1 || first > t->graph->node.n)
        state_error(L, E_VALUE, "node %lld of %d", (long long)first, t->graph->node.n);
    return (int32_t)first;
}

/* next_node(): the number of the node that the trace appends next. */
static int next_node(lua_State *L) {
    lua_pushinteger(L, trace_of(L, state_of(L), "next_node")->graph->node.n);
    return 1;
}

static const char *const save_words[] = {"nothing",         "everything", "dots",
                                         "dots_no_batch",   "names",      "names_except",
                                         "anything_except", NULL};

static RematSave read_save(lua_State *L) {
    const char *word = arg_string(L, -1, NULL, "the policy");
    for (int i = 0; save_words[i]; i++)
        if (strcmp(save_words[i], word) == 0) return (RematSave)i;
    state_error(L, E_VALUE, "remat: unknown policy '%s'", word);
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
        names[i] = intern_name(&h->cx, arg_string(L, -1, NULL, "a name"));
        if (!names[i]) state_check(L, h, err_nomem(&h->cx, "a policy"));
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    *p = (RematPolicy){.save = save, .nname = n, .name = names};
    return p;
}

static void push_span(lua_State *L, Host *h, const Span *s) {
    Graph *g = h->trace->graph;
    if (!graph_add_span(g, *s)) state_check(L, h, err_nomem(&h->cx, "a trace"));
}

/* remat(first, {policy, ...}): gradients compute the nodes from `first` on again, but for what one
 * of the policies keeps. */
static int remat(lua_State *L) {
    Trace *t = trace_of(L, state_of(L), "remat");
    Host *h = state_of(L);
    int32_t first = read_node(L, t, 1);
    arg_check_type(L, 2, LUA_TTABLE, "remat: the policies");
    RematPolicy *all = NULL;
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 2); i++) {
        lua_rawgeti(L, 2, i);
        arg_check_type(L, -1, LUA_TTABLE, "remat: a policy");
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

/* ---- values that do not last ---- */

void trace_check(lua_State *L, Host *h, Val v) {
    const Trace *t = h->trace;
    int32_t node = t->graph->value.at[v].node, lo = 0, hi = t->gone.n;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (t->gone.at[mid].end <= node)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == t->gone.n || t->gone.at[lo].first > node) return;
    const Node *n = graph_node(t->graph, node);
    if (graph_opdef(t->graph, n)->flags & OPF_PARAM) return; /* what was met there from outside */
    Str *s = state_text(h);
    if (n->nloc) intern_print_loc(n->loc[0], s);
    if (t->gone.at[lo].failed)
        state_error(L, E_TRACED,
                    "a tensor made in a call that raised an error (at %s) was kept after it; what "
                    "such a call has made is undone",
                    n->nloc ? str_of(s) : "its entry");
    state_error(L, E_TRACED,
                "a tensor made for one example inside vmap, or inside custom_vjp (at %s), was kept "
                "after it; return it from there instead",
                n->nloc ? str_of(s) : "its entry");
}

void trace_check_variable(lua_State *L, const Trace *t, Val v) {
    const Node *n = graph_def(t->graph, v);
    if (n->region && graph_opdef(t->graph, n)->flags & OPF_PARAM)
        state_error(
            L, E_STATE,
            "a derivative is asked for inside a loop or branch, and the function was called "
            "outside of it; call it inside, too");
}

/* transform_enter(): until transform_leave() no Param may be written. */
static int transform_enter(lua_State *L) {
    trace_of(L, state_of(L), "transform_enter")->inside++;
    return 0;
}
static int transform_leave(lua_State *L) {
    Host *h = state_of(L);
    if (h->trace && h->trace->inside) h->trace->inside--;
    return 0;
}

/* Values of nodes [first, end) are no longer to be used. */
static void let_go(lua_State *L, Host *h, int32_t first, int32_t end) {
    Trace *t = h->trace;
    while (t->gone.n && t->gone.at[t->gone.n - 1].first >= first) t->gone.n--;
    if (first < end && !VEC_PUSH(&t->arena, &t->gone, (NodeRange){first, end, false}))
        state_check(L, h, err_nomem(&h->cx, "a trace"));
}

/* placeholder(x [, slice]): a tracer of x's type (slice: without its first dim) that stands for
 * what comes later. */
static int placeholder(lua_State *L) {
    Trace *t = trace_of(L, state_of(L), "placeholder");
    Host *h = state_of(L);
    const Type *type = graph_type(t->graph, trace_value(L, h, 1));
    if (lua_toboolean(L, 2)) {
        if (type->dims.rank == 0) state_error(L, E_SHAPE, "placeholder: a scalar has no slice");
        type = type_slice(&h->cx, type);
    }
    type = type ? type_undecided(&h->cx, type) : NULL;
    if (!type) state_check(L, h, err_nomem(&h->cx, "a type"));
    Build at = t->build;
    Val v = build_typed(&at, OP_PLACEHOLDER, NULL, 0, NULL, 1, &type, NULL, 0);
    state_check(L, h, at.err);
    value_push_traced(L, h, v);
    return 1;
}

/* The traced values of the list at `index`, in the trace's arena; false gives 0. */
static Val *read_values(lua_State *L, Host *h, int index, int *n, const char *what) {
    arg_check_type(L, index, LUA_TTABLE, what);
    *n = (int)lua_rawlen(L, index);
    Val *list = ARENA_ARRAY(&h->trace->graph->arena, Val, *n + 1);
    if (!list) state_check(L, h, err_nomem(&h->cx, "a trace"));
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, index, i + 1);
        if (!lua_isboolean(L, -1)) list[i] = trace_value(L, h, -1);
        lua_pop(L, 1);
    }
    return list;
}

static void check_values(lua_State *L, const Val *list, int n, const char *what) {
    for (int i = 0; i < n; i++)
        if (!list[i]) state_error(L, E_VALUE, "%s %d is false", what, i + 1);
}

/* Pushes the list; 0 gives false. */
static void push_values(lua_State *L, Host *h, const Val *list, int n) {
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        if (list[i])
            value_push_traced(L, h, list[i]);
        else
            lua_pushboolean(L, 0);
        lua_rawseti(L, -2, i + 1);
    }
}

static const char **read_axes(lua_State *L, Host *h, int index, int *n) {
    arg_check_type(L, index, LUA_TTABLE, "batch: the axes");
    *n = (int)lua_rawlen(L, index);
    const char **axes = ARENA_ARRAY(&h->trace->graph->arena, const char *, *n + 1);
    for (int i = 0; axes && i < *n; i++) {
        lua_rawgeti(L, index, i + 1);
        axes[i] = intern_name(&h->cx, arg_string(L, -1, NULL, "a mesh axis"));
        lua_pop(L, 1);
    }
    if (!axes) state_check(L, h, err_nomem(&h->cx, "a trace"));
    return axes;
}

/* batch(first, examples, all, size, results, axes [, name]): what the nodes from `first` on
 * compute, for all examples. `examples`: placeholders of one; `all`: the tensors whose slices they
 * are. Returns a list with, for each result, that of all examples (they are its first dim), or
 * false where it is the same for every one; then the list of the latter. What was made of one
 * example is no longer to be used. */
static int batch(lua_State *L) {
    Trace *t = trace_of(L, state_of(L), "batch");
    Host *h = state_of(L);
    int nall, naxis;
    BatchCall c = {.first = read_node(L, t, 1), .size = arg_integer(L, 4, "the size")};
    c.example = read_values(L, h, 2, &c.nexample, "batch: the examples");
    c.all = read_values(L, h, 3, &nall, "batch: the tensors");
    c.out = read_values(L, h, 5, &c.nout, "batch: the results");
    c.axis = read_axes(L, h, 6, &naxis);
    c.naxis = naxis;
    if (lua_isstring(L, 7)) {
        c.name = intern_name(&h->cx, lua_tostring(L, 7));
        if (!c.name) state_check(L, h, err_nomem(&h->cx, "a trace"));
    }
    if (c.nexample != nall)
        state_error(L, E_VALUE, "batch: %d examples of %d tensors", c.nexample, nall);
    check_values(L, c.example, c.nexample, "batch: example");
    check_values(L, c.all, nall, "batch: tensor");
    check_values(L, c.out, c.nout, "batch: result");
    c.is_mapped = ARENA_ARRAY(&t->graph->arena, bool, c.nout + 1);
    if (!c.is_mapped) state_check(L, h, err_nomem(&h->cx, "a trace"));
    int32_t end = t->graph->node.n;
    Build at = t->build;
    pass_batch(&at, &c);
    state_check(L, h, at.err);
    lua_createtable(L, c.nout, 0);
    lua_createtable(L, c.nout, 0);
    for (int i = 0; i < c.nout; i++) {
        for (int k = 0; k < 2; k++) {
            if (c.is_mapped[i] == (k == 0))
                value_push_traced(L, h, c.out[i]);
            else
                lua_pushboolean(L, 0);
            lua_rawseti(L, -3 + k, i + 1);
        }
    }
    let_go(L, h, c.first, end);
    return 2;
}

/* jvp(first, xs, ts, ys): what the nodes from `first` on compute of xs, once more with tangents:
 * ts of xs (false: zero). Returns the list of what stands for ys, and that of their tangents
 * (false: y is no float). */
static int jvp(lua_State *L) {
    Trace *t = trace_of(L, state_of(L), "jvp");
    Host *h = state_of(L);
    int nt;
    JvpCall c = {.first = read_node(L, t, 1)};
    c.x = read_values(L, h, 2, &c.nx, "jvp: the variables");
    c.t = read_values(L, h, 3, &nt, "jvp: the tangents");
    c.y = read_values(L, h, 4, &c.ny, "jvp: the results");
    if (nt != c.nx) state_error(L, E_VALUE, "jvp: %d tangents of %d", nt, c.nx);
    check_values(L, c.x, c.nx, "jvp: variable");
    check_values(L, c.y, c.ny, "jvp: result");
    c.dy = ARENA_ARRAY(&t->graph->arena, Val, c.ny + 1);
    if (!c.dy) state_check(L, h, err_nomem(&h->cx, "a trace"));
    for (int i = 0; i < c.nx; i++) trace_check_variable(L, t, c.x[i]);
    Build at = t->build;
    at.strict = false;
    pass_jvp(&at, &c);
    state_check(L, h, at.err);
    push_values(L, h, c.y, c.ny);
    push_values(L, h, c.dy, c.ny);
    return 2;
}

/* custom_vjp(first, bwd, bwd_end, xs, dxs, ys, cts [, ts, dys]): the nodes from `first` on compute
 * ys of xs, and those from `bwd` to before `bwd_end` the cotangents dxs (false: none) of xs, if
 * those of ys are the placeholders cts (false: y is no float); and the tangents dys of ys (false:
 * zero), if those of xs are the placeholders ts. Returns the list of ys, whose gradient that is;
 * what was made from `bwd` on is no longer to be used. */
static int custom_vjp(lua_State *L) {
    Trace *t = trace_of(L, state_of(L), "custom_vjp");
    Host *h = state_of(L);
    int ndx, nct, nt, ndy;
    CustomVjp c = {.bwd = read_node(L, t, 2), .bwd_end = read_node(L, t, 3)};
    int32_t first = read_node(L, t, 1);
    c.x = read_values(L, h, 4, &c.nx, "custom_vjp: the arguments");
    c.dx = read_values(L, h, 5, &ndx, "custom_vjp: the cotangents");
    const Val *y = read_values(L, h, 6, &c.ny, "custom_vjp: the results");
    c.ct = read_values(L, h, 7, &nct, "custom_vjp: the placeholders");
    bool forward = !lua_isnoneornil(L, 8);
    if (forward) c.t = read_values(L, h, 8, &nt, "custom_vjp: the tangents' placeholders");
    if (forward) c.dy = read_values(L, h, 9, &ndy, "custom_vjp: the tangents");
    if (first > c.bwd || c.bwd > c.bwd_end || ndx != c.nx || nct != c.ny || c.ny == 0 ||
        (forward && (nt != c.nx || ndy != c.ny)))
        state_error(L, E_VALUE, "custom_vjp: lists that do not belong together");
    check_values(L, c.x, c.nx, "custom_vjp: argument");
    check_values(L, y, c.ny, "custom_vjp: result");
    int32_t end = t->graph->node.n;
    Val *out = ARENA_ARRAY(&t->graph->arena, Val, c.ny);
    CustomVjp *rule = ARENA_NEW(&t->graph->arena, CustomVjp);
    Build at = t->build;
    for (int i = 0; out && i < c.ny; i++) out[i] = build_op(&at, OP_IDENTITY, &y[i], 1, NULL);
    if (!out || !rule) build_fail(&at, err_nomem(&h->cx, "a trace"));
    state_check(L, h, at.err);
    c.y = out;
    *rule = c;
    push_span(L, h, &(Span){.first = first, .end = t->graph->node.n, .rule = rule});
    push_values(L, h, out, c.ny);
    let_go(L, h, c.bwd, end);
    return 1;
}

/* gather_examples(x, index, name, size): the x of all examples of the vmap of that name. */
static int gather_examples(lua_State *L) {
    Trace *t = trace_of(L, state_of(L), "gather_examples");
    Host *h = state_of(L);
    Val in[2] = {trace_value(L, h, 1), trace_value(L, h, 2)};
    ExamplesAttr attr = {intern_name(&h->cx, arg_string(L, 3, NULL, "the name")),
                         arg_integer(L, 4, "the size")};
    if (!attr.name) state_check(L, h, err_nomem(&h->cx, "a trace"));
    const Loc *loc = where_loc(L, h);
    Build at = t->build;
    at.loc = &loc;
    at.nloc = loc ? 1 : 0;
    Val v = build_op(&at, OP_GATHER_EXAMPLES, in, 2, &attr);
    state_check(L, h, at.err);
    value_push_traced(L, h, v);
    return 1;
}

void trace_open_transform(lua_State *L) {
    static const luaL_Reg fns[] = {{"next_node", next_node},
                                   {"remat", remat},
                                   {"transform_enter", transform_enter},
                                   {"transform_leave", transform_leave},
                                   {"placeholder", placeholder},
                                   {"batch", batch},
                                   {"jvp", jvp},
                                   {"custom_vjp", custom_vjp},
                                   {"gather_examples", gather_examples},
                                   {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
