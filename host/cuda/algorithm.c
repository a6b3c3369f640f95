#include "cuda/algorithm.h"
#include "cuda/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FILE_NAME = 32, FILE_PATH = 1024, HEX = 2 * sizeof(cublasLtMatmulAlgo_t) };

/* ---- memory ---- */

static void remember(Algorithms *all, const AlgorithmQuery *q, const Algorithm *chosen) {
    AlgorithmKnown *k = malloc(sizeof *k);
    if (!k) return; /* it is found out again */
    k->chosen = *chosen;
    memcpy(k->key, q->key, sizeof k->key);
    k->next = all->known;
    all->known = k;
}

void algorithm_forget(Algorithms *all) {
    while (all->known) {
        AlgorithmKnown *k = all->known;
        all->known = k->next;
        free(k);
    }
}

/* ---- the folder: a file for each key, of the key and the algorithm in hexadecimal ---- */

static const char apart[] = "apart"; /* what stands there instead of an algorithm's bytes */

static void name_of(const AlgorithmQuery *q, char name[FILE_NAME]) {
    uint64_t hash = XXH3_64bits(q->key, strlen(q->key));
    snprintf(name, FILE_NAME, "product-%016llx", (unsigned long long)hash);
}

static int path_of(const Algorithms *all, const AlgorithmQuery *q, char path[FILE_PATH]) {
    char name[FILE_NAME];
    name_of(q, name);
    int n = snprintf(path, FILE_PATH, "%s/%s", all->folder, name);
    return n > 0 && n < FILE_PATH;
}

/* Whether the library still takes it for this product, in the workspace there is. */
static int is_valid(Algorithms *all, const AlgorithmQuery *q, Algorithm *x) {
    cublasLtMatmulHeuristicResult_t r;
    memset(&r, 0, sizeof r);
    if (all->lt->cublasLtMatmulAlgoCheck(all->handle, q->product, q->a, q->b, q->d, q->d, &x->algo,
                                         &r) != CUBLAS_STATUS_SUCCESS)
        return 0;
    x->workspace = r.workspaceSize;
    return x->workspace <= all->workspace;
}

static int read_algorithm(Algorithms *all, const AlgorithmQuery *q, const char *path,
                          Algorithm *out) {
    char key[ALGORITHM_KEY + 1], hex[HEX + 2];
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    int whole = fgets(key, sizeof key, f) && fgets(hex, sizeof hex, f);
    fclose(f);
    if (!whole) return 0;
    key[strcspn(key, "\n")] = 0;
    hex[strcspn(hex, "\n")] = 0;
    if (strcmp(key, q->key) != 0) return 0;
    *out = (Algorithm){.apart = strcmp(hex, apart) == 0};
    if (out->apart) return q->may_part;
    if (strlen(hex) != HEX || strspn(hex, "0123456789abcdef") != HEX) return 0;
    for (size_t i = 0; i < HEX / 2; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        ((unsigned char *)&out->algo)[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return is_valid(all, q, out);
}

/* Puts it there unless somebody has been faster: what stands there afterwards is what all use. */
static int publish(Algorithms *all, const AlgorithmQuery *q, Algorithm *x) {
    char name[FILE_NAME], path[FILE_PATH], text[ALGORITHM_KEY + HEX + 3];
    name_of(q, name);
    if (!path_of(all, q, path)) return 0;
    size_t n = (size_t)sprintf(text, "%s\n", q->key);
    for (size_t i = 0; !x->apart && i < sizeof x->algo; i++)
        n += (size_t)sprintf(text + n, "%02x", ((const unsigned char *)&x->algo)[i]);
    n += (size_t)sprintf(text + n, "%s\n", x->apart ? apart : "");
    if (!cache_put(all->folder, name, CACHE_FIRST, text, n) && !read_algorithm(all, q, path, x))
        cache_put(all->folder, name, CACHE_REPLACE, text, n); /* it is in the way, and of no use */
    return read_algorithm(all, q, path, x);
}

int algorithm_find(Algorithms *all, const AlgorithmQuery *q, Algorithm *out) {
    char path[FILE_PATH];
    for (const AlgorithmKnown *k = all->known; k; k = k->next) {
        if (strcmp(k->key, q->key) != 0) continue;
        *out = k->chosen;
        return 1;
    }
    if (!all->folder || !path_of(all, q, path)) return 0;
    if (!read_algorithm(all, q, path, out)) return 0;
    remember(all, q, out);
    return 1;
}

/* ---- the library's guesses ---- */

static int prefer(const ApiCublasLt *lt, cublasLtMatmulPreference_t p,
                  cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t size) {
    return lt->cublasLtMatmulPreferenceSetAttribute(p, what, value, size) == CUBLAS_STATUS_SUCCESS;
}

int algorithm_candidates(Algorithms *all, const AlgorithmQuery *q,
                         Algorithm out[ALGORITHM_CANDIDATES]) {
    const ApiCublasLt *lt = all->lt;
    /* A sum in parts has them in float32 (or 64) and in an order of its own: bits that do not
     * depend on which part is done first. */
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t found[ALGORITHM_CANDIDATES];
    cublasLtMatmulPreference_t p;
    int n = 0, good = 0;
    if (lt->cublasLtMatmulPreferenceCreate(&p) != CUBLAS_STATUS_SUCCESS) return 0;
    int set =
        prefer(lt, p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &all->workspace,
               sizeof all->workspace) &&
        prefer(lt, p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    for (int i = 0; i < 4; i++) /* A, B, C, D */
        set = set && prefer(lt, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &q->alignment,
                            sizeof q->alignment);
    if (set && lt->cublasLtMatmulAlgoGetHeuristic(all->handle, q->product, q->a, q->b, q->d, q->d,
                                                  p, ALGORITHM_CANDIDATES, found,
                                                  &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    lt->cublasLtMatmulPreferenceDestroy(p);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= all->workspace)
            out[good++] = (Algorithm){found[i].algo, found[i].workspaceSize, 0};
    return good;
}

/* ---- timing ---- */

typedef struct Clock {
    const ApiCudart *rt;
    cudaStream_t stream;
    cudaEvent_t from, to;
} Clock;

/* Milliseconds of one of `runs` runs; < 0: it failed. */
static float time_of(const Clock *c, const Algorithm *x, int runs, AlgorithmRun *run, void *state) {
    float ms = -1;
    int good = c->rt->cudaEventRecord(c->from, c->stream) == cudaSuccess;
    for (int i = 0; i < runs && good; i++) good = run(state, x) == CUBLAS_STATUS_SUCCESS;
    good = good && c->rt->cudaEventRecord(c->to, c->stream) == cudaSuccess &&
           c->rt->cudaEventSynchronize(c->to) == cudaSuccess &&
           c->rt->cudaEventElapsedTime(&ms, c->from, c->to) == cudaSuccess;
    return good ? ms / (float)runs : -1;
}

/* The index of the fastest. A first run of each loads its code, a second one tells which are worth
 * a longer look: a millisecond each, twice. What is not clearly faster than an earlier guess does
 * not take its place. */
static int fastest(const Clock *c, const Algorithm *x, int n, AlgorithmRun *run, void *state) {
    float ms[ALGORITHM_CANDIDATES + 1], least = -1;
    int best = -1;
    for (int i = 0; i < n; i++) {
        ms[i] = time_of(c, &x[i], 1, run, state);
        if (ms[i] >= 0) ms[i] = time_of(c, &x[i], 1, run, state);
        if (ms[i] >= 0 && (least < 0 || ms[i] < least)) least = ms[i];
    }
    int runs = least <= 0 || least > 1 ? 1 : least < 0.05f ? 20 : (int)(1 / least);
    for (int i = 0; i < n; i++) {
        if (ms[i] < 0 || ms[i] > 1.25f * least) continue;
        float a = time_of(c, &x[i], runs, run, state), b = time_of(c, &x[i], runs, run, state);
        ms[i] = a < b ? a : b;
        if (ms[i] >= 0 && (best < 0 || ms[i] < 0.98f * ms[best])) best = i;
    }
    return best;
}

/* 0: nothing could be timed. */
static int time_candidates(Algorithms *all, const Algorithm *x, int n, AlgorithmRun *run,
                           void *state, cudaStream_t stream, int *best) {
    const ApiCudart *rt = all->rt;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    Clock c = {.rt = rt, .stream = stream};
    *best = -1;
    if (rt->cudaStreamIsCapturing(stream, &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone)
        return 0;
    if (rt->cudaEventCreateWithFlags(&c.from, cudaEventDefault) != cudaSuccess) return 0;
    if (rt->cudaEventCreateWithFlags(&c.to, cudaEventDefault) == cudaSuccess) {
        *best = fastest(&c, x, n, run, state);
        rt->cudaEventDestroy(c.to);
    }
    rt->cudaEventDestroy(c.from);
    return *best >= 0;
}

Algorithm algorithm_choose(Algorithms *all, const AlgorithmQuery *q, const Algorithm *candidate,
                           int n, AlgorithmRun *run, void *state, cudaStream_t stream) {
    Algorithm chosen = candidate[0];
    int best;
    /* Another product of this shape, or another process, may have been here since. */
    if (algorithm_find(all, q, &chosen)) return chosen;
    if (n > 1 && cache_can_write(all->folder) &&
        time_candidates(all, candidate, n, run, state, stream, &best)) {
        Algorithm timed = candidate[best];
        if (publish(all, q, &timed)) chosen = timed;
    }
    remember(all, q, &chosen);
    return chosen;
}
