/* processes.c - the parent of the processes of `--processes=R`.
 *
 * mpirun starts them and ends all when one fails; this process stands between it and the user. A
 * signal to stop reaches the processes as SIGUSR1: mpirun itself would leave them a second after
 * SIGTERM, too short to finish a step. */
#include "lua/program/processes.h"

#include "base/env.h"
#include "run/comm/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_ENVIRONMENT = 3, EXIT_STOPPED = 75, SIGNALLED = 128, MAX_PROCESSES = 4096 };

/* What the signal handler works on. */
static volatile sig_atomic_t asked; /* bit N: signal N has come */
static volatile sig_atomic_t ended; /* the signal that came a second time, or 0 */
static volatile pid_t mpirun;

bool processes_is_count(const char *text) {
    char *end;
    long n = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && n >= 1 && n <= MAX_PROCESSES;
}

/* ---- signals ---- */

/* The first signal asks the processes to stop after their step, a second of the kind ends them. Who
 * pressed Ctrl-C is told. */
static void pass_on(int sig) {
    static const char note[] = "meshlua: stopping after this step; once more ends at once\n";
    bool again = asked & 1 << sig, first = !asked;
    int before = errno;
    asked |= 1 << sig;
    if (again) {
        ended = sig;
        kill(mpirun, SIGTERM);
    } else if (first) {
        kill(mpirun, SIGUSR1);
        ssize_t said = sig == SIGINT ? write(STDERR_FILENO, note, sizeof note - 1) : 0;
        (void)said; /* there may be nobody to read it */
    }
    errno = before;
}

static const int passed[] = {SIGINT, SIGTERM, SIGUSR1};
enum { PASSED = sizeof passed / sizeof *passed };

static sigset_t passed_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < PASSED; i++) sigaddset(&set, passed[i]);
    return set;
}

static void pass_signals_on(void) {
    struct sigaction sa = {.sa_handler = pass_on, .sa_mask = passed_set(), .sa_flags = SA_RESTART};
    for (int i = 0; i < PASSED; i++) sigaction(passed[i], &sa, NULL);
}

/* ---- mpirun ---- */

/* What a user has set himself stays. Root may, cores may be fewer than processes, which then give
 * way while they wait, none is bound to a core, and one host needs no network. They know each other
 * by a secret that nobody else has. */
static void set_environment(void) {
    char secret[SECRET_TEXT];
    if (!env_get(ENV_SECRET) && secret_make(secret)) setenv(env_row(ENV_SECRET)->name, secret, 1);
    static const char *const settings[][2] = {
        {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_mpi_yield_when_idle", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"OMPI_MCA_pml", "ob1"},
        {"OMPI_MCA_btl", "self,vader"},
    };
    for (unsigned i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i][0], settings[i][1], 0);
}

/* "mpirun -np R PROGRAM ..."; NULL, with errno: it could not be made. */
static char **mpirun_arguments(const ProcessesOptions *o) {
    static char name[] = "mpirun", flag[] = "-np", program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char **argv = calloc((size_t)o->argc + 4, sizeof *argv), **end = argv;
    if (n < 0 || !argv) return NULL;
    *end++ = name;
    *end++ = flag;
    *end++ = strdup(o->count);
    *end++ = program;
    for (int i = 1; i < o->argc; i++)
        if (!o->is_ours[i]) *end++ = o->argv[i];
    return argv;
}

/* From mpirun: its two streams, and why it could not be started. */
enum { READ, WRITE };
typedef struct Pipes {
    int out[2], error[2], failed[2];
} Pipes;

/* The child's part. It writes into `failed` why it has not become mpirun. */
static _Noreturn void become_mpirun(const ProcessesOptions *o, pid_t parent, const Pipes *p) {
    int failed = p->failed[WRITE];
    setpgid(0, 0); /* a signal to the group of this program is for its handler alone */
    if (isatty(STDIN_FILENO)) dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(p->out[WRITE], STDOUT_FILENO);
    dup2(p->error[WRITE], STDERR_FILENO);
    set_environment();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    char **argv = mpirun_arguments(o);
    if (argv && getppid() == parent) execvp(argv[0], argv);
    int reason = errno;
    ssize_t written = write(failed, &reason, sizeof reason);
    _exit(written == sizeof reason ? EXIT_ENVIRONMENT : SIGNALLED);
}

/* ---- what mpirun says ---- */

/* mpirun frames its words in lines of dashes. Those that follow on the end of a process are
 * dropped: the process has said why it ended, or the signal that ended it is said; all else is
 * passed on. */
typedef enum Words { WORDS_OTHER, WORDS_DROPPED, WORDS_SIGNAL } Words;

static Words sort_words(const char *line) {
    static const struct {
        const char *start;
        Words words;
    } known[] = {{"Primary job  terminated normally", WORDS_DROPPED},
                 {"MPI_ABORT was invoked", WORDS_DROPPED},
                 {"mpirun detected that one or more processes exited", WORDS_DROPPED},
                 {"mpirun noticed that ", WORDS_SIGNAL}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(line, known[i].start, strlen(known[i].start)) == 0) return known[i].words;
    return WORDS_OTHER;
}

static bool is_frame(const char *line) {
    enum { SHORTEST = 60 };
    size_t n = strspn(line, "-");
    return n >= SHORTEST && line[n] == '\n';
}

/* A line of mpirun about itself? The latter three are of its words, when they come twice or not
 * whole. */
static bool is_aside(const char *line) {
    return strncmp(line, "mpirun: Forwarding signal", 25) == 0 ||
           strstr(line, "has sent help message") || strstr(line, "orte_base_help_aggregate") ||
           strstr(line, "show_help.c");
}

/* Copies what mpirun and the processes write to the standard error, but for such words. */
static void copy_errors(FILE *from) {
    char *line = NULL, *frame = NULL; /* frame: held back, as it may open words that are dropped */
    size_t room = 0;
    ssize_t n;
    bool dropping = false;
    while ((n = getline(&line, &room, from)) > 0) {
        if (ended || is_aside(line)) continue;
        Words words = frame ? sort_words(line) : WORDS_OTHER;
        if (words == WORDS_SIGNAL)
            fprintf(stderr, "meshlua: %s", line + strlen("mpirun noticed that "));
        if (frame && words == WORDS_OTHER) fputs(frame, stderr);
        free(frame);
        frame = NULL;
        if (dropping || words != WORDS_OTHER)
            dropping = !is_frame(line);
        else if (is_frame(line))
            frame = strdup(line);
        else
            fwrite(line, 1, (size_t)n, stderr); /* there may be zeros in it */
    }
    if (frame) fputs(frame, stderr);
    free(frame);
    free(line);
}

/* ---- the standard output ---- */

typedef struct Output {
    int from;
    int failed; /* errno of what could not be written, or 0 */
} Output;

/* Copies the standard output: mpirun would take no notice of what cannot be written. All is read in
 * any case: the processes must not wait for somebody to do so. */
static void *copy_output(void *ud) {
    Output *o = ud;
    char piece[1 << 14];
    ssize_t n;
    while ((n = read(o->from, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR))
        for (ssize_t at = 0, done; at < n && !o->failed; at += done) {
            done = write(STDOUT_FILENO, piece + at, (size_t)(n - at));
            if (done >= 0) continue;
            if (errno != EINTR) o->failed = errno;
            done = 0;
        }
    return NULL;
}

/* ---- all of it ---- */

static int fail(const char *text, const char *why) {
    fprintf(stderr, "meshlua: %s%s\n", text, why);
    return EXIT_ENVIRONMENT;
}

static int wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return EXIT_ENVIRONMENT;
    if (ended) return SIGNALLED + ended;
    return WIFSIGNALED(status) ? SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Reads what become_mpirun says when there is no mpirun: an errno, or 0. */
static int start_failure(int failed) {
    int reason = 0;
    while (read(failed, &reason, sizeof reason) < 0 && errno == EINTR) {}
    close(failed);
    return reason;
}

/* Starts mpirun; -1, with errno, where that fails. Signals wait until there is somebody to pass
 * them to. */
static pid_t start(const ProcessesOptions *o, const Pipes *p) {
    sigset_t ours = passed_set(), before;
    pid_t parent = getpid();
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &ours, &before);
    mpirun = fork();
    if (mpirun > 0) pass_signals_on();
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (mpirun == 0) become_mpirun(o, parent, p);
    return mpirun;
}

/* Until mpirun and the processes are gone. */
static int follow(pid_t child, const Pipes *p) {
    Output output = {.from = p->out[READ]};
    pthread_t thread;
    FILE *from = fdopen(p->error[READ], "r");
    int refused = from ? pthread_create(&thread, NULL, copy_output, &output) : errno;
    if (refused) {
        kill(child, SIGTERM);
        wait_for(child);
        return fail("what mpirun says cannot be read: ", strerror(refused));
    }
    copy_errors(from);
    fclose(from);
    pthread_join(thread, NULL);
    int code = wait_for(child);
    if (code == EXIT_STOPPED && asked & 1 << SIGINT) code = SIGNALLED + SIGINT;
    return code == 0 && output.failed ? fail("standard output: ", strerror(output.failed)) : code;
}

int processes_run(const ProcessesOptions *o) {
    Pipes p;
    if (env_get(ENV_OMPI_COMM_WORLD_SIZE))
        return fail("mpirun has started this process already; leave --processes away", "");
    const char *missing = transport_missing();
    if (missing)
        return fail("nothing could carry data between the processes; build meshlua where OpenMPI "
                    "is (Debian: libopenmpi-dev): ",
                    missing);
    if (pipe2(p.out, O_CLOEXEC) || pipe2(p.error, O_CLOEXEC) || pipe2(p.failed, O_CLOEXEC))
        return fail("no pipe to mpirun: ", strerror(errno));
    pid_t child = start(o, &p);
    if (child < 0) return fail("mpirun cannot be started: ", strerror(errno));
    close(p.out[WRITE]);
    close(p.error[WRITE]);
    close(p.failed[WRITE]);
    int reason = start_failure(p.failed[READ]);
    if (!reason) return follow(child, &p); /* else it has ended */
    return fail("mpirun cannot be started (Debian: openmpi-bin): ", strerror(reason));
}
