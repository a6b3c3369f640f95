/* gemm_pack.c - copies operands into the order in which gemm.c reads them (gemm.h). */
#include "gemm.h"
#include "simd.h"

enum { PANEL = 2 * VEC, LINE = 16 };

static int64_t panel_width(int64_t n, int64_t from) {
    return n - from > VEC ? PANEL : VEC;
}

int64_t k_packed_bytes(int64_t k, int64_t n) {
    return (n + VEC - 1) / VEC * VEC * k * 4;
}

/* n <= VEC columns of which each is a row in memory (b.rs == 1), with zeros up to VEC. */
static void pack_transposed(float *to, int64_t width, KMatrix b, int64_t k, int64_t n) {
    Vec v[VEC];
    for (int64_t i = 0; i < k; i += VEC) {
        int64_t depth = k_min(VEC, k - i);
        for (int64_t j = 0; j < VEC; j++) v[j] = vec_all(0);
        if (depth == VEC)
            for (int64_t j = 0; j < n; j++) v[j] = vec_load(b.data + i + j * b.cs);
        else
            for (int64_t j = 0; j < n; j++)
                memcpy(&v[j], b.data + i + j * b.cs, (size_t)depth * sizeof *to);
        vec_transpose(v);
        for (int64_t j = 0; j < depth; j++) vec_store(to + (i + j) * width, v[j]);
    }
}

/* `have` <= width columns, with zeros up to width. */
static void pack_panel(float *to, int64_t width, KMatrix b, int64_t k, int64_t have) {
    if (b.rs == 1 && b.cs != 1) {
        for (int64_t j = 0; j < width; j += VEC) {
            KMatrix part = {b.data + j * b.cs, 1, b.cs};
            pack_transposed(to + j, width, part, k, k_max(0, k_min(VEC, have - j)));
        }
        return;
    }
    for (int64_t i = 0; i < k; i++, to += width) {
        const float *from = b.data + i * b.rs;
        if (b.cs == 1 && have == PANEL) {
            Vec first = vec_load(from), second = vec_load(from + VEC);
            vec_store(to, first);
            vec_store(to + VEC, second);
        } else if (b.cs == 1 && have == VEC) {
            vec_store(to, vec_load(from));
        } else {
            for (int64_t j = 0; j < have; j++) to[j] = from[j * b.cs];
            memset(to + have, 0, (size_t)(width - have) * sizeof *to);
        }
    }
}

void k_pack_panels(float *to, KMatrix b, int64_t k, int64_t n) {
    for (int64_t from = 0, width; from < n; from += width, to += k * width) {
        width = panel_width(n, from);
        KMatrix panel = {b.data + from * b.cs, b.rs, b.cs};
        pack_panel(to, width, panel, k, k_min(width, n - from));
    }
}

/* The rows to the right of these are fetched: they are packed next. */
void k_pack_strips(float *to, KMatrix a, int64_t m, int64_t k) {
    int64_t whole = m - m % GEMM_ROWS;
    for (int64_t j = 0; j < k; j++, to += GEMM_ROWS) {
        const float *from = a.data + j * a.cs;
        for (int64_t i = 0; i < m; i += LINE) __builtin_prefetch(from + m + i, 0, 2);
        for (int64_t i = 0; i < whole; i += GEMM_ROWS)
            memcpy(to + i * k, from + i, GEMM_ROWS * sizeof *to);
        for (int64_t i = whole; i < m; i++) to[whole * k + i - whole] = from[i];
    }
}
