/* gemm.c - a packed, register-blocked float32 matrix product (gemm.h).
 *
 * B is packed in panels of two vectors' width (the last of one if that is enough), each panel row
 * by row and filled up with zeros. A is read where it lies, element by element. A strip of
 * GEMM_ROWS rows of A stays in the first level cache while the panels stream past it; the results
 * of a strip and a panel stay in registers over all of k.
 */
#include "gemm.h"
#include "simd.h"

enum { PANEL = 2 * VEC };

/* One strip times one panel: `rows` rows, `vecs` vectors, of which n columns exist. b is the panel,
 * its rows ldb apart. */
K_INLINE void micro(const int rows, const int vecs, int64_t n, int64_t k, KMatrix a, const float *b,
                    int64_t ldb, float *c, int64_t ldc, int accumulate) {
    Vec acc[GEMM_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) acc[i][v] = vec_all(0);
    const float *p = a.data;
    for (int64_t j = 0; j < k; j++, p += a.cs, b += ldb) {
        Vec b0 = vec_load(b), b1 = vec_load(b + (vecs - 1) * VEC);
        for (int i = 0; i < rows; i++) {
            Vec x = vec_all(p[i * a.rs]);
            acc[i][0] = vec_fma(x, b0, acc[i][0]);
            if (vecs > 1) acc[i][1] = vec_fma(x, b1, acc[i][1]);
        }
    }
    if (n == vecs * VEC) {
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vecs; v++) {
                float *to = c + i * ldc + v * VEC;
                if (accumulate) acc[i][v] = vec_load(to) + acc[i][v];
                vec_store(to, acc[i][v]);
            }
        return;
    }
    for (int i = 0; i < rows; i++) {
        float line[PANEL] = {0}, *to = c + i * ldc;
        for (int v = 0; v < vecs; v++) vec_store(line + v * VEC, acc[i][v]);
        for (int64_t j = 0; j < n; j++) to[j] = accumulate ? to[j] + line[j] : line[j];
    }
}

#define MICRO(rows)                                                                                \
    case rows:                                                                                     \
        if (vecs > 1)                                                                              \
            micro(rows, 2, n, k, a, b, ldb, c, ldc, accumulate);                                   \
        else                                                                                       \
            micro(rows, 1, n, k, a, b, ldb, c, ldc, accumulate);                                   \
        break;

static void strip(int rows, int vecs, int64_t n, int64_t k, KMatrix a, const float *b, int64_t ldb,
                  float *c, int64_t ldc, int accumulate) {
    switch (rows) {
        MICRO(1)
        MICRO(2)
        MICRO(3)
        MICRO(4)
#if GEMM_ROWS >= 6
        MICRO(5)
        MICRO(6)
#endif
#if GEMM_ROWS >= 8
        MICRO(7)
        MICRO(8)
#endif
    }
}

static int64_t panel_width(int64_t n, int64_t from) {
    return n - from > VEC ? PANEL : VEC;
}

int64_t k_gemm_pack_bytes(int64_t k, int64_t n) {
    return (n + VEC - 1) / VEC * VEC * k * 4;
}

/* Columns [0, n) of a panel, from columns that are rows in memory (b.rs == 1). */
static void pack_transposed(float *to, int64_t width, KMatrix b, int64_t k, int64_t n) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        int64_t i = 0;
        for (; i + 4 <= k; i += 4)
            quad_transpose(to + i * width + j, width, b.data + i + j * b.cs, b.cs);
        for (; i < k; i++)
            for (int64_t l = j; l < j + 4; l++) to[i * width + l] = b.data[i + l * b.cs];
    }
    for (; j < n; j++)
        for (int64_t i = 0; i < k; i++) to[i * width + j] = b.data[i + j * b.cs];
}

void k_gemm_pack(float *to, KMatrix b, int64_t k, int64_t n) {
    for (int64_t from = 0, width; from < n; from += width) {
        width = panel_width(n, from);
        int64_t have = k_min(width, n - from);
        KMatrix p = {b.data + from * b.cs, b.rs, b.cs};
        if (b.rs == 1 && b.cs != 1) {
            pack_transposed(to, width, p, k, have);
        } else if (b.cs == 1 && have == width) {
            for (int64_t i = 0; i < k; i++)
                for (int64_t j = 0; j < width; j += VEC)
                    vec_store(to + i * width + j, vec_load(p.data + i * p.rs + j));
        } else {
            for (int64_t i = 0; i < k; i++)
                for (int64_t j = 0; j < have; j++) to[i * width + j] = p.data[i * p.rs + j * p.cs];
        }
        for (int64_t i = 0; i < k && have < width; i++)
            memset(to + i * width + have, 0, (size_t)(width - have) * sizeof *to);
        to += k * width;
    }
}

/* Panel j begins at b + j * step. */
static void product(int64_t m, int64_t n, int64_t k, KMatrix a, const float *b, int64_t step,
                    int64_t ldb, float *c, int64_t ldc, int accumulate) {
    for (int64_t i = 0; i < m; i += GEMM_ROWS) {
        int rows = (int)k_min(GEMM_ROWS, m - i);
        KMatrix s = {a.data + i * a.rs, a.rs, a.cs};
        for (int64_t j = 0, width; j < n; j += width) {
            width = panel_width(n, j);
            strip(rows, (int)(width / VEC), k_min(width, n - j), k, s, b + j * step,
                  ldb ? ldb : width, c + i * ldc + j, ldc, accumulate);
        }
    }
}

void k_gemm(int64_t m, int64_t n, int64_t k, KMatrix a, const float *packed, float *c, int64_t ldc,
            int accumulate) {
    product(m, n, k, a, packed, k, 0, c, ldc, accumulate);
}

int k_gemm_takes(KMatrix b, int64_t n) {
    return b.cs == 1 && n % VEC == 0;
}

void k_gemm_direct(int64_t m, int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int64_t ldc,
                   int accumulate) {
    product(m, n, k, a, b.data, 1, b.rs, c, ldc, accumulate);
}
