#include "run/disk/writer.h"
#include "base/file.h"
#include "ir/place.h"
#include "run/disk/convert.h"
#include "run/disk/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct WriterFile {
    const char *path;
    int fd;
    const char *header;
    size_t nheader;
    int64_t size;
} WriterFile;

/* A box of a shard: what this process writes of it. */
typedef struct WriterJob {
    Buffer *held; /* or NULL: it is in `copy` */
    char *copy;
    size_t ncopy;
    Tensor *later; /* a device's, to be copied when it is written; retained */
    int32_t slot;
    const char *data; /* the box's first element */
    int64_t near[MAX_RANK];
    DType dtype;
    UnitBox box;
    int32_t unit, nunit, piece, npiece;
} WriterJob;

struct Writer {
    Ctx *cx;
    Arena arena;
    VEC(WriterFile) file;
    VEC(WriterJob) job;
    VEC(WriterUnit) unit;
    VEC(PieceMap) piece;
    size_t memory;
    int64_t bytes, held;
    char *stage, *run; /* a unit row-major; a run of the file: UNITS_BYTES each */
    Direct direct;
    CtxHolder holder;
    atomic_int written; /* the first so many jobs are */
    int32_t dropped;
    pthread_t thread;
    bool started, joined, one_by_one;
    double seconds;
    Err err; /* what came of it */
    atomic_bool stop, done;
    /* What went wrong, by whoever writes. */
    int32_t failed; /* a file, or -1 */
    const char *doing;
    int error;
    bool misfit; /* a value that the file's dtype cannot hold */
    double value;
    DType misfit_to;
};

Writer *writer_new(Ctx *cx, size_t memory) {
    Writer *w = alloc_new(&cx->alloc, sizeof *w);
    if (!w) return NULL;
    w->cx = cx;
    w->memory = memory;
    w->failed = -1;
    arena_init(&w->arena, &cx->alloc);
    w->stage = alloc_aligned(&cx->alloc, UNITS_BYTES);
    w->run = alloc_aligned(&cx->alloc, UNITS_BYTES);
    if (direct_init(&w->direct, cx) && w->stage && w->run) return w;
    writer_free(w);
    return NULL;
}

static void close_files(Writer *w) {
    for (int32_t i = 0; i < w->file.n; i++) {
        if (w->file.at[i].fd >= 0) close(w->file.at[i].fd);
        w->file.at[i].fd = -1;
    }
}

static void drop_job(Writer *w, WriterJob *j) {
    buffer_release(j->held);
    alloc_free(&w->cx->alloc, j->copy, j->ncopy);
    tensor_release(j->later);
    j->held = NULL;
    j->copy = NULL;
    j->later = NULL;
}

/* A CtxHolder's: of what is written already, or will not be any more. */
static void let_go(void *ud) {
    Writer *w = ud;
    int32_t written =
        atomic_load(&w->done) ? w->job.n : atomic_load_explicit(&w->written, memory_order_acquire);
    while (w->dropped < written) drop_job(w, &w->job.at[w->dropped++]);
}

static void join(Writer *w) {
    if (w->started && !w->joined) {
        pthread_join(w->thread, NULL);
        ctx_remove_holder(w->cx, &w->holder);
    }
    w->joined = true;
}

/* A CtxHolder's. */
static void finish(void *ud) {
    join(ud);
    let_go(ud);
}

void writer_free(Writer *w) {
    Alloc *a = &w->cx->alloc;
    atomic_store(&w->stop, true);
    join(w);
    for (int32_t i = 0; i < w->job.n; i++) drop_job(w, &w->job.at[i]);
    alloc_free(a, w->stage, UNITS_BYTES);
    alloc_free(a, w->run, UNITS_BYTES);
    direct_free(&w->direct, w->cx);
    close_files(w);
    arena_free(&w->arena);
    alloc_free(a, w, sizeof *w);
}

/* ---- what is to be written ---- */

static Err no_memory(Writer *w) {
    return err_nomem(w->cx, "writing tensors");
}

Err writer_file(Writer *w, const char *path, const void *header, size_t nheader, int64_t size,
                bool create, int32_t *number) {
    WriterFile f = {.path = arena_strdup(&w->arena, path), .size = size, .nheader = nheader};
    if (nheader) f.header = arena_copy(&w->arena, header, nheader);
    if (!f.path || (nheader && !f.header) || !VEC_ROOM(&w->arena, &w->file, 1)) return no_memory(w);
    do f.fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0666);
    while (f.fd < 0 && errno == EINTR);
    if (f.fd < 0)
        return err_set(w->cx, E_IO, "%s: cannot be opened for writing: %s", path,
                       errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    *number = w->file.n;
    w->file.at[w->file.n++] = f;
    return E_OK;
}

static Err note_unit(void *ud, const UnitBox *box) {
    Writer *w = ud;
    WriterJob *j = &w->job.at[w->job.n - 1];
    j->nunit++;
    return VEC_PUSH(&w->arena, &w->unit, (WriterUnit){.box = *box}) ? E_OK : no_memory(w);
}

/* The bytes from the first to behind the last element of the job's box. */
static size_t extent(const WriterJob *j) {
    int64_t n = dtype_size(j->dtype);
    for (int d = 0; d < j->box.size.rank; d++) n += (j->box.size.at[d] - 1) * j->near[d];
    return (size_t)n;
}

/* Copies the box from a device: what it spreads over, or the whole shard where that is strided. */
static Err copy_down(Writer *w, WriterJob *j, const Tensor *t) {
    size_t ahead = 0;
    int64_t start[MAX_RANK];
    Dims part = tensor_part(t, j->slot, start);
    dims_strides(&t->local, dtype_size(j->dtype), j->near);
    for (int d = 0; d < part.rank; d++)
        ahead += (size_t)((j->box.at.at[d] - start[d]) * j->near[d]);
    j->ncopy = t->strided ? tensor_shard_bytes(t) : extent(j);
    j->copy = alloc_aligned(&w->cx->alloc, j->ncopy);
    if (!j->copy) return err_nomem(w->cx, "a copy of a tensor on the host");
    j->data = t->strided ? j->copy + ahead : j->copy;
    if (t->strided) return tensor_read_shard(t, j->slot, j->copy);
    Memory *m = t->shard[j->slot].buffer->memory;
    return m->read(m, j->copy, tensor_data(t, j->slot) + ahead, j->ncopy);
}

/* Holds a box of a shard in the host's memory where it is. */
static void hold_box(WriterJob *j, const Tensor *t) {
    int64_t start[MAX_RANK];
    Dims part = tensor_part(t, j->slot, start);
    memcpy(j->near, t->strides, sizeof j->near);
    j->data = tensor_data(t, j->slot);
    for (int d = 0; d < part.rank; d++) j->data += (j->box.at.at[d] - start[d]) * j->near[d];
    j->held = buffer_retain(t->shard[j->slot].buffer);
}

typedef struct WriterAdd {
    Writer *w;
    Tensor *t;
    int32_t index, rank, piece, npiece;
} WriterAdd;

/* The slot of this process that has a slot of the layout. */
static int32_t own_slot(const Tensor *t, int32_t slot) {
    const Layout *l = t->type->layout;
    int32_t coord[MAX_AXES];
    for (int32_t i = 0; l && i < t->nslot; i++) {
        place_own_coords(l->mesh, layout_vary(l), i, coord);
        if (layout_slot(l, coord) == slot) return i;
    }
    return l ? -1 : 0;
}

static Err add_box(void *ud, const UnitsWriter *u) {
    const WriterAdd *a = ud;
    Writer *w = a->w;
    int64_t bytes = dims_count(&u->box.size) * dtype_size(a->t->type->dtype);
    if (u->process != a->rank) return E_OK;
    WriterJob job = {.slot = own_slot(a->t, u->slot), .dtype = a->t->type->dtype, .box = u->box};
    ASSERT(job.slot >= 0 && job.slot < a->t->nslot, "a part that is elsewhere");
    job.unit = w->unit.n;
    job.piece = a->piece;
    job.npiece = a->npiece;
    if (!VEC_PUSH(&w->arena, &w->job, job)) return no_memory(w);
    WriterJob *j = &w->job.at[w->job.n - 1];
    TRY(units_cut(j->dtype, &j->box, note_unit, w));
    for (int32_t i = j->unit; i < w->unit.n; i++) w->unit.at[i].tensor = a->index;
    w->bytes += bytes;
    bool on_host = !a->t->shard[j->slot].buffer->memory;
    if (w->memory && w->held + bytes > (int64_t)w->memory) w->one_by_one = true;
    if (w->one_by_one && !on_host) {
        j->later = tensor_retain(a->t);
        return E_OK;
    }
    w->held += bytes;
    if (!on_host) return copy_down(w, j, a->t);
    hold_box(j, a->t);
    return E_OK;
}

Err writer_add(Writer *w, Tensor *t, int32_t index, UnitsJob job, int32_t rank,
               const PieceMap *piece, int32_t n) {
    WriterAdd add = {w, t, index, rank, w->piece.n, n};
    if (t->type->layout && t->type->layout->unreduced)
        return err_set(w->cx, E_UNSUPPORTED, "a tensor that is still to be summed over devices");
    if (t->nslot && !tensor_has_data(t))
        return err_set(w->cx, E_VALUE, "a ShapeDtypeStruct has no values to write");
    for (int32_t i = 0; i < n; i++) {
        if (piece[i].file < 0 || piece[i].file >= w->file.n)
            return err_set(w->cx, E_VALUE, "the writer has no file %d", (int)piece[i].file);
        if (!VEC_PUSH(&w->arena, &w->piece, piece[i])) return no_memory(w);
    }
    return units_writers(w->cx, t->type, index, job, add_box, &add);
}

int64_t writer_bytes(const Writer *w) {
    return w->bytes;
}
int64_t writer_held(const Writer *w) {
    return w->held;
}

/* ---- writing: by the thread, or by writer_run ---- */

static Err fail(Writer *w, int32_t file, const char *doing, int error) {
    w->failed = file;
    w->doing = doing;
    w->error = error;
    return E_IO;
}

static Err write_bytes(Writer *w, int32_t file, int64_t at, const char *from, size_t n) {
    int error = direct_write(&w->direct, file, w->file.at[file].fd, at, from, n);
    return error ? fail(w, w->direct.file, "written", error) : E_OK;
}

/* Gives a file its size and, where the file system can, its blocks. */
static Err size_file(Writer *w, int32_t file) {
    const WriterFile *f = &w->file.at[file];
    struct stat info;
    int status;
    if (f->size < 0) return E_OK;
    if (fstat(f->fd, &info) != 0) return fail(w, file, "looked at", errno);
    if (!S_ISREG(info.st_mode)) return E_OK;
    do status = ftruncate(f->fd, (off_t)f->size);
    while (status != 0 && errno == EINTR);
    if (status != 0) return fail(w, file, "given its size", errno);
    if (f->size == 0) return E_OK;
    do status = fallocate(f->fd, 0, 0, (off_t)f->size);
    while (status != 0 && errno == EINTR);
    if (status == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return E_OK;
    return fail(w, file, "given its size", errno);
}

/* A plain box of a unit whose first element is at `near`. */
typedef struct WriterRun {
    Writer *w;
    const PieceMap *p;
    const char *near;
    DType from, to;
} WriterRun;

/* What is a bool in memory is a byte that needs no check. */
static DType plain(DType d) {
    return d == DT_BOOL ? DT_U8 : d;
}

static Err misfit(Writer *w, const WriterRun *r, const char *at) {
    w->misfit = true;
    w->failed = r->p->file;
    w->value = convert_value(r->from, at);
    w->misfit_to = r->to;
    return E_VALUE;
}

/* The elements of the loops from k on, as they follow each other in the file. */
static Err gather(const WriterRun *r, const PieceBox *b, int32_t k, const char *near, char *to) {
    int size = dtype_size(r->to);
    PieceLoop one = {1, 1, dtype_size(r->from)}, l = k + 1 < b->nloop ? b->loop[k] : one;
    if (k + 2 >= b->nloop) {
        PieceLoop inner = k < b->nloop ? b->loop[b->nloop - 1] : one;
        const char *bad =
            convert_plane(r->to, to, (int64_t[]){l.far * size, inner.far * size}, r->from, near,
                          (int64_t[]){l.near, inner.near}, (int64_t[]){l.count, inner.count});
        return bad ? misfit(r->w, r, bad) : E_OK;
    }
    for (int64_t i = 0; i < l.count; i++)
        TRY(gather(r, b, k + 1, near + i * l.near, to + i * l.far * size));
    return E_OK;
}

/* Does it lie in memory as it must lie in the file? */
static bool is_ready(const WriterRun *r, const PieceBox *b, int32_t k) {
    if (r->to != r->from) return false;
    return k == b->nloop || (k + 1 == b->nloop && b->loop[k].near == dtype_size(r->to));
}

static Err write_loops(const WriterRun *r, const PieceBox *b, int32_t k, int64_t far,
                       const char *near) {
    int64_t n = piece_elements(b, k), bytes = n * dtype_size(r->to);
    if (piece_span(b, k) == n && bytes <= UNITS_BYTES) {
        int64_t at = r->p->begin + far * dtype_size(r->to);
        if (is_ready(r, b, k)) return write_bytes(r->w, r->p->file, at, near, (size_t)bytes);
        TRY(gather(r, b, k, near, r->w->run));
        return write_bytes(r->w, r->p->file, at, r->w->run, (size_t)bytes);
    }
    PieceLoop l = b->loop[k];
    for (int64_t i = 0; i < l.count; i++)
        TRY(write_loops(r, b, k + 1, far + i * l.far, near + i * l.near));
    return E_OK;
}

static Err write_piece_box(void *ud, const PieceBox *b) {
    const WriterRun *r = ud;
    return write_loops(r, b, 0, b->far, r->near + b->near);
}

/* Row-major, from a strided box. */
static char *pack(const Dims *size, const int64_t *near, DType dtype, int d, const char *from,
                  char *to) {
    int64_t bytes = dtype_size(dtype);
    if (d + 1 >= size->rank) {
        int64_t n = size->rank ? size->at[d] : 1;
        convert_run(plain(dtype), to, bytes, plain(dtype), from, size->rank ? near[d] : bytes, n);
        return to + n * bytes;
    }
    for (int64_t i = 0; i < size->at[d]; i++)
        to = pack(size, near, dtype, d + 1, from + i * near[d], to);
    return to;
}

static bool is_packed(const Dims *size, const int64_t *near, const int64_t *dense) {
    for (int d = 0; d < size->rank; d++)
        if (size->at[d] > 1 && near[d] != dense[d]) return false;
    return true;
}

static Err write_unit(Writer *w, const WriterJob *j, WriterUnit *u) {
    int64_t dense[MAX_RANK];
    const char *from = j->data;
    dims_strides(&u->box.size, dtype_size(j->dtype), dense);
    for (int d = 0; d < u->box.size.rank; d++)
        from += (u->box.at.at[d] - j->box.at.at[d]) * j->near[d];
    if (!is_packed(&u->box.size, j->near, dense)) {
        pack(&u->box.size, j->near, j->dtype, 0, from, w->stage);
        from = w->stage;
    }
    u->hash = hash_wide(from, (size_t)(dims_count(&u->box.size) * dtype_size(j->dtype)));
    for (int32_t i = j->piece; i < j->piece + j->npiece; i++) {
        const PieceMap *p = &w->piece.at[i];
        DType to = p->dtype == j->dtype ? plain(p->dtype) : p->dtype;
        WriterRun r = {w, p, from, plain(j->dtype), to};
        TRY(piece_restrict(r.p, u->box.at.at, &u->box.size, dense, write_piece_box, &r));
    }
    return E_OK;
}

/* Everything from the disk's own caches to the disk. */
static Err sync_file(Writer *w, int32_t file) {
    WriterFile *f = &w->file.at[file];
    int status;
    do status = fsync(f->fd);
    while (status != 0 && errno == EINTR);
    if (status != 0 && errno != EINVAL && errno != EROFS) return fail(w, file, "synced", errno);
    status = close(f->fd);
    f->fd = -1;
    return status == 0 || errno == EINTR ? E_OK : fail(w, file, "closed", errno);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static Err write_job(Writer *w, WriterJob *j) {
    if (j->later) TRY(copy_down(w, j, j->later)); /* never on the thread: see writer_start */
    for (int32_t i = j->unit; i < j->unit + j->nunit; i++) {
        if (atomic_load_explicit(&w->stop, memory_order_relaxed))
            return fail(w, 0, "written", EINTR);
        TRY(write_unit(w, j, &w->unit.at[i]));
    }
    if (j->later) drop_job(w, j);
    return E_OK;
}

static Err write_all(Writer *w) {
    for (int32_t i = 0; i < w->file.n; i++) {
        const WriterFile *f = &w->file.at[i];
        TRY(size_file(w, i));
        TRY(write_bytes(w, i, 0, f->header, f->nheader));
    }
    for (int32_t i = 0; i < w->job.n; i++) {
        TRY(write_job(w, &w->job.at[i]));
        atomic_store_explicit(&w->written, i + 1, memory_order_release);
    }
    int error = direct_flush(&w->direct);
    if (error) return fail(w, w->direct.file, "written", error);
    for (int32_t i = 0; i < w->file.n; i++) TRY(sync_file(w, i));
    return E_OK;
}

static void write_timed(Writer *w) {
    double begin = now();
    w->err = write_all(w);
    w->seconds = now() - begin;
    atomic_store(&w->done, true);
}

static void *work(void *ud) {
    write_timed(ud);
    return NULL;
}

bool writer_start(Writer *w) {
    sigset_t all, before;
    if (w->one_by_one) return false;
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->started = pthread_create(&w->thread, NULL, work, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!w->started) return false;
    w->holder = (CtxHolder){w->cx->holders, let_go, finish, w};
    w->cx->holders = &w->holder;
    return true;
}

/* A file that grows beyond what a process may write is an error, no signal. */
void writer_run(Writer *w) {
    sigset_t one, before;
    struct timespec none = {0};
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    write_timed(w);
    if (w->err) sigtimedwait(&one, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- what came of it ---- */

bool writer_is_done(const Writer *w) {
    return atomic_load(&w->done);
}

Err writer_wait(Writer *w) {
    join(w);
    if (w->misfit)
        return err_set(w->cx, E_VALUE, "%s: %s cannot hold a value %g", w->file.at[w->failed].path,
                       dtype_name(w->misfit_to), w->value);
    if (w->failed < 0) return w->err; /* none, or a device's, whose text is in flight */
    return err_set(w->cx, E_IO, "%s: cannot be %s: %s", w->file.at[w->failed].path, w->doing,
                   strerror(w->error));
}

double writer_seconds(const Writer *w) {
    return w->seconds;
}

const WriterUnit *writer_units(const Writer *w, int32_t *n) {
    *n = w->unit.n;
    return w->unit.at;
}
