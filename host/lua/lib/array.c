/* array.c - tensors and their shards: which device holds what, and tensors put together from
 * parts. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include <string.h>

/* ---- where shards lie ---- */

/* Part of a tensor: the first element along each dim, from 0, and how many. Where the devices do
 * not divide a dim, the last parts are shorter. */
typedef struct Part {
    int64_t start[MAX_RANK];
    Dims dims;
} Part;

static Part part_of(const Layout *l, const Dims *global, const int32_t coord[MAX_AXES]) {
    Part p;
    p.dims = layout_part(l, global, coord, p.start);
    return p;
}

/* Pushes {device, process, index = {{first, last}, ...} (1-based, inclusive), replica_id, slot}: of
 * the distinct parts this is number `slot`, from 1, held by replica_id devices before this one.
 * What is on one device without a mesh is in every process. */
static void push_place(lua_State *L, const Layout *l, const Part *p, int32_t device, int32_t slot,
                       int32_t replica) {
    lua_createtable(L, 0, 6);
    lua_pushinteger(L, l ? l->mesh->device[device] : 0);
    lua_setfield(L, -2, "device");
    lua_pushinteger(L, l ? place_process(l->mesh, device) : state_of(L)->rt.ranks.rank);
    lua_setfield(L, -2, "process");
    lua_pushinteger(L, replica);
    lua_setfield(L, -2, "replica_id");
    lua_pushinteger(L, slot + 1);
    lua_setfield(L, -2, "slot");
    lua_createtable(L, p->dims.rank, 0);
    for (int d = 0; d < p->dims.rank; d++) {
        lua_createtable(L, 2, 0);
        lua_pushinteger(L, p->start[d] + 1);
        lua_rawseti(L, -2, 1);
        lua_pushinteger(L, p->start[d] + p->dims.at[d]);
        lua_rawseti(L, -2, 2);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "index");
}

/* Pushes the part of a tensor as a tensor on one device that shares its bytes. */
static void push_data(lua_State *L, Host *h, const Tensor *t, const Part *p, int32_t slot) {
    const Type *type = type_make(&h->cx, t->type->dtype, &p->dims, NULL);
    if (!type) state_check(L, h, err_nomem(&h->cx, "shards"));
    LuaTensor *u = value_new_tensor(L);
    Tensor *shard = u->t = tensor_new(&h->cx, type);
    if (!shard) state_check(L, h, err_nomem(&h->cx, "shards"));
    shard->shard[0] = (Shard){buffer_retain(t->shard[slot].buffer), t->shard[slot].offset};
    tensor_set_strides(shard, t->strides);
}

/* Pushes a list of the places of all devices of the mesh, in its order, or of those of this process
 * alone (`here`); with the data of t where it is here. */
static void push_places(lua_State *L, Host *h, const Layout *l, const Dims *dims, const Tensor *t,
                        bool here) {
    const Mesh *m = l ? l->mesh : NULL;
    int32_t count = 0;
    int32_t n = l ? l->mesh->ndevices : 1;
    int32_t *seen = lua_newuserdatauv(L, sizeof *seen * (size_t)n, 0);
    memset(seen, 0, sizeof *seen * (size_t)n);
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        int32_t coord[MAX_AXES] = {0};
        if (l) mesh_coords(l->mesh, i, coord);
        int32_t slot = layout_slot(l, coord);
        Part p = part_of(l, dims, coord);
        int32_t replica = seen[slot]++;
        bool is_here = !m || place_is_own(m, i);
        if (here && !is_here) continue;
        push_place(L, l, &p, i, slot, replica);
        if (t && tensor_has_data(t) && is_here) {
            push_data(L, h, t, &p, place_own_slot(m, layout_vary(l), coord));
            lua_setfield(L, -2, "data");
        }
        lua_rawseti(L, -2, ++count);
    }
    lua_remove(L, -2);
}

static int tensor_shards(lua_State *L, const char *who, bool here) {
    Host *h = state_of(L);
    Tensor *t = value_tensor(L, h, 1)->t;
    if (!t) state_error(L, E_TRACED, "%s needs a concrete tensor", who);
    push_places(L, h, t->type->layout, &t->type->dims, t, here);
    return 1;
}

/* x:addressable_shards(): for each device of the mesh in this process {device, process, index =
 * {{first, last}, ...} (1-based, inclusive), replica_id (0 holds the first copy), data}. */
static int addressable_shards(lua_State *L) {
    return tensor_shards(L, "addressable_shards", true);
}

/* x:global_shards(): the same for each device of the mesh; data of those in this process. */
static int global_shards(lua_State *L) {
    return tensor_shards(L, "global_shards", false);
}

/* shard_places(sharding, shape, who): where the shards of a tensor of that shape would lie; errors
 * call it `who`. */
static int shard_places(lua_State *L) {
    Host *h = state_of(L);
    const LuaSharding *s = value_udata(L, 1, VALUE_SHARDING);
    const char *who = arg_string(L, 3, NULL, "shard_places");
    Dims dims = value_dims(L, 2, 0, who);
    push_places(L, h, value_layout(L, h, s, &dims, who), &dims, NULL, false);
    return 1;
}

/* ---- shardings ---- */

/* The layout it gives tensors of rank ndim: sizes that every axis divides. NULL: one device. */
static const Layout *layout_of_rank(lua_State *L, Host *h, const LuaSharding *s, int ndim,
                                    const char *who) {
    Dims dims = {.rank = ndim};
    return value_layout(L, h, s, &dims, who);
}

/* sharding_facts(sharding): is every device's shard the whole tensor?, the mesh axes that it does
 * not name. */
static int sharding_facts(lua_State *L) {
    Host *h = state_of(L);
    const LuaSharding *s = value_udata(L, 1, VALUE_SHARDING);
    const Layout *l = layout_of_rank(L, h, s, s->spec ? s->spec->n : 0, "sharding");
    uint32_t used = l ? layout_used(l) | l->reduced : 0;
    lua_pushboolean(L, layout_is_replicated(l));
    value_push_axes(L, l ? l->mesh : NULL, ~used);
    return 2;
}

static int32_t device_at(const Layout *l, int32_t i) {
    return l ? l->mesh->device[i] : 0;
}

/* The same chunks on the same devices, in their order. Abstract meshes have positions only. */
static bool same_chunks(const Layout *a, const Layout *b, int ndim) {
    int32_t n = a ? a->mesh->ndevices : 1;
    if (n != (b ? b->mesh->ndevices : 1)) return false;
    for (int d = 0; d < ndim; d++)
        if (layout_parts(a, d) != layout_parts(b, d)) return false;
    for (int32_t i = 0; i < n; i++) {
        int32_t x[MAX_AXES] = {0}, y[MAX_AXES] = {0};
        if (device_at(a, i) != device_at(b, i)) return false;
        if (a) mesh_coords(a->mesh, i, x);
        if (b) mesh_coords(b->mesh, i, y);
        for (int d = 0; a && b && d < ndim; d++)
            if (axes_index(&a->dim[d].axes, a->mesh, x) != axes_index(&b->dim[d].axes, b->mesh, y))
                return false;
    }
    return true;
}

static bool is_summed(const Layout *l) {
    return l && (l->unreduced || l->reduced);
}

/* equivalent(sharding, sharding, ndim): do they place tensors of that rank alike? */
static int equivalent(lua_State *L) {
    static const char *const who = "is_equivalent_to";
    Host *h = state_of(L);
    lua_Integer ndim = arg_integer(L, 3, who);
    if (ndim < 0 || ndim > MAX_RANK)
        state_error(L, E_SHAPE, "%s: rank %lld; tensors have at most %d dims", who, (long long)ndim,
                    MAX_RANK);
    const Layout *a = layout_of_rank(L, h, value_udata(L, 1, VALUE_SHARDING), (int)ndim, who);
    const Layout *b = layout_of_rank(L, h, value_udata(L, 2, VALUE_SHARDING), (int)ndim, who);
    bool same = (a && a->mesh->abstract) == (b && b->mesh->abstract);
    if (is_summed(a) || is_summed(b))
        same = same && layout_same_shards(a, b);
    else
        same = same && same_chunks(a, b, (int)ndim);
    lua_pushboolean(L, same);
    return 1;
}

/* ---- from parts ---- */

/* Copies a part, the tensor on one device at `index`, to its slot. */
static void fill_slot(lua_State *L, Host *h, int index, Tensor *t, int32_t slot) {
    int64_t start[MAX_RANK];
    Dims want = tensor_part(t, slot, start);
    if (dims_count(&want) == 0) {
        char *room = value_push_room(L, t, slot);
        tensor_poison(t, room);
        state_check(L, h, tensor_write_shard(t, slot, room));
        lua_pop(L, 1);
        return;
    }
    const Tensor *part = value_concrete(L, h, index, "assemble");
    if (part->type->dtype != t->type->dtype || !dims_equal(&part->type->dims, &want)) {
        Str *s = state_text(h);
        type_print(part->type, s);
        state_error(L, E_SHAPE, "assemble: part %d is %s", (int)slot + 1, str_of(s));
    }
    state_check(L, h, tensor_write_part(t, slot, part));
}

/* assemble(sharding, shape, dtype, parts): the tensor whose distinct shards are the tensors in the
 * table, by slot (see shard_places), those of this process alone; the caller has checked them. */
static int assemble(lua_State *L) {
    Host *h = state_of(L);
    const LuaSharding *s = value_udata(L, 1, VALUE_SHARDING);
    Dims dims = value_dims(L, 2, 0, "assemble");
    DType dtype = value_dtype(L, 3);
    arg_check_type(L, 4, LUA_TTABLE, "assemble: the parts");
    const Type *type = type_make(&h->cx, dtype, &dims, value_layout(L, h, s, &dims, "assemble"));
    Tensor *t = value_push_fresh(L, h, type, true)->t;
    for (int32_t slot = 0; slot < t->nslot && tensor_has_data(t); slot++) {
        const Layout *l = type->layout;
        int32_t coord[MAX_AXES];
        place_own_coords(l ? l->mesh : NULL, layout_vary(l), slot, coord);
        lua_rawgeti(L, 4, layout_slot(l, coord) + 1);
        fill_slot(L, h, -1, t, slot);
        lua_pop(L, 1);
    }
    return 1;
}

/* shape_dtype_struct(shape, dtype, sharding or nil): a tensor without values, for planning. */
static int shape_dtype_struct(lua_State *L) {
    static const char *const who = "ShapeDtypeStruct";
    Host *h = state_of(L);
    Dims dims = value_dims(L, 1, 0, who);
    DType dtype = value_dtype(L, 2);
    const Type *type = type_make(&h->cx, dtype, &dims, value_layout_at(L, h, 3, &dims, who));
    if (!type) state_check(L, h, err_nomem(&h->cx, who));
    LuaTensor *u = value_new_tensor(L);
    u->t = tensor_new(&h->cx, type);
    if (!u->t) state_check(L, h, err_nomem(&h->cx, who));
    return 1;
}

/* donate(x, why): frees the bytes; later use says why they are gone. Twice is once. */
static int donate(lua_State *L) {
    Host *h = state_of(L);
    const char *why = intern_name(&h->cx, arg_string(L, 2, NULL, "donate"));
    if (!why) state_check(L, h, err_nomem(&h->cx, "a donation"));
    LuaTensor *u = value_udata(L, 1, VALUE_TENSOR);
    if (u->t) tensor_delete(u->t, why);
    return 0;
}

void lib_open_array(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"addressable_shards", addressable_shards}, {"global_shards", global_shards}, {NULL, NULL}};
    static const luaL_Reg fns[] = {{"shard_places", shard_places},
                                   {"assemble", assemble},
                                   {"donate", donate},
                                   {"sharding_facts", sharding_facts},
                                   {"equivalent", equivalent},
                                   {"shape_dtype_struct", shape_dtype_struct},
                                   {NULL, NULL}};
    luaL_getmetatable(L, VALUE_TENSOR);
    lua_getfield(L, -1, "methods");
    value_add_methods(L, VALUE_TENSOR, methods);
    lua_pop(L, 2);
    luaL_setfuncs(L, fns, 0);
}
