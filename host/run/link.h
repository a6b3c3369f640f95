/* link.h - the way to the other processes: the transport found, opened and agreed with. */
#ifndef MESHLUA_LINK_H
#define MESHLUA_LINK_H

#include "run/comm.h"
#include "run/ranks.h"
#include "run/ring.h"

typedef struct Link {
    Comm comm;     /* version 0: there is none */
    void *library; /* dlopen's */
} Link;

typedef struct Transfer { /* one on its way */
    const Crossing *what;
    void *request; /* NULL: it is over */
} Transfer;

/* Why there is nothing that could carry data between processes; NULL: there is something. */
const char *link_missing(void);
/* Opens what carries data between the processes; E_RANKS where there is nothing, or where it does
 * not see the ranks that the launcher told. One process needs nothing. */
Err link_open(Ctx *cx, const Ranks *r, Link *link) MUST_CHECK;
/* Begins to send and receive; `what` lives until link_end has returned. */
Err link_begin(Ctx *cx, Link *link, const Crossing *what, const CommPart *send, int32_t nsend,
               const CommPart *recv, int32_t nrecv, Transfer *out) MUST_CHECK;
/* Returns when it is over. */
Err link_end(Ctx *cx, Link *link, Transfer *t) MUST_CHECK;
/* Ends this process's part; with a code other than 0 all processes, at once, with that code. */
void link_close(Link *link, int code);

#endif
