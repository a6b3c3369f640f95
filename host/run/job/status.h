/* status.h - where a process stands among the exchanges, as it says of itself or as rank 0 sees
 * it; and the texts about all of them. */
#ifndef MESHLUA_RUN_JOB_STATUS_H
#define MESHLUA_RUN_JOB_STATUS_H

#include "base/str.h"
#include "run/job/flight_log.h"

typedef enum Stands {
    STANDS_SILENT, /* it was asked and does not answer */
    STANDS_ABSENT, /* it has not started */
    STANDS_GONE,   /* its socket closed without a word */
    STANDS_ENDED,
    STANDS_WAITING,
    STANDS_COMPUTING
} Stands;

enum { STANDING_LATEST = 6 };

/* Plain bytes: it is sent as it is. */
typedef struct Standing {
    int32_t stands; /* Stands */
    int32_t n;
    int64_t now;                       /* ring_now of the process itself */
    RingEntry latest[STANDING_LATEST]; /* n of them, the latest first */
} Standing;

void standing_of(Ring *ring, Standing *out);
double standing_seconds(const Standing *s); /* since when it waits or computes; 0: not known */
/* Do both wait for the same? */
bool standing_same(const Standing *a, const Standing *b);

/* "0, 2, 4", or "0-511, 513" where there are many: the ranks for which `in` is not 0. */
void standing_ranks(Str *s, const uint8_t *in, int32_t world);
/* "rank 0 waits since 300 s in all_reduce over data, train.lua:41 (exchange 812)" */
void standing_print(Str *s, const Standing *x, int32_t rank);
/* Who does not answer or is not there any more; false if there is none. */
bool standing_lost(Str *s, const Standing *all, int32_t world);
/* Who keeps rank `asker` waiting, and where. */
void standing_cause(Str *s, const Standing *all, int32_t world, int32_t asker);
/* A line for each place at which those that answer stand. */
void standing_table(Str *s, const Standing *all, int32_t world);
/* The latest exchanges of one. */
void standing_ring(Str *s, const Standing *x, int32_t rank);

#endif
