/* type.h - the type of a value: dtype, dims, layout. Interned: equal types are one object. */
#ifndef MESHLUA_TYPE_H
#define MESHLUA_TYPE_H

#include "ir/dims.h"
#include "ir/dtype.h"
#include "ir/layout.h"

typedef struct Type {
    int32_t id;
    DType dtype;
    bool weak;  /* came from a Lua number: takes the other operand's dtype within its kind */
    bool local; /* of a partitioned graph: dims are one shard's, layout says mesh and vary */
    Dims dims;  /* global unless local */
    const Layout *layout; /* NULL: one device */
} Type;

/* Interned; NULL when out of memory. `id` is ignored. */
const Type *type_of(Ctx *cx, const Type *t);
const Type *type_make(Ctx *cx, DType dtype, const Dims *dims, const Layout *layout);
const Type *type_with_layout(Ctx *cx, const Type *t, const Layout *layout);
/* The type less what propagation decides: axes of Auto type split nothing yet. What a result in a
 * traced graph, or a region's parameter, knows of the layout of what it was made from. */
const Type *type_undecided(Ctx *cx, const Type *t);
/* A stack of `n` of them along a new dim 1 (the rank must allow it), and back: one slice. NULL when
 * out of memory. */
const Type *type_stack(Ctx *cx, const Type *t, int64_t n);
const Type *type_slice(Ctx *cx, const Type *t);
int64_t type_count(const Type *t);       /* elements of the (local, if local) shape */
int64_t type_bytes(const Type *t);       /* of it */
int64_t type_shard_bytes(const Type *t); /* of one device's shard of a global type */
/* "float32[64@data,512]{U:model}", "float32[8,512]{V:data}" */
void type_print(const Type *t, Str *s);

#endif
