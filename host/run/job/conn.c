#include "run/job/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER = 2 * sizeof(uint32_t), PIECE = 1 << 12 };

void conn_init(Conn *c, Alloc *alloc, int fd) {
    *c = (Conn){.fd = fd};
    str_init(&c->in, alloc);
    str_init(&c->out, alloc);
}

void conn_close(Conn *c) {
    if (c->fd >= 0) close(c->fd);
    str_free(&c->in);
    str_free(&c->out);
    c->fd = -1;
    c->taken = 0;
}

static bool later(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOTCONN;
}

/* Nothing more goes out; what came is still there to be read, and behind it an end. */
static void stop_sending(Conn *c) {
    shutdown(c->fd, SHUT_RDWR);
    c->out.n = 0;
}

void conn_flush(Conn *c) {
    size_t sent = 0;
    while (conn_pending(c) && sent < c->out.n) {
        ssize_t n = send(c->fd, c->out.at + sent, c->out.n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && later()) break;
        if (n < 0) {
            stop_sending(c);
            return;
        }
        sent += (size_t)n;
    }
    if (sent == 0) return;
    memmove(c->out.at, c->out.at + sent, c->out.n - sent);
    c->out.n -= sent;
}

void conn_put(Conn *c, uint32_t type, const void *head, size_t nhead, const void *body, size_t n) {
    uint32_t header[2] = {type, (uint32_t)(nhead + n)};
    if (c->fd < 0 || c->lost) return;
    str_put_n(&c->out, (const char *)header, HEADER);
    if (nhead) str_put_n(&c->out, head, nhead);
    if (n) str_put_n(&c->out, body, n);
    if (c->out.failed) c->lost = true; /* half a frame would be taken for another */
    conn_flush(c);
}

void conn_fill(Conn *c, size_t limit) {
    if (c->taken) { /* frames that were taken make room */
        memmove(c->in.at, c->in.at + c->taken, c->in.n - c->taken);
        c->in.n -= c->taken;
        c->taken = 0;
    }
    while (c->fd >= 0 && !c->lost && c->in.n < HEADER + limit) {
        if (!str_room(&c->in, PIECE)) {
            c->lost = true;
            return;
        }
        ssize_t n = recv(c->fd, c->in.at + c->in.n, PIECE, MSG_DONTWAIT);
        if (n < 0 && later()) return;
        if (n <= 0)
            c->lost = true;
        else
            c->in.n += (size_t)n;
    }
}

bool conn_next(Conn *c, size_t limit, ConnFrame *out) {
    uint32_t header[2];
    size_t there = c->in.n - c->taken;
    if (there < HEADER) return false;
    memcpy(header, c->in.at + c->taken, HEADER);
    if (header[1] > limit) {
        c->lost = true;
        c->taken = c->in.n;
        return false;
    }
    if (there - HEADER < header[1]) return false;
    *out = (ConnFrame){header[0], header[1], c->in.at + c->taken + HEADER};
    c->taken += HEADER + header[1];
    return true;
}
