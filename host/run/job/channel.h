/* channel.h - what the processes of a job say to each other beside their data: who is there, what a
 * failed one has to say, where each stands when one waits for long.
 *
 * In each process a thread holds sockets, in a star at rank 0. It never touches a Lua state, a plan
 * or a tensor, and works on while the main thread computes or is stuck: so it is what ends a
 * process when the job cannot go on. */
#ifndef MESHLUA_RUN_JOB_CHANNEL_H
#define MESHLUA_RUN_JOB_CHANNEL_H

#include "run/job/rendezvous.h"
#include "run/job/flight_log.h"

typedef struct Channel Channel;

enum { CHANNEL_TIMEOUT = 300, CHANNEL_VERSION = 64 }; /* seconds; bytes of the text */

typedef struct ChannelOptions {
    int32_t timeout;     /* seconds that a process waits for others before all are ended */
    uint64_t script;     /* a hash of what runs: all must have the same, */
    const char *name;    /* by its name, for people, */
    const char *version; /* and the same meshlua */
    /* Where they meet. Rank 0 may leave it empty: it then waits where it can be reached from other
     * hosts, too, and channel_meet tells where. */
    Rendezvous meet;
    Secret secret; /* the same in all; its library is open */
} ChannelOptions;

/* Starts the thread, which joins the star: rank 0 waits for the others, the others look for it, and
 * each proves to the other that it knows the secret. A rank that does not come, comes twice, or has
 * another script or version is said by rank 0 and ends all, whatever the main thread does
 * meanwhile. */
Err channel_open(Ctx *cx, const Ranks *r, const ChannelOptions *o, Channel **out) MUST_CHECK;
const Rendezvous *channel_meet(const Channel *c);
/* Waits until all have joined; E_RANKS, with who is missing, if they have not after `seconds`. */
Err channel_join(Ctx *cx, Channel *c, int seconds) MUST_CHECK;
/* What this process waits for in between. */
FlightLog *channel_flight_log(Channel *c);

/* This process cannot go on: rank 0 prints `text` (with "meshlua: rank 3: " in front unless it is
 * its own; NULL: it was printed already) and all processes end with `code`, this one without
 * return. */
_Noreturn void channel_fail(Channel *c, int code, const char *text);
/* Rank 0 gets a text of every process: `texts` has room for one of each, its own first, NULL where
 * none came within `seconds`. The call of the others returns at once and leaves `texts` alone. */
Err channel_gather(Ctx *cx, Channel *c, const char *text, int seconds, char **texts) MUST_CHECK;
void channel_free_texts(Ctx *cx, const Channel *c, char **texts);
/* Adds rank 0's text to `out` in every process; E_RANKS if it does not come within `seconds`. */
Err channel_share(Ctx *cx, Channel *c, const char *text, int seconds, Str *out) MUST_CHECK;

/* An orderly end: the others' ends are no failures from here on. NULL is one, too. */
void channel_close(Ctx *cx, Channel *c);

#endif
