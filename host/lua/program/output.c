#include "lua/program/output.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG = 16, LAST_WORDS = 2048 };

/* A stream whose lines get a tag. */
typedef struct Tagged {
    int fd;
    bool inside; /* of a line */
} Tagged;

static Tagged out = {.fd = STDOUT_FILENO}, err = {.fd = STDERR_FILENO};
static char tag[TAG];
static char last_words[LAST_WORDS];

/* ---- the streams themselves ---- */

void output_hold_places(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        int null = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (null >= 0 && null != fd) close(null);
    }
}

const char *output_fault(void) {
    errno = 0;
    bool failed = fflush(stdout) != 0;
    int reason = errno;
    if (!failed && !ferror(stdout)) return NULL;
    /* What failed earlier has left a mark and no reason: mostly it still holds. */
    if (!reason && write(STDOUT_FILENO, "", 0) < 0) reason = errno;
    return reason ? strerror(reason) : "a part of what was written is lost";
}

/* ---- a rank among several that speak ---- */

static bool write_all(int fd, const char *at, size_t n) {
    while (n) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno != EINTR) return false;
        if (done > 0) at += done, n -= (size_t)done;
    }
    return true;
}

/* Lines go out in one piece each: nothing of another process comes between. */
static ssize_t write_tagged(void *stream, const char *text, size_t n) {
    Tagged *s = stream;
    size_t lines = 1, used = 0;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    char *all = malloc(n + lines * strlen(tag));
    if (!all) return 0;
    for (size_t i = 0; i < n; i++) {
        if (!s->inside) used = (size_t)(stpcpy(all + used, tag) - all);
        all[used++] = text[i];
        s->inside = text[i] != '\n';
    }
    bool ok = write_all(s->fd, all, used);
    free(all);
    return ok ? (ssize_t)n : 0;
}

static FILE *tagged_file(Tagged *s) {
    FILE *f = fopencookie(s, "w", (cookie_io_functions_t){.write = write_tagged});
    if (f) setvbuf(f, NULL, _IOLBF, BUFSIZ);
    return f;
}

/* ---- a rank that is silent ---- */

/* Keeps the end of all that was written. */
static ssize_t remember(void *unused, const char *text, size_t n) {
    (void)unused;
    size_t have = strlen(last_words), take = n < LAST_WORDS - 1 ? n : LAST_WORDS - 1;
    size_t keep = have + take < LAST_WORDS ? have : LAST_WORDS - 1 - take;
    memmove(last_words, last_words + have - keep, keep);
    memcpy(last_words + keep, text + n - take, take);
    last_words[keep + take] = '\0';
    return (ssize_t)n;
}

const char *output_last_words(void) {
    return last_words;
}

static void close_output(void) {
    int null = open("/dev/null", O_WRONLY);
    if (null < 0) return;
    dup2(null, STDOUT_FILENO);
    close(null);
}

/* ---- both ---- */

/* What Lua's io.stdout, io.stderr, ... write to. */
static void set_stream(lua_State *L, const char *name, FILE *f) {
    lua_getglobal(L, "io");
    lua_getfield(L, -1, name);
    ((luaL_Stream *)luaL_checkudata(L, -1, LUA_FILEHANDLE))->f = f;
    lua_pop(L, 2);
}

void output_lead(lua_State *L, FILE *to_out, FILE *to_err) {
    stdout = to_out;
    stderr = to_err;
    set_stream(L, "stdout", stdout);
    set_stream(L, "stderr", stderr);
}

void output_begin(lua_State *L, const Ranks *r) {
    fflush(stdout);
    if (r->silent) {
        FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){.write = remember});
        close_output();
        if (!f) return;
        setvbuf(f, NULL, _IONBF, 0);
        set_stream(L, "stderr", f);
    } else if (r->tagged) {
        FILE *to_out = tagged_file(&out), *to_err = tagged_file(&err);
        if (!to_out || !to_err) return;
        snprintf(tag, sizeof tag, "[r%d] ", (int)r->rank);
        output_lead(L, to_out, to_err);
    }
}
