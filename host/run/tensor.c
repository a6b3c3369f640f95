#include "run/tensor.h"
#include "ir/place.h"

#include <string.h>

void tensor_init(Tensor *t, Ctx *cx, const Type *type) {
    uint32_t used = layout_vary(type->layout);
    const Mesh *m = type->layout ? type->layout->mesh : NULL;
    int32_t nslot = m ? place_slots(m, used, m->process) : 1;
    *t = (Tensor){.refs = 1, .cx = cx, .type = type, .nslot = nslot};
    t->local = layout_local(type->layout, &type->dims);
    dims_strides(&t->local, t->strides);
    for (int d = 0; d < t->local.rank; d++) t->strides[d] *= dtype_size(type->dtype);
}

Tensor *tensor_like(const Tensor *pattern) {
    Alloc *a = &pattern->cx->alloc;
    Tensor *t = alloc_take(a, sizeof *t);
    if (!t) return NULL;
    *t = *pattern;
    t->shard = &t->only;
    if (t->nslot <= 1) return t;
    size_t bytes = sizeof *t->shard * (size_t)t->nslot;
    t->shard = alloc_take(a, bytes);
    if (t->shard) {
        memset(t->shard, 0, bytes);
        return t;
    }
    alloc_give(a, t, sizeof *t);
    return NULL;
}

Tensor *tensor_new(Ctx *cx, const Type *type) {
    Tensor pattern;
    tensor_init(&pattern, cx, type);
    return tensor_like(&pattern);
}

static size_t slot_stride(const Tensor *t) {
    size_t bytes = (size_t)dims_count(&t->local) * (size_t)dtype_size(t->type->dtype);
    return buffer_slot_stride(bytes);
}

/* Gives every slot its part of one new buffer. */
static bool give_buffer(Tensor *t) {
    size_t each = slot_stride(t);
    if (tensor_is_elsewhere(t)) return true;
    Buffer *b = buffer_new(&t->cx->alloc, each * (size_t)t->nslot);
    if (!b) return false;
    for (int32_t i = 0; i < t->nslot; i++) {
        t->shard[i] = (Shard){buffer_retain(b), (int64_t)each * i};
    }
    buffer_release(b);
    return true;
}

Tensor *tensor_alloc(Ctx *cx, const Type *type) {
    Tensor *t = tensor_new(cx, type);
    if (t && !give_buffer(t)) {
        tensor_release(t);
        return NULL;
    }
    return t;
}

bool tensor_is_whole(const Tensor *t) {
    const Layout *l = t->type->layout;
    return !l || t->nslot == mesh_product(l->mesh, layout_vary(l));
}

Tensor *tensor_retain(Tensor *t) {
    t->refs++;
    return t;
}

static void drop_shards(Tensor *t) {
    for (int32_t i = 0; t->shard && i < t->nslot; i++) buffer_release(t->shard[i].buffer);
    if (t->shard != &t->only)
        alloc_give(&t->cx->alloc, t->shard, sizeof *t->shard * (size_t)t->nslot);
    t->shard = NULL;
    t->nslot = 0;
}

void tensor_release(Tensor *t) {
    if (!t || --t->refs > 0) return;
    drop_shards(t);
    alloc_give(&t->cx->alloc, t, sizeof *t);
}

void tensor_delete(Tensor *t, const char *why) {
    if (tensor_is_deleted(t)) return;
    drop_shards(t);
    t->type = NULL;
    t->deleted_by = why;
}

/* Is every shard row-major without gaps? */
static bool is_dense(const Tensor *t) {
    int64_t want[MAX_RANK];
    dims_strides(&t->local, want);
    for (int d = 0; d < t->local.rank; d++)
        if (t->local.at[d] > 1 && t->strides[d] != want[d] * dtype_size(t->type->dtype))
            return false;
    return true;
}

void tensor_set_strides(Tensor *t, const int64_t *strides) {
    memcpy(t->strides, strides, sizeof *strides * (size_t)t->local.rank);
    t->strided = !is_dense(t);
}

Err tensor_make_dense(Tensor *t) {
    if (!t->strided || !tensor_has_data(t)) return E_OK;
    Tensor *dense = tensor_alloc(t->cx, t->type);
    if (!dense) return err_nomem(t->cx, "a copy of a strided tensor");
    for (int32_t i = 0; i < t->nslot; i++) tensor_read_shard(t, i, tensor_data(dense, i));
    for (int32_t i = 0; i < t->nslot; i++) {
        buffer_release(t->shard[i].buffer);
        t->shard[i] = (Shard){buffer_retain(dense->shard[i].buffer), dense->shard[i].offset};
    }
    memcpy(t->strides, dense->strides, sizeof t->strides);
    t->strided = false;
    tensor_release(dense);
    return E_OK;
}

/* Copies a box of elements between two strided places. */
static void copy_box(char *to, const int64_t *to_strides, const char *from,
                     const int64_t *from_strides, const Dims *box, int elem) {
    int64_t index[MAX_RANK] = {0};
    int last = box->rank - 1;
    if (dims_count(box) == 0) return;
    int64_t run = last < 0 ? 1 : box->at[last];
    bool dense = last < 0 || (to_strides[last] == elem && from_strides[last] == elem);
    for (;;) {
        if (dense) memcpy(to, from, (size_t)run * (size_t)elem);
        for (int64_t i = 0; !dense && i < run; i++)
            memcpy(to + i * to_strides[last], from + i * from_strides[last], (size_t)elem);
        int d = last - 1;
        for (; d >= 0; d--) {
            to += to_strides[d];
            from += from_strides[d];
            if (++index[d] < box->at[d]) break;
            to -= to_strides[d] * box->at[d];
            from -= from_strides[d] * box->at[d];
            index[d] = 0;
        }
        if (d < 0) return;
    }
}

void tensor_read_shard(const Tensor *t, int32_t slot, void *out) {
    int64_t strides[MAX_RANK];
    int elem = dtype_size(t->type->dtype);
    dims_strides(&t->local, strides);
    for (int d = 0; d < t->local.rank; d++) strides[d] *= elem;
    copy_box(out, strides, tensor_data(t, slot), t->strides, &t->local, elem);
}

Dims tensor_part(const Tensor *t, int32_t slot, int64_t start[MAX_RANK]) {
    const Layout *l = t->type->layout;
    int32_t coord[MAX_AXES];
    place_coords(l ? l->mesh : NULL, layout_vary(l), l ? l->mesh->process : 0, slot, coord);
    return layout_part(l, &t->type->dims, coord, start);
}

void tensor_poison(const Tensor *t, int32_t slot) {
    int byte = t->type->dtype == DT_BOOL ? 1 : 0xff;
    size_t bytes = (size_t)(dims_count(&t->local) * dtype_size(t->type->dtype));
    if (is_dense(t)) memset(tensor_data(t, slot), byte, bytes);
}

void tensor_write_shard(Tensor *t, int32_t slot, const Tensor *part) {
    const Dims *box = &part->type->dims;
    if (!dims_equal(box, &t->local)) tensor_poison(t, slot);
    copy_box(tensor_data(t, slot), t->strides, tensor_data(part, 0), part->strides, box,
             dtype_size(t->type->dtype));
}

/* Copies between the whole tensor, row-major at `whole`, and the shards. */
static void copy_whole(const Tensor *t, char *whole, bool write) {
    int elem = dtype_size(t->type->dtype);
    int64_t strides[MAX_RANK], start[MAX_RANK];
    dims_strides(&t->type->dims, strides);
    for (int d = 0; d < t->local.rank; d++) strides[d] *= elem;
    for (int32_t slot = 0; slot < t->nslot; slot++) {
        Dims part = tensor_part(t, slot, start);
        char *at = whole, *shard = tensor_data(t, slot);
        if (write && !dims_equal(&part, &t->local)) tensor_poison(t, slot);
        if (dims_count(&part) == 0) continue;
        for (int d = 0; d < part.rank; d++) at += start[d] * strides[d];
        if (write)
            copy_box(shard, t->strides, at, strides, &part, elem);
        else
            copy_box(at, strides, shard, t->strides, &part, elem);
    }
}

void tensor_read(const Tensor *t, void *out) {
    copy_whole(t, out, false);
}

void tensor_write(Tensor *t, const void *whole) {
    copy_whole(t, (char *)(uintptr_t)whole, true);
}
