#include "lua/value/value.h"
#include "lua/state/usage.h"

#include "ir/explicit.h"

#include <math.h>
#include <string.h>

/* ---- tensors ---- */

static const char tensor_key; /* its address is the registry key of the metatable */

LuaTensor *value_new_tensor(lua_State *L) {
    LuaTensor *u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = (LuaTensor){.t = NULL};
    lua_rawgetp(L, LUA_REGISTRYINDEX, &tensor_key);
    lua_setmetatable(L, -2);
    return u;
}

LuaTensor *value_push_fresh(lua_State *L, Host *h, const Type *type, bool planned) {
    LuaTensor *u = value_new_tensor(L);
    Tensor *(*make)(Ctx *, const Type *) = planned && h->rt.fake ? tensor_new : tensor_alloc;
    state_collect_if_needed(L, h, 1);
    if (type) u->t = make(&h->cx, type);
    if (type && !u->t) {
        lua_gc(L, LUA_GCCOLLECT);
        u->t = make(&h->cx, type);
    }
    if (!u->t) state_check(L, h, err_nomem(&h->cx, "a tensor"));
    h->used = true;
    return u;
}

char *value_push_room(lua_State *L, const Tensor *t, int32_t slot) {
    char *at = tensor_host_data(t, slot);
    if (!at) return lua_newuserdatauv(L, tensor_shard_bytes(t) + 1, 0);
    lua_pushnil(L);
    return at;
}

void value_push_traced(lua_State *L, Host *h, Val v) {
    LuaTensor *u = value_new_tensor(L);
    u->serial = h->trace->serial;
    u->v = v;
}

/* The userdata at `index` if its metatable is this one. */
static void *udata_with(lua_State *L, int index, const void *meta) {
    void *u = lua_touserdata(L, index);
    if (!u || !lua_getmetatable(L, index)) return NULL;
    bool same = lua_topointer(L, -1) == meta;
    lua_pop(L, 1);
    return same ? u : NULL;
}

LuaTensor *value_handle(lua_State *L, const Host *h, int index) {
    return udata_with(L, index, h->tensor_meta);
}

LuaBox *value_box(lua_State *L, const Host *h, int index) {
    return udata_with(L, index, h->box_meta);
}

bool value_is_tensor(lua_State *L, const Host *h, int index) {
    return value_handle(L, h, index) || value_box(L, h, index);
}

void value_put_in_box(lua_State *L, int index) {
    LuaBox *b = lua_touserdata(L, index);
    b->held = lua_touserdata(L, -1);
    lua_setiuservalue(L, index, 1);
}

LuaTensor *value_tensor(lua_State *L, Host *h, int index) {
    LuaTensor *u = value_handle(L, h, index);
    if (!u) {
        const LuaBox *b = value_box(L, h, index);
        if (!b) state_error(L, E_VALUE, "expected a tensor, got %s", arg_type_name(L, index));
        u = b->held;
        if (!u) state_error(L, E_STATE, "the Param is empty");
    }
    if (u->t) {
        if (tensor_is_deleted(u->t))
            state_error(L, E_DELETED, "this tensor has been deleted: %s", u->t->deleted_by);
    } else if (!h->trace || h->trace->serial != u->serial) {
        state_error(L, E_TRACED,
                    "a traced tensor was kept after its trace; return it from the jitted function "
                    "instead");
    }
    return u;
}

Tensor *value_concrete(lua_State *L, Host *h, int index, const char *what) {
    LuaTensor *u = value_tensor(L, h, index);
    if (!u->t)
        state_error(L, E_TRACED,
                    "%s needs the value of a traced tensor, which is only known when the jitted "
                    "function runs; return the tensor, or move this out of the function",
                    what);
    if (tensor_is_elsewhere(u->t)) {
        Str *s = state_text(h);
        type_print(u->t->type, s);
        str_put(s, " on ");
        mesh_print(u->t->type->layout->mesh, s);
        state_error(L, E_MESH,
                    "%s: %s has nothing in this process (%d); read it in one that has a part of it",
                    what, str_of(s), (int)h->rt.ranks.rank);
    }
    if (!tensor_has_data(u->t))
        state_error(L, E_MESH,
                    h->rt.fake ? "%s needs values, but this was planned and not run: the devices "
                                 "are fake; run with --devices=N, or on GPUs"
                               : "%s needs values, but a ShapeDtypeStruct has none",
                    what);
    const Layout *l = u->t->type->layout;
    if (l && mesh_product(l->mesh, l->unreduced) > 1) {
        mesh_print_axes(l->mesh, l->unreduced, state_text(h));
        state_error(L, E_SPEC,
                    "%s needs the value of a tensor that is unreduced over '%s': each device has a "
                    "part of it; reshard it first",
                    what, str_of(&h->text));
    }
    return u->t;
}

Tensor *value_whole(lua_State *L, Host *h, int index, const char *what) {
    Tensor *t = value_concrete(L, h, index, what);
    if (tensor_is_whole(t)) return t;
    Str *s = state_text(h);
    type_print(t->type, s);
    state_error(L, E_VALUE,
                "%s: %s lies in other processes, too; ml.all_gather_to_host(x) brings it here",
                what, str_of(s));
}

/* A method that is not there. Upvalue: the type's name. */
static int unknown_method(lua_State *L) {
    return usage_unknown(L, lua_tostring(L, lua_upvalueindex(1)));
}

void value_add_methods(lua_State *L, const char *name, const luaL_Reg *methods) {
    for (const luaL_Reg *m = methods; m && m->name; m++) {
        lua_pushfstring(L, "%s:%s", arg_short_name(name), m->name);
        usage_push_checked(L, m->func, lua_tostring(L, -1));
        lua_setfield(L, -3, m->name);
        lua_pop(L, 1);
    }
}

void value_new_type(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods,
                    lua_CFunction index) {
    Host *h = state_of(L);
    luaL_newmetatable(L, name);
    lua_pushstring(L, arg_short_name(name));
    lua_setfield(L, -2, "type");
    if (strcmp(name, VALUE_BOX) == 0) h->box_meta = lua_topointer(L, -1);
    if (strcmp(name, VALUE_TENSOR) == 0) {
        h->tensor_meta = lua_topointer(L, -1);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &tensor_key);
    }
    luaL_setfuncs(L, meta, 0);
    lua_pushliteral(L, "protected");
    lua_setfield(L, -2, "__metatable");
    lua_newtable(L);
    if (methods) value_add_methods(L, name, methods);
    if (!index) { /* the table itself is __index */
        lua_createtable(L, 0, 1);
        lua_pushstring(L, arg_short_name(name));
        lua_pushcclosure(L, unknown_method, 1);
        lua_setfield(L, -2, "__index");
        lua_setmetatable(L, -2);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "methods");
    lua_newtable(L);
    lua_setfield(L, -3, "fields");
    if (index) lua_pushcclosure(L, index, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

bool value_push_field(lua_State *L) {
    if (luaL_getmetafield(L, 1, "fields") == LUA_TNIL) return false;
    lua_pushvalue(L, 2);
    if (lua_rawget(L, -2) == LUA_TNIL) return false;
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return true;
}

const Type *value_type(Host *h, const LuaTensor *u) {
    return u->t ? u->t->type : graph_type(h->trace->graph, u->v);
}

const Type *value_seen_type(lua_State *L, Host *h, const LuaTensor *u) {
    const Type *t = value_type(h, u);
    const Mesh *m = u->t ? NULL : h->trace->graph->mesh;
    if (!mesh_axes_of(m, AXIS_EXPLICIT) && !(m && h->trace->build.flipped)) return t;
    uint32_t axes = explicit_axes(&h->trace->build) & explicit_axes_of(m, t->layout);
    Layout l;
    explicit_view(t, m, axes, &l);
    if (t->layout) {
        l.manual = t->layout->manual;
        l.vary = t->layout->vary;
        l.unreduced |= t->layout->unreduced & l.manual;
        l.reduced |= t->layout->reduced & l.manual;
    }
    const Layout *layout = layout_of(&h->cx, &l);
    t = layout ? type_with_layout(&h->cx, t, layout) : NULL;
    if (!t) state_check(L, h, err_nomem(&h->cx, "a type"));
    return t;
}

/* ---- meshes, specs, shardings ---- */

_Noreturn void value_two_meshes(lua_State *L, const char *what, const Mesh *its, const Mesh *rest) {
    Str *s = state_text(state_of(L));
    mesh_print(its, s);
    str_put(s, ", the rest on ");
    mesh_print(rest, s);
    state_error(L, E_MESH, "%s is on %s; one call has one mesh: move one with device_put before it",
                what, str_of(s));
}

void value_use_mesh(lua_State *L, Host *h, const Mesh *m, const char *what) {
    Graph *g = h->trace->graph;
    if (g->mesh && g->mesh != m) value_two_meshes(L, what, m, g->mesh);
    g->mesh = m;
}

void value_push_mesh(lua_State *L, const Mesh *m) {
    const Mesh **u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = m;
    luaL_setmetatable(L, VALUE_MESH);
}
const Mesh *value_mesh(lua_State *L, int index) {
    const Mesh *m = *(const Mesh **)value_udata(L, index, VALUE_MESH);
    return value_mesh_now(state_of(L), m);
}
void value_push_spec(lua_State *L, const Spec *s) {
    const Spec **u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = s;
    luaL_setmetatable(L, VALUE_SPEC);
}
const Spec *value_spec(lua_State *L, int index) {
    return *(const Spec **)value_udata(L, index, VALUE_SPEC);
}
void value_push_sharding(lua_State *L, const LuaSharding *s) {
    LuaSharding *u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = *s;
    luaL_setmetatable(L, VALUE_SHARDING);
}

static _Noreturn void unknown_axis(lua_State *L, Host *h, const char *who, const Mesh *m,
                                   const char *name) {
    const char *near = NULL;
    int most = (int)strlen(name) / 2;
    for (int i = 0; i < m->naxes; i++)
        if (str_distance(name, m->name[i]) <= most) {
            near = m->name[i];
            most = str_distance(name, near) - 1;
        }
    Str *s = state_text(h);
    mesh_print(m, s);
    if (near) str_fmt(s, "; did you mean '%s'?", near);
    state_error(L, E_SPEC, "%s: axis '%s' is not an axis of %s", who, name, str_of(s));
}

/* Only an explicit axis can be unreduced or reduced: the types know no other. */
static void check_set(lua_State *L, Host *h, const char *who, const Mesh *m, const char *what,
                      const SpecEntry *set) {
    for (int k = 0; k < set->n; k++) {
        int axis = mesh_axis(m, set->axis[k]);
        if (axis < 0) unknown_axis(L, h, who, m, set->axis[k]);
        if (m->type[axis] != AXIS_EXPLICIT)
            state_error(L, E_SPEC,
                        "%s: axis '%s' is %s, but is not explicit in the mesh; make it so: "
                        "axis_types = {%s = \"explicit\"}",
                        who, set->axis[k], what, set->axis[k]);
    }
}

void value_check_spec(lua_State *L, Host *h, const char *who, const Mesh *m, const Spec *spec) {
    uint32_t used = 0;
    for (int d = 0; d < spec->n; d++)
        for (int k = 0; k < spec->entry[d].n; k++) {
            const char *name = spec->entry[d].axis[k];
            int axis = mesh_axis(m, name);
            if (axis < 0) unknown_axis(L, h, who, m, name);
            if (used >> axis & 1)
                state_error(L, E_SPEC,
                            "%s: duplicate entries for axis '%s'; an axis splits one dim of a "
                            "tensor",
                            who, name);
            used |= 1u << axis;
        }
    check_set(L, h, who, m, "unreduced", &spec->unreduced);
    check_set(L, h, who, m, "reduced", &spec->reduced);
}

LuaSharding value_sharding(lua_State *L, Host *h, int index) {
    LuaSharding *u = luaL_testudata(L, index, VALUE_SHARDING);
    if (u) return (LuaSharding){value_mesh_now(h, u->mesh), u->spec, u->device};
    if (!luaL_testudata(L, index, VALUE_SPEC))
        state_error(L, E_SPEC, "expected a NamedSharding or a P, got %s", arg_type_name(L, index));
    if (!h->mesh)
        state_error(L, E_MESH,
                    "a bare P requires a mesh in context; use NamedSharding(mesh, P(...)), or call "
                    "this inside mesh:with(rules, fn)");
    const Spec *spec = value_spec(L, index);
    value_check_spec(L, h, "P", h->mesh, spec);
    return (LuaSharding){h->mesh, spec, 0};
}

const Layout *value_layout(lua_State *L, Host *h, const LuaSharding *s, const Dims *dims,
                           const char *what) {
    if (!s->mesh) return NULL;
    Layout l;
    state_check(L, h,
                layout_from_spec(&h->cx, value_mesh_now(h, s->mesh), s->spec, dims, what, &l));
    const Layout *interned = layout_of(&h->cx, &l);
    if (!interned) state_check(L, h, err_nomem(&h->cx, "a layout"));
    return interned;
}

const Layout *value_layout_at(lua_State *L, Host *h, int index, const Dims *dims,
                              const char *what) {
    if (lua_isnoneornil(L, index)) return NULL;
    LuaSharding s = value_sharding(L, h, index);
    return value_layout(L, h, &s, dims, what);
}

const Type *value_type_now(lua_State *L, Host *h, const Type *t, const char *what) {
    if (!t->layout || t->layout->mesh != h->mesh_from) return t;
    LuaSharding s = {h->mesh_to, layout_spec(&h->cx, t->layout, &t->dims), 0};
    if (!s.spec) state_check(L, h, err_nomem(&h->cx, "a P"));
    const Layout *l = value_layout(L, h, &s, &t->dims, what);
    t = type_with_layout(&h->cx, t, l);
    if (!t) state_check(L, h, err_nomem(&h->cx, "a type"));
    return t;
}

/* ---- plain values ---- */

lua_Integer value_held(lua_State *L, int index, DType dtype) {
    int whole;
    lua_Integer i = lua_tointegerx(L, index, &whole);
    if (whole && (double)i >= dtype_lowest(dtype) && (double)i <= dtype_highest(dtype)) return i;
    double x = lua_tonumber(L, index);
    if (dtype == DT_U64 && floor(x) == x && x >= 0x1p63 && x < 0x1p64)
        return (lua_Integer)(uint64_t)x;
    if (whole)
        state_error(L, E_VALUE, "%lld is out of range for %s", (long long)i, dtype_name(dtype));
    state_error(L, E_VALUE,
                floor(x) == x ? "%.17g is out of range for %s"
                              : "%.17g is not a whole number, as %s needs",
                x, dtype_name(dtype));
}

void *value_udata(lua_State *L, int index, const char *type) {
    void *u = luaL_testudata(L, index, type);
    if (!u)
        state_error(L, E_VALUE, "expected a %s, got %s", type + strlen("meshlua."),
                    arg_type_name(L, index));
    return u;
}

DType value_dtype(lua_State *L, int index) {
    const char *name = arg_string(L, index, NULL, "dtype");
    int d = dtype_of(name);
    if (d >= 0) return (DType)d;
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (d = 0; d < DT_COUNT; d++) {
        if (d) luaL_addstring(&b, ", ");
        luaL_addstring(&b, dtype_name((DType)d));
    }
    luaL_pushresult(&b);
    state_error(L, E_DTYPE, "unknown dtype '%s'; there are %s", name, lua_tostring(L, -1));
}

Dims value_dims(lua_State *L, int index, int add, const char *what) {
    Dims d = {0};
    if (!lua_istable(L, index))
        state_error(L, E_VALUE, "%s: expected a list of whole numbers, got %s", what,
                    arg_type_name(L, index));
    lua_Unsigned n = lua_rawlen(L, index);
    if (n > MAX_RANK)
        state_error(L, E_SHAPE, "%s: %lld entries; tensors have at most %d dims", what,
                    (long long)n, MAX_RANK);
    for (lua_Unsigned i = 1; i <= n; i++) {
        int whole;
        lua_rawgeti(L, index, (lua_Integer)i);
        lua_Integer x = lua_tointegerx(L, -1, &whole);
        if (!whole || lua_type(L, -1) != LUA_TNUMBER)
            state_error(L, E_VALUE, "%s: entry %d is not a whole number", what, (int)i);
        if (x < -DIMS_MOST || x > DIMS_MOST)
            state_error(L, E_VALUE, "%s: entry %d is %lld; no tensor is that large", what, (int)i,
                        (long long)x);
        lua_pop(L, 1);
        dims_push(&d, x + add);
    }
    return d;
}

void value_push_axes(lua_State *L, const Mesh *m, uint32_t mask) {
    lua_createtable(L, m ? m->naxes : 0, 0);
    for (int i = 0, n = 0; m && i < m->naxes; i++) {
        if (!(mask >> i & 1)) continue;
        lua_pushstring(L, m->name[i]);
        lua_rawseti(L, -2, ++n);
    }
}

void value_push_ints(lua_State *L, const int32_t *list, int n) {
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushinteger(L, list ? list[i] : 0);
        lua_rawseti(L, -2, i + 1);
    }
}

void value_push_dims(lua_State *L, const Dims *d, int add) {
    lua_createtable(L, d->rank, 0);
    for (int i = 0; i < d->rank; i++) {
        lua_pushinteger(L, d->at[i] + add);
        lua_rawseti(L, -2, i + 1);
    }
}

void value_set_number(lua_State *L, const char *name, double x) {
    lua_pushnumber(L, x);
    lua_setfield(L, -2, name);
}

void value_set_integer(lua_State *L, const char *name, lua_Integer x) {
    lua_pushinteger(L, x);
    lua_setfield(L, -2, name);
}

void value_set_string(lua_State *L, const char *name, const char *s) {
    lua_pushstring(L, s);
    lua_setfield(L, -2, name);
}
