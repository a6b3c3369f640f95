/* The proofs of knowing a secret, where it comes from, and which user is at the other end. */
#include "base/env.h"
#include "run/job/rendezvous.h"
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT "sixteen bytes, and some more"

static Ctx cx;

static Err open_with(const char *value, Secret *out) {
    if (value)
        setenv(env_row(ENV_SECRET)->name, value, 1);
    else
        unsetenv(env_row(ENV_SECRET)->name);
    err_clear(&cx);
    return secret_open(&cx, out);
}

static bool same_key(const Secret *a, const Secret *b) {
    return memcmp(a->key, b->key, SECRET_KEY) == 0;
}

/* ---- where it comes from ---- */

static void test_values(void) {
    static const char *const wrong[] = {"short", "fifteen bytes ,", "               \n  \n\n"};
    Secret none, a, b;
    char text[SECRET_TEXT], other[SECRET_TEXT];
    CHECK(!open_with(NULL, &none) && !none.given);
    CHECK(!open_with("", &a) && !a.given && same_key(&a, &none));
    CHECK(!open_with(TEXT, &a) && a.given && !same_key(&a, &none));
    CHECK(!open_with(TEXT " \n", &b) && same_key(&a, &b));
    CHECK(!open_with("S" TEXT, &b) && !same_key(&a, &b));
    for (int i = 0; i < 3; i++) CHECKF(open_with(wrong[i], &b) == E_VALUE, "%s", wrong[i]);
    CHECK(secret_make(text) && secret_make(other) && strcmp(text, other) != 0);
    CHECK(!open_with(text, &a) && a.given);
    secret_draw(&a);
    secret_draw(&b);
    CHECK(a.given && !same_key(&a, &b));
    secret_take(&b, a.key);
    CHECK(b.given && same_key(&a, &b));
}

static void test_files(void) {
    static const mode_t refused[] = {0640, 0604, 0620, 0602, 0601};
    char path[] = "/tmp/meshlua-secret-XXXXXX", value[64];
    Secret a, b;
    int fd = mkstemp(path);
    snprintf(value, sizeof value, "@%s", path);
    CHECK(write(fd, TEXT "\n", strlen(TEXT) + 1) == (ssize_t)strlen(TEXT) + 1);
    CHECK(!open_with(TEXT, &a) && !open_with(value, &b) && b.given && same_key(&a, &b));
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK(fchmod(fd, refused[i]) == 0);
        CHECKF(open_with(value, &b) == E_RANKS &&
                   strstr(cx.err.text, "others may read or write it"),
               "%o: %s", (unsigned)refused[i], cx.err.text);
    }
    CHECK(fchmod(fd, 0400) == 0 && !open_with(value, &b));
    CHECK(ftruncate(fd, 3) == 0 && open_with(value, &b) == E_VALUE);
    if (geteuid() == 0) {
        CHECK(fchown(fd, 1, (gid_t)-1) == 0 && open_with(value, &b) == E_RANKS);
        CHECKF(strstr(cx.err.text, "of another user"), "%s", cx.err.text);
    }
    close(fd);
    unlink(path);
    CHECK(open_with(value, &b) == E_RANKS);
    CHECK(open_with("@/", &b) == E_RANKS && strstr(cx.err.text, "not a file"));
    CHECK(open_with("@/dev/zero", &b) == E_RANKS);
}

/* ---- the proof ---- */

/* It holds for what it was made for: every byte, the nonce, who said it, the length, the secret. */
static void test_proof(void) {
    Secret s, other;
    uint8_t nonce[SECRET_NONCE], second[SECRET_NONCE], mac[SECRET_MAC];
    char said[SECRET_SAID] = "rank 1 of 4";
    CHECK(!open_with(TEXT, &s) && !open_with("another " TEXT, &other));
    secret_nonce(&s, nonce);
    secret_nonce(&s, second);
    CHECK(memcmp(nonce, second, sizeof nonce) != 0);
    secret_prove(&s, SECRET_MEMBER, nonce, said, 64, mac);
    CHECK(secret_proves(&s, SECRET_MEMBER, nonce, said, 64, mac));
    CHECK(!secret_proves(&s, SECRET_HUB, nonce, said, 64, mac));
    CHECK(!secret_proves(&s, SECRET_MEMBER, second, said, 64, mac));
    CHECK(!secret_proves(&other, SECRET_MEMBER, nonce, said, 64, mac));
    CHECK(!secret_proves(&s, SECRET_MEMBER, nonce, said, 63, mac));
    CHECK(!secret_proves(&s, SECRET_MEMBER, nonce, said, 65, mac));
    for (int i = 0; i < 64; i++) {
        said[i] ^= 1;
        CHECK(!secret_proves(&s, SECRET_MEMBER, nonce, said, 64, mac));
        said[i] ^= 1;
    }
    for (int i = 0; i < SECRET_MAC; i++) {
        mac[i] ^= 0x80;
        CHECK(!secret_proves(&s, SECRET_MEMBER, nonce, said, 64, mac));
        mac[i] ^= 0x80;
    }
    secret_prove(&s, SECRET_HUB, nonce, said, SECRET_SAID, mac);
    CHECK(secret_proves(&s, SECRET_HUB, nonce, said, SECRET_SAID, mac));
}

/* ---- the other end ---- */

static Rendezvous at(const char *hosts, int32_t port) {
    Rendezvous m = {.port = port};
    snprintf(m.hosts, sizeof m.hosts, hosts, (int)getpid());
    return m;
}

static int listen_at(Rendezvous *m) {
    char error[HOST_TEXT] = "";
    bool taken;
    int fd = rendezvous_listen(m, &taken, error, sizeof error);
    CHECKF(fd >= 0 && !taken, "%s: %s", m->hosts, error);
    return fd;
}

static int next_guest(int listener, RendezvousGuest *who) {
    poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 5000);
    return rendezvous_accept(listener, who);
}

/* On an abstract socket all users meet; whoever is another is known at both ends. */
static void test_users(void) {
    Rendezvous m = at("@meshlua-secret-%d", 0);
    RendezvousGuest who;
    int listener = listen_at(&m), fd = rendezvous_connect(&m, 0), status;
    CHECK(rendezvous_connected(fd) == 1 && rendezvous_is_ours(fd));
    int guest = next_guest(listener, &who);
    CHECK(guest >= 0 && !who.from[0]);
    close(guest);
    close(fd);
    if (geteuid() != 0) return;
    pid_t child = fork();
    if (child == 0) {
        if (setuid(1) != 0) _exit(1);
        fd = rendezvous_connect(&m, 0);
        _exit(rendezvous_connected(fd) == 1 && !rendezvous_is_ours(fd) ? 0 : 2);
    }
    CHECK(next_guest(listener, &who) == RENDEZVOUS_TURNED_AWAY);
    CHECKF(strcmp(who.from, "uid 1") == 0, "%s", who.from);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(rendezvous_accept(listener, &who) == RENDEZVOUS_NOBODY);
    close(listener);
}

/* It waits at the address that is named and at no other; by it a guest is known. */
static void test_addresses(void) {
    Rendezvous m = at("127.0.0.1", 0), elsewhere;
    char error[HOST_TEXT];
    bool taken;
    RendezvousGuest who;
    for (m.port = 21000 + getpid() % 8000; m.port < 30000; m.port++) {
        int listener = rendezvous_listen(&m, &taken, error, sizeof error);
        if (taken) continue;
        CHECKF(listener >= 0, "%s", error);
        elsewhere = at("127.0.0.2", m.port);
        int fd = rendezvous_connect(&elsewhere, 0);
        for (int i = 0; i < 100 && rendezvous_connected(fd) == 0; i++) usleep(1000);
        CHECK(rendezvous_connected(fd) != 1);
        close(fd);
        fd = rendezvous_connect(&m, 0);
        int guest = next_guest(listener, &who);
        CHECK(guest >= 0 && strcmp(who.from, "127.0.0.1") == 0 && who.network);
        close(guest);
        close(fd);
        close(listener);
        break;
    }
    elsewhere = at("198.51.100.1", m.port); /* of nobody: RFC 5737 */
    CHECK(rendezvous_listen(&elsewhere, &taken, error, sizeof error) == -1 && !taken);
    CHECKF(strstr(error, "no address of this host"), "%s", error);
}

int main(void) {
    ctx_init(&cx);
    test_values();
    test_files();
    test_proof();
    test_users();
    test_addresses();
    return test_end();
}
