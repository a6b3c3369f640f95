/* flight_log.h - the latest exchanges with other processes: what each was, and when this process began
 * and ended to wait for it. The main thread writes, the channel's thread reads.
 *
 * Exchanges have numbers in the order in which they begin, which is the same in all processes. Most
 * are waited for at once. One between GPUs runs on its own: the process waits for it later, more
 * than once, or never. It waits for one at a time. */
#ifndef MESHLUA_RUN_JOB_FLIGHT_LOG_H
#define MESHLUA_RUN_JOB_FLIGHT_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One exchange of data with other processes, for those who read of it. */
typedef struct Crossing {
    const char *op;    /* "all_reduce", ... */
    const char *where; /* the user's line, or "" */
    const char *axes;  /* of the mesh, or "" */
    size_t bytes;      /* that come */
    bool patient;      /* the others may take their time, as long as they answer */
} Crossing;

enum { RING_SIZE = 128, RING_OP = 32, RING_AXES = 40, RING_WHERE = 96 };

typedef struct RingEntry {
    uint64_t number;      /* from 1 on; 0: none */
    int64_t enter, leave; /* ring_now; leave is 0 until it is over */
    uint64_t bytes;
    bool patient;
    char op[RING_OP], axes[RING_AXES], where[RING_WHERE]; /* cut where longer */
} RingEntry;

typedef struct Ring {
    pthread_mutex_t lock;
    uint64_t n;       /* the latest has this number */
    uint64_t waiting; /* the number of the one that is waited for; 0: there is none */
    RingEntry entry[RING_SIZE];
} Ring;

void ring_init(Ring *r);
void ring_free(Ring *r);
/* This process waits for the exchange from now on; until now. */
void ring_enter(Ring *r, const Crossing *what);
void ring_leave(Ring *r);
/* One begins that is not waited for yet; its number. It is known for RING_SIZE others at least. */
uint64_t ring_begin(Ring *r, const Crossing *what);
/* This process waits for that one from now on; no longer, though it is not over; it is over. */
void ring_wait(Ring *r, uint64_t number);
void ring_rest(Ring *r);
void ring_over(Ring *r, uint64_t number);
/* Copies n or fewer, the one that is waited for first and then those that are over, the latest
 * first; how many there are. */
int ring_latest(Ring *r, RingEntry *out, int n);
int64_t ring_now(void); /* nanoseconds, of a clock that only goes forward */

#endif
