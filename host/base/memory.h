/* memory.h - memory that is not the host's, in which tensors' bytes may lie: a device's.
 *
 * What is written or moved there happens in the order in which it was asked for, with the work that
 * a device has been given; only `read` waits. What is moved from one device to another comes after
 * the work of both, and before what either is given later. */
#ifndef MESHLUA_MEMORY_H
#define MESHLUA_MEMORY_H

#include "base/err.h"

typedef struct Memory Memory;
struct Memory {
    int32_t domain;    /* of this process's, whose it is: see Ctx */
    size_t live, peak; /* bytes that are given out, and were at most */
    /* NULL: there is not so much. */
    char *(*take)(Memory *m, size_t bytes);
    void (*give)(Memory *m, char *at, size_t bytes);
    Err (*write)(Memory *m, char *to, const void *from, size_t bytes);
    /* Also tells what went wrong in the work before it. */
    Err (*read)(Memory *m, void *to, const char *from, size_t bytes);
    /* The same of 8 bytes at most, in two parts: `ask` gives a number, and `answer` waits for what
     * came before that alone. *known is false where that was too long ago. */
    Err (*ask)(Memory *m, const char *from, size_t bytes, int64_t *number);
    Err (*answer)(Memory *m, int64_t number, void *to, size_t bytes, bool *known);
    Err (*move)(Memory *m, char *to, const Memory *source, const char *from, size_t bytes);
};

#endif
