/* cublaslt.c - a stand-in for libcublasLt.so.13: the functions that host/cuda uses, as naive
 * products in their stream's turn. It refuses what the library refuses, and more where the library
 * would go wrong in silence: sizes that do not fit, leading dimensions that are too short, results
 * that overlap, addresses and a workspace that an algorithm cannot use.
 *
 * Its algorithms add up in different orders, so that results say which of them ran: algorithm i
 * sums i + 1 parts, held in the workspace. All but the last want addresses of 16 bytes;
 * STANDIN_CUBLASLT_ALIGNED=1: all. STANDIN_CUBLASLT_FAIL=create: it does not open; matmul: no
 * product runs.
 *
 * STANDIN_CUBLASLT_LOG=FILE gets a line for each call: "heuristic", "check I", "matmul I", with
 * what the product does besides: "matmul I c bias aux gelu".
 *
 * STANDIN_CUBLASLT_MORE=fast: such products are supported, and all others take a second longer by
 * the events; slow: the other way round. Each is another version of the library. */
#include "standin.h"

#include <cublasLt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { ALGORITHMS = 4, MAGIC = 0x6c740000, WORKSPACE_ALIGN = 256, VERSION = 130100 };

typedef struct Layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading, stride;
    int32_t batch;
} Layout;

typedef struct Desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t op[2]; /* of A and B */
    uint32_t epilogue;
    char *bias, *aux; /* the former also for sums */
    int64_t aux_leading;
} Desc;

typedef struct Preference {
    uint64_t workspace;
    uint32_t reduction, alignment[4];
} Preference;

typedef struct Work { /* a product in its stream */
    Desc desc;
    Layout a, b, c, d;
    double alpha, beta;
    const char *from_a, *from_b, *from_c;
    char *to, *workspace;
    int parts;
} Work;

static void note(const char *what, int algorithm, const char *more) {
    const char *path = getenv("STANDIN_CUBLASLT_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    if (algorithm < 0)
        fprintf(f, "%s\n", what);
    else
        fprintf(f, "%s %d%s\n", what, algorithm, more);
    fclose(f);
}

/* ---- what a product does besides ---- */

/* Whether that is supported, and then fast. */
typedef enum More { UNSUPPORTED, SLOW, FAST } More;
static More more(void) {
    const char *which = getenv("STANDIN_CUBLASLT_MORE");
    return !which ? UNSUPPORTED : strcmp(which, "fast") == 0 ? FAST : SLOW;
}

static int does_more(const Desc *d, double beta) {
    return beta != 0 || d->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
}

static int has(const Desc *d, uint32_t what) {
    return (d->epilogue & what) == what;
}

/* The factor whose sums over k are wanted, by its number from 1 on; or 0. */
static int sums_of(const Desc *d) {
    return d->epilogue == CUBLASLT_EPILOGUE_BGRADA   ? 1
           : d->epilogue == CUBLASLT_EPILOGUE_BGRADB ? 2
                                                     : 0;
}

/* " c bias aux gelu": of a product with that beta. */
static void besides(const Desc *d, int c, char words[32]) {
    snprintf(words, 32, "%s%s%s%s%s%s", c ? " c" : "",
             has(d, CUBLASLT_EPILOGUE_BIAS) ? " bias" : "", has(d, 128) ? " aux" : "",
             has(d, CUBLASLT_EPILOGUE_GELU) ? " gelu" : "", has(d, 64) ? " dgelu" : "",
             sums_of(d) ? " sums" : "");
}

/* ---- elements ---- */

static size_t size_of(cudaDataType_t t) {
    return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2;
}

static float from_half(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    float x = e == 31 ? (m ? NAN : INFINITY)
              : e     ? ldexpf((float)(m + 1024), e - 25)
                      : ldexpf((float)m, -24);
    return h >> 15 ? -x : x;
}
static uint16_t to_half(float x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float a = fabsf(x);
    if (isnan(x)) return 0x7e00;
    if (a >= 65520) return sign | 0x7c00;
    if (a < 0x1p-14f) return sign | (uint16_t)rintf(ldexpf(a, 24));
    int e = ilogbf(a);
    /* A mantissa that rounds up to 2048 carries into the exponent by itself. */
    return (uint16_t)(sign | (((e + 14) << 10) + (int)rintf(ldexpf(a, 10 - e))));
}
static float from_bfloat(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static uint16_t to_bfloat(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double get(cudaDataType_t t, const char *p) {
    uint16_t h;
    float f;
    double d;
    switch (t) {
    case CUDA_R_16F: memcpy(&h, p, 2); return from_half(h);
    case CUDA_R_16BF: memcpy(&h, p, 2); return from_bfloat(h);
    case CUDA_R_32F: memcpy(&f, p, 4); return f;
    default: memcpy(&d, p, 8); return d;
    }
}
static void put(cudaDataType_t t, char *p, double x) {
    float f = (float)x;
    uint16_t h = t == CUDA_R_16F ? to_half(f) : to_bfloat(f);
    memcpy(p, t == CUDA_R_64F ? (void *)&x : t == CUDA_R_32F ? (void *)&f : &h, size_of(t));
}

/* ---- the product ---- */

static const char *element(const Layout *l, const char *at, int32_t op, int64_t b, uint64_t row,
                           uint64_t column) {
    uint64_t r = op == CUBLAS_OP_N ? row : column, c = op == CUBLAS_OP_N ? column : row;
    return at +
           (b * l->stride + (int64_t)(r + c * (uint64_t)l->leading)) * (int64_t)size_of(l->type);
}

/* To nearest, of 10 bits. */
static float to_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}

static uint64_t depth_of(const Desc *d, const Layout *a) {
    return d->op[0] == CUBLAS_OP_N ? a->columns : a->rows;
}

/* The sum over [from, to) in the type of the computation. */
static double sum_of(const Work *w, int64_t b, uint64_t row, uint64_t column, uint64_t from,
                     uint64_t to) {
    double wide = 0;
    float sum = 0;
    for (uint64_t l = from; l < to; l++) {
        double x = get(w->a.type, element(&w->a, w->from_a, w->desc.op[0], b, row, l)),
               y = get(w->b.type, element(&w->b, w->from_b, w->desc.op[1], b, l, column));
        wide = fma(x, y, wide);
        if (w->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32)
            x = to_tf32((float)x), y = to_tf32((float)y);
        sum = fmaf((float)x, (float)y, sum);
    }
    return w->desc.compute == CUBLAS_COMPUTE_64F ? wide : sum;
}

/* ---- what is done before it is stored ---- */

static void be_slow(const Work *w) {
    More which = does_more(&w->desc, w->beta) ? SLOW : FAST;
    if (more() == which) standin_take(1000);
}

static double gelu(double x, double *slope) {
    double factor = 0.7978845608028654, t = tanh(factor * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * factor * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static double finish(const Work *w, uint64_t row, uint64_t column, double x) {
    const Desc *d = &w->desc;
    size_t size = size_of(w->d.type);
    char *aux = d->aux + (row + column * (uint64_t)d->aux_leading) * size;
    double slope;
    if (has(d, CUBLASLT_EPILOGUE_BIAS)) x += get(w->d.type, d->bias + row * size);
    if (has(d, CUBLASLT_EPILOGUE_GELU_AUX)) put(w->d.type, aux, x);
    if (has(d, CUBLASLT_EPILOGUE_GELU)) return gelu(x, &slope);
    if (!has(d, CUBLASLT_EPILOGUE_DGELU)) return x;
    gelu(get(w->d.type, aux), &slope);
    return x * slope;
}

/* The sums of A's rows, or of B's columns. */
static void store_sums(const Work *w, uint64_t k) {
    int of_a = sums_of(&w->desc) == 1;
    for (uint64_t i = 0; i < (of_a ? w->d.rows : w->d.columns); i++) {
        float sum = 0;
        for (uint64_t l = 0; l < k; l++)
            sum += (float)get(w->a.type, of_a ? element(&w->a, w->from_a, w->desc.op[0], 0, i, l)
                                              : element(&w->b, w->from_b, w->desc.op[1], 0, l, i));
        put(w->d.type, w->desc.bias + i * size_of(w->d.type), sum);
    }
}

static cudaError_t run(void *data) {
    const Work *w = data;
    uint64_t k = depth_of(&w->desc, &w->a);
    if (sums_of(&w->desc)) store_sums(w, k);
    double *part = (double *)w->workspace, one;
    be_slow(w);
    for (int64_t b = 0; b < w->d.batch; b++)
        for (uint64_t column = 0; column < w->d.columns; column++)
            for (uint64_t row = 0; row < w->d.rows; row++) {
                double *parts = w->parts > 1 ? part : &one, sum = 0;
                for (int i = 0; i < w->parts; i++)
                    parts[i] = sum_of(w, b, row, column, k * (uint64_t)i / (uint64_t)w->parts,
                                      k * (uint64_t)(i + 1) / (uint64_t)w->parts);
                for (int i = 0; i < w->parts; i++) {
                    sum += parts[i];
                    if (w->desc.compute != CUBLAS_COMPUTE_64F) sum = (float)sum;
                }
                sum *= w->alpha;
                if (w->beta != 0)
                    sum += w->beta *
                           get(w->c.type, element(&w->c, w->from_c, CUBLAS_OP_N, b, row, column));
                sum = finish(w, row, column, sum);
                put(w->d.type, (char *)element(&w->d, w->to, CUBLAS_OP_N, b, row, column), sum);
            }
    return cudaSuccess;
}

/* ---- what fits ---- */

static int fits_type(const Desc *d, const Layout *a, const Layout *b, const Layout *c) {
    if (a->type != b->type) return 0;
    if (a->type == CUDA_R_64F)
        return c->type == a->type && d->compute == CUBLAS_COMPUTE_64F && d->scale == CUDA_R_64F;
    int tf32 = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type == CUDA_R_32F;
    if ((d->compute != CUBLAS_COMPUTE_32F && !tf32) || d->scale != CUDA_R_32F) return 0;
    return c->type == CUDA_R_32F || (c->type == a->type && a->type != CUDA_R_32F);
}

/* Epilogues are those that host/cuda asks for, of one matrix. */
static int fits_epilogue(const Desc *d, const Layout *out) {
    static const uint32_t known[] = {CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_GELU,
                                     CUBLASLT_EPILOGUE_GELU_BIAS,     CUBLASLT_EPILOGUE_GELU_AUX,
                                     CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                                     CUBLASLT_EPILOGUE_BGRADA,        CUBLASLT_EPILOGUE_BGRADB};
    if (d->epilogue == CUBLASLT_EPILOGUE_DEFAULT) return 1;
    if (more() == UNSUPPORTED) return 0;
    if (out->batch != 1 || out->type == CUDA_R_64F) return 0;
    if ((has(d, CUBLASLT_EPILOGUE_BIAS) || sums_of(d)) && !d->bias) return 0;
    if (has(d, 128) && (!d->aux || d->aux_leading % 8 || d->aux_leading < (int64_t)out->rows))
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (d->epilogue == known[i]) return 1;
    return 0;
}

static int fits(const Desc *d, const Layout *a, const Layout *b, const Layout *c,
                const Layout *out) {
    const Layout *all[4] = {a, b, c, out};
    uint64_t m = d->op[0] == CUBLAS_OP_N ? a->rows : a->columns,
             n = d->op[1] == CUBLAS_OP_N ? b->columns : b->rows,
             k = d->op[1] == CUBLAS_OP_N ? b->rows : b->columns;
    for (int i = 0; i < 4; i++)
        if (all[i]->leading < (int64_t)all[i]->rows || all[i]->rows == 0 || all[i]->columns == 0 ||
            all[i]->batch != a->batch || all[i]->stride < 0)
            return 0;
    if (out->batch > 1) { /* matrices side by side, or one below the other within the columns */
        int64_t whole = out->leading * (int64_t)(out->columns - 1) + (int64_t)out->rows;
        int between = out->stride >= (int64_t)out->rows &&
                      out->stride * (out->batch - 1) + (int64_t)out->rows <= out->leading;
        if (out->stride < whole && !between) return 0;
    }
    return memcmp(c, out, sizeof *c) == 0 && fits_type(d, a, b, out) && fits_epilogue(d, out) &&
           out->rows == m && out->columns == n && k == depth_of(d, a);
}

static size_t workspace_of(int algorithm) {
    return algorithm == 0 ? 0 : (size_t)(algorithm + 1) * sizeof(double);
}
static uint32_t alignment_of(int algorithm) {
    return algorithm == ALGORITHMS - 1 && !getenv("STANDIN_CUBLASLT_ALIGNED") ? 1 : 16;
}

/* -1: it is none of ours. */
static int algorithm_of(const cublasLtMatmulAlgo_t *x) {
    uint64_t i = x->data[0] - MAGIC;
    return i < ALGORITHMS && x->data[1] == ~x->data[0] ? (int)i : -1;
}

/* ---- the library ---- */

static int fails(const char *what) {
    const char *which = getenv("STANDIN_CUBLASLT_FAIL");
    return which && strcmp(which, what) == 0;
}

API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    if (fails("create")) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = (cublasLtHandle_t)calloc(1, 1);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
API size_t cublasLtGetVersion(void) {
    return VERSION + (size_t)more();
}
API const char *cublasLtGetStatusString(cublasStatus_t s) {
    switch (s) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
    default: return "a failure";
    }
}

API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                              uint64_t rows, uint64_t columns, int64_t leading) {
    Layout *l = malloc(sizeof *l);
    if (!l) return CUBLAS_STATUS_ALLOC_FAILED;
    memset(l, 0, sizeof *l);
    l->type = type;
    l->rows = rows;
    l->columns = columns;
    l->leading = leading;
    l->batch = 1;
    *layout = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t want, const void *from, size_t size) {
    if (size != want) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                    cublasLtMatrixLayoutAttribute_t what,
                                                    const void *value, size_t size) {
    Layout *l = (Layout *)layout;
    if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return set(&l->batch, sizeof l->batch, value, size);
    if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        return set(&l->stride, sizeof l->stride, value, size);
    return CUBLAS_STATUS_INVALID_VALUE;
}

API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                            cudaDataType_t scale) {
    Desc *d = malloc(sizeof *d);
    if (!d) return CUBLAS_STATUS_ALLOC_FAILED;
    *d = (Desc){.compute = compute, .scale = scale, .op = {CUBLAS_OP_N, CUBLAS_OP_N}};
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *desc = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                  cublasLtMatmulDescAttributes_t what,
                                                  const void *value, size_t size) {
    Desc *d = (Desc *)desc;
    if (what == CUBLASLT_MATMUL_DESC_TRANSA) return set(&d->op[0], sizeof d->op[0], value, size);
    if (what == CUBLASLT_MATMUL_DESC_TRANSB) return set(&d->op[1], sizeof d->op[1], value, size);
    if (what == CUBLASLT_MATMUL_DESC_EPILOGUE)
        return set(&d->epilogue, sizeof d->epilogue, value, size);
    if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        return set(&d->bias, sizeof d->bias, value, size);
    if (what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
        return set(&d->aux, sizeof d->aux, value, size);
    if (what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
        return set(&d->aux_leading, sizeof d->aux_leading, value, size);
    return CUBLAS_STATUS_INVALID_VALUE;
}

API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    Preference *p = malloc(sizeof *p);
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (Preference){0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    *preference = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                        cublasLtMatmulPreferenceAttributes_t what,
                                                        const void *value, size_t size) {
    Preference *p = (Preference *)preference;
    int which = (int)what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&p->workspace, sizeof p->workspace, value, size);
    if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return set(&p->reduction, sizeof p->reduction, value, size);
    if (which >= 0 && which < 4)
        return set(&p->alignment[which], sizeof p->alignment[which], value, size);
    return CUBLAS_STATUS_INVALID_VALUE;
}

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int asked, cublasLtMatmulHeuristicResult_t result[],
    int *found) {
    const Preference *p = (const Preference *)preference;
    int n = 0;
    note("heuristic", -1, "");
    *found = 0;
    if (!handle || asked <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits((const Desc *)desc, (const Layout *)a, (const Layout *)b, (const Layout *)c,
              (const Layout *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < ALGORITHMS && n < asked; i++) {
        int good = workspace_of(i) <= p->workspace &&
                   (i == 0 || p->reduction & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
        for (int k = 0; k < 4; k++) good = good && p->alignment[k] >= alignment_of(i);
        if (!good) continue;
        memset(&result[n], 0, sizeof result[n]);
        result[n].algo.data[0] = MAGIC + (uint64_t)i;
        result[n].algo.data[1] = ~result[n].algo.data[0];
        result[n].workspaceSize = workspace_of(i);
        result[n++].state = CUBLAS_STATUS_SUCCESS;
    }
    *found = n;
    return n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

API cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                           const cublasLtMatmulAlgo_t *algo,
                                           cublasLtMatmulHeuristicResult_t *result) {
    int i = algorithm_of(algo);
    note("check", i, "");
    if (!handle || i < 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits((const Desc *)desc, (const Layout *)a, (const Layout *)b, (const Layout *)c,
              (const Layout *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = workspace_of(i);
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                  const void *alpha, const void *from_a, cublasLtMatrixLayout_t a,
                                  const void *from_b, cublasLtMatrixLayout_t b, const void *beta,
                                  const void *from_c, cublasLtMatrixLayout_t c, void *to,
                                  cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                  void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    const Desc *how = (const Desc *)desc;
    int i = algo ? algorithm_of(algo) : -1, device = -1;
    int wide = how->scale == CUDA_R_64F;
    double factor = wide ? *(const double *)beta : *(const float *)beta;
    char words[32];
    besides(how, factor != 0, words);
    note("matmul", i, words);
    if (does_more(how, factor) && more() == UNSUPPORTED) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!handle || i < 0 || !from_a || !from_b || !to) return CUBLAS_STATUS_INVALID_VALUE;
    if (fails("matmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
    cudaGetDevice(&device); /* that a kernel is launched on */
    if (standin_device_of(stream) != device) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (workspace_bytes < workspace_of(i) ||
        (workspace_of(i) > 0 && (!workspace || (uintptr_t)workspace % WORKSPACE_ALIGN)))
        return CUBLAS_STATUS_INVALID_VALUE;
    uintptr_t addresses = (uintptr_t)from_a | (uintptr_t)from_b | (uintptr_t)to |
                          (uintptr_t)from_c | (uintptr_t)how->bias | (uintptr_t)how->aux;
    if (addresses % alignment_of(i)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!fits(how, (const Layout *)a, (const Layout *)b, (const Layout *)c, (const Layout *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    Work w = {.desc = *how,
              .a = *(const Layout *)a,
              .b = *(const Layout *)b,
              .c = *(const Layout *)c,
              .d = *(const Layout *)d,
              .alpha = wide ? *(const double *)alpha : *(const float *)alpha,
              .beta = factor,
              .from_a = from_a,
              .from_b = from_b,
              .from_c = from_c,
              .to = to,
              .workspace = workspace,
              .parts = i + 1};
    return standin_enqueue(stream, run, &w, sizeof w) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
