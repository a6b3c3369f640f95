/* transport.h - the way to the other processes: the transport found, opened and agreed with, and what is
 * on its way. Memory of the host goes by one transport, that of GPUs by another, which is there
 * where the processes have GPUs: see gpu_transport.h. */
#ifndef MESHLUA_RUN_COMM_TRANSPORT_H
#define MESHLUA_RUN_COMM_TRANSPORT_H

#include "run/job/channel.h"
#include "run/comm/comm.h"

enum { FLIGHTS = 32 };

typedef struct Flight { /* an exchange that runs on its own: `wait` has returned, it is not over */
    void *request;
    uint64_t number; /* in the ring */
    char op[RING_OP];
} Flight;

typedef struct Link {
    Comm comm;        /* of the host's memory. version 0: there is none */
    Comm device;      /* of GPUs' memory; version 0: there is none */
    void *library;    /* dlopen's */
    Channel *channel; /* NULL: there is none */
    Flight flight[FLIGHTS];
    int32_t flights; /* those of `device`, the oldest first */
} Link;

/* What a program is asked for about the others. */
typedef struct JoinFlags {
    const char *timeout; /* of --timeout; NULL: as the environment says */
    const char *secret;  /* of --secret, or NULL */
    /* What runs: a hash of it, asked for where there are several processes, and a name for people.
     */
    uint64_t (*hash)(const void *program);
    const void *program;
    const char *name;
} JoinFlags;

typedef struct Transfer { /* one on its way */
    const Crossing *what;
    const Comm *comm;
    uint64_t number; /* in the ring */
    void *request;   /* NULL: it has ended */
} Transfer;

/* Why there is nothing that could carry data between processes; NULL: there is something. */
const char *link_missing(void);
/* Joins the other processes, with a channel and with what carries data; E_RANKS where there is
 * nothing, or where it does not see the ranks that the launcher told. One process needs nothing. */
Err link_open(Ctx *cx, const Ranks *r, const JoinFlags *join, Link *link) MUST_CHECK;
/* Begins to send and receive memory of the host; `what` lives until link_end has returned. */
Err link_begin(Ctx *cx, Link *link, const Crossing *what, const CommPart *send, int32_t nsend,
               const CommPart *recv, int32_t nrecv, Transfer *out) MUST_CHECK;
/* The same with memory of the GPU, after what is in its queue. */
Err link_begin_device(Ctx *cx, Link *link, const Crossing *what, const CommPart *send,
                      int32_t nsend, const CommPart *recv, int32_t nrecv, Transfer *out) MUST_CHECK;
/* Helps it on, without waiting. */
void link_help(Link *link, Transfer *t);
/* Returns when it is over, or, between GPUs, when what is put into the queue from here on runs
 * after it. */
Err link_end(Ctx *cx, Link *link, Transfer *t) MUST_CHECK;
/* Returns when all of them are over between GPUs, too. The host does so before it waits for a GPU's
 * queue: what is left in that does not wait for other processes, and who keeps this one waiting
 * here can be told. */
Err link_settle(Ctx *cx, Link *link) MUST_CHECK;
/* Every process gets a record of each, by rank, of the same size; all call it. */
Err link_gather(Ctx *cx, Link *link, const char *op, const void *mine, void *all,
                size_t each) MUST_CHECK;
/* Ends this process's part; all processes call it. */
void link_close(Ctx *cx, Link *link);
/* Ends all processes; returns where this one is alone. See channel_fail. */
void link_fail(Link *link, int code, const char *text);

#endif
