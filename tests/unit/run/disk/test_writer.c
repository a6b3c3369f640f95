/* test_writer.c - a tensor is written, and every system call on the way fails in turn: an error
 * that names the file, or the same file as without. */
#include "ir/intern.h"
#include "run/disk/writer.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- system calls that stand in for libc's ---- */
static struct {
    int calls, fail_at, error; /* call number fail_at fails; 0: none */
    bool always, halves;       /* every second one fails; writes are short */
} plan;

static bool fails(void) {
    plan.calls++;
    if (plan.calls != plan.fail_at && !(plan.always && plan.calls % 2)) return false;
    errno = plan.error;
    return true;
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    if (fails()) return -1;
    if (plan.halves && n > 1) n = (n + 1) / 2;
    return syscall(SYS_pwrite64, fd, from, n, at);
}
int fsync(int fd) {
    return fails() ? -1 : (int)syscall(SYS_fsync, fd);
}
int ftruncate(int fd, off_t size) {
    return fails() ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}
int fallocate(int fd, int mode, off_t at, off_t n) {
    return fails() ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

static const char *folder; /* of what is written */
static char path[256];

enum { ROWS = 300, COLUMNS = 700, HEADER = 8 };

static Tensor *make(Ctx *cx) {
    Dims dims = {2, {ROWS, COLUMNS}};
    Tensor *t = tensor_alloc(cx, type_make(cx, DT_I32, &dims, NULL));
    for (int32_t i = 0; i < ROWS * COLUMNS; i++) memcpy(tensor_data(t, 0) + 4 * i, &i, 4);
    return t;
}

/* The tensor, as it is or transposed. */
static PieceMap piece(bool transposed) {
    PieceMap p = {.at.rank = 2, .size = {2, {ROWS, COLUMNS}}, .nfactor = 2, .begin = HEADER};
    p.factor[0] = (PieceFactor){0, ROWS, transposed ? 1 : COLUMNS};
    p.factor[1] = (PieceFactor){1, COLUMNS, transposed ? ROWS : 1};
    p.dtype = DT_I32;
    return p;
}

static Err write_once(Ctx *cx, Tensor *t, bool transposed, bool thread) {
    Writer *w = writer_new(cx, 0);
    PieceMap p = piece(transposed);
    int64_t size = HEADER + (int64_t)tensor_shard_bytes(t);
    Err err = writer_file(w, path, "12345678", HEADER, size, true, &p.file);
    if (!err) err = writer_add(w, t, 0, (UnitsJob){1, 1}, 0, &p, 1);
    if (!err && !(thread && writer_start(w))) writer_run(w);
    while (!err && !writer_is_done(w)) { /* what the main thread may do meanwhile */
        void *other = alloc_new(&cx->alloc, 100);
        buffer_release(buffer_retain(t->shard[0].buffer));
        err_clear(cx);
        alloc_free(&cx->alloc, other, 100);
    }
    if (!err) err = writer_wait(w);
    CHECK(err || writer_is_done(w));
    writer_free(w);
    return err;
}

/* Is the file what it should be? */
static bool is_right(bool transposed) {
    FILE *f = fopen(path, "r");
    char header[HEADER];
    bool right = f && fread(header, HEADER, 1, f) == 1 && !memcmp(header, "12345678", HEADER);
    for (int32_t i = 0; right && i < ROWS * COLUMNS; i++) {
        int32_t got, want = transposed ? i % ROWS * COLUMNS + i / ROWS : i;
        right = fread(&got, 4, 1, f) == 1 && got == want;
    }
    right = right && fgetc(f) == EOF;
    if (f) fclose(f);
    return right;
}

static void each_call_fails(Ctx *cx, Tensor *t, int error) {
    for (int k = 1;; k++) {
        memset(&plan, 0, sizeof plan);
        plan.fail_at = k;
        plan.error = error;
        Err err = write_once(cx, t, k % 2, true);
        if (plan.calls < k) break;
        CHECKF(err == E_IO && strstr(cx->err.text, path) && strstr(cx->err.text, strerror(error)),
               "call %d, %s: %s", k, strerror(error), cx->err.text);
        CHECKF(t->shard[0].buffer->refs == 1, "call %d", k);
    }
    memset(&plan, 0, sizeof plan);
}

static void limits(Ctx *cx, Tensor *t) {
    struct rlimit was, small = {1000, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &was);
    small.rlim_max = was.rlim_max;
    unlink(path);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int thread = 0; thread < 2; thread++) {
        CHECK(write_once(cx, t, false, thread) == E_IO);
        CHECKF(strstr(cx->err.text, "File too large"), "%s", cx->err.text);
    }
    setrlimit(RLIMIT_FSIZE, &was);
}

int main(void) {
    Ctx cx;
    char name[] = "/tmp/meshlua-writer-XXXXXX";
    ctx_init(&cx);
    if (intern_init(&cx)) return 1;
    Tensor *t = make(&cx);
    folder = mkdtemp(name);
    snprintf(path, sizeof path, "%s/file", folder);
    for (int transposed = 0; transposed < 2; transposed++) {
        CHECKF(write_once(&cx, t, transposed, true) == E_OK, "%s", cx.err.text);
        CHECK(is_right(transposed));
        plan.always = plan.halves = true;
        plan.error = EINTR;
        CHECKF(write_once(&cx, t, transposed, true) == E_OK, "%s", cx.err.text);
        memset(&plan, 0, sizeof plan);
        CHECK(is_right(transposed));
    }
    each_call_fails(&cx, t, EIO);
    each_call_fails(&cx, t, ENOSPC);
    limits(&cx, t);
    strcpy(path, "/dev/full");
    CHECK(write_once(&cx, t, false, true) == E_IO && strstr(cx.err.text, "/dev/full: "));
    snprintf(path, sizeof path, "%s/link", folder);
    CHECK(symlink("file", path) == 0);
    CHECK(write_once(&cx, t, false, true) == E_IO && strstr(cx.err.text, "symbolic link"));
    unlink(path);
    snprintf(path, sizeof path, "%s/none/file", folder);
    CHECK(write_once(&cx, t, false, true) == E_IO);
    snprintf(path, sizeof path, "%s/file", folder);
    unlink(path);
    rmdir(folder);
    tensor_release(t);
    intern_free(&cx);
    alloc_trim(&cx.alloc);
    CHECKF(cx.alloc.live == 0, "%zu bytes", cx.alloc.live);
    return test_end();
}
