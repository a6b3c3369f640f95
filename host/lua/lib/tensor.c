/* tensor.c - the Tensor userdata: what it is, its values, from Lua tables and back. */
#include "lua/lib/lib.h"
#include "lua/state/usage.h"
#include "lua/value/value.h"

#include "run/disk/convert.h"

#include <string.h>

/* ---- elements ---- */

static void push_element(lua_State *L, DType dtype, const char *p) {
    ConvertValue x = convert_get(dtype, p);
    if (dtype == DT_BOOL)
        lua_pushboolean(L, *p);
    else if (x.whole)
        lua_pushinteger(L, x.i);
    else
        lua_pushnumber(L, x.f);
}

/* Writes the number or boolean on top of the stack; raises where it does not fit. */
static void write_element(lua_State *L, DType dtype, char *p) {
    if (dtype == DT_BOOL) {
        *p = (char)(lua_isboolean(L, -1) ? lua_toboolean(L, -1) : arg_number(L, -1, "bool") != 0);
        return;
    }
    if (!lua_isnumber(L, -1) || lua_type(L, -1) == LUA_TSTRING)
        state_error(L, E_DTYPE, "expected a number for %s, got %s", dtype_name(dtype),
                    arg_type_name(L, -1));
    double x = lua_tonumber(L, -1);
    if (dtype == DT_F32) {
        float f = (float)x;
        memcpy(p, &f, 4);
        return;
    }
    if (dtype == DT_F64) {
        memcpy(p, &x, 8);
        return;
    }
    lua_Integer i = value_held(L, -1, dtype);
    memcpy(p, &i, (size_t)dtype_size(dtype)); /* the low bytes */
}

/* ---- from Lua ---- */

/* The shape of a nested list, from its first elements; whether all numbers are
 * whole, or booleans. */
typedef struct Shape {
    Dims dims;
    bool any, is_float, is_bool;
} Shape;

static void scan(lua_State *L, Shape *s, int depth) {
    luaL_checkstack(L, 4, "nested too deep");
    if (!lua_istable(L, -1)) {
        if (depth != s->dims.rank)
            state_error(L, E_SHAPE, "ragged: a number stands where a list of %lld was expected",
                        (long long)s->dims.at[depth]);
        bool boolean = lua_isboolean(L, -1);
        if (!boolean && lua_type(L, -1) != LUA_TNUMBER)
            state_error(L, E_VALUE, "tensor: expected numbers, got %s%s", arg_type_name(L, -1),
                        value_handle(L, state_of(L), -1)
                            ? "; ml.stack(list) makes one tensor of several"
                            : "");
        if (s->any && boolean != s->is_bool)
            state_error(L, E_DTYPE, "booleans and numbers are mixed");
        s->is_bool = boolean;
        if (!boolean && !lua_isinteger(L, -1)) s->is_float = true;
        s->any = true;
        return;
    }
    lua_Unsigned n = lua_rawlen(L, -1);
    if (depth == s->dims.rank) {
        if (s->any || depth == MAX_RANK)
            state_error(L, E_SHAPE, "ragged or too deeply nested list");
        dims_push(&s->dims, (int64_t)n);
    }
    if ((int64_t)n != s->dims.at[depth])
        state_error(L, E_SHAPE, "ragged: a list has %d entr%s, its neighbours %lld", (int)n,
                    n == 1 ? "y" : "ies", (long long)s->dims.at[depth]);
    for (lua_Unsigned i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i);
        scan(L, s, depth + 1);
        lua_pop(L, 1);
    }
}

static char *fill(lua_State *L, DType dtype, char *at) {
    if (!lua_istable(L, -1)) {
        dtype = dtype_is_narrow(dtype) ? DT_F32 : dtype;
        write_element(L, dtype, at);
        return at + dtype_size(dtype);
    }
    lua_Unsigned n = lua_rawlen(L, -1);
    for (lua_Unsigned i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i);
        at = fill(L, dtype, at);
        lua_pop(L, 1);
    }
    return at;
}

/* Pushes a fresh tensor on one device, its bytes still to be written. */
static Tensor *push_alloc(lua_State *L, Host *h, DType dtype, const Dims *dims) {
    return value_push_fresh(L, h, type_make(&h->cx, dtype, dims, NULL), false)->t;
}

/* tensor(numbers [, dtype]): a number or nested lists. Narrow floats come as float32. */
static int tensor_from_table(lua_State *L) {
    Host *h = state_of(L);
    Shape s = {.dims = {0}};
    lua_settop(L, 2);
    lua_pushvalue(L, 1);
    scan(L, &s, 0);
    lua_pop(L, 1);
    DType dtype = s.is_bool ? DT_BOOL : s.is_float || !s.any ? DT_F32 : DT_I32;
    if (!lua_isnil(L, 2)) dtype = value_dtype(L, 2);
    Tensor *t = push_alloc(L, h, dtype_is_narrow(dtype) ? DT_F32 : dtype, &s.dims);
    char *room = value_push_room(L, t, 0);
    lua_pushvalue(L, 1);
    fill(L, dtype, room);
    lua_pop(L, 1);
    state_check(L, h, tensor_write_shard(t, 0, room));
    lua_pop(L, 1);
    return 1;
}

/* from_string(bytes, dtype, shape): little-endian elements, row-major. */
static int tensor_from_string(lua_State *L) {
    Host *h = state_of(L);
    size_t n;
    const char *bytes = arg_string(L, 1, &n, "from_string");
    DType dtype = value_dtype(L, 2);
    Dims dims = value_dims(L, 3, 0, "shape");
    int64_t count = dims_count(&dims);
    if (count < 0 || (uint64_t)count * (uint64_t)dtype_size(dtype) != n)
        state_error(L, E_SHAPE, "%d byte%s for %lld element%s of %s", (int)n, str_s((int64_t)n),
                    (long long)count, str_s(count), dtype_name(dtype));
    state_check(L, h, tensor_write_shard(push_alloc(L, h, dtype, &dims), 0, bytes));
    return 1;
}

/* ---- to Lua ---- */

static int tensor_item(lua_State *L) {
    Host *h = state_of(L);
    Tensor *t = value_whole(L, h, 1, "item");
    char element[8];
    if (type_count(t->type) != 1)
        state_error(L, E_SHAPE, "item: the tensor has %lld elements, not one; x:totable() has all",
                    (long long)type_count(t->type));
    state_check(L, h, tensor_read(t, element));
    push_element(L, t->type->dtype, element);
    return 1;
}

/* A scalar, and the memory it lies in; NULL: the host has it. */
static Memory *far_scalar(lua_State *L, const char *what, Tensor **t) {
    *t = value_whole(L, state_of(L), 1, what);
    if (type_count((*t)->type) != 1 || !tensor_has_data(*t)) return NULL;
    return (*t)->shard[0].buffer->memory;
}

/* ask(t): of a scalar on a GPU, a number for `answer`; nil: its value is there. What the GPU is
 * given from here on `answer` does not wait for. */
static int tensor_ask(lua_State *L) {
    Tensor *t;
    int64_t number;
    Memory *m = far_scalar(L, "ask", &t);
    if (!m) return 0;
    state_check(L, state_of(L),
                m->ask(m, tensor_data(t, 0), (size_t)dtype_size(t->type->dtype), &number));
    lua_pushinteger(L, number);
    return 1;
}

/* answer(t, number): the value that was asked for; nil: that was too long ago. */
static int tensor_answer(lua_State *L) {
    Tensor *t;
    char element[8];
    bool known = false;
    Memory *m = far_scalar(L, "answer", &t);
    lua_Integer number = arg_integer(L, 2, "answer: the number");
    if (!m) return 0;
    size_t bytes = (size_t)dtype_size(t->type->dtype);
    state_check(L, state_of(L), m->answer(m, number, element, bytes, &known));
    if (!known) return 0;
    push_element(L, t->type->dtype, element);
    return 1;
}

static const char *push_lists(lua_State *L, DType dtype, const Dims *dims, int d, const char *at) {
    if (d == dims->rank) {
        push_element(L, dtype, at);
        return at + dtype_size(dtype);
    }
    luaL_checkstack(L, 4, "nested too deep");
    lua_createtable(L, (int)dims->at[d], 0);
    for (int64_t i = 1; i <= dims->at[d]; i++) {
        at = push_lists(L, dtype, dims, d + 1, at);
        lua_rawseti(L, -2, i);
    }
    return at;
}

static char *push_bytes(lua_State *L, Tensor *t) { /* the whole tensor, in a userdata */
    char *bytes = lua_newuserdatauv(L, (size_t)type_bytes(t->type) + 1, 0);
    state_check(L, state_of(L), tensor_read(t, bytes));
    return bytes;
}

static int tensor_totable(lua_State *L) {
    Tensor *t = value_whole(L, state_of(L), 1, "totable");
    char *bytes = push_bytes(L, t);
    push_lists(L, t->type->dtype, &t->type->dims, 0, bytes);
    return 1;
}

static int tensor_tostring_bytes(lua_State *L) {
    Tensor *t = value_whole(L, state_of(L), 1, "bytes");
    char *bytes = push_bytes(L, t);
    lua_pushlstring(L, bytes, (size_t)type_bytes(t->type));
    return 1;
}

/* elements(x [, edge]): a flat list of them; of those within `edge` of an end along every dim. Of
 * uint64 the int64 of the same bits. */
static int tensor_elements(lua_State *L) {
    Tensor *t = value_whole(L, state_of(L), 1, "elements");
    DType dtype = t->type->dtype;
    int64_t edge = lua_isnoneornil(L, 2) ? DIMS_MOST : arg_integer(L, 2, "elements: edge");
    if (edge < 1) state_error(L, E_VALUE, "elements: edge %lld", (long long)edge);
    Dims dims = tensor_corners(t, edge);
    int64_t n = dims_count(&dims);
    char *bytes = lua_newuserdatauv(L, (size_t)(n * dtype_size(dtype)) + 1, 0);
    state_check(L, state_of(L), tensor_read_corners(t, edge, bytes));
    lua_createtable(L, (int)n, 0);
    for (int64_t i = 0; i < n; i++) {
        push_element(L, dtype == DT_U64 ? DT_I64 : dtype, bytes + i * dtype_size(dtype));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ---- text ---- */

/* What stands behind the type of a tensor without values. */
static const char *without_values(const Host *h, const Tensor *t) {
    if (!t || tensor_has_data(t)) return "";
    if (tensor_is_elsewhere(t)) return " (all of it is in other processes)";
    return h->rt.fake ? " (planned, not run: the devices are fake)" : " (a type, without values)";
}

/* "float32[32@data,128] on Mesh(data=4, model=2)", and the values: of a tensor of which other
 * processes have parts, those that are here. */
static int tensor_tostring(lua_State *L) {
    Host *h = state_of(L);
    LuaTensor *u = value_udata(L, 1, VALUE_TENSOR);
    if (u->t && tensor_is_deleted(u->t)) {
        lua_pushfstring(L, "deleted tensor (%s)", u->t->deleted_by);
        return 1;
    }
    if (!u->t && (!h->trace || h->trace->serial != u->serial)) {
        lua_pushliteral(L, "traced tensor of a trace that has ended");
        return 1;
    }
    u = value_tensor(L, h, 1);
    const Type *type = value_type(h, u);
    bool has_values = u->t && tensor_has_data(u->t);
    lua_settop(L, 1);
    if (has_values && type->layout && type->layout->unreduced)
        lua_pushnil(L);
    else if (has_values)
        lua_pushboolean(L, tensor_is_whole(u->t));
    if (has_values) usage_values(L, h);
    const char *values = has_values ? lua_tostring(L, -1) : "";
    Str *s = state_text(h);
    type_print(type, s);
    if (!u->t) str_put(s, " traced");
    if (type->layout) {
        str_put(s, " on ");
        mesh_print(type->layout->mesh, s);
    }
    if (*values) str_fmt(s, "%s%s", type->dims.rank ? "\n" : " ", values);
    str_put(s, without_values(h, u->t));
    return state_push_text(L, h);
}

/* Pushes the type of the value at `index`, of a table that of every leaf. */
static void push_typeof(lua_State *L, Host *h, int index, int depth) {
    enum { DEEPEST = 100 };
    luaL_checkstack(L, 8, "typeof");
    if (lua_isnumber(L, index) && lua_type(L, index) == LUA_TNUMBER) {
        lua_pushstring(L, lua_isinteger(L, index) ? "int32[]{weak}" : "float32[]{weak}");
    } else if (lua_isboolean(L, index)) {
        lua_pushliteral(L, "bool[]");
    } else if (value_is_tensor(L, h, index)) {
        const Type *type = value_seen_type(L, h, value_tensor(L, h, index));
        type_print(type, state_text(h));
        state_push_text(L, h);
    } else if (!lua_istable(L, index)) {
        lua_pushstring(L, arg_type_name(L, index));
    } else {
        if (depth == DEEPEST)
            state_error(L, E_VALUE, "typeof: a table is nested deeper than %d, or contains itself",
                        DEEPEST);
        lua_newtable(L);
        int copy = lua_gettop(L);
        for (lua_pushnil(L); lua_next(L, index); lua_settop(L, copy + 1)) {
            lua_pushvalue(L, copy + 1);
            push_typeof(L, h, copy + 2, depth + 1);
            lua_rawset(L, copy);
        }
    }
}

/* typeof(x): of a tensor, Param, number, boolean, or of every leaf of a table. */
static int tensor_typeof(lua_State *L) {
    lua_settop(L, 1);
    push_typeof(L, state_of(L), 1, 0);
    return 1;
}

/* ---- what it is ---- */

static void push_sharding(lua_State *L, Host *h, const Type *type) {
    LuaSharding s = {0};
    if (type->layout) {
        s.mesh = type->layout->mesh;
        s.spec = layout_spec(&h->cx, type->layout, &type->dims);
        if (!s.spec) state_check(L, h, err_nomem(&h->cx, "a sharding"));
    }
    value_push_sharding(L, &s);
}

static const char shape_meta;

/* x.shape[0]: what is not there is nil, but for what counts otherwise. */
static int shape_index(lua_State *L) {
    lua_Integer i = lua_isinteger(L, 2) ? lua_tointeger(L, 2) : 1;
    if (i == 0) state_error(L, E_VALUE, "x.shape[0]: dims count from 1");
    if (i < 0) state_error(L, E_VALUE, "x.shape[%d]: the last dim is x.shape[x.ndim]", (int)i);
    lua_pushnil(L);
    return 1;
}

/* "{2, 3}" */
static int shape_tostring(lua_State *L) {
    luaL_Buffer b;
    arg_check_type(L, 1, LUA_TTABLE, "a shape");
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    luaL_buffinit(L, &b);
    luaL_addchar(&b, '{');
    for (lua_Integer i = 1; i <= n; i++) {
        if (i > 1) luaL_addstring(&b, ", ");
        lua_rawgeti(L, 1, i);
        luaL_tolstring(L, -1, NULL);
        lua_remove(L, -2);
        luaL_addvalue(&b);
    }
    luaL_addchar(&b, '}');
    luaL_pushresult(&b);
    return 1;
}

/* x:shape() */
static int shape_called(lua_State *L) {
    state_error(L, E_VALUE, "x.shape is a field: a list of dims, x.shape[1] the first");
}

/* Fields: shape, ndim, size, dtype, sharding. The rest are methods. */
static int tensor_index(lua_State *L) {
    const char *k = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : NULL;
    if (!k)
        state_error(
            L, E_VALUE,
            "tensors are not indexed with brackets; use x:slice(...), x:at(i) or x:take(ids)");
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
    Host *h = state_of(L);
    const Type *type = value_type(h, value_tensor(L, h, 1));
    if (strcmp(k, "shape") == 0) {
        value_push_dims(L, &type->dims, 0);
        lua_rawgetp(L, LUA_REGISTRYINDEX, &shape_meta);
        lua_setmetatable(L, -2);
    } else if (strcmp(k, "ndim") == 0)
        lua_pushinteger(L, type->dims.rank);
    else if (strcmp(k, "size") == 0)
        lua_pushinteger(L, type_count(type));
    else if (strcmp(k, "dtype") == 0)
        lua_pushstring(L, dtype_name(type->dtype));
    else if (strcmp(k, "sharding") == 0)
        push_sharding(L, h, value_seen_type(L, h, value_tensor(L, h, 1)));
    else if (!value_push_field(L))
        return usage_unknown(L, "Tensor");
    return 1;
}

static int tensor_newindex(lua_State *L) {
    return usage_assigned(L, "Tensor");
}

static int tensor_len(lua_State *L) {
    Host *h = state_of(L);
    const Type *type = value_type(h, value_tensor(L, h, 1));
    if (type->dims.rank == 0) state_error(L, E_SHAPE, "#: a scalar has no length");
    lua_pushinteger(L, type->dims.at[0]);
    return 1;
}

static int tensor_eq(lua_State *L) { /* identity: two handles of one tensor */
    LuaTensor *a = luaL_testudata(L, 1, VALUE_TENSOR), *b = luaL_testudata(L, 2, VALUE_TENSOR);
    lua_pushboolean(L, a && b && a->t == b->t && a->serial == b->serial && a->v == b->v);
    return 1;
}

static int tensor_gc(lua_State *L) {
    LuaTensor *u = value_handle(L, state_of(L), 1);
    if (!u) return 0;
    tensor_release(u->t);
    u->t = NULL;
    return 0;
}

/* The end of `local t <close>`. */
static int tensor_close(lua_State *L) {
    LuaTensor *u = value_udata(L, 1, VALUE_TENSOR);
    if (u->t) tensor_delete(u->t, "released");
    return 0;
}

/* release(): frees the bytes now. Twice is once. */
static int tensor_free(lua_State *L) {
    const LuaTensor *u = value_udata(L, 1, VALUE_TENSOR);
    if (!u->t || !tensor_is_deleted(u->t)) value_tensor(L, state_of(L), 1);
    if (!u->t) state_error(L, E_TRACED, "release: a traced tensor has no bytes to free");
    return tensor_close(L);
}

static int tensor_is_traced(lua_State *L) {
    Host *h = state_of(L);
    lua_pushboolean(L, value_is_tensor(L, h, 1) && !value_tensor(L, h, 1)->t);
    return 1;
}

/* is_deleted() */
static int tensor_deleted(lua_State *L) {
    LuaTensor *u = value_udata(L, 1, VALUE_TENSOR);
    lua_pushboolean(L, u->t && tensor_is_deleted(u->t));
    return 1;
}

/* address(slot, from 0): where the shard's bytes are; for tests of donation. */
static int tensor_address(lua_State *L) {
    Tensor *t = value_concrete(L, state_of(L), 1, "address");
    lua_Integer slot = lua_isnoneornil(L, 2) ? 0 : arg_integer(L, 2, "address: slot");
    if (slot < 0 || slot >= t->nslot)
        state_error(L, E_VALUE, "address: slot %lld of %d", (long long)slot, (int)t->nslot);
    lua_pushinteger(L, (lua_Integer)(uintptr_t)tensor_data(t, (int32_t)slot));
    return 1;
}

/* promote(a, b): the dtype in which tensors of two dtypes meet. */
static int promote(lua_State *L) {
    DType a = value_dtype(L, 1), b = value_dtype(L, 2), d = dtype_promote(a, false, b, false);
    if (d == DT_COUNT) state_error(L, E_DTYPE, DTYPE_APART, dtype_name(a), dtype_name(b));
    lua_pushstring(L, dtype_name(d));
    return 1;
}

void lib_open_tensor(lua_State *L) {
    static const luaL_Reg meta[] = {{"__tostring", tensor_tostring},
                                    {"__len", tensor_len},
                                    {"__newindex", tensor_newindex},
                                    {"__eq", tensor_eq},
                                    {"__gc", tensor_gc},
                                    {"__close", tensor_close},
                                    {NULL, NULL}};
    static const luaL_Reg methods[] = {{"item", tensor_item},
                                       {"totable", tensor_totable},
                                       {"bytes", tensor_tostring_bytes},
                                       {"release", tensor_free},
                                       {"is_traced", tensor_is_traced},
                                       {"is_deleted", tensor_deleted},
                                       {"address", tensor_address},
                                       {NULL, NULL}};
    static const luaL_Reg shape[] = {{"__index", shape_index},
                                     {"__call", shape_called},
                                     {"__tostring", shape_tostring},
                                     {NULL, NULL}};
    static const luaL_Reg fns[] = {{"tensor", tensor_from_table},
                                   {"from_string", tensor_from_string},
                                   {"typeof", tensor_typeof},
                                   {"ask", tensor_ask},
                                   {"answer", tensor_answer},
                                   {"is_traced", tensor_is_traced},
                                   {"elements", tensor_elements},
                                   {"promote", promote},
                                   {NULL, NULL}};
    value_new_type(L, VALUE_TENSOR, meta, methods, tensor_index);
    usage_add_refusals(L, VALUE_TENSOR);
    luaL_newlib(L, shape);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &shape_meta);
    lua_setfield(L, -2, "shape_meta"); /* core's: a shape is a plain list all the same */
    luaL_setfuncs(L, fns, 0);
}
