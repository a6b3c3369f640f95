/* workers.c - functions of modules that run in Lua states of their own, each with its thread: a
 * value goes in, numbers of known shapes come out. A worker's state has stock Lua's libraries and
 * no tensors; it shares nothing with the script's. */
#include "lua/lib/lib.h"
#include "lua/lib/numbers.h"
#include "lua/value/value.h"

#include <lualib.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VALUE_WORKERS "meshlua.workers"
#define VALUE_WORK    "meshlua.work"

enum { DEEPEST = 16, WORK_WHY = 400, MOST_WORKERS = 64, MOST_FIELDS = 32, CHECKED_EVERY = 10000 };

/* ---- values as bytes ---- */
/* A tag, then: an int64; a double; a length and bytes; of a table its pairs, keys and values, up to
 * END. */
typedef enum ValueTag { NIL, FALSE, TRUE, INTEGER, FLOAT, TEXT, TABLE, END } ValueTag;

static void put(Str *s, ValueTag tag, const void *bytes, size_t n) {
    const char byte = (char)tag;
    str_put_n(s, &byte, 1);
    if (n) str_put_n(s, bytes, n);
}

/* Appends the value at `index`; what is no plain value (null of JSON) is nil. */
static void flatten(lua_State *L, Str *s, int index, int depth) {
    if (lua_isinteger(L, index)) {
        lua_Integer i = lua_tointeger(L, index);
        put(s, INTEGER, &i, sizeof i);
    } else if (lua_type(L, index) == LUA_TNUMBER) {
        lua_Number x = lua_tonumber(L, index);
        put(s, FLOAT, &x, sizeof x);
    } else if (lua_type(L, index) == LUA_TSTRING) {
        size_t n;
        const char *text = lua_tolstring(L, index, &n);
        put(s, TEXT, &n, sizeof n);
        str_put_n(s, text, n);
    } else if (lua_istable(L, index)) {
        if (depth > DEEPEST)
            state_error(L, E_VALUE, "map: a record for workers is nested deeper than %d", DEEPEST);
        luaL_checkstack(L, 4, "a record");
        put(s, TABLE, NULL, 0);
        for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
            int top = lua_gettop(L);
            flatten(L, s, top - 1, depth + 1);
            flatten(L, s, top, depth + 1);
        }
        put(s, END, NULL, 0);
    } else {
        put(s, lua_toboolean(L, index) ? TRUE : lua_isboolean(L, index) ? FALSE : NIL, NULL, 0);
    }
}

/* Pushes the value whose bytes begin at *at, and goes behind it; false: END. */
static bool unflatten(lua_State *L, const char **at) {
    lua_Integer i;
    lua_Number x;
    size_t n;
    luaL_checkstack(L, 4, "a record");
    switch ((ValueTag) * (*at)++) {
    case INTEGER:
        memcpy(&i, *at, sizeof i);
        *at += sizeof i;
        lua_pushinteger(L, i);
        return true;
    case FLOAT:
        memcpy(&x, *at, sizeof x);
        *at += sizeof x;
        lua_pushnumber(L, x);
        return true;
    case TEXT:
        memcpy(&n, *at, sizeof n);
        *at += sizeof n;
        lua_pushlstring(L, *at, n);
        *at += n;
        return true;
    case TABLE:
        lua_newtable(L);
        while (unflatten(L, at)) {
            unflatten(L, at);
            lua_rawset(L, -3);
        }
        return true;
    case END: return false;
    case TRUE: lua_pushboolean(L, 1); return true;
    case FALSE: lua_pushboolean(L, 0); return true;
    default: lua_pushnil(L); return true;
    }
}

/* ---- workers ---- */

typedef struct WorkField {
    const char *name;
    DType dtype;
    Dims dims;
    size_t bytes;
} WorkField;

typedef enum WorkState { WAITING, RUNNING, DONE } WorkState;

/* One call. User value 1: the bytes of its argument; 2: the workers. */
typedef struct WorkerCall {
    WorkState state;
    struct WorkerCall *next;
    struct Workers *workers;
    const char *argument;
    lua_Integer id;
    atomic_bool unwanted;
    bool failed;
    char why[WORK_WHY];
    char out[]; /* the fields, one behind the other */
} WorkerCall;

/* User value 1: a table that keeps the texts. */
typedef struct Workers {
    const char *module, *path, *cpath;
    int nfields;
    WorkField field[MOST_FIELDS];
    size_t bytes; /* of all fields */
    int n;        /* threads that run */
    pthread_t thread[MOST_WORKERS];
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    WorkerCall *first, *last; /* that wait */
} Workers;

/* Their addresses: where a worker's state has the work it is at, and the module's function. */
static const char work_key, function_key;

static void check_wanted(lua_State *L, lua_Debug *ar) {
    (void)ar;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &work_key);
    const WorkerCall *k = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (atomic_load(&k->unwanted)) luaL_error(L, "nobody waits for it any more");
}

static int no_tensors(lua_State *L) {
    return luaL_error(L, "workers have no tensors: their modules are of plain Lua");
}

/* In a worker's state: opens it, and pushes the module's function. */
static int load_module(lua_State *L) {
    const Workers *w = lua_touserdata(L, 1);
    luaL_openlibs(L);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, no_tensors);
    lua_setfield(L, -2, "meshlua");
    lua_getglobal(L, "package");
    lua_pushstring(L, w->path);
    lua_setfield(L, -2, "path");
    lua_pushstring(L, w->cpath);
    lua_setfield(L, -2, "cpath");
    lua_sethook(L, check_wanted, LUA_MASKCOUNT, CHECKED_EVERY);
    lua_getglobal(L, "require");
    lua_pushstring(L, w->module);
    lua_call(L, 1, 1);
    if (!lua_isfunction(L, -1))
        return luaL_error(L, "module '%s' returns a %s; it must be a function", w->module,
                          luaL_typename(L, -1));
    return 1;
}

/* In a worker's state: the function at 1 with the argument of the work at 2, whose fields it
 * fills. */
static int call_function(lua_State *L) {
    const Workers *w = lua_touserdata(L, 3);
    WorkerCall *k = lua_touserdata(L, 2);
    const char *at = k->argument;
    char why[NUMBERS_WHY], *out = k->out;
    lua_pushvalue(L, 1);
    unflatten(L, &at);
    lua_pushinteger(L, k->id);
    lua_call(L, 2, 1);
    if (!lua_istable(L, -1))
        return luaL_error(L, "a record is a table of fields, not a %s", luaL_typename(L, -1));
    for (int i = 0; i < w->nfields; out += w->field[i++].bytes) {
        const WorkField *f = &w->field[i];
        if (lua_getfield(L, -1, f->name) == LUA_TNIL)
            return luaL_error(L, "it has no field '%s'", f->name);
        if (!numbers_pack(L, lua_gettop(L), f->dtype, &f->dims, out, why))
            return luaL_error(L, "field '%s': %s", f->name, why);
        lua_pop(L, 1);
    }
    return 0;
}

/* What a protected call left on top of the stack, as the work's fault. */
static void note_fault(lua_State *L, WorkerCall *k) {
    const char *text = lua_tostring(L, -1);
    k->failed = true;
    snprintf(k->why, sizeof k->why, "%s", text ? text : "an error that is no text");
    lua_settop(L, 0);
}

/* One call; the module is loaded ahead of the first. */
static void do_work(lua_State *L, Workers *w, WorkerCall *k, bool *loaded) {
    lua_pushlightuserdata(L, k);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &work_key);
    if (!*loaded) {
        lua_pushcfunction(L, load_module);
        lua_pushlightuserdata(L, w);
        if (lua_pcall(L, 1, 1, 0)) {
            note_fault(L, k);
            return;
        }
        lua_rawsetp(L, LUA_REGISTRYINDEX, &function_key);
        *loaded = true;
    }
    lua_pushcfunction(L, call_function);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &function_key);
    lua_pushlightuserdata(L, k);
    lua_pushlightuserdata(L, w);
    if (lua_pcall(L, 3, 0, 0)) note_fault(L, k);
}

static void *run_worker(void *arg) {
    Workers *w = arg;
    bool loaded = false;
    lua_State *L = luaL_newstate();
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !atomic_load(&w->stop)) pthread_cond_wait(&w->more, &w->lock);
        if (atomic_load(&w->stop)) break;
        WorkerCall *k = w->first;
        w->first = k->next;
        if (!w->first) w->last = NULL;
        k->state = RUNNING;
        pthread_mutex_unlock(&w->lock);
        if (L)
            do_work(L, w, k, &loaded);
        else
            k->failed = true, snprintf(k->why, sizeof k->why, "not enough memory");
        pthread_mutex_lock(&w->lock);
        k->state = DONE;
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    if (L) lua_close(L);
    return NULL;
}

static void start_workers(Workers *w, int n) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (w->n < n && !pthread_create(&w->thread[w->n], NULL, run_worker, w)) w->n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Reads {name, dtype, shape} at the top of the stack; the name is kept by the table there. */
static void read_field(lua_State *L, WorkField *f) {
    int at = lua_gettop(L);
    for (int k = 1; k <= 3; k++) lua_rawgeti(L, at, k);
    f->name = arg_string(L, at + 1, NULL, "workers: a field");
    f->dtype = value_dtype(L, at + 2);
    f->dims = value_dims(L, at + 3, 0, "workers: a shape");
    f->bytes = (size_t)(dims_count(&f->dims) * dtype_size(f->dtype));
    lua_settop(L, at);
}

/* workers(count, module, path, cpath, fields): so many threads that call the module's function,
 * 0: as many as there are processors but one, 4 at most. fields: {{name, dtype, shape}, ...}; the
 * table must stay as it is. nil where no thread can be had. */
static int workers_new(lua_State *L) {
    int32_t n = arg_int32(L, 1, "workers: the count");
    arg_check_type(L, 5, LUA_TTABLE, "workers: the fields");
    lua_settop(L, 5);
    Workers *w = lua_newuserdatauv(L, sizeof *w, 4);
    memset(w, 0, sizeof *w);
    w->module = arg_string(L, 2, NULL, "workers: the module");
    w->path = arg_string(L, 3, NULL, "workers: the path");
    w->cpath = arg_string(L, 4, NULL, "workers: the path of libraries");
    w->nfields = (int)lua_rawlen(L, 5);
    if (n < 0 || n > MOST_WORKERS || w->nfields > MOST_FIELDS)
        state_error(L, E_VALUE, "map: %d workers for %d fields; %d and %d at most", (int)n,
                    w->nfields, MOST_WORKERS, MOST_FIELDS);
    for (int i = 0; i < w->nfields; i++) {
        lua_rawgeti(L, 5, i + 1);
        read_field(L, &w->field[i]);
        w->bytes += w->field[i].bytes;
        lua_pop(L, 1);
    }
    for (int k = 0; k < 4; k++) {
        lua_pushvalue(L, 2 + k);
        lua_setiuservalue(L, 6, 1 + k);
    }
    if (n == 0) n = (int32_t)sysconf(_SC_NPROCESSORS_ONLN) - 1;
    n = n < 1 ? 1 : lua_tointeger(L, 1) == 0 && n > 4 ? 4 : n;
    luaL_setmetatable(L, VALUE_WORKERS);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    pthread_cond_init(&w->done, NULL);
    start_workers(w, n);
    return w->n > 0;
}

static int workers_gc(lua_State *L) {
    Workers *w = luaL_checkudata(L, 1, VALUE_WORKERS);
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->stop, true);
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    while (w->n > 0) pthread_join(w->thread[--w->n], NULL);
    return 0;
}

/* workers:call(record, id): the function's call, which a worker makes when it comes to it. */
static int workers_call(lua_State *L) {
    Workers *w = value_udata(L, 1, VALUE_WORKERS);
    Host *h = state_of(L);
    lua_Integer id = arg_integer(L, 3, "call: the id");
    flatten(L, state_text(h), 2, 0);
    state_push_text(L, h);
    WorkerCall *k = lua_newuserdatauv(L, sizeof *k + w->bytes, 2);
    *k = (WorkerCall){.workers = w, .argument = lua_tostring(L, -2), .id = id};
    lua_pushvalue(L, -2);
    lua_setiuservalue(L, -2, 1);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 2);
    luaL_setmetatable(L, VALUE_WORK);
    pthread_mutex_lock(&w->lock);
    if (w->last)
        w->last->next = k;
    else
        w->first = k;
    w->last = k;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    return 1;
}

/* work:wait(): the bytes of all fields, one behind the other; or nil, message. false: not yet, a
 * tenth of a second long, so that Ctrl-C is seen. */
static int work_wait(lua_State *L) {
    WorkerCall *k = value_udata(L, 1, VALUE_WORK);
    Workers *w = k->workers;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    int late = 0;
    while (k->state != DONE && !late) late = pthread_cond_timedwait(&w->done, &w->lock, &until);
    bool done = k->state == DONE;
    pthread_mutex_unlock(&w->lock);
    if (!done) {
        lua_pushboolean(L, 0);
        return 1;
    }
    if (!k->failed) {
        lua_pushlstring(L, k->out, w->bytes);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, k->why);
    return 2;
}

/* Nobody wants it any more: a worker that is at it stops, at its next instructions. */
static int work_gc(lua_State *L) {
    WorkerCall *k = luaL_checkudata(L, 1, VALUE_WORK), *before = NULL;
    Workers *w = k->workers;
    atomic_store(&k->unwanted, true);
    pthread_mutex_lock(&w->lock);
    if (k->state == WAITING) {
        WorkerCall **at = &w->first;
        while (*at != k) before = *at, at = &(*at)->next;
        *at = k->next;
        if (w->last == k) w->last = before;
        k->state = DONE;
    }
    while (k->state == RUNNING) pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return 0;
}

void lib_open_workers(lua_State *L) {
    static const luaL_Reg fns[] = {{"workers", workers_new}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"call", workers_call}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", workers_gc}, {"__close", workers_gc}, {NULL, NULL}};
    static const luaL_Reg work_methods[] = {{"wait", work_wait}, {NULL, NULL}};
    static const luaL_Reg work_meta[] = {{"__gc", work_gc}, {NULL, NULL}};
    value_new_type(L, VALUE_WORKERS, meta, methods, NULL);
    value_new_type(L, VALUE_WORK, work_meta, work_methods, NULL);
    luaL_setfuncs(L, fns, 0);
}
