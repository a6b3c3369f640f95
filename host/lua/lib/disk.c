/* disk.c - folders and small files as checkpoints need them: locks, lists, renames that replace
 * nothing, and tasks, which are lists of such calls that a thread of their own makes in order. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include "base/file.h"
#include "run/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* ---- calls: 0, or the number of what went wrong ---- */

/* A file with this text, on the disk, in the place of what was there. */
static int write_file(const char *path, const char *text, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return errno;
    int fault = file_write_at(fd, text, n, 0);
    if (!fault && fsync(fd)) fault = errno;
    if (close(fd) && !fault) fault = errno;
    return fault;
}

/* Where something has the name already, that stays and this fails. */
static int move_new(const char *from, const char *to) {
    struct stat there;
    if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno; /* not on every file system */
    if (!lstat(to, &there)) return EEXIST;
    return rename(from, to) ? errno : 0;
}

static int remove_at(int parent, const char *name, int depth);

static int empty_folder(int fd, int depth) {
    int fault = 0;
    DIR *d = fdopendir(fd);
    if (!d) {
        fault = errno;
        close(fd);
        return fault;
    }
    for (struct dirent *e; !fault && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            fault = remove_at(dirfd(d), e->d_name, depth + 1);
    closedir(d);
    return fault;
}

/* What has this name, and all below it. A symlink goes, what it points to stays. */
static int remove_at(int parent, const char *name, int depth) {
    enum { DEEPEST = 8 };
    if (!unlinkat(parent, name, 0) || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return errno;
    if (depth > DEEPEST) return ELOOP;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    int fault = empty_folder(fd, depth);
    if (!fault && unlinkat(parent, name, AT_REMOVEDIR) && errno != ENOENT) fault = errno;
    return fault;
}

/* ---- tasks ---- */
#define VALUE_TASK "meshlua.disk_task"

typedef enum DiskCallKind { MAKE, WRITE, SYNC, MOVE, MOVE_NEW, REMOVE, CALL_KINDS } DiskCallKind;
static const char *const call_names[CALL_KINDS + 1] = {"make",     "write",  "sync", "move",
                                                       "move_new", "remove", NULL};

typedef struct DiskCall {
    DiskCallKind kind;
    const char *path, *other; /* in the task's user value; other: text, or the new name */
    size_t n;                 /* of the text */
} DiskCall;

/* User value 1: the list, which keeps the texts. */
typedef struct DiskTask {
    pthread_t thread;
    bool runs;
    atomic_bool done;
    int fault, unsynced;    /* errno; of a folder that cannot be synced */
    int32_t at;             /* the call that failed */
    const char *not_synced; /* the folder */
    int32_t n;
    DiskCall call[];
} DiskTask;

static int make_call(DiskTask *t, const DiskCall *c) {
    int fault;
    switch (c->kind) {
    case MAKE: return mkdir(c->path, 0777) && errno != EEXIST ? errno : 0;
    case WRITE: return write_file(c->path, c->other, c->n);
    case MOVE: return rename(c->path, c->other) ? errno : 0;
    case MOVE_NEW: return move_new(c->path, c->other);
    case REMOVE: return remove_at(AT_FDCWD, c->path, 0);
    default: break;
    }
    fault = file_sync_folder(c->path);
    if (fault != EINVAL && fault != ENOTSUP && fault != EROFS && fault != EBADF) return fault;
    t->unsynced = fault, t->not_synced = c->path;
    return 0;
}

static void *run_calls(void *arg) {
    DiskTask *t = arg;
    for (t->at = 0; t->at < t->n; t->at++)
        if ((t->fault = make_call(t, &t->call[t->at]))) break;
    atomic_store(&t->done, true);
    return NULL;
}

static void join_task(DiskTask *t) {
    if (t->runs) pthread_join(t->thread, NULL);
    t->runs = false;
}

/* Where no thread can be had the calls are made here. */
static void start_task(DiskTask *t) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    t->runs = !pthread_create(&t->thread, NULL, run_calls, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!t->runs) run_calls(t);
}

static DiskCallKind kind_of_call(lua_State *L, const char *name) {
    for (int k = 0; k < CALL_KINDS; k++)
        if (strcmp(name, call_names[k]) == 0) return (DiskCallKind)k;
    state_error(L, E_VALUE, "disk_task: there is no call '%s'", name);
}

static void read_call(lua_State *L, int list, int32_t i, DiskCall *c) {
    lua_rawgeti(L, list, i + 1);
    arg_check_type(L, lua_gettop(L), LUA_TTABLE, "disk_task: a call");
    lua_rawgeti(L, -1, 1);
    c->kind = kind_of_call(L, arg_string(L, lua_gettop(L), NULL, "disk_task: a call"));
    lua_rawgeti(L, -2, 2);
    c->path = arg_string(L, lua_gettop(L), NULL, "disk_task: a path");
    if (c->kind == WRITE || c->kind == MOVE || c->kind == MOVE_NEW) {
        lua_rawgeti(L, -3, 3);
        c->other = arg_string(L, lua_gettop(L), &c->n, "disk_task: a text or name");
        lua_pop(L, 1);
    }
    lua_pop(L, 3);
}

/* disk_task(calls): makes them in order, up to the first that fails, in a thread of their own. A
 * call is {"make", folder}, {"write", file, text}, {"sync", folder}, {"move" or "move_new", from,
 * to} or {"remove", path}, all of it. The list must stay as it is. */
static int disk_task(lua_State *L) {
    arg_check_type(L, 1, LUA_TTABLE, "disk_task: the calls");
    lua_settop(L, 1);
    int32_t n = (int32_t)lua_rawlen(L, 1);
    DiskTask *t = lua_newuserdatauv(L, sizeof *t + (size_t)n * sizeof *t->call, 1);
    *t = (DiskTask){.n = n};
    for (int32_t i = 0; i < n; i++) read_call(L, 1, i, &t->call[i]);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, VALUE_TASK);
    start_task(t);
    return 1;
}

/* task:poll(): are all calls made? */
static int task_poll(lua_State *L) {
    const DiskTask *t = value_udata(L, 1, VALUE_TASK);
    lua_pushboolean(L, atomic_load(&t->done));
    return 1;
}

/* task:wait(): true, and where a folder could not be synced what is to be said of it; or nil, what
 * failed, and the number of the call. */
static int task_wait(lua_State *L) {
    DiskTask *t = value_udata(L, 1, VALUE_TASK);
    join_task(t);
    if (t->fault) {
        const DiskCall *c = &t->call[t->at];
        lua_pushnil(L);
        lua_pushfstring(L, "%s: %s", c->path, strerror(t->fault));
        lua_pushinteger(L, t->at + 1);
        return 3;
    }
    lua_pushboolean(L, 1);
    if (!t->not_synced) return 1;
    lua_pushfstring(L, "%s: %s", t->not_synced, strerror(t->unsynced));
    return 2;
}

static int task_gc(lua_State *L) {
    join_task(luaL_checkudata(L, 1, VALUE_TASK));
    return 0;
}

/* ---- open files ---- */
#define VALUE_OPEN "meshlua.disk_file"

/* Closed when it is dropped: also where something is raised meanwhile. */
typedef struct DiskFile {
    int fd;
} DiskFile;

static DiskFile *push_open(lua_State *L, const char *path, int flags) {
    DiskFile *f = lua_newuserdatauv(L, sizeof *f, 0);
    f->fd = -1;
    luaL_setmetatable(L, VALUE_OPEN);
    f->fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    return f;
}

static int close_open(lua_State *L) {
    DiskFile *f = luaL_checkudata(L, 1, VALUE_OPEN);
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    return 0;
}

/* lock(path, text): the file, which says `text`, is this process's as long as it lives; or nil,
 * message, and where another has it the text of that one. Where the disk knows no locks nothing is
 * locked, and the second result says so. */
static int lock_new(lua_State *L) {
    const char *path = arg_string(L, 1, NULL, "lock: the file");
    size_t n;
    const char *text = arg_string(L, 2, &n, "lock: the text");
    char held[256];
    const DiskFile *l = push_open(L, path, O_RDWR | O_CREAT);
    if (l->fd < 0) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s: %s", path, strerror(errno));
        return 2;
    }
    if (flock(l->fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK) {
            lua_pushfstring(L, "%s: %s", path, strerror(errno));
            return 2;
        }
        ssize_t got = pread(l->fd, held, sizeof held, 0);
        lua_pushnil(L);
        lua_pushfstring(L, "%s: it is locked", path);
        lua_pushlstring(L, held, got > 0 ? (size_t)got : 0);
        return 3;
    }
    /* The text is for people: a full disk does without. */
    if (ftruncate(l->fd, 0) == 0 && pwrite(l->fd, text, n, 0) < 0) errno = 0;
    return 1;
}

/* is_locked(path): has a process the lock of the file? Where there is none, or no locks are known:
 * no. The file stays as it is. */
static int is_locked(lua_State *L) {
    const DiskFile *f =
        push_open(L, arg_string(L, 1, NULL, "is_locked: the file"), O_RDONLY | O_NONBLOCK);
    lua_toclose(L, lua_gettop(L));
    lua_pushboolean(L, f->fd >= 0 && flock(f->fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    return 1;
}

/* ---- looking ---- */

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

#define VALUE_NAMES "meshlua.names"

/* What scandir gave, freed also where what is made of it is raised over. */
typedef struct FolderNames {
    struct dirent **at;
    int n;
} FolderNames;

static int names_close(lua_State *L) {
    FolderNames *names = luaL_checkudata(L, 1, VALUE_NAMES);
    for (int i = 0; i < names->n; i++) free(names->at[i]);
    if (names->n >= 0) free(names->at);
    *names = (FolderNames){.n = -1};
    return 0;
}

/* list_folder(path): the names in it, ascending; or nil, message. */
static int list_folder(lua_State *L) {
    const char *path = arg_string(L, 1, NULL, "list_folder: the folder");
    FolderNames *names = lua_newuserdatauv(L, sizeof *names, 0);
    *names = (FolderNames){.n = -1};
    luaL_setmetatable(L, VALUE_NAMES);
    lua_toclose(L, lua_gettop(L));
    names->n = scandir(path, &names->at, NULL, by_bytes);
    if (names->n < 0) return luaL_fileresult(L, 0, path);
    lua_createtable(L, names->n, 0);
    for (int i = 0, k = 0; i < names->n; i++) {
        const char *name = names->at[i]->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        lua_pushstring(L, name);
        lua_rawseti(L, -2, ++k);
    }
    return 1;
}

/* path_kind(path): "file", "folder", "link", "other", and the bytes of a file; nil: nothing. */
static int path_kind(lua_State *L) {
    struct stat info;
    if (lstat(arg_string(L, 1, NULL, "path_kind: the path"), &info)) return 0;
    lua_pushstring(L, S_ISREG(info.st_mode)   ? "file"
                      : S_ISDIR(info.st_mode) ? "folder"
                      : S_ISLNK(info.st_mode) ? "link"
                                              : "other");
    lua_pushinteger(L, (lua_Integer)info.st_size);
    return 2;
}

/* read_file(path, most): all of a file that is no link and has `most` bytes at most; or nil,
 * message. */
static int read_file(lua_State *L) {
    const char *path = arg_string(L, 1, NULL, "read_file: the file");
    lua_Integer most = arg_integer(L, 2, "read_file: the bytes");
    struct stat info;
    luaL_Buffer b;
    const DiskFile *f = push_open(L, path, O_RDONLY | O_NONBLOCK);
    lua_toclose(L, lua_gettop(L));
    if (f->fd < 0 || fstat(f->fd, &info)) return luaL_fileresult(L, 0, path);
    if (!S_ISREG(info.st_mode) || info.st_size > most) {
        lua_pushnil(L);
        if (S_ISREG(info.st_mode))
            lua_pushfstring(L, "%s: %I bytes are more than such a file has", path,
                            (lua_Integer)info.st_size);
        else
            lua_pushfstring(L, "%s: it is no file", path);
        return 2;
    }
    size_t n = (size_t)info.st_size;
    int64_t got = file_read_at(f->fd, luaL_buffinitsize(L, &b, n + 1), n, 0);
    if (got < 0) return luaL_fileresult(L, 0, path);
    luaL_pushresultsize(&b, (size_t)got);
    return 1;
}

/* private_folder(name): the folder of this name among what is kept between runs, made where it is
 * missing; or nil, message where there is none, or others may write there. */
static int private_folder(lua_State *L) {
    const char *name = arg_string(L, 1, NULL, "private_folder: the name");
    char path[PATH_MAX];
    struct stat info;
    if (!store_folder(path, sizeof path) || strlen(path) + strlen(name) + 2 > sizeof path) {
        lua_pushnil(L);
        lua_pushliteral(L, "MESHLUA_CACHE is off, or there is no home");
        return 2;
    }
    strcat(strcat(path, "/"), name);
    for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0700);
    }
    mkdir(path, 0700);
    if (lstat(path, &info)) return luaL_fileresult(L, 0, path);
    if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && !(info.st_mode & 022)) {
        lua_pushstring(L, path);
        return 1;
    }
    lua_pushnil(L);
    lua_pushfstring(L, "%s: it is no folder that is this user's alone", path);
    return 2;
}

/* free_bytes(path): how many more this user may write there; or nil, message. */
static int free_bytes(lua_State *L) {
    const char *path = arg_string(L, 1, NULL, "free_bytes: the folder");
    struct statvfs info;
    if (statvfs(path, &info)) return luaL_fileresult(L, 0, path);
    lua_pushinteger(L, (lua_Integer)info.f_bavail * (lua_Integer)info.f_frsize);
    return 1;
}

/* sleep(seconds): one at most; a signal ends it early. */
static int sleep_for(lua_State *L) {
    double s = arg_number(L, 1, "sleep: the seconds");
    s = s > 0 ? fmin(s, 1) : 0;
    struct timespec t = {.tv_sec = (time_t)s};
    t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
    return 0;
}

/* ---- hashes: 32 digits of xxh3-128 ---- */

static int push_hash(lua_State *L, HashWide x) {
    char text[HASH_TEXT];
    lua_pushstring(L, hash_text(x, text));
    return 1;
}

/* hash128(bytes) */
static int hash128(lua_State *L) {
    size_t n;
    const char *bytes = arg_string(L, 1, &n, "hash128: the bytes");
    return push_hash(L, hash_wide(bytes, n));
}

/* hash_box(tensor, at, size): of the box's elements, row-major; at from 0. nil: not all of them are
 * in this process, in the host's memory. */
static int hash_box(lua_State *L) {
    Host *h = state_of(L);
    const Tensor *t = value_concrete(L, h, 1, "hash_box");
    Dims at = value_dims(L, 2, 0, "hash_box: at"), size = value_dims(L, 3, 0, "hash_box: size");
    if (at.rank != size.rank || at.rank != t->type->dims.rank)
        state_error(L, E_SHAPE, "hash_box: the ranks differ");
    for (int d = 0; d < at.rank; d++)
        if (at.at[d] < 0 || size.at[d] < 0 || size.at[d] > t->type->dims.at[d] - at.at[d]) return 0;
    if (t->cx->memory[0] || !tensor_has_data(t)) return 0;
    size_t bytes = (size_t)(dims_count(&size) * dtype_size(t->type->dtype));
    char *room = lua_newuserdatauv(L, bytes + 1, 0);
    return tensor_read_box(t, &at, &size, room) ? push_hash(L, hash_wide(room, bytes)) : 0;
}

void lib_open_disk(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"disk_task", disk_task},           {"lock", lock_new},       {"list_folder", list_folder},
        {"path_kind", path_kind},           {"read_file", read_file}, {"free_bytes", free_bytes},
        {"private_folder", private_folder}, {"sleep", sleep_for},     {"hash128", hash128},
        {"is_locked", is_locked},           {"hash_box", hash_box},   {NULL, NULL}};
    static const luaL_Reg task_methods[] = {{"poll", task_poll}, {"wait", task_wait}, {NULL, NULL}};
    static const luaL_Reg task_meta[] = {{"__gc", task_gc}, {NULL, NULL}};
    static const luaL_Reg open_methods[] = {{"close", close_open}, {NULL, NULL}};
    static const luaL_Reg open_meta[] = {
        {"__gc", close_open}, {"__close", close_open}, {NULL, NULL}};
    value_new_type(L, VALUE_TASK, task_meta, task_methods, NULL);
    value_new_type(L, VALUE_OPEN, open_meta, open_methods, NULL);
    static const luaL_Reg names_meta[] = {
        {"__gc", names_close}, {"__close", names_close}, {NULL, NULL}};
    value_new_type(L, VALUE_NAMES, names_meta, NULL, NULL);
    luaL_setfuncs(L, fns, 0);
}
