/* ops.c - every op of the table as a Lua function, eager or traced; and the operators.
 *
 * An eager op is a program of one op: the same passes, the same plan, found by (op, attributes,
 * operand types) in the plan cache. */
#include "lua/lib/attributes.h"
#include "base/plain.h"
#include "lua/lib/lib.h"
#include "lua/state/usage.h"
#include "lua/trace/trace.h"

#include <string.h>

enum { MAX_ARGS = 64 };

/* Raises what an op refuses: as "logaddexp (sub): ..." where it is part of another function. */
static void check_op(lua_State *L, Host *h, const OpDef *def, Err e) {
    char text[ERR_TEXT];
    const char *called = e ? wrap_called(L) : NULL;
    size_t n = strlen(def->name);
    if (called && strcmp(called, def->name) != 0 && strncmp(h->cx.err.text, def->name, n) == 0 &&
        h->cx.err.text[n] == ':') {
        plain_format(text, sizeof text, "%s (%s)%s", called, def->name, h->cx.err.text + n);
        memcpy(h->cx.err.text, text, sizeof text);
    }
    state_check(L, h, e);
}

/* ---- eager ---- */

/* Not cleared as a whole: it is large, and most calls have two operands. */
typedef struct EagerArgs {
    Host *h;
    const OpDef *def;
    int op, n;
    Attrs attr;
    Tensor *t[MAX_ARGS]; /* NULL: a number */
    Operand number[MAX_ARGS];
} EagerArgs;

/* All that the plan depends on, in words that are hashed at once. */
static PlanCacheKey eager_key(const EagerArgs *a) {
    enum { AROUND = 4, EACH = 3 };
    const Host *h = a->h;
    uint64_t word[AROUND + EACH * MAX_ARGS]; /* not cleared: it is large */
    int n = 0;
    word[n++] = (uint64_t)h->passes_on << 32 | h->passes_off;
    word[n++] = (uint64_t)a->op << 1 | h->expand;
    word[n++] = (uint64_t)(uintptr_t)h->rt.target;
    word[n++] = attributes_hash(a->def, a->attr);
    for (int i = 0; i < a->n; i++) {
        word[n++] = a->t[i] ? (uint64_t)(uintptr_t)a->t[i]->type : a->number[i].is_float;
        if (a->t[i]) continue;
        memcpy(&word[n], &a->number[i].number, sizeof(Scalar));
        n += sizeof(Scalar) / sizeof word[0];
    }
    uint64_t hash = hash_bytes(0, word, sizeof word[0] * (size_t)n);
    return (PlanCacheKey){hash, hash_u64(hash, 0x9e3779b97f4a7c15ull)};
}

static Err two_meshes(Graph *g, const OpDef *def, const char *what, const Mesh *its) {
    Str a, b;
    str_init(&a, &g->cx->alloc);
    str_init(&b, &g->cx->alloc);
    mesh_print(g->mesh, &a);
    mesh_print(its, &b);
    Err e =
        err_set(g->cx, E_MESH, "%s: %s is on %s, what comes before on %s; move one with device_put",
                def->name, what, str_of(&b), str_of(&a));
    str_free(&a);
    str_free(&b);
    return e;
}

/* What a constraint asks for: the program comes onto its mesh; NULL for other ops. */
static const Layout *layout_asked(const OpDef *def, const char *attr) {
    if (!(def->flags & OPF_CONSTRAINT)) return NULL;
    return ((const ConstrainAttr *)(const void *)attr)->layout;
}

static Err build_eager(const EagerArgs *a, const Loc *loc, Graph *g) {
    Build b = build_in(g, 0);
    Operand in[MAX_ARGS];
    b.loc = &loc;
    b.nloc = 1;
    b.strict = true;
    for (int i = 0; i < a->n; i++) {
        in[i] = a->number[i];
        if (!a->t[i]) continue;
        const Layout *l = a->t[i]->type->layout;
        if (l && g->mesh && g->mesh != l->mesh) return two_meshes(g, a->def, "an operand", l->mesh);
        if (l) g->mesh = l->mesh;
        in[i] =
            (Operand){.v = build_param(&b, OP_PARAM, &(ParamAttr){.index = i + 1}, a->t[i]->type)};
    }
    const Layout *asked = layout_asked(a->def, a->attr.at);
    if (asked && g->mesh && g->mesh != asked->mesh)
        return two_meshes(g, a->def, "the layout", asked->mesh);
    if (asked) g->mesh = asked->mesh;
    Val v = op_apply(&b, a->op, in, a->n, a->attr.at);
    int nout = v ? graph_def(g, v)->nout : 0;
    for (int i = 0; i < nout; i++) build_result(&b, v + i);
    return b.err;
}

static Err compile_eager(const EagerArgs *a, const Loc *loc, PlanCacheKey key, Exec **out) {
    Host *h = a->h;
    Graph *g = graph_new(&h->cx);
    if (!g) return err_nomem(&h->cx, "a graph");
    static const uint8_t none[MAX_ARGS];
    Err e = build_eager(a, loc, g);
    if (!e) e = state_compile_as(h, key, g, none, out);
    if (!e) exec_release(*out); /* the cache holds it now */
    graph_free(g);
    return e;
}

/* The plan for the call, with handles for its results in `out` and on the stack, and these alone
 * behind the arguments. */
static Exec *ready_eager(lua_State *L, const EagerArgs *a, LuaTensor **out) {
    Host *h = a->h;
    PlanCacheKey key = eager_key(a);
    int made = 0, wanted = a->def->nout, base = lua_gettop(L);
    Exec *exec = NULL;
    do {
        if (wanted > MAX_ARGS) state_error(L, E_VALUE, "%s: too many results", a->def->name);
        luaL_checkstack(L, wanted + 2, "too many results");
        while (made < wanted) out[made++] = value_new_tensor(L);
        /* Only now: making handles may run finalizers that run ops, and these
         * may empty the cache. */
        exec = plan_cache_find(&h->plans, key);
        if (!exec) {
            const Loc *loc = where_loc(L, h);
            check_op(L, h, a->def,
                     loc ? compile_eager(a, loc, key, &exec) : err_nomem(&h->cx, "a place"));
        }
        wanted = exec->plan->results.n;
    } while (made < wanted);
    lua_settop(L, base + wanted);
    return exec;
}

static int run_eager(lua_State *L, const EagerArgs *a) {
    Host *h = a->h;
    LuaTensor *out[MAX_ARGS];
    Tensor *in[MAX_ARGS], *results[MAX_ARGS];
    static const uint8_t fate[MAX_ARGS];
    int nin = 0, base = lua_gettop(L);
    for (int i = 0; i < a->n; i++)
        if (a->t[i]) in[nin++] = a->t[i];
    state_collect_if_needed(L, h, 1);
    Exec *exec = ready_eager(L, a, out);
    Err e = exec_run(exec, in, fate, results);
    if (state_collect_after(L, h, e)) {
        lua_settop(L, base);
        exec = ready_eager(L, a, out);
        e = exec_run(exec, in, fate, results);
    }
    check_op(L, h, a->def, e);
    int nout = exec->plan->results.n;
    for (int i = 0; i < nout; i++) out[i]->t = results[i];
    h->used = true;
    return nout;
}

/* ---- traced ---- */

static int build_traced(lua_State *L, Host *h, int op, const Operand *in, int n, const char *attr) {
    Trace *t = h->trace;
    const OpDef *def = op_def(op);
    const Loc *loc = where_loc(L, h);
    Build at = t->build;
    if (!loc) state_check(L, h, err_nomem(&h->cx, "a trace"));
    at.loc = &loc;
    at.nloc = 1;
    if (layout_asked(def, attr))
        value_use_mesh(L, h, layout_asked(def, attr)->mesh, "constrain: the layout");
    Val v = op_apply(&at, op, in, n, attr);
    check_op(L, h, def, at.err);
    int nout = graph_def(t->graph, v)->nout;
    luaL_checkstack(L, nout + 2, "too many results");
    for (int i = 0; i < nout; i++) value_push_traced(L, h, v + i);
    return nout;
}

/* ---- the call ---- */

static bool read_number(lua_State *L, int index, Operand *o) {
    if (lua_type(L, index) != LUA_TNUMBER) return false;
    *o = (Operand){.is_float = !lua_isinteger(L, index)};
    o->number = o->is_float ? attr_scalar_float(lua_tonumber(L, index))
                            : attr_scalar_int(lua_tointeger(L, index));
    return true;
}

/* Number of operands: the row's, or all leading tensors and numbers. */
static int count_operands(lua_State *L, const Host *h, const OpDef *def) {
    if (def->nin >= 0) return def->nin;
    int n = 0;
    while (n < lua_gettop(L) && (lua_type(L, n + 1) == LUA_TNUMBER || value_is_tensor(L, h, n + 1)))
        n++;
    return n;
}

static LuaTensor *operand(lua_State *L, Host *h, const OpDef *def, int index) {
    LuaTensor *u = value_handle(L, h, index);
    if (u && u->t && !tensor_is_deleted(u->t)) return u;
    if (!u && !value_box(L, h, index))
        state_error(L, E_VALUE, "%s: expected a tensor or a number, got %s%s", def->name,
                    arg_type_name(L, index),
                    lua_istable(L, index) || lua_isboolean(L, index) ? "; ml.tensor(x) makes one"
                                                                     : "");
    return value_tensor(L, h, index);
}

static int apply(lua_State *L, Host *h, int op) {
    const OpDef *def = op_def(op);
    EagerArgs a;
    a.h = h;
    a.def = def;
    a.op = op;
    a.n = count_operands(L, h, def);
    if (a.n > MAX_ARGS) state_error(L, E_VALUE, "%s: more than %d operands", def->name, MAX_ARGS);
    if (lua_gettop(L) < a.n)
        state_error(L, E_VALUE, "%s: %d operand%s given, %d wanted (%s)%s", def->name,
                    lua_gettop(L), str_s(lua_gettop(L)), a.n, def->operands,
                    lua_gettop(L) ? "" : "; a method is called with a colon");
    int most = a.n + (def->attr != NULL);
    if (lua_gettop(L) > most) return usage_surplus(L, h, def->name, most);
    Operand in[MAX_ARGS];
    _Alignas(16) char room[1024];
    ASSERT(def->attr_size <= sizeof room, "attributes of %s", def->name);
    Dims dims = {0};
    for (int i = 0; i < a.n; i++) {
        a.t[i] = NULL;
        a.number[i] = (Operand){0};
        if (read_number(L, i + 1, &a.number[i])) {
            in[i] = a.number[i];
            continue;
        }
        LuaTensor *u = operand(L, h, def, i + 1);
        if (i == 0) dims = value_type(h, u)->dims;
        if (h->trace)
            in[i] = (Operand){.v = trace_value(L, h, i + 1)};
        else
            a.t[i] = u->t;
    }
    a.attr = attributes_read(L, h, def, a.n + 1, &dims, room);
    return h->trace ? build_traced(L, h, op, in, a.n, a.attr.at) : run_eager(L, &a);
}

/* upvalues: the op, the host */
static int call_op(lua_State *L) {
    return apply(L, lua_touserdata(L, lua_upvalueindex(2)),
                 (int)lua_tointeger(L, lua_upvalueindex(1)));
}

/* Operators pass two operands also for unary ones. */
static int call_unary(lua_State *L) {
    lua_settop(L, 1);
    return call_op(L);
}

static void push_op(lua_State *L, int op, lua_CFunction fn) {
    lua_pushinteger(L, op);
    lua_pushlightuserdata(L, state_of(L));
    lua_pushcclosure(L, fn, 2);
}

/* Does no trace have it? */
static bool of_passes(const OpDef *d) {
    return d->flags & (OPF_PARAM | OPF_LOCAL | OPF_PLACEHOLDER) ||
           (d->flags & OPF_COLLECTIVE && !d->mode);
}

/* ---- the table of ops, for --ops and help ---- */
static void push_row(lua_State *L, const OpDef *d) {
    lua_createtable(L, 0, 8);
    lua_pushstring(L, d->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, d->operands);
    lua_setfield(L, -2, "operands");
    lua_pushstring(L, d->doc);
    lua_setfield(L, -2, "doc");
    lua_pushboolean(L, (d->flags & OPF_ELEMENTWISE) != 0);
    lua_setfield(L, -2, "elementwise");
    lua_pushboolean(L, (d->flags & OPF_INTERNAL) != 0);
    lua_setfield(L, -2, "internal");
    lua_pushboolean(L, of_passes(d));
    lua_setfield(L, -2, "of_passes");
    lua_pushstring(L, d->flags & OPF_NO_GRAD ? "none"
                      : d->vjp               ? "vjp"
                      : d->expand            ? "expand"
                                             : "-");
    lua_setfield(L, -2, "grad");
    lua_pushboolean(L, d->expand != NULL);
    lua_setfield(L, -2, "expands");
    lua_pushboolean(L, d->batch || d->flags & OPF_ELEMENTWISE || d->nin == 0);
    lua_setfield(L, -2, "batch");
    lua_pushboolean(L, d->factors != NULL);
    lua_setfield(L, -2, "factors");
    lua_pushboolean(L, d->fold != NULL);
    lua_setfield(L, -2, "folds");
    lua_pushstring(L, d->view               ? "view"
                      : d->instr || d->emit ? "fused"
                      : d->kernel           ? d->kernel
                      : d->split            ? "split"
                      : d->collective       ? "collective"
                      : d->control          ? "control"
                                            : "-");
    lua_setfield(L, -2, "runs");
    lua_createtable(L, 4, 0);
    for (int i = 0; d->attr && d->attr[i].name; i++) {
        lua_pushstring(L, d->attr[i].name);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "attributes");
}

static int ops(lua_State *L) {
    lua_createtable(L, OP_COUNT, 0);
    for (int i = 1; i < OP_COUNT; i++) {
        push_row(L, op_def(i));
        lua_rawseti(L, -2, i);
    }
    return 1;
}

static void add_operators(lua_State *L, const char *type) {
    static const struct {
        const char *event;
        OpId op;
        bool unary;
    } events[] = {
        {"__add", OP_ADD, false},     {"__sub", OP_SUB, false},
        {"__mul", OP_MUL, false},     {"__div", OP_DIV, false},
        {"__mod", OP_MOD, false},     {"__idiv", OP_FLOOR_DIVIDE, false},
        {"__pow", OP_POW, false},     {"__unm", OP_NEG, true},
        {"__band", OP_BITAND, false}, {"__bor", OP_BITOR, false},
        {"__bxor", OP_BITXOR, false}, {"__bnot", OP_BITNOT, true},
        {"__shl", OP_SHL, false},     {"__shr", OP_SHR, false},
    };
    luaL_getmetatable(L, type);
    for (unsigned i = 0; i < sizeof events / sizeof events[0]; i++) {
        push_op(L, events[i].op, events[i].unary ? call_unary : call_op);
        lua_setfield(L, -2, events[i].event);
    }
    lua_pop(L, 1);
}

/* The table `op` of the core: one function per op, operands first, then a table of attributes. */
void lib_open_ops(lua_State *L) {
    lua_createtable(L, 0, OP_COUNT);
    for (int i = 1; i < OP_COUNT; i++) {
        const OpDef *def = op_def(i);
        if (of_passes(def) || def->manual || def->flags & OPF_TYPED) continue;
        push_op(L, i, call_op);
        lua_setfield(L, -2, op_def(i)->name);
    }
    lua_setfield(L, -2, "op");
    lua_pushcfunction(L, ops);
    lua_setfield(L, -2, "ops");
    add_operators(L, VALUE_TENSOR);
    add_operators(L, VALUE_BOX);
}
