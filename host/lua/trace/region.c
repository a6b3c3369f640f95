/* region.c - a Lua function's call traced into a region of the graph: the body of a loop, a
 * branch, what a transform works on.
 *
 * While it is traced, the regions under way are a stack of frames. A value of an outer region that
 * is met inside enters as a parameter of every region on the way, once. */
#include "lua/trace/trace.h"

static bool same_outer(const void *frame, const void *outer, int32_t i) {
    const Frame *f = frame; /* an index knows what was taken back, too: see attempt.c */
    return i < f->outer.n && f->met.at[i] == *(const Val *)outer;
}

/* The value, varying over the axes over which all that enters must. */
static Val varied(lua_State *L, Host *h, const Frame *f, Val outer) {
    Build at = h->trace->build;
    at.region = graph_def(at.g, outer)->region;
    Mode m = mode_of(graph_type(at.g, outer));
    m.manual |= f->vary;
    m.vary |= f->vary;
    Val v = f->vary ? mode_bring(&at, outer, m) : outer;
    state_check(L, h, at.err);
    return v;
}

static Val frame_param(lua_State *L, Host *h, Frame *f, Val outer) {
    Trace *t = h->trace;
    uint64_t hash = hash_u64(0, (uint64_t)outer);
    int32_t known = map_find(&f->entered, hash, same_outer, f, &outer);
    if (known >= 0) return f->param.at[known];
    Val met = outer;
    outer = varied(L, h, f, met);
    f->met.n = f->outer.n; /* attempt.c has taken back the same of both */
    Build at = t->build;
    at.region = f->region;
    ParamAttr attr = {.index = t->graph->region.at[f->region].param.n + 1};
    const Type *type = type_undecided(&h->cx, graph_type(t->graph, outer));
    bool ok = type && VEC_ROOM(&t->arena, &f->outer, 1) && VEC_ROOM(&t->arena, &f->param, 1) &&
              VEC_ROOM(&t->arena, &f->met, 1);
    Val v = ok ? build_param(&at, OP_PARAM, &attr, type) : 0;
    ok = v && map_add(&t->arena, &f->entered, hash, f->outer.n);
    if (!ok) state_check(L, h, err_nomem(&h->cx, "a trace"));
    f->met.at[f->met.n++] = met;
    f->outer.at[f->outer.n++] = outer;
    return f->param.at[f->param.n++] = v;
}

/* v, a value of the region under way or of one around it, as a value of the former. */
static Val capture(lua_State *L, Host *h, Val v) {
    Trace *t = h->trace;
    int32_t from = graph_def(t->graph, v)->region;
    if (from == t->build.region) return v;
    int k = t->frame.n;
    while (k > 0 && t->frame.at[k - 1].region != from) k--;
    if (k == 0 && from != 0)
        state_error(L, E_TRACED,
                    "a traced tensor was kept after the loop body or branch it was made in; return "
                    "it from there instead");
    for (; k < t->frame.n; k++) v = frame_param(L, h, &t->frame.at[k], v);
    return v;
}

static bool same_capture(const void *trace, const void *of, int32_t i) {
    const Trace *t = trace; /* an index knows what was taken back, too: see attempt.c */
    return i < t->capture.n && t->capture.at[i].of == of;
}

Val trace_value(lua_State *L, Host *h, int index) {
    LuaTensor *u = value_tensor(L, h, index);
    Trace *t = h->trace;
    if (t->reads && value_box(L, h, index)) trace_note_read(L, index);
    if (!u->t) {
        if (mode_of(graph_type(t->graph, u->v)).manual & ~t->build.manual)
            state_error(L, E_STATE,
                        "a value of shard_map's function is used outside it; return it through "
                        "out_specs");
        trace_check(L, h, u->v);
        return capture(L, h, u->v);
    }
    /* A box from outside may hold another tensor at the next call; one made in
     * this trace may not. */
    const LuaBox *b = value_box(L, h, index);
    bool box = b && b->made_in != t->serial;
    const void *of = box ? (const void *)b : u->t;
    uint64_t hash = hash_u64(0, (uint64_t)(uintptr_t)of);
    int32_t known = map_find(&t->captured, hash, same_capture, t, of);
    if (known >= 0) return capture(L, h, t->capture.at[known].v);
    const Type *type = trace_input_type(L, h, u->t->type, "a tensor met in this trace");
    const Layout *l = type->layout;
    if (l) value_use_mesh(L, h, l->mesh, "a tensor met in this trace");
    Capture c = {.of = of, .ref = LUA_NOREF};
    if (box) {
        lua_pushvalue(L, index);
        c.ref = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    Build at = t->build; /* a copy: what goes wrong here is raised, and no state of the trace */
    at.region = 0;
    c.v =
        build_param(&at, OP_PARAM,
                    &(ParamAttr){.index = t->graph->region.at[0].param.n + 1, .state = box}, type);
    bool ok = c.v && VEC_ROOM(&t->arena, &t->capture, 1) &&
              map_add(&t->arena, &t->captured, hash, t->capture.n);
    if (!ok) {
        if (box) luaL_unref(L, LUA_REGISTRYINDEX, c.ref);
        state_check(L, h, err_nomem(&h->cx, "a trace"));
    }
    if (!box) c.tensor = tensor_retain(u->t);
    t->capture.at[t->capture.n++] = c;
    return capture(L, h, c.v);
}

/* ---- trace_region ---- */

/* A loop runs along dim 1, so that no explicit axis may split it. */
static void check_stack(lua_State *L, Host *h, const Type *t) {
    const Layout *l = t->layout;
    for (int i = 0; l && t->dims.rank && i < l->dim[0].axes.n; i++) {
        int axis = l->dim[0].axes.at[i].axis;
        if (l->mesh->type[axis] != AXIS_EXPLICIT || l->mesh->size[axis] == 1) continue;
        Str *s = state_text(h);
        type_print(t, s);
        state_error(L, E_SPEC,
                    "scan: dim 1 of xs is split on the explicit axis '%s' (%s), and the loop runs "
                    "along it; ml.reshard it first, whole along dim 1",
                    l->mesh->name[axis], str_of(s));
    }
}

/* The type of the parameter that stands for the tensor at `index`; `slice`: without its dim 1. */
static const Type *param_type(lua_State *L, Host *h, int index, bool slice) {
    const Type *t = value_type(h, value_tensor(L, h, index));
    if (slice) check_stack(L, h, t);
    if (slice) t = type_slice(&h->cx, t);
    t = t ? type_undecided(&h->cx, t) : NULL;
    if (!t) state_check(L, h, err_nomem(&h->cx, "a type"));
    return t;
}

/* In the new region: fn, list of tensors, number of slices -> what fn returned. */
static int region_body(lua_State *L) {
    Host *h = state_of(L);
    Trace *t = h->trace;
    int n = (int)lua_rawlen(L, 2), nslice = (int)lua_tointeger(L, 3);
    luaL_checkstack(L, n + LUA_MINSTACK, "too many operands");
    lua_pushvalue(L, 1);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        const Type *type = param_type(L, h, lua_gettop(L), i >= n - nslice);
        lua_pop(L, 1);
        Build at = t->build;
        Val v = build_param(&at, OP_PARAM, &(ParamAttr){.index = i + 1}, type);
        state_check(L, h, at.err);
        value_push_traced(L, h, v);
    }
    lua_call(L, n, LUA_MULTRET);
    for (int i = 4; i <= lua_gettop(L); i++) {
        if (!value_is_tensor(L, h, i))
            state_error(L, E_VALUE, "the traced function returned a %s where a tensor was expected",
                        arg_type_name(L, i));
        Val v = trace_value(L, h, i);
        Build at = t->build;
        build_result(&at, v);
        state_check(L, h, at.err);
        value_push_traced(L, h, v);
        lua_replace(L, i);
    }
    return lua_gettop(L) - 3;
}

/* Where what enters varies over more than it did outside, the list at `index` becomes one of what
 * its tensors are here: what is typed like them is what they come in as. */
static void enter_all(lua_State *L, Host *h, int index) {
    const Trace *t = h->trace;
    bool varied_here = false;
    for (int i = 0; i < t->frame.n; i++) varied_here = varied_here || t->frame.at[i].vary;
    if (!varied_here) return;
    int n = (int)lua_rawlen(L, index);
    lua_createtable(L, n, 0);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, index, i);
        value_push_traced(L, h, trace_value(L, h, lua_gettop(L)));
        lua_rawseti(L, -3, i);
        lua_pop(L, 1);
    }
    lua_replace(L, index);
}

/* trace_region(fn, like [, nslice [, steer]]): calls fn with a tracer for each tensor of the list
 * `like`, of its type (the last nslice: of its slices along dim 1), in a fresh region of the trace
 * under way; fn returns tensors. Returns the region's number, the list of outer tensors that it met
 * (the parameters behind those of `like`), and the list of its results. What it meets varies over
 * what the tensor `steer` varies over, too. After an error the trace stands where it stood. */
static int trace_region(lua_State *L) {
    Host *h = state_of(L);
    Trace *t = trace_of(L, h, "trace_region");
    arg_check_type(L, 2, LUA_TTABLE, "trace_region");
    lua_settop(L, 4);
    uint32_t vary = lua_isnil(L, 4) ? 0 : mode_of(value_type(h, value_tensor(L, h, 4))).vary;
    lua_settop(L, 3);
    enter_all(L, h, 2);
    int32_t outer = t->build.region, depth = h->depth;
    Build at = t->build;
    int32_t region = build_region(&at);
    if (!region || !VEC_PUSH(&t->arena, &t->frame, (Frame){.region = region, .vary = vary}))
        state_check(L, h, err_nomem(&h->cx, "a trace"));
    t->build.region = region;
    lua_pushcfunction(L, region_body);
    lua_insert(L, 1);
    int status = wrap_pcall(L, 3);
    t->build.region = outer;
    Frame f = t->frame.at[--t->frame.n];
    if (status != LUA_OK) {
        h->depth = depth;
        return lua_error(L);
    }
    int n = lua_gettop(L);
    lua_createtable(L, n, 0);
    lua_insert(L, 1);
    for (int i = n; i >= 1; i--) lua_rawseti(L, 1, i);
    lua_pushinteger(L, region);
    lua_createtable(L, f.outer.n, 0);
    for (int i = 0; i < f.outer.n; i++) {
        value_push_traced(L, h, f.outer.at[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushvalue(L, 1);
    return 3;
}

void trace_open_region(lua_State *L) {
    static const luaL_Reg fns[] = {{"trace_region", trace_region}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
