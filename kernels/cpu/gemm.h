/* gemm.h - float32 matrix products of a size that fits the second level cache, in this thread.
 *
 * Used by matmul for blocks of its result and by conv on its tiles. Each element
 * of C is one chain of multiply-adds over k in rising order, so its bits do not depend on m or n,
 * on where the operands lie, nor on the level where there is a fused multiply-add ("default" on x86
 * has none, and rounds the product too). */
#ifndef MESHLUA_CPU_GEMM_H
#define MESHLUA_CPU_GEMM_H

#include "level.h"

#define k_gemm         K_SYM(k_gemm)
#define k_gemm_bytes   K_SYM(k_gemm_bytes)
#define k_gemv         K_SYM(k_gemv)
#define k_gemv_bytes   K_SYM(k_gemv_bytes)
#define k_pack_panels  K_SYM(k_pack_panels)
#define k_pack_strips  K_SYM(k_pack_strips)
#define k_packed_bytes K_SYM(k_packed_bytes)

/* Whether this level has wide vectors and a fused multiply-add: then no BLAS is faster. */
#if defined(__AVX2__) && defined(__FMA__)
#    define K_GEMM_WIDE 1
#else
#    define K_GEMM_WIDE 0
#endif

/* A matrix whose element (i, j) is at data[i * rs + j * cs]. */
typedef struct KMatrix {
    const float *data;
    int64_t rs, cs;
} KMatrix;

/* The part of a long k that is added in one chain: the same for any m and n, and so short that a
 * block of B of that many rows and some 300 columns leaves room in a cache of 1 MiB. */
static inline int64_t k_gemm_chain(int64_t k) {
    enum { MOST = 384 };
    return (k_ceil_div(k, k_max(1, k_ceil_div(k, MOST))) + 7) & ~(int64_t)7;
}

/* c = a b, or c += a b; a is m x k, b is k x n, rows of c are ldc apart. Fast where both have a
 * stride of 1. The workspace has k_gemm_bytes, aligned to 64. */
void k_gemm(int64_t m, int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int64_t ldc,
            int accumulate, char *workspace);
int64_t k_gemm_bytes(int64_t m, int64_t n, int64_t k);

/* The same for one row (gemv.c); b has a stride of 1, or one row or column. Where that is its row
 * stride, the sum over k is made in vectors, and so in another order. */
void k_gemv(int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int accumulate, char *workspace);
int64_t k_gemv_bytes(int64_t n, int64_t k);

/* ---- gemm_pack.c: copies in the order in which gemm.c reads them ---------------------------- */
/* B (k x n) in panels, one after the other. */
void k_pack_panels(float *to, KMatrix b, int64_t k, int64_t n);
int64_t k_packed_bytes(int64_t k, int64_t n);
/* m rows of A of which each is a column in memory (a.rs == 1), in strips. */
void k_pack_strips(float *to, KMatrix a, int64_t m, int64_t k);

#endif
