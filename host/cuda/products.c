#include "cuda/products.h"
#include "cuda/algorithm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGNED = 16, /* bytes: the widest access of an algorithm */
    HOPPER = 9,
};

struct Products {
    CudaLibrary library;
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
    size_t scratch;             /* where its workspace begins */
    const LaunchesOther *other; /* of a pair: see launches.h */
    int32_t operands, spare;    /* of a pair: their number; `written` of launches.h */
    AlgorithmQuery query;
    int ncandidate; /* > 0: none is chosen yet */
    Algorithm candidate[ALGORITHM_CANDIDATES + 1], chosen;
} Product;

typedef struct ProductCall {
    Product *p;
    char *const *address; /* of each operand */
    char *scratch;
    cudaStream_t stream;
} ProductCall;

static const ApiLibrary library =
    API_LIBRARY("cublasLt", API_CUBLASLT, "libcublasLt.so.13", "libcublasLt.so.12");

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

static int set(const ApiCublasLt *lt, cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
               const void *value, size_t size) {
    return lt->cublasLtMatmulDescSetAttribute(d, which, value, size) == CUBLAS_STATUS_SUCCESS;
}

static int transpose(const ApiCublasLt *lt, cublasLtMatmulDesc_t d,
                     cublasLtMatmulDescAttributes_t which, int is) {
    int32_t op = is ? CUBLAS_OP_T : CUBLAS_OP_N;
    return set(lt, d, which, &op, sizeof op);
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t epilogue_of(const CudaProduct *q) {
    const CudaEpilogue *e = &q->after;
    if (e->sums) return q->y.transposed ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
    if (e->activation == CUDA_DGELU) return CUBLASLT_EPILOGUE_DGELU;
    if (e->activation == CUDA_NONE)
        return e->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (e->aux) return e->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return e->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

/* The library takes the alignment of what it may assume from the addresses. */
static int set_addresses(const Product *p, const void *bias, const void *aux) {
    const ApiCublasLt *lt = &p->products->lt;
    const CudaEpilogue *e = &p->q.after;
    return (!(e->bias || e->sums) ||
            set(lt, p->query.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)) &&
           (!e->aux ||
            set(lt, p->query.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
}

static int set_epilogue(const Product *p) {
    const ApiCublasLt *lt = &p->products->lt;
    uint32_t which = epilogue_of(&p->q);
    int64_t leading = p->q.y.leading;
    return (which == CUBLASLT_EPILOGUE_DEFAULT ||
            set(lt, p->query.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &which, sizeof which)) &&
           (!p->q.after.aux || set(lt, p->query.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                   &leading, sizeof leading));
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
           layout(lt, &d->d, q->out, &q->y, q->m, q->n, q->batch) && set_epilogue(p);
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
    if (p->other && n < ALGORITHM_KEY)
        snprintf(key + n, (size_t)(ALGORITHM_KEY - n), ", epilogue %u, factors %08x %08x",
                 epilogue_of(q), bits_of(q->after.alpha), bits_of(q->after.beta));
}

/* An algorithm, or candidates for one, for addresses of that alignment. The other way of a pair's
 * product is the first of them: it stays where nothing is timed. */
static int prepare(Product *p, uint32_t alignment) {
    const void *any = (const void *)(uintptr_t)alignment;
    int others = p->other != NULL;
    p->query.alignment = alignment;
    p->ncandidate = 0;
    write_key(p, p->query.key);
    if (!set_addresses(p, any, any)) return 0;
    if (algorithm_find(&p->products->all, &p->query, &p->chosen)) return 1;
    int n = algorithm_candidates(&p->products->all, &p->query, p->candidate + others);
    if (others) p->candidate[0] = (Algorithm){.apart = 1};
    p->ncandidate = n > 0 ? n + others : 0;
    return n > 0;
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

static cublasStatus_t run_at(const ProductCall *c, const Algorithm *by, int64_t x, int64_t w,
                             int64_t y) {
    const Product *p = c->p;
    const AlgorithmQuery *d = &p->query;
    const CudaEpilogue *e = &p->q.after;
    size_t in = size_of(p->q.in), out = size_of(p->q.out);
    const double wide_alpha = (double)e->alpha, wide_beta = (double)e->beta;
    int wide = p->q.in == DT_F64, turned = p->q.y.transposed;
    const char *from_x = c->address[p->q.x.operand] + x * (int64_t)in,
               *from_w = c->address[p->q.w.operand] + w * (int64_t)in;
    char *to = c->address[p->q.y.operand] + y * (int64_t)out;
    const char *added = e->c ? c->address[e->c] + y * (int64_t)out : to;
    return p->products->lt.cublasLtMatmul(
        p->products->all.handle, d->product, wide ? (const void *)&wide_alpha : &e->alpha,
        turned ? from_x : from_w, d->a, turned ? from_w : from_x, d->b,
        wide ? (const void *)&wide_beta : &e->beta, added, d->d, to, d->d, &by->algo,
        c->scratch + p->scratch, by->workspace, c->stream);
}

/* All positions of the dims around. */
static cublasStatus_t run(void *state, const Algorithm *by) {
    const ProductCall *c = state;
    const CudaProduct *q = &c->p->q;
    const CudaEpilogue *e = &q->after;
    int64_t at[K_MAX_RANK] = {0};
    if (by->apart)
        return c->p->other->run(c->p->other->state, c->address, c->scratch)
                   ? CUBLAS_STATUS_SUCCESS
                   : CUBLAS_STATUS_EXECUTION_FAILED;
    if (!set_addresses(c->p, c->address[e->bias ? e->bias : e->sums], c->address[e->aux]))
        return CUBLAS_STATUS_INVALID_VALUE;
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
static uint32_t alignment_of(const ProductCall *c) {
    const CudaProduct *q = &c->p->q;
    const CudaMatrix *m[3] = {&q->x, &q->w, &q->y};
    const int32_t operand[7] = {q->x.operand, q->w.operand, q->y.operand, q->after.sums,
                                q->after.c,   q->after.aux, q->after.bias};
    uintptr_t bits = 0;
    for (int i = 0; i < 7; i++) bits |= (uintptr_t)c->address[operand[i]];
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < q->rank; d++)
            bits |= (uintptr_t)m[i]->strides[d] * size_of(i == 2 ? q->out : q->in);
    uint32_t alignment = ALIGNED;
    while (alignment > 1 && bits % alignment) alignment /= 2;
    return alignment;
}

/* What the library does behind a product is promised nowhere for a result that is written over what
 * gelu's slope is taken at, nor for addresses of less than 16 bytes: with a bias at such an address
 * marian-nmt has seen an A100 fault (src/tensors/gpu/prod.cpp). */
static int is_unsafe(const ProductCall *c, uint32_t alignment) {
    const CudaProduct *q = &c->p->q;
    int over =
        q->after.activation == CUDA_DGELU && c->address[q->after.aux] == c->address[q->y.operand];
    return c->p->other && (over || alignment < ALIGNED);
}

/* Timing must not change what it reads: what stands in the place of an input is written to where
 * the first of a pair leaves its result. 0: out of memory. */
static int choose(const ProductCall *c) {
    Product *p = c->p;
    ProductCall timed = *c;
    char **address = malloc((size_t)p->operands * sizeof *address + 1);
    if (!address) return 0;
    memcpy(address, c->address, (size_t)p->operands * sizeof *address);
    for (int32_t k = p->spare + 1; k < p->operands; k++)
        for (int32_t i = 0; i < p->spare; i++)
            if (c->address[k] == c->address[i]) address[k] = c->address[p->spare];
    if (p->other) timed.address = address;
    p->chosen = algorithm_choose(&p->products->all, &p->query, p->candidate, p->ncandidate, run,
                                 &timed, c->stream);
    p->ncandidate = 0;
    free(address);
    return 1;
}

static int call(void *state, char *const *address, char *scratch, void *stream, char *error,
                size_t size) {
    Product *p = state;
    ProductCall c = {p, address, scratch, stream};
    uint32_t alignment = alignment_of(&c);
    if (is_unsafe(&c, alignment)) {
        p->chosen = (Algorithm){.apart = 1};
        p->ncandidate = 0;
    } else if (alignment < p->query.alignment && !prepare(p, alignment)) {
        snprintf(error, size, "cublasLt has no algorithm for %s", p->query.key);
        p->query.alignment = UINT32_MAX; /* the next call asks anew, for what it brings */
        return 0;
    } else if (p->ncandidate > 0 && !choose(&c)) {
        snprintf(error, size, "out of memory for a product");
        return 0;
    }
    cublasStatus_t s = run(&c, &p->chosen);
    if (s == CUBLAS_STATUS_SUCCESS) return 1;
    if (p->chosen.apart) return 0; /* the other way has said why */
    snprintf(error, size, "cublasLtMatmul: %s (%s)", p->products->lt.cublasLtGetStatusString(s),
             p->query.key);
    return 0;
}

static Product *new_product(Products *products, const Launches *p, const CudaProduct *q) {
    Product *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->products = products;
    made->q = *q;
    made->query.may_part = p->other != NULL;
    made->other = p->other;
    if (p->other) {
        made->spare = p->written;
        made->operands = p->args->nin + p->args->nout;
    }
    return made;
}

static int add_product(void *self, Launches *p, const CudaProduct *q) {
    Products *products = self;
    if (q->batch > INT32_MAX) return 0;
    /* What is chosen between must be kept, or it would change from run to run. */
    if (p->other && !products->all.folder) return 0;
    char error[256];
    Product *made = new_product(products, p, q);
    if (!made || !open_library(products, error, sizeof error)) {
        launches_fail(p, "%s", made ? error : "out of memory for a product");
        free(made);
        return 1;
    }
    if (!describe(made) || !prepare(made, ALIGNED)) {
        drop(made);
        return 0;
    }
    made->scratch = cuda_take_scratch(p, products->all.workspace);
    cuda_call(p, "cublasLtMatmul", call, made, drop);
    return 1;
}

Products *products_new(const ApiCudart *rt, const DeviceGpu *gpu, const char *folder, int tf32) {
    Products *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->library = (CudaLibrary){add_product, p};
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

const CudaLibrary *products_library(const Products *p) {
    return &p->library;
}
