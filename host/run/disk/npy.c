#include "run/disk/npy.h"
#include "base/plain.h"
#include "run/disk/catalog_reader.h"

#include <string.h>

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6, HEADER_MOST = 65536 };
static const char alone[] = "arr_0"; /* numpy's word for a tensor without a name */

/* ---- the dict: what Python's repr gives of one, and no other expression ---- */
typedef struct NpyText {
    const char *at, *end;
} NpyText;

static void skip_spaces(NpyText *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n')) s->at++;
}

/* Is this character next? Then it is behind us. */
static bool took(NpyText *s, char c) {
    skip_spaces(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool took_word(NpyText *s, const char *word) {
    size_t n = strlen(word);
    skip_spaces(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* A text in quotes, of at most 31 plain characters. */
static bool took_text(NpyText *s, char out[32]) {
    skip_spaces(s);
    if (s->at == s->end || (*s->at != '\'' && *s->at != '"')) return false;
    char quote = *s->at++;
    int n = 0;
    for (; s->at < s->end && *s->at != quote; s->at++) {
        if (n == 31 || *s->at == '\\' || (unsigned char)*s->at < ' ') return false;
        out[n++] = *s->at;
    }
    out[n] = '\0';
    return s->at++ < s->end;
}

static bool took_number(NpyText *s, int64_t *out) {
    skip_spaces(s);
    const char *first = s->at;
    for (*out = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        *out = *out * 10 + (*s->at - '0');
        if (*out > DIMS_MOST) return false;
    }
    return s->at > first;
}

static Err took_shape(Catalog *c, CatalogEntry *e, NpyText *s) {
    int64_t size;
    bool comma = false;
    if (!took(s, '(')) return catalog_broken(c, e->name, "its shape is no tuple");
    while (!took(s, ')')) {
        if (e->dims.rank && !comma)
            return catalog_broken(c, e->name, "its shape is no tuple of numbers");
        if (e->dims.rank == MAX_RANK)
            return catalog_broken(c, e->name, "more than %d dims", MAX_RANK);
        if (!took_number(s, &size))
            return catalog_broken(c, e->name, "dim %d is no whole number from 0 to 2^56",
                                  e->dims.rank + 1);
        dims_push(&e->dims, size);
        comma = took(s, ',');
    }
    if (e->dims.rank == 1 && !comma) return catalog_broken(c, e->name, "its shape is no tuple");
    return E_OK;
}

/* An encoding of which the size alone is known: it is listed, and not read. NULL: unknown. */
static const Encoding *foreign(Catalog *c, const char *descr) {
    Encoding *encoding = ARENA_NEW(&c->arena, Encoding);
    char *name = arena_strdup(&c->arena, descr);
    bool order = strchr("<>|=", descr[0]) != NULL;
    const char kind = descr[order];
    int64_t size = 0;
    const char *p = descr + order + 1;
    if (!encoding || !name || !kind || !strchr("fiubcSUVmM", kind)) return NULL;
    if (*p < '0' || *p > '9') return NULL;
    for (; *p >= '0' && *p <= '9'; p++) {
        size = size * 10 + (*p - '0');
        if (size > 1 << 20) return NULL;
    }
    if (*p && !((kind == 'm' || kind == 'M') && *p == '[' && strchr(p, ']') == p + strlen(p) - 1))
        return NULL;
    *encoding = (Encoding){name, -1, 1, (int32_t)size * (kind == 'U' ? 4 : 1), -1, false, NULL};
    return encoding;
}

static Err took_descr(Catalog *c, CatalogEntry *e, NpyText *s, const Encoding **out) {
    char descr[32], plain[34], shown[CATALOG_QUOTED];
    if (took(s, '['))
        return catalog_broken(c, e->name, "a structured dtype, which is not read: it is no tensor");
    if (!took_text(s, descr)) return catalog_broken(c, e->name, "descr is no text");
    bool order = descr[0] && strchr("<|=", descr[0]);
    bool big = descr[0] == '>';
    const char *kind = descr + (order || big);
    bool byte = strcmp(kind, "b1") == 0 || strcmp(kind, "u1") == 0 || strcmp(kind, "i1") == 0;
    if (kind[0] == 'O')
        return catalog_broken(c, e->name,
                              "it holds Python's objects, which are not read: they are "
                              "a program, not numbers");
    memcpy(plain, byte ? "|" : "<", 1);
    memcpy(plain + 1, kind, strlen(kind) + 1);
    *out = big && !byte ? NULL : catalog_encoding_of_npy(plain);
    if (!*out) *out = foreign(c, descr);
    return *out ? E_OK
                : catalog_broken(c, e->name, "an unknown dtype %s", catalog_quote(descr, shown));
}

/* One field; `seen` has a bit for each that has come. */
static Err took_field(Catalog *c, CatalogEntry *e, NpyText *s, const Encoding **encoding,
                      int *seen) {
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    char key[32];
    int which = 0;
    if (!took_text(s, key) || !took(s, ':'))
        return catalog_broken(c, e->name, "the header is no dict of texts");
    while (which < 3 && strcmp(names[which], key) != 0) which++;
    if (which == 3)
        return catalog_broken(c, e->name,
                              "the header has a field that is none of descr, "
                              "fortran_order, shape");
    if (*seen & 1 << which) return catalog_broken(c, e->name, "the header has %s twice", key);
    *seen |= 1 << which;
    if (which == 0) return took_descr(c, e, s, encoding);
    if (which == 2) return took_shape(c, e, s);
    e->column_major = took_word(s, "True");
    if (e->column_major || took_word(s, "False")) return E_OK;
    return catalog_broken(c, e->name, "fortran_order is neither True nor False");
}

Err npy_header_size(Catalog *c, const char *name, const char *head, size_t n, size_t *size) {
    const uint8_t *p = (const uint8_t *)head;
    if (n < 10 || memcmp(head, magic, MAGIC) != 0)
        return catalog_broken(c, name, "it does not begin as npy files do");
    int version = p[6];
    if (version < 1 || version > 3 || p[7] != 0)
        return catalog_broken(c, name, "npy of version %d.%d; 1.0, 2.0 and 3.0 are read", p[6],
                              p[7]);
    size_t length = (size_t)p[8] | (size_t)p[9] << 8;
    if (version > 1 && n < 12) return catalog_broken(c, name, "the file ends in its header");
    if (version > 1) length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (length > HEADER_MOST)
        return catalog_broken(c, name, "a header of %zu bytes; at most %d are read", length,
                              HEADER_MOST);
    *size = length + (version > 1 ? 12 : 10);
    return E_OK;
}

Err npy_header(Catalog *c, CatalogEntry *e, const char *head, size_t size) {
    NpyText s = {head + (head[6] > 1 ? 12 : 10), head + size};
    const Encoding *encoding = NULL;
    int seen = 0;
    bool comma = true;
    if (!took(&s, '{')) return catalog_broken(c, e->name, "the header is no dict");
    while (!took(&s, '}')) {
        if (!comma) return catalog_broken(c, e->name, "the header is no dict");
        TRY(took_field(c, e, &s, &encoding, &seen));
        comma = took(&s, ',');
    }
    if (seen != 7)
        return catalog_broken(c, e->name, "the header lacks one of descr, fortran_order, shape");
    skip_spaces(&s);
    if (s.at != s.end) return catalog_broken(c, e->name, "the header holds more than its dict");
    if (e->dims.rank < 2) e->column_major = false;
    return catalog_size_entry(c, e, encoding);
}

Err npy_open(Catalog *c) {
    enum { ROOM = HEADER_MOST + NPY_PREFIX };
    size_t size = 0, n = c->size < NPY_PREFIX ? (size_t)c->size : NPY_PREFIX;
    char prefix[NPY_PREFIX];
    c->entry = ARENA_NEW(&c->arena, CatalogEntry);
    if (!c->entry) return err_nomem(c->cx, "a list of tensors");
    c->count = 1;
    c->entry->name = alone;
    TRY(catalog_bytes(c, 0, prefix, n));
    TRY(npy_header_size(c, alone, prefix, n, &size));
    if ((int64_t)size > c->size) return catalog_broken(c, alone, "the file ends in its header");
    char *head = arena_alloc(&c->arena, size);
    if (!head) return err_nomem(c->cx, "a file's header");
    TRY(catalog_bytes(c, 0, head, size));
    TRY(npy_header(c, c->entry, head, size));
    c->entry->begin = (int64_t)size;
    if (c->entry->bytes == c->size - (int64_t)size) return E_OK;
    return catalog_broken(c, alone, "%lld bytes behind the header, its shape and dtype have %lld",
                          (long long)(c->size - (int64_t)size), (long long)c->entry->bytes);
}

/* ---- writing ---- */

Err npy_put_header(Ctx *cx, Str *to, const Encoding *encoding, const Dims *dims) {
    enum { ALIGN = 64, PREFIX = 10, GROW = 21 }; /* numpy leaves room for a first dim that grows */
    if (!encoding->npy)
        return err_set(cx, E_DTYPE, "numpy has no dtype %s; save it as another, such as float32",
                       encoding->name);
    size_t start = to->n;
    str_put_n(to, "\x93NUMPY\1\0\0\0", PREFIX);
    str_fmt(to, "{'descr': '%s', 'fortran_order': False, 'shape': (", encoding->npy);
    for (int d = 0; d < dims->rank; d++)
        str_fmt(to, "%s%lld", d ? ", " : "", (long long)dims->at[d]);
    str_put(to, dims->rank == 1 ? ",), }" : "), }");
    if (dims->rank) {
        char digits[GROW + 1];
        int n = plain_format(digits, sizeof digits, "%lld", (long long)dims->at[0]);
        for (; n < GROW; n++) str_put(to, " ");
    }
    size_t pad = ALIGN - (to->n - start + 1) % ALIGN;
    for (size_t i = 0; i < pad; i++) str_put(to, " ");
    str_put(to, "\n");
    if (to->failed) return err_nomem(cx, "a file's header");
    size_t length = to->n - start - PREFIX;
    to->at[start + 8] = (char)(length & 255);
    to->at[start + 9] = (char)(length >> 8);
    return E_OK;
}

Err npy_lay_out(Catalog *c, Str *header) {
    CatalogEntry *e = c->entry;
    if (c->count != 1 || c->nmeta)
        return err_set(c->cx, E_VALUE,
                       "an npy file holds one tensor and nothing else; npz holds "
                       "several");
    const Encoding *encoding = catalog_encoding(e->encoding);
    if (!encoding) return err_set(c->cx, E_DTYPE, "numpy has no dtype %s", e->encoding);
    TRY(catalog_size_entry(c, e, encoding));
    size_t start = header->n;
    TRY(npy_put_header(c->cx, header, encoding, &e->dims));
    e->begin = (int64_t)(header->n - start);
    c->size = e->begin + e->bytes;
    return E_OK;
}
