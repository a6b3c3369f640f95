#include "run/job/ranks.h"
#include "base/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SET = RANK_LOCAL_RANK + 1, /* the fields of a set */
    NONE = -1,
    MAX_WORLD = 65535,
    MAX_PORT = 65535,
    /* Slurm names no port: one of 4096 from here on, by the numbers of the job and of its step. */
    SLURM_PORTS = 61440,
    SLURM_STEPS = 61
};

/* What may say the ranks. */
typedef struct RankSource {
    const char *what;
    bool flags, mpi;
    /* Its variables are around processes that it did not start, too: a part of them means nothing,
     * and where another source speaks it does not count. */
    bool lingers;
    int var[RANK_FIELDS]; /* EnvVar, or NONE */
} RankSource;

/* In the order in which they are asked. */
static const RankSource sources[] = {
    {.what = "flags", .flags = true},
    {.what = "the environment",
     .var = {ENV_WORLD_SIZE, ENV_RANK, ENV_LOCAL_RANK, ENV_MASTER_ADDR, ENV_MASTER_PORT}},
    {.what = "OpenMPI",
     .mpi = true,
     .var = {ENV_OMPI_COMM_WORLD_SIZE, ENV_OMPI_COMM_WORLD_RANK, ENV_OMPI_COMM_WORLD_LOCAL_RANK,
             NONE, NONE}},
    {.what = "Slurm",
     .lingers = true,
     .var = {ENV_SLURM_NTASKS, ENV_SLURM_PROCID, ENV_SLURM_LOCALID, ENV_SLURM_STEP_NODELIST,
             ENV_SLURM_JOB_ID}},
};
enum { SOURCES = sizeof sources / sizeof *sources };

/* What one source says. */
typedef struct Given {
    const RankSource *from;
    const char *name[RANK_FIELDS], *text[RANK_FIELDS]; /* text: NULL where not given */
    int n;                                             /* given, of the set */
    int32_t value[SET];
} Given;

static void read_source(const RankSource *s, const RankFlags *flags, Given *g) {
    static const char *const flag[RANK_FIELDS] = {"--world-size", "--rank", "--local-rank",
                                                  "--master-addr", "--master-port"};
    *g = (Given){.from = s};
    for (int f = 0; f < RANK_FIELDS; f++) {
        if (s->flags) {
            g->name[f] = flag[f];
            g->text[f] = flags->value[f];
        } else if (s->var[f] != NONE) {
            g->name[f] = env_row((EnvVar)s->var[f])->name;
            g->text[f] = env_get((EnvVar)s->var[f]);
        }
        if (f < SET && g->text[f]) g->n++;
    }
}

static ErrCode code_of(const Given *g) {
    return g->from->flags ? E_VALUE : E_RANKS;
}

static Err read_number(Ctx *cx, const Given *g, int f, int32_t lo, int32_t hi, int32_t *out) {
    char *end;
    long n = strtol(g->text[f], &end, 10);
    if (*g->text[f] < '0' || *g->text[f] > '9' || *end || n < lo || n > hi)
        return err_set(cx, code_of(g), "%s=%s: expected a whole number from %d to %d", g->name[f],
                       g->text[f], (int)lo, (int)hi);
    *out = (int32_t)n;
    return E_OK;
}

static Err read_set(Ctx *cx, Given *g) {
    int32_t *v = g->value;
    TRY(read_number(cx, g, RANK_WORLD_SIZE, 1, MAX_WORLD, &v[RANK_WORLD_SIZE]));
    for (int f = RANK_RANK; f < SET; f++) {
        TRY(read_number(cx, g, f, 0, MAX_WORLD, &v[f]));
        if (v[f] >= v[RANK_WORLD_SIZE])
            return err_set(cx, code_of(g), "%s=%d, but %s=%d: ranks are 0..%d", g->name[f],
                           (int)v[f], g->name[RANK_WORLD_SIZE], (int)v[RANK_WORLD_SIZE],
                           (int)v[RANK_WORLD_SIZE] - 1);
    }
    return E_OK;
}

/* Names what is there and what is not. */
static void part_text(const Given *g, char *to, size_t size) {
    size_t n = 0;
    for (int there = 1; there >= 0; there--) {
        bool first = true;
        for (int f = 0; f < SET; f++) {
            if ((g->text[f] != NULL) != (there == 1)) continue;
            n += (size_t)snprintf(to + n, size - n, "%s%s", first ? "" : " and ", g->name[f]);
            first = false;
        }
        bool many = (there ? g->n : SET - g->n) > 1;
        n += (size_t)snprintf(to + n, size - n, " %s%s", many ? "are" : "is",
                              there ? " set, " : " not");
    }
}

static Err part_error(Ctx *cx, const Given *g) {
    char text[RANK_NOTE];
    part_text(g, text, sizeof text);
    return err_set(cx, code_of(g), "%s: %s; give %s, %s and %s, or none of them", g->from->what,
                   text, g->name[RANK_WORLD_SIZE], g->name[RANK_RANK], g->name[RANK_LOCAL_RANK]);
}

static Err compare(Ctx *cx, const Given *a, const Given *b) {
    for (int f = 0; f < SET; f++)
        if (a->value[f] != b->value[f])
            return err_set(cx, E_RANKS,
                           "%s=%d and %s=%d contradict each other; take %s, %s and %s away, or "
                           "start as many processes as they say",
                           a->name[f], (int)a->value[f], b->name[f], (int)b->value[f],
                           a->name[RANK_WORLD_SIZE], a->name[RANK_RANK], a->name[RANK_LOCAL_RANK]);
    return E_OK;
}

/* ---- where the processes meet ---- */

/* The first host of Slurm's list: "node[003-005,7],login" -> "node003". */
static void first_host(const char *list, char *to, size_t size) {
    size_t n = strcspn(list, "[,");
    const char *inside = list[n] == '[' ? list + n + 1 : "";
    snprintf(to, size, "%.*s%.*s", (int)n, list, (int)strcspn(inside, "-,]"), inside);
}

static Err read_master(Ctx *cx, const Given *g, Ranks *out) {
    const char *addr = g->text[RANK_MASTER_ADDR], *port = g->text[RANK_MASTER_PORT];
    if (g->from->lingers) {
        first_host(addr, out->master, sizeof out->master);
        int64_t job = strtol(port ? port : "0", NULL, 10);
        out->port =
            SLURM_PORTS + (int32_t)((job + SLURM_STEPS * env_int(ENV_SLURM_STEP_ID, 0)) & 4095);
        return E_OK;
    }
    if (addr && !out->master[0]) {
        if (strlen(addr) >= sizeof out->master)
            return err_set(cx, code_of(g), "%s: longer than the name of a host",
                           g->name[RANK_MASTER_ADDR]);
        memcpy(out->master, addr, strlen(addr) + 1);
    }
    if (!port || out->port) return E_OK;
    return read_number(cx, g, RANK_MASTER_PORT, 1, MAX_PORT, &out->port);
}

/* What a launcher of MPI says of the job beside the ranks; srun is one where it offers PMIx. */
static void read_job(Ranks *out) {
    const char *job = env_get(ENV_PMIX_NAMESPACE);
    out->mpi = out->mpi || job;
    out->one_host = env_int(ENV_OMPI_COMM_WORLD_LOCAL_SIZE, 0) == out->world;
    snprintf(out->job, sizeof out->job, "%s", job ? job : "");
}

/* ---- who speaks ---- */

/* Reads a list as "0,3". */
static Err read_list(Ctx *cx, const char *list, Ranks *out) {
    bool named = false, has_other = false;
    for (const char *at = list;; at++) {
        char *end;
        long n = strtol(at, &end, 10), last = out->world > 1 ? out->world - 1 : MAX_WORLD;
        if (*at < '0' || *at > '9' || (*end && *end != ',') || n > last)
            return err_set(cx, E_VALUE,
                           "--log-ranks=%s: expected `all`, or ranks from 0 to %ld as in 0,1", list,
                           last);
        if (n == out->rank)
            named = true;
        else
            has_other = true;
        if (!*end) break;
        at = end;
    }
    out->silent = !named;
    out->tagged = named && has_other;
    return E_OK;
}

Err ranks_choose_speakers(Ctx *cx, const char *list, Ranks *out) {
    out->silent = out->rank != 0;
    out->tagged = list && strcmp(list, "all") == 0;
    if (out->tagged) out->silent = false;
    if (list && !out->tagged) TRY(read_list(cx, list, out));
    if (out->world == 1) out->silent = out->tagged = false;
    return E_OK;
}

void ranks_print_file(const Ranks *r, const char *path, Str *s) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    size_t stem = dot && dot > name ? (size_t)(dot - path) : strlen(path);
    if (r->silent)
        str_put(s, "/dev/null");
    else if (r->tagged)
        str_fmt(s, "%.*s.r%d%s", (int)stem, path, (int)r->rank, path + stem);
    else
        str_put(s, path);
}

/* ---- all of them ---- */

/* Slurm's variables count where srun started this process: it is what names the nodes of a step. */
static bool take_lingering(Given *g, Ranks *out) {
    bool whole = g->n == SET && g->text[RANK_MASTER_ADDR];
    if (whole || g->n == 0) return whole;
    if (g->n < SET) {
        part_text(g, out->note, sizeof out->note);
    } else if (strcmp(g->text[RANK_WORLD_SIZE], "1") != 0) {
        snprintf(out->note, sizeof out->note, "%s=%.8s, but %s is not set: srun did not start this",
                 g->name[RANK_WORLD_SIZE], g->text[RANK_WORLD_SIZE], g->name[RANK_MASTER_ADDR]);
    }
    return false;
}

static Err find(Ctx *cx, const RankFlags *flags, Ranks *out) {
    Given given[SOURCES], *found = NULL;
    *out = (Ranks){.world = 1};
    for (int i = 0; i < SOURCES; i++) {
        Given *g = &given[i];
        read_source(&sources[i], flags, g);
        if (g->from->lingers && (found || !take_lingering(g, out))) continue;
        if (g->n && g->n < SET) return part_error(cx, g);
        TRY(read_master(cx, g, out));
        if (!g->n) continue;
        TRY(read_set(cx, g));
        out->mpi = out->mpi || g->from->mpi;
        if (found) TRY(compare(cx, found, g));
        if (!found) found = g;
    }
    if (!found) return E_OK;
    out->world = found->value[RANK_WORLD_SIZE];
    out->rank = found->value[RANK_RANK];
    out->local = found->value[RANK_LOCAL_RANK];
    out->source = found->from->what;
    out->name = found->name[RANK_RANK];
    read_job(out);
    return E_OK;
}

Err ranks_find(Ctx *cx, const RankFlags *flags, Ranks *out) {
    Err err = find(cx, flags, out);
    /* Where it is not known who is who, the launcher's first process says so. */
    if (err) out->silent = env_int(ENV_OMPI_COMM_WORLD_RANK, env_int(ENV_SLURM_PROCID, 0)) != 0;
    return err;
}

void ranks_print(const Ranks *r, Str *s) {
    if (!r->source) {
        str_put(s, "one process");
        return;
    }
    str_fmt(s, "rank %d of %d, local rank %d, by %s (%s)", (int)r->rank, (int)r->world,
            (int)r->local, r->source, r->name);
}
