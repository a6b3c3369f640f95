/* pool.c - a run is open for as long as it has work. Workers enter an open run, go through its
 * stages in order and leave; the caller does the same and closes the run when every stage is over.
 * A worker that comes too late finds it closed, so nobody waits for a thread that sleeps.
 *
 * Waiting is spinning for a while, as steps follow each other within microseconds, then a futex.
 * Who wakes looks at a count of sleepers first. The sleeper raises the count before it looks at the
 * word for the last time, the waker changes the word before it looks at the count, all four in one
 * total order (seq_cst): so either the sleeper sees the change or the waker sees the sleeper. */
#include "run/pool.h"
#include "base/env.h"

#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS = 2000, /* where every thread has a core: about 50 us */
    OPEN = 1 << 30,
};

typedef struct Worker {
    Pool *pool;
    pthread_t thread;
    int index;
    bool started;
} Worker;

/* What a thread has waited, in nanoseconds; while it waits that is less the time when it began, and
 * so below 0. The clock is read by who waits alone, which costs nobody time. */
typedef struct Idle {
    _Atomic int64_t time;
    char apart[ALLOC_ALIGN - sizeof(int64_t)]; /* two threads' share no cache line */
} Idle;

struct Pool {
    int threads, spins;
    PoolFn *fn;
    void *ud;
    const PoolStage *stage;
    int32_t stages, stage_room, queue_room;
    int32_t *queue;          /* by stage: the first of its queues, which are by lane and step */
    _Atomic uint32_t *left;  /* by stage: the pieces that are not done */
    _Atomic uint64_t *rest;  /* by queue: the first piece that nobody took, and the end */
    _Atomic uint32_t *doing; /* by queue: the pieces that are not done */
    _Atomic uint32_t round;  /* counts the runs; idle workers wait for it to change */
    _Atomic uint32_t gate;   /* OPEN while a run is, and the number of workers in it */
    _Atomic uint32_t idle, waiting; /* threads that sleep: for a run; within one */
    _Atomic bool stop;
    Idle *idle_time; /* by thread */
    Worker worker[];
};

static int64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t pool_idle(const Pool *p, int thread) {
    int64_t time = atomic_load_explicit(&p->idle_time[thread].time, memory_order_relaxed);
    return time < 0 ? time + clock_now() : time;
}

/* Returns when *word is no longer `value`. */
static void spin_or_sleep(const Pool *p, _Atomic uint32_t *word, uint32_t value,
                          _Atomic uint32_t *sleepers) {
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == value)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    atomic_fetch_sub(sleepers, 1);
}

/* The same, by the thread of that number, whose waiting counts. */
static void await_change(const Pool *p, _Atomic uint32_t *word, uint32_t value,
                         _Atomic uint32_t *sleepers, int thread) {
    if (atomic_load_explicit(word, memory_order_acquire) != value) return;
    _Atomic int64_t *idle = &p->idle_time[thread].time;
    int64_t before = atomic_load_explicit(idle, memory_order_relaxed), from = clock_now();
    atomic_store_explicit(idle, before - from, memory_order_relaxed);
    spin_or_sleep(p, word, value, sleepers);
    atomic_store_explicit(idle, before + clock_now() - from, memory_order_relaxed);
}

static void wake(_Atomic uint32_t *word, _Atomic uint32_t *sleepers) {
    if (atomic_load(sleepers)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void await_zero(Pool *p, _Atomic uint32_t *word, int thread) {
    for (;;) {
        uint32_t value = atomic_load_explicit(word, memory_order_acquire);
        if (value == 0) return;
        await_change(p, word, value, &p->waiting, thread);
    }
}

static uint64_t range(uint32_t first, uint32_t end) {
    return (uint64_t)end << 32 | first;
}

/* The first piece of the range, or the last; -1 when none is left. */
static int32_t take(_Atomic uint64_t *rest, bool first) {
    uint64_t r = atomic_load_explicit(rest, memory_order_relaxed);
    for (;;) {
        uint32_t at = (uint32_t)r, end = (uint32_t)(r >> 32);
        if (at >= end) return -1;
        uint64_t less = first ? range(at + 1, end) : range(at, end - 1);
        if (atomic_compare_exchange_weak_explicit(rest, &r, less, memory_order_relaxed,
                                                  memory_order_relaxed))
            return (int32_t)(first ? at : end - 1);
    }
}

/* Does what nobody has taken of the lane's steps, from the first pieces on or from the last. */
static uint32_t do_lane(Pool *p, const PoolStage *s, int32_t queue, bool first, int thread) {
    uint32_t all = 0;
    for (int32_t end = queue + s->steps; queue < end; queue++) {
        uint32_t done = 0;
        for (int32_t piece; (piece = take(&p->rest[queue], first)) >= 0; done++)
            p->fn(p->ud, piece, thread);
        all += done;
        if (queue + 1 == end) break;
        if (done && atomic_fetch_sub(&p->doing[queue], done) == done)
            wake(&p->doing[queue], &p->waiting);
        await_zero(p, &p->doing[queue], thread);
    }
    return all;
}

static void do_stage(Pool *p, int32_t stage, int thread) {
    const PoolStage *s = &p->stage[stage];
    uint32_t done = 0;
    for (int k = 0; k < p->threads; k++) {
        int whose = (thread + k) % p->threads;
        int32_t lane = pool_first_lane(s, whose, p->threads);
        int32_t n = pool_first_lane(s, whose + 1, p->threads) - lane;
        for (int32_t i = 0; i < n; i++)
            done += do_lane(p, s, p->queue[stage] + (k ? lane + n - 1 - i : lane + i) * s->steps,
                            k == 0, thread);
    }
    if (done && atomic_fetch_sub(&p->left[stage], done) == done) wake(&p->left[stage], &p->waiting);
}

static void go_through(Pool *p, int thread) {
    int32_t over = 0; /* stages that are known to be */
    for (int32_t s = 0; s < p->stages; s++) {
        for (; over < p->stage[s].after; over++) await_zero(p, &p->left[over], thread);
        do_stage(p, s, thread);
    }
    if (thread == 0)
        for (; over < p->stages; over++) await_zero(p, &p->left[over], thread);
}

static bool enter(Pool *p) {
    uint32_t gate = atomic_load_explicit(&p->gate, memory_order_relaxed);
    while (gate & OPEN)
        if (atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static void *work(void *arg) {
    Worker *w = arg;
    Pool *p = w->pool;
    for (uint32_t seen = 0;;) {
        await_change(p, &p->round, seen, &p->idle, w->index);
        seen = atomic_load(&p->round);
        if (atomic_load(&p->stop)) return NULL;
        if (!enter(p)) continue;
        go_through(p, w->index);
        if (atomic_fetch_sub(&p->gate, 1) == 1) wake(&p->gate, &p->waiting);
    }
}

Pool *pool_new(Ctx *cx, int threads) {
    size_t size = sizeof(Pool) + sizeof(Worker) * (size_t)(threads - 1);
    Pool *p = alloc_new(&cx->alloc, size);
    if (!p) return NULL;
    p->threads = threads;
    p->spins = threads <= env_cores() ? SPINS : 0;
    p->idle_time = alloc_aligned(&cx->alloc, sizeof *p->idle_time * (size_t)threads);
    if (!p->idle_time) {
        pool_free(cx, p);
        return NULL;
    }
    for (int i = 0; i < threads; i++) atomic_init(&p->idle_time[i].time, 0);
    for (int i = 0; i < threads - 1; i++) {
        p->worker[i] = (Worker){.pool = p, .index = i + 1};
        if (pthread_create(&p->worker[i].thread, NULL, work, &p->worker[i]) != 0) {
            pool_free(cx, p);
            return NULL;
        }
        p->worker[i].started = true;
    }
    return p;
}

static void free_room(Ctx *cx, Pool *p) {
    size_t stages = (size_t)p->stage_room, queues = (size_t)p->queue_room;
    alloc_free(&cx->alloc, p->queue, sizeof *p->queue * stages);
    alloc_free(&cx->alloc, p->left, sizeof *p->left * stages);
    alloc_free(&cx->alloc, p->rest, sizeof *p->rest * queues);
    alloc_free(&cx->alloc, p->doing, sizeof *p->doing * queues);
}

void pool_free(Ctx *cx, Pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->round, 1);
    wake(&p->round, &p->idle);
    for (int i = 0; i < p->threads - 1; i++)
        if (p->worker[i].started) pthread_join(p->worker[i].thread, NULL);
    free_room(cx, p);
    alloc_free(&cx->alloc, p->idle_time, sizeof *p->idle_time * (size_t)p->threads);
    alloc_free(&cx->alloc, p, sizeof(Pool) + sizeof(Worker) * (size_t)(p->threads - 1));
}

int pool_threads(const Pool *p) {
    return p->threads;
}

bool pool_reserve(Ctx *cx, Pool *p, int32_t stages, int32_t queues) {
    if (stages <= p->stage_room && queues <= p->queue_room) return true;
    Pool room = {.stage_room = stages > p->stage_room ? stages : p->stage_room,
                 .queue_room = queues > p->queue_room ? queues : p->queue_room};
    size_t s = (size_t)room.stage_room, q = (size_t)room.queue_room;
    room.queue = alloc_aligned(&cx->alloc, sizeof *room.queue * s);
    room.left = alloc_aligned(&cx->alloc, sizeof *room.left * s);
    room.rest = alloc_aligned(&cx->alloc, sizeof *room.rest * q);
    room.doing = alloc_aligned(&cx->alloc, sizeof *room.doing * q);
    if (!room.queue || !room.left || !room.rest || !room.doing) {
        free_room(cx, &room);
        return false;
    }
    free_room(cx, p);
    p->queue = room.queue;
    p->left = room.left;
    p->rest = room.rest;
    p->doing = room.doing;
    p->stage_room = room.stage_room;
    p->queue_room = room.queue_room;
    return true;
}

static void fill(Pool *p, int32_t stage, int32_t queue) {
    const PoolStage *s = &p->stage[stage];
    int32_t n = pool_queues(s);
    p->queue[stage] = queue;
    for (int32_t i = 0; i < n; i++) {
        uint32_t from = (uint32_t)s->first[i], to = (uint32_t)s->first[i + 1];
        atomic_store_explicit(&p->rest[queue + i], range(from, to), memory_order_relaxed);
        atomic_store_explicit(&p->doing[queue + i], to - from, memory_order_relaxed);
    }
    atomic_store_explicit(&p->left[stage], (uint32_t)(s->first[n] - s->first[0]),
                          memory_order_relaxed);
}

void pool_run(Pool *p, PoolFn *fn, void *ud, const PoolStage *stage, int32_t stages) {
    p->fn = fn;
    p->ud = ud;
    p->stage = stage;
    p->stages = stages;
    ASSERT(stages <= p->stage_room, "%d stages, room for %d", stages, p->stage_room);
    for (int32_t s = 0, queue = 0; s < stages; queue += pool_queues(&stage[s++])) {
        ASSERT(pool_queues(&stage[s]) <= p->queue_room - queue, "room for %d queues",
               p->queue_room);
        fill(p, s, queue);
    }
    atomic_store(&p->gate, OPEN);
    atomic_fetch_add(&p->round, 1);
    wake(&p->round, &p->idle);
    go_through(p, 0);
    if (atomic_fetch_sub(&p->gate, OPEN) != OPEN) await_zero(p, &p->gate, 0);
}
