/* Processes of one job, forked, without MPI: who joins, who is missing, who fails, is killed or
 * stops, and what is said of it. All scenarios run at once, as most of their time is waiting. */
#include "run/job/channel_inside.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5, TEXT = 1 << 14, LIMIT_MS = 15000, STILL = -1 };

typedef struct Scenario Scenario;
typedef void Play(const Scenario *s, int rank, Ctx *cx, Channel *c);

struct Scenario {
    const char *name;
    int world;
    int rank[MOST], n;                /* the processes that start, in this order; n of them */
    int timeout, notice_ms, later_ms; /* notice: 0: as it is; so much later by rank 2 */
    int join;                         /* they wait so long for each other, where that is given */
    Play *play;                       /* once all have joined */
    int odd;                          /* the rank that the play is about */
    bool tcp, stranger;               /* they meet over TCP; someone else knocks first */
    bool silent;         /* someone else comes first, says nothing, and stays until he is put out */
    bool crowd;          /* so many do that rank 0 has no file left */
    bool knocks;         /* another user does, and nobody else; only root can be one */
    bool squatter;       /* another user's program waits where rank 0 should; only root can tell */
    int code[MOST];      /* that each ends with; STILL: it stops and is killed by the test */
    const char *says[4]; /* what is in the text, */
    const char *but_not; /* and what is not */
    bool twice;          /* it is said twice, not once */
    int least_ms, most_ms;
    /* while it runs */
    pid_t pid[MOST];
    int status[MOST];
    bool over[MOST];
    int told[2]; /* a pipe: where rank 0 is, as MPI would tell it */
    char file[64];
    int64_t start, end;
};

static const ExchangeInfo crossing = {
    .op = "all_reduce", .where = "train.lua:41", .axes = "data", .bytes = 4 << 20};

static void pause_ms(int ms) {
    usleep((useconds_t)ms * 1000);
}

/* Once it has left an exchange, waits in the next. */
static void wait_in_exchange(Channel *c, int ms) {
    flight_log_enter(channel_flight_log(c), &crossing);
    flight_log_leave(channel_flight_log(c));
    flight_log_enter(channel_flight_log(c), &crossing);
    pause_ms(ms);
}

/* ---- plays ---- */

static void talk(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    char mine[32], *texts[MOST] = {NULL};
    for (int round = 0; round < 3; round++) {
        snprintf(mine, sizeof mine, "%d of rank %d", round, rank);
        if (channel_gather(cx, c, mine, 5, texts)) _exit(40);
        for (int i = 0; rank == 0 && i < s->world; i++) {
            char expect[32];
            snprintf(expect, sizeof expect, "%d of rank %d", round, i);
            if (!texts[i] || strcmp(texts[i], expect) != 0) _exit(41);
        }
        channel_free_texts(cx, c, texts);
        Str all;
        str_init(&all, &cx->alloc);
        if (channel_share(cx, c, rank == 0 ? mine : NULL, 5, &all)) _exit(42);
        snprintf(mine, sizeof mine, "%d of rank 0", round);
        if (strcmp(str_of(&all), mine) != 0) _exit(43);
        str_free(&all);
    }
}

/* One does not say anything: rank 0 gets the texts of the others. */
static void talk_but_one(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    char *texts[MOST] = {NULL};
    if (rank == s->odd) pause_ms(1500);
    if (rank != s->odd && channel_gather(cx, c, "here", 1, texts)) _exit(40);
    for (int i = 0; rank == 0 && i < s->world; i++)
        if ((texts[i] == NULL) != (i == s->odd)) _exit(41);
    channel_free_texts(cx, c, texts);
}

/* Nothing comes from rank 0. */
static void hear_nothing(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    Str all;
    (void)s;
    pause_ms(rank == 0 ? 1500 : 0);
    if (rank == 0) return;
    str_init(&all, &cx->alloc);
    if (channel_share(cx, c, NULL, 1, &all) != E_RANKS || all.n) _exit(42);
    if (!strstr(cx->err.text, "nothing came from rank 0 within 1 s")) _exit(43);
}

static void fail(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    (void)cx;
    if (rank == s->odd || s->odd < 0) channel_fail(c, 7, "train.lua:4: no room");
    wait_in_exchange(c, LIMIT_MS);
}

static void die(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    (void)cx;
    if (rank == s->odd) {
        pause_ms(300);
        raise(SIGKILL);
    }
    wait_in_exchange(c, LIMIT_MS);
}

static void stop(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    (void)cx;
    if (rank == s->odd) raise(SIGSTOP);
    wait_in_exchange(c, LIMIT_MS);
}

static void compute(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    (void)cx;
    if (rank == s->odd) {
        flight_log_enter(channel_flight_log(c), &crossing);
        flight_log_leave(channel_flight_log(c));
        pause_ms(LIMIT_MS);
    }
    wait_in_exchange(c, LIMIT_MS);
}

/* The others may take their time as long as they answer; what is asked meanwhile is no text. */
static void be_patient(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    ExchangeInfo end = crossing;
    end.patient = true;
    if (rank != s->odd) flight_log_enter(channel_flight_log(c), &end);
    pause_ms(3000);
    if (rank != s->odd) flight_log_leave(channel_flight_log(c));
    talk(s, rank, cx, c);
}

/* All but one wait for it, twice. */
static void wait_twice(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    static const int ms[] = {4000, 2200};
    (void)cx;
    for (int i = 0; i < 2; i++) {
        if (rank != s->odd) flight_log_enter(channel_flight_log(c), &crossing);
        pause_ms(ms[i]);
        if (rank != s->odd) flight_log_leave(channel_flight_log(c));
    }
}

static void leave_at_once(const Scenario *s, int rank, Ctx *cx, Channel *c) {
    (void)s, (void)rank, (void)cx, (void)c;
}

static Scenario scenarios[] = {
    {.name = "talk", .world = 4, .rank = {3, 2, 1, 0}, .n = 4, .timeout = 10, .play = talk},
    {.name = "talk over TCP",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .play = talk,
     .tcp = true},
    {.name = "a stranger",
     .world = 2,
     .rank = {0, 1},
     .n = 2,
     .timeout = 10,
     .play = talk,
     .tcp = true,
     .stranger = true},
    {.name = "a silent stranger",
     .world = 2,
     .rank = {0, 1},
     .n = 2,
     .timeout = 12,
     .play = talk,
     .tcp = true,
     .silent = true},
    {.name = "no file is left",
     .world = 2,
     .rank = {0, 1},
     .n = 2,
     .timeout = 10,
     .play = talk,
     .tcp = true,
     .crowd = true,
     .most_ms = 3000}, /* less than a guest has to prove who he is */
    {.name = "a program of another user",
     .world = 2,
     .rank = {1},
     .n = 1,
     .timeout = 1,
     .squatter = true,
     .code = {3},
     .says = {"meshlua: [E_RANKS] rank 1: a program of another user waits where rank 0 should "}},
    {.name = "one is silent",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .play = talk_but_one,
     .odd = 1},
    {.name = "rank 0 is silent",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .play = hear_nothing},
    {.name = "another user knocks",
     .world = 2,
     .rank = {0, 1},
     .n = 2,
     .timeout = 1,
     .knocks = true,
     .code = {3, 0},
     .says = {"rank 1 did not start within 1 s (--timeout); turned away: uid 1, another user\n"}},
    {.name = "an end", .world = 3, .rank = {0, 1, 2}, .n = 3, .timeout = 10, .play = leave_at_once},
    {.name = "two are missing",
     .world = 4,
     .rank = {0, 2},
     .n = 2,
     .timeout = 1,
     .code = {3, 3},
     .says = {"meshlua: [E_RANKS] ranks 1, 3 did not start within 1 s (--timeout)\n"},
     .but_not = "rank 2"},
    {.name = "rank 0 is missing",
     .world = 2,
     .rank = {1},
     .n = 1,
     .timeout = 1,
     .code = {3},
     .says = {"meshlua: [E_RANKS] rank 1: rank 0 did not start (@meshlua-test"}},
    {.name = "one comes twice",
     .world = 3,
     .rank = {1, 0, 1},
     .n = 3,
     .timeout = 10,
     .code = {3, 3, 3},
     .says = {"meshlua: [E_RANKS] two processes say that they are rank 1: "},
     .most_ms = 2000},
    {.name = "rank 0 comes twice",
     .world = 2,
     .rank = {0, 0},
     .n = 2,
     .timeout = 10,
     .code = {3, 3},
     .says = {"meshlua: [E_RANKS] two processes say that they are rank 0: "},
     .most_ms = 2000},
    {.name = "another version",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .odd = 2,
     .code = {3, 3, 3},
     .says = {"meshlua: [E_RANKS] rank 2 (", ") runs meshlua 0.0.9, and rank 0 ("}},
    {.name = "another script",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .odd = 1,
     .code = {3, 3, 3},
     .says = {"[E_RANKS] rank 1 (", " runs another script than rank 0 (",
              "old.lua and train.lua\n"}},
    /* alone with rank 0: who comes behind it would find nobody there */
    {.name = "another number of processes",
     .world = 3,
     .rank = {0, 1},
     .n = 2,
     .timeout = 10,
     .odd = 1,
     .code = {3, 3},
     .says = {"meshlua: [E_RANKS] a process on ", " says rank 1 of 5, but rank 0 on ",
              " is one of 3\n"},
     .most_ms = 4000},
    {.name = "only a stranger",
     .world = 2,
     .rank = {0, 1},
     .n = 2,
     .timeout = 2,
     .tcp = true,
     .stranger = true,
     .code = {3, 0},
     .says =
         {"rank 1 did not start within 2 s (--timeout); turned away: ",
          ", which says that it is rank 1 and has a secret (MESHLUA_SECRET), where rank 0 has none",
          " connections in all)\n"}},
    {.name = "another secret",
     .world = 2,
     .rank = {0, 1},
     .n = 2,
     .timeout = 2,
     .odd = 1,
     .code = {3, 3},
     .says =
         {"rank 1 did not start within 2 s (--timeout); turned away: a process of this user, "
          "which says that it is rank 1 and has a secret (MESHLUA_SECRET), where rank 0 has none",
          "rank 1: rank 0 turned this process away: have both the same secret (MESHLUA_SECRET)?"},
     .twice = true},
    {.name = "nobody comes while it is waited for",
     .world = 3,
     .rank = {0},
     .n = 1,
     .timeout = 10,
     .join = 1,
     .code = {49},
     .says = {"ranks 1, 2 did not start within 1 s\n"},
     .most_ms = 4000},
    {.name = "rank 0 does not come while it is waited for",
     .world = 2,
     .rank = {1},
     .n = 1,
     .timeout = 10,
     .join = 1,
     .code = {49},
     .says = {"rank 0 was not found within 1 s\n"},
     .most_ms = 4000},
    {.name = "one fails",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .play = fail,
     .odd = 2,
     .code = {7, 7, 7},
     .says = {"meshlua: rank 2: train.lua:4: no room\n"},
     .but_not = "gone",
     .most_ms = 2000},
    {.name = "all fail",
     .world = 3,
     .rank = {2, 1, 0},
     .n = 3,
     .timeout = 10,
     .play = fail,
     .odd = -1,
     .code = {7, 7, 7},
     .says = {"train.lua:4: no room\n"},
     .but_not = "rank",
     .most_ms = 2000},
    {.name = "one is killed",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .play = die,
     .odd = 1,
     .code = {137, -SIGKILL, 137},
     .says = {"meshlua: rank 1 is gone without a word", "\n  ranks 0, 2 wait since ",
              " s in all_reduce over data, train.lua:41 (exchange 2)\n"},
     .but_not = "latest exchanges",
     .least_ms = 3000,
     .most_ms = 5000},
    {.name = "rank 0 is killed",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .play = die,
     .odd = 0,
     .code = {-SIGKILL, 137, 137},
     .says = {"meshlua: rank 0 is gone without a word", "; rank 1 waits since ",
              " s in all_reduce over data, train.lua:41 (exchange 2)\n"},
     .most_ms = 5000},
    {.name = "one stops",
     .world = 4,
     .rank = {0, 1, 2, 3},
     .n = 4,
     .timeout = 1,
     .play = stop,
     .odd = 2,
     .code = {5, 5, STILL, 5},
     .says = {"meshlua: rank 2 does not answer (stopped, or its host is lost); rank ",
              "\n  ranks 0, 1, 3 wait since ",
              " s in all_reduce over data, train.lua:41 (exchange 2)\n"},
     .most_ms = 4000},
    {.name = "rank 0 stops",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 1,
     .play = stop,
     .odd = 0,
     .code = {STILL, 5, 5},
     .says = {"meshlua: rank 0 does not answer (stopped, or its host is lost); rank 1 waits since ",
              " s in all_reduce over data, train.lua:41 (exchange 2)\n"},
     .most_ms = 6000},
    {.name = "one computes",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 1,
     .play = compute,
     .odd = 1,
     .code = {5, 5, 5},
     .says = {"meshlua: rank 1 computes since ",
              " s, last left all_reduce over data, train.lua:41 (exchange 1); rank ",
              "\n  the latest exchanges of rank 1, with what came and how long it waited:",
              "\n  1 s are the limit (--timeout)\n"},
     .but_not = "answer",
     .most_ms = 3000},
    {.name = "patience",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 1,
     .play = be_patient,
     .odd = 1},
    {.name = "patience without a word",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .notice_ms = 600,
     .play = be_patient,
     .odd = 0},
    /* Rank 2 asks where all stand when it was said long ago; the next wait is another. */
    {.name = "two notices",
     .world = 3,
     .rank = {0, 1, 2},
     .n = 3,
     .timeout = 10,
     .notice_ms = 600,
     .later_ms = 1900,
     .play = wait_twice,
     .odd = 1,
     .says = {"meshlua: waiting: rank 1 computes; rank 0 waits since ", "(exchange 1)",
              "(exchange 2)"},
     .but_not = "limit",
     .twice = true},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* ---- running them ---- */

static int connect_to_hub(const Rendezvous *m) {
    int fd = rendezvous_connect(m, 0);
    for (int i = 0; i < 1000 && rendezvous_connected(fd) == 0; i++) pause_ms(1);
    return fd;
}

/* Rank 0 says its challenge, and ends it in the end. */
static void say_nothing(const Rendezvous *m) {
    struct pollfd p = {.fd = connect_to_hub(m), .events = POLLIN};
    char bytes[256];
    while (poll(&p, 1, 8000) == 1)
        if (recv(p.fd, bytes, sizeof bytes, 0) <= 0) return;
    _exit(51);
}

/* More than rank 0 can have open: the rest wait at its door, and this process behind them. */
static void come_in_crowds(const Rendezvous *m) {
    for (int i = 0; i < 24; i++) connect_to_hub(m);
}

static void limit_files(void) {
    int next = dup(0);
    struct rlimit l = {.rlim_cur = (rlim_t)next + 8, .rlim_max = (rlim_t)next + 8};
    if (setrlimit(RLIMIT_NOFILE, &l) != 0) _exit(52);
    close(next);
}

static void squat(Rendezvous *m) {
    char error[HOST_TEXT];
    bool taken;
    if (fork() > 0) {
        pause_ms(100);
        return;
    }
    if (setuid(1) != 0) _exit(0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of the user takes it back */
    if (rendezvous_listen(m, &taken, error, sizeof error) >= 0) pause_ms(LIMIT_MS);
    _exit(0);
}

static void say_to_hub(const Rendezvous *m, const void *bytes, size_t n) {
    int fd = connect_to_hub(m);
    if (send(fd, bytes, n, MSG_NOSIGNAL) < 0) _exit(45);
}

/* Both stay: a port scanner, say, that says something else; and one who knows what a rank says, but
 * not the secret. */
static void knock(const Rendezvous *m) {
    struct {
        uint32_t type, n;
        Hello hello;
        char mac[SECRET_MAC];
    } forged = {FRAME_HELLO,
                sizeof(Hello) + SECRET_MAC,
                {.magic = "meshlua", .token = m->token, .rank = 1, .world = 2, .version = "0.1.0"},
                "made up"};
    char bytes[600];
    memset(bytes, 'x', sizeof bytes);
    say_to_hub(m, bytes, sizeof bytes);
    for (uint32_t n = 0; n <= 40; n += 8) { /* a hello too short for its proof, or for anything */
        uint32_t frame[12] = {FRAME_HELLO, n};
        say_to_hub(m, frame, 8 + n);
    }
    _Static_assert(offsetof(__typeof__(forged), mac) == 8 + sizeof(Hello), "a frame");
    say_to_hub(m, &forged, sizeof forged);
}

static void run_process(Scenario *s, int i) {
    Ctx cx;
    Channel *c;
    int rank = s->rank[i], out = open(s->file, O_WRONLY | O_APPEND);
    bool odd = rank == s->odd;
    Ranks r = {.world = s->world, .rank = rank};
    ChannelOptions o = {.timeout = s->timeout,
                        .script = 7,
                        .name = "train.lua",
                        .version = "0.1.0",
                        .meet = {.token = 5}};
    ctx_init(&cx);
    if (odd && strcmp(s->name, "another secret") == 0)
        setenv("MESHLUA_SECRET", "0123456789abcdef0123456789abcdef", 1);
    if (secret_open(&cx, &o.secret)) _exit(44);
    dup2(out, STDERR_FILENO);
    pause_ms(20 * i);
    if (odd && strcmp(s->name, "another number of processes") == 0) r.world = 5;
    if (odd && strcmp(s->name, "another version") == 0) o.version = "0.0.9";
    if (odd && strcmp(s->name, "another script") == 0) o.script = 8, o.name = "old.lua";
    if (!s->tcp)
        snprintf(o.meet.hosts, sizeof o.meet.hosts, "@meshlua-test-%d-%d", (int)getppid(),
                 (int)(s - scenarios));
    else if (rank > 0 && read(s->told[0], &o.meet, sizeof o.meet) != sizeof o.meet)
        _exit(46);
    if (rank > 0 && s->stranger) knock(&o.meet);
    if (rank > 0 && strcmp(s->name, "only a stranger") == 0) {
        pause_ms(500);
        _exit(0);
    }
    if (rank > 0 && s->silent) say_nothing(&o.meet);
    if (rank > 0 && s->crowd) come_in_crowds(&o.meet);
    if (rank == 0 && s->crowd) limit_files();
    if (rank > 0 && s->knocks) {
        if (geteuid() != 0 || setuid(1) == 0) connect_to_hub(&o.meet);
        _exit(0);
    }
    if (rank > 0 && s->squatter && geteuid() == 0) squat(&o.meet);
    if (channel_open(&cx, &r, &o, &c)) _exit(47);
    for (int k = 1; s->tcp && rank == 0 && k < s->world; k++)
        if (write(s->told[1], channel_meet(c), sizeof o.meet) != sizeof o.meet) _exit(48);
    pthread_mutex_lock(&c->lock);
    int notice = s->notice_ms + (rank == 2 ? s->later_ms : 0);
    if (notice) c->notice = notice * (SECOND / 1000);
    pthread_mutex_unlock(&c->lock);
    if (channel_join(&cx, c, s->join ? s->join : 60)) {
        fprintf(stderr, "%s\n", cx.err.text);
        _exit(49);
    }
    if (s->play) s->play(s, rank, &cx, c);
    channel_close(&cx, c);
    _exit(cx.alloc.live ? 50 : 0);
}

static void start(Scenario *s) {
    if (s->squatter && geteuid() != 0) s->says[0] = "rank 0 did not start";
    if (s->knocks && geteuid() != 0) s->says[0] = "which did not prove to be of this job";
    snprintf(s->file, sizeof s->file, "/tmp/meshlua-channel-XXXXXX");
    close(mkstemp(s->file));
    if (pipe(s->told) != 0) abort();
    s->start = flight_log_now();
    for (int i = 0; i < s->n; i++)
        if ((s->pid[i] = fork()) == 0) run_process(s, i);
}

/* Have all ended but those that are not expected to? */
static bool collect(Scenario *s) {
    bool all = true;
    for (int i = 0; i < s->n; i++) {
        if (!s->over[i] && s->code[i] != STILL)
            s->over[i] = waitpid(s->pid[i], &s->status[i], WNOHANG) == s->pid[i];
        all = all && (s->over[i] || s->code[i] == STILL);
    }
    if (all && !s->end) s->end = flight_log_now();
    return all;
}

static void check(Scenario *s) {
    char text[TEXT] = "";
    int ms = (int)((s->end - s->start) / 1000000), fd = open(s->file, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0);
    close(fd);
    unlink(s->file);
    for (int i = 0; i < s->n; i++) {
        if (!s->over[i]) {
            kill(s->pid[i], SIGKILL);
            waitpid(s->pid[i], &s->status[i], 0);
            CHECKF(s->code[i] == STILL, "%s: rank %d did not end", s->name, s->rank[i]);
            continue;
        }
        int status = s->status[i];
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        CHECKF(code == s->code[i], "%s: rank %d ended with %d: %s", s->name, s->rank[i], code,
               text);
    }
    for (int k = 0; k < 4 && s->says[k]; k++)
        CHECKF(strstr(text, s->says[k]), "%s: it does not say \"%s\": %s", s->name, s->says[k],
               text);
    CHECKF(s->says[0] || !text[0], "%s: %s", s->name, text);
    CHECKF(!s->but_not || !strstr(text, s->but_not), "%s: %s", s->name, text);
    CHECKF(ms >= s->least_ms && (!s->most_ms || ms <= s->most_ms), "%s: %d ms", s->name, ms);
    /* one says it, or those that cannot hear each other, one after the other */
    const char *first = strstr(text, "meshlua: "),
               *second = first ? strstr(first + 1, "meshlua: ") : NULL;
    bool hub_lost = s->odd == 0 && (s->play == stop || s->play == die);
    CHECKF(!second || hub_lost || s->twice, "%s: said twice: %s", s->name, text);
    const char *third = second ? strstr(second + 1, "meshlua: ") : NULL;
    CHECKF(!s->twice || (second && !third), "%s: said otherwise than twice: %s", s->name, text);
}

static void test_scenarios(void) {
    for (int i = 0; i < SCENARIOS; i++) start(&scenarios[i]);
    for (int ms = 0; ms < LIMIT_MS; ms += 10) {
        bool all = true;
        for (int i = 0; i < SCENARIOS; i++) all = collect(&scenarios[i]) && all;
        if (all) break;
        pause_ms(10);
    }
    for (int i = 0; i < SCENARIOS; i++) check(&scenarios[i]);
}

/* ---- the parts ---- */

/* Texts come by number; those before the wanted one are gone, those behind it stay. */
static void test_texts(void) {
    Alloc alloc = {.fail_in = -1};
    Str s;
    size_t n = 0;
    str_init(&s, &alloc);
    CHECK(!channel_find_text(&s, 1, &n));
    for (uint32_t number = 1; number <= 4; number++) {
        uint32_t header[2] = {number == 4 ? 6 : number, 3 + number};
        char text[16];
        snprintf(text, sizeof text, "%u: said.......", number);
        str_put_n(&s, (const char *)header, sizeof header);
        str_put_n(&s, text, header[1]);
    }
    for (int turn = 0; turn < 2; turn++) {
        const char *at = channel_find_text(&s, 2, &n);
        CHECK(at && n == 5 && strncmp(at, "2: sa", n) == 0 && s.n == 3 * 8 + 5 + 6 + 7);
    }
    const char *at = channel_find_text(&s, 3, &n);
    CHECK(at && n == 6 && strncmp(at, "3: sai", n) == 0);
    CHECK(!channel_find_text(&s, 5, &n)); /* not yet */
    at = channel_find_text(&s, 6, &n);
    CHECK(at && n == 7 && s.n == 8 + 7);
    CHECK(!channel_find_text(&s, 7, &n) && s.n == 0);
    str_free(&s);
    CHECK(alloc.live == 0);
}

/* What cannot be opened is not there, and nothing of it is left. */
static void test_open_fails(void) {
    Ctx cx;
    Channel *c = (Channel *)&cx;
    Ranks r = {.world = 2, .rank = 0};
    ChannelOptions o = {.timeout = 1, .name = "train.lua", .version = "0.1.0"};
    ctx_init(&cx);
    snprintf(o.meet.hosts, sizeof o.meet.hosts, "198.51.100.1"); /* of nobody: RFC 5737 */
    CHECK(channel_open(&cx, &r, &o, &c) == E_RANKS && !c && cx.alloc.live == 0);
    CHECKF(strstr(cx.err.text, "no address of this host"), "%s", cx.err.text);
    err_clear(&cx);
    c = (Channel *)&cx;
    cx.alloc.fail_in = 0;
    CHECK(channel_open(&cx, &r, &o, &c) == E_NOMEM && !c && cx.alloc.live == 0);
    cx.alloc.fail_in = -1;
    err_clear(&cx);
    r.world = 1000;
    limit_files();
    CHECK(channel_open(&cx, &r, &o, &c) == E_RANKS && !c && cx.alloc.live == 0);
    CHECKF(strstr(cx.err.text, "files open, which is too few for 1000 processes; raise the limit"),
           "%s", cx.err.text);
}

int main(void) {
    test_texts();
    test_scenarios();
    test_open_fails();
    return test_end();
}
