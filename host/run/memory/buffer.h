/* buffer.h - memory that holds tensors' bytes, the host's or a device's: counted references. */
#ifndef MESHLUA_RUN_MEMORY_BUFFER_H
#define MESHLUA_RUN_MEMORY_BUFFER_H

#include "base/ctx.h"

typedef struct Buffer {
    int32_t refs;
    size_t bytes;
    char *data; /* ALLOC_ALIGN-aligned; the host's is in the block of the Buffer itself */
    Ctx *cx;
    Memory *memory; /* whose `data` is, or NULL */
} Buffer;

/* From one slot to the next: whole cache lines, and no multiple of a page. A collective reads the
 * same places of all slots at a time, which would else compete for the same few ways of a cache. */
static inline size_t buffer_slot_stride(size_t bytes) {
    enum { PAGE = 4096, LINES = 9 };
    size_t stride = (bytes + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
    return stride && stride % PAGE == 0 ? stride + LINES * ALLOC_ALIGN : stride;
}

/* In the memory of that domain of this process; not zeroed. NULL when out of memory. */
Buffer *buffer_new(Ctx *cx, int32_t domain, size_t bytes);
Buffer *buffer_retain(Buffer *b);
void buffer_release(Buffer *b); /* NULL is fine */

#endif
