#include "run/ring.h"

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

void ring_enter(Ring *r, const Crossing *what) {
    int64_t now = ring_now();
    pthread_mutex_lock(&r->lock);
    RingEntry *e = &r->entry[r->n++ % RING_SIZE];
    e->number = r->n;
    e->enter = now;
    e->leave = 0;
    e->bytes = what->bytes;
    e->patient = what->patient;
    put(e->op, sizeof e->op, what->op);
    put(e->axes, sizeof e->axes, what->axes);
    put(e->where, sizeof e->where, what->where);
    pthread_mutex_unlock(&r->lock);
}

void ring_leave(Ring *r) {
    int64_t now = ring_now();
    pthread_mutex_lock(&r->lock);
    if (r->n) r->entry[(r->n - 1) % RING_SIZE].leave = now;
    pthread_mutex_unlock(&r->lock);
}

int ring_latest(Ring *r, RingEntry *out, int n) {
    int k = 0;
    pthread_mutex_lock(&r->lock);
    while (k < n && k < RING_SIZE && (uint64_t)k < r->n) {
        out[k] = r->entry[(r->n - 1 - (uint64_t)k) % RING_SIZE];
        k++;
    }
    pthread_mutex_unlock(&r->lock);
    return k;
}
