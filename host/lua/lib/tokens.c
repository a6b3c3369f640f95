/* tokens.c - data files as lists of numbers, which stay in their files; lists joined to one, looked
 * through, and cut into pieces. Batches of them: tokens_batch.c. */
#include "lua/lib/tokens.h"
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

/* ---- lists ---- */

const Tokens *tokens_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_TOKENS);
}

const Tokens *tokens_part_at(const Tokens *t, int64_t *at) {
    int32_t low = 0, high = t->nparts; /* part[low].first <= *at */
    if (!high) return t;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (t->part[middle].first <= *at)
            low = middle;
        else
            high = middle;
    }
    *at -= t->part[low].first;
    return t->part[low].tokens;
}

const uint8_t *tokens_span(const Tokens *t, int64_t first, int64_t *count, uint8_t *room,
                           int64_t *read, TokensFault *fault) {
    t = tokens_part_at(t, &first);
    if (*count > t->n - first) *count = t->n - first;
    int64_t at = t->begin + first * t->width;
    if (t->bytes) return t->bytes + at;
    if (*count > TOKENS_ROOM / t->width) *count = TOKENS_ROOM / t->width;
    int64_t n = *count * t->width, got = file_read_at(t->file->fd, room, (size_t)n, at);
    if (got > 0) *read += got;
    if (got == n) return room;
    *fault = (TokensFault){t, at, n, got < 0 ? errno : 0};
    return NULL;
}

/* Pushes the userdata of `t`, which is the list at `index` or one of its parts. */
static void push_holder(lua_State *L, int index, const Tokens *t) {
    const Tokens *from = lua_touserdata(L, index);
    lua_pushvalue(L, index);
    for (int32_t i = 0; i < from->nparts; i++) {
        if (from->part[i].tokens != t) continue;
        lua_getiuservalue(L, -1, 1);
        lua_rawgeti(L, -1, i + 1);
        lua_replace(L, -3);
        lua_pop(L, 1);
        return;
    }
}

/* The name of the file that a list without parts, on top of the stack, is in: takes its place. */
static void replace_by_name(lua_State *L, const Tokens *t) {
    lua_getiuservalue(L, -1, t->file ? 1 : 2);
    if (t->file) {
        lua_getiuservalue(L, -1, 1);
        lua_remove(L, -2);
    }
    lua_remove(L, -2);
}

void tokens_push_name(lua_State *L, int index, int64_t at, int64_t *byte) {
    const Tokens *t = tokens_part_at(tokens_at(L, index), &at);
    *byte = t->begin + at * t->width;
    push_holder(L, index, t);
    replace_by_name(L, t);
}

void tokens_raise(lua_State *L, int index, const TokensFault *fault) {
    const char *why =
        fault->error ? strerror(fault->error) : "it has become shorter since it was opened";
    push_holder(L, index, fault->tokens);
    replace_by_name(L, fault->tokens);
    state_error(L, E_IO, "%s: bytes %lld to %lld cannot be read: %s", lua_tostring(L, -1),
                (long long)fault->at, (long long)(fault->at + fault->bytes - 1), why);
}

/* As tokens_span, of the list at `index`; raises. */
static const uint8_t *read_span(lua_State *L, int index, int64_t first, int64_t *count,
                                uint8_t *room) {
    TokensFault fault;
    const uint8_t *p =
        tokens_span(tokens_at(L, index), first, count, room, &state_of(L)->data_bytes, &fault);
    if (!p) tokens_raise(L, index, &fault);
    return p;
}

static uint8_t *push_room(lua_State *L) {
    return lua_newuserdatauv(L, TOKENS_ROOM, 0);
}

Tokens *tokens_push(lua_State *L, int32_t nparts) {
    size_t parts = (size_t)nparts * sizeof(struct TokensPart);
    Tokens *t = lua_newuserdatauv(L, sizeof *t + parts, 2);
    *t = (Tokens){.dtype = -1, .nparts = nparts};
    lua_insert(L, -2);
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, VALUE_TOKENS);
    return t;
}

/* The width of a number, or a dtype, at `index`. */
static int32_t read_kind(lua_State *L, int index, int32_t *dtype) {
    *dtype = -1;
    if (lua_type(L, index) == LUA_TSTRING) {
        *dtype = (int32_t)value_dtype(L, index);
        return dtype_size((DType)*dtype);
    }
    lua_Integer width = arg_integer(L, index, "tokens: the width");
    if (width != 1 && width != 2 && width != 4)
        state_error(L, E_VALUE, "tokens: a width of %lld", (long long)width);
    return (int32_t)width;
}

/* tokens(bytes or file, width or dtype [, first byte, from 0 [, count [, name]]]): the name of the
 * file that the bytes are from, for errors. */
static int tokens_new(lua_State *L) {
    size_t n;
    const char *bytes = NULL;
    const DataFile *file = luaL_testudata(L, 1, VALUE_FILE);
    if (file)
        n = file->size > 0 ? (size_t)file->size : 0;
    else
        bytes = arg_string(L, 1, &n, "tokens: the bytes");
    int32_t dtype, width = read_kind(L, 2, &dtype);
    lua_Integer skip = 0;
    if (!lua_isnoneornil(L, 3)) skip = arg_integer(L, 3, "tokens: the first byte");
    if (skip < 0 || (size_t)skip > n)
        state_error(L, E_VALUE, "tokens: from byte %lld of %lld", (long long)skip, (long long)n);
    lua_Integer room = (lua_Integer)(n - (size_t)skip) / width, count = room;
    if (!lua_isnoneornil(L, 4)) count = arg_integer(L, 4, "tokens: the count");
    if (count < 0 || count > room)
        state_error(L, E_VALUE, "tokens: %lld number%s of the %lld there are", (long long)count,
                    str_s(count), (long long)room);
    lua_settop(L, 5);
    lua_pushvalue(L, 1);
    Tokens *t = tokens_push(L, 0);
    t->bytes = (const uint8_t *)bytes, t->file = file, t->begin = skip, t->n = count;
    t->width = width, t->dtype = dtype;
    lua_pushvalue(L, 5);
    lua_setiuservalue(L, -2, 2);
    return 1;
}

/* tokens_join(lists): one list, each behind the one before; of one width. */
static int tokens_join(lua_State *L) {
    arg_check_type(L, 1, LUA_TTABLE, "tokens_join: the lists");
    int32_t n = (int32_t)lua_rawlen(L, 1);
    lua_settop(L, 1);
    lua_pushnil(L);
    Tokens *t = tokens_push(L, n);
    lua_createtable(L, n, 0); /* a table of its own: the caller's may change */
    for (int32_t i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        const Tokens *part = tokens_at(L, -1);
        if (i == 0) t->width = part->width, t->dtype = part->dtype;
        if (part->nparts) state_error(L, E_VALUE, "tokens_join: list %d is joined", (int)i + 1);
        if (part->width != t->width || part->dtype != t->dtype)
            state_error(L, E_VALUE, "tokens_join: list %d has %d bytes per number, the first %d",
                        (int)i + 1, (int)part->width, (int)t->width);
        t->part[i].tokens = part, t->part[i].first = t->n;
        t->n += part->n;
        lua_rawseti(L, -2, i + 1);
    }
    lua_setiuservalue(L, -2, 1);
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

/* tokens_on_disk(tokens): are they, or some of them, read from a file that may take its time? */
static int tokens_on_disk(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    bool any = t->file != NULL;
    for (int32_t i = 0; i < t->nparts; i++) any = any || t->part[i].tokens->file;
    lua_pushboolean(L, any);
    return 1;
}

/* tokens:place(i): the name of the file that has number i (from 0), or nil, and its first byte
 * there: of what was packed, as it lies unpacked. */
static int tokens_place(lua_State *L) {
    lua_Integer at = arg_integer(L, 2, "place: the number");
    int64_t byte, n = tokens_at(L, 1)->n;
    if (at < 0 || at >= n)
        state_error(L, E_VALUE, "place: number %lld of %lld", (long long)at, (long long)n);
    tokens_push_name(L, 1, at, &byte);
    lua_pushinteger(L, byte);
    return 2;
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

/* tokens:largest([first, last]): the largest, 0 where there are none, and its first place. */
static int tokens_largest(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    lua_Integer first, last, at = -1;
    uint32_t largest = 0;
    if (t->dtype >= 0)
        state_error(L, E_DTYPE, "largest: of ids; these are %s", dtype_name((DType)t->dtype));
    read_range(L, t, "largest", &first, &last);
    uint8_t *room = push_room(L);
    for (int64_t n; first < last; first += n) {
        n = last - first;
        const uint8_t *p = read_span(L, 1, first, &n, room);
        for (int64_t i = 0; i < n; i++) {
            uint32_t id = tokens_number(p + i * t->width, t->width);
            if (id > largest || at < 0) largest = id, at = first + i;
        }
    }
    lua_pushinteger(L, largest);
    if (at < 0) return 1;
    lua_pushinteger(L, at);
    return 2;
}

/* tokens:bytes([first, last]): of these numbers, as they lie in the file. */
static int tokens_bytes(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    lua_Integer first, last;
    luaL_Buffer b;
    read_range(L, t, "bytes", &first, &last);
    uint8_t *room = push_room(L);
    luaL_buffinit(L, &b);
    for (int64_t n; first < last; first += n) {
        n = last - first < TOKENS_ROOM / t->width ? last - first : TOKENS_ROOM / t->width;
        char *out = luaL_prepbuffsize(&b, TOKENS_ROOM);
        memcpy(out, read_span(L, 1, first, &n, room), (size_t)(n * t->width));
        luaL_addsize(&b, (size_t)(n * t->width));
    }
    luaL_pushresult(&b);
    return 1;
}

/* tokens:numbers([first, last]): a list of them; of whole numbers. */
static int tokens_numbers(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    lua_Integer first, last, k = 0;
    if (t->dtype >= 0 && t->dtype != DT_I64)
        state_error(L, E_DTYPE, "numbers: of ids; these are %s", dtype_name((DType)t->dtype));
    read_range(L, t, "numbers", &first, &last);
    if (last - first > INT32_MAX)
        state_error(L, E_VALUE, "numbers: %lld are too many for a list", (long long)(last - first));
    uint8_t *room = push_room(L);
    lua_createtable(L, (int)(last - first), 0);
    for (int64_t n; first < last; first += n) {
        n = last - first;
        const uint8_t *p = read_span(L, 1, first, &n, room);
        for (int64_t i = 0; i < n; i++, p += t->width) {
            int64_t wide = 0;
            if (t->dtype >= 0)
                memcpy(&wide, p, sizeof wide);
            else
                wide = tokens_number(p, t->width);
            lua_pushinteger(L, wide);
            lua_rawseti(L, -2, ++k);
        }
    }
    return 1;
}

/* ---- cut into pieces ---- */
enum { LONGEST_MARK = 16 };

/* What stands between pieces, and how much of it has just been read: the search goes back by
 * `back`, as Knuth, Morris and Pratt have it. */
typedef struct CutMark {
    uint32_t id[LONGEST_MARK];
    int back[LONGEST_MARK + 1];
    int n, seen;
} CutMark;

static CutMark read_mark(lua_State *L, const Tokens *t) {
    CutMark m = {.n = 1};
    size_t n = 1;
    if (lua_isinteger(L, 2)) {
        m.id[0] = (uint32_t)lua_tointeger(L, 2);
    } else {
        const char *text = arg_string(L, 2, &n, "cut: the mark");
        if (n < 1 || n > LONGEST_MARK || t->width != 1)
            state_error(L, E_VALUE, "cut: a mark of %d bytes; 1 to %d, in a text", (int)n,
                        LONGEST_MARK);
        for (size_t i = 0; i < n; i++) m.id[i] = (uint8_t)text[i];
    }
    m.n = (int)n;
    m.back[0] = -1;
    for (int i = 0, k = -1; i < m.n; m.back[++i] = ++k)
        while (k >= 0 && m.id[k] != m.id[i]) k = m.back[k];
    return m;
}

/* Reads one more; is it the mark's last? */
static bool mark_ends(CutMark *m, uint32_t id) {
    while (m->seen >= 0 && m->id[m->seen] != id) m->seen = m->back[m->seen];
    if (++m->seen < m->n) return false;
    m->seen = 0;
    return true;
}

static void add_piece(luaL_Buffer *b, int64_t begin, int64_t end) {
    const int64_t piece[] = {begin, end};
    if (end > begin) luaL_addlstring(b, (const char *)piece, sizeof piece);
}

/* tokens:cut(mark [, keep]): an int64 list of where the pieces between marks begin and end, one
 * after the other; those without numbers are left out. The mark is an id, or of bytes a text of up
 * to 16. It belongs to no piece; keep "end": to the one before it; "start": to the one behind. */
static int tokens_cut(lua_State *L) {
    const Tokens *t = tokens_at(L, 1);
    if (t->dtype >= 0)
        state_error(L, E_DTYPE, "cut: of ids; these are %s", dtype_name((DType)t->dtype));
    CutMark m = read_mark(L, t);
    const char *keep = lua_isnoneornil(L, 3) ? "" : arg_string(L, 3, NULL, "cut: keep");
    int64_t tail = *keep == 'e' ? 0 : m.n, next = *keep == 's' ? m.n : 0, begin = 0;
    luaL_Buffer b;
    lua_settop(L, 3);
    uint8_t *room = push_room(L);
    luaL_buffinit(L, &b);
    for (int64_t first = 0, n; first < t->n; first += n) {
        n = t->n - first < TOKENS_ROOM ? t->n - first : TOKENS_ROOM;
        const uint8_t *p = read_span(L, 1, first, &n, room);
        for (int64_t i = 0; i < n; i++) {
            if (t->width == 1 && m.seen == 0) { /* most bytes are not the first of a mark */
                const uint8_t *q = memchr(p + i, (int)m.id[0], (size_t)(n - i));
                if (!q) break;
                i = q - p;
            }
            if (!mark_ends(&m, tokens_number(p + i * t->width, t->width))) continue;
            int64_t end = first + i + 1;
            add_piece(&b, begin, end - tail);
            begin = end - next;
        }
    }
    add_piece(&b, begin, t->n);
    luaL_pushresult(&b);
    size_t bytes;
    const char *list = lua_tolstring(L, -1, &bytes);
    Tokens *pieces = tokens_push(L, 0);
    pieces->bytes = (const uint8_t *)list, pieces->n = (int64_t)(bytes / sizeof(int64_t));
    pieces->width = sizeof(int64_t), pieces->dtype = DT_I64;
    return 1;
}

/* The hash of a run, in one piece: the same however it is read. */
static uint64_t hash_run(lua_State *L, uint64_t hash, int64_t first, int64_t count, uint8_t *room) {
    int32_t width = tokens_at(L, 1)->width;
    uint8_t *all = lua_newuserdatauv(L, (size_t)(count * width) + 1, 0), *to = all;
    for (int64_t n; count > 0; first += n, count -= n, to += n * width) {
        n = count;
        memcpy(to, read_span(L, 1, first, &n, room), (size_t)(n * width));
    }
    hash = hash_bytes(hash, all, (size_t)(to - all));
    lua_pop(L, 1);
    return hash;
}

/* tokens_fingerprint(tokens): 16 digits that say whether they are the same numbers: a hash of all,
 * or where there are many of even samples. Data that changes is noticed, not proved equal. */
static int tokens_fingerprint(lua_State *L) {
    enum { SAMPLES = 1024 };
    const Tokens *t = tokens_at(L, 1);
    int64_t runs = (t->n + CHUNK - 1) / CHUNK, n = runs < SAMPLES ? runs : SAMPLES;
    int64_t before = state_of(L)->data_bytes;
    uint8_t *room = push_room(L);
    uint64_t hash = hash_u64((uint64_t)t->width, (uint64_t)t->n);
    for (int64_t i = 0; i < n; i++) {
        int64_t first = (n < 2 ? 0 : (runs - 1) * i / (n - 1)) * CHUNK;
        int64_t count = t->n - first < CHUNK ? t->n - first : CHUNK;
        hash = hash_run(L, hash, first, count, room);
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
                                   {"tokens_join", tokens_join},
                                   {"tokens_on_disk", tokens_on_disk},
                                   {"tokens_fingerprint", tokens_fingerprint},
                                   {NULL, NULL}};
    static const luaL_Reg file_meta[] = {{"__gc", file_gc}, {"__close", file_gc}, {NULL, NULL}};
    static const luaL_Reg file_methods[] = {
        {"size", file_size}, {"head", file_head}, {"all", file_all}, {NULL, NULL}};
    static const luaL_Reg tokens_meta[] = {{"__len", tokens_len}, {NULL, NULL}};
    static const luaL_Reg tokens_methods[] = {{"largest", tokens_largest},
                                              {"bytes", tokens_bytes},
                                              {"numbers", tokens_numbers},
                                              {"width", tokens_width},
                                              {"place", tokens_place},
                                              {"cut", tokens_cut},
                                              {NULL, NULL}};
    value_new_type(L, VALUE_FILE, file_meta, file_methods, NULL);
    value_new_type(L, VALUE_TOKENS, tokens_meta, tokens_methods, NULL);
    luaL_setfuncs(L, fns, 0);
    tokens_open_batches(L);
}
