/* alloc and arena: the byte count, the countdown, alignment, growth. */
#include "base/arena.h"
#include "base/vec.h"
#include "test.h"

#include <stdint.h>
#include <string.h>

static void test_count(void) {
    Alloc a = {.fail_in = -1};
    char *p = alloc_new(&a, 100);
    CHECK(p && a.live == 100 && a.peak == 100);
    for (int i = 0; i < 100; i++) CHECK(p[i] == 0);
    p = alloc_resize(&a, p, 100, 300);
    CHECK(a.live == 300 && a.peak == 300);
    p = alloc_resize(&a, p, 300, 50);
    CHECK(a.live == 50 && a.peak == 300);
    void *q = alloc_aligned(&a, 65);
    CHECK((uintptr_t)q % ALLOC_ALIGN == 0);
    CHECK(a.live == 115);
    alloc_free(&a, q, 65);
    alloc_free(&a, p, 50);
    alloc_free(&a, NULL, 7);
    CHECK(a.live == 0 && a.peak == 300);
}

static void test_countdown(void) {
    Alloc a = {.fail_in = 2};
    void *p = alloc_new(&a, 1), *q = alloc_aligned(&a, 1);
    CHECK(p && q);
    CHECK(!alloc_resize(&a, p, 1, 2)); /* the third; p stays */
    CHECK(a.fail_in == -1);
    CHECK(!alloc_fails(&a));
    p = alloc_resize(&a, p, 1, 2);
    CHECK(p != NULL);
    a.fail_in = 0;
    CHECK(alloc_fails(&a));
    CHECK(!alloc_fails(&a));
    CHECK(!alloc_aligned(&a, SIZE_MAX - 3));
    alloc_free(&a, p, 2);
    alloc_free(&a, q, 1);
    CHECK(a.live == 0);
}

/* Blocks are kept by size, do not count as live, and never pass the peak. */
static void test_kept(void) {
    static const size_t sizes[] = {0, 1, 64, 65, 512, 513, 5000};
    Alloc a = {.fail_in = -1};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = alloc_take(&a, sizes[i]), *q = alloc_take(&a, sizes[i]);
        CHECK(p && q && p != q && (uintptr_t)p % ALLOC_ALIGN == 0);
        CHECK(a.live == 2 * sizes[i]);
        memset(p, 1, sizes[i]);
        alloc_give(&a, p, sizes[i]);
        alloc_give(&a, q, sizes[i]);
        CHECK(a.live == 0);
#ifndef __SANITIZE_ADDRESS__
        char *again = alloc_take(&a, sizes[i]);
        CHECK(again == q && a.live == sizes[i]);
        alloc_give(&a, again, sizes[i]);
#endif
    }
    alloc_give(&a, NULL, 7);
    CHECK(a.live == 0 && a.peak == 10000);
    void *large =
        alloc_take(&a, 9000); /* with the 10000 bytes that are kept it would pass the peak */
    CHECK(large && a.live + a.kept <= a.peak + 2048);
    alloc_give(&a, large, 9000);
    for (size_t i = 0; i < 2 * ALLOC_LARGE; i++) alloc_give(&a, alloc_take(&a, 600 + i), 600 + i);
    CHECK(a.nlarge <= ALLOC_LARGE);
    a.fail_in = 0;
    CHECK(!alloc_take(&a, 1));
    CHECK(!alloc_take(&a, SIZE_MAX - 3));
    alloc_trim(&a);
    CHECK(a.live == 0 && a.kept == 0 && a.nlarge == 0);
}

static void test_arena(void) {
    Alloc alloc = {.fail_in = -1};
    Arena a;
    arena_init(&a, &alloc);
    char *block[200];
    for (size_t i = 0; i < 200; i++) {
        block[i] = arena_alloc(&a, i * 37);
        CHECK(block[i] && (uintptr_t)block[i] % 16 == 0);
        for (size_t k = 0; k < i * 37; k++) CHECK(block[i][k] == 0);
        memset(block[i], (int)i, i * 37);
    }
    for (size_t i = 0; i < 200; i++) /* nobody wrote into another's block */
        for (size_t k = 0; k < i * 37; k++) CHECK(block[i][k] == (char)i);
    char *big = arena_alloc(&a, 10 << 20);
    CHECK(big && big[(10 << 20) - 1] == 0);
    CHECK(strcmp(arena_strdup(&a, "meshlua"), "meshlua") == 0);
    CHECK(!arena_alloc(&a, SIZE_MAX / 2));
    for (int round = 0; round < 3; round++) { /* emptied, it needs no more than what it held */
        arena_clear(&a);
        size_t held = alloc.live;
        char *again = arena_alloc(&a, 100);
        CHECK(again && again[0] == 0 && again[99] == 0);
        memset(again, 1, 100);
        CHECK(held == 0 || alloc.live == held);
    }
    arena_free(&a);
    arena_clear(&a);
    arena_free(&a);
    CHECK(alloc.live == 0);
    alloc.fail_in = 0;
    CHECK(!arena_alloc(&a, 8));
    CHECK(arena_alloc(&a, 8) != NULL);
    arena_free(&a);
    CHECK(alloc.live == 0);
}

#ifdef __SANITIZE_ADDRESS__
#    include <sanitizer/asan_interface.h>
/* Not one byte behind an allocation is there to be read, and none at all once the arena is cleared.
 */
static void test_arena_gaps(void) {
    Alloc alloc = {.fail_in = -1};
    Arena a;
    arena_init(&a, &alloc);
    char *p[300];
    for (size_t size = 0; size < 300; size++) p[size] = arena_alloc(&a, size);
    for (size_t size = 0; size < 300; size++) {
        CHECK(!__asan_region_is_poisoned(p[size], size));
        for (int i = 0; i < 16; i++) CHECK(__asan_address_is_poisoned(p[size] + size + i));
    }
    char *copy = arena_strdup(&a, "meshlua");
    CHECK(!copy[7] && __asan_address_is_poisoned(copy + 8));
    arena_clear(&a);
    for (size_t size = 0; size < 300; size++) CHECK(__asan_address_is_poisoned(p[size]));
    arena_free(&a);
}
#else
static void test_arena_gaps(void) {}
#endif

static void test_vec(void) {
    Alloc alloc = {.fail_in = -1};
    Arena a;
    arena_init(&a, &alloc);
    VEC(int32_t) v = {0};
    for (int32_t i = 0; i < 1000; i++) CHECK(VEC_PUSH(&a, &v, i * i));
    CHECK(v.n == 1000);
    for (int32_t i = 0; i < 1000; i++) CHECK(v.at[i] == i * i);
    while (v.n < v.cap) CHECK(VEC_PUSH(&a, &v, 0));
    int32_t n = v.n;
    alloc.fail_in = 0;
    bool pushed = true;
    while (pushed) pushed = VEC_PUSH(&a, &v, 7); /* until the arena needs a new chunk */
    CHECK(v.n >= n && v.at[999] == 999 * 999);
    CHECK(VEC_PUSH(&a, &v, 8));
    CHECK(!VEC_ROOM(&a, &v, INT32_MAX));
    arena_free(&a);
    CHECK(alloc.live == 0);
}

int main(void) {
    test_count();
    test_countdown();
    test_kept();
    test_arena();
    test_arena_gaps();
    test_vec();
    return test_end();
}
