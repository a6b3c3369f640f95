/* Who is who, from environments as launchers leave them. */
#include "base/env.h"
#include "run/job/ranks.h"
#include "test.h"

#include <string.h>

enum { MAX_SET = 12 };

/* An environment of these variables only, among those that ranks_find reads: NAME, value, ... */
typedef struct Case {
    const char *env[MAX_SET * 2];
    const char *flags[RANK_FIELDS];
    const char *expect; /* what ranks_print says, or part of the error */
} Case;

static Ctx cx;

static Err find(const Case *c, Ranks *out) {
    for (int v = ENV_WORLD_SIZE; v <= ENV_SLURM_JOB_ID; v++) unsetenv(env_row((EnvVar)v)->name);
    for (int i = 0; c->env[i]; i += 2) setenv(c->env[i], c->env[i + 1], 1);
    RankFlags flags = {.log_ranks = NULL};
    memcpy(flags.value, c->flags, sizeof flags.value);
    err_clear(&cx);
    return ranks_find(&cx, &flags, out);
}

static void check_found(const Case *c) {
    Ranks r;
    Str s;
    Err err = find(c, &r);
    CHECKF(!err, "%s: %s", c->expect, cx.err.text);
    if (err) return;
    str_init(&s, &cx.alloc);
    ranks_print(&r, &s);
    CHECKF(strcmp(str_of(&s), c->expect) == 0, "%s, not %s", str_of(&s), c->expect);
    str_free(&s);
}

static void check_error(const Case *c, ErrCode code) {
    Ranks r;
    Err err = find(c, &r);
    CHECKF(err == (Err)code, "%s: code %s", c->expect, err_name(err));
    CHECKF(strstr(cx.err.text, c->expect), "\"%s\" does not say \"%s\"", cx.err.text, c->expect);
}

#define TORCH(world, rank, local) "WORLD_SIZE", world, "RANK", rank, "LOCAL_RANK", local
#define OPENMPI(world, rank, local)                                                                \
    "OMPI_COMM_WORLD_SIZE", world, "OMPI_COMM_WORLD_RANK", rank, "OMPI_COMM_WORLD_LOCAL_RANK", local
#define SLURM(world, rank, local)                                                                  \
    "SLURM_NTASKS", world, "SLURM_PROCID", rank, "SLURM_LOCALID", local

static void test_sources(void) {
    static const Case cases[] = {
        {{0}, {0}, "one process"},
        {{0}, {"4", "1", "0"}, "rank 1 of 4, local rank 0, by flags (--rank)"},
        {{TORCH("8", "4", "0")}, {0}, "rank 4 of 8, local rank 0, by the environment (RANK)"},
        {{OPENMPI("3", "2", "2")},
         {0},
         "rank 2 of 3, local rank 2, by OpenMPI (OMPI_COMM_WORLD_RANK)"},
        {{SLURM("16", "3", "3"), "SLURM_STEP_NODELIST", "a[1-2]"},
         {0},
         "rank 3 of 16, local rank 3, by Slurm (SLURM_PROCID)"},
        /* several that agree: the first; mpirun inside a job of Slurm has its step's variables */
        {{TORCH("4", "1", "1"), OPENMPI("4", "1", "1")},
         {"4", "1", "1"},
         "rank 1 of 4, local rank 1, by flags (--rank)"},
        {{OPENMPI("4", "1", "1"), SLURM("2", "0", "0"), "SLURM_STEP_NODELIST", "a"},
         {0},
         "rank 1 of 4, local rank 1, by OpenMPI (OMPI_COMM_WORLD_RANK)"},
        {{"WORLD_SIZE", "", "RANK", ""}, {0}, "one process"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) check_found(&cases[i]);
}

static void test_errors(void) {
    static const Case env[] = {
        {{"WORLD_SIZE", "8"},
         {0},
         "the environment: WORLD_SIZE is set, RANK and LOCAL_RANK are not"},
        {{"WORLD_SIZE", "8", "RANK", "1"},
         {0},
         "WORLD_SIZE and RANK are set, LOCAL_RANK is not; give"},
        {{"OMPI_COMM_WORLD_RANK", "0"}, {0}, "OpenMPI: OMPI_COMM_WORLD_RANK is set"},
        {{TORCH("x", "0", "0")}, {0}, "WORLD_SIZE=x: expected a whole number from 1"},
        {{TORCH("0", "0", "0")}, {0}, "WORLD_SIZE=0: expected"},
        {{TORCH("4", "-1", "0")}, {0}, "RANK=-1: expected"},
        {{TORCH("4", "99999999999", "0")}, {0}, "RANK=99999999999: expected"},
        {{TORCH("4", "4", "0")}, {0}, "RANK=4, but WORLD_SIZE=4: ranks are 0..3"},
        {{TORCH("4", "0", "4")}, {0}, "LOCAL_RANK=4, but WORLD_SIZE=4"},
        {{TORCH("8", "0", "0"), OPENMPI("4", "0", "0")},
         {0},
         "WORLD_SIZE=8 and OMPI_COMM_WORLD_SIZE=4 contradict each other; take WORLD_SIZE, RANK "
         "and"},
        {{TORCH("4", "0", "0"), OPENMPI("4", "3", "3")},
         {0},
         "RANK=0 and OMPI_COMM_WORLD_RANK=3 contradict each other"},
        {{OPENMPI("4", "0", "0")}, {"2", "0", "0"}, "--world-size=2 and OMPI_COMM_WORLD_SIZE=4"},
        {{TORCH("4", "0", "0"), "MASTER_PORT", "70000"}, {0}, "MASTER_PORT=70000: expected"},
    };
    static const Case flags[] = {
        {{0}, {"4"}, "flags: --world-size is set, --rank and --local-rank are not"},
        {{0}, {"4", "one", "0"}, "--rank=one: expected a whole number from 0"},
        {{0}, {"4", "4", "0"}, "--rank=4, but --world-size=4"},
    };
    for (unsigned i = 0; i < sizeof env / sizeof *env; i++) check_error(&env[i], E_RANKS);
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) check_error(&flags[i], E_VALUE);
}

/* Slurm's variables are around what srun did not start, too. */
static void test_lingering(void) {
    static const Case cases[] = {
        {{"SLURM_JOB_ID", "7"}, {0}, ""},
        {{"SLURM_JOB_ID", "7", "SLURM_NTASKS", "8"},
         {0},
         "SLURM_NTASKS is set, SLURM_PROCID and SLURM_LOCALID are not"},
        {{SLURM("8", "0", "0")}, {0}, "SLURM_NTASKS=8, but SLURM_STEP_NODELIST is not set"},
        {{SLURM("1", "0", "0")}, {0}, ""},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        Ranks r;
        CHECK(!find(&cases[i], &r) && r.world == 1 && !r.source && !r.mpi);
        CHECKF(strncmp(r.note, cases[i].expect, strlen(cases[i].expect)) == 0 &&
                   (r.note[0] != 0) == (cases[i].expect[0] != 0),
               "%s", r.note);
    }
}

static void check_master(const Case *c, const char *host, int port, bool mpi) {
    Ranks r;
    CHECK(!find(c, &r));
    CHECKF(strcmp(r.master, host) == 0 && r.port == port, "%s:%d", r.master, (int)r.port);
    CHECK(r.mpi == mpi);
}

static void test_master(void) {
    Case torch = {
        {TORCH("2", "0", "0"), "MASTER_ADDR", "10.0.0.1", "MASTER_PORT", "29500"}, {0}, 0};
    check_master(&torch, "10.0.0.1", 29500, false);
    Case both = {{OPENMPI("2", "0", "0"), "MASTER_ADDR", "head"}, {0, 0, 0, 0, "1234"}, 0};
    check_master(&both, "head", 1234, true);
    static const char *const lists[][2] = {
        {"node[003-005,7],b", "node003"}, {"node[7]", "node7"}, {"a,b", "a"}, {"login", "login"}};
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        Case slurm = {
            {SLURM("2", "1", "1"), "SLURM_STEP_NODELIST", lists[i][0], "SLURM_JOB_ID", "4099"},
            {0},
            0};
        check_master(&slurm, lists[i][1], 61440 + 3, false);
    }
    Case step = {{SLURM("2", "1", "1"), "SLURM_STEP_NODELIST", "a", "SLURM_JOB_ID", "4099",
                  "SLURM_STEP_ID", "2", "PMIX_NAMESPACE", "slurm.pmix.4099.2"},
                 {0},
                 0};
    check_master(&step, "a", 61440 + 3 + 2 * 61, true);
}

/* Who speaks, and into which file, for a --log-ranks; "" : it is no list of ranks. */
static void check_speaker(const char *list, int32_t rank, int32_t world, const char *file) {
    Ranks r = {.world = world, .rank = rank};
    Str s;
    err_clear(&cx);
    Err err = ranks_choose_speakers(&cx, list, &r);
    CHECKF(err == (*file ? E_OK : E_VALUE), "%s: code %s", list ? list : "", err_name(err));
    if (err) {
        CHECK(strstr(cx.err.text, list) && r.silent == (rank != 0));
        return;
    }
    str_init(&s, &cx.alloc);
    ranks_print_file(&r, "a.b/run.json", &s);
    CHECKF(strcmp(str_of(&s), file) == 0, "%s of rank %d of %d: %s", list ? list : "none",
           (int)rank, (int)world, str_of(&s));
    CHECK(r.silent == (strcmp(file, "/dev/null") == 0));
    str_free(&s);
}

static void test_speakers(void) {
    static const char whole[] = "a.b/run.json", silent[] = "/dev/null";
    check_speaker(NULL, 0, 1, whole);
    check_speaker(NULL, 0, 4, whole);
    check_speaker(NULL, 3, 4, silent);
    check_speaker("all", 3, 4, "a.b/run.r3.json");
    check_speaker("all", 0, 1, whole);
    check_speaker("0,3", 3, 4, "a.b/run.r3.json");
    check_speaker("0,3", 1, 4, silent);
    check_speaker("3", 3, 4, whole);
    check_speaker("3,3", 3, 4, whole);
    check_speaker("5", 0, 1, whole);
    check_speaker("4", 3, 4, "");
    check_speaker("0,", 0, 4, "");
    check_speaker("0,x", 1, 4, "");
}

/* A name without an ending gets the rank at its end; dots of folders are none. */
static void test_files(void) {
    static const char *const names[][2] = {
        {"plan", "plan.r2"}, {"a.b/plan", "a.b/plan.r2"}, {".hidden", ".hidden.r2"}, {"", ".r2"}};
    Ranks r = {.world = 4, .rank = 2, .tagged = true};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        Str s;
        str_init(&s, &cx.alloc);
        ranks_print_file(&r, names[i][0], &s);
        CHECKF(strcmp(str_of(&s), names[i][1]) == 0, "%s: %s", names[i][0], str_of(&s));
        str_free(&s);
    }
}

int main(void) {
    ctx_init(&cx);
    test_sources();
    test_errors();
    test_lingering();
    test_master();
    test_speakers();
    test_files();
    return test_end();
}
