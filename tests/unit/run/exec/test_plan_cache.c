/* test_plan_cache.c - which plans stay when there are more than the cache holds. */
#include "base/ctx.h"
#include "run/exec/plan_cache.h"
#include "test.h"

/* Never run: only their counts of references are looked at, which never become 0. */
enum { PLANS = 20000 };
static Exec plans[PLANS];

static PlanCacheKey key_of(int i) {
    return (PlanCacheKey){hash_u64(0, (uint64_t)i), hash_u64(1, (uint64_t)i)};
}

static bool is_there(PlanCache *c, int i) {
    return plan_cache_find(c, key_of(i)) == &plans[i];
}

static void add(PlanCache *c, int i) {
    CHECK(plan_cache_add(c, key_of(i), &plans[i]) == E_OK);
}

/* How many there are at most, as the first that is not there any more tells. */
static int entries(Ctx *cx) {
    PlanCache c;
    plan_cache_init(&c, cx);
    int n = 1;
    for (add(&c, 0); n < PLANS && plans[0].refs == 2; n++) add(&c, n);
    plan_cache_free(&c);
    return n - 1;
}

int main(void) {
    Ctx cx;
    ctx_init(&cx);
    for (int i = 0; i < PLANS; i++) plans[i].refs = 1;
    int most = entries(&cx), hot = most / 8;
    CHECK(most > 0 && most < PLANS / 2);
    PlanCache c;
    plan_cache_init(&c, &cx);
    for (int i = 0; i < 2 * most + 1; i++) { /* the first ones are found again and again */
        add(&c, i);
        for (int k = 0; i > hot && k < hot; k += 1 + i % 7) CHECK(is_there(&c, k));
    }
    for (int k = 0; k < hot; k++) CHECKF(is_there(&c, k), "%d of %d", k, most);
    int stay = 0;
    for (int i = most + 1; i < 2 * most + 1; i++) stay += is_there(&c, i);
    CHECKF(stay >= most / 2, "%d of the latest %d", stay, most);
    CHECK(is_there(&c, 2 * most));
    CHECK(!is_there(&c, hot)); /* as old as those, but nobody asked for it */
    plan_cache_clear(&c);
    CHECK(!is_there(&c, 2 * most));
    add(&c, 3);
    CHECK(is_there(&c, 3));
    plan_cache_free(&c);
    for (int i = 0; i < PLANS; i++) CHECKF(plans[i].refs == 1, "plan %d", i);
    return test_end();
}
