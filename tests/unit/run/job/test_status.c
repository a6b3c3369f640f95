/* The latest exchanges of a process, and the texts that are made of several processes': word for
 * word, as people read them when a job does not go on. */
#include "run/job/status.h"
#include "test.h"

#include <string.h>
#include <time.h>

enum { SECOND = 1000000000, WORLD = 12 };

static Alloc alloc = {.fail_in = -1};

static void check_text(const char *name, Str *s, const char *want) {
    CHECKF(strcmp(str_of(s), want) == 0, "%s:\n%s\nwanted:\n%s", name, str_of(s), want);
    str_clear(s);
}

/* ---- the log ---- */
static const ExchangeInfo sum = {"all_reduce", "a.lua:1", "data", 100, true};
static const ExchangeInfo move = {"all_gather", "", "", 7, false};

static void test_log(void) {
    FlightLog log;
    FlightLogEntry e[4];
    RankStatus x;
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    CHECK(flight_log_now() / SECOND - clock.tv_sec <= 10);
    CHECK(flight_log_now() / SECOND >= clock.tv_sec);
    flight_log_init(&log);
    CHECK(flight_log_latest(&log, e, 4) == 0);
    status_of(&log, &x);
    CHECK(x.kind == STATUS_COMPUTING && x.n == 0 && x.now > 0);

    flight_log_enter(&log, &sum);
    CHECK(flight_log_latest(&log, e, 0) == 0 && flight_log_latest(&log, e, 4) == 1);
    CHECK(e[0].number == 1 && e[0].enter > 0 && e[0].leave == 0);
    CHECK(e[0].bytes == 100 && e[0].patient && strcmp(e[0].op, "all_reduce") == 0);
    CHECK(strcmp(e[0].axes, "data") == 0 && strcmp(e[0].where, "a.lua:1") == 0);
    status_of(&log, &x);
    CHECK(x.kind == STATUS_WAITING && x.n == 1 && x.now >= e[0].enter);

    flight_log_leave(&log);
    flight_log_leave(&log); /* of nothing */
    CHECK(flight_log_latest(&log, e, 4) == 1 && e[0].leave >= e[0].enter && e[0].enter > 0);
    status_of(&log, &x);
    CHECK(x.kind == STATUS_COMPUTING && x.n == 1);

    /* Two that run on their own: only what is waited for, and what is over, is told. */
    uint64_t a = flight_log_begin(&log, &move), b = flight_log_begin(&log, &sum);
    CHECK(a == 2 && b == 3 && flight_log_latest(&log, e, 4) == 1);
    flight_log_wait(&log, b);
    CHECK(flight_log_latest(&log, e, 4) == 2 && e[0].number == 3 && e[1].number == 1);
    flight_log_over(&log, a); /* nobody waited: it took no time */
    CHECK(flight_log_latest(&log, e, 4) == 3 && e[0].number == 3 && !e[0].leave);
    CHECK(e[1].number == 2 && e[1].enter == e[1].leave && e[1].leave > 0 && !e[1].patient);
    flight_log_rest(&log);
    CHECK(flight_log_latest(&log, e, 4) == 2 && e[0].number == 2);
    flight_log_wait(&log, b);
    int64_t since = log.entry[b].enter;
    flight_log_over(&log, b);
    CHECK(flight_log_latest(&log, e, 4) == 3 && e[0].number == 3 && e[0].enter == since);
    CHECK(log.waiting == 0);

    /* Old ones give way; what they were is not told of those in their place. */
    for (int i = 0; i < FLIGHT_LOG_SIZE; i++) {
        flight_log_enter(&log, &move);
        flight_log_leave(&log);
    }
    flight_log_wait(&log, a);
    CHECK(log.waiting == 0);
    flight_log_over(&log, a);
    a = flight_log_begin(&log, &sum);
    CHECK(!log.entry[a % FLIGHT_LOG_SIZE].enter && !log.entry[a % FLIGHT_LOG_SIZE].leave);
    CHECK(flight_log_latest(&log, e, 4) == 4 && e[0].number == a - 1 && e[3].number == a - 4);
    FlightLogEntry all[FLIGHT_LOG_SIZE + 1];
    CHECK(flight_log_latest(&log, all, FLIGHT_LOG_SIZE + 1) == FLIGHT_LOG_SIZE - 1);

    char name[FLIGHT_LOG_WHERE + 10];
    memset(name, 'w', sizeof name);
    name[sizeof name - 1] = '\0';
    flight_log_enter(&log, &(ExchangeInfo){name, name, name, 0, false});
    CHECK(flight_log_latest(&log, e, 1) == 1);
    CHECK(strlen(e[0].op) == sizeof e[0].op - 1 && strlen(e[0].axes) == sizeof e[0].axes - 1);
    CHECK(strlen(e[0].where) == sizeof e[0].where - 1);
    flight_log_free(&log);
}

/* ---- texts ---- */
static RankStatus waits(uint64_t number, const char *op, const char *axes, const char *where,
                        double seconds) {
    RankStatus x = {.kind = STATUS_WAITING, .n = 1, .now = 1000 * (int64_t)SECOND};
    FlightLogEntry *e = &x.latest[0];
    e->number = number;
    e->enter = x.now - (int64_t)(seconds * SECOND);
    e->bytes = 4 << 20;
    strcpy(e->op, op);
    strcpy(e->axes, axes);
    strcpy(e->where, where);
    return x;
}

static RankStatus computes(uint64_t number, double seconds) {
    RankStatus x = waits(number, "all_reduce", "data", "a.lua:1", seconds + 2);
    x.kind = STATUS_COMPUTING;
    x.latest[0].leave = x.now - (int64_t)(seconds * SECOND);
    return x;
}

static void test_ranks(void) {
    static const struct {
        const char *in, *text;
    } rows[] = {
        {"000000000000", ""},
        {"100000000000", "0"},
        {"111100000001", "0, 1, 2, 3, 11"},
        {"111111110000", "0, 1, 2, 3, 4, 5, 6, 7"},
        {"111111111000", "0-8"},
        {"011111111101", "1-9, 11"},
        {"110111111111", "0-1, 3-11"},
        {"101111111110", "0, 2-10"},
    };
    Str s;
    str_init(&s, &alloc);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t in[WORLD + 1] = {[WORLD] = 1}; /* what lies behind is nobody's */
        for (int k = 0; k < WORLD; k++) in[k] = rows[i].in[k] == '1';
        status_ranks(&s, in, WORLD);
        check_text(rows[i].in, &s, rows[i].text);
    }
    str_free(&s);
}

static void test_one(void) {
    RankStatus x = waits(812, "all_reduce", "data", "train.lua:41", 300);
    Str s;
    str_init(&s, &alloc);
    status_print(&s, &x, 0);
    check_text("waits", &s,
               "rank 0 waits since 300 s in all_reduce over data, train.lua:41 (exchange 812)");
    x = waits(1, "all_gather", "", "", 0.25);
    status_print(&s, &x, 7);
    check_text("bare", &s, "rank 7 waits since 0.250 s in all_gather (exchange 1)");
    x = computes(5, 1);
    status_print(&s, &x, 3);
    check_text("computes", &s,
               "rank 3 computes since 1 s, last left all_reduce over data, a.lua:1 (exchange 5)");
    x = (RankStatus){.kind = STATUS_COMPUTING};
    status_print(&s, &x, 3);
    check_text("began", &s, "rank 3 computes");
    x.kind = STATUS_ENDED;
    status_print(&s, &x, 3);
    check_text("ended", &s, "rank 3 has ended");
    str_free(&s);
}

static void test_same(void) {
    RankStatus a = waits(2, "all_reduce", "data", "a.lua:1", 3), b;
    b = waits(2, "all_reduce", "data", "a.lua:1", 9);
    CHECK(status_same(&a, &b));
    b = waits(3, "all_reduce", "data", "a.lua:1", 3);
    CHECK(!status_same(&a, &b));
    b = waits(2, "all_gather", "data", "a.lua:1", 3);
    CHECK(!status_same(&a, &b));
    b = waits(2, "all_reduce", "model", "a.lua:1", 3);
    CHECK(!status_same(&a, &b));
    b = waits(2, "all_reduce", "data", "a.lua:2", 3);
    CHECK(!status_same(&a, &b));
    b = computes(2, 3);
    CHECK(!status_same(&a, &b));
    b = a;
    b.n = 0;
    CHECK(!status_same(&a, &b) && !status_same(&b, &a));
}

/* Who is to blame, and where all stand. */
static void test_all(void) {
    RankStatus all[5];
    Str s;
    str_init(&s, &alloc);
    for (int i = 0; i < 5; i++) all[i] = waits(2, "all_reduce", "data", "a.lua:1", 10);
    CHECK(!status_lost(&s, all, 5));
    check_text("nobody is lost", &s, "");
    status_cause(&s, all, 5, 1);
    check_text("all wait", &s,
               "rank 1 waits since 10 s in all_reduce over data, a.lua:1 (exchange 2), and so do "
               "all others: nothing comes through");
    status_table(&s, all, 5);
    check_text("one place", &s,
               "\n  ranks 0, 1, 2, 3, 4 wait since 10 s in all_reduce over data, a.lua:1 "
               "(exchange 2)");

    all[2] = computes(1, 20);
    all[4] = waits(3, "all_gather", "", "", 5);
    status_cause(&s, all, 5, 0);
    check_text("others are elsewhere", &s,
               "rank 2 computes since 20 s, last left all_reduce over data, a.lua:1 (exchange 1); "
               "rank 4 waits since 5 s in all_gather (exchange 3); rank 0 waits since 10 s in "
               "all_reduce over data, a.lua:1 (exchange 2)");
    status_table(&s, all, 5);
    check_text("three places", &s,
               "\n  ranks 0, 1, 3 wait since 10 s in all_reduce over data, a.lua:1 (exchange 2)"
               "\n  rank 2 computes since 20 s, last left all_reduce over data, a.lua:1 "
               "(exchange 1)"
               "\n  rank 4 waits since 5 s in all_gather (exchange 3)");

    all[2] = all[4] = (RankStatus){.kind = STATUS_COMPUTING};
    status_table(&s, all, 5);
    check_text("those at their beginning stand together", &s,
               "\n  ranks 0, 1, 3 wait since 10 s in all_reduce over data, a.lua:1 (exchange 2)"
               "\n  ranks 2, 4 compute");

    all[4] = computes(1, 20);
    status_table(&s, all, 5);
    check_text("or apart from one that has left an exchange", &s,
               "\n  ranks 0, 1, 3 wait since 10 s in all_reduce over data, a.lua:1 (exchange 2)"
               "\n  rank 2 computes"
               "\n  rank 4 computes since 20 s, last left all_reduce over data, a.lua:1 "
               "(exchange 1)");

    static const struct {
        StatusKind kind;
        const char *one, *two;
    } rows[] = {
        {STATUS_SILENT, "rank 2 does not answer (stopped, or its host is lost)",
         "ranks 2, 4 do not answer (stopped, or their hosts are lost)"},
        {STATUS_ABSENT, "rank 2 has not started", "ranks 2, 4 have not started"},
        {STATUS_GONE, "rank 2 is gone without a word (killed, crashed, or its host is lost)",
         "ranks 2, 4 are gone without a word (killed, crashed, or their hosts are lost)"},
        {STATUS_ENDED, "rank 2 has ended", "ranks 2, 4 have ended"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        all[4] = all[3];
        all[2] = (RankStatus){.kind = (int32_t)rows[i].kind};
        CHECK(status_lost(&s, all, 5));
        check_text("one", &s, rows[i].one);
        all[4] = all[2];
        CHECK(status_lost(&s, all, 5));
        check_text("two", &s, rows[i].two);
        status_cause(&s, all, 5, 0);
        CHECKF(strncmp(str_of(&s), rows[i].two, strlen(rows[i].two)) == 0, "%s", str_of(&s));
        CHECKF(strstr(str_of(&s), "lost); rank 0 waits since 10 s in") ||
                   strstr(str_of(&s), "ed; rank 0 waits since 10 s in"),
               "%s", str_of(&s));
        str_clear(&s);
        status_table(&s, all, 5);
        check_text("those that are there", &s,
                   "\n  ranks 0, 1, 3 wait since 10 s in all_reduce over data, a.lua:1 "
                   "(exchange 2)");
    }
    all[2].kind = STATUS_GONE;
    all[4].kind = STATUS_ABSENT;
    CHECK(status_lost(&s, all, 5));
    check_text("each kind for itself", &s,
               "rank 2 is gone without a word (killed, crashed, or its host is lost); rank 4 has "
               "not started");

    alloc.fail_in = 0;
    CHECK(!status_lost(&s, all, 5) && s.failed);
    str_free(&s);
    CHECK(alloc.live == 0);
}

static void test_latest(void) {
    RankStatus x = waits(9, "all_reduce", "data", "a.lua:1", 10);
    Str s;
    str_init(&s, &alloc);
    x.n = 2;
    x.latest[1] = x.latest[0];
    x.latest[1].number = 8;
    x.latest[1].bytes = 100;
    x.latest[1].leave = x.latest[1].enter + SECOND / 2;
    status_flight_log(&s, &x, 3);
    check_text("the latest", &s,
               "\n  the latest exchanges of rank 3, with what came and how long it waited:"
               "\n    all_reduce over data, a.lua:1 (exchange 9), 4.00 MiB, 10 s and still does"
               "\n    all_reduce over data, a.lua:1 (exchange 8), 100 B, 0.500 s");
    x.n = 0;
    status_flight_log(&s, &x, 3);
    check_text("none", &s, "");
    str_free(&s);
}

int main(void) {
    test_log();
    test_ranks();
    test_one();
    test_same();
    test_all();
    test_latest();
    return test_end();
}
