/* catalog.c - files of tensors as scripts see them: what is in one, what one begins with that is to
 * be written; and JSON. What is wrong with a file is a result: nil, message, code. */
#include "lua/lib/lib.h"
#include "lua/state/usage.h"
#include "lua/value/value.h"

#include "run/disk/json.h"
#include "run/disk/npz.h"

#include <errno.h>
#include <string.h>

#define VALUE_CATALOG "meshlua.Catalog"
#define VALUE_JSON    "meshlua.json"

/* ---- what a file holds ---- */
typedef struct LuaCatalog {
    Catalog *c; /* NULL: closed */
} LuaCatalog;

static LuaCatalog *new_catalog(lua_State *L) {
    LuaCatalog *u = lua_newuserdatauv(L, sizeof *u, 0);
    u->c = NULL;
    luaL_setmetatable(L, VALUE_CATALOG);
    return u;
}

Catalog *lib_catalog(lua_State *L, int index) {
    LuaCatalog *u = value_udata(L, index, VALUE_CATALOG);
    if (!u->c) state_error(L, E_STATE, "the file of tensors is closed");
    return u->c;
}

Catalog *lib_catalog_entry(lua_State *L, int index, int number, int32_t *entry) {
    Catalog *c = lib_catalog(L, index);
    *entry = arg_int32(L, number, "the entry") - 1;
    if (*entry < 0 || *entry >= c->count)
        state_error(L, E_VALUE, "%s has no entry %d", c->path, (int)*entry + 1);
    return c;
}

static int catalog_gc(lua_State *L) {
    LuaCatalog *u = luaL_checkudata(L, 1, VALUE_CATALOG);
    catalog_close(u->c);
    u->c = NULL;
    return 0;
}

/* catalog(path): what the file holds; or nil, message, code. */
static int catalog_new(lua_State *L) {
    Host *h = state_of(L);
    size_t n;
    const char *path = arg_string(L, 1, &n, "catalog: the file");
    if (strlen(path) != n) state_error(L, E_VALUE, "catalog: a NUL in the file's name");
    LuaCatalog *u = new_catalog(L);
    Err e = catalog_open(&h->cx, path, &u->c);
    return e ? state_failed(L, h, e) : 1;
}

static void push_entry(lua_State *L, const CatalogEntry *e) {
    lua_createtable(L, 0, 8);
    value_set_string(L, "name", e->name);
    value_set_string(L, "dtype", e->dtype >= 0 ? dtype_name((DType)e->dtype) : NULL);
    value_set_string(L, "encoding", e->encoding);
    value_push_dims(L, &e->dims, 0);
    lua_setfield(L, -2, "shape");
    value_set_integer(L, "begin", e->begin);
    value_set_integer(L, "bytes", e->bytes);
    value_set_integer(L, "block", e->block);
    value_set_integer(L, "block_bytes", e->block_bytes);
    if (e->column_major) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, "column_major");
    }
    if (e->packed) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, "packed");
    }
}

/* c:entries(): {{name, dtype, encoding, shape, begin, bytes, block, block_bytes, column_major,
 * packed}...} as they lie in the file. */
static int catalog_entries(lua_State *L) {
    const Catalog *c = lib_catalog(L, 1);
    lua_createtable(L, c->count, 0);
    for (int32_t i = 0; i < c->count; i++) {
        push_entry(L, &c->entry[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static void push_value(lua_State *L, const Catalog *c, MetaType type, int64_t *at) {
    CatalogValue v = catalog_value(c, type, at);
    switch (v.type) {
    case META_STRING: lua_pushlstring(L, v.text, v.length); break;
    case META_BOOL: lua_pushboolean(L, v.integer != 0); break;
    case META_F64: lua_pushnumber(L, v.real); break;
    default: lua_pushinteger(L, v.integer);
    }
}

/* c:metadata(): by key; lists as tables. */
static int catalog_metadata(lua_State *L) {
    const Catalog *c = lib_catalog(L, 1);
    lua_createtable(L, 0, c->nmeta);
    for (int32_t i = 0; i < c->nmeta; i++) {
        const CatalogMeta *m = &c->meta[i];
        int64_t at = m->at;
        lua_pushstring(L, m->key);
        if (m->list) lua_createtable(L, (int)m->count, 0);
        for (int64_t k = 0; k < m->count; k++) {
            push_value(L, c, m->type, &at);
            if (m->list) lua_rawseti(L, -2, k + 1);
        }
        lua_rawset(L, -3);
    }
    return 1;
}

/* c:bytes(i): those of entry i as the file has them, unpacked; or nil, message, code. */
static int catalog_entry_bytes(lua_State *L) {
    Host *h = state_of(L);
    const Catalog *c = lib_catalog(L, 1);
    lua_Integer i = arg_integer(L, 2, "bytes: the entry");
    if (i < 1 || i > c->count)
        state_error(L, E_VALUE, "bytes: entry %lld of %d", (long long)i, c->count);
    size_t n = (size_t)c->entry[i - 1].bytes;
    luaL_Buffer b;
    char *to = luaL_buffinitsize(L, &b, n);
    if (catalog_read(c, (int32_t)i - 1, 0, to, n))
        return state_failed(L, h, catalog_read_failed(&h->cx, c, (int32_t)i - 1, errno));
    luaL_pushresultsize(&b, n);
    return 1;
}

static int format_field(lua_State *L) {
    lua_pushstring(L, lib_catalog(L, 1)->format);
    return 1;
}

static int path_field(lua_State *L) {
    lua_pushstring(L, lib_catalog(L, 1)->path);
    return 1;
}

static int size_field(lua_State *L) {
    lua_pushinteger(L, lib_catalog(L, 1)->size);
    return 1;
}

static int catalog_index(lua_State *L) {
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNIL && !value_push_field(L))
        return usage_unknown(L, "Catalog");
    return 1;
}

/* ---- what is to be written ---- */

/* A field of the table on top, a text without a NUL. Stays on the stack. */
static const char *text_field(lua_State *L, const char *field, const char *what) {
    size_t n;
    lua_getfield(L, -1, field);
    const char *text = arg_string(L, -1, &n, what);
    if (strlen(text) != n) state_error(L, E_VALUE, "%s: a NUL in it", what);
    return text;
}

static char *copied(lua_State *L, Host *h, Catalog *c, const char *text) {
    char *copy = arena_strdup(&c->arena, text);
    if (!copy) state_check(L, h, err_nomem(&h->cx, "a list of tensors"));
    return copy;
}

/* The entry in the table on top. */
static void read_entry(lua_State *L, Host *h, Catalog *c, CatalogEntry *e) {
    arg_check_type(L, -1, LUA_TTABLE, "catalog_layout: an entry");
    e->name = copied(L, h, c, text_field(L, "name", "catalog_layout: a name"));
    lua_pop(L, 1);
    e->encoding = copied(L, h, c, text_field(L, "encoding", "catalog_layout: an encoding"));
    lua_pop(L, 1);
    lua_getfield(L, -1, "shape");
    e->dims = value_dims(L, lua_gettop(L), 0, "catalog_layout: a shape");
    lua_pop(L, 1);
    for (int d = 0; d < e->dims.rank; d++)
        if (e->dims.at[d] < 0) state_error(L, E_SHAPE, "catalog_layout: a dim below 0");
}

/* What GGUF has for a number where none is asked for: what its readers expect. */
static MetaType number_type(lua_State *L, int index, bool list) {
    if (!lua_isinteger(L, index)) return META_F32;
    lua_Integer x = lua_tointeger(L, index);
    if (!list && x >= 0 && x <= UINT32_MAX) return META_U32;
    return x >= INT32_MIN && x <= INT32_MAX ? META_I32 : META_I64;
}

/* That of the value at `index`; META_LIST: it is none. */
static MetaType meta_type_of(lua_State *L, int index, bool list) {
    switch (lua_type(L, index)) {
    case LUA_TSTRING: return META_STRING;
    case LUA_TBOOLEAN: return META_BOOL;
    case LUA_TNUMBER: return number_type(L, index, list);
    default: return META_LIST;
    }
}

/* That of all in the list on top: of whole numbers the widest; of none at all texts, as readers
 * want the merges of a vocabulary that has none. */
static MetaType list_type_of(lua_State *L, const char *key) {
    MetaType all = lua_rawlen(L, -1) ? META_I32 : META_STRING;
    for (lua_Integer i = 1, n = (lua_Integer)lua_rawlen(L, -1); i <= n; i++) {
        lua_rawgeti(L, -1, i);
        MetaType type = meta_type_of(L, -1, true);
        lua_pop(L, 1);
        if (type == META_LIST)
            state_error(L, E_VALUE,
                        "catalog_layout: the metadata's %s has no text, number or "
                        "boolean at %lld",
                        key, (long long)i);
        if (i == 1 || (all == META_I32 && type == META_I64) ||
            ((all == META_I32 || all == META_I64) && type == META_F32))
            all = type;
        bool numbers =
            (all == META_I64 || all == META_F32) && (type == META_I32 || type == META_I64);
        if (type != all && !numbers)
            state_error(L, E_VALUE, "catalog_layout: the metadata's %s has values of several types",
                        key);
    }
    return all;
}

/* Appends the value at `index`, which has that type, to the head. */
static void put_value(lua_State *L, Catalog *c, int index, MetaType type) {
    size_t n;
    if (type == META_STRING) {
        const char *text = lua_tolstring(L, index, &n);
        catalog_put_string(c, text, n);
    } else if (type == META_BOOL) {
        str_put_n(&c->head, lua_toboolean(L, index) ? "\1" : "\0", 1);
    } else if (type == META_F32) {
        float x = (float)lua_tonumber(L, index);
        str_put_n(&c->head, (const char *)&x, sizeof x);
    } else { /* little-endian: the lower bytes come first */
        lua_Integer x = lua_tointeger(L, index);
        str_put_n(&c->head, (const char *)&x, type == META_I64 ? 8 : 4);
    }
}

/* The key and the value on top. */
static void read_meta(lua_State *L, Host *h, Catalog *c, CatalogMeta *m, const char *key) {
    bool list = lua_istable(L, -1);
    *m = (CatalogMeta){.key = copied(L, h, c, key), .list = list, .count = 1};
    m->at = (int64_t)c->head.n;
    m->type = list ? list_type_of(L, key) : meta_type_of(L, -1, false);
    if (list) m->count = (int64_t)lua_rawlen(L, -1);
    if (m->type == META_LIST)
        state_error(L, E_VALUE,
                    "catalog_layout: the metadata's %s is %s; it holds texts, numbers, "
                    "booleans and lists of these",
                    key, arg_type_name(L, -1));
    for (int64_t i = 0; i < m->count; i++) {
        if (list) lua_rawgeti(L, -1, i + 1);
        put_value(L, c, -1, m->type);
        if (list) lua_pop(L, 1);
    }
}

/* The keys of the table at `index`, ascending, as a list on top; their number. */
static int32_t push_keys(lua_State *L, int index) {
    lua_Integer n = 0;
    lua_newtable(L);
    if (lua_isnoneornil(L, index)) return 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        size_t length;
        const char *key = arg_string(L, -2, &length, "catalog_layout: a key of the metadata");
        if (strlen(key) != length) state_error(L, E_VALUE, "catalog_layout: a NUL in a key");
        lua_pushvalue(L, -2);
        lua_rawseti(L, -4, ++n);
    }
    lua_getglobal(L, "table");
    lua_getfield(L, -1, "sort");
    lua_remove(L, -2);
    lua_pushvalue(L, -2);
    lua_call(L, 1, 0);
    return (int32_t)n;
}

/* catalog_layout(format, entries {{name, encoding, shape}...} [, metadata]): {header = the bytes
 * that the file begins with, begin = {of each entry}, size = of the whole file}; or nil, message,
 * code. */
static int catalog_layout(lua_State *L) {
    Host *h = state_of(L);
    const char *format = arg_string(L, 1, NULL, "catalog_layout: the format");
    arg_check_type(L, 2, LUA_TTABLE, "catalog_layout: the entries");
    if (!lua_isnoneornil(L, 3)) arg_check_type(L, 3, LUA_TTABLE, "catalog_layout: the metadata");
    lua_settop(L, 3);
    int32_t count = (int32_t)lua_rawlen(L, 2), nmeta = push_keys(L, 3);
    LuaCatalog *u = new_catalog(L);
    state_check(L, h, catalog_draft(&h->cx, format, count, nmeta, &u->c));
    Catalog *c = u->c;
    for (int32_t i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        read_entry(L, h, c, &c->entry[i]);
        lua_pop(L, 1);
    }
    for (int32_t i = 0; i < nmeta; i++) {
        lua_rawgeti(L, 4, i + 1);
        lua_pushvalue(L, -1);
        lua_rawget(L, 3);
        read_meta(L, h, c, &c->meta[i], lua_tostring(L, -2));
        lua_pop(L, 2);
    }
    Str *header = state_text(h);
    Err e = catalog_lay_out(c, header);
    if (e) return state_failed(L, h, e);
    lua_createtable(L, 0, 3);
    state_push_text(L, h);
    lua_setfield(L, -2, "header");
    value_set_integer(L, "size", c->size);
    lua_createtable(L, count, 0);
    for (int32_t i = 0; i < count; i++) {
        lua_pushinteger(L, c->entry[i].begin);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "begin");
    return 1;
}

/* ---- npz, which needs checksums of whole tensors and is written at once ---- */
#define VALUE_NPZ "meshlua.npz"

static int npz_gc(lua_State *L) {
    npz_drop(luaL_checkudata(L, 1, VALUE_NPZ));
    return 0;
}

/* The tensor at `index`, row-major. */
static Err add_tensor(lua_State *L, NpzWriter *w, const char *name, const Tensor *t) {
    size_t n = (size_t)type_bytes(t->type);
    char *bytes = lua_newuserdatauv(L, n + 1, 0);
    Err e = tensor_read(t, bytes);
    if (!e) e = npz_add(w, name, t->type->dtype, &t->type->dims, bytes);
    lua_pop(L, 1);
    return e;
}

/* Checks the list of {name, tensor} at 2 before there is a file. */
static void check_npz(lua_State *L, Host *h) {
    arg_check_type(L, 2, LUA_TTABLE, "npz: the tensors");
    lua_newtable(L); /* the names so far */
    for (lua_Integer i = 1, n = (lua_Integer)lua_rawlen(L, 2); i <= n; i++) {
        size_t length;
        lua_rawgeti(L, 2, i);
        arg_check_type(L, -1, LUA_TTABLE, "npz: a tensor with its name");
        lua_rawgeti(L, -1, 1);
        if (strlen(arg_string(L, -1, &length, "npz: a name")) != length)
            state_error(L, E_VALUE, "npz: a NUL in a name");
        lua_pushvalue(L, -1);
        if (lua_rawget(L, -4) != LUA_TNIL) state_error(L, E_KEY, "npz: a name that is there twice");
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_pushboolean(L, 1);
        lua_rawset(L, -5);
        lua_rawgeti(L, -2, 2);
        value_whole(L, h, lua_gettop(L), "npz");
        lua_pop(L, 3);
    }
    lua_pop(L, 1);
}

/* npz(path, {{name, tensor}...}): writes the file, whole tensors, each by its name; it takes the
 * place of another when it is whole. true; or nil, message, code. */
static int npz_write(lua_State *L) {
    Host *h = state_of(L);
    size_t n;
    const char *path = arg_string(L, 1, &n, "npz: the file");
    if (strlen(path) != n) state_error(L, E_VALUE, "npz: a NUL in the file's name");
    check_npz(L, h);
    NpzWriter *w = lua_newuserdatauv(L, sizeof *w, 0);
    *w = (NpzWriter){.fd = -1};
    luaL_setmetatable(L, VALUE_NPZ);
    lua_toclose(L, lua_gettop(L)); /* what is raised leaves no file behind */
    Err e = npz_create(w, &h->cx, path);
    for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 2) && !e; i++) {
        lua_rawgeti(L, 2, i);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        e = add_tensor(L, w, lua_tostring(L, -2), value_whole(L, h, lua_gettop(L), "npz"));
        lua_pop(L, 3);
    }
    if (!e) e = npz_finish(w);
    npz_drop(w);
    if (e) return state_failed(L, h, e);
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- JSON ---- */

static int json_gc(lua_State *L) {
    json_t **value = luaL_checkudata(L, 1, VALUE_JSON);
    json_decref(*value);
    *value = NULL;
    return 0;
}

static void push_json(lua_State *L, json_t *value) {
    const char *key;
    json_t *item;
    size_t i;
    luaL_checkstack(L, 4, "JSON that is nested deeply");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        lua_createtable(L, 0, (int)json_object_size(value));
        json_object_foreach(value, key, item) {
            lua_pushstring(L, key);
            push_json(L, item);
            lua_rawset(L, -3);
        }
        break;
    case JSON_ARRAY:
        lua_createtable(L, (int)json_array_size(value), 0);
        json_array_foreach(value, i, item) {
            push_json(L, item);
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        break;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER: lua_pushinteger(L, json_integer_value(value)); break;
    case JSON_REAL: lua_pushnumber(L, json_real_value(value)); break;
    case JSON_TRUE: lua_pushboolean(L, 1); break;
    case JSON_FALSE: lua_pushboolean(L, 0); break;
    default: lua_pushlightuserdata(L, NULL);
    }
}

/* json(text): the value; null is core.null. Or nil, message. */
static int json_value(lua_State *L) {
    size_t n;
    char why[JSON_WHY];
    const char *text = arg_string(L, 1, &n, "json: the text");
    json_t **value = lua_newuserdatauv(L, sizeof(json_t *), 0); /* owns it while Lua may raise */
    *value = NULL;
    luaL_setmetatable(L, VALUE_JSON);
    *value = json_strict(text, n, NULL, why);
    if (!*value) {
        lua_pushnil(L);
        lua_pushstring(L, why);
        return 2;
    }
    push_json(L, *value);
    json_decref(*value);
    *value = NULL;
    return 1;
}

void lib_open_catalog(lua_State *L) {
    static const luaL_Reg fns[] = {{"catalog", catalog_new},
                                   {"catalog_layout", catalog_layout},
                                   {"npz", npz_write},
                                   {"json", json_value},
                                   {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", catalog_gc}, {"__close", catalog_gc}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"entries", catalog_entries},
                                       {"metadata", catalog_metadata},
                                       {"bytes", catalog_entry_bytes},
                                       {"close", catalog_gc},
                                       {NULL, NULL}};
    static const luaL_Reg fields[] = {
        {"format", format_field}, {"path", path_field}, {"size", size_field}, {NULL, NULL}};
    static const luaL_Reg npz_meta[] = {{"__gc", npz_gc}, {"__close", npz_gc}, {NULL, NULL}};
    static const luaL_Reg json_meta[] = {{"__gc", json_gc}, {NULL, NULL}};
    value_new_type(L, VALUE_CATALOG, meta, methods, catalog_index);
    luaL_getmetatable(L, VALUE_CATALOG);
    lua_getfield(L, -1, "fields");
    luaL_setfuncs(L, fields, 0);
    lua_pop(L, 2);
    value_new_type(L, VALUE_NPZ, npz_meta, NULL, NULL);
    value_new_type(L, VALUE_JSON, json_meta, NULL, NULL);
    luaL_setfuncs(L, fns, 0);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
}
