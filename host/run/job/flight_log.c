#include "run/job/flight_log.h"

#include <string.h>
#include <time.h>

int64_t flight_log_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void flight_log_init(FlightLog *r) {
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
}

void flight_log_free(FlightLog *r) {
    pthread_mutex_destroy(&r->lock);
}

static void put(char *to, size_t size, const char *text) {
    if (!memccpy(to, text, '\0', size)) to[size - 1] = '\0';
}

uint64_t flight_log_begin(FlightLog *r, const ExchangeInfo *what) {
    pthread_mutex_lock(&r->lock);
    uint64_t number = ++r->n;
    FlightLogEntry *e = &r->entry[number % FLIGHT_LOG_SIZE];
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
static FlightLogEntry *find(FlightLog *r, uint64_t number) {
    FlightLogEntry *e = &r->entry[number % FLIGHT_LOG_SIZE];
    return number && e->number == number ? e : NULL;
}

void flight_log_wait(FlightLog *r, uint64_t number) {
    int64_t now = flight_log_now();
    pthread_mutex_lock(&r->lock);
    FlightLogEntry *e = find(r, number);
    if (e) e->enter = now;
    r->waiting = e ? number : 0;
    pthread_mutex_unlock(&r->lock);
}

void flight_log_rest(FlightLog *r) {
    pthread_mutex_lock(&r->lock);
    r->waiting = 0;
    pthread_mutex_unlock(&r->lock);
}

void flight_log_over(FlightLog *r, uint64_t number) {
    int64_t now = flight_log_now();
    pthread_mutex_lock(&r->lock);
    FlightLogEntry *e = find(r, number);
    if (e) e->leave = now;
    if (e && r->waiting != number) e->enter = now; /* nobody waited */
    if (r->waiting == number) r->waiting = 0;
    pthread_mutex_unlock(&r->lock);
}

void flight_log_enter(FlightLog *r, const ExchangeInfo *what) {
    flight_log_wait(r, flight_log_begin(r, what));
}

void flight_log_leave(FlightLog *r) {
    flight_log_over(r, r->waiting);
}

int flight_log_latest(FlightLog *r, FlightLogEntry *out, int n) {
    int k = 0;
    pthread_mutex_lock(&r->lock);
    const FlightLogEntry *e = find(r, r->waiting);
    if (e && n > 0) out[k++] = *e;
    uint64_t last = r->n > FLIGHT_LOG_SIZE ? r->n - FLIGHT_LOG_SIZE : 0;
    for (uint64_t i = r->n; k < n && i > last; i--)
        if (r->entry[i % FLIGHT_LOG_SIZE].leave) out[k++] = r->entry[i % FLIGHT_LOG_SIZE];
    pthread_mutex_unlock(&r->lock);
    return k;
}
