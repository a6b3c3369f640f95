#include "lua/trace/trace.h"

#include <string.h>

static const char undo_key;

/* The undo table: entries of three at 3i + 1 (a box or table), 3i + 2 (false, or the key of the
 * slot), 3i + 3 (what was there); and for every box in it [box] = whether it may be written. */
static void push_undo(lua_State *L) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &undo_key);
}

void trace_begin(lua_State *L, Host *h, const Mesh *mesh, bool open) {
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &undo_key);
    Trace *t = alloc_new(&h->cx.alloc, sizeof *t);
    Graph *g = t ? graph_new(&h->cx) : NULL;
    if (!g) {
        alloc_free(&h->cx.alloc, t, sizeof *t);
        state_check(L, h, err_nomem(&h->cx, "a trace"));
    }
    *t = (Trace){.serial = ++h->traces, .open = open, .graph = g, .build = build_in(g, 0)};
    t->build.strict = true;
    arena_init(&t->arena, &h->cx.alloc);
    g->mesh = mesh;
    h->trace = t;
}

/* ---- effects: Lua that runs when the program has ---- */

void trace_push_effects(lua_State *L) {
    push_undo(L);
    if (lua_getfield(L, -1, "effects") == LUA_TNIL) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, "effects");
    }
    lua_remove(L, -2);
}

void trace_run_effects(lua_State *L) {
    int list = lua_gettop(L);
    lua_Integer n = (lua_Integer)lua_rawlen(L, list);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, list, i);
        lua_getfield(L, -1, "run");
        lua_getfield(L, -2, "args");
        lua_call(L, 1, 0);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

Trace *trace_of(lua_State *L, const Host *h, const char *who) {
    if (!h->trace) state_error(L, E_STATE, "%s: no trace is under way", who);
    return h->trace;
}

/* effects([n]): the list of those of the trace under way; of them the first n stay. */
static int effects(lua_State *L) {
    Host *h = state_of(L);
    trace_of(L, h, "effects");
    bool cut = !lua_isnoneornil(L, 1);
    lua_Integer keep = cut ? arg_integer(L, 1, "effects") : 0;
    trace_push_effects(L);
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1); cut && i > keep && i > 0; i--) {
        lua_pushnil(L);
        lua_rawseti(L, -2, i);
    }
    return 1;
}

static void restore(lua_State *L) {
    push_undo(L);
    int undo = lua_gettop(L);
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, undo) / 3 - 1; i >= 0; i--) {
        lua_rawgeti(L, undo, 3 * i + 1);
        lua_rawgeti(L, undo, 3 * i + 2);
        lua_rawgeti(L, undo, 3 * i + 3);
        if (lua_isboolean(L, -2)) {
            value_put_in_box(L, -3);
            lua_pop(L, 2);
        } else {
            lua_rawset(L, -3);
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &undo_key);
}

void trace_end(lua_State *L, Host *h) {
    Trace *t = h->trace;
    for (int i = 0; i < t->capture.n; i++) {
        tensor_release(t->capture.at[i].tensor);
        if (t->capture.at[i].ref != LUA_NOREF)
            luaL_unref(L, LUA_REGISTRYINDEX, t->capture.at[i].ref);
    }
    graph_free(t->graph);
    arena_free(&t->arena);
    alloc_free(&h->cx.alloc, t, sizeof *t);
    h->trace = NULL;
    restore(L); /* last: a slot that the script has emptied may need memory to come back */
}

int trace_protected(lua_State *L, lua_CFunction body) {
    Host *h = state_of(L);
    int32_t depth = h->depth;
    if (h->trace) state_error(L, E_STATE, "a trace is under way already");
    lua_pushcfunction(L, body);
    lua_insert(L, 1);
    int status = wrap_pcall(L, lua_gettop(L) - 1);
    if (h->trace) trace_end(L, h);
    if (status == LUA_OK) return lua_gettop(L);
    h->depth = depth;
    return lua_error(L);
}

Val trace_param(lua_State *L, Host *h, const Type *type, const char *name, bool state) {
    Trace *t = h->trace;
    const char *own = name ? intern_name(&h->cx, name) : NULL;
    type = trace_input_type(L, h, type, name ? name : "argument");
    ParamAttr attr = {t->graph->region.at[0].param.n + 1, own, state};
    Val v = build_param(&t->build, OP_PARAM, &attr, type);
    if (type->layout) {
        if (t->graph->mesh && t->graph->mesh != type->layout->mesh) {
            lua_pushfstring(L, "argument %s", name ? name : "?");
            value_two_meshes(L, lua_tostring(L, -1), type->layout->mesh, t->graph->mesh);
        }
        t->graph->mesh = type->layout->mesh;
    }
    state_check(L, h, t->build.err);
    return v;
}

/* Appends (target, key or false, old) from the top three of the stack to the undo table. */
static void note(lua_State *L) {
    push_undo(L);
    lua_insert(L, -4);
    lua_Integer n = (lua_Integer)lua_rawlen(L, -4);
    /* The last first: rawlen must never see half an entry. */
    lua_rawseti(L, -4, n + 3);
    lua_rawseti(L, -3, n + 2);
    lua_rawseti(L, -2, n + 1);
    lua_pop(L, 1);
}

/* LUA_TNIL: the box is not in the undo table; else whether it may be written, as a Lua type. */
static int noted(lua_State *L, int box, bool *may_write) {
    push_undo(L);
    lua_pushvalue(L, box);
    int type = lua_rawget(L, -2);
    *may_write = lua_toboolean(L, -1);
    lua_pop(L, 2);
    return type;
}

static void note_box(lua_State *L, int box, bool may_write) {
    bool before;
    if (noted(L, box, &before) == LUA_TNIL) {
        lua_pushvalue(L, box);
        lua_pushboolean(L, 0);
        lua_getiuservalue(L, box, 1);
        note(L);
    }
    push_undo(L);
    lua_pushvalue(L, box);
    lua_pushboolean(L, may_write);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

void trace_enter_box(lua_State *L, int box) {
    box = lua_absindex(L, box);
    note_box(L, box, true);
    value_put_in_box(L, box);
}

void trace_note_swap(lua_State *L, int box) {
    bool may_write;
    box = lua_absindex(L, box);
    if (noted(L, box, &may_write) == LUA_TNIL) note_box(L, box, false);
}

void trace_enter_slot(lua_State *L, int table) {
    table = lua_absindex(L, table);
    lua_pushvalue(L, table);
    lua_pushvalue(L, -3); /* key */
    lua_pushvalue(L, -1);
    lua_rawget(L, table);
    note(L);
    lua_rawset(L, table);
}

/* The list of Params that may be written in the region under way (see note_writes) gets the box, if
 * there is one. */
static bool note_in_list(lua_State *L, const Host *h, int box) {
    int top = lua_gettop(L);
    push_undo(L);
    bool there = lua_getfield(L, top + 1, "writes") == LUA_TTABLE;
    if (there) {
        lua_getfield(L, top + 2, "region");
        there = lua_tointeger(L, -1) == h->trace->build.region;
        lua_pop(L, 1);
    }
    if (there) {
        lua_pushvalue(L, box);
        if (lua_rawget(L, top + 2) == LUA_TNIL) {
            lua_pushvalue(L, box);
            lua_rawseti(L, top + 2, (lua_Integer)lua_rawlen(L, top + 2) + 1);
            lua_pushvalue(L, box);
            if (lua_getiuservalue(L, box, 1) != LUA_TUSERDATA) {
                lua_pop(L, 1);
                lua_pushboolean(L, 0);
            }
            lua_rawset(L, top + 2);
        }
        trace_note_swap(L, box);
    }
    lua_settop(L, top);
    return there;
}

/* note_writes(list or nil): in the region under way Params can be written; the list gets those that
 * are not in it, and list[Param] = what it held (false: nothing). Returns the list of before. Who
 * calls it makes carries of them. */
static int note_writes(lua_State *L) {
    Host *h = state_of(L);
    trace_of(L, h, "note_writes");
    lua_settop(L, 1);
    push_undo(L);
    lua_getfield(L, 2, "writes");
    if (lua_istable(L, 1) && lua_getfield(L, 1, "region") == LUA_TNIL) {
        lua_pushinteger(L, h->trace->build.region);
        lua_setfield(L, 1, "region");
    }
    lua_pushvalue(L, 1);
    lua_setfield(L, 2, "writes");
    lua_pushvalue(L, 3);
    return 1;
}

void trace_note_read(lua_State *L, int index) {
    int top = lua_gettop(L);
    index = lua_absindex(L, index);
    push_undo(L);
    if (lua_getfield(L, top + 1, "reads") == LUA_TTABLE) {
        lua_pushvalue(L, index);
        if (lua_rawget(L, top + 2) == LUA_TNIL) {
            lua_pushvalue(L, index);
            lua_rawseti(L, top + 2, (lua_Integer)lua_rawlen(L, top + 2) + 1);
            lua_pushvalue(L, index);
            lua_pushboolean(L, 1);
            lua_rawset(L, top + 2);
        }
    }
    lua_settop(L, top);
}

/* note_reads(list or nil): from now on the list gets the Params that are read, each once, and
 * list[Param] = true. Returns the list of before. */
static int note_reads(lua_State *L) {
    Trace *t = trace_of(L, state_of(L), "note_reads");
    lua_settop(L, 1);
    push_undo(L);
    lua_getfield(L, 2, "reads");
    lua_pushvalue(L, 1);
    lua_setfield(L, 2, "reads");
    t->reads = lua_istable(L, 1);
    return 1;
}

/* Notes in undo.first what the box holds, unless an earlier write of the trace did. */
static void note_first(lua_State *L, const Host *h, int box) {
    if (h->trace->build.region || h->trace->inside) return;
    int top = lua_gettop(L);
    push_undo(L);
    if (lua_getfield(L, top + 1, "first") == LUA_TNIL) {
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, top + 1, "first");
        lua_replace(L, top + 2);
    }
    lua_pushvalue(L, box);
    if (lua_rawget(L, top + 2) == LUA_TNIL && lua_getiuservalue(L, box, 1) == LUA_TUSERDATA) {
        lua_pushvalue(L, box);
        lua_pushvalue(L, -2);
        lua_rawset(L, top + 2);
        lua_pushvalue(L, box);
        lua_rawseti(L, top + 2, (lua_Integer)lua_rawlen(L, top + 2) + 1);
    }
    lua_settop(L, top);
}

/* written(): the Params that the trace under way has written outside of loops and branches, in
 * order, and list[Param] = what it held before; nil: no trace, or nothing is written. */
static int written(lua_State *L) {
    if (!state_of(L)->trace) return 0;
    push_undo(L);
    lua_getfield(L, -1, "first");
    return 1;
}

void trace_note_write(lua_State *L, Host *h, int index) {
    bool may_write;
    index = lua_absindex(L, index);
    note_first(L, h, index);
    noted(L, index, &may_write);
    if (may_write && h->trace->build.region == 0 && !h->trace->inside) return;
    const LuaBox *box = lua_touserdata(L, index);
    bool inside = h->trace->build.region != 0;
    if (box->made_in == h->trace->serial && (!inside || box->region == h->trace->build.region))
        return; /* nobody else has it yet */
    if (h->trace->inside)
        state_error(
            L, E_STATE,
            "a Param is written inside vmap or custom_vjp, where a value is of one example; "
            "return the new value and set the Param outside");
    if (inside && note_in_list(L, h, index)) return;
    if (inside)
        state_error(
            L, E_STATE,
            "a Param is written in the body of a loop or branch, where its value would "
            "stay; make the value a carry of the loop (a result of the branch), and set the "
            "Param behind it");
    if (!h->trace->open)
        state_error(
            L, E_STATE,
            "a Param that is no argument of the traced function is written in it; pass what "
            "holds it (the model, the optimizer) as an argument");
    note_box(L, index, true);
}

void trace_result(lua_State *L, Host *h, Val v, const Layout *l, const char *name) {
    Build at = h->trace->build;
    const Loc *loc = name ? intern_loc(&h->cx, &(Loc){.scope = name}) : NULL;
    at.loc = &loc;
    at.nloc = loc ? 1 : 0;
    at.region = 0;
    if (l) {
        value_use_mesh(L, h, l->mesh, name ? name : "a result");
        v = build_op(&at, OP_CONSTRAIN, &v, 1, &(ConstrainAttr){.layout = l, .state = true});
    }
    build_result(&at, v);
    state_check(L, h, at.err);
}

/* Pushes a table: what boxes and tables in the undo table held first. */
static void push_held_before(lua_State *L) {
    lua_newtable(L);
    push_undo(L);
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1) / 3 - 1; i >= 0; i--) {
        lua_rawgeti(L, -1, 3 * i + 1);
        lua_rawgeti(L, -2, 3 * i + 3);
        lua_rawset(L, -4);
    }
    lua_pop(L, 1);
}

/* The tensor that a capture is an input by. On top of the stack what boxes held before: one may
 * have been written since, and its tensor of before the trace is the input. */
static Tensor *find_captured(lua_State *L, const Capture *c) {
    if (c->ref == LUA_NOREF) return c->tensor;
    int before = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, c->ref);
    lua_pushvalue(L, before + 1);
    if (lua_rawget(L, before) == LUA_TNIL) lua_getiuservalue(L, before + 1, 1);
    const LuaTensor *u = lua_touserdata(L, -1);
    lua_settop(L, before);
    return u->t;
}

/* ---- run_traced: a function traced and run at once, everything concrete in it an input ---- */

/* Marks the tensors of boxes that the trace wrote as results; those boxes make the list. */
static int add_written(lua_State *L, Host *h, int list) {
    int count = 0;
    push_undo(L);
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1) / 3;
    for (lua_Integer i = 0; i < n; i++) {
        lua_rawgeti(L, -1, 3 * i + 1);
        lua_rawgeti(L, -2, 3 * i + 3);
        lua_getiuservalue(L, -2, 1);
        if (!lua_rawequal(L, -1, -2) && !lua_isnil(L, -1)) {
            trace_result(L, h, trace_value(L, h, -1), NULL, NULL);
            lua_pushvalue(L, -3);
            lua_rawseti(L, list, ++count);
        }
        lua_pop(L, 3);
    }
    lua_pop(L, 1);
    return count;
}

/* Marks the tensors from stack index 3 to the top, which the function returned, as results. */
static int add_returned(lua_State *L, Host *h) {
    int nout = lua_gettop(L) - 2;
    trace_push_effects(L);
    if (lua_rawlen(L, -1) > 0)
        state_error(L, E_STATE,
                    "debug_print is not possible here; print what the traced function returns");
    lua_pop(L, 1);
    for (int i = 3; i < 3 + nout; i++) {
        if (!luaL_testudata(L, i, VALUE_TENSOR))
            state_error(L, E_VALUE, "the traced function returned a %s where a tensor was expected",
                        arg_type_name(L, i));
        trace_result(L, h, trace_value(L, h, i), NULL, NULL);
    }
    return nout;
}

/* Pushes a list of handles that hold nothing yet: what can run out of memory does so here. */
static void push_handles(lua_State *L, int n) {
    lua_createtable(L, n, 0);
    for (int i = 1; i <= n; i++) {
        value_new_tensor(L);
        lua_rawseti(L, -2, i);
    }
}

/* Ends the trace, and runs it on what it captured: its results, in a userdata that is pushed. */
static Tensor **run_captured(lua_State *L, Host *h, int nout) {
    int32_t nin = h->trace->capture.n;
    Tensor **in = lua_newuserdatauv(L, sizeof *in * (size_t)(nin + nout + 1), 0);
    uint8_t *none = lua_newuserdatauv(L, (size_t)nin + 1, 0);
    memset(none, 0, (size_t)nin + 1);
    push_held_before(L);
    for (int32_t i = 0; i < nin; i++) in[i] = find_captured(L, &h->trace->capture.at[i]);
    luaL_checkstack(L, nout + 4, "too many results");
    Exec *exec = NULL;
    for (int32_t i = 0; i < nin; i++) tensor_retain(in[i]); /* beyond the trace */
    Err e = state_compile(h, h->trace->graph, none, false, NULL, &exec);
    trace_end(L, h);
    if (!e) e = exec_run(exec, in, none, in + nin);
    if (exec && state_collect_after(L, h, e)) e = exec_run(exec, in, none, in + nin);
    exec_release(exec);
    for (int32_t i = 0; i < nin; i++) tensor_release(in[i]);
    state_check(L, h, e);
    h->used = true;
    return in + nin;
}

static int run_traced_body(lua_State *L) {
    Host *h = state_of(L);
    arg_check_type(L, 1, LUA_TFUNCTION, "run_traced");
    const Mesh *mesh = lua_isnoneornil(L, 2) ? h->mesh : value_mesh(L, 2);
    lua_settop(L, 1);
    lua_newtable(L); /* 2: boxes that were written */
    lua_pushvalue(L, 1);
    trace_begin(L, h, mesh, true);
    lua_call(L, 0, LUA_MULTRET);
    int nout = add_returned(L, h), nwritten = add_written(L, h, 2);
    lua_settop(L, 2);
    push_handles(L, nout + nwritten); /* 3 */
    Tensor **out = run_captured(L, h, nout + nwritten);
    int first = lua_gettop(L) + 1;
    for (int i = 0; i < nout + nwritten; i++) {
        lua_rawgeti(L, 3, i + 1);
        ((LuaTensor *)lua_touserdata(L, -1))->t = out[i];
    }
    for (int i = 0; i < nwritten; i++) {
        lua_rawgeti(L, 2, i + 1);
        lua_pushvalue(L, first + nout + i);
        value_put_in_box(L, -2);
        lua_pop(L, 1);
    }
    lua_settop(L, first + nout - 1);
    return nout;
}

/* run_traced(fn [, mesh]): fn returns traced tensors; they come back concrete. */
static int run_traced(lua_State *L) {
    return trace_protected(L, run_traced_body);
}

/* variable(x): x as a fresh variable of a gradient. */
static int variable(lua_State *L) {
    Host *h = state_of(L);
    trace_of(L, h, "variable");
    Val v = trace_value(L, h, 1);
    Build at = h->trace->build;
    v = build_op(&at, OP_IDENTITY, &v, 1, NULL);
    state_check(L, h, at.err);
    value_push_traced(L, h, v);
    return 1;
}

/* The traced values of the list at `index`, in a userdata that is pushed; 0 for false. */
static Val *read_list(lua_State *L, Host *h, int index, int *n) {
    arg_check_type(L, index, LUA_TTABLE, "gradient");
    *n = (int)lua_rawlen(L, index);
    Val *list = lua_newuserdatauv(L, sizeof *list * (size_t)(*n + 1), 0);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, index, i + 1);
        bool zero = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
        list[i] = zero ? 0 : trace_value(L, h, -1);
        lua_pop(L, 1);
    }
    return list;
}

static void check_cotangent(lua_State *L, const Type *y, const Type *ct) {
    if (y->dtype == ct->dtype && dims_equal(&y->dims, &ct->dims)) return;
    Host *h = state_of(L);
    Str *s = state_text(h);
    type_print(ct, s);
    str_put(s, ", the result is ");
    type_print(y, s);
    state_error(L, y->dtype == ct->dtype ? E_SHAPE : E_DTYPE, "gradient: the cotangent is %s",
                str_of(s));
}

/* gradient(ys, cts, wrt): lists of traced tensors; false in cts stands for zero. Returns the list
 * of cotangents of wrt. */
static int gradient(lua_State *L) {
    Host *h = state_of(L);
    Trace *t = trace_of(L, h, "gradient");
    int ny, nct, nwrt;
    lua_settop(L, 3);
    const Val *y = read_list(L, h, 1, &ny), *ct = read_list(L, h, 2, &nct);
    const Val *wrt = read_list(L, h, 3, &nwrt);
    Val *grad = lua_newuserdatauv(L, sizeof *grad * (size_t)(nwrt + 1), 0);
    if (ny != nct)
        state_error(L, E_VALUE, "gradient: %d result%s, %d cotangent%s", ny, str_s(ny), nct,
                    str_s(nct));
    for (int i = 0; i < ny; i++)
        if (y[i] && ct[i])
            check_cotangent(L, graph_type(t->graph, y[i]), graph_type(t->graph, ct[i]));
    for (int i = 0; i < ny + nwrt; i++)
        if (!(i < ny ? y[i] : wrt[i - ny]))
            state_error(L, E_VALUE, "gradient: expected a tensor, got false");
    for (int i = 0; i < nwrt; i++) trace_check_variable(L, t, wrt[i]);
    const Loc *loc = where_loc(L, h);
    Build at = t->build;
    at.loc = &loc;
    at.nloc = loc ? 1 : 0;
    at.strict = false;
    pass_grad(&at, y, ct, ny, wrt, nwrt, grad);
    state_check(L, h, at.err);
    lua_createtable(L, nwrt, 0);
    for (int i = 0; i < nwrt; i++) {
        value_push_traced(L, h, grad[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int is_tracing(lua_State *L) {
    lua_pushboolean(L, state_of(L)->trace != NULL);
    return 1;
}

void trace_open(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"run_traced", run_traced}, {"variable", variable},     {"gradient", gradient},
        {"is_tracing", is_tracing}, {"effects", effects},       {"note_writes", note_writes},
        {"written", written},       {"note_reads", note_reads}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
