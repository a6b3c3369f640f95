/* pool.c - workers wait for a new generation number, first spinning, then on a futex; items are
 * taken from a shared counter. Spinning is worth it because steps follow each other within
 * microseconds. */
#include "run/pool.h"

#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 2000 };

typedef struct Worker {
    Pool *pool;
    pthread_t thread;
    int index;
    bool started;
} Worker;

struct Pool {
    int threads;
    PoolFn *fn;
    void *ud;
    int64_t items;
    _Atomic int64_t next;   /* the first item that nobody has taken */
    _Atomic uint32_t round; /* counts calls of pool_run; workers wait for it to change */
    _Atomic uint32_t busy;  /* workers that have not finished this round */
    _Atomic bool stop;
    Worker worker[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t while_it_is) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_it_is, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Returns when *word is no longer `value`. */
static void await_change(_Atomic uint32_t *word, uint32_t value) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    while (atomic_load_explicit(word, memory_order_acquire) == value) futex_wait(word, value);
}

static void take_items(Pool *p, int thread) {
    for (;;) {
        int64_t item = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (item >= p->items) return;
        p->fn(p->ud, item, thread);
    }
}

static void *work(void *arg) {
    Worker *w = arg;
    Pool *p = w->pool;
    for (uint32_t seen = 0;; seen++) {
        await_change(&p->round, seen);
        if (atomic_load(&p->stop)) return NULL;
        take_items(p, w->index);
        if (atomic_fetch_sub_explicit(&p->busy, 1, memory_order_acq_rel) == 1) futex_wake(&p->busy);
    }
}

Pool *pool_new(Ctx *cx, int threads) {
    size_t size = sizeof(Pool) + sizeof(Worker) * (size_t)(threads - 1);
    Pool *p = alloc_new(&cx->alloc, size);
    if (!p) return NULL;
    p->threads = threads;
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

void pool_free(Ctx *cx, Pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->round, 1);
    futex_wake(&p->round);
    for (int i = 0; i < p->threads - 1; i++)
        if (p->worker[i].started) pthread_join(p->worker[i].thread, NULL);
    alloc_free(&cx->alloc, p, sizeof(Pool) + sizeof(Worker) * (size_t)(p->threads - 1));
}

int pool_threads(const Pool *p) {
    return p->threads;
}

void pool_run(Pool *p, PoolFn *fn, void *ud, int64_t items) {
    if (items <= 1 || p->threads == 1) {
        for (int64_t i = 0; i < items; i++) fn(ud, i, 0);
        return;
    }
    p->fn = fn;
    p->ud = ud;
    p->items = items;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, (uint32_t)(p->threads - 1), memory_order_relaxed);
    atomic_fetch_add_explicit(&p->round, 1, memory_order_release);
    futex_wake(&p->round);
    take_items(p, 0);
    for (;;) {
        uint32_t busy = atomic_load_explicit(&p->busy, memory_order_acquire);
        if (busy == 0) return;
        await_change(&p->busy, busy);
    }
}
