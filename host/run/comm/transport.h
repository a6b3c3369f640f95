/* transport.h - the way to the other processes: the transport found, opened and agreed with, and
 * what is on its way. Memory of the host goes by one transport, that of GPUs by another, which is
 * there where the processes have GPUs: see gpu_transport.h. */
#ifndef MESHLUA_RUN_COMM_TRANSPORT_H
#define MESHLUA_RUN_COMM_TRANSPORT_H

#include "run/job/channel.h"
#include "run/comm/comm.h"

enum { FLIGHTS = 32 };

typedef struct Flight { /* an exchange that runs on its own: `wait` has returned, it is not over */
    void *request;
    uint64_t number; /* in the flight_log */
    char op[FLIGHT_LOG_OP];
} Flight;

typedef struct Transport {
    Comm comm;        /* of the host's memory. version 0: there is none */
    Comm device;      /* of GPUs' memory; version 0: there is none */
    void *library;    /* dlopen's */
    Channel *channel; /* NULL: there is none */
    Flight flight[FLIGHTS];
    int32_t flights; /* those of `device`, the oldest first */
} Transport;

/* What a program is asked for about the others. */
typedef struct JoinFlags {
    const char *timeout; /* of --timeout; NULL: as the environment says */
    const char *secret;  /* of --secret, or NULL */
    /* What runs: a hash of it, asked for where there are several processes,
     * and a name for people. */
    uint64_t (*hash)(const void *program);
    const void *program;
    const char *name;
} JoinFlags;

typedef struct Transfer { /* one on its way */
    const ExchangeInfo *what;
    const Comm *comm;
    uint64_t number; /* in the flight_log */
    void *request;   /* NULL: it has ended */
} Transfer;

/* Why there is nothing that could carry data between processes; NULL: there is something. */
const char *transport_missing(void);
/* Joins the other processes, with a channel and with what carries data; E_RANKS where there is
 * nothing, or where it does not see the ranks that the launcher told. One process needs nothing. */
Err transport_open(Ctx *cx, const Ranks *r, const JoinFlags *join, Transport *transport) MUST_CHECK;
/* Begins to send and receive memory of the host; `what` lives until transport_end has returned. */
Err transport_begin(Ctx *cx, Transport *transport, const ExchangeInfo *what, const CommPart *send,
                    int32_t nsend, const CommPart *recv, int32_t nrecv, Transfer *out) MUST_CHECK;
/* The same with memory of the GPU, after what is in its queue. */
Err transport_begin_device(Ctx *cx, Transport *transport, const ExchangeInfo *what,
                           const CommPart *send, int32_t nsend, const CommPart *recv, int32_t nrecv,
                           Transfer *out) MUST_CHECK;
/* Helps it on, without waiting. */
void transport_help(Transport *transport, Transfer *t);
/* Returns when it is over, or, between GPUs, when what is put into the queue from here on runs
 * after it. */
Err transport_end(Ctx *cx, Transport *transport, Transfer *t) MUST_CHECK;
/* Returns when all of them are over between GPUs, too. The host does so before it waits for a GPU's
 * queue: what is left in that does not wait for other processes, and who keeps this one waiting
 * here can be told. */
Err transport_settle(Ctx *cx, Transport *transport) MUST_CHECK;
/* Every process gets a record of each, by rank, of the same size; all call it. */
Err transport_gather(Ctx *cx, Transport *transport, const char *op, const void *mine, void *all,
                     size_t each) MUST_CHECK;
/* Ends this process's part; all processes call it. */
void transport_close(Ctx *cx, Transport *transport);
/* Ends all processes; returns where this one is alone. See channel_fail. */
void transport_fail(Transport *transport, int code, const char *text);

#endif
