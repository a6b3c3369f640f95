#include "run/disk/direct.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* What is written at once; little in checked builds, as of what is read (run/disk/read.h). */
#ifdef MESHLUA_CHECKED
enum { ROOM = 1 << 18 };
#else
enum { ROOM = 8 << 20 };
#endif
enum {
    BLOCK = 4096,     /* of files, at least, and of memory that a disk reads */
    MOST = 64 << 10,  /* no disk has larger ones */
    LEAST = 128 << 10 /* less than that is not worth a wait for the disk */
};

bool direct_init(Direct *d, Ctx *cx) {
    *d = (Direct){.memory = alloc_take(&cx->alloc, ROOM + MOST)};
    if (d->memory) d->at = d->memory + (MOST - (uintptr_t)d->memory % MOST) % MOST;
    return d->memory;
}

void direct_free(Direct *d, Ctx *cx) {
    if (d->memory) alloc_give(&cx->alloc, d->memory, ROOM + MOST);
    d->memory = NULL;
}

/* The blocks that a file is written in: those that its file system asks for, else those that it
 * prefers, which may be larger than MOST for the sake of long transfers. 0: it takes none. */
static int64_t block_of(int fd) {
    struct statx info = {0};
    int64_t block, memory = 0;
#ifdef STATX_DIOALIGN
    const unsigned mask = STATX_DIOALIGN;
#else
    const unsigned mask = 0;
#endif
    if (statx(fd, "", AT_EMPTY_PATH, mask, &info) != 0) return BLOCK;
    block = info.stx_blksize < MOST ? info.stx_blksize : MOST;
#ifdef STATX_DIOALIGN
    if (info.stx_mask & mask) {
        block = info.stx_dio_offset_align;
        memory = info.stx_dio_mem_align;
        if (!block) return 0;
    }
#endif
    if (block < memory) block = memory;
    if (block < BLOCK) block = BLOCK;
    return block > MOST || block & (block - 1) ? 0 : block;
}

static bool set_direct(int fd, bool on) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* Whole blocks: a file system that cannot write these so refuses the flag, or says so of the first
 * write; then the file's others go the usual way, too. */
static int put_blocks(Direct *d, const char *from, size_t n, int64_t at) {
    if (n >= LEAST && !d->refused) {
        d->refused = !set_direct(d->fd, true);
        if (!d->refused) {
            int error = file_write_at(d->fd, from, n, at);
            if (!set_direct(d->fd, false)) return errno;
            d->refused = error == EINVAL || error == EOPNOTSUPP || error == ENOSYS;
            if (!d->refused) return error;
        }
    }
    return file_write_at(d->fd, from, n, at);
}

/* Writes what is gathered; but for `all`, not what has come of the last block. */
static int write_out(Direct *d, bool all) {
    int64_t block = d->block, end = d->begin + (int64_t)d->n;
    int64_t first = (d->begin + block - 1) / block * block;
    int64_t lo = first < end ? first : end, hi = end / block * block;
    const char *from = d->at + d->begin % block;
    if (hi < lo || (all && end - lo < LEAST)) hi = lo; /* the rest at once */
    int error = file_write_at(d->fd, from, (size_t)(lo - d->begin), d->begin);
    if (!error) error = put_blocks(d, from + (lo - d->begin), (size_t)(hi - lo), lo);
    from += hi - d->begin;
    if (!error && all) error = file_write_at(d->fd, from, (size_t)(end - hi), hi);
    d->begin = hi;
    d->n = all || error ? 0 : (size_t)(end - hi);
    memmove(d->at, from, d->n);
    return error;
}

int direct_flush(Direct *d) {
    return d->n ? write_out(d, true) : 0;
}

int direct_write(Direct *d, int32_t file, int fd, int64_t at, const char *from, size_t n) {
    int error = d->file == file && d->begin + (int64_t)d->n == at ? 0 : direct_flush(d);
    if (error) return error;
    if (!d->n && (!d->block || d->file != file || d->fd != fd)) {
        int64_t block = block_of(fd);
        d->refused = block == 0;
        d->block = block ? block : BLOCK;
        d->file = file;
        d->fd = fd;
    }
    if (!d->n) d->begin = at;
    while (n && !error) {
        size_t used = (size_t)(d->begin % d->block) + d->n;
        size_t more = n < ROOM - used ? n : ROOM - used;
        memcpy(d->at + used, from, more);
        d->n += more;
        from += more;
        n -= more;
        if (used + more == ROOM) error = write_out(d, false);
    }
    return error;
}
