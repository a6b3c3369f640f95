/* channel_inside.h - what the parts of the channel share (channel_inside.c), which are channel.c
 * (what the main thread calls, and the thread), channel_hub.c (rank 0's side), channel_guests.c
 * (those that it does not know yet) and channel_member.c (the side of the others).
 *
 * One lock guards all of it. The thread holds it except while it waits in poll. */
#ifndef MESHLUA_RUN_JOB_CHANNEL_INSIDE_H
#define MESHLUA_RUN_JOB_CHANNEL_INSIDE_H

#include "run/job/channel.h"
#include "run/job/conn.h"
#include "run/job/status.h"

#include <poll.h>

#define SECOND INT64_C(1000000000)

enum {
    NOTICE = 10,        /* seconds of waiting before it is said */
    GRACE = 3,          /* seconds that a launcher has to end what a killed process leaves */
    HELLO_NAME = 128,   /* bytes of a script's or host's name */
    MAX_TEXT = 64 << 20 /* bytes */
};

/* Where in `poll` the peers begin: behind the main thread and who knocks;
 * behind them the guests. */
enum { POLL_WAKE, POLL_LISTENER, POLL_PEERS };

enum { CODE_SCRIPT = 1, CODE_ENVIRONMENT = 3, CODE_TIMEOUT = 5, CODE_KILLED = 137 };

typedef enum FrameType {
    FRAME_HELLO = 1, /* Hello, and the proof that whoever says it is of this job */
    FRAME_WELCOME,   /* all are there */
    FRAME_END,       /* int32_t: end yourself with this code */
    FRAME_FAIL,      /* int32_t: with this code, and the text behind it, or none */
    FRAME_ASK,       /* int32_t RoundWhy: where do all stand? */
    FRAME_WHERE,     /* uint32_t: the round's number */
    FRAME_HERE,      /* uint32_t, and a RankStatus */
    FRAME_TEXT,      /* uint32_t: its number, and the text: of gather or share */
    FRAME_BYE,
    FRAME_CHALLENGE, /* a nonce: the first word of rank 0, to whoever comes */
    FRAME_PROOF      /* that rank 0 is of this job: what it says from here on counts */
} FrameType;

/* Up to the version it is the same in all versions, so that each knows another by it. */
typedef struct Hello {
    char magic[8];
    uint64_t token;
    int32_t rank, world;
    uint8_t nonce[SECRET_NONCE]; /* of this connection */
    char version[CHANNEL_VERSION];
    char host[HELLO_NAME], name[HELLO_NAME];
    uint64_t script;
    int32_t pid;
} Hello;

enum { HELLO_FEWEST = offsetof(Hello, host), HELLO_MOST = 4096 }; /* bytes */

typedef struct Peer {
    Conn conn;
    bool here; /* it said who it is */
    bool bye, gone;
    bool answered; /* in this round */
    Hello hello;
    char from[RENDEZVOUS_FROM]; /* see RendezvousGuest */
    Str texts;                  /* that came: number, length and bytes of each */
} Peer;

typedef struct Guest { /* a connection that has not proved to be of this job */
    Conn conn;
    int64_t since;
    RendezvousGuest who;
    bool known; /* it has proved it, and is about to take its place */
    uint8_t nonce[SECRET_NONCE];
} Guest;

/* What somebody is who was turned away; the later tell more of what may be wrong. */
typedef enum Stranger { STRANGER_OTHER, STRANGER_USER, STRANGER_JOB, STRANGER_SECRET } Stranger;

typedef struct Strangers {
    int32_t n, rank; /* rank: what it said */
    Stranger what;
    char from[RENDEZVOUS_FROM];
} Strangers;

/* Why rank 0 asks where all stand; the greater goes before. */
typedef enum RoundWhy { ROUND_NONE, ROUND_NOTICE, ROUND_TIMEOUT, ROUND_GONE } RoundWhy;

typedef struct Round {
    RoundWhy why; /* of the one under way */
    uint32_t number;
    int32_t asker;
    int64_t until;
} Round;

struct Channel {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Alloc alloc; /* for what is here: a Ctx is the main thread's */
    FlightLog flight_log;
    int32_t rank, world;
    int64_t timeout; /* ns */
    int64_t notice;  /* ns of waiting before it is said */
    Rendezvous meet;
    Secret secret;
    Hello mine;
    int wake; /* an eventfd: the main thread has something to send, or ends the thread */
    int64_t opened;
    bool joined, closing;
    uint32_t gathers, shares;
    Peer *peer; /* of rank 0: by rank; of another: rank 0 */
    int32_t npeer;
    struct pollfd *poll;
    /* what the main thread's wait has led to */
    uint64_t noticed, asked; /* numbers in the flight_log */
    int64_t asked_at;
    /* rank 0 */
    int listener; /* -1: all are there */
    Guest *guest;
    int32_t nguest;
    Strangers strangers;
    Round round;
    RankStatus *status; /* by rank */
    int64_t noticed_at, gone_at, failed_at;
    int32_t failed_code; /* of the other process that failed first, and what it said */
    Str failed_text;
    bool missing_said;
    /* the others */
    bool connected, answered, met; /* there is a socket, its challenge is answered, it is rank 0 */
    const char *doubt;             /* what was wrong with who waits there, or NULL */
    uint8_t nonce[SECRET_NONCE];   /* rank 0's */
    bool second;                   /* the place of rank 0 was taken: this asks who is there */
    int attempt;
    int64_t attempt_at, retry_at, retry_delay;
    int64_t unheard; /* since when a question waits for rank 0's answer; 0: none does */
    int64_t lost_at; /* rank 0 went without a word; 0: it did not */
    int32_t fail_code;
    const char *fail_text; /* the main thread's: to be sent once there is a connection */
};

static inline bool channel_is_hub(const Channel *c) {
    return c->rank == 0 && !c->second;
}

/* ---- channel_inside.c ---- */
/* What the wait of the main thread calls for now. */
RoundWhy channel_watch(Channel *c, int64_t now);
/* Adds a text that came. */
void channel_text(Channel *c, Peer *p, const ConnFrame *f);
/* The text of this number, and its length; older ones are dropped. NULL: it has not come. */
const char *channel_find_text(Str *texts, uint32_t number, size_t *n);
void channel_say(const char *text);
/* "meshlua: rank 3: train.lua:4: ..." and a line's end. */
void channel_print_failure(Str *s, int32_t rank, const char *text, size_t n);
/* Ends this process. */
_Noreturn void channel_exit(int code);
/* From here on a launcher's SIGTERM does not cut off what is to be said. */
void channel_outlive_launcher(void);
/* Rank 0: says the text, if there is one, and ends all processes; with a sentence of its own, which
 * begins here. */
_Noreturn void channel_end(Channel *c, int code, const char *text);
void channel_begin_text(Channel *c, Str *s, const char *text);
_Noreturn void channel_end_with(Channel *c, int code, Str *s);

/* ---- channel_hub.c ---- */
void channel_hub_step(Channel *c, int64_t now);
/* As channel_end, unless another process failed first and otherwise. */
_Noreturn void channel_hub_fail(Channel *c, int code, const char *text);
/* "ranks 1, 2 did not start" */
void channel_hub_missing(const Channel *c, Str *s);

/* ---- channel_guests.c ---- */
/* At a time. */
int32_t channel_guests_most(int32_t world);
/* Hears those that are there and lets others in. */
void channel_guests_step(Channel *c, int64_t now);
void channel_guests_close(Channel *c);
/* "; turned away: 10.0.0.7, ..." where somebody was. */
void channel_guests_print(const Channel *c, Str *s);

/* ---- channel_member.c ---- */
void channel_member_step(Channel *c, int64_t now);
void channel_member_fail(Channel *c);

#endif
