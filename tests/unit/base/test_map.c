/* map: finds what was added, also among equal hashes and after growth. */
#include "base/map.h"
#include "test.h"

#include <string.h>

static bool equal(const void *ud, const void *probe, int32_t value) {
    const int64_t *items = ud;
    return items[value] == *(const int64_t *)probe;
}

enum { MANY = 3000 };

static void test_find(uint64_t (*hash)(int64_t)) {
    static int64_t items[MANY];
    Alloc alloc = {.fail_in = -1};
    Arena a;
    arena_init(&a, &alloc);
    Map m = {0};
    CHECK(map_find(&m, 1, equal, items, &items[0]) == -1);
    for (int32_t i = 0; i < MANY; i++) {
        items[i] = (int64_t)i * 7919;
        CHECK(map_find(&m, hash(items[i]), equal, items, &items[i]) == -1);
        CHECK(map_add(&a, &m, hash(items[i]), i));
    }
    CHECK(m.n == MANY);
    for (int32_t i = 0; i < MANY; i++)
        CHECK(map_find(&m, hash(items[i]), equal, items, &items[i]) == i);
    map_clear(&m);
    CHECK(m.n == 0 && map_find(&m, hash(0), equal, items, &items[0]) == -1);
    arena_free(&a);
}

static uint64_t good(int64_t x) {
    return hash_u64(0, (uint64_t)x);
}
static uint64_t poor(int64_t x) {
    return (uint64_t)x % 61;
}

static void test_out_of_memory(void) {
    Alloc alloc = {.fail_in = 0};
    Arena a;
    arena_init(&a, &alloc);
    Map m = {0};
    int64_t item = 5;
    CHECK(!map_add(&a, &m, 1, 0));
    CHECK(map_find(&m, 1, equal, &item, &item) == -1);
    CHECK(map_add(&a, &m, 1, 0));
    CHECK(map_find(&m, 1, equal, &item, &item) == 0);
    arena_free(&a);
}

static void test_hash(void) {
    CHECK(hash_str(0, "ab") == hash_bytes(0, "ab", 3));
    CHECK(hash_str(0, "ab") != hash_str(1, "ab"));
    CHECK(hash_str(hash_str(0, "a"), "b") != hash_str(hash_str(0, "b"), "a"));
    uint64_t x = 42;
    CHECK(hash_u64(9, x) == hash_bytes(9, &x, sizeof x));
}

int main(void) {
    test_find(good);
    test_find(poor);
    test_out_of_memory();
    test_hash();
    return test_end();
}
