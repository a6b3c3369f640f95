/* pipe.c - a shell command that is told something: its standard input takes what there is room for,
 * so that nobody waits for a command that does not read, and none that has ended kills the writer.
 * It is a group of its own: a Ctrl-C at the terminal ends what writes, and then what reads. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VALUE_PIPE "meshlua.pipe"

extern char **environ;

typedef struct CommandPipe {
    int fd;    /* -1: closed */
    pid_t pid; /* 0: it has ended, and `status` is its */
    int status;
} CommandPipe;

/* Starts the command, which reads from `input`. An errno, or 0. */
static int start(CommandPipe *p, const char *command, int input) {
    char *words[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t set;
    int fault = posix_spawn_file_actions_init(&files);
    if (fault) return fault;
    fault = posix_spawnattr_init(&how);
    if (!fault) {
        fault = posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
        sigemptyset(&set);
        posix_spawnattr_setsigmask(&how, &set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGPIPE);
        posix_spawnattr_setsigdefault(&how, &set);
        posix_spawnattr_setpgroup(&how, 0);
        posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF |
                                           POSIX_SPAWN_SETSIGMASK);
        if (!fault) fault = posix_spawn(&p->pid, "/bin/sh", &files, &how, words, environ);
        if (fault) p->pid = 0;
        posix_spawnattr_destroy(&how);
    }
    posix_spawn_file_actions_destroy(&files);
    return fault;
}

/* pipe(command): a command of the shell that reads what is written; or nil, message. */
static int pipe_new(lua_State *L) {
    const char *command = arg_string(L, 1, NULL, "pipe: the command");
    int end[2];
    CommandPipe *p = lua_newuserdatauv(L, sizeof *p, 0);
    *p = (CommandPipe){.fd = -1};
    luaL_setmetatable(L, VALUE_PIPE);
    if (pipe2(end, O_CLOEXEC)) return luaL_fileresult(L, 0, command);
    p->fd = end[1];
    int fault = fcntl(end[1], F_SETFL, O_NONBLOCK) ? errno : start(p, command, end[0]);
    close(end[0]);
    if (!fault) return 1;
    errno = fault;
    return luaL_fileresult(L, 0, command);
}

/* write(2), where a reader that has gone is an error and no signal. */
static ssize_t write_quietly(int fd, const char *bytes, size_t n) {
    sigset_t set, before;
    struct timespec now = {0};
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    ssize_t done = write(fd, bytes, n);
    int fault = errno;
    if (done < 0 && fault == EPIPE && !sigismember(&before, SIGPIPE))
        sigtimedwait(&set, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = fault;
    return done;
}

/* pipe:write(text): how many of its bytes the pipe has taken, 0 where it has no room; or nil,
 * message: nobody reads any more. */
static int pipe_write(lua_State *L) {
    const CommandPipe *p = value_udata(L, 1, VALUE_PIPE);
    size_t n;
    const char *text = arg_string(L, 2, &n, "write: the text");
    ssize_t done = p->fd < 0 ? (errno = EPIPE, -1) : write_quietly(p->fd, text, n);
    if (done < 0 && errno != EAGAIN && errno != EINTR) return luaL_fileresult(L, 0, NULL);
    lua_pushinteger(L, done < 0 ? 0 : (lua_Integer)done);
    return 1;
}

/* pipe:finish(): what the command reads ends here. */
static int pipe_finish(lua_State *L) {
    CommandPipe *p = value_udata(L, 1, VALUE_PIPE);
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    return 0;
}

/* pipe:ended(): nil while the command runs; then "exit" or "signal", and the code. */
static int pipe_ended(lua_State *L) {
    CommandPipe *p = value_udata(L, 1, VALUE_PIPE);
    if (p->pid && waitpid(p->pid, &p->status, WNOHANG) == p->pid) p->pid = 0;
    if (p->pid) return 0;
    bool killed = WIFSIGNALED(p->status);
    lua_pushstring(L, killed ? "signal" : "exit");
    lua_pushinteger(L, killed ? WTERMSIG(p->status) : WEXITSTATUS(p->status));
    return 2;
}

static int pipe_gc(lua_State *L) {
    CommandPipe *p = luaL_checkudata(L, 1, VALUE_PIPE);
    pipe_finish(L);
    if (p->pid) waitpid(p->pid, &p->status, WNOHANG);
    return 0;
}

void lib_open_pipe(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"write", pipe_write}, {"finish", pipe_finish}, {"ended", pipe_ended}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", pipe_gc}, {"__close", pipe_gc}, {NULL, NULL}};
    value_new_type(L, VALUE_PIPE, meta, methods, NULL);
    lua_pushcfunction(L, pipe_new);
    lua_setfield(L, -2, "pipe");
}
