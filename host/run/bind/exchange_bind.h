/* exchange_bind.h - collectives between domains (exchange.h) become phases of
 * items and messages. */
#ifndef MESHLUA_RUN_BIND_EXCHANGE_BIND_H
#define MESHLUA_RUN_BIND_EXCHANGE_BIND_H

#include "run/bind/group.h"
#include "run/bind/wire.h"

/* Binds the collective at that step; leaves its exchange NULL where no group has members in several
 * domains. */
Err exchange_bind(Exec *e, int32_t step) MUST_CHECK;
/* The stages of its items. */
Err exchange_schedule(Exec *e, Exchange *x) MUST_CHECK;
/* ---- while one is bound: exchange_move.c and exchange_reduce.c ---- */

typedef struct GroupDevice { /* a device of the domain in a collective */
    int32_t group;           /* the index of its first member */
    int32_t number;          /* of the device in it */
} GroupDevice;
typedef VEC(GroupDevice) GroupDeviceList; /* sorted */

Err exchange_move(Exec *e, Exchange *x, const DeviceGroup *g,
                  const GroupDeviceList *mine) MUST_CHECK;
Err exchange_reduce(Exec *e, Exchange *x, const DeviceGroup *g,
                    const GroupDeviceList *mine) MUST_CHECK;

#endif
