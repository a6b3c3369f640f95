#include "run/memory/tensor.h"
#include "ir/place.h"

#include <string.h>

static const Mesh *mesh_under(const Tensor *t) {
    return t->type->layout ? t->type->layout->mesh : NULL;
}

void tensor_init(Tensor *t, Ctx *cx, const Type *type) {
    uint32_t used = layout_vary(type->layout);
    *t = (Tensor){.refs = 1, .cx = cx, .type = type};
    t->nslot = place_own_slots(mesh_under(t), used);
    t->local = layout_local(type->layout, &type->dims);
    dims_strides(&t->local, dtype_size(type->dtype), t->strides);
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
    return buffer_slot_stride(tensor_shard_bytes(t));
}

/* Gives every slot of a domain, which has those from `first` to `end`, its part of a new buffer. */
static bool give_buffer(Tensor *t, int32_t domain, int32_t first, int32_t end) {
    size_t each = slot_stride(t);
    if (first == end) return true;
    Buffer *b = buffer_new(t->cx, domain, each * (size_t)(end - first));
    if (!b) return false;
    for (int32_t i = first; i < end; i++)
        t->shard[i] = (Shard){buffer_retain(b), (int64_t)each * (i - first)};
    buffer_release(b);
    return true;
}

Tensor *tensor_alloc(Ctx *cx, const Type *type) {
    Tensor *t = tensor_new(cx, type);
    uint32_t used = layout_vary(type->layout);
    int32_t first = 0;
    for (int32_t k = 0; t && first < t->nslot; k++) {
        int32_t end = place_own_first(mesh_under(t), used, k + 1);
        if (!give_buffer(t, k, first, end)) {
            tensor_release(t);
            return NULL;
        }
        first = end;
    }
    return t;
}

bool tensor_is_whole(const Tensor *t) {
    return place_own_all(mesh_under(t), layout_vary(t->type->layout));
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
    dims_strides(&t->local, dtype_size(t->type->dtype), want);
    for (int d = 0; d < t->local.rank; d++)
        if (t->local.at[d] > 1 && t->strides[d] != want[d]) return false;
    return true;
}

void tensor_set_strides(Tensor *t, const int64_t *strides) {
    memcpy(t->strides, strides, sizeof *strides * (size_t)t->local.rank);
    t->strided = !is_dense(t);
}

void tensor_move(Tensor *t, const Tensor *dense) {
    for (int32_t i = 0; i < t->nslot; i++) {
        Buffer *old = t->shard[i].buffer;
        t->shard[i] = (Shard){buffer_retain(dense->shard[i].buffer), dense->shard[i].offset};
        buffer_release(old);
    }
    memcpy(t->strides, dense->strides, sizeof t->strides);
    t->strided = false;
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

/* ---- the host's copy of a shard ---- */

/* The bytes that a strided shard spreads over: from `lo` on, relative to its first element. */
static size_t extent(const Tensor *t, int64_t *lo) {
    int64_t hi = dtype_size(t->type->dtype);
    *lo = 0;
    for (int d = 0; d < t->local.rank; d++) {
        int64_t reach = (t->local.at[d] - 1) * t->strides[d];
        *(reach < 0 ? lo : &hi) += reach;
    }
    return (size_t)(hi - *lo);
}

Err tensor_read_shard(const Tensor *t, int32_t slot, void *out) {
    Memory *m = t->shard[slot].buffer->memory;
    char *from = tensor_data(t, slot);
    int64_t strides[MAX_RANK], lo;
    size_t bytes = tensor_shard_bytes(t);
    int elem = dtype_size(t->type->dtype);
    if (!bytes) return E_OK;
    if (m && !t->strided) return m->read(m, out, from, bytes);
    dims_strides(&t->local, elem, strides);
    if (!m) {
        copy_box(out, strides, from, t->strides, &t->local, elem);
        return E_OK;
    }
    bytes = extent(t, &lo);
    char *copy = alloc_aligned(&t->cx->alloc, bytes);
    if (!copy) return err_nomem(t->cx, "a copy of a tensor on the host");
    Err err = m->read(m, copy, from + lo, bytes);
    if (!err) copy_box(out, strides, copy - lo, t->strides, &t->local, elem);
    alloc_free(&t->cx->alloc, copy, bytes);
    return err;
}

Err tensor_write_shard(Tensor *t, int32_t slot, const void *bytes) {
    Memory *m = t->shard[slot].buffer->memory;
    char *to = tensor_data(t, slot);
    size_t n = tensor_shard_bytes(t);
    if (to == bytes || !n) return E_OK;
    if (m) return m->write(m, to, bytes, n);
    memcpy(to, bytes, n);
    return E_OK;
}

/* An image of a shard is where the host can reach its bytes: the shard itself, or a row-major copy
 * where it lies in a device's memory. NULL when out of memory. */
static char *image_open(const Tensor *t, int32_t slot) {
    if (!t->cx->memory[0]) return tensor_data(t, slot);
    return alloc_aligned(&t->cx->alloc, tensor_shard_bytes(t) + 1);
}

static void image_close(const Tensor *t, char *image) {
    if (t->cx->memory[0] && image) alloc_free(&t->cx->alloc, image, tensor_shard_bytes(t) + 1);
}

static void image_strides(const Tensor *t, int64_t strides[MAX_RANK]) {
    dims_strides(&t->local, dtype_size(t->type->dtype), strides);
    if (!t->cx->memory[0]) memcpy(strides, t->strides, sizeof t->strides);
}

static Err image_load(const Tensor *t, int32_t slot, char *image) {
    return t->cx->memory[0] ? tensor_read_shard(t, slot, image) : E_OK;
}

static Err no_image(const Tensor *t) {
    return err_nomem(t->cx, "a copy of a tensor on the host");
}

/* ---- parts and wholes ---- */

Dims tensor_part(const Tensor *t, int32_t slot, int64_t start[MAX_RANK]) {
    const Layout *l = t->type->layout;
    int32_t coord[MAX_AXES];
    place_own_coords(mesh_under(t), layout_vary(l), slot, coord);
    return layout_part(l, &t->type->dims, coord, start);
}

void tensor_poison(const Tensor *t, char *bytes) {
    memset(bytes, t->type->dtype == DT_BOOL ? 1 : 0xff, tensor_shard_bytes(t));
}

Err tensor_write_part(Tensor *t, int32_t slot, const Tensor *part) {
    const Dims *box = &part->type->dims;
    int64_t to[MAX_RANK], from[MAX_RANK];
    char *image = image_open(t, slot), *source = image_open(part, 0);
    Err err = image && source ? image_load(part, 0, source) : no_image(t);
    if (!err) {
        if (!dims_equal(box, &t->local)) tensor_poison(t, image);
        image_strides(t, to);
        image_strides(part, from);
        copy_box(image, to, source, from, box, dtype_size(t->type->dtype));
        err = tensor_write_shard(t, slot, image);
    }
    image_close(t, image);
    image_close(part, source);
    return err;
}

/* A slot's image to or from its place in the whole tensor. */
static void copy_slot(const Tensor *t, int32_t slot, char *image, char *whole, bool write) {
    int elem = dtype_size(t->type->dtype);
    int64_t strides[MAX_RANK], own[MAX_RANK], start[MAX_RANK];
    Dims part = tensor_part(t, slot, start);
    dims_strides(&t->type->dims, elem, strides);
    image_strides(t, own);
    for (int d = 0; d < part.rank; d++) whole += start[d] * strides[d];
    if (write && !dims_equal(&part, &t->local)) tensor_poison(t, image);
    if (dims_count(&part) == 0) return;
    if (write)
        copy_box(image, own, whole, strides, &part, elem);
    else
        copy_box(whole, strides, image, own, &part, elem);
}

/* Has another domain, before it, the same part? */
static bool is_repeated(const Tensor *t, int32_t slot) {
    const Mesh *m = mesh_under(t);
    uint32_t used = layout_vary(t->type->layout);
    int32_t coord[MAX_AXES], k = place_own_domain(m, used, slot);
    if (k == 0) return false;
    place_own_coords(m, used, slot, coord);
    while (k > 0 && place_slot(m, used, m->domain + k - 1, coord) < 0) k--;
    return k > 0;
}

Err tensor_read(const Tensor *t, void *out) {
    Err err = E_OK;
    for (int32_t slot = 0; slot < t->nslot && !err; slot++) {
        if (is_repeated(t, slot)) continue;
        char *image = image_open(t, slot);
        err = image ? image_load(t, slot, image) : no_image(t);
        if (!err) copy_slot(t, slot, image, out, false);
        image_close(t, image);
    }
    return err;
}

bool tensor_read_box(const Tensor *t, const Dims *at, const Dims *size, void *out) {
    int elem = dtype_size(t->type->dtype);
    int64_t dense[MAX_RANK], start[MAX_RANK], have = 0;
    dims_strides(size, elem, dense);
    for (int32_t slot = 0; slot < t->nslot; slot++) {
        Dims part = tensor_part(t, slot, start), both = {.rank = part.rank};
        char *to = out;
        const char *from = tensor_data(t, slot);
        if (is_repeated(t, slot)) continue;
        for (int d = 0; d < part.rank; d++) {
            int64_t low = at->at[d], high = low + size->at[d], end = start[d] + part.at[d];
            if (low < start[d]) low = start[d];
            if (high > end) high = end;
            both.at[d] = high > low ? high - low : 0;
            if (!both.at[d]) break;
            to += (low - at->at[d]) * dense[d];
            from += (low - start[d]) * t->strides[d];
        }
        copy_box(to, dense, from, t->strides, &both, elem);
        have += dims_count(&both);
    }
    return have == dims_count(size);
}

Err tensor_write(Tensor *t, const void *whole) {
    Err err = E_OK;
    for (int32_t slot = 0; slot < t->nslot && !err; slot++) {
        char *image = image_open(t, slot);
        if (image) copy_slot(t, slot, image, (char *)(uintptr_t)whole, true);
        err = image ? tensor_write_shard(t, slot, image) : no_image(t);
        image_close(t, image);
    }
    return err;
}

/* ---- corners ---- */

/* What lies within `edge` of an end, along every dim, and where it goes. */
typedef struct Corners {
    const Tensor *t;
    Memory *memory; /* NULL: the host's */
    int64_t edge, start[MAX_RANK], strides[MAX_RANK];
    Dims part;
} Corners;

/* Copies the corners' part of a slot, dim d and those below it. */
static Err copy_corners(const Corners *c, int d, const char *from, char *to) {
    size_t elem = (size_t)dtype_size(c->t->type->dtype);
    if (d == c->part.rank) {
        if (c->memory) return c->memory->read(c->memory, to, from, elem);
        memcpy(to, from, elem);
        return E_OK;
    }
    int64_t n = c->t->type->dims.at[d], cut = n - c->edge > c->edge ? n - 2 * c->edge : 0;
    Err err = E_OK;
    for (int64_t i = 0; i < c->part.at[d] && !err; i++) {
        int64_t at = c->start[d] + i;
        if (cut && at >= c->edge && at < n - c->edge) {
            i = n - c->edge - c->start[d] - 1;
            continue;
        }
        err = copy_corners(c, d + 1, from + i * c->t->strides[d],
                           to + (at < c->edge ? at : at - cut) * c->strides[d]);
    }
    return err;
}

Dims tensor_corners(const Tensor *t, int64_t edge) {
    Dims dims = t->type->dims;
    for (int d = 0; d < dims.rank; d++)
        if (dims.at[d] - edge > edge) dims.at[d] = 2 * edge;
    return dims;
}

Err tensor_read_corners(const Tensor *t, int64_t edge, void *out) {
    Corners c = {.t = t, .edge = edge};
    Dims dims = tensor_corners(t, edge);
    if (dims_equal(&dims, &t->type->dims)) return tensor_read(t, out);
    dims_strides(&dims, dtype_size(t->type->dtype), c.strides);
    Err err = E_OK;
    for (int32_t slot = 0; slot < t->nslot && !err && dims_count(&dims); slot++) {
        if (is_repeated(t, slot)) continue;
        c.memory = t->shard[slot].buffer->memory;
        c.part = tensor_part(t, slot, c.start);
        err = copy_corners(&c, 0, tensor_data(t, slot), out);
    }
    return err;
}
