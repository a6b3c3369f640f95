/* Frames between two ends of a socket. */
#include "run/job/conn.h"
#include "run/job/rendezvous.h"
#include "test.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT = 64 };

static Alloc alloc = {.fail_in = -1};

static void open_pair(Conn *a, Conn *b) {
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) != 0) abort();
    conn_init(a, &alloc, fd[0]);
    conn_init(b, &alloc, fd[1]);
}

static void close_pair(Conn *a, Conn *b) {
    conn_close(a);
    conn_close(b);
    CHECK(alloc.live == 0);
}

/* The other side may say why it ends, and end: that is read, though nothing can be sent to it. */
static void test_last_words(void) {
    Conn a, b;
    ConnFrame f;
    open_pair(&a, &b);
    conn_put(&b, 7, "why", 3, NULL, 0);
    conn_close(&b);
    conn_put(&a, 1, "hello", 5, NULL, 0);
    CHECK(!conn_pending(&a));
    conn_fill(&a, LIMIT);
    CHECK(conn_next(&a, LIMIT, &f) && f.type == 7 && f.bytes == 3 && memcmp(f.body, "why", 3) == 0);
    CHECK(!conn_next(&a, LIMIT, &f) && a.lost);
    close_pair(&a, &b);
}

/* A stranger sends without end: it is read no further than a frame goes. */
static void test_flood(void) {
    static char bytes[1 << 16];
    Conn a, b;
    ConnFrame f;
    open_pair(&a, &b);
    memset(bytes, 1, sizeof bytes);
    CHECK(send(b.fd, bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes);
    conn_fill(&a, LIMIT);
    CHECKF(a.in.n < sizeof bytes / 2, "%zu bytes", a.in.n);
    CHECK(!conn_next(&a, LIMIT, &f) && a.lost);
    close_pair(&a, &b);
}

/* Frames that come together are all taken, one that is not whole once it is. */
static void test_frames(void) {
    uint32_t header[2] = {9, 4};
    Conn a, b;
    ConnFrame f;
    open_pair(&a, &b);
    for (uint32_t i = 1; i <= 3; i++) conn_put(&b, i, "ab", 2, "cd", 2);
    CHECK(send(b.fd, header, sizeof header, 0) == sizeof header);
    conn_fill(&a, LIMIT);
    for (uint32_t i = 1; i <= 3; i++)
        CHECK(conn_next(&a, LIMIT, &f) && f.type == i && memcmp(f.body, "abcd", 4) == 0);
    CHECK(!conn_next(&a, LIMIT, &f) && !a.lost);
    CHECK(send(b.fd, "last", 4, 0) == 4);
    conn_fill(&a, LIMIT);
    CHECK(conn_next(&a, LIMIT, &f) && f.type == 9 && memcmp(f.body, "last", 4) == 0);
    close_pair(&a, &b);
}

/* Where nobody waits a socket may meet itself. */
static void test_itself(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&at, n) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &n) == 0);
    CHECK(connect(fd, (struct sockaddr *)&at, n) == 0);
    CHECK(rendezvous_connected(fd) == -1);
    close(fd);
}

int main(void) {
    test_last_words();
    test_flood();
    test_frames();
    test_itself();
    return test_end();
}
