/* status.h - where a process stands among the exchanges, as it says of itself or as rank 0 sees
 * it; and the texts about all of them. */
#ifndef MESHLUA_RUN_JOB_STATUS_H
#define MESHLUA_RUN_JOB_STATUS_H

#include "base/str.h"
#include "run/job/flight_log.h"

typedef enum StatusKind {
    STATUS_SILENT, /* it was asked and does not answer */
    STATUS_ABSENT, /* it has not started */
    STATUS_GONE,   /* its socket closed without a word */
    STATUS_ENDED,
    STATUS_WAITING,
    STATUS_COMPUTING
} StatusKind;

enum { STATUS_LATEST = 6 };

/* Plain bytes: it is sent as it is. */
typedef struct RankStatus {
    int32_t kind; /* StatusKind */
    int32_t n;
    int64_t now;                          /* flight_log_now of the process itself */
    FlightLogEntry latest[STATUS_LATEST]; /* n of them, the latest first */
} RankStatus;

void status_of(FlightLog *flight_log, RankStatus *out);
/* Do both wait for the same? */
bool status_same(const RankStatus *a, const RankStatus *b);

/* "0, 2, 4", or "0-511, 513" where there are many: the ranks for which `in` is not 0. */
void status_ranks(Str *s, const uint8_t *in, int32_t world);
/* "rank 0 waits since 300 s in all_reduce over data, train.lua:41 (exchange 812)" */
void status_print(Str *s, const RankStatus *x, int32_t rank);
/* Who does not answer or is not there any more; false if there is none. */
bool status_lost(Str *s, const RankStatus *all, int32_t world);
/* Who keeps rank `asker` waiting, and where. */
void status_cause(Str *s, const RankStatus *all, int32_t world, int32_t asker);
/* A line for each place at which those that answer stand. */
void status_table(Str *s, const RankStatus *all, int32_t world);
/* The latest exchanges of one. */
void status_flight_log(Str *s, const RankStatus *x, int32_t rank);

#endif
