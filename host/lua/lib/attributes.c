/* attributes.c - the attributes of an op from a Lua table, by the op's fields. */
#include "lua/lib/attributes.h"

#include "lua/lib/lib.h"
#include "lua/trace/trace.h"

#include <string.h>

#define VALUE_ATTR "meshlua.Attributes"

static void read_layout(lua_State *L, Host *h, const Dims *dims, const Layout **out) {
    LuaSharding s = value_sharding(L, h, -1);
    if (s.spec) trace_manual_check_spec(L, h, s.mesh, s.spec);
    *out = value_layout(L, h, &s, dims, "constrain");
    uint32_t axes = *out ? mesh_axes_of((*out)->mesh, AXIS_EXPLICIT) : 0;
    if (*out && h->trace) axes ^= h->trace->build.flipped;
    if (!axes) return;
    Layout l = **out; /* P.unconstrained leaves a dim to propagation, which has no say here */
    l.replicated = (uint8_t)axes;
    *out = layout_of(&h->cx, &l);
    if (!*out) state_check(L, h, err_nomem(&h->cx, "a layout"));
}

static void read_scalar(lua_State *L, DType dtype, Scalar *out) {
    if (lua_isboolean(L, -1)) {
        *out = attr_scalar_int(lua_toboolean(L, -1));
        return;
    }
    double x = arg_number(L, -1, "value");
    if (dtype_is_float(dtype))
        *out = attr_scalar_float(dtype_round(dtype, x));
    else if (dtype == DT_BOOL)
        *out = attr_scalar_int(x != 0);
    else
        *out = attr_scalar_int(value_held(L, -1, dtype));
}

static int32_t read_enum(lua_State *L, const AttrField *f) {
    const char *word = arg_string(L, -1, NULL, f->name);
    for (int32_t i = 0; f->names[i]; i++)
        if (strcmp(f->names[i], word) == 0) return i;
    state_error(L, E_VALUE, "%s: unknown word '%s'", f->name, word);
}

static const IntList *read_ints(lua_State *L, Host *h, const char *what) {
    arg_check_type(L, -1, LUA_TTABLE, what);
    lua_Unsigned n = lua_rawlen(L, -1);
    int32_t *at = lua_newuserdatauv(L, sizeof *at * (n + 1), 0);
    for (lua_Unsigned i = 0; i < n; i++) {
        lua_rawgeti(L, -2, (lua_Integer)i + 1);
        at[i] = arg_int32(L, -1, what);
        lua_pop(L, 1);
    }
    const IntList *list = attr_list_of(&h->cx, at, (int32_t)n);
    if (!list) state_check(L, h, err_nomem(&h->cx, "a list"));
    lua_pop(L, 1);
    return list;
}

typedef union AttrValue {
    int64_t whole;
    double number;
    Scalar scalar;
    Dims dims;
    const Layout *layout;
    const char *name;
    AxisList axes;
    const IntList *ints;
    int32_t small;
} AttrValue;

/* The value on top of the stack as the field has it; its size. `dims`: operand 0's, for layouts. */
static size_t read_value(lua_State *L, Host *h, const AttrField *f, const Dims *dims, DType *dtype,
                         AttrValue *x) {
    switch (f->kind) {
    case ATTR_INT: x->whole = arg_integer(L, -1, f->name); return sizeof x->whole;
    case ATTR_FLOAT:
    case ATTR_NUMBER: x->number = arg_number(L, -1, f->name); return sizeof x->number;
    case ATTR_SCALAR: read_scalar(L, *dtype, &x->scalar); return sizeof x->scalar;
    case ATTR_DIMS: x->dims = value_dims(L, -1, -1, f->name); return sizeof x->dims;
    case ATTR_SHAPE:
    case ATTR_LIST:
    case ATTR_SOME: x->dims = value_dims(L, -1, 0, f->name); return sizeof x->dims;
    case ATTR_LAYOUT: read_layout(L, h, dims, &x->layout); return sizeof x->layout;
    case ATTR_NAME:
        x->name = intern_name(&h->cx, arg_string(L, -1, NULL, f->name));
        if (!x->name) state_check(L, h, err_nomem(&h->cx, "a name"));
        return sizeof x->name;
    case ATTR_AXES: x->axes = trace_manual_axes(L, h, -1); return sizeof x->axes;
    case ATTR_INTS: x->ints = read_ints(L, h, f->name); return sizeof x->ints;
    case ATTR_MASK: {
        AxisList axes = trace_manual_axes(L, h, -1);
        x->small = (int32_t)axes_mask(&axes);
        break;
    }
    case ATTR_DTYPE: *dtype = value_dtype(L, -1), x->small = (int32_t)*dtype; break;
    case ATTR_BOOL:
    case ATTR_FLAG: x->small = lua_toboolean(L, -1); break;
    case ATTR_DIM: x->small = arg_dim(L, -1, f->name); break;
    case ATTR_ENUM: x->small = read_enum(L, f); break;
    default: state_error(L, E_KEY, "%s cannot be given from Lua", f->name);
    }
    return sizeof x->small;
}

/* The table at `index` into the zeroed struct. */
static void read_fields(lua_State *L, Host *h, const OpDef *def, int index, const Dims *dims,
                        char *at) {
    DType dtype = DT_F32;
    AttrValue x;
    if (!lua_istable(L, index))
        state_error(L, E_VALUE, "%s: attributes expected as a table", def->name);
    for (const AttrField *f = def->attr; f->name; f++) {
        bool optional = f->kind == ATTR_BOOL || f->kind == ATTR_FLAG || f->kind == ATTR_LAYOUT ||
                        f->kind == ATTR_DIMS || f->kind == ATTR_LIST || f->kind == ATTR_SOME ||
                        f->kind == ATTR_NUMBER;
        if (lua_getfield(L, index, f->name) != LUA_TNIL)
            memcpy(at + f->offset, &x, read_value(L, h, f, dims, &dtype, &x));
        else if (!optional)
            state_error(L, E_VALUE, "%s: no %s is given", def->name, f->name);
        lua_pop(L, 1);
    }
}

Attrs attributes_read(lua_State *L, Host *h, const OpDef *def, int index, const Dims *dims,
                      char *room) {
    if (!def->attr) return (Attrs){0};
    const LuaAttr *made = lua_touserdata(L, index);
    if (made && lua_getmetatable(L, index)) {
        bool is_one = lua_topointer(L, -1) == h->attr_meta && made->def == def;
        lua_pop(L, 1);
        if (is_one) return (Attrs){made->at, made->hash};
    }
    memset(room, 0, def->attr_size);
    read_fields(L, h, def, index, dims, room);
    return (Attrs){room, 0};
}

/* What a field says elsewhere may be another thing: where layouts and manual axes are met. */
static bool is_of_place(AttrKind kind) {
    return kind == ATTR_LAYOUT || kind == ATTR_AXES || kind == ATTR_MASK;
}

/* attributes(op, table): what calls of the op take in the place of the table, read once. */
static int make(lua_State *L) {
    Host *h = state_of(L);
    const char *name = arg_string(L, 1, NULL, "attributes: the op");
    int op = op_find(name);
    const OpDef *def = op_def(op);
    if (op == OP_NONE || !def->attr)
        state_error(L, E_KEY, "attributes: %s is no op that has some", name);
    for (const AttrField *f = def->attr; f->name; f++)
        if (is_of_place(f->kind))
            state_error(L, E_KEY, "attributes: %s of %s is not known before the call", f->name,
                        name);
    LuaAttr *made = lua_newuserdatauv(L, sizeof *made + def->attr_size, 0);
    memset(made, 0, sizeof *made + def->attr_size);
    made->def = def;
    read_fields(L, h, def, 2, NULL, made->at);
    made->hash = attributes_hash(def, (Attrs){made->at, 0});
    luaL_setmetatable(L, VALUE_ATTR);
    return 1;
}

uint64_t attributes_hash(const OpDef *def, Attrs a) {
    return a.hash || !def->attr ? a.hash : attr_hash(def->attr, a.at, 0);
}

void lib_open_attributes(lua_State *L) {
    value_new_type(L, VALUE_ATTR, (luaL_Reg[]){{NULL, NULL}}, NULL, NULL);
    luaL_getmetatable(L, VALUE_ATTR);
    state_of(L)->attr_meta = lua_topointer(L, -1);
    lua_pop(L, 1);
    lua_pushcfunction(L, make);
    lua_setfield(L, -2, "attributes");
}
