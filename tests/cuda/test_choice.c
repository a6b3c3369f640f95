/* test_choice.c - host/cuda/algorithm.c over a clock and a cublasLt of this file's own: which
 * algorithm is chosen for which times, what is kept of it, and what happens where nothing can be
 * timed. */
#include "cuda/algorithm.h"
#include "test.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4 };

/* ---- the clock: each run of algorithm i takes cost[i], its first one a hundred times that ---- */

static struct {
    float now, cost[MOST], slow[MOST]; /* slow: once, from that run on, 0: never */
    int runs[MOST], breaks[MOST];
    float at[16];
    int events, destroyed, fail_in, capturing;
} t;

static int fails(void) {
    return t.fail_in > 0 && --t.fail_in == 0;
}
static cudaError_t create(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    if (fails()) return cudaErrorUnknown;
    t.events++;
    *event = (cudaEvent_t)(uintptr_t)(t.events % 16);
    return cudaSuccess;
}
static cudaError_t destroy(cudaEvent_t event) {
    (void)event;
    t.destroyed++;
    return cudaSuccess;
}
static cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    t.at[(uintptr_t)event] = t.now;
    return fails() ? cudaErrorUnknown : cudaSuccess;
}
static cudaError_t synchronize(cudaEvent_t event) {
    (void)event;
    return fails() ? cudaErrorUnknown : cudaSuccess;
}
static cudaError_t elapsed(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = t.at[(uintptr_t)to] - t.at[(uintptr_t)from];
    return fails() ? cudaErrorUnknown : cudaSuccess;
}
static cudaError_t is_capturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    (void)stream;
    *status = t.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return fails() ? cudaErrorUnknown : cudaSuccess;
}
static const ApiCudart rt = {.cudaEventCreateWithFlags = create,
                             .cudaEventDestroy = destroy,
                             .cudaEventRecord = record,
                             .cudaEventSynchronize = synchronize,
                             .cudaEventElapsedTime = elapsed,
                             .cudaStreamIsCapturing = is_capturing};

static cublasStatus_t run(void *state, const Algorithm *by) {
    int i = (int)by->algo.data[0];
    CHECK(state == &t && i >= 0 && i < MOST);
    if (t.breaks[i]) return CUBLAS_STATUS_NOT_SUPPORTED;
    int n = t.runs[i]++;
    t.now += t.cost[i] * (n == 0 || (t.slow[i] > 0 && n == (int)t.slow[i]) ? 100 : 1);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cublasLt: algorithm i needs 100 i bytes; what it takes is in `taken` ---- */

static int taken[MOST], guesses;
static size_t asked_workspace;

static cublasStatus_t check_algo(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                 const cublasLtMatmulAlgo_t *algo,
                                 cublasLtMatmulHeuristicResult_t *out) {
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d;
    if (algo->data[0] >= MOST || !taken[algo->data[0]]) return CUBLAS_STATUS_NOT_SUPPORTED;
    out->workspaceSize = 100 * algo->data[0];
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t new_preference(cublasLtMatmulPreference_t *p) {
    *p = NULL;
    return fails() ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t drop_preference(cublasLtMatmulPreference_t p) {
    (void)p;
    t.destroyed++;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t prefer(cublasLtMatmulPreference_t p,
                             cublasLtMatmulPreferenceAttributes_t what, const void *value,
                             size_t size) {
    (void)p;
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) memcpy(&asked_workspace, value, size);
    return fails() ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t guess(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            cublasLtMatmulPreference_t p, int most,
                            cublasLtMatmulHeuristicResult_t out[], int *n) {
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)p;
    CHECK(most == ALGORITHM_CANDIDATES);
    for (int i = 0; i < MOST; i++) {
        out[i] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = 100 * (size_t)i};
        out[i].algo.data[0] = (uint64_t)i;
        out[i].state = taken[i] ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *n = guesses;
    return fails() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
static const ApiCublasLt lt = {.cublasLtMatmulAlgoCheck = check_algo,
                               .cublasLtMatmulPreferenceCreate = new_preference,
                               .cublasLtMatmulPreferenceDestroy = drop_preference,
                               .cublasLtMatmulPreferenceSetAttribute = prefer,
                               .cublasLtMatmulAlgoGetHeuristic = guess};

/* ---- a choice ---- */

static char folder[] = "/tmp/meshlua-choice-XXXXXX";
static Algorithms all;
static AlgorithmQuery query;

static int only_file(char path[512]) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') n += snprintf(path, 512, "%s/%s", folder, e->d_name) > 0;
    if (dir) closedir(dir);
    return n == 1;
}

/* Nothing known, nothing kept, every algorithm as fast as any other and taken. */
static void start(void) {
    char path[512];
    algorithm_forget(&all);
    if (only_file(path)) unlink(path);
    memset(&t, 0, sizeof t);
    all = (Algorithms){.rt = &rt, .lt = &lt, .workspace = 1000, .folder = folder};
    query = (AlgorithmQuery){.alignment = 16, .key = "a product"};
    guesses = MOST;
    for (int i = 0; i < MOST; i++) {
        t.cost[i] = 2;
        taken[i] = 1;
    }
}

static int choose_of(int n) {
    Algorithm candidate[MOST];
    for (int i = 0; i < MOST; i++) {
        candidate[i] = (Algorithm){.workspace = 100 * (size_t)i};
        candidate[i].algo.data[0] = (uint64_t)i;
    }
    Algorithm chosen = algorithm_choose(&all, &query, candidate, n, run, &t, NULL);
    CHECK(t.events == t.destroyed);
    CHECK(chosen.workspace == 100 * chosen.algo.data[0]);
    return (int)chosen.algo.data[0];
}

static int choose(void) {
    return choose_of(MOST);
}

static int ran(void) {
    int n = 0;
    for (int i = 0; i < MOST; i++) n += t.runs[i] + t.breaks[i];
    return n;
}

static void test_fastest(void) {
    static const struct {
        float cost[MOST];
        int best, runs[MOST]; /* 2, and twice as many as take a millisecond, 1 to 20 */
    } rows[] = {
        {{2, 1.5f, 2, 4}, 1, {2, 4, 2, 2}},
        {{2, 2, 2, 1.9f}, 3, {4, 4, 4, 4}},
        {{2, 1.97f, 1.99f, 2}, 0, {4, 4, 4, 4}}, /* not clearly faster */
        {{2, 1.95f, 1.93f, 2}, 1, {4, 4, 4, 4}},
        {{0.3f, 0.24f, 0.2f, 0.26f}, 2, {2, 2 + 2 * 5, 2 + 2 * 5, 2}},
        {{0.03f, 0.01f, 0.012f, 0.02f}, 1, {2, 42, 42, 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start();
        memcpy(t.cost, rows[i].cost, sizeof t.cost);
        CHECKF(choose() == rows[i].best, "row %zu", i);
        for (int k = 0; k < MOST; k++)
            CHECKF(t.runs[k] == rows[i].runs[k], "row %zu: %d runs of %d", i, t.runs[k], k);
        int n = ran();
        CHECKF(choose() == rows[i].best && ran() == n, "row %zu: again", i);
        algorithm_forget(&all); /* and in another process */
        CHECKF(choose() == rows[i].best && ran() == n, "row %zu: kept", i);
    }
}

/* A longer look is taken twice: once something else may have been in the way. */
static void test_disturbed(void) {
    for (int run_number = 2; run_number < 4; run_number++) {
        start();
        t.cost[2] = 1.7f;
        t.slow[2] = (float)run_number;
        CHECK(choose() == 2);
    }
}

static void test_broken(void) {
    start();
    t.cost[1] = 0.5f;
    t.cost[2] = 1;
    t.breaks[1] = 1;
    CHECK(choose() == 2);
    start();
    for (int i = 0; i < MOST; i++) t.breaks[i] = 1;
    char path[512];
    CHECK(choose() == 0 && !only_file(path));
    CHECK(choose() == 0);
}

/* Each call of CUDA fails once; then what is timed is another algorithm, or none. */
static void test_calls_fail(void) {
    for (int call = 1; call <= 3; call++) {
        char path[512];
        start();
        t.cost[3] = 1;
        t.fail_in = call; /* capturing?, two events */
        CHECKF(choose() == 0 && ran() == 0 && !only_file(path), "call %d", call);
        CHECKF(choose() == 0 && ran() == 0, "call %d: it stays", call);
    }
    for (int call = 4; call < 4 + 4 * 2; call++) { /* timing the first: 4 calls each time */
        start();
        t.cost[0] = 1;
        t.fail_in = call;
        CHECKF(choose() == 1, "call %d", call);
    }
}

static void test_nothing_is_timed(void) {
    char path[512];
    start();
    t.capturing = 1;
    t.cost[2] = 1;
    CHECK(choose() == 0 && ran() == 0 && !only_file(path));
    start();
    CHECK(choose_of(1) == 0 && ran() == 0 && !only_file(path));
    start();
    t.cost[2] = 1;
    all.folder = NULL;
    CHECK(choose() == 0 && ran() == 0);
    start();
    all.folder = "/proc/nowhere";
    CHECK(choose() == 0 && ran() == 0);
}

/* ---- what is kept ---- */

static void put(const char *key, const char *first, const char *rest) {
    char path[512];
    CHECK(only_file(path));
    FILE *f = fopen(path, "w");
    fprintf(f, "%s\n%s%s\n", key, first, rest);
    fclose(f);
    algorithm_forget(&all);
    memset(t.runs, 0, sizeof t.runs);
}

static void test_kept(void) {
    char path[512], key[64], two[300], rest[300];
    start();
    t.cost[2] = 1;
    CHECK(choose() == 2 && only_file(path));
    FILE *f = fopen(path, "r");
    CHECK(fscanf(f, "%63[^\n]\n%16s%299s", key, two, rest) == 3 && strcmp(key, query.key) == 0);
    fclose(f);
    CHECK(strcmp(two, "0200000000000000") == 0 &&
          strlen(rest) == 2 * sizeof(cublasLtMatmulAlgo_t) - 16);
    put(key, "0100000000000000", rest);
    CHECK(choose() == 1 && ran() == 0); /* another process was first */
    const char *const wrong[][2] = {{"another product", two},
                                    {key, "02"},
                                    {key, "020000000000000x"},
                                    {key, "0900000000000000"},
                                    {key, "apart"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put(wrong[i][0], wrong[i][1], i == 4 ? "" : rest);
        CHECKF(choose() == 2 && ran() > 0, "row %zu", i);
        algorithm_forget(&all);
        int n = ran();
        CHECKF(choose() == 2 && ran() == n, "row %zu: it is replaced", i);
    }
    all.workspace = 100;
    put(key, "0200000000000000", rest);
    t.cost[2] = 3;
    t.cost[1] = 1;
    CHECK(choose() == 1 && ran() > 0); /* which needs no more than there is */
    Algorithm x;
    query.may_part = 1;
    put(key, "apart", "");
    CHECK(algorithm_find(&all, &query, &x) && x.apart);
}

/* ---- the library's guesses ---- */

static void test_candidates(void) {
    Algorithm x[ALGORITHM_CANDIDATES];
    start();
    CHECK(algorithm_candidates(&all, &query, x) == MOST && asked_workspace == 1000);
    for (int i = 0; i < MOST; i++)
        CHECK(x[i].algo.data[0] == (uint64_t)i && x[i].workspace == 100 * (size_t)i && !x[i].apart);
    taken[1] = 0;
    all.workspace = 200;
    CHECK(algorithm_candidates(&all, &query, x) == 2 && x[1].algo.data[0] == 2);
    guesses = 1;
    CHECK(algorithm_candidates(&all, &query, x) == 1);
    for (int call = 1; call <= 9; call++) {
        t.destroyed = 0;
        t.fail_in = call;
        CHECKF(algorithm_candidates(&all, &query, x) == (call == 9), "call %d", call);
        CHECKF(t.destroyed == (call > 1), "call %d: the preference", call);
    }
}

int main(void) {
    CHECK(mkdtemp(folder));
    test_fastest();
    test_disturbed();
    test_broken();
    test_calls_fail();
    test_nothing_is_timed();
    test_kept();
    test_candidates();
    start();
    rmdir(folder);
    return test_end();
}
