#include "run/disk/whole.h"
#include "base/file.h"
#include "run/disk/read.h"
#include "run/disk/units.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static Err read_unit(Ctx *cx, const PieceMap *p, DType dtype, const UnitBox *unit, void *to) {
    int64_t bytes = 0;
    ReadPieces one = {.at = p, .n = 1, .cast = true, .bytes = &bytes};
    return read_box(cx, dtype, unit->at.at, &unit->size, &one, to);
}

static Err check_stop(Ctx *cx, const volatile int *stop) {
    return *stop ? err_set(cx, E_INTERRUPT, "interrupted") : E_OK;
}

/* Calls fn for the units of an entry in that dtype. */
static Err each_unit(const PieceMap *p, DType dtype, UnitsBoxFn *fn, void *ud) {
    UnitBox all = {.at = p->at, .size = p->size};
    return units_cut(dtype, &all, fn, ud);
}

/* ---- comparing ---- */
typedef struct WholePair {
    Ctx *cx;
    PieceMap a, b;
    DType dtype; /* DT_I64, DT_U64 or DT_F64 */
    int64_t done;
    char *room[2];
    const volatile int *stop;
    WholeDifference *out;
} WholePair;

static void note(WholeDifference *d, int64_t at, double difference, double scale) {
    if (d->count++ == 0) d->first = at;
    double relative = difference == 0 ? 0 : isfinite(scale) ? difference / scale : INFINITY;
    if (difference > d->largest) d->largest = difference;
    if (relative > d->relative) d->relative = relative;
}

static void compare_whole(WholePair *w, const int64_t *a, const int64_t *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i]) continue;
        uint64_t x = (uint64_t)a[i], y = (uint64_t)b[i];
        bool wide = w->dtype == DT_U64, above = wide ? x > y : a[i] > b[i];
        double scale =
            wide ? fmax((double)x, (double)y) : fmax(fabs((double)a[i]), fabs((double)b[i]));
        note(w->out, w->done + i, (double)(above ? x - y : y - x), scale);
    }
}

static void compare_real(WholePair *w, const double *a, const double *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double x = a[i], y = b[i];
        if (memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y))) continue;
        bool finite = isfinite(x) && isfinite(y);
        note(w->out, w->done + i, finite ? fabs(x - y) : INFINITY,
             finite ? fmax(fabs(x), fabs(y)) : INFINITY);
    }
}

static Err compare_unit(void *ud, const UnitBox *unit) {
    WholePair *w = ud;
    int64_t n = dims_count(&unit->size);
    TRY(check_stop(w->cx, w->stop));
    TRY(read_unit(w->cx, &w->a, w->dtype, unit, w->room[0]));
    TRY(read_unit(w->cx, &w->b, w->dtype, unit, w->room[1]));
    if (w->dtype != DT_F64)
        compare_whole(w, (const int64_t *)(void *)w->room[0], (const int64_t *)(void *)w->room[1],
                      n);
    else
        compare_real(w, (const double *)(void *)w->room[0], (const double *)(void *)w->room[1], n);
    w->done += n;
    return E_OK;
}

Err whole_compare(Ctx *cx, Catalog *a, int32_t i, Catalog *b, int32_t j, const volatile int *stop,
                  WholeDifference *out) {
    TRY(catalog_can_read(cx, a, i));
    TRY(catalog_can_read(cx, b, j));
    DType x = (DType)a->entry[i].dtype, y = (DType)b->entry[j].dtype;
    bool real = dtype_is_float(x) || dtype_is_float(y) || (x == DT_U64) != (y == DT_U64);
    WholePair w = {.cx = cx,
                   .a = read_whole(a, i),
                   .b = read_whole(b, j),
                   .dtype = real          ? DT_F64
                            : x == DT_U64 ? DT_U64
                                          : DT_I64,
                   .stop = stop,
                   .out = out};
    *out = (WholeDifference){.first = -1};
    char *room = alloc_aligned(&cx->alloc, 2 * UNITS_BYTES);
    if (!room) return err_nomem(cx, "comparing tensors");
    w.room[0] = room, w.room[1] = room + UNITS_BYTES;
    Err err = each_unit(&w.a, w.dtype, compare_unit, &w);
    alloc_free(&cx->alloc, room, 2 * UNITS_BYTES);
    return err;
}

/* ---- writing ---- */
typedef struct WholeWriter {
    Ctx *cx;
    const char *path;
    int fd;
    const Encoding *as;
    PieceMap p;
    int64_t at;    /* where in the file the next unit goes */
    char *room[2]; /* elements, and blocks of them */
    const volatile int *stop;
} WholeWriter;

static Err failed(const WholeWriter *w, const char *what, int error) {
    return err_set(w->cx, E_IO, "%s cannot be %s: %s", w->path, what, strerror(error));
}

static Err write_at(const WholeWriter *w, const char *from, size_t n, int64_t at) {
    int fault = file_write_at(w->fd, from, n, at);
    return fault ? failed(w, "written", fault) : E_OK;
}

/* Q8_0 has a half as the scale of 127 and of all below it. */
static Err check_scales(const WholeWriter *w, const float *x, int64_t n) {
    char shown[CATALOG_QUOTED];
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= 127 * 65504.0f))
            return err_set(w->cx, E_VALUE, "%s: tensor %s: %s cannot hold the value %g", w->path,
                           catalog_quote(w->p.catalog->entry[w->p.entry].name, shown), w->as->name,
                           (double)x[i]);
    return E_OK;
}

static Err write_unit(void *ud, const UnitBox *unit) {
    WholeWriter *w = ud;
    int64_t n = dims_count(&unit->size), bytes = n / w->as->block * w->as->block_bytes;
    const char *from = w->room[0];
    TRY(check_stop(w->cx, w->stop));
    TRY(read_unit(w->cx, &w->p, (DType)w->as->dtype, unit, w->room[0]));
    if (w->as->block > 1) {
        TRY(check_scales(w, (const float *)(const void *)w->room[0], n));
        if (n % w->as->block != 0 ||
            !catalog_encode(w->as->name, (const float *)(const void *)w->room[0], n / w->as->block,
                            w->room[1]))
            return err_set(w->cx, E_UNSUPPORTED, "%s: %s is not written", w->path, w->as->name);
        from = w->room[1];
    }
    TRY(write_at(w, from, (size_t)bytes, w->at));
    w->at += bytes;
    return E_OK;
}

static Err write_entries(WholeWriter *w, const WholeFile *file) {
    TRY(write_at(w, file->header, file->nheader, 0));
    for (int32_t i = 0; i < file->count; i++) {
        const WholeEntry *e = &file->entry[i];
        w->as = catalog_encoding(e->encoding);
        if (!w->as || w->as->dtype < 0)
            return err_set(w->cx, E_UNSUPPORTED, "%s: %s is not written", w->path, e->encoding);
        TRY(catalog_can_read(w->cx, e->catalog, e->entry));
        w->p = read_whole(e->catalog, e->entry);
        w->at = e->begin;
        TRY(each_unit(&w->p, (DType)w->as->dtype, write_unit, w));
    }
    if (ftruncate(w->fd, (off_t)file->size) != 0) return failed(w, "given its size", errno);
    return fsync(w->fd) != 0 ? failed(w, "written", errno) : E_OK;
}

Err whole_write(Ctx *cx, const WholeFile *file) {
    WholeWriter w = {.cx = cx, .path = file->path, .stop = file->stop};
    char *room = alloc_aligned(&cx->alloc, 2 * UNITS_BYTES);
    if (!room) return err_nomem(cx, "writing tensors");
    w.room[0] = room, w.room[1] = room + UNITS_BYTES;
    w.fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    Err err = w.fd < 0 ? failed(&w, "made", errno) : write_entries(&w, file);
    if (w.fd >= 0 && close(w.fd) != 0 && !err) err = failed(&w, "written", errno);
    alloc_free(&cx->alloc, room, 2 * UNITS_BYTES);
    return err;
}
