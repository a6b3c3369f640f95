/* mesh.c - Mesh, NamedSharding. */
#include "lua/lib/lib.h"
#include "lua/state/usage.h"
#include "lua/value/value.h"

#include "run/runtime/hosts.h"

#include <string.h>

/* ---- Mesh ---- */

static uint8_t read_axis_type(lua_State *L, const char *axis) {
    const char *word = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
    if (word && strcmp(word, "auto") == 0) return AXIS_AUTO;
    if (word && strcmp(word, "explicit") == 0) return AXIS_EXPLICIT;
    if (word && strcmp(word, "manual") == 0)
        state_error(L, E_MESH,
                    "mesh: axis '%s' is manual; axes become manual inside ml.shard_map only", axis);
    state_error(L, E_MESH, "mesh: the type of axis '%s' is %s; there are \"auto\" and \"explicit\"",
                axis, word ? word : arg_type_name(L, -1));
}

/* Of several processes: as many were started as the mesh is not made for. */
static _Noreturn void raise_size(lua_State *L, const Host *h, long long size, int ndevices) {
    const Runtime *rt = &h->rt;
    if (rt->ranks.world > 1 && ndevices == runtime_device_count(rt))
        state_error(L, E_RANKS,
                    "mesh: the sizes multiply to %lld, but there are %d devices, %d in each of %d "
                    "processes; change the sizes, --devices=N or the number of processes, or pass "
                    "the devices to use",
                    size, ndevices, (int)rt->ndevices, (int)rt->ranks.world);
    state_error(L, E_MESH,
                "mesh: the sizes multiply to %lld, but there %s %d device%s; change the sizes, "
                "ask for devices with --devices=%lld, or pass the devices to use",
                size, ndevices == 1 ? "is" : "are", ndevices, str_s(ndevices), size);
}

/* The axes of mesh_new's lists at 1 (names), 2 (sizes) and 4 (types, or nil). */
typedef struct Axes {
    int n;
    const char *name[MAX_AXES]; /* the table keeps them */
    int32_t size[MAX_AXES];
    uint8_t type[MAX_AXES];
} Axes;

static Axes read_axes(lua_State *L) {
    Axes axes = {0};
    lua_Unsigned n = lua_rawlen(L, 1);
    if (n > MAX_AXES) state_error(L, E_MESH, "mesh: %d axes; at most %d", (int)n, MAX_AXES);
    for (axes.n = 0; axes.n < (int)n; axes.n++) {
        int i = axes.n;
        if (lua_rawgeti(L, 1, i + 1) != LUA_TSTRING)
            state_error(L, E_MESH, "mesh: the name of axis %d is not a string", i + 1);
        axes.name[i] = lua_tostring(L, -1);
        lua_rawgeti(L, 2, i + 1);
        axes.size[i] = arg_int32(L, -1, "mesh: size");
        lua_pop(L, 2);
    }
    return axes;
}

static void read_axis_types(lua_State *L, Axes *axes) {
    for (int i = 0; i < axes->n && lua_istable(L, 4); i++) {
        lua_rawgeti(L, 4, i + 1);
        axes->type[i] = read_axis_type(L, axes->name[i]);
        lua_pop(L, 1);
    }
}

/* The list of device ids at 3, in a userdata that is pushed: one for each place of the axes. */
static int32_t *read_devices(lua_State *L, const Host *h, const Axes *axes) {
    int n = (int)lua_rawlen(L, 3);
    int32_t *ids = lua_newuserdatauv(L, sizeof *ids * (size_t)(n + 1), 0);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 3, i + 1);
        ids[i] = arg_int32(L, -1, "mesh: device");
        lua_pop(L, 1);
        if (ids[i] < 0 || ids[i] >= runtime_device_count(&h->rt))
            state_error(L, E_MESH, "mesh: there is no device %d; there are devices 0..%d",
                        (int)ids[i], (int)runtime_device_count(&h->rt) - 1);
    }
    int64_t product = 1;
    for (int i = 0; i < axes->n && product <= INT32_MAX; i++)
        product *= axes->size[i] > 0 ? axes->size[i] : 1;
    if (product != n) raise_size(L, h, (long long)product, n);
    return ids;
}

/* mesh_new(names, sizes, device ids (nil: abstract), list of axis types or nil) */
static int mesh_new(lua_State *L) {
    Host *h = state_of(L);
    const Mesh *m;
    lua_settop(L, 4);
    arg_check_type(L, 1, LUA_TTABLE, "mesh: names");
    arg_check_type(L, 2, LUA_TTABLE, "mesh: sizes");
    bool abstract = lua_isnil(L, 3);
    if (!abstract) arg_check_type(L, 3, LUA_TTABLE, "mesh: devices");
    Axes axes = read_axes(L);
    const int32_t *ids = abstract ? NULL : read_devices(L, h, &axes);
    read_axis_types(L, &axes);
    state_check(L, h, mesh_of(&h->cx, axes.n, axes.name, axes.size, axes.type, ids, &m));
    h->used = h->used || !abstract;
    value_push_mesh(L, m);
    return 1;
}

/* "{{0,1},{2,3}}": where the devices stand. */
static void print_devices(const Mesh *m, int axis, int32_t first, Str *s) {
    int32_t below = 1;
    for (int i = axis + 1; i < m->naxes; i++) below *= m->size[i];
    for (int32_t i = 0; i < m->size[axis]; i++) {
        str_put(s, i ? "," : "{");
        if (axis == m->naxes - 1)
            str_fmt(s, "%d", (int)m->device[first + i]);
        else
            print_devices(m, axis + 1, first + i * below, s);
    }
    str_put(s, "}");
}

/* "; data,model go between hosts; with data as the last axis it would not": the way out where
 * nothing else would have to. */
static void print_hosts(const Runtime *rt, const Mesh *m, uint32_t now, Str *s) {
    str_put(s, "; ");
    mesh_print_axes(m, now, s);
    str_put(s, now & (now - 1) ? " go between hosts" : " goes between hosts");
    for (int i = 0; i < m->naxes; i++) {
        uint32_t then = hosts_crossed_with_last(rt, m, i);
        if (!(now >> i & 1) || then >> i & 1 || then & ~now) continue;
        str_fmt(s, "; with %s as the last axis it would not", m->name[i]);
    }
}

/* "Mesh(data=4, model=2) of devices {{0,1},{2,3},{4,5},{6,7}}"; of many devices visualize_mesh
 * tells where they are. */
static int mesh_tostring(lua_State *L) {
    enum { SHOW_DEVICES = 64 };
    Host *h = state_of(L);
    const Mesh *m = value_mesh(L, 1);
    Str *s = state_text(h);
    uint32_t between_hosts = hosts_crossed(&h->rt, m);
    mesh_print(m, s);
    if (m->naxes && m->ndevices <= SHOW_DEVICES && !m->abstract) {
        str_put(s, " of devices ");
        print_devices(m, 0, 0, s);
    } else if (between_hosts) {
        str_put(s, " of ");
        mesh_print_devices(m, s);
    }
    if (between_hosts) print_hosts(&h->rt, m, between_hosts, s);
    return state_push_text(L, h);
}

static int mesh_eq(lua_State *L) {
    const Mesh **a = luaL_testudata(L, 1, VALUE_MESH), **b = luaL_testudata(L, 2, VALUE_MESH);
    lua_pushboolean(L, a && b && *a == *b);
    return 1;
}

static void push_nested_devices(lua_State *L, const Mesh *m, int axis, int32_t first) {
    int32_t below = 1;
    for (int i = axis + 1; i < m->naxes; i++) below *= m->size[i];
    lua_createtable(L, m->size[axis], 0);
    for (int32_t i = 0; i < m->size[axis]; i++) {
        if (axis == m->naxes - 1)
            lua_pushinteger(L, m->device[first + i]);
        else
            push_nested_devices(L, m, axis + 1, first + i * below);
        lua_rawseti(L, -2, i + 1);
    }
}

static const char *const axis_type[] = {"auto", "explicit", "manual"};

/* axes_between_hosts(mesh [, axis]): the axes that go from one host to another; those that would
 * with that axis as the last. */
static int axes_between_hosts(lua_State *L) {
    Host *h = state_of(L);
    const Mesh *m = value_mesh(L, 1);
    if (lua_isnoneornil(L, 2)) {
        value_push_axes(L, m, hosts_crossed(&h->rt, m));
        return 1;
    }
    const char *name = arg_string(L, 2, NULL, "axes_between_hosts");
    int axis = mesh_axis(m, name);
    if (axis < 0) state_error(L, E_MESH, "axes_between_hosts: the mesh has no axis '%s'", name);
    value_push_axes(L, m, hosts_crossed_with_last(&h->rt, m, axis));
    return 1;
}

/* ---- its fields ---- */

static void push_axis_names(lua_State *L, const Mesh *m) {
    value_push_axes(L, m, ~0u);
}
static void push_axis_types(lua_State *L, const Mesh *m) {
    lua_createtable(L, m->naxes, 0);
    for (int i = 0; i < m->naxes; i++) {
        lua_pushstring(L, axis_type[m->type[i]]);
        lua_rawseti(L, -2, i + 1);
    }
}
static void push_auto_axes(lua_State *L, const Mesh *m) {
    value_push_axes(L, m, mesh_axes_of(m, AXIS_AUTO));
}
static void push_explicit_axes(lua_State *L, const Mesh *m) {
    value_push_axes(L, m, mesh_axes_of(m, AXIS_EXPLICIT));
}
static void push_manual_axes(lua_State *L, const Mesh *m) {
    value_push_axes(L, m, mesh_axes_of(m, AXIS_MANUAL));
}
static void push_axis_sizes(lua_State *L, const Mesh *m) {
    value_push_ints(L, m->size, m->naxes);
}
static void push_device_ids(lua_State *L, const Mesh *m) {
    value_push_ints(L, m->device, m->ndevices);
}
static void push_shape(lua_State *L, const Mesh *m) {
    lua_createtable(L, 0, m->naxes);
    for (int i = 0; i < m->naxes; i++) {
        lua_pushinteger(L, m->size[i]);
        lua_setfield(L, -2, m->name[i]);
    }
}
static void push_size(lua_State *L, const Mesh *m) {
    lua_pushinteger(L, m->ndevices);
}
static void push_is_abstract(lua_State *L, const Mesh *m) {
    lua_pushboolean(L, m->abstract);
}
static void push_devices(lua_State *L, const Mesh *m) {
    if (m->naxes)
        push_nested_devices(L, m, 0, 0);
    else
        lua_pushinteger(L, m->device[0]);
}

typedef struct MeshField {
    const char *name;
    void (*push)(lua_State *L, const Mesh *m);
    bool of_devices; /* an AbstractMesh has none */
} MeshField;

static const MeshField mesh_fields[] = {
    {"size", push_size, false},
    {"axis_names", push_axis_names, false},
    {"axis_types", push_axis_types, false},
    {"auto_axes", push_auto_axes, false},
    {"explicit_axes", push_explicit_axes, false},
    {"manual_axes", push_manual_axes, false},
    {"axis_sizes", push_axis_sizes, false},
    {"shape", push_shape, false}, /* name -> size */
    {"is_abstract", push_is_abstract, false},
    {"devices", push_devices, true},       /* ids, nested */
    {"device_ids", push_device_ids, true}, /* the same, flat */
    {NULL, NULL, false},
};

/* A field of the table; the rest comes from the methods table. */
static int mesh_index(lua_State *L) {
    const Mesh *m = value_mesh(L, 1);
    const char *k = arg_string(L, 2, NULL, "mesh: field");
    for (const MeshField *f = mesh_fields; f->name; f++) {
        if (strcmp(k, f->name) != 0) continue;
        if (f->of_devices && m->abstract)
            state_error(L, E_MESH,
                        "an AbstractMesh has no %s; make_mesh puts one of its shape on devices", k);
        f->push(L, m);
        return 1;
    }
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNIL && !value_push_field(L))
        return usage_unknown(L, "Mesh");
    return 1;
}

/* ---- NamedSharding ---- */

/* distance(a, b) */
static int push_distance(lua_State *L) {
    const char *a = arg_string(L, 1, NULL, "distance"), *b = arg_string(L, 2, NULL, "distance");
    lua_pushinteger(L, str_distance(a, b));
    return 1;
}

static int sharding_new(lua_State *L) {
    Host *h = state_of(L);
    LuaSharding s = {value_mesh(L, 1), NULL, 0};
    if (!luaL_testudata(L, 2, VALUE_SPEC))
        state_error(L, E_SPEC, "NamedSharding: expected a P, got %s%s", arg_type_name(L, 2),
                    lua_isstring(L, 2) ? ": P(\"axis\")" : "");
    s.spec = value_spec(L, 2);
    value_check_spec(L, h, "NamedSharding", s.mesh, s.spec);
    bool traced = h->trace && h->trace->graph->mesh == s.mesh;
    uint32_t autos = mesh_axes_of(s.mesh, AXIS_AUTO) ^ (traced ? h->trace->build.flipped : 0u);
    for (int d = 0; d < s.spec->n; d++)
        if (s.spec->entry[d].kind == SPEC_UNCONSTRAINED && s.mesh->naxes && !autos)
            state_error(L, E_SPEC,
                        "NamedSharding: entry %d is P.unconstrained, which leaves the dim to "
                        "propagation, but no axis of the mesh is auto; name the axes of the dim, "
                        "or nil",
                        d + 1);
    value_push_sharding(L, &s);
    return 1;
}

static int sharding_tostring(lua_State *L) {
    const LuaSharding *u = value_udata(L, 1, VALUE_SHARDING);
    Host *h = state_of(L);
    Str *s = state_text(h);
    if (!u->mesh) {
        lua_pushfstring(L, "SingleDeviceSharding(CPU %d)", (int)u->device);
        return 1;
    }
    str_put(s, "NamedSharding(");
    mesh_print(u->mesh, s);
    str_put(s, ", ");
    spec_print(u->spec, s);
    str_put(s, ")");
    return state_push_text(L, h);
}

/* An entry without what splits nothing: axes of size 1, and the end of a shorter spec. */
static SpecEntry splitting(const Mesh *m, const Spec *s, int d) {
    SpecEntry out = {0};
    if (d >= s->n) return out;
    out.kind = s->entry[d].kind == SPEC_UNCONSTRAINED ? SPEC_UNCONSTRAINED : SPEC_NONE;
    for (int k = 0; k < s->entry[d].n; k++) {
        int axis = mesh_axis(m, s->entry[d].axis[k]);
        if (axis < 0 || m->size[axis] > 1) out.axis[out.n++] = s->entry[d].axis[k];
    }
    return out;
}

/* Of any size: parts are no sum, and what is reduced has a cotangent of parts. Both are sorted. */
static bool same_set(const SpecEntry *a, const SpecEntry *b) {
    return a->n == b->n && memcmp(a->axis, b->axis, sizeof *a->axis * (size_t)a->n) == 0;
}

/* P("x") and P("x", nil) place alike. */
static bool same_placing(const Mesh *m, const Spec *a, const Spec *b) {
    if (a == b || !a || !b) return a == b;
    if (a->unreduced_kind != b->unreduced_kind || !same_set(&a->unreduced, &b->unreduced) ||
        !same_set(&a->reduced, &b->reduced))
        return false;
    for (int d = 0; d < a->n || d < b->n; d++) {
        SpecEntry x = splitting(m, a, d), y = splitting(m, b, d);
        if (x.kind != y.kind || x.n != y.n) return false;
        for (int k = 0; k < x.n; k++)
            if (x.axis[k] != y.axis[k]) return false;
    }
    return true;
}

static int sharding_eq(lua_State *L) {
    const LuaSharding *a = luaL_testudata(L, 1, VALUE_SHARDING),
                      *b = luaL_testudata(L, 2, VALUE_SHARDING);
    lua_pushboolean(L, a && b && a->mesh == b->mesh && same_placing(a->mesh, a->spec, b->spec) &&
                           a->device == b->device);
    return 1;
}

static int sharding_index(lua_State *L) {
    const LuaSharding *u = value_udata(L, 1, VALUE_SHARDING);
    const char *k = arg_string(L, 2, NULL, "sharding: field");
    bool is_mesh = strcmp(k, "mesh") == 0;
    if (is_mesh || strcmp(k, "spec") == 0) {
        if (!u->mesh)
            lua_pushnil(L);
        else if (is_mesh)
            value_push_mesh(L, u->mesh);
        else
            value_push_spec(L, u->spec);
    } else if (strcmp(k, "num_devices") == 0) {
        lua_pushinteger(L, u->mesh ? u->mesh->ndevices : 1);
    } else {
        lua_pushvalue(L, 2);
        if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNIL && !value_push_field(L))
            return usage_unknown(L, "NamedSharding");
    }
    return 1;
}

/* sharding:shard_shape(shape) */
static int sharding_shard_shape(lua_State *L) {
    Host *h = state_of(L);
    const LuaSharding *u = value_udata(L, 1, VALUE_SHARDING);
    Dims dims = value_dims(L, 2, 0, "shard_shape");
    const Layout *l = value_layout(L, h, u, &dims, "shard_shape");
    Dims local = layout_local(l, &dims);
    value_push_dims(L, &local, 0);
    return 1;
}

/* sharding:check(shape, what): raises if a tensor of that shape, called `what`, cannot have it. */
static int sharding_check(lua_State *L) {
    Host *h = state_of(L);
    const LuaSharding *u = value_udata(L, 1, VALUE_SHARDING);
    Dims dims = value_dims(L, 2, 0, "shape");
    value_layout(L, h, u, &dims, arg_string(L, 3, NULL, "check"));
    return 0;
}

/* bind_spec(P): with the mesh in context. */
static int bind_spec(lua_State *L) {
    LuaSharding s = value_sharding(L, state_of(L), 1);
    value_push_sharding(L, &s);
    return 1;
}

static int is_mesh(lua_State *L) {
    lua_pushboolean(L, luaL_testudata(L, 1, VALUE_MESH) != NULL);
    return 1;
}
static int is_sharding(lua_State *L) {
    lua_pushboolean(L, luaL_testudata(L, 1, VALUE_SHARDING) != NULL);
    return 1;
}

/* methods(type name): the table of its methods, for the library to add to. */
static int methods(lua_State *L) {
    luaL_getmetatable(L, arg_string(L, 1, NULL, "methods"));
    arg_check_type(L, -1, LUA_TTABLE, "methods: the type");
    lua_getfield(L, -1, "methods");
    return 1;
}

/* fields(type name): the table of its computed fields, name -> function of the object. */
static int fields(lua_State *L) {
    luaL_getmetatable(L, arg_string(L, 1, NULL, "fields"));
    arg_check_type(L, -1, LUA_TTABLE, "fields: the type");
    lua_getfield(L, -1, "fields");
    return 1;
}

void lib_open_mesh(lua_State *L) {
    static const luaL_Reg mesh_meta[] = {
        {"__tostring", mesh_tostring}, {"__eq", mesh_eq}, {NULL, NULL}};
    static const luaL_Reg sharding_meta[] = {
        {"__tostring", sharding_tostring}, {"__eq", sharding_eq}, {NULL, NULL}};
    static const luaL_Reg sharding_methods[] = {
        {"shard_shape", sharding_shard_shape}, {"check", sharding_check}, {NULL, NULL}};
    static const luaL_Reg fns[] = {{"mesh_new", mesh_new},
                                   {"NamedSharding", sharding_new},
                                   {"bind_spec", bind_spec},
                                   {"is_mesh", is_mesh},
                                   {"is_sharding", is_sharding},
                                   {"methods", methods},
                                   {"fields", fields},
                                   {"distance", push_distance},
                                   {"axes_between_hosts", axes_between_hosts},
                                   {NULL, NULL}};
    value_new_type(L, VALUE_MESH, mesh_meta, NULL, mesh_index);
    value_new_type(L, VALUE_SHARDING, sharding_meta, sharding_methods, sharding_index);
    luaL_setfuncs(L, fns, 0);
}
