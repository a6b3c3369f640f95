/* test_pool.c - every piece runs once, on a thread of the pool, after the stages and the steps of
 * its lane that it waits for, and is done when pool_run returns. */
#include "base/ctx.h"
#include "run/pool.h"
#include "test.h"

#include <string.h>
#include <time.h>

enum { PIECES = 1000, STAGES = 7, THREADS = 5, LANES = 7, STEPS = 3 };

typedef struct Job {
    int times[PIECES]; /* plain memory: what one stage wrote the next one reads, on any thread */
    int before[PIECES], in_lane[PIECES];
    int thread[PIECES];
    int32_t stage_of[PIECES], first[STAGES + 1];
    int32_t lane_start[PIECES], step_start[PIECES]; /* the first piece of the lane, of its step */
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
    j->in_lane[piece] = 0;
    for (int32_t i = j->lane_start[piece]; i < j->step_start[piece]; i++)
        j->in_lane[piece] += j->times[i];
}

/* Deals out the pieces [at, at + n), to queues of the same length or all to the last one. */
static PoolStage deal(Job *j, int32_t *first, int32_t lanes, int32_t steps, int32_t at, int32_t n,
                      bool skew) {
    PoolStage s = {.first = first, .lanes = lanes, .steps = steps};
    int32_t queues = pool_queues(&s);
    for (int32_t q = 0; q <= queues; q++) first[q] = at + (skew && q < queues ? 0 : n * q / queues);
    for (int32_t q = 0; q < queues; q++)
        for (int32_t i = first[q]; i < first[q + 1]; i++) {
            j->lane_start[i] = first[q - q % steps];
            j->step_start[i] = first[q];
        }
    return s;
}

static void rounds(Ctx *cx, int threads, int32_t pieces, bool skew, int32_t steps) {
    static Job job;
    static int32_t first[STAGES][LANES * STEPS + 1];
    PoolStage stage[STAGES];
    Pool *p = pool_new(cx, threads);
    CHECK(p != NULL);
    if (!p) return;
    CHECK(pool_threads(p) == threads);
    CHECK(pool_reserve(cx, p, STAGES, STAGES * LANES * STEPS) && pool_reserve(cx, p, 1, 1));
    memset(&job, 0, sizeof job);
    for (int32_t s = 0; s < STAGES; s++) {
        int32_t at = pieces * s / STAGES, n = pieces * (s + 1) / STAGES - at;
        for (int32_t i = at; i < at + n; i++) job.stage_of[i] = s;
        job.first[s] = at;
        stage[s] = deal(&job, first[s], steps == 1 ? threads : 1 + s % LANES, steps, at, n, skew);
        stage[s].after = s % 2 ? s - 1 : s;
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
            } else if (i < pieces &&
                       job.in_lane[i] != round * (job.step_start[i] - job.lane_start[i])) {
                CHECK(!"a piece ran before its lane had come to it");
                i = PIECES;
            }
        }
    }
    pool_run(p, run, &job, stage, 0);
    pool_free(cx, p);
}

static void sleep_for_first(void *ud, int32_t piece, int thread) {
    struct timespec t = {.tv_nsec = piece == 0 ? 30000000 : 0};
    *(int *)ud = piece == 0 ? thread : *(int *)ud;
    nanosleep(&t, NULL);
}

/* Who has nothing to do is idle: in a run the thread without the long piece; between runs all but
 * the caller. Each time by what was slept at least, as the machine may do other things. */
static void test_idle(Ctx *cx) {
    static const int32_t first[] = {0, 1, 2};
    PoolStage stage = {.first = first, .lanes = 2, .steps = 1};
    Pool *p = pool_new(cx, 2);
    int who = 0;
    CHECK(pool_reserve(cx, p, 1, 2));
    pool_run(p, sleep_for_first, &who, &stage, 1);
    CHECK(pool_idle(p, 1 - who) >= 10000000 && pool_idle(p, who) < pool_idle(p, 1 - who));
    int64_t own = pool_idle(p, 0), other = pool_idle(p, 1);
    struct timespec t = {.tv_nsec = 30000000};
    nanosleep(&t, NULL);
    CHECK(pool_idle(p, 0) == own && pool_idle(p, 1) >= other + 10000000);
    pool_free(cx, p);
}

int main(void) {
    Ctx cx;
    ctx_init(&cx);
    test_idle(&cx);
    for (int threads = 1; threads <= THREADS; threads++) {
        static const int32_t pieces[] = {0, 1, 2, 3, 17, PIECES};
        for (unsigned i = 0; i < sizeof pieces / sizeof *pieces; i++)
            for (int skew = 0; skew < 2; skew++) {
                rounds(&cx, threads, pieces[i], skew, 1);
                rounds(&cx, threads, pieces[i], skew, STEPS);
            }
    }
    CHECK(cx.alloc.live == 0);
    /* A pool that was never used, and one that could not be made, end without a trace. */
    pool_free(&cx, pool_new(&cx, THREADS));
    pool_free(&cx, NULL);
    CHECK(cx.alloc.live == 0);
    /* Room that cannot be had leaves the pool as it was. */
    Pool *p = pool_new(&cx, 2);
    CHECK(pool_reserve(&cx, p, 3, 9));
    for (int64_t n = 0; n < 4; n++) {
        cx.alloc.fail_in = n;
        CHECK(!pool_reserve(&cx, p, 100, 9));
        cx.alloc.fail_in = n;
        CHECK(!pool_reserve(&cx, p, 3, 100));
        cx.alloc.fail_in = -1;
        CHECK(pool_reserve(&cx, p, 3, 9));
    }
    pool_free(&cx, p);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
