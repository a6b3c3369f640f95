/* gemm.h - float32 matrix products of a size that fits the second level cache, in this thread.
 *
 * Used by matmul where there is no BLAS or the product is small, and by attention on its tiles.
 * Each element of C is one chain of multiply-adds over k in rising order, so its bits do not depend
 * on m or n, nor on the level where there is a fused multiply-add ("default" on x86 has none, and
 * rounds the product too).
 */
#ifndef MESHLUA_CPU_GEMM_H
#define MESHLUA_CPU_GEMM_H

#include "level.h"

#define k_gemm            K_SYM(k_gemm)
#define k_gemm_pack       K_SYM(k_gemm_pack)
#define k_gemm_pack_bytes K_SYM(k_gemm_pack_bytes)
#define k_gemm_direct     K_SYM(k_gemm_direct)
#define k_gemm_takes      K_SYM(k_gemm_takes)

/* A matrix whose element (i, j) is at data[i * rs + j * cs]. */
typedef struct KMatrix {
    const float *data;
    int64_t rs, cs;
} KMatrix;

/* Bytes that k_gemm_pack writes for a k x n matrix. */
int64_t k_gemm_pack_bytes(int64_t k, int64_t n);
/* Copies b (k x n) into the order in which k_gemm reads it. `to` is aligned to 64 bytes. */
void k_gemm_pack(float *to, KMatrix b, int64_t k, int64_t n);
/* c = a b, or c += a b; a is m x k, packed is b (k x n), rows of c are ldc apart. */
void k_gemm(int64_t m, int64_t n, int64_t k, KMatrix a, const float *packed, float *c, int64_t ldc,
            int accumulate);
/* Whether k_gemm_direct can read b (n columns) where it lies: worth it for few rows of a. */
int k_gemm_takes(KMatrix b, int64_t n);
void k_gemm_direct(int64_t m, int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int64_t ldc,
                   int accumulate);

#endif
