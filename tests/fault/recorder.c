/* recorder.c - a library to be loaded before the program (LD_PRELOAD): it notes every call by which
 * something below the folder RECORD_ROOT changes, in their order, in the file RECORD_LOG; and makes
 * the call number RECORD_FAIL fail with errno RECORD_ERRNO, or, where that is 0, write only half.
 *
 * The log: a line "KIND n text\n" of each call, then n bytes. Its texts: paths, "path offset". */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static FILE *out;
static long count, fails_at;

__attribute__((constructor)) static void begin(void) {
    const char *fail = getenv("RECORD_FAIL"), *name = getenv("RECORD_LOG");
    root = getenv("RECORD_ROOT");
    fails_at = fail ? atol(fail) : 0;
    if (name) out = fopen(name, "ae");
    unsetenv("LD_PRELOAD"); /* what it starts is not recorded */
}

#define REAL(type, name, ...)                                                                      \
    static type (*real)(__VA_ARGS__);                                                              \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static int is_ours(const char *path) {
    return root && strncmp(path, root, strlen(root)) == 0;
}

static int path_of(int fd, char to[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, to, PATH_MAX - 1);
    to[n > 0 ? n : 0] = '\0';
    return n > 0 && is_ours(to);
}

static void join_path(int at, const char *name, char to[PATH_MAX]) {
    char folder[PATH_MAX];
    if (at == AT_FDCWD || name[0] == '/') {
        snprintf(to, PATH_MAX, "%s", name);
        return;
    }
    path_of(at, folder);
    snprintf(to, PATH_MAX, "%.2000s/%.2000s", folder, name);
}

/* A number for a call below the root: is it the one that fails? */
static int next_fails(void) {
    int fails;
    pthread_mutex_lock(&lock);
    fails = ++count == fails_at;
    pthread_mutex_unlock(&lock);
    return fails;
}

static int planned_errno(void) {
    const char *e = getenv("RECORD_ERRNO");
    return e ? atoi(e) : EIO;
}

static void note(const char *kind, const void *bytes, size_t n, const char *fmt, ...) {
    va_list args;
    int before = errno;
    if (!out) return;
    va_start(args, fmt);
    pthread_mutex_lock(&lock);
    fprintf(out, "%s %zu ", kind, n);
    vfprintf(out, fmt, args);
    fputc('\n', out);
    if (n) fwrite(bytes, 1, n, out);
    fflush(out);
    pthread_mutex_unlock(&lock);
    va_end(args);
    errno = before;
}

#define FAIL_IF_PLANNED                                                                            \
    do {                                                                                           \
        if (next_fails() && planned_errno()) {                                                     \
            errno = planned_errno();                                                               \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

int open(const char *path, int flags, ...) {
    REAL(int, open, const char *, int, ...);
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    int changes = is_ours(path) && flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR);
    if (changes) FAIL_IF_PLANNED;
    struct stat there;
    int is_new = changes && lstat(path, &there) != 0;
    int fd = real(path, flags, mode);
    if (fd >= 0 && is_new) note("create", NULL, 0, "%s", path);
    if (fd >= 0 && changes && !is_new && flags & O_TRUNC) note("size", NULL, 0, "%s 0", path);
    return fd;
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    char path[PATH_MAX];
    int ours = path_of(fd, path);
    if (ours && next_fails()) {
        errno = planned_errno();
        if (errno || n < 2) return -1;
        n /= 2;
    }
    ssize_t done = real(fd, from, n, at);
    if (ours && done > 0) note("write", from, (size_t)done, "%s %lld", path, (long long)at);
    return done;
}
ssize_t pwrite64(int fd, const void *from, size_t n, off_t at) __attribute__((alias("pwrite")));

ssize_t write(int fd, const void *from, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    char path[PATH_MAX];
    int ours = fd > 2 && path_of(fd, path);
    off_t at = ours ? lseek(fd, 0, SEEK_CUR) : 0;
    if (ours && next_fails()) {
        errno = planned_errno();
        if (errno || n < 2) return -1;
        n /= 2;
    }
    ssize_t done = real(fd, from, n);
    if (ours && done > 0) note("write", from, (size_t)done, "%s %lld", path, (long long)at);
    return done;
}

int ftruncate(int fd, off_t size) {
    REAL(int, ftruncate, int, off_t);
    char path[PATH_MAX];
    int ours = path_of(fd, path);
    if (ours) FAIL_IF_PLANNED;
    int status = real(fd, size);
    if (ours && status == 0) note("size", NULL, 0, "%s %lld", path, (long long)size);
    return status;
}
int ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));

int fallocate(int fd, int mode, off_t at, off_t n) {
    REAL(int, fallocate, int, int, off_t, off_t);
    char path[PATH_MAX];
    if (path_of(fd, path)) FAIL_IF_PLANNED;
    return real(fd, mode, at, n);
}
int fallocate64(int fd, int mode, off_t at, off_t n) __attribute__((alias("fallocate")));

int fsync(int fd) {
    REAL(int, fsync, int);
    char path[PATH_MAX];
    int ours = path_of(fd, path);
    if (ours) FAIL_IF_PLANNED;
    int status = real(fd);
    if (ours && status == 0) note("sync", NULL, 0, "%s", path);
    return status;
}
int fdatasync(int fd) __attribute__((alias("fsync")));

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    if (is_ours(to)) FAIL_IF_PLANNED;
    int status = real(from, to);
    if (status == 0 && is_ours(to)) note("rename", NULL, 0, "%s %s", from, to);
    return status;
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    if (is_ours(to)) FAIL_IF_PLANNED;
    int status = real(from_at, from, to_at, to, flags);
    if (status == 0 && is_ours(to)) note("rename", NULL, 0, "%s %s", from, to);
    return status;
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    if (is_ours(path)) FAIL_IF_PLANNED;
    int status = real(path, mode);
    if (status == 0 && is_ours(path)) note("mkdir", NULL, 0, "%s", path);
    return status;
}

int unlinkat(int at, const char *name, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    char path[PATH_MAX];
    join_path(at, name, path);
    if (is_ours(path)) FAIL_IF_PLANNED;
    int status = real(at, name, flags);
    if (status == 0 && is_ours(path)) note("unlink", NULL, 0, "%s", path);
    return status;
}
