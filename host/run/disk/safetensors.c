/* safetensors.c - a length of 8 bytes, so many bytes of JSON, and the tensors' bytes without a
 * hole. What the format's own reader lets through, keys that stand twice and fields it does not
 * know among it, is refused here: every file that is read means one thing. */
#include "run/disk/catalog_reader.h"
#include "run/disk/json.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MOST = 100000000 }; /* bytes; the format's own limit */
static const json_int_t NUMBER_MOST = (json_int_t)1 << 53;

/* ---- reading ---- */

/* A size or an offset. */
static bool whole_number(const json_t *x, int64_t *out) {
    if (!json_is_integer(x)) return false;
    *out = json_integer_value(x);
    return *out >= 0 && *out <= NUMBER_MOST;
}

static Err read_shape(Catalog *c, CatalogEntry *e, const json_t *shape) {
    if (!json_is_array(shape)) return catalog_broken(c, e->name, "it has no list \"shape\"");
    size_t rank = json_array_size(shape);
    if (rank > MAX_RANK)
        return catalog_broken(c, e->name, "%zu dims; at most %d are read", rank, MAX_RANK);
    for (size_t d = 0; d < rank; d++) {
        int64_t size;
        if (!whole_number(json_array_get(shape, d), &size))
            return catalog_broken(c, e->name, "dim %zu is no whole number from 0 to 2^53", d + 1);
        dims_push(&e->dims, size);
    }
    return E_OK;
}

/* Offsets count from the end of the header, at `data`. */
static Err read_offsets(Catalog *c, CatalogEntry *e, const json_t *offsets, int64_t data) {
    int64_t begin, end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return catalog_broken(c, e->name, "it has no list \"data_offsets\" of two numbers");
    if (!whole_number(json_array_get(offsets, 0), &begin) ||
        !whole_number(json_array_get(offsets, 1), &end))
        return catalog_broken(c, e->name, "an offset is no whole number from 0 to 2^53");
    if (end < begin)
        return catalog_broken(c, e->name, "it ends at %lld, before it begins at %lld",
                              (long long)end, (long long)begin);
    if (end - begin != e->bytes)
        return catalog_broken(c, e->name, "its offsets hold %lld bytes, its shape and dtype %lld",
                              (long long)(end - begin), (long long)e->bytes);
    e->begin = data + begin;
    return E_OK;
}

static Err read_entry(Catalog *c, CatalogEntry *e, const json_t *fields, int64_t data) {
    if (!*e->name) return catalog_broken(c, e->name, "a name must not be empty");
    if (!json_is_object(fields)) return catalog_broken(c, e->name, "it is no object");
    const char *dtype = json_string_value(json_object_get(fields, "dtype"));
    if (!dtype) return catalog_broken(c, e->name, "it has no text \"dtype\"");
    const Encoding *encoding = catalog_encoding(dtype);
    char shown[CATALOG_QUOTED];
    if (!encoding || !encoding->safetensors)
        return catalog_broken(c, e->name, "an unknown dtype %s", catalog_quote(dtype, shown));
    TRY(read_shape(c, e, json_object_get(fields, "shape")));
    TRY(catalog_size_entry(c, e, encoding));
    TRY(read_offsets(c, e, json_object_get(fields, "data_offsets"), data));
    if (json_object_size(fields) != 3)
        return catalog_broken(c, e->name, "a field that is none of dtype, shape, data_offsets");
    return E_OK;
}

static Err read_metadata(Catalog *c, json_t *fields) {
    const char *key;
    char shown[CATALOG_QUOTED];
    json_t *value;
    if (!json_is_object(fields)) return catalog_broken(c, NULL, "__metadata__ is no object");
    c->meta = ARENA_ARRAY(&c->arena, CatalogMeta, json_object_size(fields) + 1);
    if (!c->meta) return err_nomem(c->cx, "metadata");
    json_object_foreach(fields, key, value) {
        if (!json_is_string(value))
            return catalog_broken(c, NULL, "__metadata__: the value of %s is no text",
                                  catalog_quote(key, shown));
        c->meta[c->nmeta++] = (CatalogMeta){.key = arena_strdup(&c->arena, key),
                                            .type = META_STRING,
                                            .count = 1,
                                            .at = (int64_t)c->head.n};
        catalog_put_string(c, json_string_value(value), json_string_length(value));
        if (!c->meta[c->nmeta - 1].key || c->head.failed) return err_nomem(c->cx, "metadata");
    }
    return E_OK;
}

static Err read_header(Catalog *c, json_t *header, int64_t data) {
    const char *key;
    json_t *value;
    c->entry = ARENA_ARRAY(&c->arena, CatalogEntry, json_object_size(header) + 1);
    if (!c->entry) return err_nomem(c->cx, "a list of tensors");
    json_object_foreach(header, key, value) {
        if (strcmp(key, "__metadata__") == 0) {
            TRY(read_metadata(c, value));
            continue;
        }
        CatalogEntry *e = &c->entry[c->count++];
        e->name = arena_strdup(&c->arena, key);
        if (!e->name) return err_nomem(c->cx, "a tensor's name");
        TRY(read_entry(c, e, value, data));
    }
    return E_OK;
}

/* All bytes behind the header belong to one tensor: nothing else hides there. */
static Err check_places(Catalog *c, int64_t data) {
    int64_t at = data;
    catalog_sort(c);
    for (int32_t i = 0; i < c->count; i++) {
        const CatalogEntry *e = &c->entry[i];
        if (e->begin != at)
            return catalog_broken(c, e->name,
                                  "%s: it begins at %lld, what is before it ends at %lld",
                                  e->begin < at ? "tensors overlap" : "a hole between tensors",
                                  (long long)(e->begin - data), (long long)(at - data));
        at += e->bytes;
    }
    if (at == c->size) return E_OK;
    return catalog_broken(c, c->count ? c->entry[c->count - 1].name : NULL,
                          "the tensors end at byte %lld, the file at byte %lld", (long long)at,
                          (long long)c->size);
}

static Err read_text(Catalog *c, const char *text, size_t n) {
    char why[JSON_WHY];
    size_t end;
    if (n == 0 || text[0] != '{')
        return catalog_broken(c, NULL, "the header's first byte is not '{'");
    json_t *header = json_strict(text, n, &end, why);
    if (!header) return catalog_broken(c, NULL, "the header is no JSON object: %s", why);
    Err e = E_OK;
    for (; end < n && !e; end++)
        if (text[end] != ' ')
            e = catalog_broken(c, NULL, "the header holds more than spaces behind its object");
    if (!e) e = read_header(c, header, 8 + (int64_t)n);
    json_decref(header);
    return e ? e : check_places(c, 8 + (int64_t)n);
}

Err safetensors_open(Catalog *c) {
    uint64_t n;
    if (c->size < 8) return catalog_broken(c, NULL, "it has %d bytes, fewer than 8", (int)c->size);
    TRY(catalog_bytes(c, 0, &n, sizeof n));
    if (n > HEADER_MOST)
        return catalog_broken(c, NULL, "a header of %llu bytes; at most %d are allowed",
                              (unsigned long long)n, HEADER_MOST);
    if ((int64_t)n > c->size - 8)
        return catalog_broken(c, NULL, "a header of %llu bytes, in a file of %lld",
                              (unsigned long long)n, (long long)c->size);
    char *text = alloc_resize(&c->cx->alloc, NULL, 0, (size_t)n + 1);
    if (!text) return err_nomem(c->cx, "a file's header");
    Err e = catalog_bytes(c, 8, text, (size_t)n);
    if (!e) e = read_text(c, text, (size_t)n);
    alloc_free(&c->cx->alloc, text, (size_t)n + 1);
    return e;
}

/* ---- writing ---- */

static json_t *fields_of(const CatalogEntry *e) {
    json_t *shape = json_array();
    bool failed = !shape;
    for (int d = 0; d < e->dims.rank && !failed; d++)
        failed = json_array_append_new(shape, json_integer(e->dims.at[d])) != 0;
    if (failed) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", e->encoding, "shape", shape, "data_offsets",
                     (json_int_t)e->begin, (json_int_t)(e->begin + e->bytes));
}

static Err put_metadata(Catalog *c, json_t *header) {
    char shown[CATALOG_QUOTED];
    json_t *fields = json_object();
    if (json_object_set_new(header, "__metadata__", fields) != 0)
        return err_nomem(c->cx, "a file's header");
    for (int32_t i = 0; i < c->nmeta; i++) {
        const CatalogMeta *m = &c->meta[i];
        int64_t at = m->at;
        if (m->type != META_STRING || m->list)
            return catalog_broken(c, NULL,
                                  "the metadata's %s is no text; safetensors holds no other",
                                  catalog_quote(m->key, shown));
        CatalogValue v = catalog_value(c, META_STRING, &at);
        json_t *text = memchr(v.text, 0, v.length) ? NULL : json_stringn(v.text, v.length);
        if (!text || json_object_set_new(fields, m->key, text) != 0)
            return catalog_broken(c, NULL, "the metadata's %s is not UTF-8, or holds a NUL",
                                  catalog_quote(m->key, shown));
    }
    return E_OK;
}

/* Gives the entries their places, from 0 on. */
static Err put_entries(Catalog *c, json_t *header, int64_t *end) {
    *end = 0;
    for (int32_t i = 0; i < c->count; i++) {
        CatalogEntry *e = &c->entry[i];
        const Encoding *encoding = catalog_encoding(e->encoding);
        if (!encoding || !encoding->safetensors)
            return err_set(c->cx, E_DTYPE, "safetensors has no dtype %s", e->encoding);
        if (!*e->name || strcmp(e->name, "__metadata__") == 0)
            return catalog_broken(c, e->name, "safetensors has no such name");
        TRY(catalog_size_entry(c, e, encoding));
        e->begin = *end;
        if (__builtin_add_overflow(*end, e->bytes, end) || *end > NUMBER_MOST)
            return catalog_broken(c, e->name, "the file would have more than 2^53 bytes");
        json_t *fields = fields_of(e);
        if (!fields) return err_nomem(c->cx, "a file's header");
        if (json_object_set_new(header, e->name, fields) != 0)
            return catalog_broken(c, e->name, "a name must be UTF-8");
    }
    return E_OK;
}

static Err put_header(Catalog *c, json_t *json, Str *header) {
    int64_t end;
    if (c->nmeta) TRY(put_metadata(c, json));
    TRY(put_entries(c, json, &end));
    char *text = json_dumps(json, JSON_COMPACT);
    if (!text) return err_nomem(c->cx, "a file's header");
    size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    uint64_t length = padded;
    str_put_n(header, (const char *)&length, sizeof length);
    str_put_n(header, text, n);
    for (size_t i = n; i < padded; i++) str_put(header, " ");
    free(text);
    if (padded > HEADER_MOST)
        return catalog_broken(c, NULL, "a header of %zu bytes; at most %d are allowed", padded,
                              HEADER_MOST);
    for (int32_t i = 0; i < c->count; i++) c->entry[i].begin += 8 + (int64_t)padded;
    c->size = 8 + (int64_t)padded + end;
    return E_OK;
}

Err safetensors_lay_out(Catalog *c, Str *header) {
    json_t *json = json_object();
    if (!json) return err_nomem(c->cx, "a file's header");
    Err e = put_header(c, json, header);
    json_decref(json);
    return e;
}
