/* test_direct.c - bytes in pieces of all sizes, in and out of order, into two files: what is there
 * afterwards, over file systems that take whole blocks only, of sizes of their own, refuse them, or
 * write less than they are asked to. */
#include "run/disk/direct.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 4096, SIZE = 20 << 20 };

/* ---- system calls that stand in for libc's ---- */
static struct {
    bool refuses, einval; /* the flag; writes with it, from the second on */
    bool halves;
    int fail_at;           /* a write, from 1; 0: none */
    int64_t block, memory; /* what it asks for of files and memory; 0: BLOCK */
    bool mute, never;      /* it does not say so, but for st_blksize; it says that it takes none */
    int64_t prefers;       /* st_blksize of one that is mute; 0: the block */
    int writes, blocks, misfits, refusals;
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
        plan.refusals++;
        errno = EINVAL;
        return -1;
    }
    is_direct[fd] = flags & O_DIRECT;
    return 0;
}

static int64_t block_size(void) {
    return plan.block ? plan.block : BLOCK;
}

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *to) {
    CHECK(fd >= 0 && !*path && flags == AT_EMPTY_PATH);
    to->stx_blksize = (uint32_t)(plan.prefers ? plan.prefers : plan.mute ? block_size() : BLOCK);
    if (plan.mute || !(mask & STATX_DIOALIGN)) return 0;
    to->stx_mask = STATX_DIOALIGN;
    to->stx_dio_offset_align = plan.never ? 0 : (uint32_t)block_size();
    to->stx_dio_mem_align = plan.never ? 0 : (uint32_t)(plan.memory ? plan.memory : 512);
    return 0;
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    plan.writes++;
    if (is_direct[fd]) {
        plan.blocks++;
        int64_t block = block_size(), memory = plan.memory ? plan.memory : 512;
        bool fits = at % block == 0 && (int64_t)n % block == 0 && (int64_t)from % memory == 0;
        plan.misfits += !fits;
        if (!fits || (plan.einval && plan.blocks > 1)) {
            errno = EINVAL;
            return -1;
        }
    }
    if (plan.writes == plan.fail_at) {
        errno = ENOSPC;
        return -1;
    }
    size_t half = n / 2 / (size_t)block_size() * (size_t)block_size();
    if (plan.halves && half) n = half;
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
    bool none = plan.refuses || plan.never || plan.block > SIZE;
    CHECKF(none ? plan.blocks == 0 : plan.fail_at || plan.blocks, "%s", what);
    CHECKF(plan.misfits == 0, "%s: %d refused", what, plan.misfits);
    CHECKF(!is_direct[fd[0]] && !is_direct[fd[1]], "%s", what);
    direct_free(&d, &cx);
    alloc_trim(&cx.alloc);
    CHECK(cx.alloc.live == 0);
    memset(&plan, 0, sizeof plan);
}

/* A file system that refuses the flag is asked once for a file. */
static void check_asked_once(int fd) {
    Ctx cx;
    Direct d;
    ctx_init(&cx);
    plan.refuses = true;
    CHECK(direct_init(&d, &cx));
    for (int64_t at = 0; at < SIZE; at += 1 << 20)
        CHECK(direct_write(&d, 0, fd, at, image[0] + at, 1 << 20) == 0);
    CHECK(direct_flush(&d) == 0);
    CHECKF(plan.refusals == 1, "asked %d times", plan.refusals);
    direct_free(&d, &cx);
    alloc_trim(&cx.alloc);
    memset(&plan, 0, sizeof plan);
}

int main(void) {
    int fd[2];
    for (int i = 0; i < 2; i++) {
        fd[i] = memfd_create("direct", 0);
        if (fd[i] < 0 || fd[i] >= 64 || ftruncate(fd[i], SIZE) != 0) return 1;
    }
    check("blocks", fd);
    plan.refuses = true;
    check("no blocks", fd);
    check_asked_once(fd[0]);
    plan.einval = true;
    check("EINVAL", fd);
    plan.halves = true;
    check("short writes", fd);
    for (int64_t block = 1 << 10; block <= 64 << 10; block *= 8) {
        plan.block = block;
        check("blocks of a size", fd);
        plan.block = block;
        plan.mute = true;
        check("blocks of a size that are not named", fd);
    }
    plan.memory = 16 << 10;
    check("memory in blocks", fd);
    plan.never = true;
    check("none, as it says", fd);
    plan.block = 32 << 20;
    check("too large ones", fd);
    plan.mute = true;
    plan.prefers = 4 << 20;
    check("long transfers preferred", fd);
    for (int k = 1; k <= 40; k += 3) {
        plan.fail_at = k;
        check("a full disk", fd);
    }
    return test_end();
}
