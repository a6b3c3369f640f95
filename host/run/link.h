/* link.h - the way to the other processes: the transport found, opened and agreed with. */
#ifndef MESHLUA_LINK_H
#define MESHLUA_LINK_H

#include "run/comm.h"
#include "run/ranks.h"

typedef struct Link {
    Comm comm;     /* version 0: there is none */
    void *library; /* dlopen's */
} Link;

/* Opens what carries data between the processes; E_RANKS where there is nothing, or where it does
 * not see the ranks that the launcher told. One process needs nothing. */
Err link_open(Ctx *cx, const Ranks *r, Link *link) MUST_CHECK;
/* E_RANKS unless all processes pass the same number; `what` names it. */
Err link_agree(Ctx *cx, const Link *link, const char *what, int32_t number) MUST_CHECK;
/* Sends and receives; returns when it is over. */
Err link_exchange(Ctx *cx, const Link *link, const CommPart *send, int32_t nsend,
                  const CommPart *recv, int32_t nrecv) MUST_CHECK;
/* Ends this process's part; with a code other than 0 all processes, at once, with that code. */
void link_close(Link *link, int code);

#endif
