/* exchange.h - collectives whose members are in several processes.
 *
 * They are bound as those within a process are (comm_local.c), so that every sum is made in the
 * same order wherever its parts lie. An operand that is in another process lies in the wire, a
 * piece of memory into which it is received first. What others need from here follows from binding
 * the step as they do. */
#ifndef MESHLUA_EXCHANGE_H
#define MESHLUA_EXCHANGE_H

#include "run/bind.h"

/* An operand that a process needs from another: a part of a slot of a buffer. */
typedef struct Need {
    int32_t device, buffer; /* index in the mesh; of the plan */
    OperandRef ref;         /* the offset in the slot */
    KTensor tensor;
    int64_t wire; /* where it lies there */
} Need;

typedef struct ExchangePart {
    int32_t peer;
    OperandRef at;
    size_t bytes;
} ExchangePart;

/* One collective: its first items pack what is not in one piece, then the messages, then the other
 * items. */
typedef struct Exchange {
    int32_t npack;
    int32_t stage[2]; /* the items before and after, as stages for the pool; -1: the caller alone */
    VEC(ExchangePart) send;
    VEC(ExchangePart) recv;
    CommPart *part; /* room for both */
    VEC(Need) need; /* while it is bound: of the process it is bound as */
    size_t wire;    /* bytes */
    Crossing what;
    bool failed; /* out of memory */
} Exchange;

/* Binds the collective; leaves b->exchange NULL where nothing goes to or comes from elsewhere. */
Err exchange_bind(Exec *e, const PlanStep *s, BoundStep *b) MUST_CHECK;
/* Operand k of an item lies in another process: it is noted, and found in the wire. */
void exchange_need(Exec *e, Item *item, int k);
/* The stages of its items. */
Err exchange_schedule(Exec *e, int32_t step) MUST_CHECK;
/* Sends and receives. */
Err exchange_run(Exec *e, Exchange *x) MUST_CHECK;

#endif
