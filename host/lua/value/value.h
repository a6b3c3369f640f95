/* value.h - the userdata that scripts hold: tensors, boxes, meshes, specs, shardings. */
#ifndef MESHLUA_LUA_VALUE_VALUE_H
#define MESHLUA_LUA_VALUE_VALUE_H

#include "lua/state/arg.h"
#include "op/op.h"

#define VALUE_BOX      "meshlua.Param"
#define VALUE_MESH     "meshlua.Mesh"
#define VALUE_SPEC     "meshlua.P"
#define VALUE_SHARDING "meshlua.NamedSharding"

/* A tensor: concrete (t), or traced (t is NULL): value v of the trace with that serial. */
typedef struct LuaTensor {
    Tensor *t;
    uint64_t serial;
    Val v;
    uint64_t mark; /* of the latest quick walk that met it: see walk_begin_quick */
} LuaTensor;

/* nn.Param: a place for a tensor. User value 1 holds the tensor's userdata, 2
 * the metadata table. */
typedef struct LuaBox {
    LuaTensor *held;  /* user value 1, or NULL: see value_put_in_box */
    uint64_t mark;    /* as LuaTensor.mark */
    uint64_t made_in; /* serial of the trace it was made in; 0: in none */
    int32_t region;   /* of that trace's graph */
} LuaBox;

typedef struct LuaSharding {
    const Mesh *mesh; /* NULL: one device */
    const Spec *spec;
    int32_t device;
} LuaSharding;

/* A type of userdata. Its methods, NULL for none, stand in the metatable's field "methods", where
 * lualib adds to them; `index`, if not NULL, is __index and has them as its upvalue. Lualib may add
 * computed fields to "fields": functions of the object. */
void value_new_type(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods,
                    lua_CFunction index);

/* Adds methods to the table on top, that of the type: each checks how many
 * arguments it is given. */
void value_add_methods(lua_State *L, const char *name, const luaL_Reg *methods);

/* For __index: pushes the computed field of argument 1 with the name at 2;
 * false if there is none. */
bool value_push_field(lua_State *L);

/* The Tensor, the Param at `index`, or NULL. Told by the metatable's address: every value of every
 * call is asked. */
LuaTensor *value_handle(lua_State *L, const Host *h, int index);
LuaBox *value_box(lua_State *L, const Host *h, int index);
bool value_is_tensor(lua_State *L, const Host *h, int index); /* either of them */
/* Puts the Tensor (or nil) on top of the stack into the Param at `index`; pops it. */
void value_put_in_box(lua_State *L, int index);

/* Pushes an empty handle, to be given a tensor afterwards: nothing is owned while Lua may raise. */
LuaTensor *value_new_tensor(lua_State *L);
/* The same with a tensor of the type, whose bytes are still to be written; where devices are fake
 * and `planned` without any. Raises when out of memory, also where the type is NULL for that. */
LuaTensor *value_push_fresh(lua_State *L, Host *h, const Type *type, bool planned);
/* Where the bytes of a fresh tensor's shard are made, row-major, for tensor_write_shard: the shard
 * itself, or memory of the host's. Pushes what keeps it. */
char *value_push_room(lua_State *L, const Tensor *t, int32_t slot);
void value_push_traced(lua_State *L, Host *h, Val v);
/* The tensor at `index`: a Tensor, or what a Param holds. Raises if it is none, deleted, or a
 * tracer of another trace. */
LuaTensor *value_tensor(lua_State *L, Host *h, int index);
/* The same, which must be concrete: `what` asks for its value. */
Tensor *value_concrete(lua_State *L, Host *h, int index, const char *what);
/* Its type, concrete or traced. */
const Type *value_type(Host *h, const LuaTensor *t);
/* The mesh, and the type, with the mesh that stands in for another in its place: see instead_of. */
static inline const Mesh *value_mesh_now(const Host *h, const Mesh *m) {
    return m && m == h->mesh_from ? h->mesh_to : m;
}
const Type *value_type_now(lua_State *L, Host *h, const Type *t, const char *what);
/* The same as users see it: of a traced tensor on a mesh with explicit axes, these alone. Raises
 * when out of memory. */
const Type *value_seen_type(lua_State *L, Host *h, const LuaTensor *t);
/* The same, of which this process has all shards. */
Tensor *value_whole(lua_State *L, Host *h, int index, const char *what);
void value_push_mesh(lua_State *L, const Mesh *m);
const Mesh *value_mesh(lua_State *L, int index);
/* A list of the names of these axes; none where there is no mesh. */
void value_push_axes(lua_State *L, const Mesh *m, uint32_t mask);
void value_push_spec(lua_State *L, const Spec *s);
const Spec *value_spec(lua_State *L, int index);
void value_push_sharding(lua_State *L, const LuaSharding *s);
/* A NamedSharding, or a P bound to the mesh in context. */
LuaSharding value_sharding(lua_State *L, Host *h, int index);
/* The mesh becomes that of the trace under way; E_MESH where it has another. */
void value_use_mesh(lua_State *L, Host *h, const Mesh *m, const char *what);
/* "argument b is on Mesh(data=8), the rest on ..." */
_Noreturn void value_two_meshes(lua_State *L, const char *what, const Mesh *its, const Mesh *rest);
/* Raises unless every axis of the P is one of the mesh, and only once there. */
void value_check_spec(lua_State *L, Host *h, const char *who, const Mesh *m, const Spec *spec);
/* The layout it gives a tensor of these dims; NULL for one device. Raises for misfits, calling the
 * tensor `what`. */
const Layout *value_layout(lua_State *L, Host *h, const LuaSharding *s, const Dims *dims,
                           const char *what);
/* The same by the sharding at `index`; nil or none: one device. */
const Layout *value_layout_at(lua_State *L, Host *h, int index, const Dims *dims, const char *what);

/* ---- plain values ---- */
/* Of a number: as an element of the integer dtype, which must hold it. */
lua_Integer value_held(lua_State *L, int index, DType dtype);
/* A userdata of the type, one of those above or another whose name begins with "meshlua.". */
void *value_udata(lua_State *L, int index, const char *type);
/* A dtype name. */
DType value_dtype(lua_State *L, int index);
/* A list of integers (at most MAX_RANK), each plus `add`. */
Dims value_dims(lua_State *L, int index, int add, const char *what);
void value_push_dims(lua_State *L, const Dims *d, int add);
/* A list of n integers; NULL: zeros. */
void value_push_ints(lua_State *L, const int32_t *list, int n);
/* A field of the table on top. */
void value_set_number(lua_State *L, const char *name, double x);
void value_set_integer(lua_State *L, const char *name, lua_Integer x);
void value_set_string(lua_State *L, const char *name, const char *s); /* NULL: nil */

#endif
