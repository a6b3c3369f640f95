/* test_direct.c - bytes in pieces of all sizes, in and out of order, into two files: what is there
 * afterwards, over file systems that take whole blocks only, refuse them, or write less than they
 * are asked to. */
#include "run/disk/direct.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 4096, SIZE = 20 << 20 };

/* ---- system calls that stand in for libc's ---- */
static struct {
    bool refuses, einval; /* the flag; writes with it, from the second on */
    bool halves;
    int fail_at; /* a write, from 1; 0: none */
    int writes, blocks;
} plan;
static bool is_direct[64]; /* by descriptor */

int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    int flags = va_arg(args, int);
    va_end(args);
    if (command == F_GETFL) return O_WRONLY | (is_direct[fd] ? O_DIRECT : 0);
    if (command != F_SETFL) return (int)syscall(SYS_fcntl, fd, command, flags);
    if (plan.refuses && flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    is_direct[fd] = flags & O_DIRECT;
    return 0;
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    plan.writes++;
    if (is_direct[fd]) {
        plan.blocks++;
        CHECK(at % BLOCK == 0 && n % BLOCK == 0 && (uintptr_t)from % BLOCK == 0);
        if (plan.einval && plan.blocks > 1) {
            errno = EINVAL;
            return -1;
        }
    }
    if (plan.writes == plan.fail_at) {
        errno = ENOSPC;
        return -1;
    }
    if (plan.halves && n >= 2 * BLOCK) n = n / 2 / BLOCK * BLOCK;
    return syscall(SYS_pwrite64, fd, from, n, at);
}

static char image[2][SIZE], got[SIZE];
static uint32_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static int at_random(Direct *d, const int *fd) {
    for (int i = 0; i < 60; i++) {
        int file = draw(4) == 0;
        int64_t at = draw(SIZE), left = 1 << (4 + draw(20));
        for (bool on = true; on && at < SIZE; on = draw(8)) { /* pieces that follow each other */
            size_t n = 1 + draw((uint32_t)left);
            if ((int64_t)n > SIZE - at) n = (size_t)(SIZE - at);
            for (size_t k = 0; k < n; k++) image[file][at + (int64_t)k] = (char)draw(256);
            int error = direct_write(d, file, fd[file], at, image[file] + at, n);
            if (error) return error;
            at += (int64_t)n;
        }
    }
    return direct_flush(d);
}

static void check(const char *what, const int *fd) {
    Ctx cx;
    Direct d;
    ctx_init(&cx);
    CHECK(direct_init(&d, &cx));
    int error = at_random(&d, fd);
    CHECKF(error == (plan.fail_at ? ENOSPC : 0), "%s: %s", what, strerror(error));
    for (int file = 0; file < 2 && !plan.fail_at; file++) {
        CHECK(pread(fd[file], got, SIZE, 0) == SIZE);
        CHECKF(!memcmp(got, image[file], SIZE), "%s: file %d", what, file);
    }
    CHECKF(plan.refuses ? plan.blocks == 0 : plan.fail_at || plan.blocks, "%s", what);
    CHECKF(!is_direct[fd[0]] && !is_direct[fd[1]], "%s", what);
    direct_free(&d, &cx);
    alloc_trim(&cx.alloc);
    CHECK(cx.alloc.live == 0);
    memset(&plan, 0, sizeof plan);
}

int main(void) {
    char name[2][40] = {"/tmp/meshlua-direct-XXXXXX", "/tmp/meshlua-direct-XXXXXX"};
    int fd[2];
    for (int i = 0; i < 2; i++) {
        fd[i] = mkstemp(name[i]);
        if (fd[i] < 0 || fd[i] >= 64 || ftruncate(fd[i], SIZE) != 0) return 1;
        unlink(name[i]);
    }
    check("blocks", fd);
    plan.refuses = true;
    check("no blocks", fd);
    plan.einval = true;
    check("EINVAL", fd);
    plan.halves = true;
    check("short writes", fd);
    for (int k = 1; k <= 40; k += 3) {
        plan.fail_at = k;
        check("a full disk", fd);
    }
    return test_end();
}
