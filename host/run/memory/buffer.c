#include "run/memory/buffer.h"

#include <string.h>

#ifdef MESHLUA_CHECKED
enum { FILL = 0x7f }; /* large numbers of all types, where a kernel leaves something unwritten */
#endif

/* The host's data begins one cache line behind the Buffer, which fits into that line. */
enum { HEAD = ALLOC_ALIGN };
_Static_assert(sizeof(Buffer) <= HEAD, "a Buffer and its data share a block");

/* Those of a device stand in the countdown that makes allocations fail, too. */
static char *take(Ctx *cx, Memory *m, size_t bytes) {
    return alloc_fails(&cx->alloc) ? NULL : m->take(m, bytes);
}

Buffer *buffer_new(Ctx *cx, int32_t domain, size_t bytes) {
    Memory *m = cx->memory[domain];
    size_t here = m ? 0 : bytes;
    if (here > SIZE_MAX - HEAD) return NULL;
    Buffer *b = alloc_take(&cx->alloc, HEAD + here);
    if (!b) return NULL;
    *b = (Buffer){1, bytes, (char *)b + HEAD, cx, m};
    if (m) b->data = take(cx, m, bytes);
#ifdef MESHLUA_CHECKED
    if (!m) memset(b->data, FILL, bytes);
#endif
    if (b->data) return b;
    alloc_give(&cx->alloc, b, HEAD);
    return NULL;
}

Buffer *buffer_retain(Buffer *b) {
    b->refs++;
    return b;
}

void buffer_release(Buffer *b) {
    if (!b || --b->refs > 0) return;
    if (b->memory) b->memory->give(b->memory, b->data, b->bytes);
    alloc_give(&b->cx->alloc, b, HEAD + (b->memory ? 0 : b->bytes));
}
