/* channel_inside.c - what all sides of the channel do: say why the process ends and end it, keep
 * texts that come, and watch how long the main thread waits. */
#include "run/job/channel_inside.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SAY_MS = 1000, AGAIN = 2 };

/* Time for the others to hear. */
#define LINGER (SECOND / 2)

/* ---- ending ---- */

void channel_say(const char *text) {
    size_t n = strlen(text);
    while (n > 0) {
        struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
        /* A pipe that nobody reads must not keep the processes from ending; one with room takes as
         * much at once. */
        if (poll(&out, 1, SAY_MS) == 0) return;
        ssize_t k = write(STDERR_FILENO, text, n < PIPE_BUF ? n : PIPE_BUF);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return;
        text += k;
        n -= (size_t)k;
    }
}

void channel_print_failure(Str *s, int32_t rank, const char *text, size_t n) {
    static const char name[] = "meshlua: "; /* the text may begin with it, too */
    size_t skip = n >= strlen(name) && memcmp(text, name, strlen(name)) == 0 ? strlen(name) : 0;
    str_fmt(s, "%srank %d: ", name, (int)rank);
    str_put_n(s, text + skip, n - skip);
    str_put(s, "\n");
}

/* What the main thread printed goes out, unless that could wait: for a reader, or for the main
 * thread itself, which may be stuck in the middle of it. */
static void flush_output(void) {
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT) || ftrylockfile(stdout) != 0) return;
    fflush(stdout);
    funlockfile(stdout);
}

_Noreturn void channel_exit(int code) {
    flush_output();
    _exit(code);
}

void channel_outlive_launcher(void) {
    struct sigaction now;
    if (sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGTERM, SIG_IGN);
}

_Noreturn void channel_end(Channel *c, int code, const char *text) {
    int32_t number = code;
    bool pending = true;
    if (text) channel_say(text);
    for (int32_t i = 0; i < c->nguest; i++)
        if (c->guest[i].known)
            conn_put(&c->guest[i].conn, FRAME_END, &number, sizeof number, NULL, 0);
    for (int32_t i = 0; i < c->npeer; i++)
        conn_put(&c->peer[i].conn, FRAME_END, &number, sizeof number, NULL, 0);
    for (int64_t until = flight_log_now() + LINGER; pending && flight_log_now() < until;
         usleep(1000)) {
        pending = false;
        for (int32_t i = 0; i < c->npeer; i++) {
            conn_flush(&c->peer[i].conn);
            pending = pending || conn_pending(&c->peer[i].conn);
        }
    }
    channel_exit(code);
}

_Noreturn void channel_end_with(Channel *c, int code, Str *s) {
    str_put(s, "\n");
    channel_end(c, code, s->failed ? "meshlua: out of memory\n" : str_of(s));
}

void channel_begin_text(Channel *c, Str *s, const char *text) {
    str_init(s, &c->alloc);
    str_put(s, "meshlua: ");
    str_put(s, text);
}

/* ---- texts: number, length, bytes ---- */

enum { TEXT_HEADER = 2 * sizeof(uint32_t) };

void channel_text(Channel *c, Peer *p, const ConnFrame *f) {
    uint32_t header[2] = {0, f->bytes - (uint32_t)sizeof(uint32_t)};
    if (f->bytes < sizeof(uint32_t)) return;
    memcpy(&header[0], f->body, sizeof header[0]);
    str_put_n(&p->texts, (const char *)header, TEXT_HEADER);
    str_put_n(&p->texts, f->body + sizeof(uint32_t), header[1]);
    pthread_cond_broadcast(&c->changed);
}

const char *channel_find_text(Str *texts, uint32_t number, size_t *n) {
    uint32_t header[2];
    size_t at = 0;
    const char *found = NULL;
    while (at + TEXT_HEADER <= texts->n) {
        memcpy(header, texts->at + at, TEXT_HEADER);
        if (header[0] >= number) break;
        at += TEXT_HEADER + header[1];
    }
    if (at) memmove(texts->at, texts->at + at, texts->n - at);
    texts->n -= at;
    if (texts->n >= TEXT_HEADER) {
        memcpy(header, texts->at, TEXT_HEADER);
        if (header[0] == number) found = texts->at + TEXT_HEADER;
        *n = header[1];
    }
    return found;
}

/* ---- the main thread's wait ---- */

RoundWhy channel_watch(Channel *c, int64_t now) {
    FlightLogEntry e;
    if (!c->joined || flight_log_latest(&c->flight_log, &e, 1) == 0 || e.leave) return ROUND_NONE;
    int64_t waited = now - e.enter, again = e.patient ? c->timeout : AGAIN * SECOND;
    if (waited >= c->timeout) {
        if (c->asked == e.number && now - c->asked_at < again) return ROUND_NONE;
        c->asked = e.number;
        c->asked_at = now;
        return ROUND_TIMEOUT;
    }
    if (e.patient || waited < c->notice || c->noticed == e.number) return ROUND_NONE;
    c->noticed = e.number;
    return ROUND_NOTICE;
}
