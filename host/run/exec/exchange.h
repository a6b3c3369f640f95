/* exchange.h - collectives whose members are in several domains: in several processes, or on
 * several GPUs of one.
 *
 * An exchange is up to three phases: items, and messages that begin when these are done; the next
 * phase begins when its messages are over. What is not in one piece, or is no operand or result of
 * the step, lies in the wire, a piece of memory that exchanges share; those that are on their way
 * at the same time have a part of it each.
 *
 * On GPUs the items are launches and each GPU has a wire in its memory; the messages go by
 * themselves, after the items before them, and the items after them wait for them in the GPU's
 * queue.
 *
 * For every domain the same groups, parts and messages are counted out in the same order, of its
 * own devices and those that share a group with them: both sides of a message know of it without
 * asking. A process does so for each of its domains; all their items and messages of a phase begin
 * together. */
#ifndef MESHLUA_RUN_EXEC_EXCHANGE_H
#define MESHLUA_RUN_EXEC_EXCHANGE_H

#include "run/exec/exec.h"

typedef struct ExchangePart {
    int32_t own, peer; /* domains, which are the ranks of messages */
    OperandRef at;
    size_t bytes;
} ExchangePart;

typedef struct Phase {
    int32_t first, n;       /* items */
    int32_t stage;          /* of these, for the pool; -1: the caller alone */
    VEC(ExchangePart) send; /* then these messages */
    VEC(ExchangePart) recv;
    CommPart *part; /* room for both */
} Phase;

enum { PHASES = 3 };

typedef struct Exchange {
    struct Exchange *before, *next; /* in the lists of Exec: of all, of those that fly */
    int32_t step, over;             /* where it begins, and where it must be over: steps */
    int32_t from, to; /* it may be on its way between these; the loop, if over < step */
    Phase phase[PHASES];
    int32_t phases;        /* the same on all domains, whether or not they have a part in each */
    size_t wire, wire_end; /* its part of the wires */
    int32_t k;             /* while it is bound: for which of this process's domains, */
    size_t wire_at;        /* how far it has come in that one's wire, */
    VEC(uint8_t) phase_of; /* and by item its phase */
    int32_t at;            /* during a call: the next phase, */
    Transfer transfer;     /* and the messages of the one before */
    ExchangeInfo what;
} Exchange;

#endif
