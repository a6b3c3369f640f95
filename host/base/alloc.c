#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#    include <sys/mman.h>
#endif

#ifdef __SANITIZE_ADDRESS__
/* What is too large fails under the address sanitizer, too, instead of ending the program. It keeps
 * few frames of each allocation: stacks through Lua's library, which has no frame pointers, are of
 * no use, and cost a seventh of the time; ASAN_OPTIONS=malloc_context_size=30 brings them back.
 * What is freed is used again after 32 MiB more are, not after 256: that took a twelfth of the
 * time, for fresh pages; quarantine_size_mb=256 brings it back. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
    return "allocator_may_return_null=1:malloc_context_size=4:quarantine_size_mb=32";
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

/* The sanitizer sees a use after free only if memory is freed, and an overrun only if a block has
 * no byte more than was asked for. */
#ifdef __SANITIZE_ADDRESS__
static const bool keeps = false;
#else
static const bool keeps = true;
#endif

static size_t padded(size_t size) {
    if (!keeps && size) return size;
    return size ? (size + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN : ALLOC_ALIGN;
}

/* A large block asks for large pages, where the system gives them to those who ask: there are fewer
 * to touch first, and a stream through memory crosses fewer borders. */
static void *from_system(size_t size) {
    void *p;
    if (posix_memalign(&p, ALLOC_ALIGN, size) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    enum { PAGE = 4096, LARGE = 4 << 20 };
    size_t into = (uintptr_t)p % PAGE; /* a neighbour's page may be a part of a large one, too */
    if (size >= LARGE) (void)madvise((char *)p - into, size + into, MADV_HUGEPAGE);
#endif
    return p;
}

/* Memory from the system, which gets back what is kept before it has to say no. */
static void *fresh(Alloc *a, size_t size) {
    void *p = from_system(padded(size));
    if (p || !a->kept) return p;
    alloc_trim(a);
    return from_system(padded(size));
}

void *alloc_aligned(Alloc *a, size_t size) {
    if (alloc_fails(a) || size > SIZE_MAX - ALLOC_ALIGN) return NULL;
    return count(a, fresh(a, size), 0, size);
}

/* ---- blocks that are kept ---- */

static int bin_of(size_t size) {
    return size ? (int)((size - 1) / ALLOC_ALIGN) : 0;
}

static void forget(Alloc *a, int i) {
    a->kept -= a->large[i].size;
    a->nlarge--;
    memmove(&a->large[i], &a->large[i + 1], sizeof a->large[0] * (size_t)(a->nlarge - i));
}

static void drop_oldest(Alloc *a) {
    void *p = a->large[0].at;
    forget(a, 0);
    free(p);
}

void *alloc_take(Alloc *a, size_t size) {
    if (alloc_fails(a) || size > SIZE_MAX - ALLOC_ALIGN) return NULL;
    if (size <= ALLOC_BINS * ALLOC_ALIGN) {
        void **bin = &a->bin[bin_of(size)], *p = *bin;
        if (!p) return count(a, fresh(a, size), 0, size);
        memcpy(bin, p, sizeof *bin);
        a->kept -= padded(size);
        return count(a, p, 0, size);
    }
    for (int i = a->nlarge - 1; i >= 0; i--) {
        if (a->large[i].size != padded(size)) continue;
        void *p = a->large[i].at;
        forget(a, i);
        return count(a, p, 0, size);
    }
    while (a->nlarge && a->live + a->kept + size > a->peak) drop_oldest(a);
    return count(a, fresh(a, size), 0, size);
}

void alloc_give(Alloc *a, void *p, size_t size) {
    if (!keeps || !p) {
        alloc_free(a, p, size);
        return;
    }
    a->live -= size;
    a->kept += padded(size);
    if (size <= ALLOC_BINS * ALLOC_ALIGN) {
        void **bin = &a->bin[bin_of(size)];
        memcpy(p, bin, sizeof *bin);
        *bin = p;
        return;
    }
    if (a->nlarge == ALLOC_LARGE) drop_oldest(a);
    a->large[a->nlarge].at = p;
    a->large[a->nlarge++].size = padded(size);
}

void alloc_trim(Alloc *a) {
    while (a->nlarge) drop_oldest(a);
    for (int i = 0; i < ALLOC_BINS; i++) {
        for (void *next, *p = a->bin[i]; p; p = next) {
            memcpy(&next, p, sizeof next);
            free(p);
        }
        a->bin[i] = NULL;
    }
    a->kept = 0;
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
