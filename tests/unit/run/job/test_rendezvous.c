/* Where the processes of a job meet: the place by what they know, and the addresses of a host that
 * has many. */
#include "run/job/rendezvous.h"
#include "test.h"

#include <arpa/inet.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_found(void) {
    Rendezvous a, b;
    char text[64];
    Ranks r = {.world = 4, .master = "10.0.0.1", .port = 29500};
    CHECK(rendezvous_find(&r, &a) && a.port == 29500 && strcmp(a.hosts, "10.0.0.1") == 0);
    rendezvous_text(&a, text, sizeof text);
    CHECKF(strcmp(text, "10.0.0.1, port 29500") == 0, "%s", text);
    r.port = 0; /* an address alone is no place */
    CHECK(!rendezvous_find(&r, &a) && !a.hosts[0]);
    r = (Ranks){.world = 4, .port = 29500};
    CHECK(!rendezvous_find(&r, &a) && !a.hosts[0] && !a.port);
    r = (Ranks){.world = 4, .job = "17", .one_host = true};
    CHECK(rendezvous_find(&r, &a) && !a.port);
    char expect[64];
    snprintf(expect, sizeof expect, "@meshlua-%u-17", (unsigned)geteuid());
    rendezvous_text(&a, text, sizeof text);
    CHECKF(strcmp(text, expect) == 0, "%s", text);
    r.one_host = false; /* the others cannot see its sockets */
    CHECK(!rendezvous_find(&r, &b) && b.token == a.token);
    r = (Ranks){.world = 5, .job = "17", .one_host = true};
    CHECK(rendezvous_find(&r, &b) && b.token != a.token);
    r = (Ranks){.world = 4, .job = "18", .one_host = true};
    CHECK(rendezvous_find(&r, &b) && b.token != a.token);
    r.job[0] = '\0';
    CHECK(!rendezvous_find(&r, &b));
}

enum { NOT_HERE = 77 };

typedef struct Many { /* a host with many addresses, and how many of them are told */
    int addresses, told;
    bool own; /* 127.0.0.1 is, too */
    const char *first;
} Many;

static void run(const char *command) {
    if (system(command) != 0) _exit(NOT_HERE);
}

/* On a host of its own, with addresses of a cable that ends there. */
static int listen_with(const Many *many) {
    Rendezvous m = {.port = 0};
    char line[80], error[80];
    bool taken;
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return NOT_HERE;
    run("ip link set lo up 2>/dev/null && ip link add host0 type veth peer name host1 2>/dev/null "
        "&&"
        " ip link set host0 up && ip link set host1 up");
    run("ip link add down0 type veth peer name down1 && ip addr add 10.9.9.9/8 dev down0");
    bool v6 =
        many->addresses == 2 && system("ip addr add fd00::7/64 dev host0 nodad 2>/dev/null") == 0;
    FILE *batch = popen("ip -batch - 2>/dev/null", "w");
    for (int i = 0; batch && i < many->addresses; i++) {
        char other[20];
        snprintf(other, sizeof other, "10.0.%d.%d", i / 91, 10 + (i - 1) % 90);
        snprintf(line, sizeof line, "addr add %s/8 dev host0\n", i == 0 ? many->first : other);
        fputs(line, batch);
    }
    if (!batch || pclose(batch) != 0) return NOT_HERE;
    int fd = rendezvous_listen(&m, &taken, error, sizeof error), n = 0;
    CHECK(fd >= 0 && !taken && m.port > 0);
    bool has_own = false;
    for (char *host = strtok(m.hosts, " "); host; host = strtok(NULL, " "), n++) {
        struct in_addr a;
        if (v6 && n == many->addresses) { /* behind the others */
            CHECKF(strcmp(host, "fd00::7") == 0, "%s", host);
            continue;
        }
        CHECKF(inet_pton(AF_INET, host, &a) == 1, "%s", host);
        bool own = strcmp(host, "127.0.0.1") == 0;
        has_own = has_own || own;
        CHECKF(own || strcmp(host, many->first) == 0 || strlen(host) == 9, "%s", host);
    }
    CHECKF(n == many->told + many->own + v6 && has_own == many->own, "%d", n);
    close(fd);
    return test_failures != 0;
}

static void check_addresses(const Many *many) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(listen_with(many));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    int code = WEXITSTATUS(status);
    if (code == NOT_HERE) printf("not tried: no namespaces of hosts here\n");
    CHECK(code == 0 || code == NOT_HERE);
}

/* Where only the second of two places has somebody: the places are tried in turn. */
static void check_turns(void) {
    Rendezvous m = {.port = 0}, second = {.port = 0};
    char error[80];
    bool taken;
    snprintf(m.hosts, sizeof m.hosts, "@meshlua-a-%d @meshlua-b-%d", (int)getpid(), (int)getpid());
    snprintf(second.hosts, sizeof second.hosts, "@meshlua-b-%d", (int)getpid());
    int listener = rendezvous_listen(&second, &taken, error, sizeof error);
    CHECK(listener >= 0 && !taken);
    CHECK(rendezvous_listen(&second, &taken, error, sizeof error) < 0 && taken);
    for (int k = 0; k < 6; k++) {
        int fd = rendezvous_connect(&m, k);
        CHECKF((fd >= 0) == (k % 2 == 1), "turn %d", k);
        if (fd < 0) continue;
        CHECK(rendezvous_connected(fd) == 1 && rendezvous_is_ours(fd));
        close(fd);
    }
    close(listener);
}

int main(void) {
    check_found();
    check_turns();
    /* The list has room for 1023 bytes: 13, 100 times 1 + 9, and 1 + 9 once more. */
    static const Many many[] = {{0, 0, true, ""},
                                {2, 2, true, "10.100.100.10"},
                                {101, 101, true, "10.100.100.10"},
                                {101, 101, false, "10.100.100.100"},
                                {105, 102, false, "10.100.100.10"}};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) check_addresses(&many[i]);
    return test_end();
}
