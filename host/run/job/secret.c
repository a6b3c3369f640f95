#include "run/job/secret.h"
#include "base/env.h"
#include "run/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libsodium.so.23"

enum { LEAST = 16, MOST = 4096 }; /* bytes of the text */

_Static_assert(SECRET_KEY == crypto_auth_KEYBYTES && SECRET_MAC == crypto_auth_BYTES, "libsodium");

/* ---- the library ---- */

static Err open_sodium(Ctx *cx, Sodium *s) {
    void *library = library_open(LIBRARY);
    if (!library)
        return err_set(cx, E_RANKS,
                       "processes prove to each other that they are of one job with libsodium, "
                       "which is not there: %s (Debian: libsodium23)",
                       dlerror());
    int (*init)(void) = (int (*)(void))dlsym(library, "sodium_init");
    *(void **)&s->auth = dlsym(library, "crypto_auth");
    *(void **)&s->verify = dlsym(library, "crypto_auth_verify");
    *(void **)&s->hash = dlsym(library, "crypto_generichash");
    *(void **)&s->random = dlsym(library, "randombytes_buf");
    if (init && s->auth && s->verify && s->hash && s->random && init() >= 0) return E_OK;
    return err_set(cx, E_RANKS, "%s cannot be used: it is another library", LIBRARY);
}

/* ---- where it comes from ---- */

/* Reads what nobody else may; the number of bytes, or -1 with the error set. */
static ssize_t read_file(Ctx *cx, const char *name, const char *path, char *to) {
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = -1;
    if (fd < 0 || fstat(fd, &s) != 0) {
        err_set(cx, E_RANKS, "%s=@%s: %s", name, path, strerror(errno));
    } else if (!S_ISREG(s.st_mode)) {
        err_set(cx, E_RANKS, "%s=@%s: not a file", name, path);
    } else if (s.st_uid != geteuid() && s.st_uid != 0) {
        err_set(cx, E_RANKS, "%s=@%s: the file is of another user, who knows what is in it", name,
                path);
    } else if (s.st_mode & (S_IRWXG | S_IRWXO)) {
        err_set(cx, E_RANKS, "%s=@%s: others may read or write it (mode %04o); chmod 600 %s", name,
                path, (unsigned)(s.st_mode & 07777), path);
    } else {
        n = read(fd, to, MOST + 1);
        if (n < 0) err_set(cx, E_RANKS, "%s=@%s: %s", name, path, strerror(errno));
    }
    if (fd >= 0) close(fd);
    return n;
}

static Err take_text(Ctx *cx, Secret *out, const char *text, size_t n) {
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) n--; /* the end of a line is none of it */
    if (n < LEAST || n > MOST)
        return err_set(cx, E_VALUE,
                       "%s: a secret has %d to %d bytes, this one has %zu; one is made by: head -c "
                       "32 /dev/urandom | base64",
                       env_row(ENV_SECRET)->name, LEAST, MOST, n);
    out->sodium.hash(out->key, SECRET_KEY, (const unsigned char *)text, n, NULL, 0);
    out->given = true;
    return E_OK;
}

Err secret_open(Ctx *cx, Secret *out) {
    char bytes[MOST + 1];
    *out = (Secret){.given = false};
    TRY(open_sodium(cx, &out->sodium));
    const char *text = env_get(ENV_SECRET);
    if (!text) return E_OK;
    if (text[0] != '@') return take_text(cx, out, text, strlen(text));
    ssize_t n = read_file(cx, env_row(ENV_SECRET)->name, text + 1, bytes);
    return n < 0 ? E_RANKS : take_text(cx, out, bytes, (size_t)n);
}

void secret_draw(Secret *s) {
    s->sodium.random(s->key, SECRET_KEY);
    s->given = true;
}

void secret_take(Secret *s, const uint8_t key[SECRET_KEY]) {
    memcpy(s->key, key, SECRET_KEY);
    s->given = true;
}

bool secret_make(char text[SECRET_TEXT]) {
    static const char digit[] = "0123456789abcdef";
    uint8_t key[SECRET_KEY];
    if (getrandom(key, sizeof key, 0) != sizeof key) return false;
    for (int i = 0; i < SECRET_KEY; i++) {
        text[2 * i] = digit[key[i] >> 4];
        text[2 * i + 1] = digit[key[i] & 15];
    }
    text[2 * SECRET_KEY] = '\0';
    return true;
}

/* ---- the proof ---- */

void secret_nonce(const Secret *s, uint8_t nonce[SECRET_NONCE]) {
    s->sodium.random(nonce, SECRET_NONCE);
}

/* All that a proof is over: for what, by whom, in answer to what, and what was said. */
typedef struct Statement {
    char what[15];
    uint8_t who;
    uint8_t nonce[SECRET_NONCE];
    uint8_t said[SECRET_SAID];
} Statement;

/* Its length. */
static size_t state(Statement *t, SecretRole who, const uint8_t *nonce, const void *said,
                    size_t n) {
    static const char what[sizeof t->what] = "meshlua meets 1";
    ASSERT(n <= SECRET_SAID, "%zu bytes", n);
    memcpy(t->what, what, sizeof what);
    t->who = (uint8_t)who;
    memcpy(t->nonce, nonce, SECRET_NONCE);
    memcpy(t->said, said, n);
    return offsetof(Statement, said) + n;
}

void secret_prove(const Secret *s, SecretRole who, const uint8_t nonce[SECRET_NONCE],
                  const void *said, size_t n, uint8_t mac[SECRET_MAC]) {
    Statement t;
    size_t all = state(&t, who, nonce, said, n);
    s->sodium.auth(mac, (const unsigned char *)&t, all, s->key);
}

bool secret_proves(const Secret *s, SecretRole who, const uint8_t nonce[SECRET_NONCE],
                   const void *said, size_t n, const uint8_t mac[SECRET_MAC]) {
    Statement t;
    size_t all = state(&t, who, nonce, said, n);
    return s->sodium.verify(mac, (const unsigned char *)&t, all, s->key) == 0;
}
