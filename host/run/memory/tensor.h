/* tensor.h - a concrete tensor: a type, and for each slot where its bytes are.
 *
 * A slot stands for all devices that agree along the axes that the layout uses (row-major in mesh
 * order), and a tensor has those of this process's devices (place.h); shards of one tensor may lie
 * in one buffer, or share bytes. Tensors never change, except that donation and release leave them
 * deleted. */
#ifndef MESHLUA_RUN_MEMORY_TENSOR_H
#define MESHLUA_RUN_MEMORY_TENSOR_H

#include "ir/type.h"
#include "run/memory/buffer.h"

typedef struct Shard {
    Buffer *buffer;
    int64_t offset; /* bytes */
} Shard;

typedef struct Tensor { /* first what every call reads of its arguments: one cache line */
    int32_t refs, nslot;
    const Type *type; /* NULL: deleted */
    Shard *shard;     /* nslot */
    Shard only;       /* where there is one slot */
    bool strided;     /* the shards may not be row-major without gaps */
    Ctx *cx;
    const char *deleted_by; /* why it is gone: an interned text */
    Dims local;
    int64_t strides[MAX_RANK]; /* bytes, of every shard */
} Tensor;

/* Shards without buffers, row-major strides. NULL when out of memory. */
Tensor *tensor_new(Ctx *cx, const Type *type);
/* The same by a pattern made earlier, with its strides: what tensor_init filled in. */
Tensor *tensor_like(const Tensor *pattern);
void tensor_init(Tensor *t, Ctx *cx, const Type *type);
/* One buffer for all slots of a domain, not zeroed. */
Tensor *tensor_alloc(Ctx *cx, const Type *type);
Tensor *tensor_retain(Tensor *t);
void tensor_release(Tensor *t); /* NULL is fine */
/* Frees the bytes; later use says "deleted: <why>". */
void tensor_delete(Tensor *t, const char *why);
static inline bool tensor_is_deleted(const Tensor *t) {
    return t->type == NULL;
}
/* Are all of its shards in other processes? */
static inline bool tensor_is_elsewhere(const Tensor *t) {
    return t->type && !t->nslot;
}
/* Is there memory behind it? Not on devices that are only planned for. */
static inline bool tensor_has_data(const Tensor *t) {
    return t->nslot && t->shard[0].buffer;
}
static inline char *tensor_data(const Tensor *t, int32_t slot) {
    return t->shard[slot].buffer->data + t->shard[slot].offset;
}
/* Says that the strides are no longer those of tensor_init. */
void tensor_set_strides(Tensor *t, const int64_t *strides);
/* The shards move to `dense`, which has the same type, and the strides with them. */
void tensor_move(Tensor *t, const Tensor *dense);
/* Are all its parts in this process? */
bool tensor_is_whole(const Tensor *t);
/* The part of the tensor that a slot's shard is: where it begins, and its dims without padding. */
Dims tensor_part(const Tensor *t, int32_t slot, int64_t start[MAX_RANK]);
/* ---- between the host and a shard that may lie in a device's memory ---- */

/* Copies one slot's shard, row-major, to `out` in the host's memory. */
Err tensor_read_shard(const Tensor *t, int32_t slot, void *out) MUST_CHECK;
/* Copies the whole tensor, row-major, to `out` (type_bytes of the type); it must be whole. */
Err tensor_read(const Tensor *t, void *out) MUST_CHECK;
/* A box of the tensor, row-major, from shards in the host's memory; false where these have not all
 * of it. */
bool tensor_read_box(const Tensor *t, const Dims *at, const Dims *size, void *out);
/* The corners of a tensor are what lies within `edge` of an end, along every dim: their dims, and
 * their copy. No other element is read. */
Dims tensor_corners(const Tensor *t, int64_t edge);
Err tensor_read_corners(const Tensor *t, int64_t edge, void *out) MUST_CHECK;
/* Where the host can write the bytes of a fresh tensor's shard: the shard itself, or NULL where it
 * lies in a device's memory. */
static inline char *tensor_host_data(const Tensor *t, int32_t slot) {
    return t->cx->memory[0] ? NULL : tensor_data(t, slot);
}
/* Fills a fresh tensor's shard with its bytes, row-major (nothing to do where these are the
 * shard). */
Err tensor_write_shard(Tensor *t, int32_t slot, const void *bytes) MUST_CHECK;
/* Fills every shard that is here from the whole tensor. The shards must not share bytes. */
Err tensor_write(Tensor *t, const void *whole) MUST_CHECK;
/* Fills one shard from a tensor on one device, of the dims of tensor_part. */
Err tensor_write_part(Tensor *t, int32_t slot, const Tensor *part) MUST_CHECK;
/* Makes the bytes of a shard, row-major in the host's memory, show that nobody wrote them. Padding
 * is never read; should it be, NaN and -1 show. */
void tensor_poison(const Tensor *t, char *bytes);
static inline size_t tensor_shard_bytes(const Tensor *t) {
    return (size_t)(dims_count(&t->local) * dtype_size(t->type->dtype));
}

#endif
