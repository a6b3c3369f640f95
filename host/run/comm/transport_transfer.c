/* transport_transfer.c - what is on its way to other processes and from them: see transport.h. */
#include "run/comm/transport.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Who waits for a GPU looks without a pause first: most exchanges take less than that. */
enum { LOOK_NS = 2000000, PAUSE_US = 50 };
/* Seconds after which the channel has ended this process if another is gone. */
enum { OTHERS_END = 4 };

static Err failed(Ctx *cx, const Comm *c, const char *op) {
    return err_set(cx, E_RANKS, "%s with other processes: %s", op, c->error(c->self));
}

/* ---- those that run on their own ---- */

/* Asks the oldest: 1: it is over, 0: not yet. */
static Err look(Ctx *cx, Transport *transport, int *over) {
    const Comm *c = &transport->device;
    const Flight *f = &transport->flight[0];
    *over = c->over(c->self, f->request);
    if (*over == 0) return E_OK;
    if (transport->channel) flight_log_over(channel_flight_log(transport->channel), f->number);
    if (*over < 0) {
        transport->flights = 0; /* what failed there carries nothing any more */
        /* Who is gone is said by the channel; that its messages failed is the consequence. */
        if (transport->channel) sleep(OTHERS_END);
        return failed(cx, c, f->op);
    }
    memmove(transport->flight, transport->flight + 1, sizeof *f * (size_t)--transport->flights);
    return E_OK;
}

/* Waits for the oldest. */
static Err land(Ctx *cx, Transport *transport) {
    int over = 0;
    int64_t since = flight_log_now();
    TRY(look(cx, transport, &over));
    if (over) return E_OK;
    if (transport->channel)
        flight_log_wait(channel_flight_log(transport->channel), transport->flight[0].number);
    while (!over) {
        if (flight_log_now() - since < LOOK_NS)
            sched_yield();
        else
            usleep(PAUSE_US);
        TRY(look(cx, transport, &over));
    }
    return E_OK;
}

Err transport_settle(Ctx *cx, Transport *transport) {
    while (transport->flights) TRY(land(cx, transport));
    return E_OK;
}

/* Room for one more, in the list and in the flight_log. */
static Err make_room(Ctx *cx, Transport *transport, uint64_t number) {
    int over = 1;
    while (transport->flights && over) TRY(look(cx, transport, &over));
    while (transport->flights == FLIGHTS ||
           (transport->flights && number - transport->flight[0].number >= FLIGHT_LOG_SIZE / 2))
        TRY(land(cx, transport));
    return E_OK;
}

static Err fly(Ctx *cx, Transport *transport, const Transfer *t, void *request) {
    TRY(make_room(cx, transport, t->number));
    Flight *f = &transport->flight[transport->flights++];
    *f = (Flight){.request = request, .number = t->number};
    snprintf(f->op, sizeof f->op, "%s", t->what->op);
    return E_OK;
}

/* ---- all ---- */

static Err begin(Ctx *cx, Transport *transport, const Comm *c, const ExchangeInfo *what,
                 const CommPart *send, int32_t nsend, const CommPart *recv, int32_t nrecv,
                 Transfer *out) {
    FlightLog *flight_log = transport->channel ? channel_flight_log(transport->channel) : NULL;
    *out = (Transfer){.what = what, .comm = c};
    if (flight_log) out->number = flight_log_begin(flight_log, what);
    /* The first message to a process may wait for it: the way is made then. */
    if (flight_log) flight_log_wait(flight_log, out->number);
    out->request = c->start(c->self, send, nsend, recv, nrecv);
    if (flight_log) flight_log_rest(flight_log);
    return out->request ? E_OK : failed(cx, c, what->op);
}

Err transport_begin(Ctx *cx, Transport *transport, const ExchangeInfo *what, const CommPart *send,
                    int32_t nsend, const CommPart *recv, int32_t nrecv, Transfer *out) {
    return begin(cx, transport, &transport->comm, what, send, nsend, recv, nrecv, out);
}

Err transport_begin_device(Ctx *cx, Transport *transport, const ExchangeInfo *what,
                           const CommPart *send, int32_t nsend, const CommPart *recv, int32_t nrecv,
                           Transfer *out) {
    return begin(cx, transport, &transport->device, what, send, nsend, recv, nrecv, out);
}

void transport_help(Transport *transport, Transfer *t) {
    (void)transport;
    if (t->request) t->comm->help(t->comm->self, t->request);
}

Err transport_end(Ctx *cx, Transport *transport, Transfer *t) {
    const Comm *c = t->comm;
    FlightLog *flight_log = transport->channel ? channel_flight_log(transport->channel) : NULL;
    void *request = t->request;
    if (!request) return E_OK;
    t->request = NULL;
    if (flight_log && !c->over) flight_log_wait(flight_log, t->number);
    int done = c->wait(c->self, request);
    if (done && c->over) return fly(cx, transport, t, request);
    if (flight_log) flight_log_over(flight_log, t->number);
    return done ? E_OK : failed(cx, c, t->what->op);
}

/* ---- of all, to all ---- */

Err transport_gather(Ctx *cx, Transport *transport, const char *op, const void *mine, void *all,
                     size_t each) {
    int32_t world = transport->comm.world, rank = transport->comm.rank, n = 0;
    size_t room = sizeof(CommPart) * (size_t)world;
    CommPart *send = alloc_new(&cx->alloc, room), *recv = alloc_new(&cx->alloc, room);
    ExchangeInfo what = {.op = op, .where = "", .axes = "", .bytes = each * (size_t)(world - 1)};
    Transfer t = {.request = NULL};
    char *at = all;
    Err err = send && recv ? E_OK : err_nomem(cx, "meeting other processes");
    memcpy(at + each * (size_t)rank, mine, each);
    for (int32_t i = 0; !err && i < world; i++) {
        if (i == rank) continue;
        send[n] = (CommPart){i, at + each * (size_t)rank, each, 0};
        recv[n++] = (CommPart){i, at + each * (size_t)i, each, 0};
    }
    if (!err) err = transport_begin(cx, transport, &what, send, n, recv, n, &t);
    if (!err) err = transport_end(cx, transport, &t);
    alloc_free(&cx->alloc, send, room);
    alloc_free(&cx->alloc, recv, room);
    return err;
}
