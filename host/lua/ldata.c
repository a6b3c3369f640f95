/* ldata.c - data from outside into tensors, and tensors from one sharding to another. */
#include "lua/value.h"

#include "base/map.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* ---- device_put ---- */

/* The whole tensor in memory, as a new tensor of another layout: the way between meshes, and from a
 * mesh to one device. */
static void copy_through_host(lua_State *L, Host *h, Tensor *t, const Layout *to) {
    const Type *type = type_with_layout(&h->cx, t->type, to);
    if (!type) state_check(L, h, err_nomem(&h->cx, "a tensor"));
    char *bytes = lua_newuserdatauv(L, (size_t)type_bytes(t->type) + 1, 0);
    LuaTensor *u = value_new_tensor(L);
    u->t = tensor_alloc(&h->cx, type);
    if (!u->t) state_check(L, h, err_nomem(&h->cx, "a tensor"));
    tensor_read(t, bytes);
    tensor_write(u->t, bytes);
}

/* put_across(x, sharding): x on another mesh, or on one device (sharding nil). Concrete tensors
 * only. */
static int put_across(lua_State *L) {
    Host *h = state_of(L);
    Tensor *t = value_whole(L, h, 1, "device_put between meshes");
    const Layout *to = NULL;
    if (!lua_isnoneornil(L, 2)) {
        LuaSharding s = value_sharding(L, h, 2);
        to = value_layout(L, h, &s, &t->type->dims, "device_put");
    }
    copy_through_host(L, h, t, to);
    return 1;
}

/* ---- files ---- */
#define VALUE_INFLATE "meshlua.inflate"

static int inflate_gc(lua_State *L) {
    inflateEnd(luaL_checkudata(L, 1, VALUE_INFLATE));
    return 0;
}

/* gunzip(bytes): the content, or nil, message. */
static int gunzip(lua_State *L) {
    enum { CHUNK = 1 << 16 };
    size_t n;
    luaL_Buffer out;
    const char *bytes = value_string(L, 1, &n, "gunzip: the bytes");
    if (n > UINT32_MAX) state_error(L, E_VALUE, "gunzip: %lld bytes; at most 4 GiB", (long long)n);
    z_stream *z = lua_newuserdatauv(L, sizeof *z, 0);
    *z = (z_stream){.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)n};
    int status = inflateInit2(z, 15 + 32); /* the largest window; gzip or zlib by its header */
    if (status == Z_OK) luaL_setmetatable(L, VALUE_INFLATE);
    luaL_buffinit(L, &out);
    while (status == Z_OK) {
        z->next_out = (Bytef *)luaL_prepbuffsize(&out, CHUNK);
        z->avail_out = CHUNK;
        status = inflate(z, Z_NO_FLUSH);
        luaL_addsize(&out, CHUNK - z->avail_out);
        if (status == Z_STREAM_END && z->avail_in) status = inflateReset(z); /* the next member */
    }
    luaL_pushresult(&out);
    if (status == Z_STREAM_END) return 1;
    lua_pushnil(L);
    lua_pushliteral(L, "the compressed data is damaged or cut short");
    return 2;
}

/* make_folder(path): it and those above it, where they are missing; true, or nil, message. */
static int make_folder(lua_State *L) {
    const char *path = value_string(L, 1, NULL, "the folder");
    size_t n = strlen(path);
    char *part = lua_newuserdatauv(L, n + 1, 0);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return luaL_fileresult(L, 0, part);
        part[i] = path[i];
    }
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        return luaL_fileresult(L, 0, path);
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- tokens: a list of whole numbers in the bytes of a Lua string, which user value 1 holds; user
 * value 2 is memory for a batch on its way ---- */
#define VALUE_TOKENS "meshlua.tokens"

typedef struct Tokens {
    const uint8_t *bytes;
    int64_t n;
    int32_t width; /* bytes per number: 1, 2 or 4, little-endian, unsigned */
} Tokens;

static uint32_t token_at(const Tokens *t, int64_t i) {
    const uint8_t *p = t->bytes + i * t->width;
    uint32_t id = p[0];
    if (t->width > 1) id |= (uint32_t)p[1] << 8;
    if (t->width > 2) id |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return id;
}

static const Tokens *tokens_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_TOKENS);
}

/* tokens(bytes, width [, first byte, from 0 [, count]]) */
static int tokens_new(lua_State *L) {
    size_t n;
    const char *bytes = value_string(L, 1, &n, "tokens: the bytes");
    lua_Integer width = value_integer(L, 2, "tokens: the width"), skip = 0;
    if (!lua_isnoneornil(L, 3)) skip = value_integer(L, 3, "tokens: the first byte");
    if ((width != 1 && width != 2 && width != 4) || skip < 0 || (size_t)skip > n)
        state_error(L, E_VALUE, "tokens: a width of %lld, from byte %lld of %lld", (long long)width,
                    (long long)skip, (long long)n);
    lua_Integer room = (lua_Integer)(n - (size_t)skip) / width, count = room;
    if (!lua_isnoneornil(L, 4)) count = value_integer(L, 4, "tokens: the count");
    if (count < 0 || count > room)
        state_error(L, E_VALUE, "tokens: %lld numbers; there are %lld", (long long)count,
                    (long long)room);
    Tokens *t = lua_newuserdatauv(L, sizeof *t, 2);
    *t = (Tokens){.bytes = (const uint8_t *)bytes + skip, .n = count, .width = (int32_t)width};
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, VALUE_TOKENS);
    return 1;
}

static int tokens_len(lua_State *L) {
    lua_pushinteger(L, tokens_at(L, 1)->n);
    return 1;
}

/* tokens:width(): bytes per number. */
static int tokens_width(lua_State *L) {
    lua_pushinteger(L, tokens_at(L, 1)->width);
    return 1;
}

/* tokens:largest(): 0 where there are none. */
static int tokens_largest(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    uint32_t largest = 0;
    for (int64_t i = 0; i < t->n; i++) {
        uint32_t id = token_at(t, i);
        if (id > largest) largest = id;
    }
    lua_pushinteger(L, largest);
    return 1;
}

/* Reads rows of `length` numbers from each start in the list at index 2 into out: as bytes, or as
 * int32. */
static void read_windows(lua_State *L, const Tokens *t, lua_Integer length, DType dtype,
                         char *out) {
    lua_Integer rows = (lua_Integer)lua_rawlen(L, 2);
    for (lua_Integer i = 1; i <= rows; i++) {
        lua_rawgeti(L, 2, i);
        lua_Integer start = value_integer(L, -1, "windows: a start");
        lua_pop(L, 1);
        if (start < 0 || start > t->n - length)
            state_error(L, E_VALUE, "%lld numbers from %lld on leave the %lld there are",
                        (long long)length, (long long)start, (long long)t->n);
        if (dtype == DT_U8) {
            memcpy(out, t->bytes + start, (size_t)length);
            out += length;
            continue;
        }
        for (lua_Integer k = 0; k < length; k++, out += 4) {
            int32_t id = (int32_t)token_at(t, start + k);
            memcpy(out, &id, 4);
        }
    }
}

/* n bytes that last as long as the tokens at `index`, until the next call. */
static char *batch_memory(lua_State *L, int index, size_t n) {
    lua_getiuservalue(L, index, 2);
    if (lua_rawlen(L, -1) < n) {
        lua_newuserdatauv(L, n, 0);
        lua_pushvalue(L, -1);
        lua_setiuservalue(L, index, 2);
    }
    return lua_touserdata(L, -1);
}

/* tokens:windows(starts, shape, dtype [, sharding]): [#starts, shape...], row i the numbers from
 * starts[i] (from 0) on, put where the sharding wants them. dtype: "int32", or "uint8" where a
 * number is a byte. */
static int tokens_windows(lua_State *L) {
    Host *h = state_of(L);
    const Tokens *t = tokens_at(L, 1);
    value_check_type(L, 2, LUA_TTABLE, "windows: the starts");
    Dims row = value_dims(L, 3, 0, "a row's shape"), dims = {1, {(int64_t)lua_rawlen(L, 2)}};
    DType dtype = value_dtype(L, 4);
    if (dtype != DT_I32 && (dtype != DT_U8 || t->width != 1))
        state_error(L, E_DTYPE, "windows: %s; numbers become int32, bytes uint8, too",
                    dtype_name(dtype));
    if (row.rank == MAX_RANK) state_error(L, E_SHAPE, "windows: a row of rank %d", row.rank);
    for (int d = 0; d < row.rank; d++) dims_push(&dims, row.at[d]);
    if (dims_count(&dims) < 0) state_error(L, E_SHAPE, "windows: a row has no such shape");
    const Layout *layout = NULL;
    if (!lua_isnoneornil(L, 5)) {
        LuaSharding s = value_sharding(L, h, 5);
        layout = value_layout(L, h, &s, &dims, "the batch");
    }
    const Type *type = type_make(&h->cx, dtype, &dims, layout);
    LuaTensor *u = value_new_tensor(L);
    int tensor = lua_gettop(L);
    h->used = true;
    state_collect_if_needed(L, h, 1);
    if (type) u->t = h->rt.fake ? tensor_new(&h->cx, type) : tensor_alloc(&h->cx, type);
    if (!u->t) state_check(L, h, err_nomem(&h->cx, "a batch"));
    if (h->rt.fake) return 1;
    bool is_whole = u->t->nslot == 1 && tensor_is_whole(u->t);
    char *out = is_whole ? tensor_data(u->t, 0) : batch_memory(L, 1, (size_t)type_bytes(type) + 1);
    read_windows(L, t, dims_count(&row), dtype, out);
    if (!is_whole) tensor_write(u->t, out);
    lua_settop(L, tensor);
    return 1;
}

/* tokens:bytes(first, last): of the numbers first <= i < last, from 0, as they lie in memory. */
static int tokens_bytes(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    lua_Integer first = value_integer(L, 2, "bytes: the first"),
                last = value_integer(L, 3, "bytes: the last");
    if (first < 0 || first > last || last > t->n)
        state_error(L, E_VALUE, "bytes: from %lld to %lld of %lld numbers", (long long)first,
                    (long long)last, (long long)t->n);
    lua_pushlstring(L, (const char *)t->bytes + first * t->width,
                    (size_t)((last - first) * t->width));
    return 1;
}

/* ---- order ---- */

/* A permutation of 0 .. 4^half_bits - 1 that depends on the key: a balanced Feistel network (Luby
 * and Rackoff 1988) of keyed hashes. */
static uint64_t feistel(uint64_t key, int half_bits, uint64_t x) {
    enum { ROUNDS = 6 };
    uint64_t mask = ((uint64_t)1 << half_bits) - 1, left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (hash_u64(key + round, right) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

/* shuffled(seed, first, count, n): the ids at places first .. first + count - 1 (from 0) of an
 * endless list in which each run of n holds 0 .. n-1 once, in an order of its own. Nothing is kept
 * between calls. */
static int shuffled(lua_State *L) {
    uint64_t seed = (uint64_t)value_integer(L, 1, "shuffled: the seed");
    lua_Integer first = value_integer(L, 2, "shuffled: the first place"),
                count = value_int32(L, 3, "shuffled: the count"),
                n = value_integer(L, 4, "shuffled: how many there are");
    if (first < 0 || count < 0 || n < 1 || n > (lua_Integer)1 << 60 || first > INT64_MAX - count)
        state_error(L, E_VALUE, "shuffled: %lld places from %lld on, of runs of %lld",
                    (long long)count, (long long)first, (long long)n);
    int half_bits = 1;
    while ((lua_Integer)1 << (2 * half_bits) < n) half_bits++;
    lua_createtable(L, (int)count, 0);
    for (lua_Integer i = 0; i < count; i++) {
        uint64_t key = hash_u64(seed, (uint64_t)((first + i) / n));
        uint64_t x = (uint64_t)((first + i) % n);
        do x = feistel(key, half_bits, x); /* until it is back among 0 .. n-1 */
        while (x >= (uint64_t)n);
        lua_pushinteger(L, (lua_Integer)x);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

void ldata_open(lua_State *L) {
    static const luaL_Reg fns[] = {{"put_across", put_across}, {"gunzip", gunzip},
                                   {"tokens", tokens_new},     {"make_folder", make_folder},
                                   {"shuffled", shuffled},     {NULL, NULL}};
    static const luaL_Reg inflate_meta[] = {{"__gc", inflate_gc}, {NULL, NULL}};
    static const luaL_Reg tokens_meta[] = {{"__len", tokens_len}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"windows", tokens_windows},
                                       {"largest", tokens_largest},
                                       {"bytes", tokens_bytes},
                                       {"width", tokens_width},
                                       {NULL, NULL}};
    value_new_type(L, VALUE_INFLATE, inflate_meta, NULL, NULL);
    value_new_type(L, VALUE_TOKENS, tokens_meta, methods, NULL);
    luaL_setfuncs(L, fns, 0);
}
