/* ldata.c - data from outside into tensors, and tensors from one sharding to another. */
#include "lua/value.h"

#include <string.h>
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
    Tensor *t = value_concrete(L, h, 1, "device_put between meshes");
    const Layout *to = NULL;
    if (!lua_isnoneornil(L, 2)) {
        LuaSharding s = value_sharding(L, h, 2);
        to = value_layout(L, h, &s, &t->type->dims, "device_put");
    }
    copy_through_host(L, h, t, to);
    return 1;
}

/* ---- files ---- */

/* gunzip(bytes): the content, or nil, message. */
static int gunzip(lua_State *L) {
    size_t n;
    const char *bytes = luaL_checklstring(L, 1, &n);
    luaL_Buffer out;
    z_stream z = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)n};
    enum { CHUNK = 1 << 16 };
    char *chunk = lua_newuserdatauv(L, CHUNK, 0);
    luaL_buffinit(L, &out);
    if (n > UINT32_MAX || inflateInit2(&z, 15 + 32) != Z_OK) {
        lua_pushnil(L);
        lua_pushliteral(L, "cannot decompress");
        return 2;
    }
    /* zlib allocates with malloc: nothing below may raise before inflateEnd, so the output is
     * counted first and written in a second pass. */
    size_t total = 0;
    int status;
    do {
        z.next_out = (Bytef *)chunk;
        z.avail_out = CHUNK;
        status = inflate(&z, Z_NO_FLUSH);
        total += CHUNK - z.avail_out;
    } while (status == Z_OK);
    inflateEnd(&z);
    if (status != Z_STREAM_END) {
        lua_pushnil(L);
        lua_pushliteral(L, "the compressed data is damaged or cut short");
        return 2;
    }
    char *content = luaL_buffinitsize(L, &out, total ? total : 1);
    z = (z_stream){.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)n};
    if (inflateInit2(&z, 15 + 32) == Z_OK) {
        z.next_out = (Bytef *)content;
        z.avail_out = (uInt)total;
        inflate(&z, Z_FINISH);
        inflateEnd(&z);
    }
    luaL_pushresultsize(&out, total);
    return 1;
}

/* ---- tokens: a list of ids in one block, one, two or four bytes each ---- */
#define VALUE_TOKENS "meshlua.tokens"

typedef struct Tokens {
    int64_t n;
    int32_t width; /* bytes per id: 1, 2 or 4, little-endian, unsigned */
    uint32_t largest;
    uint8_t bytes[];
} Tokens;

static uint32_t token_at(const Tokens *t, int64_t i) {
    const uint8_t *p = t->bytes + i * t->width;
    uint32_t id = p[0];
    if (t->width > 1) id |= (uint32_t)p[1] << 8;
    if (t->width > 2) id |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return id;
}

/* tokens(bytes, width [, first byte, from 0 [, count]]) */
static int tokens_new(lua_State *L) {
    size_t n;
    const char *bytes = luaL_checklstring(L, 1, &n);
    lua_Integer width = luaL_checkinteger(L, 2), skip = luaL_optinteger(L, 3, 0);
    luaL_argcheck(L, width == 1 || width == 2 || width == 4, 2, "must be 1, 2 or 4");
    luaL_argcheck(L, skip >= 0 && (size_t)skip <= n, 3, "outside the data");
    lua_Integer count = luaL_optinteger(L, 4, (lua_Integer)(n - (size_t)skip) / width);
    luaL_argcheck(L, count >= 0 && (size_t)(skip + count * width) <= n, 4, "more ids than bytes");
    Tokens *t = lua_newuserdatauv(L, sizeof *t + (size_t)(count * width), 0);
    *t = (Tokens){.n = count, .width = (int32_t)width};
    memcpy(t->bytes, bytes + skip, (size_t)(count * width));
    for (int64_t i = 0; i < t->n; i++)
        if (token_at(t, i) > t->largest) t->largest = token_at(t, i);
    luaL_setmetatable(L, VALUE_TOKENS);
    return 1;
}

static int tokens_len(lua_State *L) {
    lua_pushinteger(L, ((Tokens *)luaL_checkudata(L, 1, VALUE_TOKENS))->n);
    return 1;
}

static int tokens_largest(lua_State *L) {
    lua_pushinteger(L, ((Tokens *)luaL_checkudata(L, 1, VALUE_TOKENS))->largest);
    return 1;
}

/* tokens:windows(starts, length): int32[#starts, length], row i the ids from starts[i] (0-based)
 * on. */
static int tokens_windows(lua_State *L) {
    Host *h = state_of(L);
    const Tokens *t = luaL_checkudata(L, 1, VALUE_TOKENS);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Integer length = luaL_checkinteger(L, 3);
    Dims dims = {2, {(int64_t)lua_rawlen(L, 2), length}};
    if (length < 1 || length > t->n)
        state_error(L, E_VALUE, "windows of %lld ids from %lld", (long long)length,
                    (long long)t->n);
    const Type *type = type_make(&h->cx, DT_I32, &dims, NULL);
    LuaTensor *u = value_new_tensor(L);
    u->t = type ? tensor_alloc(&h->cx, type) : NULL;
    if (!u->t) state_check(L, h, err_nomem(&h->cx, "a batch"));
    int32_t *out = (int32_t *)(void *)tensor_data(u->t, 0);
    for (int64_t i = 0; i < dims.at[0]; i++) {
        lua_rawgeti(L, 2, i + 1);
        lua_Integer start = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
        if (start < 0 || start + length > t->n)
            state_error(L, E_VALUE, "a window from %lld on leaves the %lld ids", (long long)start,
                        (long long)t->n);
        for (int64_t k = 0; k < length; k++) *out++ = (int32_t)token_at(t, start + k);
    }
    h->used = true;
    return 1;
}

void ldata_open(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"put_across", put_across}, {"gunzip", gunzip}, {"tokens", tokens_new}, {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"windows", tokens_windows}, {"largest", tokens_largest}, {NULL, NULL}};
    luaL_newmetatable(L, VALUE_TOKENS);
    lua_pushcfunction(L, tokens_len);
    lua_setfield(L, -2, "__len");
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_setfuncs(L, fns, 0);
}
