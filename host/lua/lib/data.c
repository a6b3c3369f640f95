/* data.c - data from outside into tensors, and tensors from one sharding to another. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- device_put ---- */

/* The whole tensor in memory, as a new tensor of another layout: the way between meshes, and from a
 * mesh to one device. */
static void copy_through_host(lua_State *L, Host *h, Tensor *t, const Layout *to) {
    const Type *type = type_with_layout(&h->cx, t->type, to);
    char *bytes = lua_newuserdatauv(L, (size_t)type_bytes(t->type) + 1, 0);
    Tensor *copy = value_push_fresh(L, h, type, false)->t;
    state_check(L, h, tensor_read(t, bytes));
    state_check(L, h, tensor_write(copy, bytes));
}

/* put_across(x, sharding): x on another mesh, or on one device (sharding nil). Concrete tensors
 * only. */
static int put_across(lua_State *L) {
    Host *h = state_of(L);
    Tensor *t = value_whole(L, h, 1, "device_put between meshes");
    copy_through_host(L, h, t, value_layout_at(L, h, 2, &t->type->dims, "device_put"));
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
    const char *bytes = arg_string(L, 1, &n, "gunzip: the bytes");
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
    const char *path = arg_string(L, 1, NULL, "the folder");
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

/* is_regular_file(path): it is there, and is no folder, device or pipe. */
static int is_regular_file(lua_State *L) {
    struct stat info;
    const char *path = arg_string(L, 1, NULL, "the file");
    lua_pushboolean(L, stat(path, &info) == 0 && S_ISREG(info.st_mode));
    return 1;
}

/* truncate(path, bytes): a file that is longer ends there; true, or nil, message. */
static int truncate_file(lua_State *L) {
    const char *path = arg_string(L, 1, NULL, "the file");
    lua_Integer bytes = arg_integer(L, 2, "truncate: the bytes");
    return luaL_fileresult(L, truncate(path, (off_t)bytes) == 0, path);
}

/* ---- order ---- */

enum { ROUNDS = 6 };

/* A permutation of 0 .. 4^half_bits - 1 that depends on the key: a balanced Feistel network (Luby
 * and Rackoff 1988) of keyed hashes. */
static uint64_t feistel(uint64_t key, int half_bits, uint64_t x) {
    uint64_t mask = ((uint64_t)1 << half_bits) - 1, left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (hash_u64(key + round, right) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

/* Back: the x whose permuted value this is. */
static uint64_t feistel_back(uint64_t key, int half_bits, uint64_t x) {
    uint64_t mask = ((uint64_t)1 << half_bits) - 1, left = x >> half_bits, right = x & mask;
    for (uint64_t round = ROUNDS; round-- > 0;) {
        uint64_t before = right ^ (hash_u64(key + round, left) & mask);
        right = left;
        left = before;
    }
    return left << half_bits | right;
}

static int half_bits_of(lua_State *L, lua_Integer n) {
    int half_bits = 1;
    if (n < 1 || n > (lua_Integer)1 << 60)
        state_error(L, E_VALUE, "shuffled: runs of %lld", (long long)n);
    while ((lua_Integer)1 << (2 * half_bits) < n) half_bits++;
    return half_bits;
}

/* shuffled(seed, first, count, n): the ids at places first .. first + count - 1 (from 0) of an
 * endless list in which each run of n holds 0 .. n-1 once, in an order of its own. Nothing is kept
 * between calls. */
static int shuffled(lua_State *L) {
    uint64_t seed = (uint64_t)arg_integer(L, 1, "shuffled: the seed");
    lua_Integer first = arg_integer(L, 2, "shuffled: the first place"),
                count = arg_int32(L, 3, "shuffled: the count"),
                n = arg_integer(L, 4, "shuffled: how many there are");
    int half_bits = half_bits_of(L, n);
    if (first < 0 || count < 0 || first > INT64_MAX - count)
        state_error(L, E_VALUE, "shuffled: %lld places from %lld on", (long long)count,
                    (long long)first);
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

/* shuffled_place(seed, id, run, n): the place of the id in a run (from 0) of that list. */
static int shuffled_place(lua_State *L) {
    uint64_t seed = (uint64_t)arg_integer(L, 1, "shuffled: the seed");
    lua_Integer id = arg_integer(L, 2, "shuffled: the id"),
                run = arg_integer(L, 3, "shuffled: the run"),
                n = arg_integer(L, 4, "shuffled: how many there are");
    int half_bits = half_bits_of(L, n);
    if (id < 0 || id >= n || run < 0 || run >= INT64_MAX / n)
        state_error(L, E_VALUE, "shuffled: id %lld in run %lld", (long long)id, (long long)run);
    uint64_t key = hash_u64(seed, (uint64_t)run), x = (uint64_t)id;
    do x = feistel_back(key, half_bits, x);
    while (x >= (uint64_t)n);
    lua_pushinteger(L, run * n + (lua_Integer)x);
    return 1;
}

void lib_open_data(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"put_across", put_across},         {"gunzip", gunzip},
        {"make_folder", make_folder},       {"is_regular_file", is_regular_file},
        {"truncate", truncate_file},        {"shuffled", shuffled},
        {"shuffled_place", shuffled_place}, {NULL, NULL}};
    static const luaL_Reg inflate_meta[] = {{"__gc", inflate_gc}, {NULL, NULL}};
    value_new_type(L, VALUE_INFLATE, inflate_meta, NULL, NULL);
    luaL_setfuncs(L, fns, 0);
}
