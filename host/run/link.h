/* link.h - the way to the other processes: the transport found, opened and agreed with. */
#ifndef MESHLUA_LINK_H
#define MESHLUA_LINK_H

#include "run/channel.h"
#include "run/comm.h"

typedef struct Link {
    Comm comm;        /* version 0: there is none */
    void *library;    /* dlopen's */
    Channel *channel; /* NULL: there is none */
} Link;

/* What a program is asked for about the others. */
typedef struct JoinFlags {
    const char *timeout; /* of --timeout; NULL: as the environment says */
    /* What runs: a hash of it, asked for where there are several processes, and a name for people.
     */
    uint64_t (*hash)(const void *program);
    const void *program;
    const char *name;
} JoinFlags;

typedef struct Transfer { /* one on its way */
    const Crossing *what;
    void *request; /* NULL: it is over */
} Transfer;

/* Why there is nothing that could carry data between processes; NULL: there is something. */
const char *link_missing(void);
/* Joins the other processes, with a channel and with what carries data; E_RANKS where there is
 * nothing, or where it does not see the ranks that the launcher told. One process needs nothing. */
Err link_open(Ctx *cx, const Ranks *r, const JoinFlags *join, Link *link) MUST_CHECK;
/* Begins to send and receive; `what` lives until link_end has returned. */
Err link_begin(Ctx *cx, Link *link, const Crossing *what, const CommPart *send, int32_t nsend,
               const CommPart *recv, int32_t nrecv, Transfer *out) MUST_CHECK;
/* Helps it on, without waiting. */
void link_help(Link *link, Transfer *t);
/* Returns when it is over. */
Err link_end(Ctx *cx, Link *link, Transfer *t) MUST_CHECK;
/* Ends this process's part; all processes call it. */
void link_close(Ctx *cx, Link *link);
/* Ends all processes; returns where this one is alone. See channel_fail. */
void link_fail(Link *link, int code, const char *text);

#endif
