#include "run/disk/catalog_reader.h"
#include "base/file.h"
#include "base/map.h"
#include "base/plain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *catalog_quote(const char *name, char out[CATALOG_QUOTED]) {
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    out[n++] = '"';
    for (; *name && n < CATALOG_QUOTED - 9; name++) {
        unsigned char c = (unsigned char)*name;
        if (c >= ' ' && c < 0x7f) {
            out[n++] = (char)c;
            continue;
        }
        memcpy(out + n, (char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4);
        n += 4;
    }
    memcpy(out + n, *name ? "...\"" : "\"", *name ? 5 : 2);
    return out;
}

Err catalog_broken(Catalog *c, const char *tensor, const char *fmt, ...) {
    char why[512], name[CATALOG_QUOTED];
    va_list list;
    va_start(list, fmt);
    plain_vformat(why, sizeof why, fmt, list);
    va_end(list);
    ErrCode code = c->fd < 0 ? E_VALUE : E_PARSE; /* it is to be written: who asks is wrong */
    if (!tensor) return err_set(c->cx, code, "%s: %s", c->path, why);
    return err_set(c->cx, code, "%s: tensor %s: %s", c->path, catalog_quote(tensor, name), why);
}

/* ---- bytes ---- */

Err catalog_bytes(Catalog *c, int64_t at, void *to, size_t n) {
    int64_t got = file_read_at(c->fd, to, n, at);
    if (got < 0) return err_set(c->cx, E_IO, "%s: %s", c->path, strerror(errno));
    if (got == (int64_t)n) return E_OK;
    return catalog_broken(c, NULL, "the file ends at byte %lld, inside what must be there",
                          (long long)(at + got));
}

Err catalog_read_failed(Ctx *cx, const Catalog *c, int32_t entry, int error) {
    char name[CATALOG_QUOTED];
    const CatalogEntry *e = &c->entry[entry];
    return err_set(cx, E_IO, "%s: tensor %s: %s", c->path, catalog_quote(e->name, name),
                   error ? strerror(error)
                   : e->member
                       ? "its bytes are damaged, or the file has changed since it was opened"
                       : "the file has become shorter since it was opened");
}

Err catalog_can_read(Ctx *cx, const Catalog *c, int32_t entry) {
    char name[CATALOG_QUOTED];
    const CatalogEntry *e = &c->entry[entry];
    if (e->dtype >= 0) return E_OK;
    return err_set(cx, E_UNSUPPORTED,
                   "%s: tensor %s is %s, which is not read: no dtype here holds it; the program "
                   "that wrote it may write another",
                   c->path, catalog_quote(e->name, name), e->encoding);
}

/* ---- what readers share ---- */

Err catalog_size_entry(Catalog *c, CatalogEntry *e, const Encoding *encoding) {
    int64_t count = dims_count(&e->dims); /* 2^56 at most: no number of bytes overflows */
    if (count < 0)
        return catalog_broken(c, e->name, "the product of its dims is more than 2^56 elements");
    if (count % encoding->block)
        return catalog_broken(
            c, e->name, "%lld elements are no whole number of %s's %s %d", (long long)count,
            encoding->name, encoding->block_bytes == 1 ? "bytes of" : "blocks of", encoding->block);
    e->encoding = encoding->name;
    e->dtype = encoding->dtype;
    e->block = encoding->block;
    e->block_bytes = encoding->block_bytes;
    e->bytes = count / encoding->block * encoding->block_bytes;
    return E_OK;
}

static bool same_entry(const void *ud, const void *probe, int32_t value) {
    return strcmp(((const Catalog *)ud)->entry[value].name, probe) == 0;
}

static bool same_key(const void *ud, const void *probe, int32_t value) {
    return strcmp(((const Catalog *)ud)->meta[value].key, probe) == 0;
}

Err catalog_check_names(Catalog *c) {
    char name[CATALOG_QUOTED];
    Map entries = {.n = 0}, keys = {.n = 0};
    for (int32_t i = 0; i < c->count; i++) {
        const char *s = c->entry[i].name;
        uint64_t h = hash_str(0, s);
        if (map_find(&entries, h, same_entry, c, s) >= 0)
            return catalog_broken(c, s, "the name stands there twice");
        if (!map_add(&c->arena, &entries, h, i)) return err_nomem(c->cx, "a list of tensors");
    }
    for (int32_t i = 0; i < c->nmeta; i++) {
        const char *s = c->meta[i].key;
        uint64_t h = hash_str(0, s);
        if (map_find(&keys, h, same_key, c, s) >= 0)
            return catalog_broken(c, NULL, "the metadata has the key %s twice",
                                  catalog_quote(s, name));
        if (!map_add(&c->arena, &keys, h, i)) return err_nomem(c->cx, "metadata");
    }
    return E_OK;
}

/* Those without bytes come before what begins at the same place. */
static int by_place(const void *a, const void *b) {
    const CatalogEntry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

void catalog_sort(Catalog *c) {
    if (c->count) qsort(c->entry, (size_t)c->count, sizeof *c->entry, by_place);
}

static int64_t take(const char *p, size_t n) {
    uint64_t x = 0;
    memcpy(&x, p, n); /* little-endian, as all that is read here */
    return (int64_t)x;
}

CatalogValue catalog_value(const Catalog *c, MetaType type, int64_t *at) {
    static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
    const char *p = c->head.at + *at;
    CatalogValue v = {.type = META_I64, .integer = take(p, size[type])};
    float single;
    *at += size[type];
    switch (type) {
    case META_I8: v.integer = (int8_t)v.integer; break;
    case META_I16: v.integer = (int16_t)v.integer; break;
    case META_I32: v.integer = (int32_t)v.integer; break;
    case META_BOOL: v.type = META_BOOL; break;
    case META_U64:
        if (v.integer >= 0) break;
        v.type = META_F64;
        v.real = (double)(uint64_t)v.integer;
        break;
    case META_F32:
        memcpy(&single, p, 4);
        v.type = META_F64;
        v.real = single;
        break;
    case META_F64:
        v.type = META_F64;
        memcpy(&v.real, p, 8);
        break;
    case META_STRING:
        v.type = META_STRING;
        v.text = p + 8;
        v.length = (size_t)v.integer;
        *at += v.integer;
        break;
    default: break;
    }
    return v;
}

void catalog_put_string(Catalog *c, const char *text, size_t n) {
    uint64_t length = n;
    str_put_n(&c->head, (const char *)&length, sizeof length);
    str_put_n(&c->head, text, n);
}
