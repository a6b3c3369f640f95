/* npz_write.c - an npz file: members that are stored as they are, then their directory. */
#include "base/file.h"
#include "run/disk/npy.h"
#include "run/disk/npz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PLAIN = 20, WIDE = 45, UTF8 = 0x800, DAY = 0x21 }; /* versions of zip; 1 January 1980 */

static void put(Str *to, uint64_t x, size_t n) {
    str_put_n(to, (const char *)&x, n);
}

static Err write_failed(NpzWriter *w, int fault) {
    return err_set(w->cx, E_IO, "%s: %s", str_of(&w->path), strerror(fault));
}

static Err write_all(NpzWriter *w, const char *bytes, size_t n) {
    int fault = file_write_at(w->fd, bytes, n, w->at);
    if (fault) return write_failed(w, fault);
    w->at += (int64_t)n;
    return E_OK;
}

Err npz_create(NpzWriter *w, Ctx *cx, const char *path) {
    *w = (NpzWriter){.cx = cx, .fd = -1};
    Str *texts[] = {&w->path, &w->temporary, &w->header, &w->directory};
    for (int i = 0; i < 4; i++) str_init(texts[i], &cx->alloc);
    str_put(&w->path, path);
    str_fmt(&w->temporary, "%s.%ld.tmp", path, (long)getpid());
    if (w->path.failed || w->temporary.failed) return err_nomem(cx, "a file's name");
    w->fd = open(str_of(&w->temporary), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return w->fd < 0 ? write_failed(w, errno) : E_OK;
}

/* What the member's header and its row of the directory share, from the version on. */
static void put_common(Str *to, const char *name, uint32_t crc, uint64_t size, bool wide,
                       size_t extra) {
    bool ascii = true;
    for (const char *p = name; *p; p++) ascii = ascii && (unsigned char)*p < 0x80;
    put(to, extra ? WIDE : PLAIN, 2);
    put(to, ascii ? 0 : UTF8, 2);
    put(to, 0, 2); /* stored */
    put(to, 0, 2);
    put(to, DAY, 2);
    put(to, crc, 4);
    put(to, wide ? UINT32_MAX : size, 4);
    put(to, wide ? UINT32_MAX : size, 4);
    put(to, strlen(name) + 4, 2);
    put(to, extra, 2);
}

/* The row of the directory of a member whose header is at w->at. */
static void put_row(NpzWriter *w, const char *name, uint32_t crc, uint64_t size, bool wide) {
    Str *to = &w->directory;
    bool far = w->at >= UINT32_MAX;
    size_t extra = (wide ? 16u : 0) + (far ? 8u : 0);
    str_put(to, "PK\1\2");
    put(to, WIDE, 2);
    put_common(to, name, crc, size, wide, extra ? extra + 4 : 0);
    put(to, 0, 8);
    put(to, 0, 2); /* no comment, the first part, no attributes */
    put(to, far ? UINT32_MAX : (uint64_t)w->at, 4);
    str_fmt(to, "%s.npy", name);
    if (extra) put(to, 1 | extra << 16, 4);
    if (wide) put(to, size, 8);
    if (wide) put(to, size, 8);
    if (far) put(to, (uint64_t)w->at, 8);
}

/* A name that leads out of the folder in which a file is unpacked is not written. */
static Err check_name(NpzWriter *w, const char *name) {
    char shown[CATALOG_QUOTED];
    size_t n = strlen(name);
    bool out = name[0] == '/' || strchr(name, '\\');
    for (const char *p = name; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        out = out || (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2]));
    if (n && n < UINT16_MAX - 4 && !out) return E_OK;
    return err_set(w->cx, E_VALUE, "%s: tensor %s: no name of a file in an npz file",
                   str_of(&w->path), catalog_quote(name, shown));
}

Err npz_add(NpzWriter *w, const char *name, DType dtype, const Dims *dims, const void *bytes) {
    TRY(check_name(w, name));
    const Encoding *encoding = catalog_encoding(catalog_encoding_of_dtype(dtype));
    Str *head = &w->header;
    str_clear(head);
    TRY(npy_put_header(w->cx, head, encoding, dims));
    size_t n = (size_t)(dims_count(dims) * dtype_size(dtype)), npy = head->n;
    uint64_t size = npy + n;
    bool wide = size >= UINT32_MAX;
    uLong crc = crc32_z(crc32_z(0, (const Bytef *)head->at, npy), bytes, n);
    put_row(w, name, (uint32_t)crc, size, wide);
    str_put(head, "PK\3\4");
    put_common(head, name, (uint32_t)crc, size, wide, wide ? 20 : 0);
    str_fmt(head, "%s.npy", name);
    if (wide) put(head, 1 | 16 << 16, 4);
    if (wide) put(head, size, 8);
    if (wide) put(head, size, 8);
    if (head->failed || w->directory.failed) return err_nomem(w->cx, "a file's header");
    w->count++;
    TRY(write_all(w, head->at + npy, head->n - npy)); /* the member's header comes first */
    TRY(write_all(w, head->at, npy));
    return write_all(w, bytes, n);
}

static void put_end(NpzWriter *w, uint64_t begin, uint64_t bytes) {
    Str *to = &w->directory;
    uint64_t count = (uint64_t)w->count, at = begin + bytes;
    bool wide = count >= UINT16_MAX || begin >= UINT32_MAX || bytes >= UINT32_MAX;
    if (wide) {
        str_put(to, "PK\6\6");
        put(to, 44, 8);
        put(to, WIDE | WIDE << 16, 4);
        put(to, 0, 8);
        put(to, count, 8);
        put(to, count, 8);
        put(to, bytes, 8);
        put(to, begin, 8);
        str_put(to, "PK\6\7");
        put(to, 0, 4);
        put(to, at, 8);
        put(to, 1, 4);
    }
    str_put(to, "PK\5\6");
    put(to, 0, 4);
    put(to, wide ? UINT16_MAX : count, 2);
    put(to, wide ? UINT16_MAX : count, 2);
    put(to, wide ? UINT32_MAX : bytes, 4);
    put(to, wide ? UINT32_MAX : begin, 4);
    put(to, 0, 2);
}

/* The name lasts when its folder is written, too; some folders cannot be. */
static void sync_name(const char *path) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0;
    if (n >= (int)sizeof folder) return;
    snprintf(folder, sizeof folder, "%.*s", slash ? (n ? n : 1) : 1, slash ? path : ".");
    (void)file_sync_folder(folder);
}

Err npz_finish(NpzWriter *w) {
    put_end(w, (uint64_t)w->at, w->directory.n);
    if (w->directory.failed) return err_nomem(w->cx, "a file's directory");
    TRY(write_all(w, w->directory.at, w->directory.n));
    if (fsync(w->fd) != 0) return write_failed(w, errno);
    int closed = close(w->fd);
    w->fd = -1;
    if (closed != 0 || rename(str_of(&w->temporary), str_of(&w->path)) != 0) {
        Err e = write_failed(w, errno);
        unlink(str_of(&w->temporary));
        return e;
    }
    sync_name(str_of(&w->path));
    return E_OK;
}

void npz_drop(NpzWriter *w) {
    if (w->fd >= 0) {
        close(w->fd);
        unlink(str_of(&w->temporary));
    }
    w->fd = -1;
    Str *texts[] = {&w->path, &w->temporary, &w->header, &w->directory};
    for (int i = 0; i < 4; i++) str_free(texts[i]);
}
