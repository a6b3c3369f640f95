/* gemm.c - a register-blocked float32 matrix product (gemm.h).
 *
 * B is read in panels of two vectors' width (the last of one if that is enough), packed one after
 * the other, row by row, and filled up with zeros. A is read in strips of GEMM_ROWS rows, element
 * by element: a strip stays in the first level cache while the panels stream past it from the
 * second. The results of a strip and a panel stay in registers over all of k.
 *
 * Packing costs little: where B's rows lie in memory, the first strip reads them there and packs on
 * the way, while the next panel is fetched; else vectors are transposed. A is packed only where its
 * columns lie in memory, some strips at a time. */
#include "gemm.h"
#include "simd.h"

enum { PANEL = 2 * VEC, GROUP = 8 * GEMM_ROWS, LINE = 16 };

/* Rows of a product: strip i / GEMM_ROWS begins at strip.data + i * step. */
typedef struct Strips {
    KMatrix strip;
    int64_t step;
} Strips;

/* One strip times one panel: `rows` rows, `vecs` vectors, of which n columns exist. b is the panel,
 * its rows ldb apart. With `packs` it is copied to `packed`, and the panel to its right fetched. */
K_INLINE void micro(const int rows, const int vecs, const int packs, int64_t n, int64_t k,
                    KMatrix a, const float *b, int64_t ldb, float *packed, float *c, int64_t ldc,
                    int accumulate) {
    Vec acc[GEMM_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) acc[i][v] = vec_all(0);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs * VEC; v += LINE) __builtin_prefetch(c + i * ldc + v, 1);
    const float *p = a.data;
    for (int64_t j = 0; j < k; j++, p += a.cs, b += ldb) {
        Vec b0 = vec_load(b), b1 = vec_load(b + (vecs - 1) * VEC);
        if (packs) {
            for (int v = 0; v < PANEL; v += LINE) __builtin_prefetch(b + PANEL + v, 0, 2);
            vec_store(packed + j * PANEL, b0);
            vec_store(packed + j * PANEL + VEC, b1);
        }
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
            micro(rows, 2, 0, n, k, a, b, ldb, NULL, c, ldc, accumulate);                          \
        else                                                                                       \
            micro(rows, 1, 0, n, k, a, b, ldb, NULL, c, ldc, accumulate);                          \
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

/* The panels of n columns (whole panels) of b times one whole strip, packing them. */
static void strip_packing(int64_t n, int64_t k, KMatrix a, KMatrix b, float *packed, float *c,
                          int64_t ldc, int accumulate) {
    for (int64_t j = 0; j < n; j += PANEL)
        micro(GEMM_ROWS, 2, 1, PANEL, k, a, b.data + j, b.rs, packed + j * k, c + j, ldc,
              accumulate);
}

static int64_t panel_width(int64_t n, int64_t from) {
    return n - from > VEC ? PANEL : VEC;
}

/* Panel j begins at b + j * step; its rows are ldb apart, or (0) its width. */
static void product(int64_t m, int64_t n, int64_t k, Strips a, const float *b, int64_t step,
                    int64_t ldb, float *c, int64_t ldc, int accumulate) {
    for (int64_t i = 0; i < m; i += GEMM_ROWS) {
        int rows = (int)k_min(GEMM_ROWS, m - i);
        KMatrix s = {a.strip.data + i * a.step, a.strip.rs, a.strip.cs};
        for (int64_t j = 0, width; j < n; j += width) {
            width = panel_width(n, j);
            strip(rows, (int)(width / VEC), k_min(width, n - j), k, s, b + j * step,
                  ldb ? ldb : width, c + i * ldc + j, ldc, accumulate);
        }
    }
}

/* ---- operands where they lie ---------------------------------------------------------------- */
static int64_t packed_floats(int64_t n, int64_t k) {
    return (k_packed_bytes(k, n) / 4 + LINE - 1) & ~(int64_t)(LINE - 1);
}

int64_t k_gemm_bytes(int64_t m, int64_t n, int64_t k) {
    int64_t rows = k_ceil_div(k_min(m, GROUP), GEMM_ROWS) * GEMM_ROWS;
    return (packed_floats(n, k) + rows * k) * 4;
}

/* Few rows: what is read once or twice is not worth a copy. */
static void few_rows(int64_t m, int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int64_t ldc,
                     int accumulate, float *packed) {
    int64_t whole = n - n % VEC;
    KMatrix rest = {b.data + whole, b.rs, 1};
    Strips rows = {a, a.rs};
    product(m, whole, k, rows, b.data, 1, b.rs, c, ldc, accumulate);
    k_pack_panels(packed, rest, k, n - whole);
    product(m, n - whole, k, rows, packed, k, 0, c + whole, ldc, accumulate);
}

void k_gemm(int64_t m, int64_t n, int64_t k, KMatrix a, KMatrix b, float *c, int64_t ldc,
            int accumulate, char *workspace) {
    float *packed = (float *)(void *)workspace, *strips = packed + packed_floats(n, k);
    if (m <= 2 * GEMM_ROWS && b.cs == 1) {
        few_rows(m, n, k, a, b, c, ldc, accumulate, packed);
        return;
    }
    int64_t whole = b.cs == 1 && m >= GEMM_ROWS ? n - n % PANEL : 0; /* left to the first strip */
    KMatrix rest = {b.data + whole * b.cs, b.rs, b.cs};
    k_pack_panels(packed + whole * k, rest, k, n - whole);
    for (int64_t i = 0, from; i < m; i += GROUP) {
        int64_t rows = k_min(GROUP, m - i);
        KMatrix left = {a.data + i * a.rs, a.rs, a.cs};
        Strips s = {left, a.rs};
        if (a.rs == 1 && a.cs != 1) {
            k_pack_strips(strips, left, rows, k);
            s = (Strips){{strips, 1, GEMM_ROWS}, k};
        }
        from = i == 0 && whole ? GEMM_ROWS : 0;
        if (from) {
            strip_packing(whole, k, s.strip, b, packed, c, ldc, accumulate);
            product(GEMM_ROWS, n - whole, k, s, packed + whole * k, k, 0, c + whole, ldc,
                    accumulate);
            s.strip.data += from * s.step;
        }
        product(rows - from, n, k, s, packed, k, 0, c + (i + from) * ldc, ldc, accumulate);
    }
}
