/* channel_member.c - the channel's side of a rank other than 0: it looks for rank 0, does what that
 * says, and speaks for itself where rank 0 does not. */
#include "run/job/channel_inside.h"

#include <string.h>

/* An attempt to connect; between two of them; an answer of rank 0, of whoever waits there. */
#define ATTEMPT     (3 * SECOND)
#define RETRY_SOON  (SECOND / 250) /* at the start of the job, when rank 0 is about to come */
#define RETRY_LATER (SECOND / 10)
#define START       (2 * SECOND)
#define ANSWER      (6 * SECOND / 5)
#define WHO_IS_THIS (2 * SECOND)
#define PROOF_WAIT  (6 * SECOND)

/* Where rank 0 cannot speak the lowest rank that can does: each leaves those below it the time to
 * have all ended by the launcher. */
static int64_t turn(const Channel *c) {
    return c->rank == 1 ? 0 : c->rank == 2 ? 17 * SECOND / 10 : 26 * SECOND / 10;
}

static _Noreturn void end_alone(int code, Str *s) {
    str_put(s, "\n");
    channel_say(s->failed ? "meshlua: out of memory\n" : str_of(s));
    channel_exit(code);
}

static _Noreturn void not_found(Channel *c, const char *why) {
    char place[RENDEZVOUS_HOSTS];
    Str s;
    str_init(&s, &c->alloc);
    rendezvous_text(&c->meet, place, sizeof place);
    str_fmt(&s, "meshlua: [E_RANKS] rank %d: %s (%s)", (int)c->rank, why, place);
    end_alone(CODE_ENVIRONMENT, &s);
}

/* ---- finding rank 0 ---- */

void channel_member_fail(Channel *c) {
    conn_put(&c->peer[0].conn, FRAME_FAIL, &c->fail_code, sizeof c->fail_code, c->fail_text,
             strlen(c->fail_text));
}

static void try_again(Channel *c, int64_t now) {
    conn_close(&c->peer[0].conn);
    conn_init(&c->peer[0].conn, &c->alloc, -1);
    c->connected = c->answered = c->met = false;
    c->retry_at = now + c->retry_delay;
    c->retry_delay = now - c->opened < START ? RETRY_SOON : RETRY_LATER;
}

static void connect_to_hub(Channel *c, int64_t now) {
    Conn *hub = &c->peer[0].conn;
    if (hub->fd < 0) {
        if (now < c->retry_at) return;
        int fd = rendezvous_connect(&c->meet, c->attempt++);
        if (fd < 0) {
            try_again(c, now);
            return;
        }
        conn_init(hub, &c->alloc, fd);
        c->attempt_at = now;
    }
    int state = rendezvous_connected(hub->fd);
    if (state < 0 || (state == 0 && now - c->attempt_at > ATTEMPT)) try_again(c, now);
    if (state <= 0) return;
    if (!rendezvous_is_ours(hub->fd)) {
        c->doubt = "a program of another user waits where rank 0 should";
        try_again(c, now);
        return;
    }
    c->connected = true;
    c->attempt_at = now;
}

/* Says who this is, and proves it, in answer to a nonce that was never there before. */
static void answer_challenge(Channel *c, const ConnFrame *f) {
    uint8_t mac[SECRET_MAC];
    memcpy(c->nonce, f->body, sizeof c->nonce);
    secret_nonce(&c->secret, c->mine.nonce);
    secret_prove(&c->secret, SECRET_MEMBER, c->nonce, &c->mine, sizeof c->mine, mac);
    conn_put(&c->peer[0].conn, FRAME_HELLO, &c->mine, sizeof c->mine, mac, sizeof mac);
    c->answered = true;
}

static bool is_proof(const Channel *c, const ConnFrame *f) {
    return f->type == FRAME_PROOF && f->bytes == SECRET_MAC &&
           secret_proves(&c->secret, SECRET_HUB, c->nonce, &c->mine, sizeof c->mine,
                         (const uint8_t *)f->body);
}

/* Until who waits there has proved to be rank 0, nothing else that it says counts. */
static void listen_to_stranger(Channel *c, int64_t now) {
    Conn *hub = &c->peer[0].conn;
    ConnFrame f;
    conn_flush(hub);
    conn_fill(hub, HELLO_MOST);
    while (!c->met && conn_next(hub, HELLO_MOST, &f)) {
        if (!c->answered && f.type == FRAME_CHALLENGE && f.bytes == SECRET_NONCE) {
            answer_challenge(c, &f);
        } else if (c->answered && is_proof(c, &f)) {
            c->met = true;
        } else {
            if (c->answered)
                c->doubt = "who waits where rank 0 should does not know the secret "
                           "(MESHLUA_SECRET)";
            else if (!c->doubt)
                c->doubt = "another program waits where rank 0 should";
            try_again(c, now);
            return;
        }
    }
    if (c->met && c->fail_code) channel_member_fail(c);
    if (c->met || (!hub->lost && now - c->attempt_at < PROOF_WAIT)) return;
    if (c->answered && hub->lost)
        c->doubt = "rank 0 turned this process away: have both the same secret (MESHLUA_SECRET)?";
    try_again(c, now);
}

static void watch_start(Channel *c, int64_t now) {
    Str s;
    int64_t waited = now - c->opened;
    if (c->second && waited > WHO_IS_THIS)
        not_found(c, "another program waits where rank 0 should; choose another port");
    if (waited > c->timeout + ANSWER + turn(c))
        not_found(c, c->doubt       ? c->doubt
                     : c->connected ? "rank 0 does not answer"
                                    : "rank 0 did not start");
    if (c->rank != 1 || c->met || c->missing_said || waited < NOTICE * SECOND) return;
    c->missing_said = true;
    str_init(&s, &c->alloc);
    str_fmt(&s, "meshlua: rank 0 did not start within %d s; waiting for %d s in all\n", NOTICE,
            (int)(c->timeout / SECOND));
    channel_say(str_of(&s));
    str_free(&s);
}

/* ---- once it is found ---- */

static void answer(Channel *c, const ConnFrame *f) {
    uint32_t number;
    RankStatus s;
    if (f->bytes != sizeof number) return;
    memcpy(&number, f->body, sizeof number);
    status_of(&c->flight_log, &s);
    conn_put(&c->peer[0].conn, FRAME_HERE, &number, sizeof number, &s, sizeof s);
}

static void take(Channel *c, const ConnFrame *f) {
    int32_t code;
    c->unheard = 0;
    switch ((FrameType)f->type) {
    case FRAME_WELCOME:
        c->joined = true;
        pthread_cond_broadcast(&c->changed);
        break;
    case FRAME_END:
        if (f->bytes != sizeof code) break;
        memcpy(&code, f->body, sizeof code);
        channel_exit(code);
    case FRAME_WHERE: answer(c, f); break;
    case FRAME_TEXT: channel_text(c, &c->peer[0], f); break;
    case FRAME_BYE: c->peer[0].bye = true; break;
    default: break;
    }
}

/* What is with rank 0, and where this process stands. */
static void begin_text(Channel *c, Str *s, StatusKind hub, RankStatus *me) {
    status_of(&c->flight_log, me);
    str_init(s, &c->alloc);
    str_put(s, "meshlua: ");
    status_print(s, &(RankStatus){.kind = (int32_t)hub}, 0);
    str_put(s, "; ");
    status_print(s, me, c->rank);
}

static void watch_wait(Channel *c, int64_t now) {
    int32_t why = (int32_t)channel_watch(c, now);
    FlightLogEntry e;
    if (why) conn_put(&c->peer[0].conn, FRAME_ASK, &why, sizeof why, NULL, 0);
    if (why == ROUND_TIMEOUT && !c->unheard) c->unheard = now;
    if (!c->unheard || now - c->unheard < ANSWER + turn(c)) return;
    if (flight_log_latest(&c->flight_log, &e, 1) == 0 || e.leave || e.number != c->asked) {
        c->unheard = 0; /* what it waited for came */
        return;
    }
    RankStatus me;
    Str s;
    begin_text(c, &s, STATUS_SILENT, &me);
    status_flight_log(&s, &me, c->rank);
    str_fmt(&s, "\n  %d s are the limit (--timeout)", (int)(c->timeout / SECOND));
    c->fail_code = CODE_TIMEOUT; /* for rank 0, should it go on after all */
    c->fail_text = "";
    channel_member_fail(c);
    end_alone(CODE_TIMEOUT, &s);
}

/* Rank 0 is gone: its launcher ends the others, or they end themselves. */
static void watch_loss(Channel *c, int64_t now) {
    Str s;
    RankStatus me;
    int64_t since = now - c->lost_at;
    if (!c->missing_said && since >= turn(c)) {
        c->missing_said = true;
        channel_outlive_launcher();
        begin_text(c, &s, STATUS_GONE, &me);
        str_put(&s, "\n");
        channel_say(str_of(&s));
        str_free(&s);
    }
    if (since >= GRACE * SECOND) channel_exit(CODE_KILLED);
}

static void lose(Channel *c, int64_t now) {
    if (c->peer[0].bye || c->closing) {
        conn_close(&c->peer[0].conn);
        return;
    }
    if (!c->joined) { /* not ours, or it is gone and its launcher ends us */
        try_again(c, now);
        return;
    }
    conn_close(&c->peer[0].conn);
    c->missing_said = false;
    c->lost_at = now;
}

void channel_member_step(Channel *c, int64_t now) {
    Conn *hub = &c->peer[0].conn;
    ConnFrame f;
    if (c->lost_at) {
        watch_loss(c, now);
        return;
    }
    if (!c->connected) connect_to_hub(c, now);
    if (c->connected && !c->met) listen_to_stranger(c, now);
    if (c->met && hub->fd >= 0) {
        conn_flush(hub);
        conn_fill(hub, MAX_TEXT);
        while (conn_next(hub, MAX_TEXT, &f)) take(c, &f);
        if (hub->lost) lose(c, now);
    }
    if (!c->joined)
        watch_start(c, now);
    else if (hub->fd >= 0)
        watch_wait(c, now);
}
