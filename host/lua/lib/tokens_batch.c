/* tokens_batch.c - batches of lists of numbers: each row is pieces of lists, one behind the other.
 * Of a batch a process reads what its devices hold, and nothing else; at once, or ahead of time, by
 * a thread that knows no Lua. */
#include "lua/lib/lib.h"
#include "lua/lib/tokens.h"
#include "lua/value/value.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#define VALUE_READ   "meshlua.read"
#define VALUE_READER "meshlua.reader"

/* ---- what is read ---- */

/* `count` numbers of a list, or all the same number. */
typedef struct RowPiece {
    const Tokens *tokens; /* NULL: the number `fill` */
    int64_t start, count;
    int64_t first;         /* how many numbers of the batch are before these */
    unsigned char fill[8]; /* in the batch's dtype */
} RowPiece;

/* What is read of a batch for a shard. */
typedef struct RowPart {
    int32_t slot;
    Dims row;                /* a row's shape */
    int64_t start[MAX_RANK]; /* of the batch: the first row, and where in a row */
    Dims part;               /* rows, and how much of each dim of a row */
    int run_dim;             /* from this dim on the part lies in one run, there and here */
    int64_t run;             /* numbers in it */
    char *room[2];           /* where its bytes are made, of either tensor */
} RowPart;

typedef enum ReadState { FRESH, QUEUED, READING, READ } ReadState;

/* One field of a batch, or two: the second is like the first, each piece of it one number later.
 * User values: 1 the list of pieces, which keeps the lists; 2, 3 the tensors; 4 what keeps the
 * rooms; 5 the reader. */
typedef struct RowRead {
    ReadState state;      /* under the reader's lock once it is queued */
    struct RowRead *next; /* in the queue */
    struct RowReader *reader;
    Tensor *x[2]; /* the second NULL: there is one */
    int32_t npieces, nparts;
    RowPiece *piece;
    RowPart *part;
    uint8_t *scratch; /* for what a span of a list in a file takes */
    size_t scratch_bytes;
    int64_t bytes; /* that came from files */
    bool failed;
    TokensFault fault;
    const Tokens *wrong; /* a list whose number wrong_at int32 does not hold */
    int64_t wrong_at, wrong_number;
} RowRead;

static RowPart row_part(const Tensor *t, int32_t slot, const Dims *row) {
    RowPart p = {.slot = slot, .row = *row, .run = 1};
    p.part = tensor_part(t, slot, p.start);
    int d = p.part.rank - 1;
    while (d > 1 && p.part.at[d] == row->at[d - 1] && t->local.at[d] == p.part.at[d]) d--;
    p.run_dim = d > 0 ? d : 1;
    for (int k = p.run_dim; k < p.part.rank; k++) p.run *= p.part.at[k];
    return p;
}

/* ---- reading, by any thread ---- */

/* Returns the first number that the dtype does not hold; n: there is none. */
static int64_t copy_numbers(char *out, const uint8_t *from, const Tokens *t, int64_t n,
                            DType dtype) {
    if (t->dtype >= 0 || dtype == DT_U8) {
        memcpy(out, from, (size_t)(n * t->width));
        return n;
    }
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++, out += 4) {
        uint32_t id = tokens_number(from + i * t->width, t->width);
        any |= id;
        memcpy(out, &id, 4);
    }
    int64_t first = n;
    for (int64_t i = 0; any > INT32_MAX && first == n; i++)
        if (tokens_number(from + i * t->width, t->width) > INT32_MAX) first = i;
    return first;
}

/* Numbers `at` and on of the piece, which lie at `from`. */
static bool put_numbers(RowRead *r, const RowPiece *p, const uint8_t *from, int64_t at, int64_t n,
                        char *out) {
    int64_t bad = copy_numbers(out, from, p->tokens, n, r->x[0]->type->dtype);
    if (bad >= n) return true;
    r->wrong = p->tokens, r->wrong_at = at + bad;
    r->wrong_number = tokens_number(from + bad * p->tokens->width, p->tokens->width);
    return false;
}

/* n numbers of a piece, from `off` of it on; to `next` those that are one number later. */
static bool read_piece(RowRead *r, const RowPiece *p, int64_t off, int64_t n, char *to,
                       char *next) {
    int64_t size = dtype_size(r->x[0]->type->dtype), at = p->start + off;
    if (!p->tokens) {
        for (int64_t i = 0; i < n; i++) memcpy(to + i * size, p->fill, (size_t)size);
        for (int64_t i = 0; next && i < n; i++) memcpy(next + i * size, p->fill, (size_t)size);
        return true;
    }
    for (int64_t done = 0, all = n + (next != NULL), got; done < all; done += got) {
        got = all - done;
        const uint8_t *from =
            tokens_span(p->tokens, at + done, &got, r->scratch, &r->bytes, &r->fault);
        if (!from) return false;
        int64_t here = done + got < n ? got : n - done, skip = done == 0;
        if (here > 0 && !put_numbers(r, p, from, at + done, here, to + done * size)) return false;
        if (next && got > skip &&
            !put_numbers(r, p, from + skip * p->tokens->width, at + done + skip, got - skip,
                         next + (done + skip - 1) * size))
            return false;
    }
    return true;
}

static const RowPiece *piece_at(const RowRead *r, int64_t number) {
    int32_t low = 0, high = r->npieces;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (r->piece[middle].first <= number)
            low = middle;
        else
            high = middle;
    }
    return &r->piece[low];
}

/* Numbers `at` and on of the batch. */
static bool read_run(RowRead *r, int64_t at, int64_t n, char *to, char *next) {
    int64_t size = dtype_size(r->x[0]->type->dtype);
    for (const RowPiece *p = n > 0 ? piece_at(r, at) : NULL; n > 0; p++) {
        int64_t off = at - p->first, m = p->count - off < n ? p->count - off : n;
        if (m > 0 && !read_piece(r, p, off, m, to, next)) return false;
        at += m, n -= m, to += m * size;
        if (next) next += m * size;
    }
    return true;
}

/* One row of a part, run by run, into a shard: `to` is its row. */
static bool read_row(RowRead *r, const RowPart *p, int64_t row, char *to, char *next) {
    const Tensor *x = r->x[0];
    int64_t index[MAX_RANK] = {0}, strides[MAX_RANK], out = 0;
    int64_t at = (p->start[0] + row) * dims_count(&p->row);
    dims_strides(&p->row, 1, strides); /* of dim d of the batch: strides[d - 1] */
    for (int d = 1; d < p->part.rank; d++) at += p->start[d] * strides[d - 1];
    for (;;) {
        if (!read_run(r, at, p->run, to + out, next ? next + out : NULL)) return false;
        int d = p->run_dim - 1;
        for (; d > 0; d--) {
            at += strides[d - 1];
            out += x->strides[d];
            if (++index[d] < p->part.at[d]) break;
            at -= strides[d - 1] * p->part.at[d];
            out -= x->strides[d] * p->part.at[d];
            index[d] = 0;
        }
        if (d <= 0) return true;
    }
}

static void read_all(RowRead *r) {
    for (int32_t i = 0; i < r->nparts && !r->failed; i++) {
        const RowPart *p = &r->part[i];
        int64_t rows = dims_count(&p->part) ? p->part.at[0] : 0;
        for (int64_t k = 0; k < rows && !r->failed; k++) {
            int64_t to = k * r->x[0]->strides[0];
            r->failed = !read_row(r, p, k, p->room[0] + to, r->x[1] ? p->room[1] + to : NULL);
        }
    }
}

/* ---- the thread that reads ahead ---- */
typedef struct RowReader {
    pthread_t thread;
    bool runs, stop;
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    RowRead *first, *last; /* the queue */
} RowReader;

static void *run_reader(void *arg) {
    RowReader *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->first && !d->stop) pthread_cond_wait(&d->more, &d->lock);
        if (d->stop) break;
        RowRead *r = d->first;
        d->first = r->next;
        if (!d->first) d->last = NULL;
        r->state = READING;
        pthread_mutex_unlock(&d->lock);
        read_all(r);
        pthread_mutex_lock(&d->lock);
        r->state = READ;
        pthread_cond_broadcast(&d->done);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* reader(): a thread that reads batches ahead; nil where none can be had. */
static int reader_new(lua_State *L) {
    sigset_t all, before;
    RowReader *d = lua_newuserdatauv(L, sizeof *d, 0);
    *d = (RowReader){.runs = false};
    luaL_setmetatable(L, VALUE_READER);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->more, NULL);
    pthread_cond_init(&d->done, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    d->runs = !pthread_create(&d->thread, NULL, run_reader, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return d->runs;
}

static int reader_gc(lua_State *L) {
    RowReader *d = luaL_checkudata(L, 1, VALUE_READER);
    if (!d->runs) return 0;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    d->runs = false;
    return 0;
}

static void queue_read(RowRead *r, RowReader *d) {
    r->reader = d;
    pthread_mutex_lock(&d->lock);
    r->state = QUEUED;
    if (d->last)
        d->last->next = r;
    else
        d->first = r;
    d->last = r;
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
}

static void take_from_queue(RowReader *d, const RowRead *r) {
    RowRead **at = &d->first, *before = NULL;
    while (*at != r) before = *at, at = &(*at)->next;
    *at = r->next;
    if (d->last == r) d->last = before;
}

/* From here on no thread is at it: it has been read, or will not be. What the thread has not come
 * to is read here. */
static void end_read(RowRead *r, bool wanted) {
    RowReader *d = r->reader;
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    if (r->state == QUEUED) {
        take_from_queue(d, r);
        r->state = FRESH;
    }
    while (r->state == READING) pthread_cond_wait(&d->done, &d->lock);
    pthread_mutex_unlock(&d->lock);
    if (r->state == FRESH && wanted) {
        read_all(r);
        r->state = READ;
    }
}

/* ---- reads, made and ended by the thread of the Lua state ---- */

static void *push_memory(lua_State *L, size_t n) {
    return lua_newuserdatauv(L, n + 1, 0);
}

/* Keeps what is on top of the stack, in the table that is user value 4 of the read at `index`. */
static void keep(lua_State *L, int index) {
    lua_getiuservalue(L, index, 4);
    lua_insert(L, -2);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    lua_pop(L, 1);
}

/* A number as an element of the dtype. */
static void read_fill(lua_State *L, int index, DType dtype, unsigned char fill[8]) {
    float f = (float)lua_tonumber(L, index);
    int64_t i = lua_tointeger(L, index);
    memset(fill, 0, 8);
    if (dtype == DT_F32)
        memcpy(fill, &f, sizeof f);
    else if (dtype_kind(dtype) != KIND_FLOAT)
        memcpy(fill, &i, (size_t)dtype_size(dtype));
    else if (f != 0)
        state_error(L, E_DTYPE, "rows: filled up with %g, of %s", (double)f, dtype_name(dtype));
}

/* May numbers of the list become elements of the dtype? */
static void check_dtype(lua_State *L, const Tokens *t, DType dtype) {
    if (t->dtype >= 0) {
        if (t->dtype != (int32_t)dtype)
            state_error(L, E_DTYPE, "rows: %s of a list of %s", dtype_name(dtype),
                        dtype_name((DType)t->dtype));
    } else if (dtype != DT_I32 && (dtype != DT_U8 || t->width != 1)) {
        state_error(L, E_DTYPE, "windows: %s; numbers become int32, bytes uint8, too",
                    dtype_name(dtype));
    }
}

/* Every piece must be there, also those that other processes read. */
static void set_piece(lua_State *L, RowRead *r, int32_t i, const Tokens *t, int64_t start,
                      int64_t count, bool both) {
    RowPiece *p = &r->piece[i];
    int64_t end;
    *p = (RowPiece){t, start, count, i ? p[-1].first + p[-1].count : 0, {0}};
    bool fits = count >= 0 && !__builtin_add_overflow(p->first, count, &end);
    if (!fits || (t && (start < 0 || start > t->n - count - both)))
        state_error(L, E_VALUE, "%lld number%s from %lld on, of the %lld there are",
                    (long long)count, str_s(count), (long long)start, t ? (long long)t->n : 0);
    int64_t bytes = t && !t->bytes ? (count + both) * t->width : 0;
    if (bytes > TOKENS_ROOM) bytes = TOKENS_ROOM;
    if ((size_t)bytes > r->scratch_bytes) r->scratch_bytes = (size_t)bytes;
}

/* The list of pieces at 1: {list or false, start or number, count, ...}. How many numbers. */
static int64_t read_pieces(lua_State *L, RowRead *r, DType dtype, bool both) {
    const Tokens *last = NULL;
    for (int32_t i = 0; i < r->npieces; i++) {
        for (int k = 1; k <= 3; k++) lua_rawgeti(L, 1, 3 * (lua_Integer)i + k);
        const Tokens *t = lua_toboolean(L, -3) ? tokens_at(L, -3) : NULL;
        if (t && t != last) check_dtype(L, t, dtype);
        if (t) last = t;
        set_piece(L, r, i, t, t ? arg_integer(L, -2, "rows: a start") : 0,
                  arg_integer(L, -1, "rows: a count"), both);
        if (!t) read_fill(L, -2, dtype, r->piece[i].fill);
        lua_pop(L, 3);
    }
    const RowPiece *p = &r->piece[r->npieces - 1];
    return r->npieces ? p->first + p->count : 0;
}

/* Pushes a read without pieces: `n` of them have room. */
static RowRead *push_read(lua_State *L, int32_t n) {
    RowRead *r = lua_newuserdatauv(L, sizeof *r, 5);
    *r = (RowRead){.state = FRESH, .npieces = n};
    int at = lua_gettop(L);
    lua_createtable(L, 4, 0);
    lua_setiuservalue(L, at, 4);
    r->piece = push_memory(L, (size_t)n * sizeof *r->piece);
    keep(L, at);
    return r;
}

/* Gives a read, on top of the stack, its tensors and the places where it puts their bytes. From
 * here on its end is seen to. */
static void set_tensors(lua_State *L, RowRead *r, const Type *type, const Dims *row, int n) {
    Host *h = state_of(L);
    int at = lua_gettop(L);
    for (int k = 0; k < n; k++) {
        r->x[k] = value_push_fresh(L, h, type, true)->t;
        lua_setiuservalue(L, at, 2 + k);
    }
    int32_t slots = tensor_has_data(r->x[0]) ? r->x[0]->nslot : 0;
    r->part = push_memory(L, (size_t)slots * sizeof *r->part);
    keep(L, at);
    r->scratch = push_memory(L, r->scratch_bytes);
    keep(L, at);
    for (; r->nparts < slots; r->nparts++) {
        RowPart *p = &r->part[r->nparts];
        *p = row_part(r->x[0], r->nparts, row);
        for (int k = 0; k < n; k++) {
            p->room[k] = value_push_room(L, r->x[k], p->slot);
            keep(L, at);
            if (!dims_equal(&p->part, &r->x[k]->local)) tensor_poison(r->x[k], p->room[k]);
        }
    }
    luaL_setmetatable(L, VALUE_READ);
}

/* Pushes a list: it is one of the pieces', or a part of one. */
static void push_list(lua_State *L, const RowRead *r, int pieces, const Tokens *list) {
    for (int32_t i = 0; i < r->npieces; i++) {
        const Tokens *t = r->piece[i].tokens;
        bool here = t == list;
        for (int32_t k = 0; t && k < t->nparts && !here; k++) here = t->part[k].tokens == list;
        if (!here) continue;
        lua_rawgeti(L, pieces, 3 * (lua_Integer)i + 1);
        return;
    }
}

static _Noreturn void raise_wrong(lua_State *L, const RowRead *r) {
    int64_t byte;
    tokens_push_name(L, lua_gettop(L), r->wrong_at, &byte);
    const char *name = lua_tostring(L, -1);
    state_error(L, E_VALUE, "%s%swindows: number %lld (from 0) is %llu, which int32 does not hold",
                name ? name : "", name ? ": " : "", (long long)r->wrong_at,
                (unsigned long long)r->wrong_number);
}

/* Pushes the tensors of the read at `index`, whose bytes are there; raises. */
static int push_tensors(lua_State *L, int index) {
    RowRead *r = lua_touserdata(L, index);
    Host *h = state_of(L);
    h->data_bytes += r->bytes;
    r->bytes = 0;
    if (r->failed) {
        lua_getiuservalue(L, index, 1);
        int pieces = lua_gettop(L);
        push_list(L, r, pieces, r->wrong ? r->wrong : r->fault.tokens);
        if (r->wrong) raise_wrong(L, r);
        tokens_raise(L, lua_gettop(L), &r->fault);
    }
    int n = r->x[1] ? 2 : 1;
    for (int32_t i = 0; i < r->nparts; i++)
        for (int k = 0; k < n; k++)
            state_check(L, h, tensor_write_shard(r->x[k], r->part[i].slot, r->part[i].room[k]));
    for (int k = 0; k < n; k++) lua_getiuservalue(L, index, 2 + k);
    return n;
}

/* The type of a batch of so many rows of the shape and dtype at 2 and 3, by the sharding at 4. */
static const Type *batch_type(lua_State *L, int64_t rows, Dims *row, DType *dtype, int first) {
    Host *h = state_of(L);
    Dims dims = {1, {rows}};
    *row = value_dims(L, first, 0, "a row's shape");
    *dtype = value_dtype(L, first + 1);
    if (row->rank == MAX_RANK) state_error(L, E_SHAPE, "windows: a row of rank %d", row->rank);
    for (int d = 0; d < row->rank; d++) dims_push(&dims, row->at[d]);
    if (dims_count(&dims) < 0) state_error(L, E_SHAPE, "windows: a row has no such shape");
    const Layout *layout = value_layout_at(L, h, first + 2, &dims, "the batch");
    return type_make(&h->cx, *dtype, &dims, layout);
}

/* rows(pieces, count, shape, dtype, sharding, both, reader): [count, shape...], whose numbers are
 * those of the pieces, one behind the other: {list, start (from 0), count, ...}; false in place of
 * a list: so many times the number. both: and a second like it, whose pieces begin one number
 * later; the files are read once for the two. With a reader: not the tensors, but a read under way,
 * whose `wait` gives them. The list must stay as it is. */
static int rows_new(lua_State *L) {
    Dims row;
    DType dtype;
    arg_check_type(L, 1, LUA_TTABLE, "rows: the pieces");
    lua_settop(L, 7);
    const Type *type = batch_type(L, arg_integer(L, 2, "rows: the count"), &row, &dtype, 3);
    bool both = lua_toboolean(L, 6);
    RowRead *r = push_read(L, (int32_t)(lua_rawlen(L, 1) / 3));
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, 8, 1);
    int64_t n = read_pieces(L, r, dtype, both);
    if (n != dims_count(&type->dims))
        state_error(L, E_VALUE, "rows: pieces of %lld numbers, for a batch of %lld", (long long)n,
                    (long long)dims_count(&type->dims));
    set_tensors(L, r, type, &row, both ? 2 : 1);
    if (lua_isnil(L, 7)) {
        read_all(r);
        return push_tensors(L, 8);
    }
    RowReader *d = value_udata(L, 7, VALUE_READER);
    lua_pushvalue(L, 7);
    lua_setiuservalue(L, 8, 5);
    queue_read(r, d);
    return 1;
}

/* tokens:windows(starts, shape, dtype [, sharding [, both]]): [#starts, shape...], row i the
 * numbers from starts[i] (from 0) on, put where the sharding wants them. dtype: "int32", or "uint8"
 * where a number is a byte. both: see rows. */
static int tokens_windows(lua_State *L) {
    Dims row;
    DType dtype;
    const Tokens *t = tokens_at(L, 1);
    arg_check_type(L, 2, LUA_TTABLE, "windows: the starts");
    lua_settop(L, 6);
    int32_t rows = (int32_t)lua_rawlen(L, 2);
    dtype = value_dtype(L, 4);
    check_dtype(L, t, dtype);
    const Type *type = batch_type(L, rows, &row, &dtype, 3);
    bool both = lua_toboolean(L, 6);
    RowRead *r = push_read(L, rows);
    for (int32_t i = 0; i < rows; i++) {
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        set_piece(L, r, i, t, arg_integer(L, -1, "windows: a start"), dims_count(&row), both);
        lua_pop(L, 1);
    }
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_setiuservalue(L, 7, 1);
    set_tensors(L, r, type, &row, both ? 2 : 1);
    read_all(r);
    return push_tensors(L, 7);
}

/* read:wait(): the tensors, once they are there; raises where they could not be read. */
static int read_wait(lua_State *L) {
    RowRead *r = value_udata(L, 1, VALUE_READ);
    end_read(r, true);
    return push_tensors(L, 1);
}

static int read_gc(lua_State *L) {
    end_read(luaL_checkudata(L, 1, VALUE_READ), false);
    return 0;
}

void tokens_open_batches(lua_State *L) {
    static const luaL_Reg fns[] = {{"rows", rows_new}, {"reader", reader_new}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"windows", tokens_windows}, {NULL, NULL}};
    static const luaL_Reg read_methods[] = {{"wait", read_wait}, {NULL, NULL}};
    static const luaL_Reg read_meta[] = {{"__gc", read_gc}, {NULL, NULL}};
    static const luaL_Reg reader_meta[] = {
        {"__gc", reader_gc}, {"__close", reader_gc}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
    luaL_getmetatable(L, VALUE_TOKENS);
    lua_getfield(L, -1, "methods");
    value_add_methods(L, VALUE_TOKENS, methods);
    lua_pop(L, 2);
    value_new_type(L, VALUE_READ, read_meta, read_methods, NULL);
    value_new_type(L, VALUE_READER, reader_meta, NULL, NULL);
}
