#include "run/disk/read.h"
#include "run/disk/convert.h"

#include <errno.h>
#include <string.h>

/* Where ranges are read one by one, and where together with what lies between them. */
enum {
    PAGE = 4096,       /* a span of that many bytes is one read */
    TINY = 32,         /* runs shorter than that many bytes */
    TINY_STRIDE = 1024 /* are read together where they are not farther apart */
};

typedef struct FileReader {
    Ctx *cx;
    const PieceMap *p;
    const CatalogEntry *e;
    DType from, to;
    char *out;     /* the first element of the box that is filled */
    char *stage;   /* READ_STAGE bytes of elements */
    char *encoded; /* as many of blocks; NULL where an element is a block */
    int64_t *bytes;
} FileReader;

/* ---- from the file ---- */

static Err fetch(FileReader *r, int64_t from, void *to, size_t n) {
    *r->bytes += (int64_t)n;
    errno = 0;
    Err err = catalog_read(r->p->catalog, r->p->entry, from, to, n);
    return err ? catalog_read_failed(r->cx, r->p->catalog, r->p->entry, errno) : E_OK;
}

/* How many elements are staged at most: of blocks, so that those cut into at both ends fit. */
static int64_t staged(const FileReader *r) {
    int64_t n = READ_STAGE / dtype_size(r->from);
    return r->e->block > 1 ? n - 2 * r->e->block : n;
}

/* Reads n elements from `far` on. Where in the stage they begin. */
static Err read_span(FileReader *r, int64_t far, int64_t n, const char **at) {
    int64_t block = r->e->block, size = dtype_size(r->from);
    *at = r->stage;
    if (block == 1) return fetch(r, far * size, r->stage, (size_t)(n * size));
    int64_t first = far / block, end = (far + n + block - 1) / block;
    *at += (far - first * block) * size;
    TRY(fetch(r, first * r->e->block_bytes, r->encoded,
              (size_t)((end - first) * r->e->block_bytes)));
    catalog_decode(r->e->encoding, r->encoded, end - first, (float *)(void *)r->stage);
    return E_OK;
}

/* ---- to its place ---- */

static Err misfit(FileReader *r, const char *at) {
    return err_set(r->cx, E_VALUE, "%s: tensor \"%s\": %s cannot hold its value %g",
                   r->p->catalog->path, r->e->name, dtype_name(r->to), convert_value(r->from, at));
}

/* What was staged, from loop k on. */
static Err spread(FileReader *r, const PieceBox *b, int32_t k, const char *from, char *to) {
    int size = dtype_size(r->from);
    PieceLoop one = {1, 1, dtype_size(r->to)}, l = k + 1 < b->nloop ? b->loop[k] : one;
    if (k + 2 >= b->nloop) {
        PieceLoop inner = k < b->nloop ? b->loop[b->nloop - 1] : one;
        const char *bad = convert_plane(r->to, to, (int64_t[]){l.near, inner.near}, r->from, from,
                                        (int64_t[]){l.far * size, inner.far * size},
                                        (int64_t[]){l.count, inner.count});
        return bad ? misfit(r, bad) : E_OK;
    }
    for (int64_t i = 0; i < l.count; i++)
        TRY(spread(r, b, k + 1, from + i * l.far * size, to + i * l.near));
    return E_OK;
}

/* Can the loops from k on be read to where they belong? */
static bool is_direct(const FileReader *r, const PieceBox *b, int32_t k) {
    const PieceLoop *l = &b->loop[k];
    if (r->e->block > 1 || !convert_is_copy(r->to, r->from)) return false;
    return k == b->nloop || (k + 1 == b->nloop && l->far == 1 && l->near == dtype_size(r->to));
}

/* Is a read of all that the loops from k on span better than one for each run? No more than a fifth
 * is read in vain, but for what is tiny. */
static bool is_together(const FileReader *r, const PieceBox *b, int32_t k) {
    int64_t span = piece_span(b, k), n = piece_elements(b, k), size = dtype_size(r->from);
    const PieceLoop *inner = k < b->nloop ? &b->loop[b->nloop - 1] : NULL;
    int64_t run = inner && inner->far == 1 ? inner->count : 1;
    if (span - n <= n / 5 || span * size <= PAGE) return true;
    return run * size < TINY && span / (n / run) * size <= TINY_STRIDE;
}

static Err read_loops(FileReader *r, const PieceBox *b, int32_t k, int64_t far, char *to);

/* In steps of loop k, as many at once as can be staged. */
static Err read_steps(FileReader *r, const PieceBox *b, int32_t k, int64_t far, char *to) {
    PieceBox part = *b;
    PieceLoop l = b->loop[k];
    int64_t room = staged(r) - piece_span(b, k + 1), each = 1 + room / (l.far ? l.far : 1);
    for (int64_t i = 0; i < l.count; i += each) {
        if (each > l.count - i) each = l.count - i;
        part.loop[k].count = each;
        TRY(read_loops(r, &part, k, far + i * l.far, to + i * l.near));
    }
    return E_OK;
}

/* Runs of the inner one of two loops, each read alone, but put to their places together. */
static Err read_runs(FileReader *r, const PieceBox *b, int32_t k, int64_t far, char *to) {
    PieceBox part = *b;
    PieceLoop l = b->loop[k];
    int64_t run = b->loop[k + 1].count, size = dtype_size(r->from);
    int64_t each = READ_STAGE / (run * size);
    part.loop[k].far = run;
    for (int64_t i = 0; i < l.count; i += each) {
        if (each > l.count - i) each = l.count - i;
        part.loop[k].count = each;
        for (int64_t n = 0; n < each; n++)
            TRY(fetch(r, (far + (i + n) * l.far) * size, r->stage + n * run * size,
                      (size_t)(run * size)));
        TRY(spread(r, &part, k, r->stage, to + i * l.near));
    }
    return E_OK;
}

/* Is that so: two loops, of which the inner one is in one piece in the file but not in memory? */
static bool has_runs(const FileReader *r, const PieceBox *b, int32_t k) {
    if (k + 2 != b->nloop || r->e->block > 1 || is_direct(r, b, k + 1)) return false;
    return b->loop[k + 1].far == 1 && b->loop[k + 1].count <= staged(r);
}

static Err read_loops(FileReader *r, const PieceBox *b, int32_t k, int64_t far, char *to) {
    int64_t span = piece_span(b, k);
    if (is_direct(r, b, k))
        return fetch(r, far * dtype_size(r->from), to, (size_t)(span * dtype_size(r->from)));
    bool together = is_together(r, b, k);
    if (together && span <= staged(r)) {
        const char *at;
        TRY(read_span(r, far, span, &at));
        return spread(r, b, k, at, to);
    }
    PieceLoop l = b->loop[k];
    if (!together && has_runs(r, b, k)) return read_runs(r, b, k, far, to);
    if (together && piece_span(b, k + 1) <= staged(r)) return read_steps(r, b, k, far, to);
    for (int64_t i = 0; i < l.count; i++)
        TRY(read_loops(r, b, k + 1, far + i * l.far, to + i * l.near));
    return E_OK;
}

static Err read_piece_box(void *ud, const PieceBox *b) {
    FileReader *r = ud;
    return read_loops(r, b, 0, b->far, r->out + b->near);
}

/* ---- checks ---- */

static Err check_entry(Ctx *cx, DType dtype, const PieceMap *p, bool cast) {
    const CatalogEntry *e = &p->catalog->entry[p->entry];
    TRY(catalog_can_read(cx, p->catalog, p->entry));
    if (e->dtype == (int32_t)dtype || cast) return E_OK;
    return err_set(cx, E_DTYPE, "%s: tensor \"%s\" is %s, not %s; cast = true converts it",
                   p->catalog->path, e->name,
                   e->block > 1 ? e->encoding : dtype_name((DType)e->dtype), dtype_name(dtype));
}

PieceMap read_whole(Catalog *c, int32_t entry) {
    const CatalogEntry *e = &c->entry[entry];
    int64_t stride = 1;
    PieceMap p = {.size = e->dims, .catalog = c, .entry = entry, .nfactor = e->dims.rank};
    p.at.rank = e->dims.rank;
    for (int k = 0; k < e->dims.rank; k++) {
        int d = e->column_major ? k : e->dims.rank - 1 - k;
        p.factor[d] = (PieceFactor){d, e->dims.at[d], stride};
        stride *= e->dims.at[d];
    }
    return p;
}

Err read_check(Ctx *cx, DType dtype, const Dims *dims, const ReadPieces *p) {
    for (int32_t i = 0; i < p->n; i++) {
        const PieceMap *one = &p->at[i];
        TRY(piece_check(cx, one, dims, dims_count(&one->catalog->entry[one->entry].dims)));
    }
    TRY(piece_check_cover(cx, p->at, p->n, dims));
    for (int32_t i = 0; i < p->n; i++) TRY(check_entry(cx, dtype, &p->at[i], p->cast));
    return E_OK;
}

/* ---- boxes and shards ---- */

/* `near`: byte strides of the box in memory. */
static Err fill(Ctx *cx, DType dtype, const int64_t *at, const Dims *size, const int64_t *near,
                const ReadPieces *p, char *out) {
    FileReader r = {.cx = cx, .to = dtype, .out = out, .bytes = p->bytes};
    if (dims_count(size) == 0) return E_OK;
    r.stage = alloc_take(&cx->alloc, READ_STAGE);
    r.encoded = alloc_take(&cx->alloc, READ_STAGE);
    Err err = r.stage && r.encoded ? E_OK : err_nomem(cx, "reading a tensor");
    for (int32_t i = 0; i < p->n && !err; i++) {
        r.p = &p->at[i];
        r.e = &r.p->catalog->entry[r.p->entry];
        r.from = (DType)r.e->dtype;
        err = piece_restrict(r.p, at, size, near, read_piece_box, &r);
    }
    if (r.stage) alloc_give(&cx->alloc, r.stage, READ_STAGE);
    if (r.encoded) alloc_give(&cx->alloc, r.encoded, READ_STAGE);
    return err;
}

Err read_box(Ctx *cx, DType dtype, const int64_t *at, const Dims *size, const ReadPieces *p,
             void *out) {
    int64_t near[MAX_RANK];
    dims_strides(size, dtype_size(dtype), near);
    return fill(cx, dtype, at, size, near, p, out);
}

/* The first slot that has the part that this one has. */
static int32_t first_like(const Tensor *t, int32_t slot) {
    int64_t start[MAX_RANK], other[MAX_RANK];
    Dims part = tensor_part(t, slot, start);
    for (int32_t i = 0; i < slot; i++) {
        Dims its = tensor_part(t, i, other);
        if (dims_equal(&its, &part) && !memcmp(start, other, sizeof *start * (size_t)part.rank))
            return i;
    }
    return slot;
}

/* Reads a slot's part, row-major with its padding, to `room`. */
static Err read_slot(const Tensor *t, int32_t slot, const ReadPieces *p, char *room) {
    int64_t start[MAX_RANK], near[MAX_RANK];
    Dims part = tensor_part(t, slot, start);
    if (!dims_equal(&part, &t->local)) tensor_poison(t, room);
    dims_strides(&t->local, dtype_size(t->type->dtype), near);
    return fill(t->cx, t->type->dtype, start, &part, near, p, room);
}

/* In a device's memory, by way of the host's; other GPUs may have the same part. */
static Err read_to_device(Tensor *t, int32_t slot, const ReadPieces *p) {
    size_t bytes = tensor_shard_bytes(t);
    char *room = alloc_aligned(&t->cx->alloc, bytes + 1);
    if (!room) return err_nomem(t->cx, "reading a tensor");
    Err err = read_slot(t, slot, p, room);
    for (int32_t i = slot; i < t->nslot && !err; i++)
        if (i == slot || first_like(t, i) == slot) err = tensor_write_shard(t, i, room);
    alloc_free(&t->cx->alloc, room, bytes + 1);
    return err;
}

Err read_tensor(Tensor *t, const ReadPieces *p) {
    bool device = t->cx->memory[0] != NULL;
    for (int32_t slot = 0; slot < t->nslot && tensor_has_data(t); slot++) {
        if (device && first_like(t, slot) != slot) continue;
        if (device)
            TRY(read_to_device(t, slot, p));
        else
            TRY(read_slot(t, slot, p, tensor_data(t, slot)));
    }
    return E_OK;
}
