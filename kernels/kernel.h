/* kernel.h - the contract between a plan and the kernels that run its steps.
 *
 * Plain C and nothing else: this is the only header that a kernel includes, and the only thing that
 * the rest of the program knows of kernels. A kernel gets tensors with byte strides and computes
 * the work units [lo, hi) of a step. Units write disjoint parts of the outputs, so the caller may
 * hand them to any number of threads in any order: a result never depends on the cut.
 *
 * All units together write every element of every output, whatever lay there: outputs are memory
 * that nobody has cleared, and a param that is written may be given fresh memory for any call
 * (run/bind/fresh.h). After a fault they hold anything.
 *
 * Strides are in bytes and may be 0 (a broadcast dim) or negative (a reversed one). Inputs and
 * outputs never overlap, except where an op's row lets an output alias an input of the same
 * strides.
 *
 * A NaN in a result is some NaN: its sign and payload are promised nowhere. */
#ifndef MESHLUA_KERNEL_H
#define MESHLUA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

enum { K_MAX_RANK = 8 };

/* Element types. The order is that of `promote` (ir/dtype.c) within a kind. */
typedef enum DType {
    DT_BOOL, /* one byte, 0 or 1 */
    DT_U8,
    DT_U16,
    DT_U32,
    DT_U64,
    DT_I8,
    DT_I16,
    DT_I32,
    DT_I64,
    DT_E4M3, /* of 8 bits: 448 is the largest, there is no infinity */
    DT_E5M2, /* the upper half of a float16 */
    DT_BF16, /* storage only on a CPU, as the others below 32 bits: arithmetic is float32 */
    DT_F16,
    DT_F32,
    DT_F64,
    DT_COUNT
} DType;

static inline int k_dtype_is_float(DType t) {
    return t >= DT_E4M3;
}
/* Bytes of an element. */
static inline int64_t k_dtype_size(DType t) {
    static const uint8_t size[DT_COUNT] = {
        [DT_BOOL] = 1, [DT_U8] = 1,   [DT_U16] = 2, [DT_U32] = 4, [DT_U64] = 8,
        [DT_I8] = 1,   [DT_I16] = 2,  [DT_I32] = 4, [DT_I64] = 8, [DT_E4M3] = 1,
        [DT_E5M2] = 1, [DT_BF16] = 2, [DT_F16] = 2, [DT_F32] = 4, [DT_F64] = 8};
    return size[t];
}
/* The least and the greatest number of bool and the integers; uint64's as the int64 of its bits. */
static inline int64_t k_dtype_least(DType t) {
    static const int64_t least[DT_COUNT] = {
        [DT_I8] = INT8_MIN, [DT_I16] = INT16_MIN, [DT_I32] = INT32_MIN, [DT_I64] = INT64_MIN};
    return least[t];
}
static inline int64_t k_dtype_greatest(DType t) {
    static const int64_t greatest[DT_COUNT] = {
        [DT_BOOL] = 1,         [DT_U8] = UINT8_MAX,  [DT_U16] = UINT16_MAX,
        [DT_U32] = UINT32_MAX, [DT_U64] = -1,        [DT_I8] = INT8_MAX,
        [DT_I16] = INT16_MAX,  [DT_I32] = INT32_MAX, [DT_I64] = INT64_MAX};
    return greatest[t];
}

typedef struct KTensor {
    char *data;
    const int64_t *dims;    /* rank of them */
    const int64_t *strides; /* bytes, rank of them */
    int32_t rank;
    DType dtype;
} KTensor;

/* What a kernel found in its data that has no result; the host turns it into an error at the user's
 * line. Only the first fault of a step is kept. */
typedef enum KFaultKind { K_FAULT_NONE, K_FAULT_INDEX } KFaultKind;
typedef struct KFault {
    KFaultKind kind;
    int64_t value, limit; /* K_FAULT_INDEX: the id found; valid ids are below the limit */
} KFault;

/* Row-major gemm used by the matmul kernel when a BLAS was loaded: cblas_sgemm / cblas_dgemm. */
typedef void KSgemm(int order, int transa, int transb, int m, int n, int k, float alpha,
                    const float *a, int lda, const float *b, int ldb, float beta, float *c,
                    int ldc);
typedef void KDgemm(int order, int transa, int transb, int m, int n, int k, double alpha,
                    const double *a, int lda, const double *b, int ldb, double beta, double *c,
                    int ldc);
/* BLAS and LAPACK by Fortran's conventions: column-major, all by address, the lengths of texts at
 * the end. Matrices are of float or double. */
typedef void KTrsm(const char *side, const char *uplo, const char *trans, const char *diag,
                   const int *m, const int *n, const void *alpha, const void *a, const int *lda,
                   void *b, const int *ldb, size_t, size_t, size_t, size_t);
typedef void KPotrf(const char *uplo, const int *n, void *a, const int *lda, int *info, size_t);
typedef void KGetrf(const int *m, const int *n, void *a, const int *lda, int *ipiv, int *info);
typedef void KGeqrf(const int *m, const int *n, void *a, const int *lda, void *tau, void *work,
                    const int *lwork, int *info);
typedef void KOrgqr(const int *m, const int *n, const int *k, void *a, const int *lda,
                    const void *tau, void *work, const int *lwork, int *info);
typedef void KSyevd(const char *jobz, const char *uplo, const int *n, void *a, const int *lda,
                    void *w, void *work, const int *lwork, int *iwork, const int *liwork, int *info,
                    size_t, size_t);
typedef void KGesdd(const char *jobz, const int *m, const int *n, void *a, const int *lda, void *s,
                    void *u, const int *ldu, void *vt, const int *ldvt, void *work,
                    const int *lwork, int *iwork, int *info, size_t);
typedef struct KLapack {
    KTrsm *trsm;
    KPotrf *potrf;
    KGetrf *getrf;
    KGeqrf *geqrf;
    KOrgqr *orgqr;
    KSyevd *syevd;
    KGesdd *gesdd;
} KLapack;

typedef struct KBlas {
    KSgemm *sgemm;
    KDgemm *dgemm;
    KLapack lapack[2]; /* of float32 and of float64 */
} KBlas;

typedef struct KArgs {
    const KTensor *in, *out;
    int32_t nin, nout;
    const void *attr;       /* the struct that the kernel's comment names; NULL if none */
    const int64_t *offsets; /* attributes that differ per device, already evaluated for this one */
    void *workspace;        /* this thread's, as many bytes as `workspace` of the row asked for,
                               aligned like malloc's; its contents do not matter */
    int64_t lo, hi;         /* the units to compute */
    KFault *fault;
    const KBlas *blas; /* NULL until one is loaded */
} KArgs;

/* Returns 0, or 1 after filling *fault. */
typedef int KernelFn(const KArgs *);
/* A kernel that is a call with more arguments. */
#define K_KERNEL(name, call)                                                                       \
    static int name(const KArgs *a) {                                                              \
        return call;                                                                               \
    }

/* One row per kernel; a family file exports its rows (`k_rows_<family>`),
 * table.c lists families. */
typedef struct KernelRow {
    const char *name;
    KernelFn *fn;
    /* NULL: one unit, or no workspace. Both read dtypes, dims, strides and attr only, never data or
     * offsets. The workspace's bytes are for one thread, however many units it computes. */
    int64_t (*units)(const KArgs *);
    size_t (*workspace)(const KArgs *);
} KernelRow;

/* All kernels of the CPU for one level; the table ends with a row whose name is NULL. The levels
 * "default", "v3" and "v4" are the same sources compiled for that level of x86-64; all three give
 * the same bits, matrix products excepted. "naive" is the specification: one obvious loop per
 * kernel, to which tests hold the others. NULL if the level is unknown or this processor cannot run
 * it. */
const KernelRow *k_cpu_table(const char *level);
/* The best level this processor runs. */
const char *k_cpu_best_level(void);
/* Whether that level's large products of this type are faster with a BLAS. */
int k_cpu_uses_blas(const char *level, DType t);

/* ---- fused: a small program over registers that hold a tile of elements -------------------------
 * Computes every output element from the inputs' elements at the same index of the output's shape
 * (inputs have the outputs' dims; broadcasting is a zero stride). attr is a KProgram: the header,
 * then nimm KImm, then ninstr KInstr (in this order, so that each is aligned).
 *
 * A register has one type while it lives. bool and integers of 8 and 16 bits travel in KT_I32
 * registers; after an operation on such integers the program itself makes them wrap. Floats of
 * 8 and 16 bits travel in KT_F32 registers; the program holds a ROUND after each operation whose
 * result has that type.
 *
 * Where an output aliases an input, every LOAD of that input stands before the STORE of that
 * output. */
typedef enum KType { KT_F32, KT_F64, KT_I32, KT_U32, KT_I64, KT_U64, KT_COUNT } KType;

typedef enum KOp {
    /* dst = input `a`, converted to the register's type (k_dtype_register) */
    KI_LOAD,
    /* output `dst` = register `a`, converted to the output's dtype (i32 -> bool: != 0) */
    KI_STORE,
    /* dst = imm[a] in every element */
    KI_IMM,
    /* dst = index along dim `a` of the output's shape + offsets[b]; integer types and floats */
    KI_IOTA,
    /* dst = random bits of key (KT_U32 registers a, b) at the row-major global index i =
     * sum over the output's dims k of (index_k + offsets[c + k]) * imm[d + k], as 64 bits.
     * (o0, o1) = threefry2x32(key, (i >> 32, i & 0xffffffff)), 20 rounds; type KT_U32: o0 ^ o1,
     * KT_I64: o0 << 32 | o1. (JAX's partitionable scheme.) */
    KI_RANDOM_BITS,
    /* dst (KT_I64) = o0 << 32 | o1 of threefry2x32(key = (a, b), counter = (c, d)), all KT_U32 */
    KI_THREEFRY,
    /* unary: dst = f(a) */
    KI_NEG,
    KI_ABS,
    KI_SIGN,
    KI_EXP,
    KI_LOG,
    KI_LOG1P,
    KI_EXPM1,
    KI_TANH,
    KI_LOGISTIC,
    KI_ERF,
    KI_ERF_INV,
    KI_ERFC,
    KI_LGAMMA, /* log |gamma(a)| */
    KI_SIN,
    KI_COS,
    KI_SQRT,
    KI_RSQRT,
    KI_FLOOR,
    KI_CEIL,
    KI_ROUND, /* to nearest, ties to even */
    KI_SQUARE,
    KI_NOT,       /* bitwise; of bool values the program uses XOR with 1 */
    KI_IS_FINITE, /* -> KT_I32 0 or 1 */
    KI_ROUND_BF16,
    KI_ROUND_F16,
    KI_ROUND_E4M3,
    KI_ROUND_E5M2,
    KI_INT_POW, /* a ^ imm[b], an integer exponent >= 0, by repeated squaring */
    /* conversions: `type` is the source's, `d` is the destination KType. Float to integer truncates
     * toward zero and saturates, NaN gives 0. BITCAST keeps the bits (equal widths only). */
    KI_CONVERT,
    KI_BITCAST,
    /* binary: dst = f(a, b) */
    KI_ADD,
    KI_SUB,
    KI_MUL,
    KI_DIV, /* integers: truncating; division by zero gives -1 (all bits set) */
    KI_REM, /* sign of the dividend; integers: by zero gives the dividend */
    /* integers wrap; a negative exponent gives 1 / a^-b truncated, and all bits set for a = 0 */
    KI_POW,
    KI_MAX, /* NaN if either is NaN */
    KI_MIN,
    KI_ATAN2,     /* the angle of the point (b, a); floats only, as the next */
    KI_POLYGAMMA, /* derivative a + 1 of log gamma at b, for a whole a >= 0 */
    KI_AND,
    KI_OR,
    KI_XOR,
    KI_SHL,
    KI_SHR, /* arithmetic for signed types; a count >= the width gives 0 or the sign */
    /* comparisons: `type` is the operands', the result is KT_I32 0 or 1 */
    KI_EQ,
    KI_NE,
    KI_LT,
    KI_LE,
    KI_GT,
    KI_GE,
    /* ternary: dst = a ? b : c, a is KT_I32; b, c, dst have `type` */
    KI_SELECT,
    KI_FMA, /* a * b + c with one rounding; floats only */
    KI_COUNT
} KOp;

typedef struct KInstr {
    uint8_t op;   /* KOp */
    uint8_t type; /* KType */
    uint16_t dst; /* register, or output of STORE */
    uint16_t a, b, c, d;
} KInstr;

typedef union KImm {
    double f; /* for KT_F32 and KT_F64 */
    int64_t i;
} KImm;

typedef struct KProgram {
    int32_t ninstr, nimm, nreg;
    int32_t noffset; /* entries of KArgs.offsets that the program reads */
} KProgram;

static inline const KImm *k_program_imm(const KProgram *p) {
    return (const KImm *)(p + 1);
}
static inline const KInstr *k_program_code(const KProgram *p) {
    return (const KInstr *)(k_program_imm(p) + p->nimm);
}
/* The type of the register in which elements of a dtype are computed. */
static inline KType k_dtype_register(DType t) {
    static const uint8_t type[DT_COUNT] = {
        [DT_BOOL] = KT_I32, [DT_U8] = KT_I32,   [DT_U16] = KT_I32,  [DT_U32] = KT_U32,
        [DT_U64] = KT_U64,  [DT_I8] = KT_I32,   [DT_I16] = KT_I32,  [DT_I32] = KT_I32,
        [DT_I64] = KT_I64,  [DT_E4M3] = KT_F32, [DT_E5M2] = KT_F32, [DT_BF16] = KT_F32,
        [DT_F16] = KT_F32,  [DT_F32] = KT_F32,  [DT_F64] = KT_F64};
    return (KType)type[t];
}
/* How many of an instruction's a, b, c, d are registers: the first ones. */
static inline int k_instr_sources(const KInstr *i) {
    switch (i->op) {
    case KI_LOAD:
    case KI_IMM:
    case KI_IOTA: return 0;
    case KI_RANDOM_BITS: return 2;
    case KI_THREEFRY: return 4;
    case KI_SELECT:
    case KI_FMA: return 3;
    default: return i->op >= KI_ADD ? 2 : 1;
    }
}
/* The type of the register that an instruction writes, none for a STORE. */
static inline KType k_instr_result(const KArgs *a, const KInstr *i) {
    switch (i->op) {
    case KI_LOAD: return k_dtype_register(a->in[i->a].dtype);
    case KI_CONVERT:
    case KI_BITCAST: return (KType)i->d;
    case KI_THREEFRY: return KT_I64;
    case KI_IS_FINITE: return KT_I32;
    default: return i->op >= KI_EQ && i->op <= KI_GE ? KT_I32 : (KType)i->type;
    }
}

/* ---- attributes of the other kernels -------------------------------------------------------- */

/* sum, sum_squares (of floats), max, min, all, any: in x; out y has x's dims with the
 * reduced ones set to 1 (the plan drops or keeps them by a view). argmax, argmin: one reduced dim,
 * y is int32, the first of equal elements wins, NaN wins over all. bool sums as int32.
 * Narrow floats accumulate in float32, narrow integers in 32 bits; they may go to such a y. An
 * output is one unit's work: a sum to few elements that should use many threads is made in two
 * steps (OpDef.split). */
typedef struct KReduce {
    uint8_t reduced[K_MAX_RANK]; /* 1 where the dim is reduced */
} KReduce;

/* matmul: y[batch..., m..., n...] = sum over k of x[batch, m, k] * w[batch, k, n]. The dims of x, w
 * and y are in any order; a role per dim says what it is, and dims of one role correspond in order.
 * Narrow floats: float32 products and sums, one rounding at the end (or none to a float32 y).
 * Integers wrap, those of 8 and 16 bits at 32 where y has as many. */
typedef enum KRole { K_BATCH, K_M, K_N, K_K } KRole;
typedef struct KMatmul {
    uint8_t x[K_MAX_RANK], w[K_MAX_RANK], y[K_MAX_RANK]; /* KRole per dim */
} KMatmul;

/* conv: in x[batch, spatial..., groups * in], w[spatial..., in, groups * out] (row-major without
 * gaps); out y[batch, spatial..., groups * out]. y at o = sum over taps k and features of x at
 * (o stride + k w_dilation - low) / x_dilation times w at k, where x has that place; group g of y
 * sees group g of x. Sums in float32, float64 for float64; one rounding at the end.
 * conv_grad_kernel: in x, dy (as y); out dw (as w), the same sums with dy's elements instead of
 * w's. Both store 16-bit results to a float32 tensor, too. One entry per spatial dim. */
typedef struct KConv {
    int64_t stride[K_MAX_RANK], low[K_MAX_RANK], x_dilation[K_MAX_RANK], w_dilation[K_MAX_RANK];
    int64_t groups;
} KConv;

/* reduce_window_max, reduce_window_sum: in x; out y: of each window, the places
 * o stride + k - low, 0 <= k < window, of x that exist (of none: the least number, or 0). The first
 * of equal elements is the largest, NaN is larger than all.
 * select_and_scatter_add: in x, dy (y's dims); out dx (x's): zeros, and each dy added to the place
 * of the largest of its window of x. select_and_gather_add: in x, t (x's dims); out y: for each
 * window what t has at that place (0 for a window that sees nothing). Both floats only. */
typedef struct KWindow {
    int64_t window[K_MAX_RANK], stride[K_MAX_RANK], low[K_MAX_RANK];
} KWindow;

/* gather: in x, ids (int32); out y. scatter: in x, ids, updates; out y (may alias x): x, and each
 * update combined with what is there, in the order of ids. scatter_add: in ids, updates; out y:
 * zeros, and each update added. The table is x or y; rows are gather's y, or updates: their dim d
 * is dim table[d] of the table and dim ids[d] of the ids, -1: of none. The ids name the table's
 * dims `axes`; of several axes they have a last dim, with one for each. An id is global and counts
 * from the end below 0; this device has, of axis k, offsets[k] up to offsets[k] + the table's dim,
 * of size[k]. What is held elsewhere, or nowhere, is 0 in y, or changes nothing. float16/bfloat16
 * are added and multiplied in float32 and rounded once (not to a float32 y); NaN wins as it does
 * in KI_MAX. An id beyond both ends: K_ERROR is K_FAULT_INDEX, K_DROP is nowhere, K_CLIP means the
 * nearest end, K_WRAP goes on at the other. An axis of size 0 has no ends. K_STRICT: as K_ERROR,
 * and so is an id below 0. */
typedef enum KOutside { K_ERROR, K_DROP, K_CLIP, K_WRAP, K_STRICT } KOutside;
typedef enum KCombine { K_SET, K_ADD, K_MUL, K_MAX, K_MIN } KCombine;
typedef struct KIndex {
    int64_t size[K_MAX_RANK]; /* of the axes, in the whole table */
    int8_t axes[K_MAX_RANK], table[K_MAX_RANK], ids[K_MAX_RANK];
    int32_t naxes, outside, combine;
} KIndex;

/* dynamic_slice: in x, starts (int32, one per dim); out y, the part of y's dims that begins at the
 * starts of a whole of which x is the part that begins at offsets[d]; zeros where x has nothing.
 * dynamic_update_slice: in x, update, starts; out y (may alias x): x with that part of the whole
 * replaced by update. A start below 0 counts from the end, as s + size[d]; then it is clamped to
 * 0 .. size[d] - (y's or update's dims[d]). */
typedef struct KDynamic {
    int64_t size[K_MAX_RANK]; /* of the whole */
} KDynamic;

/* cumsum, cumprod, cummax, cummin: in x; out y of x's dims, each element what the elements of its
 * line up to it (reverse: from it on) combine to. Floats are added and multiplied in float64;
 * integers wrap; NaN wins over all that follow it. */
typedef struct KCumulative {
    int32_t axis;
    int32_t reverse;
} KCumulative;

/* concat: any number of inputs along `axis`. */
typedef struct KConcat {
    int32_t axis;
} KConcat;

/* pad: in x, value (scalar); out y = value, with x at `low` and `interior` elements between. A
 * negative low or high cuts. */
typedef struct KPad {
    int64_t low[K_MAX_RANK], interior[K_MAX_RANK];
} KPad;

/* sort: in keys, then any number of values, all with the same dims; out the same, each line along
 * `axis` permuted so that keys ascend (descending if set). Stable; -0 equals 0; NaN last either
 * way. */
typedef struct KSort {
    int32_t axis;
    int32_t descending;
} KSort;

/* top_k: in x; out values, ids (int32): the y.dims[axis] largest of each line along `axis`,
 * falling, and their 0-based places; of equal ones the first stands first; NaN is above all. */
typedef struct KTopK {
    int32_t axis;
} KTopK;

/* linalg: matrices are the last two dims, each a unit; float32 and float64; no attr but
 * lapack_triangular_solve's. The kernels are LAPACK's functions, and args.blas is there.
 * lapack_cholesky: in x (its lower triangle is read); out l, zero above the diagonal; NaN in the
 * triangle where x is not positive definite.
 * lapack_triangular_solve: in a, b; out x: op(a) x = b, or x op(a) = b (right).
 * lapack_lu: in x[m,n]; out lu (u, and l below its diagonal), pivots (int32[k], the row that was
 * exchanged with each, 0-based; k = min(m, n)), permutation (int32[m]): x[permutation] = l u.
 * lapack_qr: in x[m,n]; out q[m,k], r[k,n]; k = min(m, n), or m.
 * lapack_eigh: in x (its lower triangle is read); out w[n], rising, v[n,n], a column each.
 * lapack_svd: in x[m,n]; out u[m,k], s[min(m, n)], falling, vt[k,n]; or u[m,m], vt[n,n].
 * What the last two are of a matrix with an infinity or NaN, or that does not converge, is NaN. */
typedef struct KTriangular {
    int32_t right, lower, transpose, unit; /* unit: the diagonal counts as ones, and is not read */
} KTriangular;

/* softmax along the last dim: in x; out y. softmax_grad: in y, dy; out dx = y * (dy - sum(dy * y)).
 * log_softmax: in x; out y. No attr. */

/* layer_norm over the last dim: in x, scale[C], bias[C]; out y, mean[rows...], rstd[rows...] (mean
 * and rstd float32, or float64 for float64 x; x's dims less the last).
 * layer_norm_grad: in dy, x, scale, mean, rstd; out dx, dscale[P, C], dbias[P, C]; dscale and dbias
 * are the sums of their P rows, of which row p comes from the rows [R p / P, R (p + 1) / P) of the
 * R rows of x, and is a unit. rms_norm, rms_norm_grad: the same without mean, bias and dbias. Only
 * layer_norm and rms_norm have an attr. */
typedef struct KNorm {
    double eps;
} KNorm;

/* softmax_cross_entropy over the last dim: in logits[rows..., V], labels[rows...] (int32); out
 * loss[rows...], lse[rows...]. A label outside 0 <= label < V is K_FAULT_INDEX.
 * softmax_cross_entropy_grad: in logits, labels, lse, dloss; out dlogits.
 * softmax_cross_entropy_both: in logits, labels, dloss; out loss, lse, dlogits. No attr. */

/* attention: in q[B,T,H,D], k[B,S,G,D], v[B,S,G,D] (G divides H: query head h uses h*G/H), then
 * those of the options that `at` has, in their order; out y[B,T,H,D] (q's dtype), lse[B,H,T].
 * Scores, sums, lse and what is between are float64 where q, k and v are, else float32; k and v
 * have one dtype, which need not be q's. score = scale * q.k; with a soft cap cap * tanh(score /
 * cap); then + bias. Softmax over the keys that the query sees, then dropout (below) of the
 * probabilities, as its x of dims [B,H,T,S]. A query that sees none has y = 0, lse = -inf and no
 * gradient. Query t has the place p = (offset of its row, or `ahead`) + offsets[2] + t among the
 * keys. It sees key s where all hold: s <= p if causal; p - left <= s <= p + right; s < lengths;
 * offsets[2] + t < query_lengths; its segment is the key's; the mask says so. No work is done for
 * tiles in which nobody sees anything.
 * units: B*H*ceil(T/64), or, where T is 1 and heads share keys, B*G*ceil(H/G/64) (forward), B*G
 * (grad). attention_grad: in q, k, v, y, lse, dy, options; out
 * dq, dk, dv, and dbias where wanted. */
typedef enum KAttentionOption {
    K_ATTENTION_MASK,           /* bool[B,H,T,S]: where a query may look */
    K_ATTENTION_KEY,            /* uint32[2], of dropout */
    K_ATTENTION_BIAS,           /* floats[B,H,T,S] */
    K_ATTENTION_LENGTHS,        /* int32[B]; any number, as those below */
    K_ATTENTION_QUERY_LENGTHS,  /* int32[B] */
    K_ATTENTION_OFFSET,         /* int32[B] */
    K_ATTENTION_QUERY_SEGMENTS, /* int32[B,T], together with those of keys */
    K_ATTENTION_SEGMENTS,       /* int32[B,S] */
    K_ATTENTION_OPTIONS
} KAttentionOption;

typedef struct KAttention {
    double scale;
    int32_t causal;
    int32_t at[K_ATTENTION_OPTIONS]; /* which operand each option is; 0: it is not there */
    double keep;                     /* of dropout, where there is a key */
    double soft_cap;                 /* 0: none */
    int64_t strides[4];              /* of dropout: of the global [B,H,T,S], in elements */
    int64_t left, right;             /* < 0: no limit */
    int64_t ahead;
} KAttention;

/* dropout: in x, key (uint32[2]); out y = u(key, i) < keep ? x / keep : 0, where i is the row-major
 * index in the global shape (offsets[d] is this device's first index along dim d) and u the uniform
 * float32 in [0, 1) of its 32 random bits, (bits >> 9) / 2^23: the mask is
 * jax.random.bernoulli(key, keep, shape). */
typedef struct KDropout {
    double keep;
    int64_t strides[K_MAX_RANK]; /* of the global shape, in elements */
} KDropout;

/* rope: in x[..., T, H, D], positions[T] (int32); out y: pairs (i, i + D/2) rotated by
 * positions * base^(-2i/D). sign -1 rotates back (the gradient). */
typedef struct KRope {
    double base;
    double sign;
} KRope;

/* adamw: in p, g, mu, nu, lr, step (scalars of float32 or float64; step counts from 1), clip (one,
 * g is multiplied by it); out p, mu, nu. float32 arithmetic, float64 for float64 p. mu = b1 mu + (1
 * - b1) g nu = b2 nu + (1 - b2) g^2 p -= lr (mu / (1 - b1^step) / (sqrt(nu / (1 - b2^step) +
 * eps_root) + eps) + decay p). With a step below 1 the results are p, mu and nu, bit for bit. A GPU
 * may be given the operands of several such steps, one after the other: see run/bind/combine.h. */
typedef struct KAdamw {
    double b1, b2, eps, eps_root, decay;
} KAdamw;

/* tree_sum: in any number n > 0 of float32 tensors of y's dims, all of the same strides; out y:
 * their sum, by halves: the first h inputs, h the largest power of 2 below n, plus the others. */

/* copy: in x; out y, same dims and dtype. fill is `copy` from a stride-0 input. No attr. */

#endif
