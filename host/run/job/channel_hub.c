/* channel_hub.c - rank 0's side of the channel: who is there, where each stands, and the end. */
#include "run/job/channel_inside.h"

#include <string.h>
#include <unistd.h>

/* Time for the others to say where they stand. */
#define ROUND_WAIT    SECOND
#define ROUND_AT_ONCE (SECOND / 5)
#define OWN_FAILURE   (SECOND / 10)

/* ---- who is there ---- */

static int32_t count_missing(const Channel *c) {
    int32_t n = 0;
    for (int32_t i = 1; i < c->world; i++) n += !c->peer[i].here;
    return n;
}

void channel_hub_missing(const Channel *c, Str *s) {
    uint8_t *in = alloc_new(s->alloc, (size_t)c->world);
    if (!in) {
        s->failed = true;
        return;
    }
    for (int32_t i = 1; i < c->world; i++) in[i] = !c->peer[i].here;
    str_put(s, count_missing(c) == 1 ? "rank " : "ranks ");
    status_ranks(s, in, c->world);
    str_put(s, " did not start");
    alloc_free(s->alloc, in, (size_t)c->world);
}

/* All must run the same script in the same meshlua. */
static void compare(Channel *c) {
    Str s;
    const Hello *mine = &c->mine;
    channel_begin_text(c, &s, "[E_RANKS] ");
    for (int32_t i = 1; i < c->world; i++) {
        const Hello *h = &c->peer[i].hello;
        if (strcmp(h->version, mine->version) != 0) {
            str_fmt(&s,
                    "rank %d (%s) runs meshlua %s, and rank 0 (%s) runs %s; install the same on "
                    "every host",
                    (int)i, h->host, h->version, mine->host, mine->version);
            channel_end_with(c, CODE_ENVIRONMENT, &s);
        }
        if (h->script != mine->script) {
            str_fmt(&s, "rank %d (%s) runs another script than rank 0 (%s): %s and %s", (int)i,
                    h->host, mine->host, h->name, mine->name);
            if (strcmp(h->name, mine->name) == 0) str_put(&s, " differ in their text");
            channel_end_with(c, CODE_ENVIRONMENT, &s);
        }
    }
    str_free(&s);
}

static void all_there(Channel *c) {
    compare(c);
    for (int32_t i = 1; i < c->world; i++)
        conn_put(&c->peer[i].conn, FRAME_WELCOME, NULL, 0, NULL, 0);
    channel_guests_close(c);
    if (c->listener >= 0) close(c->listener);
    c->listener = -1;
    c->joined = true;
    pthread_cond_broadcast(&c->changed);
}

static void watch_start(Channel *c, int64_t now) {
    Str s;
    if (c->joined) return;
    if (count_missing(c) == 0) {
        all_there(c);
        return;
    }
    if (now - c->opened >= c->timeout) {
        channel_begin_text(c, &s, "[E_RANKS] ");
        channel_hub_missing(c, &s);
        str_fmt(&s, " within %d s (--timeout)", (int)(c->timeout / SECOND));
        channel_guests_print(c, &s);
        channel_end_with(c, CODE_ENVIRONMENT, &s);
    }
    if (c->missing_said || now - c->opened < NOTICE * SECOND) return;
    c->missing_said = true;
    channel_begin_text(c, &s, "");
    channel_hub_missing(c, &s);
    str_fmt(&s, " within %d s; waiting for %d s in all", NOTICE, (int)(c->timeout / SECOND));
    channel_guests_print(c, &s);
    str_put(&s, "\n");
    channel_say(str_of(&s));
    str_free(&s);
}

/* ---- where each stands ---- */

static void ask(Channel *c, RoundWhy why, int32_t asker, int64_t now) {
    if (why <= c->round.why) return;
    int64_t until = now + (why == ROUND_GONE ? ROUND_AT_ONCE : ROUND_WAIT);
    c->round = (Round){.why = why, .number = c->round.number + 1, .asker = asker, .until = until};
    for (int32_t i = 1; i < c->world; i++) {
        Peer *p = &c->peer[i];
        StatusKind stands = p->gone    ? STATUS_GONE
                            : p->bye   ? STATUS_ENDED
                            : !p->here ? STATUS_ABSENT
                                       : STATUS_SILENT;
        c->status[i] = (RankStatus){.kind = (int32_t)stands};
        p->answered = stands != STATUS_SILENT;
        uint32_t number = c->round.number;
        if (!p->answered) conn_put(&p->conn, FRAME_WHERE, &number, sizeof number, NULL, 0);
    }
}

static void hear(Channel *c, int32_t rank, const ConnFrame *f) {
    uint32_t number;
    if (f->bytes != sizeof number + sizeof(RankStatus)) return;
    memcpy(&number, f->body, sizeof number);
    if (number != c->round.number || !c->round.why) return;
    RankStatus *s = &c->status[rank];
    memcpy(s, f->body + sizeof number, sizeof *s);
    if (s->n < 0 || s->n > STATUS_LATEST) *s = (RankStatus){.kind = STATUS_COMPUTING};
    c->peer[rank].answered = true;
}

static bool any_lost(const Channel *c) {
    for (int32_t i = 0; i < c->world; i++)
        if (c->status[i].kind < STATUS_ENDED) return true;
    return false;
}

/* Who waited is not waiting any more, or its wait is that of an earlier notice, or for one that is
 * gone: all end soon. */
static bool is_over(const Channel *c, const RankStatus *asker) {
    if (asker->kind != STATUS_WAITING || c->gone_at) return true;
    int64_t waited = asker->now - asker->latest[0].enter;
    if (c->round.why == ROUND_NOTICE)
        return c->noticed_at && flight_log_now() - waited < c->noticed_at;
    return waited < c->timeout || (asker->latest[0].patient && !any_lost(c));
}

static void print_round(Channel *c, Str *s) {
    int32_t asker = c->round.asker;
    channel_begin_text(c, s, c->round.why == ROUND_NOTICE ? "waiting: " : "");
    if (c->round.why == ROUND_GONE)
        status_lost(s, c->status, c->world);
    else
        status_cause(s, c->status, c->world, asker);
    status_table(s, c->status, c->world);
    if (c->round.why == ROUND_TIMEOUT) {
        status_flight_log(s, &c->status[asker], asker);
        for (int32_t i = 0; i < c->world; i++)
            if (i != asker && c->status[i].n > 0 &&
                !status_same(&c->status[i], &c->status[asker])) {
                status_flight_log(s, &c->status[i], i);
                break;
            }
    }
}

static void end_round(Channel *c, int64_t now) {
    Str s;
    status_of(&c->flight_log, &c->status[0]);
    RoundWhy why = c->round.why;
    bool over = why != ROUND_GONE && is_over(c, &c->status[c->round.asker]);
    if (!over) print_round(c, &s);
    c->round.why = ROUND_NONE;
    if (over) return;
    if (why == ROUND_TIMEOUT) {
        str_fmt(&s, "\n  %d s are the limit (--timeout)", (int)(c->timeout / SECOND));
        channel_end_with(c, CODE_TIMEOUT, &s);
    }
    str_put(&s, "\n");
    channel_say(str_of(&s));
    str_free(&s);
    if (why == ROUND_NOTICE) c->noticed_at = now;
}

static void watch_round(Channel *c, int64_t now) {
    bool all = true;
    if (!c->round.why) return;
    for (int32_t i = 1; i < c->world; i++) all = all && c->peer[i].answered;
    if (all || now >= c->round.until) end_round(c, now);
}

/* ---- frames ---- */

/* What fails in all is said as rank 0 says it: its main thread is given the time to come to it. */
static void failed(Channel *c, int32_t rank, const ConnFrame *f, int64_t now) {
    Str *s = &c->failed_text;
    size_t n = f->bytes > sizeof c->failed_code ? f->bytes - sizeof c->failed_code : 0;
    if (c->failed_at || f->bytes < sizeof c->failed_code) return;
    memcpy(&c->failed_code, f->body, sizeof c->failed_code);
    c->failed_at = now;
    if (n > 0) channel_print_failure(s, rank, f->body + sizeof c->failed_code, n);
}

static _Noreturn void end_failed(Channel *c) {
    channel_end(c, c->failed_code, str_of(&c->failed_text));
}

_Noreturn void channel_hub_fail(Channel *c, int code, const char *text) {
    if (c->failed_at && c->failed_code != code) end_failed(c);
    if (text) channel_say(text);
    channel_end(c, code, text ? "\n" : NULL);
}

static void take(Channel *c, int32_t rank, const ConnFrame *f, int64_t now) {
    Peer *p = &c->peer[rank];
    int32_t why;
    switch ((FrameType)f->type) {
    case FRAME_FAIL: failed(c, rank, f, now); break;
    case FRAME_ASK:
        if (f->bytes != sizeof why) break;
        memcpy(&why, f->body, sizeof why);
        if (why == ROUND_NOTICE || why == ROUND_TIMEOUT) ask(c, (RoundWhy)why, rank, now);
        break;
    case FRAME_HERE: hear(c, rank, f); break;
    case FRAME_TEXT: channel_text(c, p, f); break;
    case FRAME_BYE:
        p->bye = true;
        pthread_cond_broadcast(&c->changed);
        break;
    default: break;
    }
}

static void receive_peers(Channel *c, int64_t now) {
    for (int32_t i = 1; i < c->world; i++) {
        Peer *p = &c->peer[i];
        ConnFrame f;
        bool came = c->poll[POLL_PEERS + i].revents || p->conn.in.n > p->conn.taken;
        if (p->conn.fd < 0 || (!came && !p->conn.lost)) continue;
        conn_flush(&p->conn);
        conn_fill(&p->conn, MAX_TEXT);
        while (conn_next(&p->conn, MAX_TEXT, &f)) take(c, i, &f, now);
        if (!p->conn.lost) continue;
        conn_close(&p->conn);
        if (p->bye || c->closing || c->failed_at) continue;
        channel_outlive_launcher();
        p->gone = true;
        if (!c->gone_at) ask(c, ROUND_GONE, i, now);
        if (!c->gone_at) c->gone_at = now;
    }
}

void channel_hub_step(Channel *c, int64_t now) {
    receive_peers(c, now);
    if (!c->joined) channel_guests_step(c, now);
    if (!c->gone_at) {
        watch_start(c, now);
        ask(c, channel_watch(c, now), 0, now);
    }
    watch_round(c, now);
    if (c->failed_at && now - c->failed_at > OWN_FAILURE) end_failed(c);
    if (c->gone_at && now - c->gone_at > GRACE * SECOND) channel_end(c, CODE_KILLED, NULL);
}
