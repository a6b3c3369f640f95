/* flight_log.h - the latest exchanges with other processes: what each was, and when this process
 * began and ended to wait for it. The main thread writes, the channel's thread reads.
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
typedef struct ExchangeInfo {
    const char *op;    /* "all_reduce", ... */
    const char *where; /* the user's line, or "" */
    const char *axes;  /* of the mesh, or "" */
    size_t bytes;      /* that come */
    bool patient;      /* the others may take their time, as long as they answer */
} ExchangeInfo;

enum { FLIGHT_LOG_SIZE = 128, FLIGHT_LOG_OP = 32, FLIGHT_LOG_AXES = 40, FLIGHT_LOG_WHERE = 96 };

typedef struct FlightLogEntry {
    uint64_t number;      /* from 1 on; 0: none */
    int64_t enter, leave; /* flight_log_now; leave is 0 until it is over */
    uint64_t bytes;
    bool patient;
    char op[FLIGHT_LOG_OP], axes[FLIGHT_LOG_AXES], where[FLIGHT_LOG_WHERE]; /* cut where longer */
} FlightLogEntry;

typedef struct FlightLog {
    pthread_mutex_t lock;
    uint64_t n;       /* the latest has this number */
    uint64_t waiting; /* the number of the one that is waited for; 0: there is none */
    FlightLogEntry entry[FLIGHT_LOG_SIZE];
} FlightLog;

void flight_log_init(FlightLog *r);
void flight_log_free(FlightLog *r);
/* This process waits for the exchange from now on; until now. */
void flight_log_enter(FlightLog *r, const ExchangeInfo *what);
void flight_log_leave(FlightLog *r);
/* One begins that is not waited for yet; its number. It is known for FLIGHT_LOG_SIZE others at
 * least. */
uint64_t flight_log_begin(FlightLog *r, const ExchangeInfo *what);
/* This process waits for that one from now on; no longer, though it is not over; it is over. */
void flight_log_wait(FlightLog *r, uint64_t number);
void flight_log_rest(FlightLog *r);
void flight_log_over(FlightLog *r, uint64_t number);
/* Copies n or fewer, the one that is waited for first and then those that are over, the latest
 * first; how many there are. */
int flight_log_latest(FlightLog *r, FlightLogEntry *out, int n);
int64_t flight_log_now(void); /* nanoseconds, of a clock that only goes forward */

#endif
