/* gemv.c - one row times a matrix (gemm.h). Every element of the matrix is read once, so what
 * counts is to read it in the order in which it lies, and to wait for no result. */
#include "gemm.h"
#include "simd.h"

enum { SUMS = 8, LANES = 16 };

/* The first n <= VEC elements, then zeros. */
static Vec load_part(const float *p, int64_t n) {
    Vec v = vec_all(0);
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

/* sum += x[0] b[0] + ...: n elements of each of some rows, ldb apart */
K_INLINE void add_rows(const int rows, int64_t n, const float *x, int64_t xs, const float *b,
                       int64_t ldb, float *sum) {
    Vec factor[SUMS];
    for (int r = 0; r < rows; r++) factor[r] = vec_all(x[r * xs]);
    int64_t j = 0;
    for (; j + VEC <= n; j += VEC) {
        Vec s = vec_load(sum + j);
        for (int r = 0; r < rows; r++) {
            __builtin_prefetch(b + (r + rows) * ldb + j); /* of the rows that come next */
            s = vec_fma(factor[r], vec_load(b + r * ldb + j), s);
        }
        vec_store(sum + j, s);
    }
    if (j == n) return;
    Vec s = load_part(sum + j, n - j);
    for (int r = 0; r < rows; r++) s = vec_fma(factor[r], load_part(b + r * ldb + j, n - j), s);
    memcpy(sum + j, &s, (size_t)(n - j) * sizeof *sum);
}

static void sum_rows(int64_t n, int64_t k, KMatrix a, KMatrix b, float *sum) {
    int64_t i = 0;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (; i + SUMS <= k; i += SUMS)
        add_rows(SUMS, n, a.data + i * a.cs, a.cs, b.data + i * b.rs, b.rs, sum);
    for (; i < k; i++) add_rows(1, n, a.data + i * a.cs, a.cs, b.data + i * b.rs, b.rs, sum);
}

/* x . row, of k elements; in LANES sums, then in halves */
static float dot(int64_t k, const float *x, const float *row) {
    Vec s[LANES / VEC];
    for (int v = 0; v < LANES / VEC; v++) s[v] = vec_all(0);
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES)
        for (int v = 0; v < LANES / VEC; v++)
            s[v] = vec_fma(vec_load(x + i + v * VEC), vec_load(row + i + v * VEC), s[v]);
    for (int v = 0; i < k; i += VEC, v++) {
        int64_t n = k_min(VEC, k - i);
        s[v] = vec_fma(load_part(x + i, n), load_part(row + i, n), s[v]);
    }
    float lane[LANES];
    memcpy(lane, s, sizeof lane);
    for (int w = LANES / 2; w; w /= 2)
        for (int j = 0; j < w; j++) lane[j] += lane[j + w];
    return lane[0];
}

/* Row after row: several at once are several places to read from, which memory is slower at. */
static void dot_columns(int64_t n, int64_t k, const float *x, KMatrix b, float *sum) {
    for (int64_t j = 0; j < n; j++) sum[j] = dot(k, x, b.data + j * b.cs);
}

int64_t k_gemv_bytes(int64_t n, int64_t k) {
    return (n + k) * (int64_t)sizeof(float);
}

void k_gemv(int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int accumulate, char *workspace) {
    float *sum = (float *)(void *)workspace, *x = sum + n;
    if (b.cs != 1 && (b.rs == 1 || k == 1)) {
        for (int64_t i = 0; i < k; i++) x[i] = a.data[i * a.cs];
        dot_columns(n, k, x, b, sum);
    } else {
        sum_rows(n, k, a, b, sum);
    }
    for (int64_t j = 0; j < n; j++) c[j] = accumulate ? c[j] + sum[j] : sum[j];
}
