#include "run/disk/direct.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum {
    BLOCK = 4096,     /* of files, at least, and of memory that a disk reads */
    ROOM = 8 << 20,   /* what is written at once */
    LEAST = 128 << 10 /* less than that is not worth a wait for the disk */
};

bool direct_init(Direct *d, Ctx *cx) {
    *d = (Direct){.memory = alloc_take(&cx->alloc, ROOM + BLOCK)};
    if (d->memory) d->at = d->memory + (BLOCK - (uintptr_t)d->memory % BLOCK) % BLOCK;
    return d->memory;
}

void direct_free(Direct *d, Ctx *cx) {
    if (d->memory) alloc_give(&cx->alloc, d->memory, ROOM + BLOCK);
    d->memory = NULL;
}

static bool set_direct(int fd, bool on) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* Whole blocks: a file system that cannot write these so refuses the flag, or says so of the first
 * write. */
static int put_blocks(int fd, const char *from, size_t n, int64_t at) {
    int error = EINVAL;
    if (n >= LEAST && set_direct(fd, true)) {
        error = file_write_at(fd, from, n, at);
        if (!set_direct(fd, false)) return errno;
    }
    bool refused = error == EINVAL || error == EOPNOTSUPP || error == ENOSYS;
    return refused ? file_write_at(fd, from, n, at) : error;
}

/* Writes what is gathered; but for `all`, not what has come of the last block. */
static int write_out(Direct *d, bool all) {
    int64_t end = d->begin + (int64_t)d->n, first = (d->begin + BLOCK - 1) / BLOCK * BLOCK;
    int64_t lo = first < end ? first : end, hi = end / BLOCK * BLOCK;
    const char *from = d->at + d->begin % BLOCK;
    if (hi < lo || (all && end - lo < LEAST)) hi = lo; /* the rest at once */
    int error = file_write_at(d->fd, from, (size_t)(lo - d->begin), d->begin);
    if (!error) error = put_blocks(d->fd, from + (lo - d->begin), (size_t)(hi - lo), lo);
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
    if (!d->n) {
        d->file = file;
        d->fd = fd;
        d->begin = at;
    }
    while (n && !error) {
        size_t used = (size_t)(d->begin % BLOCK) + d->n, more = n < ROOM - used ? n : ROOM - used;
        memcpy(d->at + used, from, more);
        d->n += more;
        from += more;
        n -= more;
        if (used + more == ROOM) error = write_out(d, false);
    }
    return error;
}
