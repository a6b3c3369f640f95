/* control.c - nodes over traced regions: what lualib's control.lua builds its loops and branches
 * of. The library has checked what it passes. */
#include "lua/trace/trace.h"

typedef struct Vals {
    Val *at;
    int32_t n;
} Vals;

/* The traced values of the list at `index`; its memory is a userdata that is pushed. */
static Vals read_vals(lua_State *L, Host *h, int index) {
    arg_check_type(L, index, LUA_TTABLE, "operands");
    Vals v = {.n = (int32_t)lua_rawlen(L, index)};
    v.at = lua_newuserdatauv(L, sizeof *v.at * (size_t)(v.n + 1), 0);
    for (int32_t i = 0; i < v.n; i++) {
        lua_rawgeti(L, index, i + 1);
        v.at[i] = trace_value(L, h, -1);
        lua_pop(L, 1);
    }
    return v;
}

static Build here(lua_State *L, Host *h, const Loc **loc) {
    *loc = where_loc(L, h);
    if (!*loc) state_check(L, h, err_nomem(&h->cx, "a trace"));
    Build at = h->trace->build;
    at.loc = loc;
    at.nloc = 1;
    return at;
}

static Host *tracing(lua_State *L) {
    Host *h = state_of(L);
    trace_of(L, h, "control flow");
    return h;
}

/* The region with that number, which must have no owner yet. */
static const Region *region_at(lua_State *L, const Host *h, int index, int32_t *number) {
    const Graph *g = h->trace->graph;
    lua_Integer r = arg_integer(L, index, "the region");
    if (r < 1 || r >= g->region.n || g->region.at[r].owner)
        state_error(L, E_VALUE, "no region %d that nobody owns in the trace", (int)r);
    *number = (int32_t)r;
    return &g->region.at[r];
}

/* A number of operands or results: at most `most`. */
static int64_t count_at(lua_State *L, int index, const char *what, int64_t most) {
    lua_Integer n = arg_integer(L, index, what);
    if (n < 0 || n > most)
        state_error(L, E_VALUE, "%s: %lld; at most %lld", what, (long long)n, (long long)most);
    return n;
}

static void check_operands(lua_State *L, int32_t have, int32_t want) {
    if (have != want)
        state_error(L, E_VALUE, "the region takes %d operand%s, not %d", want, str_s(want), have);
}

static int push_results(lua_State *L, Host *h, const Build *at, const Val *v, int32_t n) {
    state_check(L, h, at->err);
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        value_push_traced(L, h, v[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static Val *room_for(lua_State *L, int64_t n) {
    return lua_newuserdatauv(L, sizeof(Val) * (size_t)(n + 1), 0);
}

/* vary_like(xs, ys): xs, each varying over what its y varies over, too; and whether any was
 * changed. Outside shard_map nothing varies. */
static int vary_like(lua_State *L) {
    Host *h = tracing(L);
    const Loc *loc;
    lua_settop(L, 2);
    arg_check_type(L, 2, LUA_TTABLE, "values");
    Vals x = read_vals(L, h, 1);
    Val *out = room_for(L, x.n);
    bool changed = false;
    Build at = here(L, h, &loc);
    for (int32_t i = 0; i < x.n; i++) {
        lua_rawgeti(L, 2, i + 1);
        Mode m = mode_of(graph_type(at.g, x.at[i]));
        Mode other = mode_of(value_type(h, value_tensor(L, h, -1)));
        lua_pop(L, 1);
        m.manual |= other.manual;
        m.vary |= other.vary;
        out[i] = mode_bring(&at, x.at[i], m);
        changed = changed || out[i] != x.at[i];
    }
    push_results(L, h, &at, out, x.n);
    lua_pushboolean(L, changed);
    return 2;
}

/* scan(region, operands, ncarry, nxs, length, reverse): the carries and ys, a list. */
static int scan(lua_State *L) {
    Host *h = tracing(L);
    const Loc *loc;
    int32_t region;
    lua_settop(L, 6);
    const Region *r = region_at(L, h, 1, &region);
    int32_t nparam = r->param.n, nresult = r->result.n;
    Vals in = read_vals(L, h, 2);
    check_operands(L, in.n, nparam);
    ScanAttr attr = {.ncarry = count_at(L, 3, "ncarry", nparam < nresult ? nparam : nresult),
                     .reverse = lua_toboolean(L, 6)};
    attr.nxs = count_at(L, 4, "nxs", nparam - attr.ncarry);
    attr.length = count_at(L, 5, "length", DIMS_MOST);
    Build at = here(L, h, &loc);
    Val v = op_scan(&at, region, in.at, in.n, &attr), *out = room_for(L, nresult);
    for (int32_t i = 0; i < nresult; i++) out[i] = v + i;
    return push_results(L, h, &at, out, nresult);
}

/* sum_start(x): what a sum of tensors of x's type begins with: -0, which changes no bit of what is
 * added. x may be of a region that has ended. */
static int sum_start(lua_State *L) {
    Host *h = tracing(L);
    const Loc *loc;
    const Type *type = value_type(h, value_tensor(L, h, 1));
    Build at = here(L, h, &loc);
    Val v = op_full(&at, type->dtype, &type->dims, attr_scalar_float(-0.0));
    v = op_lay_like(&at, mode_bring(&at, v, mode_of(type)), type, false);
    state_check(L, h, at.err);
    value_push_traced(L, h, v);
    return 1;
}

/* while_loop(region, operands, ncarry): the carries. */
static int while_loop(lua_State *L) {
    Host *h = tracing(L);
    const Loc *loc;
    int32_t region;
    lua_settop(L, 3);
    const Region *r = region_at(L, h, 1, &region);
    int32_t nparam = r->param.n, nresult = r->result.n;
    Vals in = read_vals(L, h, 2);
    check_operands(L, in.n, nparam + 1);
    int64_t ncarry = count_at(L, 3, "ncarry", nparam);
    if (nresult != ncarry + 1)
        state_error(L, E_VALUE, "%d carries, %d results", (int)ncarry, nresult);
    Build at = here(L, h, &loc);
    Val *out = room_for(L, ncarry);
    op_while(&at, region, in.at, in.n, ncarry, out);
    return push_results(L, h, &at, out, (int32_t)ncarry);
}

static bool same_val(const void *vals, const void *x, int32_t i) {
    return ((const Vals *)vals)->at[i] == *(const Val *)x;
}

/* Where x is in the list, of which `index` knows some; -1: nowhere. */
static int32_t find(const Vals *v, const Map *index, Val x) {
    return map_find(index, hash_u64(0, (uint64_t)x), same_val, v, &x);
}

static void add_to_index(lua_State *L, Host *h, Map *index, const Vals *v, int32_t i) {
    if (!map_add(&h->trace->arena, index, hash_u64(0, (uint64_t)v->at[i]), i))
        state_check(L, h, err_nomem(&h->cx, "a trace"));
}

/* Gives the region parameters for operands[from ..]: `own` says which it has, behind its first
 * `from`. */
static void widen_region(lua_State *L, Host *h, Build *at, int32_t region, int32_t from,
                         const Vals *in, const Vals *own) {
    Val *param = lua_newuserdatauv(L, sizeof *param * (size_t)(in->n + 1), 0);
    Build body = *at;
    body.region = region;
    Map index = {0};
    for (int32_t i = 0; i < own->n; i++)
        if (find(own, &index, own->at[i]) < 0) add_to_index(L, h, &index, own, i);
    const Val *have = at->g->region.at[region].param.at;
    for (int32_t i = 0; i < from; i++) param[i] = have[i];
    for (int32_t i = from; i < in->n; i++) {
        int32_t k = find(own, &index, in->at[i]);
        have = at->g->region.at[region].param.at;
        param[i] = k >= 0 ? have[from + k] : op_region_param(&body, graph_type(at->g, in->at[i]));
    }
    op_region_params(&body, region, param, in->n);
    state_check(L, h, body.err);
}

/* The branches of a cond: their regions, and what each captured. */
typedef struct Branches {
    int32_t n, nresult;
    int32_t *region;
    Vals *own;
} Branches;

/* Those of the lists at 3 and 4; their memory is userdata that is pushed. */
static Branches read_branches(lua_State *L, Host *h, int32_t noperand) {
    Branches b = {.n = (int32_t)lua_rawlen(L, 3), .nresult = -1};
    if (b.n == 0) state_error(L, E_VALUE, "no branches");
    b.region = lua_newuserdatauv(L, sizeof *b.region * (size_t)b.n, 0);
    b.own = lua_newuserdatauv(L, sizeof *b.own * (size_t)b.n, 0);
    luaL_checkstack(L, 3 * b.n + LUA_MINSTACK, "too many branches");
    for (int32_t k = 0; k < b.n; k++) {
        lua_rawgeti(L, 3, k + 1);
        const Region *r = region_at(L, h, -1, &b.region[k]);
        int32_t nparam = r->param.n;
        if (b.nresult >= 0 && r->result.n != b.nresult)
            state_error(L, E_VALUE, "branches give %d and %d results", b.nresult, r->result.n);
        b.nresult = r->result.n;
        lua_rawgeti(L, 4, k + 1);
        b.own[k] = read_vals(L, h, lua_gettop(L));
        check_operands(L, noperand + b.own[k].n, nparam);
    }
    return b;
}

/* The operands and, behind them, what any branch captured, each once; with room for the index in
 * front. A userdata is pushed. */
static Vals with_captured(lua_State *L, Host *h, const Vals *operands, const Branches *b) {
    int32_t most = operands->n + 1;
    for (int32_t k = 0; k < b->n; k++) most += b->own[k].n;
    Val *all = lua_newuserdatauv(L, sizeof *all * (size_t)most, 0);
    Vals in = {all + 1, operands->n};
    for (int32_t i = 0; i < operands->n; i++) in.at[i] = operands->at[i];
    Map captured = {0};
    for (int32_t k = 0; k < b->n; k++)
        for (int32_t i = 0; i < b->own[k].n; i++) {
            if (find(&in, &captured, b->own[k].at[i]) >= 0) continue;
            in.at[in.n++] = b->own[k].at[i];
            add_to_index(L, h, &captured, &in, in.n - 1);
        }
    return in;
}

/* cond_is_static(index, asked): whether devices differ in it and each knows it beforehand; `asked`:
 * an error where it is not known. */
static int cond_is_static(lua_State *L) {
    Host *h = tracing(L);
    const Loc *loc;
    lua_settop(L, 2);
    Val index = trace_value(L, h, 1);
    bool asked = lua_toboolean(L, 2);
    Build at = here(L, h, &loc);
    bool varies = mode_of(graph_type(at.g, index)).vary != 0;
    bool known = (varies || asked) && op_cond_is_static(&at, index, asked);
    state_check(L, h, at.err);
    lua_pushboolean(L, varies && known);
    return 1;
}

/* cond(index, operands, regions, captured, asked): `regions` have parameters for the operands and,
 * behind them, for the tensors of their list in `captured`. `asked`: see cond_is_static. Returns
 * the results. */
static int cond(lua_State *L) {
    Host *h = tracing(L);
    const Loc *loc;
    lua_settop(L, 5);
    bool asked = lua_toboolean(L, 5);
    lua_settop(L, 4);
    arg_check_type(L, 3, LUA_TTABLE, "regions");
    arg_check_type(L, 4, LUA_TTABLE, "captured");
    Val index = trace_value(L, h, 1);
    Vals operands = read_vals(L, h, 2);
    Branches b = read_branches(L, h, operands.n);
    Vals in = with_captured(L, h, &operands, &b);
    in.at[-1] = index;
    Build at = here(L, h, &loc);
    for (int32_t k = 0; k < b.n; k++)
        widen_region(L, h, &at, b.region[k], operands.n, &in, &b.own[k]);
    Val *out = room_for(L, b.nresult);
    op_cond(&at, b.region, b.n, in.at - 1, in.n + 1, asked, out);
    return push_results(L, h, &at, out, b.nresult);
}

void trace_open_control(lua_State *L) {
    static const luaL_Reg fns[] = {{"scan", scan},
                                   {"while_loop", while_loop},
                                   {"cond", cond},
                                   {"sum_start", sum_start},
                                   {"cond_is_static", cond_is_static},
                                   {"vary_like", vary_like},
                                   {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
