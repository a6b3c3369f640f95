#include "lua/program/progress.h"

#include "lua/program/output.h"
#include "lua/state/state.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_MS = 1000, EVERY_MS = 250, PIECE = 1 << 16 };

/* What the thread that draws and those that write have in common. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const Host *host;
    int fd[2];    /* of stdout and stderr */
    bool running; /* a chunk */
    bool inside;  /* the last output did not end its line */
    bool cut;     /* the rest of the chunk's output is left out */
    bool drawn;   /* the line stands there */
    int paused;   /* others have the terminal: calls of what reads from it, or of other programs */
    struct timespec since;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = {STDOUT_FILENO, STDERR_FILENO}};

static bool write_all(int fd, const char *at, size_t n) {
    while (n) {
        /* who has pressed Ctrl-C does not want the rest of a long text */
        shared.cut = shared.cut || (shared.running && shared.host->rt.interrupted);
        if (shared.cut) return true;
        ssize_t done = write(fd, at, n < PIECE ? n : PIECE);
        if (done < 0 && errno != EINTR) return false;
        if (done > 0) at += done, n -= (size_t)done;
    }
    return true;
}

/* Not by write_all: it goes away where the rest of a text is left out, too. */
static void erase(void) {
    static const char erasing[] = "\r\033[K";
    while (shared.drawn && write(STDOUT_FILENO, erasing, sizeof erasing - 1) < 0 && errno == EINTR)
        ;
    shared.drawn = false;
}

static ssize_t write_noted(void *fd, const char *text, size_t n) {
    if (n == 0) return 0;
    pthread_mutex_lock(&shared.lock);
    erase();
    bool ok = write_all(*(const int *)fd, text, n);
    shared.inside = text[n - 1] != '\n';
    pthread_mutex_unlock(&shared.lock);
    return ok ? (ssize_t)n : 0;
}

static double seconds_since(const struct timespec *t) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - t->tv_sec) + 1e-9 * (double)(now.tv_nsec - t->tv_nsec);
}

static void draw(void) {
    char line[64];
    double seconds = seconds_since(&shared.since);
    if (shared.inside || shared.paused || seconds < 1e-3 * FIRST_MS) return;
    int n = snprintf(line, sizeof line, "\r\033[K%d s; Ctrl-C stops", (int)seconds);
    shared.drawn = write(STDOUT_FILENO, line, (size_t)n) > 0;
}

static void *draw_now_and_then(void *unused) {
    (void)unused;
    pthread_mutex_lock(&shared.lock);
    for (;;) {
        while (!shared.running) pthread_cond_wait(&shared.changed, &shared.lock);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += EVERY_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&shared.changed, &shared.lock, &until);
        if (shared.running) draw();
    }
    return NULL;
}

static void pause_by(int change) {
    pthread_mutex_lock(&shared.lock);
    erase();
    shared.paused += change;
    pthread_mutex_unlock(&shared.lock);
}

/* Calls its upvalue; nothing is drawn meanwhile. */
static int call_paused(lua_State *L) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    pause_by(1);
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    pause_by(-1);
    return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

static void pause_in(lua_State *L, const char *library, const char *name) {
    int top = lua_gettop(L);
    if (lua_getglobal(L, library) == LUA_TTABLE && lua_getfield(L, -1, name) == LUA_TFUNCTION) {
        lua_pushcclosure(L, call_paused, 1);
        lua_setfield(L, top + 1, name);
    }
    lua_settop(L, top);
}

static FILE *noted_file(int *fd) {
    return fopencookie(fd, "w", (cookie_io_functions_t){.write = write_noted});
}

void progress_open(lua_State *L) {
    pthread_condattr_t attr;
    pthread_t thread;
    sigset_t all, before;
    if (shared.host) return;
    FILE *out = noted_file(&shared.fd[0]), *err = noted_file(&shared.fd[1]);
    if (!out || !err) {
        if (out) fclose(out);
        if (err) fclose(err);
        return;
    }
    setvbuf(out, NULL, _IOLBF, BUFSIZ);
    setvbuf(err, NULL, _IONBF, 0);
    fflush(stdout);
    shared.host = state_of(L);
    pause_in(L, "io", "read");
    pause_in(L, "os", "execute");
    pause_in(L, "debug", "debug");
    output_lead(L, out, isatty(STDERR_FILENO) ? err : stderr);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&shared.changed, &attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, draw_now_and_then, NULL) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_begin(void) {
    if (!shared.host) return;
    pthread_mutex_lock(&shared.lock);
    shared.running = true;
    clock_gettime(CLOCK_MONOTONIC, &shared.since);
    pthread_cond_signal(&shared.changed);
    pthread_mutex_unlock(&shared.lock);
}

void progress_end(void) {
    static const char told[] = "\n... (stopped by Ctrl-C)\n";
    if (!shared.host) return;
    fflush(stdout);
    pthread_mutex_lock(&shared.lock);
    shared.running = false;
    bool cut = shared.cut;
    shared.cut = false;
    erase();
    if (cut)
        write_all(STDOUT_FILENO, told, sizeof told - 1);
    else if (shared.inside)
        write_all(STDOUT_FILENO, "\n", 1);
    shared.inside = false;
    pthread_mutex_unlock(&shared.lock);
}
