/* cublaslt.c M K N ...: how fast cublasLt's fastest algorithm is for bfloat16 products [M, K] x [K,
 * N]: of all that it offers, without what host/cuda leaves out. A line for each, as kernels.lua
 * prints them. */
#include "cuda/algorithm.h"

#include <stdio.h>
#include <stdlib.h>

enum { OFFERED = 512, FINALISTS = 8, WORKSPACE = 64 << 20 };

static ApiCudart rt;
static ApiCublasLt lt;
static cublasLtHandle_t handle;
static cudaStream_t stream;
static cudaEvent_t before, after;
static char *workspace;

static void must(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "cublaslt: %s failed\n", what);
    exit(1);
}
#define CUDA(call) must(rt.call == cudaSuccess, #call)
#define BLAS(call) must(lt.call == CUBLAS_STATUS_SUCCESS, #call)

typedef struct Product {
    int64_t m, k, n;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t x, w, y;
    char *at_x, *at_w, *at_y;
} Product;

/* Random numbers in [-1, 1): what zeros make a GPU do is less than what numbers do. */
static char *matrix(int64_t elements) {
    static uint32_t state = 1;
    uint16_t *from = malloc((size_t)elements * 2);
    char *to;
    must(from != NULL, "malloc");
    for (int64_t i = 0; i < elements; i++) {
        union {
            float f;
            uint32_t bits;
        } u;
        state = state * 1664525 + 1013904223;
        u.f = (float)(state >> 8) / (1 << 23) - 1;
        from[i] = (uint16_t)(u.bits >> 16);
    }
    CUDA(cudaMalloc((void **)&to, (size_t)elements * 2));
    CUDA(cudaMemcpyAsync(to, from, (size_t)elements * 2, cudaMemcpyDefault, stream));
    CUDA(cudaStreamSynchronize(stream));
    free(from);
    return to;
}

/* Column-major matrices are the transposes of ours: y^T = w^T x^T. */
static Product product(int64_t m, int64_t k, int64_t n) {
    Product p = {.m = m, .k = k, .n = n};
    BLAS(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(cublasLtMatrixLayoutCreate(&p.x, CUDA_R_16BF, (uint64_t)k, (uint64_t)m, k));
    BLAS(cublasLtMatrixLayoutCreate(&p.w, CUDA_R_16BF, (uint64_t)n, (uint64_t)k, n));
    BLAS(cublasLtMatrixLayoutCreate(&p.y, CUDA_R_16BF, (uint64_t)n, (uint64_t)m, n));
    p.at_x = matrix(m * k);
    p.at_w = matrix(k * n);
    p.at_y = matrix(m * n);
    return p;
}

static void drop(Product *p) {
    lt.cublasLtMatmulDescDestroy(p->desc);
    lt.cublasLtMatrixLayoutDestroy(p->x);
    lt.cublasLtMatrixLayoutDestroy(p->w);
    lt.cublasLtMatrixLayoutDestroy(p->y);
    CUDA(cudaFree(p->at_x));
    CUDA(cudaFree(p->at_w));
    CUDA(cudaFree(p->at_y));
}

/* Milliseconds of one of so many runs; < 0: it cannot run. */
static float time_of(const Product *p, const cublasLtMatmulAlgo_t *by, int runs) {
    const float one = 1, zero = 0;
    float ms;
    CUDA(cudaEventRecord(before, stream));
    for (int i = 0; i < runs; i++)
        if (lt.cublasLtMatmul(handle, p->desc, &one, p->at_w, p->w, p->at_x, p->x, &zero, p->at_y,
                              p->y, p->at_y, p->y, by, workspace, WORKSPACE,
                              stream) != CUBLAS_STATUS_SUCCESS)
            return -1;
    CUDA(cudaEventRecord(after, stream));
    CUDA(cudaEventSynchronize(after));
    CUDA(cudaEventElapsedTime(&ms, before, after));
    return ms / (float)runs;
}

static int offers(const Product *p, cublasLtMatmulHeuristicResult_t out[OFFERED]) {
    const uint64_t bytes = WORKSPACE;
    cublasLtMatmulPreference_t wanted;
    int n = 0;
    BLAS(cublasLtMatmulPreferenceCreate(&wanted));
    BLAS(cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &bytes, sizeof bytes));
    BLAS(cublasLtMatmulAlgoGetHeuristic(handle, p->desc, p->w, p->x, p->y, p->y, wanted, OFFERED,
                                        out, &n));
    BLAS(cublasLtMatmulPreferenceDestroy(wanted));
    return n;
}

typedef struct Timed {
    float ms;
    int which;
} Timed;

static int by_time(const void *a, const void *b) {
    float x = ((const Timed *)a)->ms, y = ((const Timed *)b)->ms;
    return (x > y) - (x < y);
}

/* One run of each that is offered; then the fastest ones for a twentieth of a second each. */
static float fastest(const Product *p) {
    static cublasLtMatmulHeuristicResult_t offer[OFFERED];
    static Timed timed[OFFERED];
    int n = offers(p, offer), good = 0;
    float best = -1;
    for (int i = 0; i < n; i++) {
        float ms = time_of(p, &offer[i].algo, 1);
        if (ms >= 0) ms = time_of(p, &offer[i].algo, 1);
        if (ms >= 0) timed[good++] = (Timed){ms, i};
    }
    qsort(timed, (size_t)good, sizeof *timed, by_time);
    for (int i = 0; i < good && i < FINALISTS; i++) {
        int runs = timed[i].ms > 0 ? 1 + (int)(50 / timed[i].ms) : 1;
        float ms = time_of(p, &offer[timed[i].which].algo, runs < 1000 ? runs : 1000);
        if (ms > 0 && (best < 0 || ms < best)) best = ms;
    }
    return best;
}

static void open_libraries(void) {
    const ApiLibrary runtime = API_LIBRARY("the CUDA runtime", API_CUDART, "libcudart.so.13",
                                           "libcudart.so.12"),
                     blas = API_LIBRARY("cublasLt", API_CUBLASLT, "libcublasLt.so.13",
                                        "libcublasLt.so.12");
    char error[256];
    int version = 0;
    if (!api_open(&runtime, API_ANY, &rt, error, sizeof error) ||
        rt.cudaRuntimeGetVersion(&version) != cudaSuccess ||
        !api_open(&blas, api_version(version), &lt, error, sizeof error)) {
        fprintf(stderr, "cublaslt: %s\n", error);
        exit(1);
    }
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&before, cudaEventDefault));
    CUDA(cudaEventCreateWithFlags(&after, cudaEventDefault));
    CUDA(cudaMalloc((void **)&workspace, WORKSPACE));
    BLAS(cublasLtCreate(&handle));
}

int main(int argc, char **argv) {
    open_libraries();
    for (int i = 1; i + 2 < argc; i += 3) {
        Product p = product(atoll(argv[i]), atoll(argv[i + 1]), atoll(argv[i + 2]));
        float ms = fastest(&p);
        must(ms > 0, "every algorithm");
        printf("matmul %lldx%lldx%lld ms=%.4f rate=%.1f unit=TFLOP/s\n", (long long)p.m,
               (long long)p.k, (long long)p.n, (double)ms,
               2e-9 * (double)p.m * (double)p.k * (double)p.n / (double)ms);
        drop(&p);
    }
    return 0;
}
