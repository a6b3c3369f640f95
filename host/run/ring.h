/* ring.h - the latest exchanges with other processes: what each was, and when this process began
 * and ended to wait for it. The main thread writes, the channel's thread reads. */
#ifndef MESHLUA_RING_H
#define MESHLUA_RING_H

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

enum { RING_SIZE = 32, RING_OP = 32, RING_AXES = 40, RING_WHERE = 96 };

typedef struct RingEntry {
    uint64_t number;      /* from 1 on; 0: none */
    int64_t enter, leave; /* ring_now; leave is 0 while it is waited for */
    uint64_t bytes;
    bool patient;
    char op[RING_OP], axes[RING_AXES], where[RING_WHERE]; /* cut where longer */
} RingEntry;

typedef struct Ring {
    pthread_mutex_t lock;
    uint64_t n; /* the latest has this number */
    RingEntry entry[RING_SIZE];
} Ring;

void ring_init(Ring *r);
void ring_free(Ring *r);
/* This process waits for the exchange from now on; until now. One at a time. */
void ring_enter(Ring *r, const Crossing *what);
void ring_leave(Ring *r);
/* Copies the latest n or fewer, the latest first; how many there are. */
int ring_latest(Ring *r, RingEntry *out, int n);
int64_t ring_now(void); /* nanoseconds, of a clock that only goes forward */

#endif
