/* direct.h - bytes into files past the system's cache of them, where the file system can.
 *
 * Through the cache every byte costs a fresh page, a copy by the kernel, and its way to the disk
 * later: several times the processor time, and as much memory as is written, of which a step that
 * runs meanwhile has a use. Bytes that follow each other are gathered into whole blocks here; what
 * is left of a block at either end, and what is small, takes the usual way. */
#ifndef MESHLUA_RUN_DISK_DIRECT_H
#define MESHLUA_RUN_DISK_DIRECT_H

#include "base/ctx.h"

typedef struct Direct {
    char *memory, *at; /* blocks; begin % block bytes in front stay free */
    int32_t file;      /* the caller's number; of the latest error: whose it is */
    int fd;
    int64_t block; /* the file's; 0: of none yet */
    bool refused;  /* the file takes no blocks past the cache */
    int64_t begin; /* in the file: those that are gathered */
    size_t n;
} Direct;

bool direct_init(Direct *d, Ctx *cx);
void direct_free(Direct *d, Ctx *cx);
/* Gathers the bytes, which are written by direct_flush at the latest. 0, or errno of the first
 * write that failed. A thread may call them that touches no Ctx. */
int direct_write(Direct *d, int32_t file, int fd, int64_t at, const char *from, size_t n);
int direct_flush(Direct *d);

#endif
