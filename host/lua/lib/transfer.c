/* transfer.c - tensors from entries of files, and into files: which elements go where is told by
 * pieces (run/disk/piece.h). What is wrong with a file is a result: nil, message, code. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include "run/disk/read.h"
#include "run/disk/writer.h"

#include <string.h>

#define VALUE_WRITER "meshlua.Writer"

/* ---- pieces: {catalog, entry = i, at, size, offset, factors = {{dim, size, stride}...}}, or with
 * file, begin and dtype instead of catalog and entry ---- */

static int64_t integer_field(lua_State *L, const char *name, int64_t missing) {
    int64_t x = missing;
    if (lua_getfield(L, -1, name) != LUA_TNIL || missing < 0) x = arg_integer(L, -1, name);
    lua_pop(L, 1);
    return x;
}

static Dims dims_field(lua_State *L, const char *name) {
    lua_getfield(L, -1, name);
    Dims d = value_dims(L, lua_gettop(L), 0, name);
    lua_pop(L, 1);
    return d;
}

static void read_factors(lua_State *L, PieceMap *p) {
    if (lua_getfield(L, -1, "factors") != LUA_TTABLE || lua_rawlen(L, -1) > PIECE_FACTORS)
        state_error(L, E_VALUE, "a piece has a list of at most %d factors", PIECE_FACTORS);
    p->nfactor = (int32_t)lua_rawlen(L, -1);
    for (int32_t i = 0; i < p->nfactor; i++) {
        int64_t x[3];
        if (lua_rawgeti(L, -1, i + 1) != LUA_TTABLE)
            state_error(L, E_VALUE, "a piece's factor is a list {dim, size, stride}");
        for (int k = 0; k < 3; k++) {
            lua_rawgeti(L, -1, k + 1);
            x[k] = arg_integer(L, -1, "a piece's factor");
            lua_pop(L, 1);
        }
        if (x[0] < 1 || x[0] > MAX_RANK)
            state_error(L, E_VALUE, "a piece's factor of dim %d", (int)x[0]);
        p->factor[i] = (PieceFactor){(int32_t)x[0] - 1, x[1], x[2]};
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Where it is read from. */
static void read_source(lua_State *L, PieceMap *p) {
    lua_getfield(L, -1, "catalog");
    lua_getfield(L, -2, "entry");
    p->catalog = lib_catalog_entry(L, lua_gettop(L) - 1, lua_gettop(L), &p->entry);
    lua_pop(L, 2);
}

/* Where it is written to. */
static void read_target(lua_State *L, PieceMap *p) {
    int64_t file = integer_field(L, "file", -1);
    if (file < 0 || file > INT32_MAX) state_error(L, E_VALUE, "a writer has no such file");
    p->file = (int32_t)file;
    p->begin = integer_field(L, "begin", -1);
    if (p->begin < 0)
        state_error(L, E_VALUE, "an entry that begins at byte %lld", (long long)p->begin);
    lua_getfield(L, -1, "dtype");
    p->dtype = value_dtype(L, lua_gettop(L));
    lua_pop(L, 1);
}

/* The list at `index`; pushes what keeps it. */
static const PieceMap *pieces_at(lua_State *L, int index, bool reading, int32_t *n) {
    arg_check_type(L, index, LUA_TTABLE, "the pieces");
    *n = (int32_t)lua_rawlen(L, index);
    PieceMap *list = lua_newuserdatauv(L, sizeof *list * (size_t)(*n + 1), 0);
    memset(list, 0, sizeof *list * (size_t)(*n + 1));
    for (int32_t i = 0; i < *n; i++) {
        if (lua_rawgeti(L, index, i + 1) != LUA_TTABLE)
            state_error(L, E_VALUE, "a piece is a table");
        PieceMap *p = &list[i];
        p->at = dims_field(L, "at");
        p->size = dims_field(L, "size");
        p->offset = integer_field(L, "offset", 0);
        read_factors(L, p);
        if (reading)
            read_source(L, p);
        else
            read_target(L, p);
        lua_pop(L, 1);
    }
    return list;
}

/* ---- reading ---- */

static bool flag_in(lua_State *L, int index, const char *name) {
    if (!lua_istable(L, index)) return false;
    lua_getfield(L, index, name);
    bool on = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return on;
}

/* catalog_load(dtype, shape, sharding or nil, pieces [, {cast = bool}]): a fresh tensor, each shard
 * of which reads its ranges; or nil, message, code. */
static int catalog_load(lua_State *L) {
    Host *h = state_of(L);
    DType dtype = value_dtype(L, 1);
    Dims dims = value_dims(L, 2, 0, "catalog_load: the shape");
    const Layout *layout = value_layout_at(L, h, 3, &dims, "the tensor");
    ReadPieces p = {.cast = flag_in(L, 5, "cast"), .bytes = &h->catalog_bytes};
    p.at = pieces_at(L, 4, true, &p.n);
    Err err = read_check(&h->cx, dtype, &dims, &p);
    if (err == E_VALUE) state_raise(L, h);
    if (err) return state_failed(L, h, err);
    LuaTensor *u = value_push_fresh(L, h, type_make(&h->cx, dtype, &dims, layout), true);
    err = read_tensor(u->t, &p);
    if (!err) return 1;
    tensor_release(u->t);
    u->t = NULL;
    return state_failed(L, h, err);
}

/* catalog_bytes(): how many bytes of entries this process has read. */
static int catalog_bytes_read(lua_State *L) {
    lua_pushinteger(L, state_of(L)->catalog_bytes);
    return 1;
}

/* hash_unit(catalog, entry, at, size): the hash of a box of the entry, row-major: 32 hex digits; or
 * nil, message, code. */
static int hash_unit(lua_State *L) {
    Host *h = state_of(L);
    char text[HASH_TEXT];
    int32_t entry;
    Catalog *c = lib_catalog_entry(L, 1, 2, &entry);
    Dims at = value_dims(L, 3, 0, "hash_unit: where"),
         size = value_dims(L, 4, 0, "hash_unit: size");
    PieceMap p = read_whole(c, entry), box = p;
    Err err = catalog_can_read(&h->cx, c, entry);
    if (err) return state_failed(L, h, err);
    box.at = at;
    box.size = size;
    for (int d = 0; d < box.nfactor && d < size.rank; d++) box.factor[d].size = size.at[d];
    state_check(L, h, piece_check(&h->cx, &box, &p.size, INT64_MAX));
    DType dtype = (DType)c->entry[entry].dtype;
    if (dtype == DT_BOOL) dtype = DT_U8;
    size_t bytes = (size_t)(dims_count(&size) * dtype_size(dtype));
    ReadPieces one = {&p, 1, true, &h->catalog_bytes};
    char *room = lua_newuserdatauv(L, bytes + 1, 0);
    err = read_box(&h->cx, dtype, at.at, &size, &one, room);
    if (err) return state_failed(L, h, err);
    lua_pushstring(L, hash_text(hash_wide(room, bytes), text));
    return 1;
}

/* ---- units ---- */

typedef struct UnitsList {
    lua_State *L;
    int32_t n, process;
} UnitsList;

static void push_box(lua_State *L, const UnitBox *box) {
    value_push_dims(L, &box->at, 0);
    lua_setfield(L, -2, "at");
    value_push_dims(L, &box->size, 0);
    lua_setfield(L, -2, "size");
}

static Err list_unit(void *ud, const UnitBox *box) {
    UnitsList *u = ud;
    lua_createtable(u->L, 0, 3);
    value_set_integer(u->L, "process", u->process);
    push_box(u->L, box);
    lua_rawseti(u->L, -2, ++u->n);
    return E_OK;
}

typedef struct UnitsFound { /* counted, then noted: nothing may raise while they are found */
    UnitsWriter *at;        /* or NULL */
    int32_t n;
} UnitsFound;

static Err note_writer(void *ud, const UnitsWriter *w) {
    UnitsFound *f = ud;
    if (f->at) f->at[f->n] = *w;
    f->n++;
    return E_OK;
}

static UnitsJob job_of(const Host *h) {
    return (UnitsJob){h->rt.ranks.world, h->rt.ndevices};
}

/* units(dtype, shape, sharding or nil, index [, {processes = n, devices = of each}]): who writes
 * which unit of the tensor with that index (from 0), as {process, at, size}; in this job, or in
 * that one. */
static int units(lua_State *L) {
    Host *h = state_of(L);
    DType dtype = value_dtype(L, 1);
    Dims dims = value_dims(L, 2, 0, "units: the shape");
    const Layout *layout = value_layout_at(L, h, 3, &dims, "the tensor");
    int32_t index = arg_int32(L, 4, "units: the index");
    UnitsJob job = job_of(h);
    if (lua_istable(L, 5)) {
        lua_settop(L, 5);
        job.processes = (int32_t)integer_field(L, "processes", 1);
        job.devices = (int32_t)integer_field(L, "devices", 1);
    }
    if (index < 0 || job.processes < 1 || job.devices < 1)
        state_error(L, E_VALUE, "units: index %d, %d processes of %d devices", (int)index,
                    (int)job.processes, (int)job.devices);
    const Type *type = type_make(&h->cx, dtype, &dims, layout);
    if (!type) state_check(L, h, err_nomem(&h->cx, "units"));
    UnitsFound found = {0};
    state_check(L, h, units_writers(&h->cx, type, index, job, note_writer, &found));
    found.at = lua_newuserdatauv(L, sizeof *found.at * (size_t)(found.n + 1), 0);
    found.n = 0;
    state_check(L, h, units_writers(&h->cx, type, index, job, note_writer, &found));
    lua_createtable(L, found.n, 0);
    UnitsList list = {.L = L};
    for (int32_t i = 0; i < found.n; i++) {
        list.process = found.at[i].process;
        state_check(L, h, units_cut(dtype, &found.at[i].box, list_unit, &list));
    }
    return 1;
}

/* ---- the writer ---- */
typedef struct LuaWriter {
    Writer *w;
    bool began; /* w:start or w:run was called */
} LuaWriter;

static LuaWriter *writer_at(lua_State *L, int index) {
    LuaWriter *u = value_udata(L, index, VALUE_WRITER);
    if (!u->w) state_error(L, E_STATE, "the writer was released");
    return u;
}

static int writer_gc(lua_State *L) {
    LuaWriter *u = luaL_checkudata(L, 1, VALUE_WRITER);
    if (u->w) writer_free(u->w);
    u->w = NULL;
    return 0;
}

/* writer([{memory = bytes}]): while a thread writes it may hold that much. */
static int writer_make(lua_State *L) {
    Host *h = state_of(L);
    int64_t memory = 0;
    if (lua_istable(L, 1)) {
        lua_settop(L, 1);
        memory = integer_field(L, "memory", 0);
        if (memory < 0) state_error(L, E_VALUE, "writer: memory = %lld", (long long)memory);
    }
    LuaWriter *u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = (LuaWriter){0};
    luaL_setmetatable(L, VALUE_WRITER);
    u->w = writer_new(&h->cx, (size_t)memory);
    if (!u->w) state_check(L, h, err_nomem(&h->cx, "a writer"));
    return 1;
}

static LuaWriter *unstarted(lua_State *L) {
    LuaWriter *u = writer_at(L, 1);
    if (u->began) state_error(L, E_STATE, "the writer has begun");
    return u;
}

/* w:file(path, {header = bytes, size = n, create = bool}): its number; or nil, message,
 * code. */
static int add_file(lua_State *L) {
    Host *h = state_of(L);
    LuaWriter *u = unstarted(L);
    size_t npath, nheader = 0;
    const char *path = arg_string(L, 2, &npath, "the file"), *header = NULL;
    int32_t number;
    if (strlen(path) != npath) state_error(L, E_VALUE, "a NUL in a file's name");
    arg_check_type(L, 3, LUA_TTABLE, "the file's options");
    lua_settop(L, 3);
    int64_t size = integer_field(L, "size", -1);
    if (size < 0) state_error(L, E_VALUE, "a file of %lld bytes", (long long)size);
    if (lua_getfield(L, 3, "header") != LUA_TNIL)
        header = arg_string(L, -1, &nheader, "the header");
    Err err = writer_file(u->w, path, header, nheader, size, flag_in(L, 3, "create"), &number);
    if (err) return state_failed(L, h, err);
    lua_pushinteger(L, number);
    return 1;
}

/* w:add(tensor, index, pieces): what this process has to write of it is held, and written. */
static int add_tensor(lua_State *L) {
    Host *h = state_of(L);
    LuaWriter *u = unstarted(L);
    int32_t n, index = arg_int32(L, 3, "add: the index");
    Tensor *t = value_concrete(L, h, 2, "add");
    const PieceMap *p = pieces_at(L, 4, false, &n);
    if (index < 0) state_error(L, E_VALUE, "add: index %d", (int)index);
    for (int32_t i = 0; i < n; i++)
        state_check(L, h, piece_check(&h->cx, &p[i], &t->type->dims, INT64_MAX));
    state_check(L, h, writer_add(u->w, t, index, job_of(h), h->rt.ranks.rank, p, n));
    return 0;
}

/* w:start(): true: a thread writes; false: only w:run() can. */
static int start(lua_State *L) {
    LuaWriter *u = unstarted(L);
    u->began = writer_start(u->w);
    lua_pushboolean(L, u->began);
    return 1;
}

/* w:run(): writes now. */
static int run(lua_State *L) {
    LuaWriter *u = unstarted(L);
    u->began = true;
    writer_run(u->w);
    return 0;
}

/* w:poll(): is all written, or has it failed? */
static int poll(lua_State *L) {
    lua_pushboolean(L, writer_is_done(writer_at(L, 1)->w));
    return 1;
}

/* w:bytes(), w:held(): what it writes; what of it is held in memory. */
static int bytes(lua_State *L) {
    lua_pushinteger(L, writer_bytes(writer_at(L, 1)->w));
    return 1;
}
static int held(lua_State *L) {
    lua_pushinteger(L, writer_held(writer_at(L, 1)->w));
    return 1;
}

/* w:wait(): {bytes, seconds, units = {{tensor = index, at, size, hash}...}}; or nil, message,
 * code. */
static int wait(lua_State *L) {
    Host *h = state_of(L);
    LuaWriter *u = writer_at(L, 1);
    int32_t n;
    char text[HASH_TEXT];
    if (!u->began) state_error(L, E_STATE, "the writer has not begun");
    Err err = writer_wait(u->w);
    if (err) return state_failed(L, h, err);
    const WriterUnit *unit = writer_units(u->w, &n);
    lua_createtable(L, 0, 3);
    value_set_integer(L, "bytes", writer_bytes(u->w));
    value_set_number(L, "seconds", writer_seconds(u->w));
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_createtable(L, 0, 4);
        value_set_integer(L, "tensor", unit[i].tensor);
        push_box(L, &unit[i].box);
        value_set_string(L, "hash", hash_text(unit[i].hash, text));
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "units");
    return 1;
}

void lib_open_transfer(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"catalog_load", catalog_load}, {"catalog_bytes", catalog_bytes_read},
        {"hash_unit", hash_unit},       {"units", units},
        {"writer", writer_make},        {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", writer_gc}, {"__close", writer_gc}, {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"file", add_file},     {"add", add_tensor}, {"start", start}, {"run", run},
        {"poll", poll},         {"bytes", bytes},    {"held", held},   {"wait", wait},
        {"release", writer_gc}, {NULL, NULL}};
    value_new_type(L, VALUE_WRITER, meta, methods, NULL);
    luaL_setfuncs(L, fns, 0);
}
