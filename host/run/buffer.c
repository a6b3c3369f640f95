#include "run/buffer.h"

/* The data begins one cache line behind the Buffer, which fits into that line. */
enum { HEAD = ALLOC_ALIGN };
_Static_assert(sizeof(Buffer) <= HEAD, "a Buffer and its data share a block");

Buffer *buffer_new(Alloc *alloc, size_t bytes) {
    if (bytes > SIZE_MAX - HEAD) return NULL;
    Buffer *b = alloc_take(alloc, HEAD + bytes);
    if (b) *b = (Buffer){1, bytes, (char *)b + HEAD, alloc};
    return b;
}

Buffer *buffer_retain(Buffer *b) {
    b->refs++;
    return b;
}

void buffer_release(Buffer *b) {
    if (!b || --b->refs > 0) return;
    alloc_give(b->alloc, b, HEAD + b->bytes);
}
