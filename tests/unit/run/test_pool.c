/* test_pool.c - every piece runs once, on a thread of the pool, after the stages that it waits for,
 * and is done when pool_run returns. */
#include "base/ctx.h"
#include "run/pool.h"
#include "test.h"

#include <string.h>

enum { PIECES = 1000, STAGES = 7, THREADS = 5 };

typedef struct Job {
    int times[PIECES]; /* plain memory: what one stage wrote the next one reads, on any thread */
    int before[PIECES];
    int thread[PIECES];
    int32_t stage_of[PIECES], first[STAGES + 1];
} Job;

static void run(void *ud, int32_t piece, int thread) {
    Job *j = ud;
    int32_t s = j->stage_of[piece];
    j->times[piece]++;
    j->thread[piece] = thread;
    j->before[piece] = 0;
    /* A stage of even number waits for all before it, one of odd number only for the second to
     * last. */
    int32_t end = s % 2 ? j->first[s - 1] : j->first[s];
    for (int32_t i = 0; i < end; i++) j->before[piece] += j->times[i];
}

/* The pieces are dealt out as unevenly as `skew` says: 0: to equal parts; 1: all to the last
 * thread. */
static void rounds(Ctx *cx, int threads, int32_t pieces, int skew) {
    static Job job;
    int32_t own[STAGES][THREADS + 1];
    PoolStage stage[STAGES];
    Pool *p = pool_new(cx, threads);
    CHECK(p != NULL);
    if (!p) return;
    CHECK(pool_threads(p) == threads);
    CHECK(pool_reserve(cx, p, STAGES) && pool_reserve(cx, p, 1));
    memset(&job, 0, sizeof job);
    for (int32_t s = 0; s < STAGES; s++) {
        int32_t first = pieces * s / STAGES, n = pieces * (s + 1) / STAGES - first;
        for (int t = 0; t <= threads; t++)
            own[s][t] = first + (skew && t < threads ? 0 : n * t / threads);
        for (int32_t i = first; i < first + n; i++) job.stage_of[i] = s;
        job.first[s] = first;
        stage[s] = (PoolStage){own[s], s % 2 ? s - 1 : s};
    }
    for (int round = 1; round <= 200; round++) {
        pool_run(p, run, &job, stage, STAGES);
        for (int i = 0; i < PIECES; i++) {
            int32_t s = job.stage_of[i];
            if (job.times[i] != (i < pieces ? round : 0)) {
                CHECK(!"a piece ran another number of times");
                i = PIECES;
            } else if (i < pieces && (job.thread[i] < 0 || job.thread[i] >= threads)) {
                CHECK(!"a piece ran on no thread of the pool");
                i = PIECES;
            } else if (i < pieces && job.before[i] != round * job.first[s % 2 ? s - 1 : s]) {
                CHECK(!"a piece ran before one that it waits for");
                i = PIECES;
            }
        }
    }
    pool_run(p, run, &job, stage, 0);
    pool_free(cx, p);
}

int main(void) {
    Ctx cx;
    ctx_init(&cx);
    for (int threads = 1; threads <= THREADS; threads++) {
        static const int32_t pieces[] = {0, 1, 2, 3, 17, PIECES};
        for (unsigned i = 0; i < sizeof pieces / sizeof *pieces; i++)
            for (int skew = 0; skew < 2; skew++) rounds(&cx, threads, pieces[i], skew);
    }
    CHECK(cx.alloc.live == 0);
    /* A pool that was never used, and one that could not be made, end without a trace. */
    pool_free(&cx, pool_new(&cx, THREADS));
    pool_free(&cx, NULL);
    CHECK(cx.alloc.live == 0);
    /* Room that cannot be had leaves the pool as it was. */
    Pool *p = pool_new(&cx, 2);
    CHECK(pool_reserve(&cx, p, 3));
    for (int64_t n = 0; n < 2; n++) {
        cx.alloc.fail_in = n;
        CHECK(!pool_reserve(&cx, p, 100));
        CHECK(pool_reserve(&cx, p, 3));
    }
    pool_free(&cx, p);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
