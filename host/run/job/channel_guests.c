/* channel_guests.c - who knocks at rank 0: until it has proved that it is of this job it may send
 * little, take little time and keep nobody else out, and nothing that it says counts. */
#include "run/job/channel_inside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Time to prove it; a place that long is left to a guest though others want one. */
#define PROOF_WAIT (5 * SECOND)
#define FAIR       (SECOND / 20)

enum { PLACES = 128, MOST_RANKS = 384, ACCEPTS = 64 }; /* ACCEPTS: in one go */

int32_t channel_guests_most(int32_t world) {
    return PLACES + (world < MOST_RANKS ? world : MOST_RANKS);
}

void channel_guests_close(Channel *c) {
    for (int32_t i = 0; i < c->nguest; i++) conn_close(&c->guest[i].conn);
}

/* ---- strangers ---- */

/* The one of them that says most is the one to name. */
static void note(Channel *c, Stranger what, const char *from, int32_t rank) {
    Strangers *s = &c->strangers;
    s->n++;
    if (what < s->what) return;
    s->what = what;
    s->rank = rank;
    snprintf(s->from, sizeof s->from, "%s", from);
}

static void turn_away(Channel *c, Guest *g, Stranger what, int32_t rank) {
    note(c, what, g->who.from, rank);
    conn_close(&g->conn);
}

void channel_guests_print(const Channel *c, Str *s) {
    const Strangers *x = &c->strangers;
    if (x->n == 0) return;
    str_fmt(s, "; turned away: %s", x->from[0] ? x->from : "a process of this user");
    switch (x->what) {
    case STRANGER_OTHER: str_put(s, ", which did not prove to be of this job"); break;
    case STRANGER_USER: str_put(s, ", another user"); break;
    case STRANGER_JOB: str_fmt(s, ", rank %d of another job", (int)x->rank); break;
    case STRANGER_SECRET:
        str_fmt(s, ", which says that it is rank %d and %s", (int)x->rank,
                c->secret.given ? "does not know the secret (MESHLUA_SECRET)"
                                : "has a secret (MESHLUA_SECRET), where rank 0 has none");
        break;
    }
    if (x->n > 1) str_fmt(s, " (%d connections in all)", (int)x->n);
}

/* ---- the proof ---- */

/* "871 on alpha (10.0.0.7)" */
static void print_process(Str *s, const Hello *h, const char *from) {
    str_fmt(s, "%d on %s", (int)h->pid, h->host);
    if (from[0]) str_fmt(s, " (%s)", from);
}

static _Noreturn void twice(Channel *c, const Peer *a, const Hello *b, const char *from) {
    Str s;
    channel_begin_text(c, &s, "[E_RANKS] ");
    str_fmt(&s, "two processes say that they are rank %d: ", (int)b->rank);
    print_process(&s, a ? &a->hello : &c->mine, a ? a->from : "");
    str_put(&s, " and ");
    print_process(&s, b, from);
    str_put(&s, "; give each its own rank");
    channel_end_with(c, CODE_ENVIRONMENT, &s);
}

/* Ends all where what a process of this job says of itself cannot be. */
static void check(Channel *c, const Hello *h, const char *from) {
    Str s;
    if (h->world != c->world || h->rank < 0 || h->rank >= c->world) {
        channel_begin_text(c, &s, "[E_RANKS] ");
        str_fmt(&s, "a process on %s%s%s%s says rank %d of %d, but rank 0 on %s is one of %d",
                h->host, from[0] ? " (" : "", from, from[0] ? ")" : "", (int)h->rank, (int)h->world,
                c->mine.host, (int)c->world);
        channel_end_with(c, CODE_ENVIRONMENT, &s);
    }
    if (h->rank == 0) twice(c, NULL, h, from);
    if (c->peer[h->rank].here) twice(c, &c->peer[h->rank], h, from);
}

static void enter(Channel *c, Guest *g, const Hello *h) {
    check(c, h, g->who.from);
    Peer *p = &c->peer[h->rank];
    p->conn = g->conn;
    p->hello = *h;
    p->here = true;
    memcpy(p->from, g->who.from, sizeof p->from);
    conn_init(&g->conn, &c->alloc, -1);
}

/* A guest says who it is and proves that it is of this job: it takes its place. */
static void hear(Channel *c, Guest *g, const ConnFrame *f) {
    Hello h = {.rank = 0};
    uint8_t mac[SECRET_MAC];
    size_t n = f->bytes - SECRET_MAC;
    if (f->type != FRAME_HELLO || f->bytes < HELLO_FEWEST + SECRET_MAC) {
        turn_away(c, g, STRANGER_OTHER, 0);
        return;
    }
    memcpy(&h, f->body, n < sizeof h ? n : sizeof h);
    memcpy(mac, f->body + n, sizeof mac);
    h.version[sizeof h.version - 1] = h.name[sizeof h.name - 1] = h.host[sizeof h.host - 1] = '\0';
    if (memcmp(h.magic, c->mine.magic, sizeof h.magic) != 0) {
        turn_away(c, g, STRANGER_OTHER, 0);
        return;
    }
    if (!secret_proves(&c->secret, SECRET_MEMBER, g->nonce, f->body, n, mac)) {
        turn_away(c, g, STRANGER_SECRET, h.rank);
        return;
    }
    if (h.token != c->meet.token) {
        turn_away(c, g, STRANGER_JOB, h.rank);
        return;
    }
    secret_prove(&c->secret, SECRET_HUB, g->nonce, f->body, n, mac);
    g->known = true;
    conn_put(&g->conn, FRAME_PROOF, mac, sizeof mac, NULL, 0);
    enter(c, g, &h);
}

static void receive(Channel *c, Guest *g, int64_t now) {
    ConnFrame f;
    conn_flush(&g->conn);
    conn_fill(&g->conn, HELLO_MOST);
    if (conn_next(&g->conn, HELLO_MOST, &f))
        hear(c, g, &f);
    else if (g->conn.lost || now - g->since > PROOF_WAIT)
        turn_away(c, g, STRANGER_OTHER, 0);
}

/* ---- places ---- */

static int32_t count_from(const Channel *c, uint64_t network) {
    int32_t n = 0;
    for (int32_t i = 0; i < c->nguest; i++)
        n += c->guest[i].conn.fd >= 0 && c->guest[i].who.network == network;
    return n;
}

/* Where all places are taken, the oldest guest of the network that has most of them goes, once it
 * had its time or where the newcomer's network has clearly fewer. NULL: the newcomer goes. */
static Guest *make_room(Channel *c, const RendezvousGuest *newcomer, int64_t now) {
    Guest *oldest = NULL;
    int32_t most = 0;
    for (int32_t i = 0; i < c->nguest; i++) {
        Guest *g = &c->guest[i];
        if (g->conn.fd < 0) return g;
        int32_t n =
            oldest && g->who.network == oldest->who.network ? most : count_from(c, g->who.network);
        if (n < most || (n == most && oldest && g->since >= oldest->since)) continue;
        most = n;
        oldest = g;
    }
    if (!oldest || (now - oldest->since < FAIR && count_from(c, newcomer->network) + 1 >= most))
        return NULL;
    turn_away(c, oldest, STRANGER_OTHER, 0);
    return oldest;
}

static void let_in(Channel *c, int fd, const RendezvousGuest *who, int64_t now) {
    Guest *g = make_room(c, who, now);
    if (!g) {
        note(c, STRANGER_OTHER, who->from, 0);
        close(fd);
        return;
    }
    conn_init(&g->conn, &c->alloc, fd);
    g->since = now;
    g->who = *who;
    g->known = false;
    secret_nonce(&c->secret, g->nonce);
    conn_put(&g->conn, FRAME_CHALLENGE, g->nonce, sizeof g->nonce, NULL, 0);
}

/* Files are short: whoever waits longest gives his back. */
static void free_file(Channel *c) {
    Guest *oldest = NULL;
    for (int32_t i = 0; i < c->nguest; i++) {
        Guest *g = &c->guest[i];
        if (g->conn.fd >= 0 && (!oldest || g->since < oldest->since)) oldest = g;
    }
    if (oldest) turn_away(c, oldest, STRANGER_OTHER, 0);
}

void channel_guests_step(Channel *c, int64_t now) {
    for (int32_t i = 0; i < c->nguest; i++) {
        Guest *g = &c->guest[i];
        bool came = c->poll[POLL_PEERS + c->npeer + i].revents != 0;
        if (g->conn.fd >= 0 && (came || now - g->since > PROOF_WAIT)) receive(c, g, now);
    }
    for (int i = 0; i < ACCEPTS; i++) {
        RendezvousGuest who;
        int fd = rendezvous_accept(c->listener, &who);
        if (fd == RENDEZVOUS_NOBODY) return;
        if (fd == RENDEZVOUS_NO_ROOM) {
            free_file(c);
            return;
        }
        if (fd >= 0)
            let_in(c, fd, &who, now);
        else if (who.from[0])
            note(c, STRANGER_USER, who.from, 0);
    }
}
