#include "run/disk/npz.h"
#include "base/file.h"
#include "run/disk/catalog_reader.h"
#include "run/disk/npy.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    STORED = 0,
    DEFLATED = 8,
    LOCAL = 30,      /* bytes of a member's header, without name and extra fields */
    CENTRAL = 46,    /* of its row in the directory */
    END = 22,        /* of the directory's end, */
    LOCATOR = 20,    /* of what tells where its 64-bit form is, */
    END64 = 56,      /* and of that */
    RATIO = 1032,    /* no byte of a deflated stream gives more */
    COMMENT = 65535, /* bytes at most */
    ENCRYPTED = 1,
    DESCRIPTOR = 8, /* sizes stand behind the data, too */
    KNOWN = 0x80e,  /* the flags that change nothing: deflate's options, that, UTF-8 */
    DESCRIBED = 24  /* bytes of it at most */
};
static const int64_t DIRECTORY_MOST = 100000000;

static uint64_t number(const uint8_t *p, int n) {
    uint64_t x = 0;
    memcpy(&x, p, (size_t)n);
    return x;
}

/* ---- unpacking: one stream, which goes on where the last read of that member ended ---- */
typedef struct NpzUnpack {
    pthread_mutex_t lock;
    z_stream z;
    const NpzMember *member; /* NULL: none */
    int64_t in, out;         /* bytes of it taken, given */
    uLong crc;
    Bytef from[1 << 16], skipped[1 << 16];
} NpzUnpack;

static Err start_unpacking(Catalog *c) {
    if (c->unpack) return E_OK;
    NpzUnpack *u = alloc_new(&c->cx->alloc, sizeof *u);
    if (!u) return err_nomem(c->cx, "unpacking");
    if (inflateInit2(&u->z, -15) != Z_OK) {
        alloc_free(&c->cx->alloc, u, sizeof *u);
        return err_nomem(c->cx, "unpacking");
    }
    pthread_mutex_init(&u->lock, NULL);
    c->unpack = u;
    return E_OK;
}

void npz_close(Catalog *c) {
    inflateEnd(&c->unpack->z);
    pthread_mutex_destroy(&c->unpack->lock);
    alloc_free(&c->cx->alloc, c->unpack, sizeof *c->unpack);
}

/* More bytes of the member; false: there are none, or errno says why. */
static bool refill(int fd, NpzUnpack *u) {
    int64_t left = u->member->stored - u->in;
    size_t n = left < (int64_t)sizeof u->from ? (size_t)left : sizeof u->from;
    int64_t got = n ? file_read_at(fd, u->from, n, u->member->begin + u->in) : 0;
    if (got <= 0) return false;
    u->z.next_in = u->from;
    u->z.avail_in = (uInt)got;
    u->in += got;
    return true;
}

/* The stream's next n bytes, at most as many as a uInt holds; false where it has no more. */
static bool unpack_some(int fd, NpzUnpack *u, void *to, size_t n) {
    u->z.next_out = to;
    u->z.avail_out = (uInt)n;
    while (u->z.avail_out) {
        if (!u->z.avail_in && !refill(fd, u)) return false;
        int status = inflate(&u->z, Z_NO_FLUSH);
        if (status != Z_OK && !(status == Z_STREAM_END && !u->z.avail_out)) return false;
    }
    u->crc = crc32(u->crc, to, (uInt)n);
    u->out += (int64_t)n;
    return true;
}

/* All of it has come: are these its bytes, and is there no more? */
static bool ends_well(int fd, NpzUnpack *u) {
    Bytef more;
    u->z.next_out = &more;
    u->z.avail_out = 1;
    int status = Z_OK;
    while (status == Z_OK && u->z.avail_out) {
        if (!u->z.avail_in && !refill(fd, u)) break;
        status = inflate(&u->z, Z_NO_FLUSH);
    }
    /* The end may have come with the last byte: inflate then says so again. */
    if (status != Z_STREAM_END) status = inflate(&u->z, Z_NO_FLUSH);
    return status == Z_STREAM_END && u->z.avail_out && !u->z.avail_in &&
           u->in == u->member->stored && u->crc == u->member->crc;
}

/* Bytes of a member from `from` on. */
static bool unpack(int fd, NpzUnpack *u, const NpzMember *m, int64_t from, char *to, size_t n) {
    enum { MOST = 1 << 30 };
    if (u->member != m || u->out > from) {
        inflateReset(&u->z);
        u->member = m;
        u->z.avail_in = 0;
        u->in = u->out = 0;
        u->crc = crc32(0, NULL, 0);
    }
    while (u->out < from) {
        int64_t skip = from - u->out;
        size_t some = skip < (int64_t)sizeof u->skipped ? (size_t)skip : sizeof u->skipped;
        if (!unpack_some(fd, u, u->skipped, some)) return false;
    }
    for (size_t some; n; n -= some, to += some) {
        some = n < MOST ? n : MOST;
        if (!unpack_some(fd, u, to, some)) return false;
    }
    return u->out < m->size || ends_well(fd, u);
}

static bool unpack_locked(const Catalog *c, const NpzMember *m, int64_t from, void *to, size_t n) {
    NpzUnpack *u = c->unpack;
    pthread_mutex_lock(&u->lock);
    errno = 0;
    bool done = unpack(c->fd, u, m, from, to, n);
    int error = errno;
    if (!done) u->member = NULL;
    pthread_mutex_unlock(&u->lock);
    errno = error;
    return done;
}

Err npz_read(const Catalog *c, const CatalogEntry *e, int64_t from, void *to, size_t n) {
    return unpack_locked(c, e->member, e->member->header + from, to, n) ? E_OK : E_IO;
}

Err npz_check(const CatalogEntry *e, const void *bytes) {
    errno = 0;
    uLong crc = crc32_z(e->member->header_crc, bytes, (size_t)e->bytes);
    return crc == e->member->crc ? E_OK : E_IO;
}

/* ---- the directory ---- */

/* Replaces sizes that are all ones by those in the extra field for 64 bits, in the order of `size`;
 * false where they are missing. */
static bool widen(const uint8_t *extra, size_t n, int64_t *size[], int count) {
    const uint8_t *field = NULL, *end = extra + n;
    size_t left = 0;
    while ((size_t)(end - extra) >= 4) {
        size_t length = number(extra + 2, 2);
        if (length > (size_t)(end - extra) - 4) return false;
        if (number(extra, 2) == 1) field = extra + 4, left = length;
        extra += 4 + length;
    }
    for (int i = 0; i < count; i++) {
        if (*size[i] != UINT32_MAX) continue;
        if (!field) return false;
        if (left < 8) return false;
        *size[i] = (int64_t)number(field, 8);
        if (*size[i] < 0) return false;
        field += 8, left -= 8;
    }
    return true;
}

/* Where the directory is, and how many rows it has. */
typedef struct NpzDirectory {
    int64_t begin, bytes, count, end; /* `end`: where what must stand behind it begins */
} NpzDirectory;

static Err find_end64(Catalog *c, NpzDirectory *d) {
    uint8_t locator[LOCATOR], end[END64];
    if (d->end < LOCATOR + END64) return catalog_broken(c, NULL, "the directory's end is damaged");
    TRY(catalog_bytes(c, d->end - LOCATOR, locator, LOCATOR));
    if (memcmp(locator, "PK\6\7", 4) != 0) return E_OK;
    d->end -= LOCATOR + END64;
    if (number(locator + 8, 8) != (uint64_t)d->end)
        return catalog_broken(c, NULL, "the directory's end of 64 bits is not where it should be");
    TRY(catalog_bytes(c, d->end, end, END64));
    if (memcmp(end, "PK\6\6", 4) != 0 || number(end + 4, 8) != END64 - 12)
        return catalog_broken(c, NULL, "the directory's end of 64 bits is damaged");
    d->count = (int64_t)number(end + 32, 8);
    d->bytes = (int64_t)number(end + 40, 8);
    d->begin = (int64_t)number(end + 48, 8);
    return E_OK;
}

static Err find_directory(Catalog *c, NpzDirectory *d) {
    int64_t n = c->size < END + COMMENT ? c->size : END + COMMENT, at = n - END;
    uint8_t *tail = arena_alloc(&c->arena, (size_t)n + 1);
    if (!tail) return err_nomem(c->cx, "a file's directory");
    TRY(catalog_bytes(c, c->size - n, tail, (size_t)n));
    while (at >= 0 && !(memcmp(tail + at, "PK\5\6", 4) == 0 &&
                        (int64_t)number(tail + at + 20, 2) == n - at - END))
        at--;
    if (at < 0)
        return catalog_broken(c, NULL, "it is no whole zip file: the directory's end is missing");
    const uint8_t *p = tail + at;
    d->end = c->size - n + at;
    d->count = (int64_t)number(p + 10, 2);
    d->bytes = (int64_t)number(p + 12, 4);
    d->begin = (int64_t)number(p + 16, 4);
    if (number(p + 4, 4) != 0) return catalog_broken(c, NULL, "it is one of several parts");
    bool wide = d->count == UINT16_MAX || d->bytes == UINT32_MAX || d->begin == UINT32_MAX;
    if (wide) TRY(find_end64(c, d));
    if (d->begin < 0 || d->bytes < 0 || d->begin > d->end || d->bytes != d->end - d->begin)
        return catalog_broken(c, NULL, "the directory's place and length do not fit the file");
    if (d->bytes > DIRECTORY_MOST)
        return catalog_broken(c, NULL, "a directory of %lld bytes; at most %lld are read",
                              (long long)d->bytes, (long long)DIRECTORY_MOST);
    if (d->count < 0 || d->count > d->bytes / CENTRAL)
        return catalog_broken(c, NULL, "%lld members in a directory of %lld bytes",
                              (long long)d->count, (long long)d->bytes);
    return E_OK;
}

static Err check_member(Catalog *c, const NpzMember *m, int64_t limit) {
    if (m->flags & ENCRYPTED) return catalog_broken(c, m->name, "it is encrypted");
    if (m->flags & ~(uint32_t)KNOWN) return catalog_broken(c, m->name, "unknown flags of zip");
    if (m->method != STORED && m->method != DEFLATED)
        return catalog_broken(c, m->name, "packed by method %u; only deflate is read", m->method);
    if (m->stored < 0 || m->size < 0 || m->at < 0 || m->at > limit || m->stored > limit - m->at)
        return catalog_broken(c, m->name, "it ends beyond the file's members");
    if (m->method == STORED && m->stored != m->size)
        return catalog_broken(c, m->name, "%lld bytes, stored as %lld", (long long)m->size,
                              (long long)m->stored);
    if (m->size / RATIO > m->stored)
        return catalog_broken(c, m->name, "%lld bytes, deflated to %lld, which no deflate does",
                              (long long)m->size, (long long)m->stored);
    return E_OK;
}

/* The row at `p`, of n bytes that are left of the directory. */
static Err read_row(Catalog *c, NpzMember *m, const uint8_t *p, int64_t n, int64_t limit,
                    int64_t *length) {
    if (n < CENTRAL || memcmp(p, "PK\1\2", 4) != 0)
        return catalog_broken(c, NULL, "the directory is damaged");
    size_t name = number(p + 28, 2), extra = number(p + 30, 2), comment = number(p + 32, 2);
    *length = CENTRAL + (int64_t)(name + extra + comment);
    if (*length > n) return catalog_broken(c, NULL, "the directory is damaged");
    char *copy = arena_alloc(&c->arena, name + 1);
    if (!copy) return err_nomem(c->cx, "a member's name");
    memcpy(copy, p + CENTRAL, name);
    m->name = copy;
    m->flags = (uint32_t)number(p + 8, 2);
    m->method = (uint32_t)number(p + 10, 2);
    m->crc = (uint32_t)number(p + 16, 4);
    m->stored = (int64_t)number(p + 20, 4);
    m->size = (int64_t)number(p + 24, 4);
    m->at = (int64_t)number(p + 42, 4);
    if (strlen(copy) != name) return catalog_broken(c, m->name, "a NUL in its name");
    if (!widen(p + CENTRAL + name, extra, (int64_t *[]){&m->size, &m->stored, &m->at}, 3))
        return catalog_broken(c, m->name, "its sizes of 64 bits are missing");
    return check_member(c, m, limit);
}

static Err read_directory(Catalog *c, const NpzDirectory *d, NpzMember *m) {
    uint8_t *rows = alloc_resize(&c->cx->alloc, NULL, 0, (size_t)d->bytes + 1);
    if (!rows) return err_nomem(c->cx, "a file's directory");
    Err e = catalog_bytes(c, d->begin, rows, (size_t)d->bytes);
    int64_t at = 0, length = 0;
    for (int64_t i = 0; i < d->count && !e; i++, at += length)
        e = read_row(c, &m[i], rows + at, d->bytes - at, d->begin, &length);
    if (!e && at != d->bytes)
        e = catalog_broken(c, NULL, "the directory holds more than its %lld members",
                           (long long)d->count);
    alloc_free(&c->cx->alloc, rows, (size_t)d->bytes + 1);
    return e;
}

/* ---- members ---- */

static int by_offset(const void *a, const void *b) {
    const NpzMember *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* A member's own header must say what the directory says. */
static Err read_local(Catalog *c, NpzMember *m, int64_t limit) {
    uint8_t p[LOCAL];
    size_t known = strlen(m->name);
    TRY(catalog_bytes(c, m->at, p, LOCAL));
    size_t name = number(p + 26, 2), extra = number(p + 28, 2);
    m->begin = m->at + LOCAL + (int64_t)(name + extra);
    if (memcmp(p, "PK\3\4", 4) != 0 || name != known || number(p + 8, 2) != m->method ||
        number(p + 6, 2) != m->flags)
        return catalog_broken(c, m->name, "its header is not what the directory says");
    if (m->begin > limit || m->stored > limit - m->begin)
        return catalog_broken(c, m->name, "it ends beyond the file's members");
    char *rest = arena_alloc(&c->arena, name + extra + 1);
    if (!rest) return err_nomem(c->cx, "a member's name");
    TRY(catalog_bytes(c, m->at + LOCAL, rest, name + extra));
    int64_t stored = (int64_t)number(p + 18, 4), size = (int64_t)number(p + 22, 4);
    bool wide = widen((uint8_t *)rest + name, extra, (int64_t *[]){&size, &stored}, 2);
    bool same = wide && size == m->size && stored == m->stored && number(p + 14, 4) == m->crc;
    if (memcmp(rest, m->name, name) != 0 || (!same && !(m->flags & DESCRIPTOR)))
        return catalog_broken(c, m->name, "its header is not what the directory says");
    return E_OK;
}

/* Bytes of the member as they were packed, from its begin. */
static Err member_bytes(Catalog *c, const NpzMember *m, char *to, size_t n) {
    if (m->method == STORED) return catalog_bytes(c, m->begin, to, n);
    TRY(start_unpacking(c));
    if (unpack_locked(c, m, 0, to, n)) return E_OK;
    if (errno) return err_set(c->cx, E_IO, "%s: %s", c->path, strerror(errno));
    return catalog_broken(c, m->name, "it does not unpack: it is damaged");
}

static Err read_member(Catalog *c, CatalogEntry *e, NpzMember *m) {
    char prefix[NPY_PREFIX], *name;
    size_t length = strlen(m->name), size = 0;
    size_t n = m->size < NPY_PREFIX ? (size_t)m->size : NPY_PREFIX;
    if (length < 5 || strcmp(m->name + length - 4, ".npy") != 0)
        return catalog_broken(c, m->name, "it is no npy file: its name does not end in .npy");
    e->name = name = arena_copy(&c->arena, m->name, length + 1);
    if (!name) return err_nomem(c->cx, "a member's name");
    name[length - 4] = '\0';
    TRY(member_bytes(c, m, prefix, n));
    TRY(npy_header_size(c, name, prefix, n, &size));
    if ((int64_t)size > m->size) return catalog_broken(c, name, "it ends in its header");
    char *head = arena_alloc(&c->arena, size);
    if (!head) return err_nomem(c->cx, "a file's header");
    TRY(member_bytes(c, m, head, size));
    TRY(npy_header(c, e, head, size));
    m->header = (int64_t)size;
    m->header_crc = (uint32_t)crc32_z(0, (const Bytef *)head, size);
    e->member = m;
    e->packed = m->method == DEFLATED;
    e->begin = m->begin + (e->packed ? 0 : m->header);
    if (e->bytes == m->size - m->header) return E_OK;
    return catalog_broken(c, name, "%lld bytes behind the header, its shape and dtype have %lld",
                          (long long)(m->size - m->header), (long long)e->bytes);
}

/* Members follow each other: nothing else hides between them. */
static Err read_members(Catalog *c, const NpzDirectory *d, NpzMember *m) {
    int64_t at = 0;
    for (int64_t i = 0; i < d->count; i++) {
        int64_t gap = m[i].at - at;
        if (gap < 0 || gap > (i && m[i - 1].flags & DESCRIPTOR ? DESCRIBED : 0))
            return catalog_broken(c, m[i].name,
                                  gap < 0 ? "members overlap" : "a hole ahead of the member");
        TRY(read_local(c, &m[i], d->begin));
        TRY(read_member(c, &c->entry[i], &m[i]));
        at = m[i].begin + m[i].stored;
    }
    if (d->begin - at > (d->count && m[d->count - 1].flags & DESCRIPTOR ? DESCRIBED : 0))
        return catalog_broken(c, NULL, "a hole ahead of the directory");
    return E_OK;
}

Err npz_open(Catalog *c) {
    NpzDirectory d = {0};
    TRY(find_directory(c, &d));
    NpzMember *m = ARENA_ARRAY(&c->arena, NpzMember, d.count + 1);
    c->entry = ARENA_ARRAY(&c->arena, CatalogEntry, d.count + 1);
    if (!m || !c->entry) return err_nomem(c->cx, "a list of tensors");
    TRY(read_directory(c, &d, m));
    if (d.count) qsort(m, (size_t)d.count, sizeof *m, by_offset);
    TRY(read_members(c, &d, m));
    c->count = (int32_t)d.count;
    return catalog_check_names(c);
}
