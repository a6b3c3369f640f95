/* wire.h - what an exchange under construction is made of: places in the wire, messages, and which
 * phase its items belong to. */
#ifndef MESHLUA_RUN_BIND_WIRE_H
#define MESHLUA_RUN_BIND_WIRE_H

#include "run/bind/item.h"
#include "run/exec/exchange.h"

/* A tensor in the domain's wire. */
Err wire_take(Exec *e, Exchange *x, const int64_t *dims, int32_t rank, DType dtype,
              ItemOperand *out) MUST_CHECK;
/* All of it, dense, goes to or comes from the peer after the phase's items. */
Err wire_send(Exec *e, Phase *p, int32_t peer, const ItemOperand *v) MUST_CHECK;
Err wire_recv(Exec *e, Phase *p, int32_t peer, const ItemOperand *v) MUST_CHECK;
/* The items added since the last time belong to that phase. */
Err wire_phase(Exec *e, Exchange *x, int phase) MUST_CHECK;

#endif
