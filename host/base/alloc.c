#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
/* What is too large fails under the address sanitizer, too, instead of ending the program. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}
#endif

bool alloc_fails(Alloc *a) {
    if (a->fail_in < 0) return false;
    return a->fail_in-- == 0;
}

static void *count(Alloc *a, void *p, size_t old_size, size_t size) {
    if (!p) return NULL;
    a->live += size - old_size;
    if (a->live > a->peak) a->peak = a->live;
    return p;
}

void *alloc_new(Alloc *a, size_t size) {
    if (alloc_fails(a)) return NULL;
    return count(a, calloc(1, size ? size : 1), 0, size);
}

void *alloc_aligned(Alloc *a, size_t size) {
    if (alloc_fails(a)) return NULL;
    if (size > SIZE_MAX - ALLOC_ALIGN) return NULL;
    size_t padded = (size + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
    return count(a, aligned_alloc(ALLOC_ALIGN, padded ? padded : ALLOC_ALIGN), 0, size);
}

void *alloc_resize(Alloc *a, void *p, size_t old_size, size_t size) {
    if (alloc_fails(a)) return NULL;
    return count(a, realloc(p, size ? size : 1), old_size, size);
}

void alloc_free(Alloc *a, void *p, size_t size) {
    if (!p) return;
    a->live -= size;
    free(p);
}
