/* program.c - a traced step as data: what ml.explain and ml.verify look at, plan in other ways and
 * run in pieces. It owns the trace's graph; of the arguments it keeps the objects. */
#include "lua/jit/jit.h"
#include "ir/mode.h"
#include "lua/jit/plan_info.h"
#include "lua/jit/program.h"
#include "op/op.h"
#include "pass/layout/origin.h"

#include <string.h>

#define VALUE_PROGRAM "meshlua.Program"

/* User values: 1 a list of what goes in, one for each parameter of the graph: tensors and Params.
 * 2 the names of the first of them. */
typedef struct LuaProgram {
    Ctx *cx;
    Graph *graph; /* NULL: closed */
    uint8_t *donated;
    int32_t nparam;
} LuaProgram;

static LuaProgram *program_at(lua_State *L) {
    LuaProgram *p = value_udata(L, 1, VALUE_PROGRAM);
    if (!p->graph) state_error(L, E_STATE, "the program is closed");
    return p;
}

static int program_close(lua_State *L) {
    LuaProgram *p = value_udata(L, 1, VALUE_PROGRAM);
    graph_free(p->graph);
    if (p->cx) alloc_free(&p->cx->alloc, p->donated, (size_t)p->nparam + 1);
    p->graph = NULL;
    p->donated = NULL;
    p->cx = NULL;
    return 0;
}

/* A handle with a scalar tensor for the number on top of the stack. */
static void push_scalar(lua_State *L, Host *h) {
    bool whole = lua_isinteger(L, -1);
    Type t = {.dtype = whole ? DT_I32 : DT_F32, .weak = true};
    const Type *type = type_of(&h->cx, &t);
    lua_Integer i = lua_tointeger(L, -1);
    float f = (float)lua_tonumber(L, -1);
    int32_t i32 = (int32_t)i;
    Tensor *x = value_push_fresh(L, h, type, false)->t;
    state_check(L, h, tensor_write_shard(x, 0, whole ? (const void *)&i32 : (const void *)&f));
}

/* The list of inputs: the objects of leaves, numbers as tensors, then captures. */
static void push_inputs(lua_State *L, Host *h, const LuaJit *j, const Walk *w, const Traced *t,
                        int last) {
    lua_Integer n = 0;
    lua_createtable(L, t->e.nleaf + t->e.nnumber + t->e.ncapture, 0);
    for (int32_t i = 1; i <= t->e.nleaf; i++) {
        lua_rawgeti(L, w->leaves, i);
        lua_rawseti(L, -2, ++n);
    }
    for (int at = FIRST; at <= last; at++) {
        if (!jit_is_number(L, j, at, at - FIRST)) continue;
        lua_pushvalue(L, at);
        push_scalar(L, h);
        lua_rawseti(L, -3, ++n);
        lua_pop(L, 1);
    }
    lua_getfield(L, t->side, "captures");
    for (int32_t i = 1; i <= t->e.ncapture; i++) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -3, ++n);
    }
    lua_pop(L, 1);
}

static int program_body(lua_State *L) {
    Host *h = state_of(L);
    const LuaJit *j = value_udata(L, JIT, VALUE_JIT);
    int last = lua_gettop(L);
    Walk w = jit_walk_call(L, h, j, last);
    Traced t = jit_trace_call(L, h, j, &w, last);
    push_inputs(L, h, j, &w, &t, last);
    LuaProgram *p = lua_newuserdatauv(L, sizeof *p, 3);
    *p = (LuaProgram){.cx = &h->cx};
    luaL_setmetatable(L, VALUE_PROGRAM);
    lua_pushvalue(L, -2);
    lua_setiuservalue(L, -2, 1);
    lua_pushvalue(L, w.names);
    lua_setiuservalue(L, -2, 2);
    lua_createtable(L, t.e.nwrite, 0); /* by input: the result that is written to it */
    for (int32_t i = 0; i < t.e.nwrite; i++) {
        lua_pushinteger(L, (lua_Integer)t.e.nout + i + 1);
        lua_rawseti(L, -2, (lua_Integer)t.write_leaf[i] + 1);
    }
    lua_setiuservalue(L, -2, 3);
    p->nparam = h->trace->graph->region.at[0].param.n;
    p->donated = alloc_new(&h->cx.alloc, (size_t)p->nparam + 1);
    if (!p->donated) state_check(L, h, err_nomem(&h->cx, "a program"));
    memcpy(p->donated, t.donated, (size_t)p->nparam);
    p->graph = h->trace->graph;
    h->trace->graph = NULL;
    trace_end(L, h);
    return 1;
}

int jit_program_trace(lua_State *L) {
    value_udata(L, JIT, VALUE_JIT);
    return trace_protected(L, program_body);
}

/* ---- what is in it ---- */

static void push_type(lua_State *L, Host *h, const Type *t) {
    type_print(t, state_text(h));
    state_push_text(L, h);
}

static void set_loc(lua_State *L, Host *h, const Node *n) {
    Str *s = state_text(h);
    intern_print_loc(n->nloc ? n->loc[0] : NULL, s);
    state_push_text(L, h);
    lua_setfield(L, -2, "where");
    value_set_string(L, "scope", n->nloc && n->loc[0]->scope ? n->loc[0]->scope : "");
}

/* Does a value mean one device's part of something (inside shard_map)? */
static bool is_manual(const Type *t) {
    return t->local || (t->layout && t->layout->manual);
}

/* bodies (numbers of its regions); of a loop over one trips (-1: it ends by what it computes),
 * reverse, inside (the values in the region that its results are, or are stacks of). */
static void set_body(lua_State *L, const Graph *g, const Node *n) {
    ControlInfo c = {0};
    if (!n->nbody) return;
    graph_opdef(g, n)->control(n->attr, &c);
    value_push_ints(L, n->body, n->nbody);
    lua_setfield(L, -2, "bodies");
    if (c.branch) return;
    const Region *r = &g->region.at[n->body[0]];
    value_push_ints(L, r->result.at, r->result.n);
    lua_setfield(L, -2, "inside");
    value_set_integer(L, "trips", c.trips);
    lua_pushboolean(L, c.reverse);
    lua_setfield(L, -2, "reverse");
}

/* program:nodes(): in order, {op, where, scope, inputs (values), outputs, types (texts), dtypes,
 * inner (it stands in a region of another op, or inside shard_map), region (of another op),
 * product, operands (their names), role, of (the number of its region, 0: none)}; and of nodes with
 * regions see set_body. */
static int program_nodes(lua_State *L) {
    Host *h = state_of(L);
    const Graph *g = program_at(L)->graph;
    lua_createtable(L, g->node.n, 0);
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        bool inner = n->region != 0;
        lua_createtable(L, 0, 8);
        value_set_string(L, "op", graph_opdef(g, n)->name);
        set_loc(L, h, n);
        value_push_ints(L, n->in, n->nin);
        lua_setfield(L, -2, "inputs");
        lua_createtable(L, n->nout, 0);
        lua_createtable(L, n->nout, 0);
        lua_createtable(L, n->nout, 0);
        for (int i = 0; i < n->nout; i++) {
            const Type *t = graph_type(g, n->out + i);
            inner = inner || is_manual(t);
            lua_pushinteger(L, n->out + i);
            lua_rawseti(L, -4, i + 1);
            push_type(L, h, t);
            lua_rawseti(L, -3, i + 1);
            lua_pushstring(L, dtype_name(t->dtype));
            lua_rawseti(L, -2, i + 1);
        }
        lua_setfield(L, -4, "dtypes");
        lua_setfield(L, -3, "types");
        lua_setfield(L, -2, "outputs");
        lua_pushboolean(L, inner);
        lua_setfield(L, -2, "inner");
        lua_pushboolean(L, (graph_opdef(g, n)->flags & OPF_PRODUCT) != 0);
        lua_setfield(L, -2, "product");
        lua_pushboolean(L, n->region != 0);
        lua_setfield(L, -2, "region");
        value_set_integer(L, "of", n->region);
        set_body(L, g, n);
        value_set_string(L, "operands", graph_opdef(g, n)->operands);
        value_set_string(L, "role", role_name(n->role));
        lua_rawseti(L, -2, id);
    }
    return 1;
}

/* program:params(): one for each input: {name, value, state (kept in a Param), dtype, shape, type
 * (a text), bytes, part (bytes of one device), object, result (that it is set to), donated,
 * refused (mesh axes that were to split a dim and do not divide it)}. */
static int program_params(lua_State *L) {
    Host *h = state_of(L);
    const LuaProgram *p = program_at(L);
    const Region *top = &p->graph->region.at[0];
    lua_getiuservalue(L, 1, 1);
    int objects = lua_gettop(L);
    lua_getiuservalue(L, 1, 3);
    lua_createtable(L, top->param.n, 0);
    for (int i = 0; i < top->param.n; i++) {
        const Node *n = graph_def(p->graph, top->param.at[i]);
        const ParamAttr *attr = n->attr;
        const Type *t = graph_type(p->graph, top->param.at[i]);
        lua_createtable(L, 0, 10);
        value_set_string(L, "name", attr->name ? attr->name : "");
        value_set_integer(L, "value", top->param.at[i]);
        lua_pushboolean(L, attr->state);
        lua_setfield(L, -2, "state");
        value_set_string(L, "dtype", dtype_name(t->dtype));
        value_push_dims(L, &t->dims, 0);
        lua_setfield(L, -2, "shape");
        push_type(L, h, t);
        lua_setfield(L, -2, "type");
        value_set_number(L, "bytes", (double)type_bytes(t));
        value_set_number(L, "part", (double)type_shard_bytes(t));
        lua_rawgeti(L, objects, i + 1);
        lua_setfield(L, -2, "object");
        lua_rawgeti(L, objects + 1, i + 1);
        lua_setfield(L, -2, "result");
        lua_pushboolean(L, p->donated[i]);
        lua_setfield(L, -2, "donated");
        uint32_t refused = 0;
        for (int d = 0; t->layout && d < t->dims.rank; d++) refused |= t->layout->dim[d].refused;
        if (refused) {
            value_push_axes(L, t->layout->mesh, refused);
            lua_setfield(L, -2, "refused");
        }
        if (t->layout) {
            const Spec *spec = layout_spec(&h->cx, t->layout, &t->dims);
            if (!spec) state_check(L, h, err_nomem(&h->cx, "a P"));
            value_push_sharding(L, &(LuaSharding){t->layout->mesh, spec, 0});
            lua_setfield(L, -2, "sharding");
        }
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* program:results(): their values. */
static int program_results(lua_State *L) {
    const Region *top = &program_at(L)->graph->region.at[0];
    value_push_ints(L, top->result.at, top->result.n);
    return 1;
}

/* A value of the program, or a node of it, by number: argument 2. */
static Val value_at(lua_State *L, const Graph *g, const char *what) {
    lua_Integer v = arg_integer(L, 2, what);
    if (v < 1 || v >= g->value.n || graph_def(g, (Val)v)->region != 0)
        state_error(L, E_VALUE, "the program has no value %lld", (long long)v);
    return (Val)v;
}

/* program:blocks(value): of a value inside shard_map what each device has, one behind the other
 * along a dim in front: another value of the program. */
static int program_blocks(lua_State *L) {
    Host *h = state_of(L);
    Graph *g = program_at(L)->graph;
    Val v = value_at(L, g, "blocks: the value"), out = 0;
    const Type *t = graph_type(g, v);
    if (!mode_of(t).manual || t->dims.rank == MAX_RANK)
        state_error(L, E_VALUE, "blocks: the value is not inside a shard_map, or has %d dims",
                    MAX_RANK);
    state_check(L, h, program_add_blocks(g, v, &out));
    lua_pushinteger(L, out);
    return 1;
}

/* program:flag(value, stacked): is all of a float value finite: see program_add_flag. */
static int program_flag(lua_State *L) {
    Host *h = state_of(L);
    Graph *g = program_at(L)->graph;
    Val v = value_at(L, g, "flag: the value"), out = 0;
    if (!dtype_is_float(graph_type(g, v)->dtype))
        state_error(L, E_DTYPE, "flag: the value is no float");
    state_check(L, h, program_add_flag(g, v, lua_toboolean(L, 3), &out));
    lua_pushinteger(L, out);
    return 1;
}

/* program:sum(value): of its bits: see program_add_sum. */
static int program_sum(lua_State *L) {
    Host *h = state_of(L);
    Graph *g = program_at(L)->graph;
    Val v = value_at(L, g, "sum: the value"), out = 0;
    state_check(L, h, program_add_sum(g, v, &out));
    lua_pushinteger(L, out);
    return 1;
}

/* program:body(node, k): what a node does inside, appended (see program_add_body); the number of
 * the first node of it. */
static int program_body_of(lua_State *L) {
    Host *h = state_of(L);
    Graph *g = program_at(L)->graph;
    lua_Integer id = arg_integer(L, 2, "body: the node"), first = g->node.n;
    if (id < 1 || id >= g->node.n)
        state_error(L, E_VALUE, "the program has no node %lld", (long long)id);
    state_check(L, h, program_add_body(g, (int32_t)id, arg_integer(L, 3, "body: which")));
    lua_pushinteger(L, first);
    return 1;
}

/* ---- planning and running it ---- */

/* The values of the list at `index` become the results. */
static void set_results(lua_State *L, Host *h, Graph *g, int index) {
    arg_check_type(L, index, LUA_TTABLE, "the values wanted");
    int n = (int)lua_rawlen(L, index);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, index, i);
        lua_Integer v = arg_integer(L, -1, "a value of the program");
        if (v < 1 || v >= g->value.n || graph_def(g, (Val)v)->region != 0)
            state_error(L, E_VALUE, "the program has no value %lld", (long long)v);
        lua_pop(L, 1);
    }
    g->region.at[0].result.n = 0;
    Build b = build_in(g, 0);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, index, i);
        build_result(&b, (Val)lua_tointeger(L, -1));
        lua_pop(L, 1);
    }
    state_check(L, h, b.err);
}

/* program:plan(): as the step itself would be planned. */
static int program_plan(lua_State *L) {
    Host *h = state_of(L);
    const LuaProgram *p = program_at(L);
    Exec **plan = plan_info_new(L);
    state_check(L, h, state_compile(h, p->graph, p->donated, true, NULL, plan));
    return 1;
}

static void check_input(lua_State *L, Host *h, const Type *want, const Type *have, int i) {
    bool fits = want->dtype == have->dtype && dims_equal(&want->dims, &have->dims) &&
                layout_same_shards(want->layout, have->layout);
    if (fits) return;
    Str *s = state_text(h);
    type_print(want, s);
    str_put(s, " wanted, got ");
    type_print(have, s);
    state_error(L, E_VALUE, "input %d of the program: %s", i + 1, str_of(s));
}

/* program:run(values, inputs): the values, as tensors. They are the program's
 * results from then on. */
static int program_run(lua_State *L) {
    Host *h = state_of(L);
    LuaProgram *p = program_at(L);
    lua_settop(L, 3);
    arg_check_type(L, 3, LUA_TTABLE, "the inputs of a program");
    if (h->trace) state_error(L, E_STATE, "a program cannot run while another is traced");
    set_results(L, h, p->graph, 2);
    int nout = p->graph->region.at[0].result.n;
    lua_createtable(L, nout, 0);
    for (int i = 1; i <= nout; i++) {
        value_new_tensor(L);
        lua_rawseti(L, 4, i);
    }
    Tensor **in = lua_newuserdatauv(L, sizeof *in * (size_t)(p->nparam + nout + 1), 0);
    uint8_t *none = lua_newuserdatauv(L, (size_t)p->nparam + 1, 0);
    memset(none, 0, (size_t)p->nparam + 1);
    for (int i = 0; i < p->nparam; i++) {
        lua_rawgeti(L, 3, i + 1);
        in[i] = value_concrete(L, h, -1, "an input of a program");
        check_input(L, h, graph_type(p->graph, p->graph->region.at[0].param.at[i]), in[i]->type, i);
        lua_pop(L, 1);
    }
    Exec *exec = NULL;
    Err e = state_compile(h, p->graph, none, true, NULL, &exec);
    if (!e) e = exec_run(exec, in, none, in + p->nparam);
    if (exec && state_collect_after(L, h, e)) e = exec_run(exec, in, none, in + p->nparam);
    exec_release(exec);
    state_check(L, h, e);
    for (int i = 0; i < nout; i++) {
        lua_rawgeti(L, 4, i + 1);
        ((LuaTensor *)lua_touserdata(L, -1))->t = in[p->nparam + i];
        lua_pop(L, 1);
    }
    lua_settop(L, 4);
    return 1;
}

/* Pushes the type of result i of a graph that propagation has made, and the ways of its axes to who
 * split it. */
static void push_why(lua_State *L, Host *h, const Graph *g, int32_t i) {
    Val v = g->region.at[0].result.at[i];
    Str *s = state_text(h);
    type_print(graph_type(g, v), s);
    state_push_text(L, h);
    s = state_text(h);
    if (g->mesh) origin_print_chain(g, v, s);
    state_push_text(L, h);
}

/* Frees the graph in the userdata. */
static int close_graph(lua_State *L) {
    Graph **g = lua_touserdata(L, 1);
    graph_free(*g);
    *g = NULL;
    return 0;
}

/* The graph with these n results and no others, laid out as a plan of it would be; in a userdata
 * that is pushed and owns it. */
static const Graph *push_propagated(lua_State *L, Host *h, Graph *g, const Val *v, int32_t n) {
    Graph **out = lua_newuserdatauv(L, sizeof *out, 0);
    *out = NULL;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, close_graph);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    Region *top = &g->region.at[0];
    PassOptions o = {.target = h->rt.target, .on = h->passes_on, .off = h->passes_off};
    Graph *simple = NULL;
    Region all = *top;
    top->result.n = top->result.cap = 0;
    top->result.at = NULL;
    Build b = build_in(g, 0);
    for (int32_t i = 0; i < n; i++) build_result(&b, v[i]);
    Err e = b.err ? b.err : pass_simplify(g, &o, &simple);
    if (!e) e = pipeline_propagate(simple, &o, out);
    graph_free(simple);
    g->region.at[0].result.at = all.result.at;
    g->region.at[0].result.n = all.result.n;
    g->region.at[0].result.cap = all.result.cap;
    state_check(L, h, e);
    return *out;
}

/* program:why(values): their types as they will lie, and who split them: two lists. */
static int program_why(lua_State *L) {
    Host *h = state_of(L);
    Graph *g = program_at(L)->graph;
    lua_settop(L, 2);
    arg_check_type(L, 2, LUA_TTABLE, "why: the values");
    int32_t n = (int32_t)lua_rawlen(L, 2);
    Val *values = lua_newuserdatauv(L, sizeof *values * (size_t)(n + 1), 0);
    for (int32_t i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        lua_Integer v = arg_integer(L, -1, "why: a value");
        if (v < 1 || v >= g->value.n || graph_def(g, (Val)v)->region != 0)
            state_error(L, E_VALUE, "the program has no value %lld", (long long)v);
        values[i] = (Val)v;
        lua_pop(L, 1);
    }
    const Graph *out = push_propagated(L, h, g, values, n);
    lua_createtable(L, n, 0);
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        push_why(L, h, out, i);
        lua_rawseti(L, -3, i + 1);
        lua_rawseti(L, -3, i + 1);
    }
    return 2;
}

/* why_traced(x): the same of a traced tensor, as far as the trace has come. */
static int why_traced(lua_State *L) {
    Host *h = state_of(L);
    trace_of(L, h, "why_sharding");
    Val v = trace_value(L, h, 1);
    Graph *g = h->trace->graph;
    if (graph_def(g, v)->region != 0)
        state_error(L, E_STATE,
                    "why_sharding: the tensor belongs to a loop or branch; ask outside");
    push_why(L, h, push_propagated(L, h, g, &v, 1), 0);
    return 2;
}

void jit_open_program(lua_State *L) {
    static const luaL_Reg meta[] = {
        {"__gc", program_close}, {"__close", program_close}, {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"nodes", program_nodes},   {"params", program_params}, {"results", program_results},
        {"plan", program_plan},     {"run", program_run},       {"why", program_why},
        {"blocks", program_blocks}, {"flag", program_flag},     {"body", program_body_of},
        {"sum", program_sum},       {"close", program_close},   {NULL, NULL}};
    value_new_type(L, VALUE_PROGRAM, meta, methods, NULL);
    lua_pushcfunction(L, why_traced);
    lua_setfield(L, -2, "why_traced");
}
