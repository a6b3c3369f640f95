/* record.h - what runs when, on which thread, for which device, as a profile has it.
 *
 * A thread writes what it ran into a ring and into totals that are its own: no lock, no allocation,
 * two readings of the clock for each piece. The ring keeps the latest pieces, which become the file
 * that Perfetto and chrome://tracing open; the totals count all of them. Where nothing is recorded,
 * Runtime.profile is NULL, and a piece costs the test of that. */
#ifndef MESHLUA_RUN_EXEC_RECORD_H
#define MESHLUA_RUN_EXEC_RECORD_H

#include "run/exec/exec.h"

#include <stdio.h>
#include <time.h>

/* What the main thread does around the pieces. */
typedef enum ProfileKind {
    PROFILE_CALL,  /* of a jitted function; labelled by where it was written */
    PROFILE_TRACE, /* the same */
    PROFILE_PLAN,
    PROFILE_BIND,
    PROFILE_WAIT, /* for other processes; labelled by the collective's line */
    PROFILE_RUN   /* of a plan */
} ProfileKind;

typedef struct ProfileRecord {
    int64_t start, end; /* nanoseconds of profile_clock */
    const void *of;     /* ProfilePlan of a piece and a run; else a label, or NULL */
    int32_t item;       /* of a piece; else a ProfileKind */
    float share;        /* of the item's work */
} ProfileRecord;

enum { PROFILE_RECORDS = 1 << 16 }; /* that a ring keeps */

typedef struct ProfileRing {
    ProfileRecord *at; /* PROFILE_RECORDS of them; the n-th is at n % PROFILE_RECORDS */
    int64_t n, busy;   /* busy: nanoseconds in pieces */
    char apart[ALLOC_ALIGN - 3 * sizeof(int64_t)]; /* two threads' rings share no cache line */
} ProfileRing;

typedef struct ProfileTotal {
    int64_t time; /* nanoseconds */
    double share; /* sum over the pieces */
} ProfileTotal;

/* The devices that an item belongs to: those that hold what it writes. */
typedef struct ProfileItem {
    int32_t slot;
    uint8_t vary;
} ProfileItem;

typedef struct ProfilePlan {
    Exec *e; /* retained */
    ProfileItem *item;
    ProfileTotal **total; /* by thread, by item */
} ProfilePlan;

/* On a GPU a piece is what lies between two places in its queue: these become times when the run is
 * over, or there are many. */
enum { PROFILE_LAUNCHES = 512 };
typedef struct ProfileLaunch {
    const Item *item;
    int64_t stamp; /* Device.stamp in front of it */
} ProfileLaunch;

typedef struct Profile {
    Ctx *cx;
    char *path;
    FILE *file;
    int64_t start;
    int32_t threads;         /* 0: nothing has run yet */
    ProfileRing host, *ring; /* ring: by thread, or by GPU */
    VEC(ProfilePlan *) plan;
    Map plans;        /* by Exec */
    ProfilePlan *now; /* the one that runs */
    int64_t now_start;
    ProfileLaunch launch[PROFILE_LAUNCHES + 1]; /* the last one is never used */
    int32_t launches;
    int64_t place[MAX_DOMAINS], place_time[MAX_DOMAINS]; /* by GPU: a stamp, and when it was:
                                                            profile_clock */
    Arena arena;
} Profile;

static inline int64_t profile_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
/* When what is about to be done began; 0: nothing is recorded. */
static inline int64_t record_now(const Profile *p) {
    return p ? profile_clock() : 0;
}

/* Room for records; false when out of memory. */
bool record_init_ring(Profile *p, ProfileRing *ring);
/* Around a run of the plan, by the main thread; nothing for NULL. */
Err record_enter(Profile *p, Exec *e) MUST_CHECK;
void record_leave(Profile *p);
/* A piece of the plan that runs: a share of the item, begun at `start`. */
void record_piece(Profile *p, int thread, const Item *item, int64_t lo, int64_t hi, int64_t start);
/* The same on a GPU, before the item is launched. */
void record_launch(Profile *p, const Item *item);
/* What the main thread has done since `start` (0: not recorded). label: interned, or NULL. */
void record_note(Profile *p, ProfileKind kind, const char *label, int64_t start);

#endif
