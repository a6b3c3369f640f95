/* gguf.c - GGUF of version 2 and 3: counts, metadata, what tensors there are, then their bytes,
 * each at a multiple of an alignment. Dims stand innermost first in the file. */
#include "base/vec.h"
#include "run/disk/catalog_reader.h"

#include <string.h>

enum {
    DIMS_OF_GGUF = 4,
    NAME_MOST = 64, /* bytes; llama.cpp reads one less, which is what is written */
    KEY_MOST = 65535,
    VALUE_LEAST = 13,  /* bytes of a key, a type and a value at least, */
    TENSOR_LEAST = 24, /* and of what is said of a tensor */
    ALIGNMENT = 32,    /* where none is said */
    CHUNK = 1 << 16,
    HEAD_MOST = 1 << 28 /* bytes ahead of the tensors' */
};
static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* by MetaType */
static const char alignment_key[] = "general.alignment";

/* ---- reading: the head grows as far as it is asked for ---- */
typedef struct GgufText {
    Catalog *c;
    int64_t at; /* in the head: what is ahead of it has been read */
    uint64_t alignment;
    VEC(CatalogEntry) entry;
    VEC(CatalogMeta) meta;
} GgufText;

/* Makes sure that n more bytes are there. */
static Err want(GgufText *g, uint64_t n) {
    Catalog *c = g->c;
    uint64_t have = c->head.n - (uint64_t)g->at, left = (uint64_t)c->size - c->head.n;
    if (n <= have) return E_OK;
    if (n - have > left)
        return catalog_broken(c, NULL,
                              "the header at byte %lld asks for %llu bytes more than the "
                              "file has",
                              (long long)g->at, (unsigned long long)(n - have - left));
    if (c->head.n + (n - have) > HEAD_MOST)
        return catalog_broken(c, NULL, "a header of more than %d bytes", HEAD_MOST);
    uint64_t more = n - have > CHUNK ? n - have : CHUNK;
    if (more > left) more = left;
    int64_t from = (int64_t)c->head.n;
    char *to = str_extend(&c->head, more);
    return to ? catalog_bytes(c, from, to, more) : err_nomem(c->cx, "a file's header");
}

/* The next number of n bytes. */
static Err take(GgufText *g, int n, uint64_t *out) {
    TRY(want(g, (uint64_t)n));
    *out = 0;
    memcpy(out, g->c->head.at + g->at, (size_t)n);
    g->at += n;
    return E_OK;
}

/* The next string, as a copy without a NUL in it. */
static Err take_name(GgufText *g, const char *what, uint64_t most, const char **out) {
    uint64_t n;
    char shown[CATALOG_QUOTED];
    TRY(take(g, 8, &n));
    TRY(want(g, n));
    char *copy = n <= most ? arena_alloc(&g->c->arena, n + 1) : NULL;
    if (n == 0 || n > most)
        return catalog_broken(g->c, NULL, "%s of %llu bytes; 1 to %llu are allowed", what,
                              (unsigned long long)n, (unsigned long long)most);
    if (!copy) return err_nomem(g->c->cx, "a file's header");
    memcpy(copy, g->c->head.at + g->at, n);
    g->at += (int64_t)n;
    *out = copy;
    if (strlen(copy) == n) return E_OK;
    return catalog_broken(g->c, NULL, "a NUL in %s, behind %s", what, catalog_quote(copy, shown));
}

/* Passes over so many values of the type. */
static Err skip_values(GgufText *g, CatalogMeta *m, uint64_t count) {
    char shown[CATALOG_QUOTED];
    uint64_t n;
    if (count > (uint64_t)g->c->size)
        return catalog_broken(
            g->c, NULL, "the metadata's %s has %llu values, in a file of %lld bytes",
            catalog_quote(m->key, shown), (unsigned long long)count, (long long)g->c->size);
    if (m->type != META_STRING) TRY(want(g, count * sizes[m->type]));
    for (uint64_t i = 0; i < count && m->type == META_STRING; i++) {
        TRY(take(g, 8, &n));
        TRY(want(g, n));
        g->at += (int64_t)n;
    }
    for (uint64_t i = 0; i < count && m->type == META_BOOL; i++)
        if ((uint8_t)g->c->head.at[g->at + (int64_t)i] > 1)
            return catalog_broken(g->c, NULL, "the metadata's %s is neither true nor false",
                                  catalog_quote(m->key, shown));
    g->at += (int64_t)(count * sizes[m->type]);
    return E_OK;
}

static Err read_meta(GgufText *g) {
    CatalogMeta m = {.count = 1};
    char shown[CATALOG_QUOTED];
    uint64_t type, count = 1;
    TRY(take_name(g, "a key of the metadata", KEY_MOST, &m.key));
    TRY(take(g, 4, &type));
    m.list = type == META_LIST;
    if (m.list) {
        TRY(take(g, 4, &type));
        TRY(take(g, 8, &count));
    }
    if (type > META_F64 || type == META_LIST)
        return catalog_broken(g->c, NULL, "the metadata's %s is of type %llu, which is %s",
                              catalog_quote(m.key, shown), (unsigned long long)type,
                              type == META_LIST ? "a list in a list" : "unknown");
    m.type = (MetaType)type;
    m.at = g->at;
    TRY(skip_values(g, &m, count));
    m.count = (int64_t)count;
    if (strcmp(m.key, alignment_key) == 0) {
        if (m.list || m.type != META_U32)
            return catalog_broken(g->c, NULL, "%s is no number of 32 bits", alignment_key);
        int64_t at = m.at;
        g->alignment = (uint64_t)catalog_value(g->c, META_U32, &at).integer;
        if (g->alignment == 0 || (g->alignment & (g->alignment - 1)))
            return catalog_broken(g->c, NULL, "%s is %llu, no power of two", alignment_key,
                                  (unsigned long long)g->alignment);
    }
    return VEC_PUSH(&g->c->arena, &g->meta, m) ? E_OK : err_nomem(g->c->cx, "metadata");
}

static Err read_dims(GgufText *g, CatalogEntry *e) {
    uint64_t rank, size;
    TRY(take(g, 4, &rank));
    if (rank > DIMS_OF_GGUF)
        return catalog_broken(g->c, e->name, "%llu dims; GGUF has at most %d",
                              (unsigned long long)rank, DIMS_OF_GGUF);
    e->dims.rank = (int32_t)rank;
    for (int d = (int)rank - 1; d >= 0; d--) {
        TRY(take(g, 8, &size));
        if (size > (uint64_t)DIMS_MOST)
            return catalog_broken(g->c, e->name, "a dim of %llu; at most 2^56",
                                  (unsigned long long)size);
        e->dims.at[d] = (int64_t)size;
    }
    return E_OK;
}

static Err read_tensor(GgufText *g) {
    CatalogEntry e = {.name = ""};
    uint64_t type, offset;
    TRY(take_name(g, "a tensor's name", NAME_MOST, &e.name));
    TRY(read_dims(g, &e));
    TRY(take(g, 4, &type));
    TRY(take(g, 8, &offset));
    const Encoding *encoding = catalog_encoding_of_gguf((uint32_t)type);
    if (!encoding)
        return catalog_broken(g->c, e.name, "an unknown type, number %llu",
                              (unsigned long long)type);
    if (encoding->block > 1 && (!e.dims.rank || e.dims.at[e.dims.rank - 1] % encoding->block))
        return catalog_broken(g->c, e.name, "its innermost dim is no multiple of %s's block of %d",
                              encoding->name, encoding->block);
    if (offset > (uint64_t)g->c->size)
        return catalog_broken(g->c, e.name, "it begins at byte %llu of a file of %lld",
                              (unsigned long long)offset, (long long)g->c->size);
    e.begin = (int64_t)offset;
    TRY(catalog_size_entry(g->c, &e, encoding));
    return VEC_PUSH(&g->c->arena, &g->entry, e) ? E_OK : err_nomem(g->c->cx, "a list of tensors");
}

static uint64_t aligned(uint64_t n, uint64_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

/* Tensors follow each other, each at the next multiple of the alignment; the last may lack its
 * padding. */
static Err check_places(GgufText *g) {
    Catalog *c = g->c;
    uint64_t data = aligned((uint64_t)g->at, g->alignment), end = 0;
    catalog_sort(c);
    for (int32_t i = 0; i < c->count; i++) {
        CatalogEntry *e = &c->entry[i];
        uint64_t place = aligned(end, g->alignment);
        if ((uint64_t)e->begin != place)
            return catalog_broken(c, e->name, "%s: it begins at %lld, and should at %llu",
                                  (uint64_t)e->begin < place ? "tensors overlap"
                                                             : "a hole between tensors",
                                  (long long)e->begin, (unsigned long long)place);
        end = place + (uint64_t)e->bytes; /* both below 2^63 */
        e->begin += (int64_t)data;
        if (data + end > (uint64_t)c->size)
            return catalog_broken(c, e->name, "it ends at byte %llu, the file at byte %lld",
                                  (unsigned long long)(data + end), (long long)c->size);
    }
    if ((uint64_t)c->size > data + aligned(end, g->alignment))
        return catalog_broken(c, NULL, "bytes behind the last tensor, which ends at byte %llu",
                              (unsigned long long)(data + end));
    return E_OK;
}

static Err read_counts(GgufText *g, uint64_t *tensors, uint64_t *values) {
    uint64_t version;
    g->at = 4;
    TRY(take(g, 4, &version));
    if (version != 2 && version != 3)
        return catalog_broken(g->c, NULL, "GGUF of version %llu%s; 2 and 3 are read",
                              (unsigned long long)version,
                              version && version << 40 == 0 ? ", or its bytes in reverse" : "");
    TRY(take(g, 8, tensors));
    TRY(take(g, 8, values));
    uint64_t size = (uint64_t)g->c->size;
    if (*tensors > size / TENSOR_LEAST || *values > size / VALUE_LEAST)
        return catalog_broken(g->c, NULL, "%llu tensors and %llu values, in a file of %llu bytes",
                              (unsigned long long)*tensors, (unsigned long long)*values,
                              (unsigned long long)size);
    return E_OK;
}

Err gguf_open(Catalog *c) {
    GgufText g = {.c = c, .alignment = ALIGNMENT};
    uint64_t tensors = 0, values = 0;
    TRY(want(&g, 4));
    if (memcmp(c->head.at, "GGUF", 4) != 0)
        return catalog_broken(c, NULL, "it does not begin with GGUF");
    TRY(read_counts(&g, &tensors, &values));
    for (uint64_t i = 0; i < values; i++) TRY(read_meta(&g));
    for (uint64_t i = 0; i < tensors; i++) TRY(read_tensor(&g));
    c->entry = g.entry.at;
    c->count = g.entry.n;
    c->meta = g.meta.at;
    c->nmeta = g.meta.n;
    TRY(catalog_check_names(c));
    return check_places(&g);
}

/* ---- writing ---- */

static void put(Str *to, uint64_t x, size_t n) {
    str_put_n(to, (const char *)&x, n);
}

static void put_name(Str *to, const char *name) {
    put(to, strlen(name), 8);
    str_put(to, name);
}

static Err put_meta(const Catalog *c, const CatalogMeta *m, Str *header, uint64_t *alignment) {
    int64_t end = m->at, first = m->at;
    CatalogValue v = {.integer = 0};
    for (int64_t i = 0; i < m->count; i++) v = catalog_value(c, m->type, &end);
    put_name(header, m->key);
    put(header, m->list ? META_LIST : m->type, 4);
    if (m->list) put(header, m->type, 4);
    if (m->list) put(header, (uint64_t)m->count, 8);
    str_put_n(header, c->head.at ? c->head.at + first : "", (size_t)(end - first));
    if (strcmp(m->key, alignment_key) != 0) return E_OK;
    *alignment = (uint64_t)v.integer;
    if (!m->list && m->type == META_U32 && *alignment && !(*alignment & (*alignment - 1)))
        return E_OK;
    return err_set(c->cx, E_VALUE, "%s must be a power of two", alignment_key);
}

static Err put_tensor(Catalog *c, CatalogEntry *e, Str *header, uint64_t *end, uint64_t alignment) {
    const Encoding *encoding = catalog_encoding(e->encoding);
    bool written = encoding && encoding->gguf >= 0 && encoding->dtype >= 0 &&
                   (encoding->block == 1 || strcmp(encoding->name, "Q8_0") == 0);
    if (!written)
        return err_set(
            c->cx, E_DTYPE,
            "GGUF: tensors are not written as %s; F32, F16, BF16, Q8_0, F64, I32 and I64 "
            "are",
            e->encoding);
    size_t n = strlen(e->name);
    if (n == 0 || n >= NAME_MOST)
        return catalog_broken(c, e->name, "a name of %zu bytes; GGUF has 1 to %d", n,
                              NAME_MOST - 1);
    if (e->dims.rank > DIMS_OF_GGUF)
        return catalog_broken(c, e->name, "%d dims; GGUF has at most %d", e->dims.rank,
                              DIMS_OF_GGUF);
    if (encoding->block > 1 && (!e->dims.rank || e->dims.at[e->dims.rank - 1] % encoding->block))
        return catalog_broken(c, e->name, "its innermost dim is no multiple of %s's block of %d",
                              encoding->name, encoding->block);
    TRY(catalog_size_entry(c, e, encoding));
    e->begin = (int64_t)aligned(*end, alignment);
    *end = (uint64_t)e->begin + (uint64_t)e->bytes;
    if (*end > (uint64_t)1 << 62)
        return catalog_broken(c, e->name, "the file would have more than 2^62 bytes");
    put_name(header, e->name);
    put(header, (uint64_t)e->dims.rank, 4);
    for (int d = e->dims.rank - 1; d >= 0; d--) put(header, (uint64_t)e->dims.at[d], 8);
    put(header, (uint64_t)encoding->gguf, 4);
    put(header, (uint64_t)e->begin, 8);
    return E_OK;
}

Err gguf_lay_out(Catalog *c, Str *header) {
    uint64_t alignment = ALIGNMENT, end = 0;
    size_t start = header->n;
    str_put(header, "GGUF");
    put(header, 3, 4);
    put(header, (uint64_t)c->count, 8);
    put(header, (uint64_t)c->nmeta, 8);
    for (int32_t i = 0; i < c->nmeta; i++) TRY(put_meta(c, &c->meta[i], header, &alignment));
    for (int32_t i = 0; i < c->count; i++)
        TRY(put_tensor(c, &c->entry[i], header, &end, alignment));
    while ((header->n - start) % alignment && !header->failed) str_put_n(header, "", 1);
    for (int32_t i = 0; i < c->count; i++) c->entry[i].begin += (int64_t)(header->n - start);
    c->size = (int64_t)(header->n - start + aligned(end, alignment));
    return E_OK;
}
