/* conn.h - a socket that carries frames: a type, a length, that many bytes. Nothing here waits. */
#ifndef MESHLUA_RUN_JOB_CONN_H
#define MESHLUA_RUN_JOB_CONN_H

#include "base/str.h"

typedef struct Conn {
    int fd; /* -1: none */
    bool lost;
    Str in, out;
    size_t taken; /* of `in` */
} Conn;

typedef struct ConnFrame {
    uint32_t type, bytes;
    const char *body; /* until the next call for this connection */
} ConnFrame;

/* Takes the socket. */
void conn_init(Conn *c, Alloc *alloc, int fd);
void conn_close(Conn *c);
/* Sends a frame of two parts, or what goes now; the rest with conn_flush. */
void conn_put(Conn *c, uint32_t type, const void *head, size_t nhead, const void *body, size_t n);
void conn_flush(Conn *c);
static inline bool conn_pending(const Conn *c) {
    return c->fd >= 0 && !c->lost && c->out.n > 0;
}
/* Reads what is there, up to about a frame of `limit` bytes: the other side does not say how much
 * memory it takes. At an end or a failure the connection is lost; what came before is still there
 * to be taken. */
void conn_fill(Conn *c, size_t limit);
/* The next whole frame; one of more than `limit` bytes loses the connection. */
bool conn_next(Conn *c, size_t limit, ConnFrame *out);

#endif
