#include "run/job/channel_inside.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 500, BUSY_MS = 20, FAIL_SECONDS = 2, SPARE_FILES = 256 };

/* ---- the thread ---- */

static short wanted(const Conn *conn) {
    return (short)(POLLIN | (conn_pending(conn) ? POLLOUT : 0));
}

/* Who may have something to say: the main thread, who knocks, peers, guests. */
static nfds_t fill_poll(Channel *c) {
    struct pollfd *p = c->poll + POLL_PEERS;
    c->poll[POLL_WAKE] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    c->poll[POLL_LISTENER] = (struct pollfd){.fd = c->listener, .events = POLLIN};
    for (int32_t i = 0; i < c->npeer; i++) {
        const Conn *conn = &c->peer[i].conn;
        short events = !channel_is_hub(c) && !c->connected ? POLLOUT : wanted(conn);
        *p++ = (struct pollfd){.fd = conn->lost ? -1 : conn->fd, .events = events};
    }
    for (int32_t i = 0; i < c->nguest && !c->joined; i++) {
        const Conn *g = &c->guest[i].conn;
        *p++ = (struct pollfd){.fd = g->fd, .events = wanted(g)};
    }
    return (nfds_t)(p - c->poll);
}

static int tick(const Channel *c) {
    int ms = TICK_MS;
    if (c->timeout / 8 < ms * (SECOND / 1000)) ms = (int)(c->timeout / 8 / (SECOND / 1000)) + 1;
    if (c->round.why || c->failed_at || c->gone_at || c->lost_at || c->unheard) return BUSY_MS;
    if (!channel_is_hub(c) && !c->connected) return (int)(c->retry_delay / (SECOND / 1000));
    return ms;
}

static bool all_sent(const Channel *c) {
    for (int32_t i = 0; i < c->npeer; i++)
        if (conn_pending(&c->peer[i].conn)) return false;
    return true;
}

static void *work(void *ud) {
    Channel *c = ud;
    int64_t closing_at = 0;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        int64_t now = flight_log_now();
        if (c->closing && !closing_at) closing_at = now;
        if (c->closing && (all_sent(c) || now - closing_at > SECOND)) break;
        nfds_t n = fill_poll(c);
        int ms = c->closing ? BUSY_MS : tick(c);
        pthread_mutex_unlock(&c->lock);
        poll(c->poll, n, ms);
        uint64_t count;
        while (c->poll[POLL_WAKE].revents && read(c->wake, &count, sizeof count) < 0 &&
               errno == EINTR) {}
        pthread_mutex_lock(&c->lock);
        if (channel_is_hub(c))
            channel_hub_step(c, flight_log_now());
        else
            channel_member_step(c, flight_log_now());
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void wake(Channel *c) {
    uint64_t one = 1;
    while (write(c->wake, &one, sizeof one) < 0 && errno == EINTR) {}
}

/* ---- what the main thread calls ---- */

static Err no_memory(Ctx *cx) {
    return err_nomem(cx, "meeting other processes");
}

static void fill_hello(Channel *c, const Ranks *r, const ChannelOptions *o) {
    Hello *h = &c->mine;
    memcpy(h->magic, "meshlua", sizeof h->magic);
    h->rank = r->rank;
    h->world = r->world;
    h->pid = (int32_t)getpid();
    h->token = c->meet.token;
    h->script = o->script;
    snprintf(h->version, sizeof h->version, "%s", o->version);
    snprintf(h->name, sizeof h->name, "%s", o->name);
    if (gethostname(h->host, sizeof h->host - 1) != 0) h->host[0] = '\0';
}

static Err listen_for_others(Ctx *cx, Channel *c) {
    char error[HOST_TEXT], place[RENDEZVOUS_HOSTS];
    c->listener = rendezvous_listen(&c->meet, &c->second, error, sizeof error);
    if (c->listener >= 0 || c->second) return E_OK;
    rendezvous_text(&c->meet, place, sizeof place);
    return err_set(cx, E_RANKS, "rank 0 cannot wait for the other processes at %s: %s", place,
                   error);
}

/* Rank 0 holds a socket to each other, and has so many places for guests as there are files left:
 * poll takes no longer list than files may be open. */
static Err raise_files(Ctx *cx, Channel *c) {
    struct rlimit l;
    c->nguest = channel_guests_most(c->world);
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return E_OK;
    rlim_t peers = POLL_PEERS + (rlim_t)c->world, want = peers + (rlim_t)c->nguest + SPARE_FILES;
    if (l.rlim_cur < want) {
        l.rlim_cur = want < l.rlim_max ? want : l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
    if (l.rlim_cur <= peers)
        return err_set(cx, E_RANKS,
                       "rank 0 may have %lld files open, which is too few for %d processes; raise "
                       "the limit (ulimit -n)",
                       (long long)l.rlim_cur, (int)c->world);
    if (l.rlim_cur - peers < (rlim_t)c->nguest) c->nguest = (int32_t)(l.rlim_cur - peers);
    return E_OK;
}

static size_t polled(const Channel *c) {
    return (size_t)(POLL_PEERS + c->npeer + c->nguest);
}

static Err allocate(Ctx *cx, Channel *c) {
    size_t world = (size_t)c->world;
    c->npeer = c->rank == 0 ? c->world : 1;
    c->peer = alloc_new(&c->alloc, sizeof *c->peer * (size_t)c->npeer);
    c->guest = alloc_new(&c->alloc, sizeof *c->guest * (size_t)c->nguest);
    c->poll = alloc_new(&c->alloc, sizeof *c->poll * polled(c));
    c->status = c->rank == 0 ? alloc_new(&c->alloc, sizeof *c->status * world) : NULL;
    str_init(&c->failed_text, &c->alloc);
    for (int32_t i = 0; c->guest && i < c->nguest; i++) conn_init(&c->guest[i].conn, &c->alloc, -1);
    for (int32_t i = 0; c->peer && i < c->npeer; i++) {
        conn_init(&c->peer[i].conn, &c->alloc, -1);
        str_init(&c->peer[i].texts, &c->alloc);
    }
    bool hub = c->status && c->guest;
    return c->peer && c->poll && (c->rank > 0 || hub) ? E_OK : no_memory(cx);
}

static void free_all(Ctx *cx, Channel *c) {
    if (c->listener >= 0) close(c->listener);
    if (c->wake >= 0) close(c->wake);
    if (c->guest) channel_guests_close(c);
    for (int32_t i = 0; c->peer && i < c->npeer; i++) {
        conn_close(&c->peer[i].conn);
        str_free(&c->peer[i].texts);
    }
    str_free(&c->failed_text);
    alloc_free(&c->alloc, c->peer, sizeof *c->peer * (size_t)c->npeer);
    alloc_free(&c->alloc, c->guest, sizeof *c->guest * (size_t)c->nguest);
    alloc_free(&c->alloc, c->poll, sizeof *c->poll * polled(c));
    alloc_free(&c->alloc, c->status, sizeof *c->status * (size_t)c->world);
    flight_log_free(&c->flight_log);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    alloc_free(&cx->alloc, c, sizeof *c);
}

/* Signals are the main thread's. */
static Err start_thread(Ctx *cx, Channel *c) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&c->thread, NULL, work, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code ? err_set(cx, E_RANKS, "a thread cannot be started: %s", strerror(code)) : E_OK;
}

Err channel_open(Ctx *cx, const Ranks *r, const ChannelOptions *o, Channel **out) {
    pthread_condattr_t attr;
    Channel *c = alloc_new(&cx->alloc, sizeof *c);
    *out = NULL;
    if (!c) return no_memory(cx);
    c->alloc.fail_in = -1;
    c->rank = r->rank;
    c->world = r->world;
    c->timeout = o->timeout * SECOND;
    c->notice = NOTICE * SECOND;
    c->meet = o->meet;
    c->secret = o->secret;
    c->opened = flight_log_now();
    c->retry_delay = SECOND / 1000;
    c->listener = -1;
    flight_log_init(&c->flight_log);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    Err err = c->rank == 0 ? raise_files(cx, c) : E_OK;
    if (!err) err = allocate(cx, c);
    if (c->wake < 0 && !err) err = err_set(cx, E_RANKS, "eventfd: %s", strerror(errno));
    if (!err && c->rank == 0) err = listen_for_others(cx, c);
    fill_hello(c, r, o);
    if (!err) err = start_thread(cx, c);
    if (err)
        free_all(cx, c);
    else
        *out = c;
    return err;
}

const Rendezvous *channel_meet(const Channel *c) {
    return &c->meet;
}

FlightLog *channel_flight_log(Channel *c) {
    return &c->flight_log;
}

static struct timespec after(int seconds) {
    int64_t t = flight_log_now() + seconds * SECOND;
    return (struct timespec){.tv_sec = t / SECOND, .tv_nsec = t % SECOND};
}

Err channel_join(Ctx *cx, Channel *c, int seconds) {
    struct timespec until = after(seconds);
    Str missing, strangers;
    str_init(&missing, &cx->alloc);
    str_init(&strangers, &cx->alloc);
    pthread_mutex_lock(&c->lock);
    while (!c->joined && pthread_cond_timedwait(&c->changed, &c->lock, &until) == 0) {}
    bool joined = c->joined;
    if (!joined && c->rank == 0) channel_hub_missing(c, &missing);
    if (!joined && c->rank == 0) channel_guests_print(c, &strangers);
    pthread_mutex_unlock(&c->lock);
    Err err = E_OK;
    if (!joined)
        err = err_set(cx, E_RANKS, "%s within %d s%s",
                      c->rank == 0 ? str_of(&missing) : "rank 0 was not found", seconds,
                      str_of(&strangers));
    str_free(&strangers);
    str_free(&missing);
    return err;
}

_Noreturn void channel_fail(Channel *c, int code, const char *text) {
    struct timespec until = after(FAIL_SECONDS);
    pthread_mutex_lock(&c->lock);
    if (channel_is_hub(c)) channel_hub_fail(c, code, text);
    c->fail_code = code;
    c->fail_text = text ? text : "";
    if (c->met) channel_member_fail(c);
    wake(c);
    /* rank 0 has all processes ended, by their threads */
    while (pthread_cond_timedwait(&c->changed, &c->lock, &until) == 0) {}
    if (text) {
        Str s;
        str_init(&s, &c->alloc);
        channel_print_failure(&s, c->rank, text, strlen(text));
        channel_say(str_of(&s));
    }
    channel_exit(code);
}

static char *copy_text(Ctx *cx, const char *text, size_t n) {
    char *copy = alloc_new(&cx->alloc, n + 1);
    if (copy) memcpy(copy, text, n);
    return copy;
}

/* Have all of those whom it can still come from sent theirs? */
static bool all_texts(Channel *c, uint32_t number) {
    size_t n;
    for (int32_t i = 1; i < c->world; i++)
        if (!c->peer[i].bye && !channel_find_text(&c->peer[i].texts, number, &n)) return false;
    return true;
}

Err channel_gather(Ctx *cx, Channel *c, const char *text, int seconds, char **texts) {
    struct timespec until = after(seconds);
    Err err = E_OK;
    pthread_mutex_lock(&c->lock);
    uint32_t number = ++c->gathers;
    if (c->rank > 0) {
        conn_put(&c->peer[0].conn, FRAME_TEXT, &number, sizeof number, text, strlen(text));
        wake(c);
    } else {
        while (!all_texts(c, number) &&
               pthread_cond_timedwait(&c->changed, &c->lock, &until) == 0) {}
        texts[0] = copy_text(cx, text, strlen(text));
        if (!texts[0]) err = no_memory(cx);
        for (int32_t i = 1; i < c->world; i++) {
            size_t n;
            const char *theirs = channel_find_text(&c->peer[i].texts, number, &n);
            texts[i] = theirs ? copy_text(cx, theirs, n) : NULL;
            if (theirs && !texts[i]) err = no_memory(cx);
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (err) channel_free_texts(cx, c, texts);
    return err;
}

void channel_free_texts(Ctx *cx, const Channel *c, char **texts) {
    for (int32_t i = 0; c->rank == 0 && i < c->world; i++) {
        if (texts[i]) alloc_free(&cx->alloc, texts[i], strlen(texts[i]) + 1);
        texts[i] = NULL;
    }
}

Err channel_share(Ctx *cx, Channel *c, const char *text, int seconds, Str *out) {
    struct timespec until = after(seconds);
    size_t n = 0;
    pthread_mutex_lock(&c->lock);
    uint32_t number = ++c->shares;
    if (c->rank == 0) {
        n = strlen(text);
        for (int32_t i = 1; i < c->world; i++)
            conn_put(&c->peer[i].conn, FRAME_TEXT, &number, sizeof number, text, n);
        wake(c);
    } else {
        Str *texts = &c->peer[0].texts;
        while (!(text = channel_find_text(texts, number, &n)) &&
               pthread_cond_timedwait(&c->changed, &c->lock, &until) == 0) {}
    }
    if (text && n) str_put_n(out, text, n);
    pthread_mutex_unlock(&c->lock);
    if (!text) return err_set(cx, E_RANKS, "nothing came from rank 0 within %d s", seconds);
    return out->failed ? no_memory(cx) : E_OK;
}

void channel_close(Ctx *cx, Channel *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    for (int32_t i = 0; i < c->npeer; i++) conn_put(&c->peer[i].conn, FRAME_BYE, NULL, 0, NULL, 0);
    c->closing = true;
    wake(c);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    free_all(cx, c);
}
