/* stranger.c - a process of a job without MPI, and those who would like to be one: for
 * stranger_spec.lua.
 *   stranger job RANK WORLD HOST PORT SECONDS JOB   joins as the program does; says "joined"
 *   stranger ATTACK HOST PORT                       goes on until it is killed
 * They know the protocol and not the secret. */
#include "base/map.h"
#include "run/job/channel_inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TICK_US = 1000,
    SWARM = 600,
    FRAME = 2 * sizeof(uint32_t),
    CHALLENGE = FRAME + SECRET_NONCE
};
enum { WORLD = 3, SAID = FRAME + sizeof(Hello) + SECRET_MAC };

/* ---- an honest process ---- */

static int join(char **arg) {
    Ctx cx;
    Channel *c = NULL;
    Ranks r = {.rank = atoi(arg[0]), .world = atoi(arg[1])};
    ChannelOptions o = {.timeout = atoi(arg[4]), .name = "train.lua", .version = "0.1.0"};
    ctx_init(&cx);
    o.meet.port = atoi(arg[3]);
    o.meet.token = hash_str(0, arg[5]);
    snprintf(o.meet.hosts, sizeof o.meet.hosts, "%s", arg[2]);
    Err err = secret_open(&cx, &o.secret);
    if (!err) err = channel_open(&cx, &r, &o, &c);
    if (!err) err = channel_join(&cx, c, 60);
    if (err) {
        fprintf(stderr, "meshlua: %s\n", cx.err.text);
        return 3;
    }
    puts("joined");
    fflush(stdout);
    usleep(200 * TICK_US);
    channel_close(&cx, c);
    return 0;
}

/* ---- connections ---- */

static struct sockaddr_in target;

static int connect_to_target(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd >= 0) connect(fd, (struct sockaddr *)&target, sizeof target);
    return fd;
}

/* Does not wait, and does not care. */
static void put(int fd, const void *bytes, size_t n) {
    ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

static void put_frame(int fd, uint32_t type, const void *body, uint32_t n) {
    char bytes[FRAME + HELLO_MOST];
    memcpy(bytes, &(uint32_t[2]){type, n}, FRAME);
    if (n) memcpy(bytes + FRAME, body, n);
    put(fd, bytes, FRAME + n);
}

/* Waits for that many bytes; false: they do not come. */
static bool get(int fd, void *to, size_t n) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (size_t got = 0; got < n;) {
        if (poll(&p, 1, 500) != 1) return false;
        ssize_t k = recv(fd, (char *)to + got, n - got, 0);
        if (k <= 0) return false;
        got += (size_t)k;
    }
    return true;
}

static void draw(void *to, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint8_t *)to)[i] = (uint8_t)rand();
}

static Hello hello_of(int32_t rank) {
    Hello h = {.magic = "meshlua", .token = hash_str(0, "a"), .rank = rank, .world = WORLD};
    draw(h.nonce, sizeof h.nonce);
    snprintf(h.version, sizeof h.version, "0.1.0");
    return h;
}

/* ---- one connection after the other ---- */

typedef void Word(int fd, int k, const char *challenge);

static void forged(int fd, int k, const char *challenge) {
    Hello h = hello_of(k % WORLD);
    char said[sizeof h + SECRET_MAC];
    (void)challenge;
    draw(said, sizeof said);
    memcpy(said, &h, sizeof h);
    put_frame(fd, FRAME_HELLO, said, sizeof said);
}

/* What it knows, back: the nonce as a proof, rank 0's words as its own. */
static void reflected(int fd, int k, const char *challenge) {
    Hello h = hello_of(k % WORLD);
    char said[sizeof h + SECRET_MAC];
    memcpy(h.nonce, challenge + FRAME, SECRET_NONCE);
    memcpy(said, &h, sizeof h);
    memcpy(said + sizeof h, challenge + FRAME, SECRET_MAC);
    if (k % 2) put(fd, challenge, CHALLENGE);
    put_frame(fd, k % 4 == 2 ? FRAME_PROOF : FRAME_HELLO, said, sizeof said);
}

static void truncated(int fd, int k, const char *challenge) {
    struct linger reset = {.l_onoff = 1};
    Hello h = hello_of(k % WORLD);
    (void)challenge;
    put(fd, &(uint32_t[2]){FRAME_HELLO, SAID - FRAME}, FRAME);
    put(fd, &h, (size_t)k % sizeof h);
    if (k % 2) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (k % 3 == 0) shutdown(fd, SHUT_WR);
}

static void huge(int fd, int k, const char *challenge) {
    static char bytes[1 << 20];
    uint32_t n = k % 2 ? UINT32_MAX : HELLO_MOST;
    (void)challenge;
    put(fd, &(uint32_t[2]){FRAME_HELLO, n}, FRAME);
    for (int i = 0; i < 8; i++) put(fd, bytes, sizeof bytes);
}

static void garbage(int fd, int k, const char *challenge) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n", tls[] = "\x16\x03\x01\x02";
    char bytes[900];
    (void)challenge;
    draw(bytes, sizeof bytes);
    if (k % 3 == 0) put(fd, http, sizeof http - 1);
    if (k % 3 == 1) put(fd, tls, sizeof tls - 1);
    put(fd, bytes, (size_t)(k * 37) % sizeof bytes);
}

/* Ends, texts and failures of somebody who was never let in. */
static void orders(int fd, int k, const char *challenge) {
    static const uint32_t type[] = {FRAME_END, FRAME_FAIL, FRAME_BYE, FRAME_TEXT, FRAME_WELCOME};
    char body[8] = {0};
    (void)challenge;
    put_frame(fd, type[k % 5], body, sizeof body / 2 * (1 + (uint32_t)k % 2));
}

static void repeat(Word *say) {
    for (int k = 0;; k++) {
        char challenge[CHALLENGE], rest[64];
        int fd = connect_to_target();
        if (get(fd, challenge, sizeof challenge)) {
            say(fd, k, challenge);
            if (say != truncated) get(fd, rest, sizeof rest);
        } else {
            usleep(TICK_US);
        }
        close(fd);
    }
}

/* ---- many connections at once ---- */

/* A byte now and then, of a frame that is announced and never ends; or, of the silent, none. */
static void swarm(bool silent) {
    static int fd[SWARM];
    for (int i = 0; i < SWARM; i++) fd[i] = -1;
    for (int tick = 0;; tick++, usleep(TICK_US))
        for (int i = 0; i < SWARM; i++) {
            char bytes[CHALLENGE];
            ssize_t n = fd[i] < 0 ? 0 : recv(fd[i], bytes, sizeof bytes, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN)) {
                if (fd[i] >= 0) close(fd[i]);
                fd[i] = connect_to_target();
            } else if (n > 0 && !silent) {
                put(fd[i], &(uint32_t[2]){FRAME_HELLO, SAID - FRAME}, FRAME);
            } else if (!silent && (tick + i) % 20 == 0) {
                put(fd[i], "m", 1);
            }
        }
}

static void flood(void) {
    for (;;) {
        int fd[64];
        for (int i = 0; i < 64; i++) fd[i] = connect_to_target();
        for (int i = 0; i < 64; i++) close(fd[i]);
    }
}

/* ---- in rank 0's place ---- */

static int wait_for_guests(int at) {
    struct sockaddr_in own = target;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    own.sin_addr.s_addr = htonl(INADDR_ANY);
    own.sin_port = htons((uint16_t)(ntohs(own.sin_port) + at));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0 || listen(fd, 64) != 0) exit(1);
    return fd;
}

/* Plays rank 0 to the next guest: orders it to end, or takes what it says and returns its own proof
 * to it. */
static bool play_hub(int listener, bool order, const char *challenge, char said[SAID]) {
    int32_t code = 0;
    int fd = accept(listener, NULL, NULL);
    if (order) put_frame(fd, FRAME_END, &code, sizeof code);
    put(fd, challenge, CHALLENGE);
    bool heard = get(fd, said, SAID);
    if (heard) {
        put_frame(fd, FRAME_PROOF, said + SAID - SECRET_MAC, SECRET_MAC);
        put_frame(fd, FRAME_WELCOME, NULL, 0);
        put_frame(fd, FRAME_END, &code, sizeof code);
        usleep(10 * TICK_US);
    }
    close(fd);
    return heard;
}

static void early(void) {
    char challenge[CHALLENGE] = {0}, said[SAID];
    memcpy(challenge, (uint32_t[2]){FRAME_CHALLENGE, SECRET_NONCE}, FRAME);
    int listener = wait_for_guests(0);
    for (int k = 0;; k++) play_hub(listener, k % 2, challenge, said);
}

/* One who meets at the port behind the true one answers what rank 0 asked somebody else, and that
 * goes to rank 0 on other connections. */
static char recorded[SAID];

static void replay(int fd, int k, const char *challenge) {
    (void)k, (void)challenge;
    put(fd, recorded, sizeof recorded);
}

static void replay_recorded(void) {
    int listener = wait_for_guests(1), fd = -1;
    char challenge[CHALLENGE];
    do {
        close(fd);
        fd = connect_to_target();
    } while (!get(fd, challenge, sizeof challenge));
    close(fd);
    while (!play_hub(listener, false, challenge, recorded)) {}
    if (fork() == 0)
        for (char again[SAID];;) play_hub(listener, false, challenge, again);
    repeat(replay);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        Word *say;
    } words[] = {{"forged", forged}, {"reflected", reflected}, {"truncated", truncated},
                 {"huge", huge},     {"garbage", garbage},     {"orders", orders}};
    if (argc == 8 && strcmp(argv[1], "job") == 0) return join(argv + 2);
    if (argc != 4) return 2;
    target =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    inet_pton(AF_INET, argv[2], &target.sin_addr);
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(argv[1], words[i].name) == 0) repeat(words[i].say);
    if (strcmp(argv[1], "slow") == 0) swarm(false);
    if (strcmp(argv[1], "silent") == 0) swarm(true);
    if (strcmp(argv[1], "many") == 0) flood();
    if (strcmp(argv[1], "early") == 0) early();
    if (strcmp(argv[1], "replay") == 0) replay_recorded();
    return 2;
}
