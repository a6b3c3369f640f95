#include "base/env.h"
#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_RANKS = 65535, MOST_PORT = 65535 };

static const EnvRow rows[ENV_COUNT] = {
    [ENV_DEVICES] = {"MESHLUA_DEVICES", "N | cuda | fake:N", "devices, as --devices"},
    [ENV_THREADS] =
        {"MESHLUA_THREADS", "1..1024",
         "worker threads, the main one included; default: this process's share of the cores",
         .kind = ENV_WHOLE, .least = 1, .most = ENV_MOST_THREADS},
    [ENV_KERNELS] = {"MESHLUA_KERNELS", "default | v3 | v4 | naive",
                     "which CPU kernels run; default: the best this processor has",
                     .kind = ENV_WORDS},
    [ENV_BLAS] = {"MESHLUA_BLAS", "off | FILE",
                  "the BLAS library to load; off: the portable kernel alone, and no ml.linalg",
                  .kind = ENV_FILE},
    [ENV_LOG] = {"MESHLUA_LOG", "0..4",
                 "0 silent, 1 errors, 2 warnings (default), 3 information, 4 everything",
                 .kind = ENV_WHOLE, .least = 0, .most = 4},
    [ENV_PATH] = {"MESHLUA_PATH", "Lua path",
                  "put before package.path; ';;' stands for the default", .kind = ENV_TEMPLATES},
    [ENV_CHECK] = {"MESHLUA_CHECK", "0, 1",
                   "run the verifiers after every pass, as the checked build does, and wait for "
                   "every kernel on a GPU",
                   .kind = ENV_WHOLE, .least = 0, .most = 1},
    [ENV_TIMEOUT] = {"MESHLUA_TIMEOUT", "seconds, 1..",
                     "how long a process waits for others, as --timeout; default: 300",
                     .kind = ENV_WHOLE, .least = 1, .most = ENV_MOST_SECONDS},
    [ENV_SECRET] = {"MESHLUA_SECRET", "text | @FILE",
                    "what processes of this job know and strangers do not, of 16 bytes or more; "
                    "nobody else may read the file"},
    [ENV_CHECK_REPLICATED] =
        {"MESHLUA_CHECK_REPLICATED", "on | off",
         "whether what several processes hold of an argument is compared at a step's first call",
         .kind = ENV_WORDS},
    [ENV_CACHE] = {"MESHLUA_CACHE", "off | FOLDER",
                   "where compiled kernels and chosen algorithms are kept between runs; default: "
                   "meshlua in the user's folder of caches",
                   .kind = ENV_FOLDER},
    [ENV_ALGORITHMS] =
        {"MESHLUA_ALGORITHMS", "first | tf32 | wgmma",
         "on GPUs, a list: cublasLt's first guess for a matrix product, in place of the fastest of "
         "its best ones; products of float32 with operands rounded to tf32; attention of 16-bit "
         "floats through wgmma on GPUs of 9.0, which no GPU has run yet",
         .kind = ENV_WORD_LIST},
    [ENV_WORLD_SIZE] = {"WORLD_SIZE", "1..",
                        "set by torchrun, or by hand: how many processes there are",
                        .kind = ENV_WHOLE, .least = 1, .most = MOST_RANKS},
    [ENV_RANK] = {"RANK", "0..", "which of them this is", .kind = ENV_WHOLE, .least = 0,
                  .most = MOST_RANKS},
    [ENV_LOCAL_RANK] = {"LOCAL_RANK", "0..", "which of those on this host", .kind = ENV_WHOLE,
                        .least = 0, .most = MOST_RANKS},
    [ENV_MASTER_ADDR] = {"MASTER_ADDR", "host", "where the processes meet"},
    [ENV_MASTER_PORT] = {"MASTER_PORT", "1..65535", "its port", .kind = ENV_WHOLE, .least = 1,
                         .most = MOST_PORT},
    [ENV_OMPI_COMM_WORLD_SIZE] = {"OMPI_COMM_WORLD_SIZE", "1..",
                                  "set by mpirun of OpenMPI: how many processes there are",
                                  .kind = ENV_WHOLE, .least = 1, .most = MOST_RANKS},
    [ENV_OMPI_COMM_WORLD_RANK] = {"OMPI_COMM_WORLD_RANK", "0..",
                                  "set by mpirun: which of them this is", .kind = ENV_WHOLE,
                                  .least = 0, .most = MOST_RANKS},
    [ENV_OMPI_COMM_WORLD_LOCAL_RANK] = {"OMPI_COMM_WORLD_LOCAL_RANK", "0..",
                                        "set by mpirun: which of those on this host",
                                        .kind = ENV_WHOLE, .least = 0, .most = MOST_RANKS},
    [ENV_OMPI_COMM_WORLD_LOCAL_SIZE] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "1..",
                                        "set by mpirun: how many of them are on this host",
                                        .kind = ENV_WHOLE, .least = 1, .most = MOST_RANKS},
    [ENV_PMIX_NAMESPACE] = {"PMIX_NAMESPACE", "name",
                            "set by mpirun: the job, whose processes find each other by it"},
    [ENV_SLURM_NTASKS] = {"SLURM_NTASKS", "1..", "set by srun: how many processes there are",
                          .kind = ENV_WHOLE, .least = 1, .most = MOST_RANKS},
    [ENV_SLURM_PROCID] = {"SLURM_PROCID", "0..", "set by srun: which of them this is",
                          .kind = ENV_WHOLE, .least = 0, .most = MOST_RANKS},
    [ENV_SLURM_LOCALID] = {"SLURM_LOCALID", "0..", "set by srun: which of those on this host",
                           .kind = ENV_WHOLE, .least = 0, .most = MOST_RANKS},
    [ENV_SLURM_STEP_NODELIST] = {"SLURM_STEP_NODELIST", "hosts",
                                 "set by srun: its first host is where the processes meet"},
    [ENV_SLURM_STEP_ID] = {"SLURM_STEP_ID", "number", "set by srun: gives the port, too",
                           .kind = ENV_WHOLE, .least = 0, .most = UINT32_MAX},
    [ENV_SLURM_JOB_ID] = {"SLURM_JOB_ID", "number", "set by Slurm: gives the port",
                          .kind = ENV_WHOLE, .least = 0, .most = UINT32_MAX},
    [ENV_CUDA_VISIBLE_DEVICES] = {"CUDA_VISIBLE_DEVICES", "GPUs",
                                  "those that CUDA shows, in this order; others are not seen"},
    [ENV_NO_COLOR] = {"NO_COLOR", "anything", "no colour on a terminal"},
    [ENV_TERM] = {"TERM", "dumb", "plain output"},
    [ENV_HOME] = {"HOME", "folder", "where the REPL keeps its history"},
    [ENV_VISUAL] = {"VISUAL", "command", "the editor that the REPL opens a block in"},
    [ENV_EDITOR] = {"EDITOR", "command", "the same without VISUAL; without both: vi"},
    [ENV_XDG_CACHE_HOME] = {"XDG_CACHE_HOME", "folder",
                            "the user's folder of caches; default: ~/.cache"},
    [ENV_TMPDIR] = {"TMPDIR", "folder",
                    "where the program of an E_INTERNAL is written; default: /tmp"},
    [ENV_LUA_INIT] = {"LUA_INIT", "Lua | @FILE", "run first, as stock lua does; -E ignores it"},
    [ENV_LUA_INIT_5_4] = {"LUA_INIT_5_4", "Lua | @FILE", "run instead of LUA_INIT"},
};

const EnvRow *env_row(EnvVar v) {
    ASSERT(v < ENV_COUNT, "environment variable %d", (int)v);
    return &rows[v];
}

const char *env_get(EnvVar v) {
    const char *s = getenv(env_row(v)->name);
    return s && *s ? s : NULL;
}

/* Digits and nothing else, in the row's range? */
static bool read_whole(const EnvRow *r, const char *text, int64_t *x) {
    enum { LONGEST = 18 }; /* digits that a number always has room for */
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > LONGEST || text[n]) return false;
    *x = strtoll(text, NULL, 10);
    return *x >= r->least && *x <= r->most;
}

int64_t env_int(EnvVar v, int64_t otherwise) {
    int64_t x;
    const char *text = env_get(v);
    return text && read_whole(env_row(v), text, &x) ? x : otherwise;
}

int env_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

/* ---- are they what they may be? ---- */

/* Variables of launchers are not the user's: what is wrong with them is not his use. */
static bool is_ours(const char *name) {
    return strncmp(name, "MESHLUA_", strlen("MESHLUA_")) == 0;
}

/* The next of "first | tf32" or "first,tf32"; its length, or 0. */
static size_t next_word(const char **at) {
    *at += strspn(*at, " |,");
    return strcspn(*at, " |,");
}

bool env_has(EnvVar v, const char *word) {
    const char *at = env_get(v);
    for (size_t n; at && (n = next_word(&at)); at += n)
        if (n == strlen(word) && memcmp(at, word, n) == 0) return true;
    return false;
}

/* The n letters of `text`, as one of the row's words. */
static Err check_word(Ctx *cx, const EnvRow *r, const char *text, size_t n) {
    char near[32] = "", word[32], given[32];
    const char *at = r->value;
    size_t cut = n < sizeof given ? n : sizeof given - 1;
    memcpy(given, text, cut);
    given[cut] = '\0';
    int least = (int)cut / 2 + 1;
    for (size_t m; (m = next_word(&at)) && m < sizeof word; at += m) {
        memcpy(word, at, m);
        word[m] = '\0';
        int distance = str_distance(word, given);
        if (distance == 0 && cut == n) return E_OK;
        if (distance >= least) continue;
        least = distance;
        memcpy(near, word, m + 1);
    }
    return err_set(cx, E_VALUE, "%s=%s: expected %s of %s%s%s%s", r->name, getenv(r->name),
                   r->kind == ENV_WORD_LIST ? "some" : "one", r->value,
                   *near ? "; did you mean " : "", near, *near ? "?" : "");
}

static Err check_words(Ctx *cx, const EnvRow *r, const char *text) {
    if (r->kind == ENV_WORDS) return check_word(cx, r, text, strlen(text));
    for (size_t n; (n = next_word(&text)); text += n) TRY(check_word(cx, r, text, n));
    return E_OK;
}

static Err cannot(Ctx *cx, const EnvRow *r, const char *text, int reason) {
    return err_set(cx, E_IO, "%s=%s: %s; it may be %s", r->name, text, strerror(reason), r->value);
}

/* A folder that is there, or can be made. */
static Err check_folder(Ctx *cx, const EnvRow *r, const char *text) {
    char path[4096];
    struct stat info;
    if (strlen(text) >= sizeof path) return cannot(cx, r, text, ENAMETOOLONG);
    strcpy(path, text);
    while (stat(path, &info) != 0) {
        if (errno != ENOENT) return cannot(cx, r, text, errno);
        char *slash = strrchr(path, '/');
        if (!slash)
            strcpy(path, ".");
        else if (slash == path)
            path[1] = '\0';
        else
            *slash = '\0';
    }
    if (!S_ISDIR(info.st_mode)) return cannot(cx, r, text, ENOTDIR);
    return access(path, W_OK) == 0 ? E_OK : cannot(cx, r, text, errno);
}

static Err check(Ctx *cx, const EnvRow *r, const char *text) {
    int64_t x;
    bool off = strcmp(text, "off") == 0;
    switch (r->kind) {
    case ENV_TEXT: return E_OK;
    case ENV_WHOLE:
        return read_whole(r, text, &x)
                   ? E_OK
                   : err_set(cx, is_ours(r->name) ? E_VALUE : E_RANKS,
                             "%s=%s: expected a whole number from %lld to %lld", r->name, text,
                             (long long)r->least, (long long)r->most);
    case ENV_WORDS:
    case ENV_WORD_LIST: return check_words(cx, r, text);
    case ENV_TEMPLATES:
        return strchr(text, '?') || strstr(text, ";;")
                   ? E_OK
                   : err_set(cx, E_VALUE,
                             "%s=%s: expected templates in which ? stands for the module, as in "
                             "/lib/?.lua;/lib/?/init.lua",
                             r->name, text);
    case ENV_FILE: /* a name without a folder is looked for by who loads it */
        return off || !strchr(text, '/') || access(text, R_OK) == 0 ? E_OK
                                                                    : cannot(cx, r, text, errno);
    case ENV_FOLDER: return off ? E_OK : check_folder(cx, r, text);
    }
    return E_OK;
}

/* Says a variable that is named as ours are, and none of them. */
static void check_name(Ctx *cx, const char *entry) {
    char name[64];
    size_t n = strcspn(entry, "=");
    if (!is_ours(entry) || n >= sizeof name || n == strlen(entry)) return;
    if (strncmp(entry, "MESHLUA_BENCH_", strlen("MESHLUA_BENCH_")) == 0)
        return; /* script/bench's */
    memcpy(name, entry, n);
    name[n] = '\0';
    const char *near = NULL;
    int least = (int)n / 3; /* a third of the letters are in all of them */
    for (int v = 0; v < ENV_COUNT; v++) {
        int distance = str_distance(rows[v].name, name);
        if (distance == 0) return;
        if (distance < least) near = rows[v].name, least = distance;
    }
    log_line(cx, LOG_WARN, "there is no variable %s%s%s%s (--env lists them)", name,
             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

Err env_check(Ctx *cx) {
    for (char **entry = environ; entry && *entry; entry++) check_name(cx, *entry);
    for (int v = 0; v < ENV_COUNT; v++)
        if (env_get((EnvVar)v)) TRY(check(cx, &rows[v], env_get((EnvVar)v)));
    return E_OK;
}
