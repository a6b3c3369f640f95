/* trace.c - a jitted function run with tracers for its arguments: what goes in, what comes out,
 * what it writes. */
#include "lua/jit/jit.h"

#include <string.h>

/* ---- arguments become tracers ---- */

/* A parameter per leaf, in the order of the leaves. Those of Params go into their boxes; those of
 * tensors make the list that is pushed, by the leaf's number. */
static void push_leaf_params(lua_State *L, Host *h, const Walk *w) {
    lua_createtable(L, w->nleaf, 0);
    int tracers = lua_gettop(L);
    for (int32_t i = 1; i <= w->nleaf; i++) {
        lua_rawgeti(L, w->leaves, i);
        int leaf = tracers + 1;
        bool box = value_box(L, h, leaf) != NULL;
        const Type *type = value_type(h, value_tensor(L, h, leaf));
        lua_rawgeti(L, w->names, i);
        Val v = trace_param(L, h, type, lua_tostring(L, -1), box);
        lua_pop(L, 1);
        value_push_traced(L, h, v);
        if (box)
            trace_enter_box(L, leaf);
        else
            lua_rawseti(L, tracers, i);
        lua_settop(L, tracers);
    }
}

/* The parameters: in boxes, in the slots of tables, and among the n copies of the arguments on the
 * stack from `copies` on. */
static void enter_leaves(lua_State *L, Host *h, const Walk *w, int copies, int n) {
    push_leaf_params(L, h, w);
    int tracers = lua_gettop(L);
    for (lua_Integer s = 0; s < w->nslot; s++) {
        lua_rawgeti(L, w->slots, 3 * s + 1);
        lua_rawgeti(L, w->slots, 3 * s + 2);
        lua_rawgeti(L, w->slots, 3 * s + 3);
        lua_rawgeti(L, tracers, lua_tointeger(L, -1));
        lua_remove(L, -2);
        trace_enter_slot(L, tracers + 1);
        lua_pop(L, 1);
    }
    for (int a = copies; a < copies + n; a++) {
        if (!value_handle(L, h, a)) continue;
        lua_pushvalue(L, a);
        lua_rawget(L, w->seen);
        lua_rawgeti(L, tracers, lua_tointeger(L, -1));
        lua_replace(L, a);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* "x float32[8@data] on Mesh(data=8), devices 0..7" */
static void print_offender(lua_State *L, const Walk *w, int32_t i, const Type *type, Str *s) {
    const Mesh *m = type->layout->mesh;
    lua_rawgeti(L, w->names, i);
    str_fmt(s, "%s ", lua_tostring(L, -1));
    lua_pop(L, 1);
    type_print(type, s);
    str_put(s, " on ");
    mesh_print(m, s);
    if (m->naxes == 0) return; /* it prints as its device */
    str_put(s, ", ");
    mesh_print_devices(m, s);
}

/* All leaves that were put somewhere are on one mesh, the function's if it has one: else an
 * error that lists the first leaf of each mesh. */
static void check_meshes(lua_State *L, Host *h, const Walk *w, const Mesh *mesh) {
    enum { SHOWN = 4 };
    const Mesh *met[SHOWN];
    int n = 0;
    Str *s = state_text(h);
    for (int32_t i = 1; i <= w->nleaf && n < SHOWN; i++) {
        lua_rawgeti(L, w->leaves, i);
        const Type *type = value_type(h, value_tensor(L, h, -1));
        type = value_type_now(L, h, type, "argument");
        lua_pop(L, 1);
        int k = 0;
        while (type->layout && k < n && met[k] != type->layout->mesh) k++;
        if (!type->layout || k < n) continue;
        met[n++] = type->layout->mesh;
        if (n > 1) str_put(s, "; ");
        print_offender(L, w, i, type, s);
    }
    if (n == 0 || (n == 1 && (!mesh || mesh == met[0]))) return;
    if (mesh) {
        str_put(s, "; the function's mesh is ");
        mesh_print(mesh, s);
        str_put(s, ", ");
        mesh_print_devices(mesh, s);
    }
    state_error(L, E_MESH, "arguments are on different devices: %s; move them with device_put",
                str_of(s));
}

static void enter_numbers(lua_State *L, Host *h, const LuaJit *j, int copies, int n) {
    for (int i = 0; i < n; i++) {
        if (!jit_is_number(L, j, copies + i, i)) continue;
        Type t = {.dtype = lua_isinteger(L, copies + i) ? DT_I32 : DT_F32, .weak = true};
        const Type *type = type_of(&h->cx, &t);
        if (!type) state_check(L, h, err_nomem(&h->cx, "a type"));
        lua_getiuservalue(L, JIT, 1);
        const char *name = lua_getlocal(L, NULL, i + 1);
        lua_pop(L, 1);
        value_push_traced(L, h, trace_param(L, h, type, name, false));
        lua_replace(L, copies + i);
    }
}

/* ---- nothing but boxes may have changed ---- */

/* What the tables among the arguments hold, with tensors and Params by which they are: pushed as a
 * string; nil if some are no arguments any more. */
static void push_state_of(lua_State *L, Host *h, int copies, int n) {
    Walk w;
    walk_begin_quick(&w, L, h);
    w.identity = true;
    for (int i = 0; i < n && !w.failed; i++)
        if (lua_istable(L, copies + i)) walk_value(&w, copies + i, NULL);
    if (w.failed)
        lua_pushnil(L);
    else
        lua_pushlstring(L, h->key.at, h->key.n);
}

/* A line for each part of a table among the arguments, from those of the call's description: the
 * argument is called `argument`, and leaves are called as a walk in the trace calls them. */
static void describe_before(lua_State *L, const Host *h, const Walk *w, const char *described,
                            Str *s) {
    JitLine line;
    int32_t leaf = 0;
    while (*described) {
        described = jit_read_line(described, &line);
        const char *dot = memchr(line.name, '.', (size_t)line.nname);
        lua_rawgeti(L, w->names, leaf + 1);
        lua_pushlstring(L, line.name, (size_t)line.nname);
        bool is_leaf = leaf < w->nleaf && lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
        lua_rawgeti(L, w->leaves, leaf += is_leaf);
        bool box = is_leaf && value_box(L, h, -1);
        lua_pop(L, 1);
        if (!dot) continue;
        str_fmt(s, "argument%.*s = ", line.nname - (int)(dot - line.name), dot);
        if (!is_leaf)
            str_fmt(s, "%.*s\n", line.ntext, line.text);
        else if (box)
            str_put(s, "a Param\n");
        else
            str_fmt(s, "tensor %%%d\n", h->trace->graph->region.at[0].param.at[leaf - 1]);
    }
}

static int line_length(const char *s) {
    return (int)strcspn(s, "\n");
}

/* Raises for the first line in which the two descriptions differ. */
static void compare_lines(lua_State *L, const char *a, const char *b) {
    while (*a || *b) {
        int na = line_length(a), nb = line_length(b);
        if (na != nb || memcmp(a, b, (size_t)na) != 0)
            state_error(
                L, E_STATE,
                "an argument was changed inside the traced function: now %.*s, before %.*s; "
                "only Params can change (param:set): return new values, or keep the value in a "
                "Param",
                nb ? nb : 7, nb ? b : "nothing", na ? na : 7, na ? a : "nothing");
        a += na + (a[na] == '\n');
        b += nb + (b[nb] == '\n');
    }
}

/* `before`: where the state of before lies; `described`: what the call's walk said. */
static void check_unchanged(lua_State *L, Host *h, const Walk *call, const char *described,
                            int copies, int n, int before) {
    int top = lua_gettop(L);
    push_state_of(L, h, copies, n);
    bool same = !lua_isnil(L, -1) && lua_rawequal(L, before, -1);
    lua_settop(L, top);
    if (same) return;
    Walk w;
    walk_begin(&w, L, h, false);
    w.identity = true;
    for (int i = 0; i < n; i++) {
        w.describe = lua_istable(L, copies + i);
        if (w.describe || value_is_tensor(L, h, FIRST + i)) walk_value(&w, copies + i, "argument");
    }
    walk_check(&w);
    Str *s = state_text(h);
    describe_before(L, h, call, described + call->around, s);
    state_push_text(L, h);
    lua_pushlstring(L, str_of(&h->describe), h->describe.n);
    compare_lines(L, lua_tostring(L, -2), lua_tostring(L, -1));
    lua_settop(L, top);
}

/* ---- results ---- */

enum { DEEPEST = 100 }; /* tables in tables */

static bool is_leaf(lua_State *L, const Walk *w, int index) {
    lua_pushvalue(L, index);
    bool known = lua_rawget(L, w->seen) == LUA_TNUMBER;
    lua_pop(L, 1);
    return known;
}

/* Does the box hold a tensor of this trace? One that is no argument was made in the trace, then. */
static bool holds_traced(lua_State *L, int box) {
    lua_getiuservalue(L, box, 1);
    const LuaTensor *u = luaL_testudata(L, -1, VALUE_TENSOR);
    lua_pop(L, 1);
    return u && !u->t;
}

/* Pushes the number of the result that the tensor at `index` is, as light userdata. `mixed` knows
 * those that were met before: a tensor that is returned twice is one result. */
static void push_number(lua_State *L, Host *h, int index, int mixed) {
    lua_pushvalue(L, index);
    if (lua_rawget(L, mixed) != LUA_TNIL) return;
    lua_pop(L, 1);
    trace_result(L, h, trace_value(L, h, index), NULL, NULL);
    lua_pushlightuserdata(L, (void *)(uintptr_t)h->trace->graph->region.at[0].result.n);
    lua_pushvalue(L, index);
    lua_pushvalue(L, -2);
    lua_rawset(L, mixed);
}

/* Pushes the template of the value at `index`: tensors become light userdata with the number of
 * their result, tables that hold any are copied and noted in the table `mixed`. True if it holds a
 * tensor. */
static bool push_template(lua_State *L, Host *h, const Walk *w, int index, int mixed, int depth) {
    luaL_checkstack(L, 8, "results nested too deep");
    if (depth > DEEPEST)
        state_error(
            L, E_VALUE,
            "the returned table contains itself, or is nested deeper than %d tables; return "
            "a list in place of a chain of tables",
            DEEPEST);
    if (value_handle(L, h, index)) {
        push_number(L, h, index, mixed);
        return true;
    }
    if (value_box(L, h, index) && !is_leaf(L, w, index) && holds_traced(L, index))
        state_error(L, E_STATE,
                    "a Param made inside a jitted function is returned; make modules with ml.init");
    if (lua_type(L, index) == LUA_TLIGHTUSERDATA)
        state_error(L, E_VALUE, "a jitted function cannot return light userdata");
    if (!lua_istable(L, index)) {
        lua_pushvalue(L, index);
        return false;
    }
    lua_newtable(L);
    int copy = lua_gettop(L);
    walk_push_keys(L, index);
    bool any = false;
    lua_Integer n = (lua_Integer)lua_rawlen(L, copy + 1);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, copy + 1, i);
        lua_pushvalue(L, -1);
        lua_rawget(L, index);
        any = push_template(L, h, w, lua_gettop(L), mixed, depth + 1) || any;
        lua_remove(L, -2);
        lua_rawset(L, copy);
    }
    lua_settop(L, copy);
    if (!any) {
        lua_pushvalue(L, index);
        lua_replace(L, copy);
        return false;
    }
    if (lua_getmetatable(L, index)) lua_setmetatable(L, copy);
    lua_pushvalue(L, copy);
    lua_pushboolean(L, 1);
    lua_rawset(L, mixed);
    return true;
}

/* Pushes the entry's table for the n values from `first` on, and the trace's effects. */
static int push_side(lua_State *L, Host *h, const Walk *w, int first, int n) {
    lua_createtable(L, 0, 4);
    int side = lua_gettop(L);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, side, "mixed");
    int mixed = lua_gettop(L);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        push_template(L, h, w, first + i, mixed, 0);
        lua_rawseti(L, mixed + 1, i + 1);
    }
    lua_setfield(L, side, "template");
    trace_push_effects(L);
    if (lua_rawlen(L, -1) > 0) {
        push_template(L, h, w, lua_gettop(L), mixed, 0);
        lua_setfield(L, side, "effects");
    }
    lua_pushinteger(L, n);
    lua_setfield(L, side, "n");
    lua_settop(L, side);
    return side;
}

static bool is_mixed(lua_State *L, int template, int mixed) {
    lua_pushvalue(L, template);
    bool found = lua_istable(L, template) && lua_rawget(L, mixed) != LUA_TNIL;
    lua_pop(L, 1);
    return found;
}

/* Pushes a copy of the template with results in their places. */
static void put_result(lua_State *L, int template, int mixed, int base) {
    luaL_checkstack(L, 6, "results nested too deep");
    if (lua_islightuserdata(L, template)) {
        lua_pushvalue(L, base + (int)(uintptr_t)lua_touserdata(L, template));
        return;
    }
    if (!is_mixed(L, template, mixed)) {
        lua_pushvalue(L, template);
        return;
    }
    lua_newtable(L);
    int copy = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, template);) {
        int value = lua_gettop(L);
        lua_pushvalue(L, value - 1);
        put_result(L, value, mixed, base);
        lua_rawset(L, copy);
        lua_settop(L, value - 1);
    }
    if (lua_getmetatable(L, template)) lua_setmetatable(L, copy);
}

void jit_run_effects(lua_State *L, int side, int base) {
    int top = lua_gettop(L);
    if (lua_getfield(L, side, "effects") != LUA_TNIL) {
        lua_getfield(L, side, "mixed");
        put_result(L, top + 1, top + 2, base);
        trace_run_effects(L);
    }
    lua_settop(L, top);
}

int jit_push_returned(lua_State *L, int side, int base) {
    lua_getfield(L, side, "n");
    int n = (int)lua_tointeger(L, -1);
    lua_getfield(L, side, "template");
    lua_getfield(L, side, "mixed");
    int mixed = lua_gettop(L), first = mixed + 1;
    luaL_checkstack(L, n + 8, "too many results");
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, mixed - 1, i);
        put_result(L, first + i - 1, mixed, base);
        lua_remove(L, first + i - 1);
    }
    return n;
}

/* A result for every box that the function wrote; write_leaf has room for every leaf. A box keeps
 * its layout as long as it keeps its shape. */
static int32_t add_writes(lua_State *L, Host *h, const Walk *w, int32_t *write_leaf) {
    const Graph *g = h->trace->graph;
    int32_t n = 0;
    for (int32_t i = 0; i < w->nleaf; i++) {
        lua_rawgeti(L, w->leaves, i + 1);
        if (value_box(L, h, -1)) {
            Val param = g->region.at[0].param.at[i];
            lua_getiuservalue(L, -1, 1);
            Val v = lua_isnil(L, -1) ? param : trace_value(L, h, -1);
            lua_pop(L, 1);
            const Type *before = graph_type(g, param);
            if (v != param) {
                bool same = dims_equal(&before->dims, &graph_type(g, v)->dims);
                const ParamAttr *attr = graph_def(g, param)->attr;
                trace_result(L, h, v, same ? before->layout : NULL, attr->name);
                write_leaf[n++] = i;
            }
        }
        lua_pop(L, 1);
    }
    return n;
}

/* Tensors in arguments that the user asked to donate, by leaf. To be called while they are still in
 * their places. */
static void mark_donated(lua_State *L, Host *h, const LuaJit *j, const Walk *all, int last,
                         uint8_t *donated) {
    for (int i = FIRST; i <= last; i++) {
        if (!jit_has(j->donate_args, i - FIRST)) continue;
        int top = lua_gettop(L);
        Walk w;
        walk_begin(&w, L, h, false);
        walk_value(&w, i, NULL);
        walk_check(&w);
        for (int32_t k = 1; k <= w.nleaf; k++) {
            lua_rawgeti(L, w.leaves, k);
            bool box = value_box(L, h, -1) != NULL;
            lua_rawget(L, all->seen);
            int32_t number = (int32_t)lua_tointeger(L, -1);
            lua_pop(L, 1);
            ASSERT(number > 0, "leaf %d of argument %d is none of the call", (int)k, i);
            if (box) continue; /* boxes that are written are donated anyway */
            if (donated[number - 1] == DONATE_ASKED)
                state_error(L, E_DONATE, "argument %d: one tensor is donated twice", i - FIRST + 1);
            donated[number - 1] = DONATE_ASKED;
        }
        lua_settop(L, top);
    }
}

static void push_captures(lua_State *L, Host *h) {
    const Trace *t = h->trace;
    lua_createtable(L, t->capture.n, 0);
    for (int i = 0; i < t->capture.n; i++) {
        const Capture *c = &t->capture.at[i];
        if (c->ref != LUA_NOREF)
            lua_rawgeti(L, LUA_REGISTRYINDEX, c->ref);
        else
            value_new_tensor(L)->t = tensor_retain(c->tensor);
        lua_rawseti(L, -2, i + 1);
    }
}

/* ---- all of it ---- */

Traced jit_trace_call(lua_State *L, Host *h, const LuaJit *j, const Walk *w, int last) {
    int nargs = last - FIRST + 1;
    Traced t = {.e = {.nleaf = w->nleaf, .nnumber = w->nnumber}};
    JitEntry *e = &t.e;
    t.describe = lua_pushlstring(L, str_of(&h->describe), h->describe.n); /* before it is needed */
    t.write_leaf = lua_newuserdatauv(L, sizeof *t.write_leaf * (size_t)(w->nleaf + 1), 0);
    uint8_t *asked = lua_newuserdatauv(L, (size_t)w->nleaf + 1, 0);
    memset(asked, DONATE_NO, (size_t)w->nleaf + 1);
    luaL_checkstack(L, 2 * nargs + 2 * LUA_MINSTACK, "too many arguments");
    const Mesh *mesh = value_mesh_now(h, j->mesh ? j->mesh : h->mesh);
    check_meshes(L, h, w, mesh);
    mark_donated(L, h, j, w, last, asked);
    int copies = lua_gettop(L) + 1;
    for (int i = FIRST; i <= last; i++) lua_pushvalue(L, i);
    trace_begin(L, h, mesh, false);
    enter_leaves(L, h, w, copies, nargs);
    enter_numbers(L, h, j, copies, nargs);
    push_state_of(L, h, copies, nargs);
    int before = lua_gettop(L);
    lua_getiuservalue(L, JIT, 2);
    for (int i = 0; i < nargs; i++) lua_pushvalue(L, copies + i);
    lua_call(L, nargs, LUA_MULTRET);
    int nret = lua_gettop(L) - before;
    check_unchanged(L, h, w, t.describe, copies, nargs, before);
    t.side = push_side(L, h, w, before + 1, nret);
    lua_pushvalue(L, w->held);
    lua_setfield(L, t.side, "held");
    e->nout = h->trace->graph->region.at[0].result.n;
    e->nwrite = add_writes(L, h, w, t.write_leaf);
    e->ncapture = h->trace->capture.n;
    push_captures(L, h);
    lua_setfield(L, t.side, "captures");
    size_t nin = (size_t)(e->nleaf + e->nnumber + e->ncapture) + 1;
    t.donated = lua_newuserdatauv(L, nin, 0);
    memset(t.donated, DONATE_NO, nin);
    memcpy(t.donated, asked, (size_t)e->nleaf);
    for (int32_t i = 0; i < e->nwrite && !j->keep_boxes; i++)
        t.donated[t.write_leaf[i]] = DONATE_IF_SOLE;
    return t;
}
