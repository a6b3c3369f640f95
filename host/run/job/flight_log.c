#include "run/job/flight_log.h"

#include <string.h>
#include <time.h>

int64_t ring_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void ring_init(Ring *r) {
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
}

void ring_free(Ring *r) {
    pthread_mutex_destroy(&r->lock);
}

static void put(char *to, size_t size, const char *text) {
    if (!memccpy(to, text, '\0', size)) to[size - 1] = '\0';
}

uint64_t ring_begin(Ring *r, const Crossing *what) {
    pthread_mutex_lock(&r->lock);
    uint64_t number = ++r->n;
    RingEntry *e = &r->entry[number % RING_SIZE];
    e->number = number;
    e->enter = e->leave = 0;
    e->bytes = what->bytes;
    e->patient = what->patient;
    put(e->op, sizeof e->op, what->op);
    put(e->axes, sizeof e->axes, what->axes);
    put(e->where, sizeof e->where, what->where);
    pthread_mutex_unlock(&r->lock);
    return number;
}

/* NULL: others have taken its place. */
static RingEntry *find(Ring *r, uint64_t number) {
    RingEntry *e = &r->entry[number % RING_SIZE];
    return number && e->number == number ? e : NULL;
}

void ring_wait(Ring *r, uint64_t number) {
    int64_t now = ring_now();
    pthread_mutex_lock(&r->lock);
    RingEntry *e = find(r, number);
    if (e) e->enter = now;
    r->waiting = e ? number : 0;
    pthread_mutex_unlock(&r->lock);
}

void ring_rest(Ring *r) {
    pthread_mutex_lock(&r->lock);
    r->waiting = 0;
    pthread_mutex_unlock(&r->lock);
}

void ring_over(Ring *r, uint64_t number) {
    int64_t now = ring_now();
    pthread_mutex_lock(&r->lock);
    RingEntry *e = find(r, number);
    if (e) e->leave = now;
    if (e && r->waiting != number) e->enter = now; /* nobody waited */
    if (r->waiting == number) r->waiting = 0;
    pthread_mutex_unlock(&r->lock);
}

void ring_enter(Ring *r, const Crossing *what) {
    ring_wait(r, ring_begin(r, what));
}

void ring_leave(Ring *r) {
    ring_over(r, r->waiting);
}

int ring_latest(Ring *r, RingEntry *out, int n) {
    int k = 0;
    pthread_mutex_lock(&r->lock);
    const RingEntry *e = find(r, r->waiting);
    if (e && n > 0) out[k++] = *e;
    uint64_t last = r->n > RING_SIZE ? r->n - RING_SIZE : 0;
    for (uint64_t i = r->n; k < n && i > last; i--)
        if (r->entry[i % RING_SIZE].leave) out[k++] = r->entry[i % RING_SIZE];
    pthread_mutex_unlock(&r->lock);
    return k;
}
