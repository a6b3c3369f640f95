/* The places in a workspace: those that a search through all holes gives, in little time however
 * many there are. */
#include "pass/plan/holes.h"
#include "test.h"

#include <string.h>
#include <time.h>

/* ---- the same by a search through all ---- */

enum { MANY = 512 };

typedef struct Plain { /* by place */
    int64_t at[MANY], size[MANY], top;
    int n;
} Plain;

static void drop(Plain *p, int i) {
    p->n--;
    memmove(&p->at[i], &p->at[i + 1], sizeof *p->at * (size_t)(p->n - i));
    memmove(&p->size[i], &p->size[i + 1], sizeof *p->size * (size_t)(p->n - i));
}

static int64_t plain_take(Plain *p, int64_t size) {
    int best = -1, last = p->n - 1;
    for (int i = 0; i < p->n; i++)
        if (p->size[i] >= size && (best < 0 || p->size[i] < p->size[best])) best = i;
    if (best < 0) {
        int64_t at = p->top;
        if (last >= 0 && p->at[last] + p->size[last] == p->top) at = p->at[last], drop(p, last);
        p->top = at + size;
        return at;
    }
    int64_t at = p->at[best];
    p->at[best] += size;
    p->size[best] -= size;
    if (p->size[best] == 0) drop(p, best);
    return at;
}

static void plain_give(Plain *p, int64_t at, int64_t size) {
    if (size == 0) return;
    int i = p->n++;
    for (; i > 0 && p->at[i - 1] > at; i--) p->at[i] = p->at[i - 1], p->size[i] = p->size[i - 1];
    p->at[i] = at;
    p->size[i] = size;
    if (i + 1 < p->n && at + size == p->at[i + 1]) p->size[i] += p->size[i + 1], drop(p, i + 1);
    if (i > 0 && p->at[i - 1] + p->size[i - 1] == at) p->size[i - 1] += p->size[i], drop(p, i);
}

/* ---- ---- */

static uint64_t state = 1;
static int below(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static void test_same(Arena *a) {
    for (int round = 0; round < 200; round++) {
        Holes h = {0};
        Plain p = {.n = 0};
        int64_t at[MANY], size[MANY];
        int n = 0, sizes = 1 + below(12);
        for (int i = 0; i < 2000; i++) {
            if (n < MANY / 2 && (n == 0 || below(100) < 52)) {
                size[n] = below(20) == 0 ? 0 : 64 * (1 + below(sizes));
                at[n] = holes_take(&h, size[n]);
                int64_t expected = plain_take(&p, size[n]);
                CHECKF(at[n] == expected && h.top == p.top, "%d: %lld, not %lld", i,
                       (long long)at[n], (long long)expected);
                n++;
            } else {
                int k = below(n--);
                CHECK(holes_give(a, &h, at[k], size[k]));
                plain_give(&p, at[k], size[k]);
                at[k] = at[n];
                size[k] = size[n];
            }
        }
    }
}

static double seconds_of(Arena *a, int n) {
    Holes h = {0};
    int64_t *at = ARENA_ARRAY(a, int64_t, n);
    clock_t start = clock();
    for (int i = 0; i < n; i++) at[i] = holes_take(&h, 64 * (1 + i % 7));
    for (int i = 0; i < n; i += 2) CHECK(holes_give(a, &h, at[i], 64 * (1 + i % 7)));
    for (int i = 0; i < n; i += 2) at[i] = holes_take(&h, 64 * (1 + i % 5));
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

int main(void) {
    Alloc alloc = {.fail_in = -1};
    Arena a;
    arena_init(&a, &alloc);
    test_same(&a);
    seconds_of(&a, 1000);
    double few = seconds_of(&a, 20000), many = seconds_of(&a, 200000);
    CHECKF(many < 40 * few + 0.05, "%g and %g s", few, many);
    arena_free(&a);
    return test_end();
}
