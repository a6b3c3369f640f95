#include "run/buffer.h"

Buffer *buffer_new(Alloc *alloc, size_t bytes) {
    Buffer *b = alloc_new(alloc, sizeof *b);
    if (!b) return NULL;
    *b = (Buffer){1, bytes, alloc_aligned(alloc, bytes), alloc};
    if (b->data) return b;
    alloc_free(alloc, b, sizeof *b);
    return NULL;
}

Buffer *buffer_retain(Buffer *b) {
    b->refs++;
    return b;
}

void buffer_release(Buffer *b) {
    if (!b || --b->refs > 0) return;
    alloc_free(b->alloc, b->data, b->bytes);
    alloc_free(b->alloc, b, sizeof *b);
}
