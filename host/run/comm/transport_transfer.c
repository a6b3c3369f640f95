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
static Err look(Ctx *cx, Link *link, int *over) {
    const Comm *c = &link->device;
    const Flight *f = &link->flight[0];
    *over = c->over(c->self, f->request);
    if (*over == 0) return E_OK;
    if (link->channel) ring_over(channel_ring(link->channel), f->number);
    if (*over < 0) {
        link->flights = 0; /* what failed there carries nothing any more */
        /* Who is gone is said by the channel; that its messages failed is the consequence. */
        if (link->channel) sleep(OTHERS_END);
        return failed(cx, c, f->op);
    }
    memmove(link->flight, link->flight + 1, sizeof *f * (size_t)--link->flights);
    return E_OK;
}

/* Waits for the oldest. */
static Err land(Ctx *cx, Link *link) {
    int over = 0;
    int64_t since = ring_now();
    TRY(look(cx, link, &over));
    if (over) return E_OK;
    if (link->channel) ring_wait(channel_ring(link->channel), link->flight[0].number);
    while (!over) {
        if (ring_now() - since < LOOK_NS)
            sched_yield();
        else
            usleep(PAUSE_US);
        TRY(look(cx, link, &over));
    }
    return E_OK;
}

Err link_settle(Ctx *cx, Link *link) {
    while (link->flights) TRY(land(cx, link));
    return E_OK;
}

/* Room for one more, in the list and in the ring. */
static Err make_room(Ctx *cx, Link *link, uint64_t number) {
    int over = 1;
    while (link->flights && over) TRY(look(cx, link, &over));
    while (link->flights == FLIGHTS ||
           (link->flights && number - link->flight[0].number >= RING_SIZE / 2))
        TRY(land(cx, link));
    return E_OK;
}

static Err fly(Ctx *cx, Link *link, const Transfer *t, void *request) {
    TRY(make_room(cx, link, t->number));
    Flight *f = &link->flight[link->flights++];
    *f = (Flight){.request = request, .number = t->number};
    snprintf(f->op, sizeof f->op, "%s", t->what->op);
    return E_OK;
}

/* ---- all ---- */

static Err begin(Ctx *cx, Link *link, const Comm *c, const Crossing *what, const CommPart *send,
                 int32_t nsend, const CommPart *recv, int32_t nrecv, Transfer *out) {
    Ring *ring = link->channel ? channel_ring(link->channel) : NULL;
    *out = (Transfer){.what = what, .comm = c};
    if (ring) out->number = ring_begin(ring, what);
    /* The first message to a process may wait for it: the way is made then. */
    if (ring) ring_wait(ring, out->number);
    out->request = c->start(c->self, send, nsend, recv, nrecv);
    if (ring) ring_rest(ring);
    return out->request ? E_OK : failed(cx, c, what->op);
}

Err link_begin(Ctx *cx, Link *link, const Crossing *what, const CommPart *send, int32_t nsend,
               const CommPart *recv, int32_t nrecv, Transfer *out) {
    return begin(cx, link, &link->comm, what, send, nsend, recv, nrecv, out);
}

Err link_begin_device(Ctx *cx, Link *link, const Crossing *what, const CommPart *send,
                      int32_t nsend, const CommPart *recv, int32_t nrecv, Transfer *out) {
    return begin(cx, link, &link->device, what, send, nsend, recv, nrecv, out);
}

void link_help(Link *link, Transfer *t) {
    (void)link;
    if (t->request) t->comm->help(t->comm->self, t->request);
}

Err link_end(Ctx *cx, Link *link, Transfer *t) {
    const Comm *c = t->comm;
    Ring *ring = link->channel ? channel_ring(link->channel) : NULL;
    void *request = t->request;
    if (!request) return E_OK;
    t->request = NULL;
    if (ring && !c->over) ring_wait(ring, t->number);
    int done = c->wait(c->self, request);
    if (done && c->over) return fly(cx, link, t, request);
    if (ring) ring_over(ring, t->number);
    return done ? E_OK : failed(cx, c, t->what->op);
}

/* ---- of all, to all ---- */

Err link_gather(Ctx *cx, Link *link, const char *op, const void *mine, void *all, size_t each) {
    int32_t world = link->comm.world, rank = link->comm.rank, n = 0;
    size_t room = sizeof(CommPart) * (size_t)world;
    CommPart *send = alloc_new(&cx->alloc, room), *recv = alloc_new(&cx->alloc, room);
    Crossing what = {.op = op, .where = "", .axes = "", .bytes = each * (size_t)(world - 1)};
    Transfer t = {.request = NULL};
    char *at = all;
    Err err = send && recv ? E_OK : err_nomem(cx, "meeting other processes");
    memcpy(at + each * (size_t)rank, mine, each);
    for (int32_t i = 0; !err && i < world; i++) {
        if (i == rank) continue;
        send[n] = (CommPart){i, at + each * (size_t)rank, each, 0};
        recv[n++] = (CommPart){i, at + each * (size_t)i, each, 0};
    }
    if (!err) err = link_begin(cx, link, &what, send, n, recv, n, &t);
    if (!err) err = link_end(cx, link, &t);
    alloc_free(&cx->alloc, send, room);
    alloc_free(&cx->alloc, recv, room);
    return err;
}
