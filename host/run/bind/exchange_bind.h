/* exchange_bind.h - collectives between domains (exchange.h) become phases of items and messages.
 */
#ifndef MESHLUA_RUN_BIND_EXCHANGE_BIND_H
#define MESHLUA_RUN_BIND_EXCHANGE_BIND_H

#include "run/bind/bind.h"
#include "run/exec/exchange.h"

/* Binds the collective at that step; leaves its exchange NULL where no group has members in several
 * domains. */
Err exchange_bind(Exec *e, int32_t step) MUST_CHECK;
/* The stages of its items. */
Err exchange_schedule(Exec *e, Exchange *x) MUST_CHECK;
/* ---- while one is bound: exchange_move.c and exchange_reduce.c ---- */

typedef struct Mine { /* a device of the domain in a collective */
    int32_t group;    /* the index of its first member */
    int32_t number;   /* of the device in it */
} Mine;
typedef VEC(Mine) MineList; /* sorted */

Err exchange_move(Exec *e, Exchange *x, const Group *g, const MineList *mine) MUST_CHECK;
Err exchange_reduce(Exec *e, Exchange *x, const Group *g, const MineList *mine) MUST_CHECK;

int64_t exchange_bytes(const KTensor *t);
/* Are its elements in one piece, in order? */
bool exchange_is_dense(const View *v);
/* A tensor in the domain's wire. */
Err exchange_wire(Exec *e, Exchange *x, const int64_t *dims, int32_t rank, DType dtype,
                  View *out) MUST_CHECK;
/* All of it, dense, goes to or comes from the peer after the phase's items. */
Err exchange_send(Exec *e, Phase *p, int32_t peer, const View *v) MUST_CHECK;
Err exchange_recv(Exec *e, Phase *p, int32_t peer, const View *v) MUST_CHECK;
/* The items added since the last time belong to that phase. */
Err exchange_items(Exec *e, Exchange *x, int phase) MUST_CHECK;

#endif
