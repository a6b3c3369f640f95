/* test_pool.c - every item runs once, on a thread of the pool, and is done when pool_run returns.
 */
#include "base/ctx.h"
#include "run/pool.h"
#include "test.h"

#include <string.h>

enum { ITEMS = 1000, THREADS = 4 };

typedef struct Job {
    int times[ITEMS]; /* plain memory: what one round wrote the next one reads, on any thread */
    int thread[ITEMS];
} Job;

static void run(void *ud, int64_t item, int thread) {
    Job *j = ud;
    j->times[item]++;
    j->thread[item] = thread;
}

static void rounds(Ctx *cx, int threads, int64_t items) {
    static Job job;
    Pool *p = pool_new(cx, threads);
    CHECK(p != NULL);
    if (!p) return;
    CHECK(pool_threads(p) == threads);
    memset(&job, 0, sizeof job);
    for (int round = 1; round <= 200; round++) {
        pool_run(p, run, &job, items);
        for (int i = 0; i < ITEMS; i++) {
            if (job.times[i] != (i < items ? round : 0)) {
                CHECK(!"an item ran another number of times");
                i = ITEMS;
            } else if (i < items && (job.thread[i] < 0 || job.thread[i] >= threads)) {
                CHECK(!"an item ran on no thread of the pool");
                i = ITEMS;
            }
        }
    }
    pool_free(cx, p);
}

int main(void) {
    Ctx cx;
    ctx_init(&cx);
    for (int threads = 1; threads <= THREADS; threads++) {
        static const int64_t items[] = {0, 1, 2, 3, 17, ITEMS};
        for (unsigned i = 0; i < sizeof items / sizeof *items; i++) rounds(&cx, threads, items[i]);
    }
    CHECK(cx.alloc.live == 0);
    /* A pool that was never used, and one that could not be made, end without a trace. */
    pool_free(&cx, pool_new(&cx, THREADS));
    pool_free(&cx, NULL);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
