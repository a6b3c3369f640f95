/* tokens.c - data files as lists of whole numbers, and batches of them. A list stays in its file:
 * of a batch a process reads what its devices hold, and nothing else. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16 };

/* ---- files ---- */
#define VALUE_FILE "meshlua.file"

/* User value 1 is its name. */
typedef struct DataFile {
    int fd;       /* -1: closed */
    int64_t size; /* -1: it can only be read from its beginning to its end, as a pipe */
} DataFile;

static DataFile *file_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_FILE);
}

static int file_gc(lua_State *L) {
    DataFile *f = luaL_checkudata(L, 1, VALUE_FILE);
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    return 0;
}

/* data_file(path): the file, open; or nil, message. */
static int file_open(lua_State *L) {
    const char *path = arg_string(L, 1, NULL, "data: a file's name");
    struct stat info;
    DataFile *f = lua_newuserdatauv(L, sizeof *f, 1);
    *f = (DataFile){.fd = -1};
    luaL_setmetatable(L, VALUE_FILE);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 || fstat(f->fd, &info) != 0) return luaL_fileresult(L, 0, path);
    f->size = S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
    return 1;
}

/* Reads up to n bytes, from byte `at` on where it is no pipe. How many came: fewer at the end of
 * the file; -1: errno says why. */
static int64_t file_read(Host *h, const DataFile *f, int64_t at, char *out, size_t n) {
    int64_t got = file_read_at(f->fd, out, n, f->size < 0 ? -1 : at);
    if (got > 0) h->data_bytes += got;
    return got;
}

static int file_failed(lua_State *L, int index) {
    int error = errno;
    lua_getiuservalue(L, index, 1);
    errno = error;
    return luaL_fileresult(L, 0, lua_tostring(L, -1));
}

/* file:size(): its bytes; nil where they are not known. */
static int file_size(lua_State *L) {
    const DataFile *f = file_at(L, 1);
    if (f->size < 0) return 0;
    lua_pushinteger(L, f->size);
    return 1;
}

/* file:head(n): its first n bytes, or all where it has fewer; or nil, message. */
static int file_head(lua_State *L) {
    const DataFile *f = file_at(L, 1);
    size_t n = (size_t)arg_int32(L, 2, "head: the bytes");
    luaL_Buffer b;
    int64_t got = file_read(state_of(L), f, 0, luaL_buffinitsize(L, &b, n), n);
    if (got < 0) return file_failed(L, 1);
    luaL_pushresultsize(&b, (size_t)got);
    return 1;
}

/* file:all(): all of it; or nil, message. */
static int file_all(lua_State *L) {
    const DataFile *f = file_at(L, 1);
    int64_t got = CHUNK;
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int64_t at = 0; got == CHUNK; at += got) {
        got = file_read(state_of(L), f, at, luaL_prepbuffsize(&b, CHUNK), CHUNK);
        if (got < 0) return file_failed(L, 1);
        luaL_addsize(&b, (size_t)got);
    }
    luaL_pushresult(&b);
    return 1;
}

/* data_bytes(): how many bytes of data files this process has read. */
static int data_bytes(lua_State *L) {
    lua_pushinteger(L, state_of(L)->data_bytes);
    return 1;
}

/* ---- lists: user value 1 is the string or the file that holds the numbers, 2 memory for what
 * comes from a file ---- */
#define VALUE_TOKENS "meshlua.tokens"

typedef struct Tokens {
    const uint8_t *bytes; /* NULL: they are in the file, */
    const DataFile *file;
    int64_t begin; /* from this byte on */
    int64_t n;
    int32_t width; /* bytes per number: 1, 2 or 4, little-endian, unsigned */
} Tokens;

static uint32_t number_at(const uint8_t *p, int32_t width) {
    uint32_t id = p[0];
    if (width > 1) id |= (uint32_t)p[1] << 8;
    if (width > 2) id |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return id;
}

static const Tokens *tokens_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_TOKENS);
}

/* n bytes that last as long as the tokens at `index`, until the next call. */
static char *tokens_memory(lua_State *L, int index, size_t n) {
    lua_getiuservalue(L, index, 2);
    if (lua_rawlen(L, -1) < n) {
        lua_pop(L, 1);
        lua_newuserdatauv(L, n, 0);
        lua_pushvalue(L, -1);
        lua_setiuservalue(L, index, 2);
    }
    char *memory = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return memory;
}

/* `count` numbers from `first` on of the tokens at `index`, until the next call. The file may have
 * changed since it was opened. */
static const uint8_t *tokens_read(lua_State *L, int index, int64_t first, int64_t count) {
    const Tokens *t = tokens_at(L, index);
    int64_t at = t->begin + first * t->width;
    size_t n = (size_t)(count * t->width);
    if (t->bytes) return t->bytes + at;
    char *out = tokens_memory(L, index, n);
    int64_t got = file_read(state_of(L), t->file, at, out, n);
    if (got == (int64_t)n) return (uint8_t *)out;
    const char *why = got < 0 ? strerror(errno) : "it has become shorter since it was opened";
    lua_getiuservalue(L, index, 1);
    lua_getiuservalue(L, -1, 1);
    state_error(L, E_IO, "%s: bytes %lld to %lld cannot be read: %s", lua_tostring(L, -1),
                (long long)at, (long long)at + (long long)n - 1, why);
}

/* tokens(bytes or file, width [, first byte, from 0 [, count]]) */
static int tokens_new(lua_State *L) {
    size_t n;
    const char *bytes = NULL;
    const DataFile *file = luaL_testudata(L, 1, VALUE_FILE);
    if (file)
        n = file->size > 0 ? (size_t)file->size : 0;
    else
        bytes = arg_string(L, 1, &n, "tokens: the bytes");
    lua_Integer width = arg_integer(L, 2, "tokens: the width"), skip = 0;
    if (!lua_isnoneornil(L, 3)) skip = arg_integer(L, 3, "tokens: the first byte");
    if ((width != 1 && width != 2 && width != 4) || skip < 0 || (size_t)skip > n)
        state_error(L, E_VALUE, "tokens: a width of %lld, from byte %lld of %lld", (long long)width,
                    (long long)skip, (long long)n);
    lua_Integer room = (lua_Integer)(n - (size_t)skip) / width, count = room;
    if (!lua_isnoneornil(L, 4)) count = arg_integer(L, 4, "tokens: the count");
    if (count < 0 || count > room)
        state_error(L, E_VALUE, "tokens: %lld number%s of the %lld there are", (long long)count,
                    str_s(count), (long long)room);
    Tokens *t = lua_newuserdatauv(L, sizeof *t, 2);
    *t = (Tokens){(const uint8_t *)bytes, file, skip, count, (int32_t)width};
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

/* A range first <= i < last at 2 and 3, from 0; where there is none, all. */
static void read_range(lua_State *L, const Tokens *t, const char *who, lua_Integer *first,
                       lua_Integer *last) {
    *first = 0, *last = t->n;
    if (lua_isnoneornil(L, 2)) return;
    *first = arg_integer(L, 2, who), *last = arg_integer(L, 3, who);
    if (*first < 0 || *first > *last || *last > t->n)
        state_error(L, E_VALUE, "%s: from %lld to %lld of %lld number%s", who, (long long)*first,
                    (long long)*last, (long long)t->n, str_s(t->n));
}

/* tokens:largest([first, last]): 0 where there are none. */
static int tokens_largest(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    lua_Integer first, last;
    uint32_t largest = 0;
    read_range(L, t, "largest", &first, &last);
    while (first < last) {
        int64_t n = last - first < CHUNK ? last - first : CHUNK;
        const uint8_t *p = tokens_read(L, 1, first, n);
        for (int64_t i = 0; i < n; i++) {
            uint32_t id = number_at(p + i * t->width, t->width);
            if (id > largest) largest = id;
        }
        first += n;
    }
    lua_pushinteger(L, largest);
    return 1;
}

/* tokens:bytes([first, last]): of these numbers, as they lie in the file. */
static int tokens_bytes(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    lua_Integer first, last;
    luaL_Buffer b;
    read_range(L, t, "bytes", &first, &last);
    luaL_buffinit(L, &b);
    while (first < last) {
        int64_t n = last - first < CHUNK ? last - first : CHUNK;
        char *out = luaL_prepbuffsize(&b, (size_t)(n * t->width));
        memcpy(out, tokens_read(L, 1, first, n), (size_t)(n * t->width));
        luaL_addsize(&b, (size_t)(n * t->width));
        first += n;
    }
    luaL_pushresult(&b);
    return 1;
}

/* ---- batches ---- */

/* What is read of a batch whose rows begin at the starts in the list at index 2. */
typedef struct RowPart {
    Dims row;                /* a row's shape */
    int64_t start[MAX_RANK]; /* of the batch: the first row, and where in a row */
    Dims part;               /* rows, and how much of each dim of a row */
    int run_dim;             /* from this dim on the part lies in one run, in the file and here */
    int64_t run;             /* numbers in it */
} RowPart;

static RowPart row_part(const Tensor *t, int32_t slot, const Dims *row) {
    RowPart p = {.row = *row, .run = 1};
    p.part = tensor_part(t, slot, p.start);
    int d = p.part.rank - 1;
    while (d > 1 && p.part.at[d] == row->at[d - 1] && t->local.at[d] == p.part.at[d]) d--;
    p.run_dim = d > 0 ? d : 1;
    for (int k = p.run_dim; k < p.part.rank; k++) p.run *= p.part.at[k];
    return p;
}

/* Returns the first number that the dtype does not hold; n: there is none. */
static int64_t copy_numbers(char *out, const uint8_t *from, int32_t width, int64_t n, DType dtype) {
    if (dtype == DT_U8) {
        memcpy(out, from, (size_t)n);
        return n;
    }
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++, out += 4) {
        uint32_t id = number_at(from + i * width, width);
        any |= id;
        memcpy(out, &id, 4);
    }
    int64_t first = n;
    for (int64_t i = 0; any > INT32_MAX && first == n; i++)
        if (number_at(from + i * width, width) > INT32_MAX) first = i;
    return first;
}

/* Numbers `at` and on, which lie at `from`; raises for one that is too large. */
static void put_run(lua_State *L, const Tokens *t, const uint8_t *from, int64_t at, int64_t n,
                    DType dtype, char *out) {
    int64_t bad = copy_numbers(out, from, t->width, n, dtype);
    if (bad < n)
        state_error(L, E_VALUE, "windows: number %lld (from 0) is %llu, which int32 does not hold",
                    (long long)(at + bad),
                    (unsigned long long)number_at(from + bad * t->width, t->width));
}

/* Reads one row of the part from number `at` on, run by run, into a shard: `to` is its row. `next`,
 * or NULL: that of a shard like it, of which the row begins one number later. */
static void read_row(lua_State *L, const Tokens *t, const Tensor *x, const RowPart *p, int64_t at,
                     char *to, char *next) {
    int64_t index[MAX_RANK] = {0}, strides[MAX_RANK], out = 0;
    DType dtype = x->type->dtype;
    dims_strides(&p->row, 1, strides); /* of dim d of the batch: strides[d - 1] */
    for (int d = 1; d < p->part.rank; d++) at += p->start[d] * strides[d - 1];
    for (;;) {
        const uint8_t *from = tokens_read(L, 1, at, p->run + (next != NULL));
        put_run(L, t, from, at, p->run, dtype, to + out);
        if (next) put_run(L, t, from + t->width, at + 1, p->run, dtype, next + out);
        int d = p->run_dim - 1;
        for (; d > 0; d--) {
            at += strides[d - 1];
            out += x->strides[d];
            if (++index[d] < p->part.at[d]) break;
            at -= strides[d - 1] * p->part.at[d];
            out -= x->strides[d] * p->part.at[d];
            index[d] = 0;
        }
        if (d <= 0) return;
    }
}

static int64_t start_at(lua_State *L, int64_t i) {
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    int64_t start = arg_integer(L, -1, "windows: a start");
    lua_pop(L, 1);
    return start;
}

/* Every row must be there, also those that other processes read. */
static void check_starts(lua_State *L, const Tokens *t, int64_t rows, int64_t length) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t start = start_at(L, i);
        if (start < 0 || start > t->n - length)
            state_error(L, E_VALUE, "%lld number%s from %lld on, of the %lld there are",
                        (long long)length, str_s(length), (long long)start, (long long)t->n);
    }
}

/* A shard of x[0], and of x[1] if there are two, whose rows begin one number later. */
static void read_shard(lua_State *L, const Tokens *t, Tensor *const *x, int n, int32_t slot,
                       const Dims *row) {
    RowPart p = row_part(x[0], slot, row);
    char *room[2] = {NULL, NULL};
    int64_t rows = dims_count(&p.part) ? p.part.at[0] : 0;
    for (int k = 0; k < n; k++) {
        room[k] = value_push_room(L, x[k], slot);
        if (!dims_equal(&p.part, &x[k]->local)) tensor_poison(x[k], room[k]);
    }
    for (int64_t i = 0; i < rows; i++) {
        int64_t to = i * x[0]->strides[0];
        read_row(L, t, x[0], &p, start_at(L, p.start[0] + i), room[0] + to,
                 room[1] ? room[1] + to : NULL);
    }
    for (int k = 0; k < n; k++)
        state_check(L, state_of(L), tensor_write_shard(x[k], slot, room[k]));
    lua_pop(L, n);
}

/* tokens:windows(starts, shape, dtype [, sharding [, both]]): [#starts, shape...], row i the
 * numbers from starts[i] (from 0) on, put where the sharding wants them. dtype: "int32", or "uint8"
 * where a number is a byte. both: and a second like it, whose rows begin one number later; the file
 * is read once for the two. */
static int tokens_windows(lua_State *L) {
    Host *h = state_of(L);
    const Tokens *t = tokens_at(L, 1);
    arg_check_type(L, 2, LUA_TTABLE, "windows: the starts");
    Dims row = value_dims(L, 3, 0, "a row's shape"), dims = {1, {(int64_t)lua_rawlen(L, 2)}};
    DType dtype = value_dtype(L, 4);
    if (dtype != DT_I32 && (dtype != DT_U8 || t->width != 1))
        state_error(L, E_DTYPE, "windows: %s; numbers become int32, bytes uint8, too",
                    dtype_name(dtype));
    if (row.rank == MAX_RANK) state_error(L, E_SHAPE, "windows: a row of rank %d", row.rank);
    for (int d = 0; d < row.rank; d++) dims_push(&dims, row.at[d]);
    if (dims_count(&dims) < 0) state_error(L, E_SHAPE, "windows: a row has no such shape");
    const Layout *layout = value_layout_at(L, h, 5, &dims, "the batch");
    const Type *type = type_make(&h->cx, dtype, &dims, layout);
    int n = lua_toboolean(L, 6) ? 2 : 1;
    check_starts(L, t, dims.at[0], dims_count(&row) + n - 1);
    Tensor *x[2];
    for (int k = 0; k < n; k++) x[k] = value_push_fresh(L, h, type, true)->t;
    for (int32_t slot = 0; slot < x[0]->nslot && tensor_has_data(x[0]); slot++)
        read_shard(L, t, x, n, slot, &row);
    return n;
}

/* tokens_fingerprint(tokens): 16 digits that say whether they are the same numbers: a hash of all,
 * or where there are many of even samples. Data that changes is noticed, not proved equal. */
static int tokens_fingerprint(lua_State *L) {
    enum { SAMPLES = 1024 };
    const Tokens *t = tokens_at(L, 1);
    int64_t runs = (t->n + CHUNK - 1) / CHUNK, n = runs < SAMPLES ? runs : SAMPLES;
    int64_t before = state_of(L)->data_bytes;
    uint64_t hash = hash_u64((uint64_t)t->width, (uint64_t)t->n);
    for (int64_t i = 0; i < n; i++) {
        int64_t first = (n < 2 ? 0 : (runs - 1) * i / (n - 1)) * CHUNK;
        int64_t count = t->n - first < CHUNK ? t->n - first : CHUNK;
        hash = hash_bytes(hash, tokens_read(L, 1, first, count), (size_t)(count * t->width));
    }
    state_of(L)->data_bytes = before;
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    lua_pushstring(L, text);
    return 1;
}

void lib_open_tokens(lua_State *L) {
    static const luaL_Reg fns[] = {{"data_file", file_open},
                                   {"data_bytes", data_bytes},
                                   {"tokens", tokens_new},
                                   {"tokens_fingerprint", tokens_fingerprint},
                                   {NULL, NULL}};
    static const luaL_Reg file_meta[] = {{"__gc", file_gc}, {"__close", file_gc}, {NULL, NULL}};
    static const luaL_Reg file_methods[] = {
        {"size", file_size}, {"head", file_head}, {"all", file_all}, {NULL, NULL}};
    static const luaL_Reg tokens_meta[] = {{"__len", tokens_len}, {NULL, NULL}};
    static const luaL_Reg tokens_methods[] = {{"windows", tokens_windows},
                                              {"largest", tokens_largest},
                                              {"bytes", tokens_bytes},
                                              {"width", tokens_width},
                                              {NULL, NULL}};
    value_new_type(L, VALUE_FILE, file_meta, file_methods, NULL);
    value_new_type(L, VALUE_TOKENS, tokens_meta, tokens_methods, NULL);
    luaL_setfuncs(L, fns, 0);
}
