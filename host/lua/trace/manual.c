/* manual.c - into manual mode and out of it, for lualib's shard_map. */
#include "lua/trace/trace.h"
#include "op/manual.h"

/* The mask of a list of axis names, which are the mesh's. */
static uint32_t read_axes(lua_State *L, int index, const Mesh *m, AxisList *list) {
    uint32_t mask = 0;
    index = lua_absindex(L, index);
    arg_check_type(L, index, LUA_TTABLE, "mesh axes");
    lua_Unsigned n = lua_rawlen(L, index);
    if (list) *list = (AxisList){0};
    for (lua_Unsigned i = 1; i <= n; i++) {
        lua_rawgeti(L, index, (lua_Integer)i);
        const char *name = arg_string(L, -1, NULL, "a mesh axis");
        int axis = mesh_axis(m, name);
        if (axis < 0) state_error(L, E_SPEC, "'%s' is not an axis of the mesh", name);
        if (mask >> axis & 1) state_error(L, E_SPEC, "mesh axis '%s' is given twice", name);
        lua_pop(L, 1);
        mask |= 1u << axis;
        if (list) axes_push(list, axes_whole(m, axis));
    }
    return mask;
}

AxisList trace_manual_axes(lua_State *L, Host *h, int index) {
    AxisList list;
    if (!h->trace || !h->trace->build.manual)
        state_error(L, E_STATE, "a collective outside shard_map; call it in its function");
    read_axes(L, index, h->trace->graph->mesh, &list);
    return list;
}

void trace_manual_check_spec(lua_State *L, Host *h, const Mesh *m, const Spec *s) {
    uint32_t manual = h->trace && h->trace->graph->mesh == m ? h->trace->build.manual : 0;
    for (int d = 0; manual && d < s->n; d++)
        for (int k = 0; k < s->entry[d].n; k++) {
            int axis = mesh_axis(m, s->entry[d].axis[k]);
            if (axis >= 0 && manual >> axis & 1)
                state_error(L, E_SPEC,
                            "constrain: mesh axis '%s' is manual here (inside shard_map): the "
                            "value is one device's block along it already; name other axes, or "
                            "use in_specs and out_specs",
                            s->entry[d].axis[k]);
        }
}

/* in_manual(mesh, axes, fn, ...): fn's results, with these axes manual, too, meanwhile. */
static int in_manual(lua_State *L) {
    Host *h = state_of(L);
    Trace *t = trace_of(L, h, "shard_map");
    const Mesh *mesh = value_mesh(L, 1);
    uint32_t axes = read_axes(L, 2, mesh, NULL), before = t->build.manual;
    arg_check_type(L, 3, LUA_TFUNCTION, "in_manual");
    value_use_mesh(L, h, mesh, "shard_map");
    uint64_t serial = t->serial;
    t->build.manual |= axes;
    int status = wrap_pcall(L, lua_gettop(L) - 3);
    if (h->trace && h->trace->serial == serial) h->trace->build.manual = before;
    if (status != LUA_OK) return lua_error(L);
    return lua_gettop(L) - 2;
}

/* manual(): the mesh and the axes that are manual here; nil where none are. */
static int manual(lua_State *L) {
    Host *h = state_of(L);
    if (!h->trace || !h->trace->build.manual) {
        lua_pushnil(L);
        return 1;
    }
    value_push_mesh(L, h->trace->graph->mesh);
    value_push_axes(L, h->trace->graph->mesh, h->trace->build.manual);
    return 2;
}

/* vary(x): the manual axes along which x may differ; and those along which it is unreduced or
 * reduced. */
static int vary(lua_State *L) {
    Host *h = state_of(L);
    const Type *t = value_type(h, value_tensor(L, h, 1));
    Mode m = mode_of(t);
    value_push_axes(L, t->layout ? t->layout->mesh : NULL, m.vary);
    value_push_axes(L, t->layout ? t->layout->mesh : NULL, m.unreduced | m.reduced);
    return 2;
}

/* The spec's layout; its dims divide where they are outside. */
static void layout_outside(lua_State *L, Host *h, const Mesh *m, const Spec *s, const Dims *inside,
                           Layout *out) {
    Dims dims = *inside;
    value_check_spec(L, h, "shard_map", m, s);
    for (int d = 0; d < s->n && d < dims.rank; d++)
        for (int k = 0; k < s->entry[d].n; k++)
            dims.at[d] *= m->size[mesh_axis(m, s->entry[d].axis[k])];
    state_check(L, h, layout_from_spec(&h->cx, m, s, &dims, "shard_map", out));
}

static int push_built(lua_State *L, Host *h, Build *at, Val v) {
    state_check(L, h, at->err);
    value_push_traced(L, h, v);
    return 1;
}

/* What manual_enter and manual_exit are called with. */
typedef struct Border {
    Host *h;
    Trace *t;
    const Mesh *mesh;
    uint32_t axes;
    Val v;
    const Dims *dims; /* of v */
    const Loc *loc;
    Build at; /* builds there: not to be moved */
} Border;

static void read_border(lua_State *L, Border *b) {
    b->h = state_of(L);
    b->t = trace_of(L, b->h, "shard_map");
    b->mesh = value_mesh(L, 2);
    value_use_mesh(L, b->h, b->mesh, "shard_map");
    b->axes = read_axes(L, 4, b->mesh, NULL);
    b->loc = where_loc(L, b->h);
    b->v = trace_value(L, b->h, 1);
    b->dims = &graph_type(b->t->graph, b->v)->dims;
    b->at = b->t->build;
    b->at.loc = &b->loc;
    b->at.nloc = b->loc ? 1 : 0;
}

/* manual_enter(x, mesh, P, axes): x's block where the axes are manual. */
static int push_enter(lua_State *L) {
    Border b;
    Layout l;
    read_border(L, &b);
    state_check(L, b.h,
                layout_from_spec(&b.h->cx, b.mesh, value_spec(L, 3), b.dims, "shard_map", &l));
    b.at.manual = mode_of(graph_type(b.t->graph, b.v)).manual | b.axes;
    return push_built(L, b.h, &b.at, manual_enter(&b.at, b.v, &l, b.axes));
}

/* manual_exit(x, mesh, P, axes): the whole of which x is one device's block. */
static int push_exit(lua_State *L) {
    Border b;
    Layout l;
    read_border(L, &b);
    layout_outside(L, b.h, b.mesh, value_spec(L, 3), b.dims, &l);
    b.at.manual |= b.axes;
    return push_built(L, b.h, &b.at, manual_exit(&b.at, b.v, &l, b.axes));
}

void trace_open_manual(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"in_manual", in_manual},     {"manual", manual},         {"vary", vary},
        {"manual_enter", push_enter}, {"manual_exit", push_exit}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
