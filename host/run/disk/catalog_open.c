/* catalog_open.c - which reader a file gets, and who reads bytes of its tensors. */
#include "base/file.h"
#include "run/disk/catalog_reader.h"
#include "run/disk/npz.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct CatalogFormat {
    const char *name;
    const char *magic; /* what it begins with, or NULL */
    int length;
    Err (*open)(Catalog *c);
    Err (*lay_out)(Catalog *c, Str *header); /* or NULL */
} CatalogFormat;

static const CatalogFormat formats[] = {
    {"safetensors", NULL, 0, safetensors_open, safetensors_lay_out},
    {"npy", "\x93NUMPY", 6, npy_open, npy_lay_out},
    {"npz", "PK\3\4", 4, npz_open, NULL},
    {"npz", "PK\5\6", 4, npz_open, NULL}, /* without members */
    {"gguf", "GGUF", 4, gguf_open, gguf_lay_out},
    {NULL, NULL, 0, NULL, NULL}};

static uint64_t header_bytes(const char *p) {
    uint64_t n;
    memcpy(&n, p, sizeof n);
    return n;
}

/* By what the file begins with; by its name where that does not tell. */
static const CatalogFormat *format_of(const char *head, int64_t n, const char *path) {
    enum { MOST = 100000000 };
    if (n >= 9 && head[8] == '{' && header_bytes(head) <= MOST) return formats;
    for (const CatalogFormat *f = formats; f->name; f++)
        if (f->magic && n >= f->length && memcmp(head, f->magic, (size_t)f->length) == 0) return f;
    const char *dot = strrchr(path, '.');
    for (const CatalogFormat *f = formats; dot && f->name; f++)
        if (strcmp(dot + 1, f->name) == 0) return f;
    return NULL;
}

static Err open_file(Catalog *c, const char *path) {
    struct stat info;
    c->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would wait */
    if (c->fd < 0 || fstat(c->fd, &info) != 0)
        return err_set(c->cx, E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return err_set(c->cx, E_IO, "%s: %s", path,
                       S_ISDIR(info.st_mode) ? "it is a folder" : "it is no regular file");
    c->size = info.st_size;
    c->path = arena_strdup(&c->arena, path);
    return c->path ? E_OK : err_nomem(c->cx, "a file's name");
}

static Err open_format(Catalog *c) {
    char head[16];
    int64_t n = file_read_at(c->fd, head, sizeof head, 0);
    if (n < 0) return err_set(c->cx, E_IO, "%s: %s", c->path, strerror(errno));
    const CatalogFormat *f = format_of(head, n, c->path);
    if (!f)
        return catalog_broken(c, NULL,
                              "it holds no tensors that are read here: neither what it begins with "
                              "nor its name says safetensors, npy, npz or gguf");
    c->format = f->name;
    return f->open(c);
}

static Catalog *new_catalog(Ctx *cx) {
    Catalog *c = alloc_new(&cx->alloc, sizeof *c);
    if (!c) return NULL;
    *c = (Catalog){.cx = cx, .fd = -1};
    arena_init(&c->arena, &cx->alloc);
    str_init(&c->head, &cx->alloc);
    return c;
}

Err catalog_open(Ctx *cx, const char *path, Catalog **out) {
    Catalog *c = new_catalog(cx);
    *out = NULL;
    if (!c) return err_nomem(cx, "a list of tensors");
    Err e = open_file(c, path);
    if (!e) e = open_format(c);
    if (e)
        catalog_close(c);
    else
        *out = c;
    return e;
}

/* ---- to be written ---- */

Err catalog_draft(Ctx *cx, const char *format, int32_t count, int32_t nmeta, Catalog **out) {
    Catalog *c = *out = new_catalog(cx);
    if (!c) return err_nomem(cx, "a list of tensors");
    c->format = c->path = format;
    c->count = count;
    c->nmeta = nmeta;
    c->entry = ARENA_ARRAY(&c->arena, CatalogEntry, count + 1);
    c->meta = ARENA_ARRAY(&c->arena, CatalogMeta, nmeta + 1);
    if (c->entry && c->meta) return E_OK;
    catalog_close(c);
    *out = NULL;
    return err_nomem(cx, "a list of tensors");
}

Err catalog_lay_out(Catalog *c, Str *header) {
    for (const CatalogFormat *f = formats; f->name; f++) {
        if (strcmp(f->name, c->format) != 0 || !f->lay_out) continue;
        if (c->head.failed) break;
        TRY(catalog_check_names(c));
        TRY(f->lay_out(c, header));
        if (header->failed) break;
        return E_OK;
    }
    if (c->head.failed || header->failed) return err_nomem(c->cx, "a file's header");
    return err_set(c->cx, E_UNSUPPORTED, "no such format is laid out: %s", c->format);
}

void catalog_close(Catalog *c) {
    if (!c) return;
    Alloc *a = &c->cx->alloc;
    if (c->unpack) npz_close(c);
    if (c->fd >= 0) close(c->fd);
    str_free(&c->head);
    arena_free(&c->arena);
    alloc_free(a, c, sizeof *c);
}

Err catalog_read(const Catalog *c, int32_t entry, int64_t from, void *to, size_t n) {
    const CatalogEntry *e = &c->entry[entry];
    ASSERT(from >= 0 && from <= e->bytes && n <= (size_t)(e->bytes - from), "beyond the entry");
    if (n == 0) return E_OK;
    if (e->packed) return npz_read(c, e, from, to, n);
    errno = 0;
    int64_t got = file_read_at(c->fd, to, n, e->begin + from);
    if (got < 0) return E_IO;
    if (got != (int64_t)n) {
        errno = 0;
        return E_IO;
    }
    return e->member && (int64_t)n == e->bytes ? npz_check(e, to) : E_OK;
}
