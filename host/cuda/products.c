#include "cuda/products.h"
#include "cuda/algorithm.h"
#include "cuda/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGNED = 16, /* bytes: the widest access of an algorithm */
    HOPPER = 9,
};

struct Products {
    const ApiCudart *rt;
    const DeviceGpu *gpu;
    int tf32;
    ApiCublasLt lt;
    Algorithms all;  /* its handle is NULL until the library has been opened */
    char about[160]; /* of every key: what an algorithm was the best on */
};

typedef struct Product { /* one that is bound */
    Products *products;
    CudaProduct q;
    size_t scratch; /* where its workspace begins */
    AlgorithmQuery query;
    int ncandidate; /* > 0: none is chosen yet */
    Algorithm candidate[ALGORITHM_CANDIDATES], chosen;
} Product;

/* Where the product's operands are in a call. */
typedef struct Call {
    const Product *p;
    const char *x, *w;
    char *y, *workspace;
    cudaStream_t stream;
} Call;

static const ApiLibrary library =
    API_LIBRARY("cublasLt", API_CUBLASLT, "libcublasLt.so.13", "libcublasLt.so.12");

Products *products_new(const ApiCudart *rt, const DeviceGpu *gpu, const char *folder, int tf32) {
    Products *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->rt = rt;
    p->gpu = gpu;
    p->tf32 = tf32;
    p->all = (Algorithms){.rt = rt,
                          .lt = &p->lt,
                          .workspace = (uint64_t)(gpu->major >= HOPPER ? 32 : 8) << 20,
                          .folder = folder};
    return p;
}

void products_free(Products *p) {
    if (!p) return;
    if (p->all.handle) p->lt.cublasLtDestroy(p->all.handle);
    algorithm_forget(&p->all);
    free(p);
}

static int open_library(Products *p, char *error, size_t size) {
    int driver = 0, runtime = 0;
    if (p->all.handle) return 1;
    p->rt->cudaRuntimeGetVersion(&runtime);
    if (!api_open(&library, api_version(runtime), &p->lt, error, size)) return 0;
    cublasStatus_t s = p->lt.cublasLtCreate(&p->all.handle);
    if (s != CUBLAS_STATUS_SUCCESS) {
        p->all.handle = NULL;
        snprintf(error, size, "cublasLtCreate: %s", p->lt.cublasLtGetStatusString(s));
        return 0;
    }
    p->rt->cudaDriverGetVersion(&driver);
    snprintf(p->about, sizeof p->about, "%s of %d processors, driver %d, cublasLt %zu",
             p->gpu->name, (int)p->gpu->processors, driver, p->lt.cublasLtGetVersion());
    return 1;
}

/* ---- descriptors ----
 *
 * The library's matrices are column-major: what it takes for an r x c matrix of leading dimension l
 * is our c x r one. So a plain y is made as y^T = w^T x^T, where w's bytes are w^T as they stand; a
 * transposed y is made as x w. */

static cudaDataType_t type_of(DType t) {
    return t == DT_BF16  ? CUDA_R_16BF
           : t == DT_F16 ? CUDA_R_16F
           : t == DT_F64 ? CUDA_R_64F
                         : CUDA_R_32F;
}
static size_t size_of(DType t) {
    return t == DT_F64 ? 8 : t == DT_F32 ? 4 : 2;
}

static int layout(const ApiCublasLt *lt, cublasLtMatrixLayout_t *to, DType t, const CudaMatrix *m,
                  int64_t rows, int64_t columns, int64_t batch) {
    uint64_t down = (uint64_t)(m->transposed ? rows : columns),
             across = (uint64_t)(m->transposed ? columns : rows);
    int32_t count = (int32_t)batch;
    if (lt->cublasLtMatrixLayoutCreate(to, type_of(t), down, across, m->leading) !=
        CUBLAS_STATUS_SUCCESS)
        return 0;
    return batch == 1 ||
           (lt->cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                 sizeof count) == CUBLAS_STATUS_SUCCESS &&
            lt->cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &m->batch,
                                                 sizeof m->batch) == CUBLAS_STATUS_SUCCESS);
}

static int transpose(const ApiCublasLt *lt, cublasLtMatmulDesc_t d,
                     cublasLtMatmulDescAttributes_t which, int is) {
    int32_t op = is ? CUBLAS_OP_T : CUBLAS_OP_N;
    return lt->cublasLtMatmulDescSetAttribute(d, which, &op, sizeof op) == CUBLAS_STATUS_SUCCESS;
}

static int is_tf32(const Product *p) {
    return p->products->tf32 && p->q.in == DT_F32;
}

static int describe(Product *p) {
    const ApiCublasLt *lt = &p->products->lt;
    const CudaProduct *q = &p->q;
    AlgorithmQuery *d = &p->query;
    int turned = q->y.transposed;
    cublasLtMatrixLayout_t *x = turned ? &d->a : &d->b, *w = turned ? &d->b : &d->a;
    cublasComputeType_t compute = q->in == DT_F64 ? CUBLAS_COMPUTE_64F
                                  : is_tf32(p)    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
    if (lt->cublasLtMatmulDescCreate(&d->product, compute,
                                     q->in == DT_F64 ? CUDA_R_64F : CUDA_R_32F) !=
        CUBLAS_STATUS_SUCCESS)
        return 0;
    return transpose(lt, d->product,
                     turned ? CUBLASLT_MATMUL_DESC_TRANSA : CUBLASLT_MATMUL_DESC_TRANSB,
                     q->x.transposed != turned) &&
           transpose(lt, d->product,
                     turned ? CUBLASLT_MATMUL_DESC_TRANSB : CUBLASLT_MATMUL_DESC_TRANSA,
                     q->w.transposed != turned) &&
           layout(lt, x, q->in, &q->x, q->m, q->k, q->batch) &&
           layout(lt, w, q->in, &q->w, q->k, q->n, q->batch) &&
           layout(lt, &d->d, q->out, &q->y, q->m, q->n, q->batch);
}

static void write_key(const Product *p, char key[ALGORITHM_KEY]) {
    static const char *const names[DT_COUNT] = {
        [DT_BF16] = "bfloat16", [DT_F16] = "float16", [DT_F32] = "float32", [DT_F64] = "float64"};
    const CudaProduct *q = &p->q;
    const CudaMatrix *m[3] = {&q->x, &q->w, &q->y};
    int n = snprintf(
        key, ALGORITHM_KEY, "%s: %s to %s, m %lld n %lld k %lld batch %lld, aligned %u",
        p->products->about, is_tf32(p) ? "tf32" : names[q->in], names[q->out], (long long)q->m,
        (long long)q->n, (long long)q->k, (long long)q->batch, p->query.alignment);
    for (int i = 0; i < 3 && n < ALGORITHM_KEY; i++)
        n += snprintf(key + n, (size_t)(ALGORITHM_KEY - n), ", %c %s%lld/%lld", "xwy"[i],
                      m[i] -> transposed ? "T" : "", (long long)m[i]->leading,
                      (long long)(q->batch > 1 ? m[i]->batch : 0));
}

/* An algorithm, or candidates for one, for addresses of that alignment. */
static int prepare(Product *p, uint32_t alignment) {
    p->query.alignment = alignment;
    p->ncandidate = 0;
    write_key(p, p->query.key);
    if (algorithm_find(&p->products->all, &p->query, &p->chosen)) return 1;
    p->ncandidate = algorithm_candidates(&p->products->all, &p->query, p->candidate);
    return p->ncandidate > 0;
}

static void drop(void *state) {
    Product *p = state;
    const ApiCublasLt *lt = &p->products->lt;
    cublasLtMatrixLayout_t layouts[3] = {p->query.a, p->query.b, p->query.d};
    for (int i = 0; i < 3; i++)
        if (layouts[i]) lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (p->query.product) lt->cublasLtMatmulDescDestroy(p->query.product);
    free(p);
}

/* ---- a launch ---- */

static cublasStatus_t run_at(const Call *c, const Algorithm *by, int64_t x, int64_t w, int64_t y) {
    const Product *p = c->p;
    const AlgorithmQuery *d = &p->query;
    size_t in = size_of(p->q.in), out = size_of(p->q.out);
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    int wide = p->q.in == DT_F64, turned = p->q.y.transposed;
    const char *from_x = c->x + x * (int64_t)in, *from_w = c->w + w * (int64_t)in;
    char *to = c->y + y * (int64_t)out;
    return p->products->lt.cublasLtMatmul(
        p->products->all.handle, d->product, wide ? (const void *)&wide_one : &one,
        turned ? from_x : from_w, d->a, turned ? from_w : from_x, d->b,
        wide ? (const void *)&wide_zero : &zero, to, d->d, to, d->d, &by->algo, c->workspace,
        by->workspace, c->stream);
}

/* All positions of the dims around. */
static cublasStatus_t run(void *state, const Algorithm *by) {
    const Call *c = state;
    const CudaProduct *q = &c->p->q;
    int64_t at[K_MAX_RANK] = {0};
    for (;;) {
        int64_t x = 0, w = 0, y = 0;
        for (int d = 0; d < q->rank; d++) {
            x += at[d] * q->x.strides[d];
            w += at[d] * q->w.strides[d];
            y += at[d] * q->y.strides[d];
        }
        cublasStatus_t s = run_at(c, by, x, w, y);
        if (s != CUBLAS_STATUS_SUCCESS) return s;
        int d = q->rank - 1;
        while (d >= 0 && ++at[d] == q->dims[d]) at[d--] = 0;
        if (d < 0) return s;
    }
}

/* Of all addresses that the calls see. */
static uint32_t alignment_of(const Call *c) {
    const CudaProduct *q = &c->p->q;
    const CudaMatrix *m[3] = {&q->x, &q->w, &q->y};
    uintptr_t bits = (uintptr_t)c->x | (uintptr_t)c->w | (uintptr_t)c->y;
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < q->rank; d++)
            bits |= (uintptr_t)m[i]->strides[d] * size_of(i == 2 ? q->out : q->in);
    uint32_t alignment = ALIGNED;
    while (alignment > 1 && bits % alignment) alignment /= 2;
    return alignment;
}

static int call(void *state, char *const *address, char *scratch, void *stream, char *error,
                size_t size) {
    Product *p = state;
    Call c = {p,
              address[p->q.x.operand],
              address[p->q.w.operand],
              address[p->q.y.operand],
              scratch + p->scratch,
              stream};
    uint32_t alignment = alignment_of(&c);
    if (alignment < p->query.alignment && !prepare(p, alignment)) {
        snprintf(error, size, "cublasLt has no algorithm for %s", p->query.key);
        return 0;
    }
    if (p->ncandidate > 0) {
        p->chosen = algorithm_choose(&p->products->all, &p->query, p->candidate, p->ncandidate, run,
                                     &c, stream);
        p->ncandidate = 0;
    }
    cublasStatus_t s = run(&c, &p->chosen);
    if (s == CUBLAS_STATUS_SUCCESS) return 1;
    snprintf(error, size, "cublasLtMatmul: %s (%s)", p->products->lt.cublasLtGetStatusString(s),
             p->query.key);
    return 0;
}

int cuda_product(CudaPlan *p, const CudaProduct *q) {
    static const char what[] = "cublasLtMatmul";
    if (q->batch > INT32_MAX) return 0;
    if (!p->products) {
        cuda_call(p, what, NULL, NULL, NULL);
        return 1;
    }
    char error[256];
    Product *made = calloc(1, sizeof *made);
    if (!made || !open_library(p->products, error, sizeof error)) {
        plan_fail(p, "%s", made ? error : "out of memory for a product");
        free(made);
        return 1;
    }
    made->products = p->products;
    made->q = *q;
    if (!describe(made) || !prepare(made, ALIGNED)) {
        drop(made);
        return 0;
    }
    made->scratch = cuda_take_scratch(p, p->products->all.workspace);
    cuda_call(p, what, call, made, drop);
    return 1;
}
