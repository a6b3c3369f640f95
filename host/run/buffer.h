/* buffer.h - memory that holds tensors' bytes: counted references, one allocation. */
#ifndef MESHLUA_BUFFER_H
#define MESHLUA_BUFFER_H

#include "base/ctx.h"

typedef struct Buffer {
    int32_t refs;
    size_t bytes;
    char *data; /* ALLOC_ALIGN-aligned, in the block of the Buffer itself */
    Alloc *alloc;
} Buffer;

/* Not zeroed. NULL when out of memory. */
Buffer *buffer_new(Alloc *alloc, size_t bytes);
Buffer *buffer_retain(Buffer *b);
void buffer_release(Buffer *b); /* NULL is fine */

#endif
