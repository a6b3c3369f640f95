/* movement.c - copy, concat and pad (kernel.h). Any strides, any dtype.
 *
 * A copy sorts the dims by the output's strides and merges what it can. Then it either runs along
 * the last dim, or, where the output is contiguous along one dim and the input along another,
 * transposes blocks of both. */
#include "convert.h"
#include "rows.h"
#include "simd.h"
#include "vec.h"
#include "view.h"

enum {
    UNIT = 16384, /* elements of a plain copy */
    BLOCK_ROWS = 128,
    BLOCK_COLUMNS = 128, /* of a transposing unit: rows of the output, elements of a row */
};

/* ---- copy ----------------------------------------------------------------------------------- */
typedef struct Copy {
    char *to;
    const char *from;
    int64_t size, count;
    int rank;
    int64_t dims[K_MAX_RANK], strides[2][K_MAX_RANK]; /* of to, of from */
    int past;                                         /* written past the caches (vec.h) */
    int row; /* -1: plain. Else the dim along which `from` is contiguous, now the last but
                one, and `to` is contiguous along the last */
    int64_t rows, columns; /* blocks of those two */
} Copy;

static Copy copy_of(const KTensor *to, const KTensor *from, int64_t offset) {
    Copy c = {.to = to->data + offset,
              .from = from->data,
              .size = k_dtype_size(to->dtype),
              .count = k_count(from),
              .past = k_streams(to),
              .rank = (int)k_min(from->rank, K_MAX_RANK),
              .row = -1};
    for (int d = 0; d < c.rank; d++) {
        c.dims[d] = from->dims[d];
        c.strides[0][d] = to->strides[d];
        c.strides[1][d] = from->strides[d];
    }
    k_sort_dims(c.rank, c.dims, 2, c.strides);
    c.rank = k_collapse(c.rank, c.dims, 2, c.strides);
    int last = c.rank - 1;
    if (c.rank < 2 || c.strides[0][last] != c.size || c.strides[1][last] == c.size) return c;
    for (int d = 0; d < last; d++)
        if (c.strides[1][d] == c.size && c.dims[d] >= 4) c.row = d;
    if (c.row < 0) return c;
    for (int d = c.row; d < last - 1; d++)
        for (int k = -1; k < 2; k++) {
            int64_t *s = k < 0 ? c.dims : c.strides[k], t = s[d];
            s[d] = s[d + 1];
            s[d + 1] = t;
        }
    c.row = last - 1;
    c.rows = k_ceil_div(c.dims[c.row], BLOCK_ROWS);
    c.columns = k_ceil_div(c.dims[last], BLOCK_COLUMNS);
    return c;
}

static int64_t copy_unit_count(const Copy *c) {
    if (c->count == 0) return 0;
    if (c->row < 0) return k_ceil_div(c->count, UNIT);
    return c->count / c->dims[c->row] / c->dims[c->rank - 1] * c->rows * c->columns;
}

/* A run that goes past the caches, but for what is before and behind whole lines of them. */
static void copy_past(int64_t size, char *to, const char *from, int64_t fs, int64_t n) {
    int64_t head = k_min(n, (64 - (int64_t)((uintptr_t)to & 63)) % 64 / size), line = 64 / size;
    k_copy_run(size, to, size, from, fs, head);
    int64_t i = head;
    Vec_f32 v;
    if (fs == 0 && n - i >= line) k_copy_run(size, (char *)&v, size, from, 0, line);
    for (; n - i >= line; i += line) {
        if (fs) memcpy(&v, from + i * fs, sizeof v);
        stream_f32((float *)(void *)(to + i * size), v);
    }
    k_copy_run(size, to + i * size, size, from + i * fs, fs, n - i);
}

static void copy_plain(const Copy *c, int64_t i, int64_t end) {
    int64_t last = c->rank ? c->dims[c->rank - 1] : 1, run;
    int64_t ts = c->rank ? c->strides[0][c->rank - 1] : c->size;
    int64_t fs = c->rank ? c->strides[1][c->rank - 1] : c->size;
    for (; i < end; i += run) {
        run = k_min(end - i, last - i % last);
        char *to = c->to + k_offset(c->rank, c->dims, c->strides[0], i);
        const char *from = c->from + k_offset(c->rank, c->dims, c->strides[1], i);
        if (c->past && ts == c->size && (fs == ts || fs == 0))
            copy_past(c->size, to, from, fs, run);
        else
            k_copy_run(c->size, to, ts, from, fs, run);
    }
    if (c->past) stream_end();
}

/* rows x columns of `to`, whose rows are ts apart, at most one cache line of elements each way;
 * columns of `from` are fs apart. By way of a buffer, so that every line of either operand is
 * touched once: their strides are often large powers of two, where lines push each other out. */
#define TRANSPOSE_LINES(name, T)                                                                   \
    static void name(char *to, int64_t ts, const char *from, int64_t fs, int64_t rows,             \
                     int64_t columns) {                                                            \
        enum { LINE = 64 / sizeof(T) };                                                            \
        T buf[LINE * LINE];                                                                        \
        for (int64_t j = 0; j < columns; j++) {                                                    \
            const T *p = (const T *)(const void *)(from + j * fs);                                 \
            for (int64_t r = 0; r < rows; r++) buf[r * LINE + j] = p[r];                           \
        }                                                                                          \
        for (int64_t r = 0; r < rows; r++)                                                         \
            memcpy(to + r * ts, buf + r * LINE, (size_t)columns * sizeof(T));                      \
    }
TRANSPOSE_LINES(lines_1, uint8_t)
TRANSPOSE_LINES(lines_2, uint16_t)
TRANSPOSE_LINES(lines_4, uint32_t)
TRANSPOSE_LINES(lines_8, uint64_t)

/* A full 16 x 16 of four bytes, in registers. */
#if defined(__AVX512F__)
static void lines_4_full(char *to, int64_t ts, const char *from, int64_t fs) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(from + i * fs);
    for (int i = 0; i < 16; i += 2) { /* pairs of elements */
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) /* fours */
        for (int k = 0; k < 2; k++) {
            a[i + 2 * k] = _mm512_unpacklo_epi64(b[i + k], b[i + k + 2]);
            a[i + 2 * k + 1] = _mm512_unpackhi_epi64(b[i + k], b[i + k + 2]);
        }
    for (int i = 0; i < 16; i += 8) /* eights: the even quarters of both, and the odd ones */
        for (int k = 0; k < 4; k++) {
            b[i + k] = _mm512_shuffle_i32x4(a[i + k], a[i + k + 4], 0x88);
            b[i + k + 4] = _mm512_shuffle_i32x4(a[i + k], a[i + k + 4], 0xdd);
        }
    for (int k = 0; k < 8; k++) {
        _mm512_storeu_si512(to + k * ts, _mm512_shuffle_i32x4(b[k], b[k + 8], 0x88));
        _mm512_storeu_si512(to + (k + 8) * ts, _mm512_shuffle_i32x4(b[k], b[k + 8], 0xdd));
    }
}
#else
static void lines_4_full(char *to, int64_t ts, const char *from, int64_t fs) {
    _Alignas(64) float buf[256];
    for (int j = 0; j < 16; j += 4)
        for (int r = 0; r < 16; r += 4)
            quad_transpose(buf + r * 16 + j, 16,
                           (const float *)(const void *)(from + j * fs + r * 4), fs / 4);
    for (int r = 0; r < 16; r++) memcpy(to + r * ts, buf + r * 16, 64);
}
#endif

static void transpose_block(int64_t size, char *to, int64_t ts, const char *from, int64_t fs,
                            int64_t rows, int64_t columns) {
    int64_t line = 64 / size;
    for (int64_t r = 0; r < rows; r += line)
        for (int64_t j = 0; j < columns; j += line) {
            int64_t m = k_min(line, rows - r), n = k_min(line, columns - j);
            char *t = to + r * ts + j * size;
            const char *f = from + r * size + j * fs;
            if (size == 1)
                lines_1(t, ts, f, fs, m, n);
            else if (size == 2)
                lines_2(t, ts, f, fs, m, n);
            else if (size == 8)
                lines_8(t, ts, f, fs, m, n);
            else if (m < 16 || n < 16)
                lines_4(t, ts, f, fs, m, n);
            else
                lines_4_full(t, ts, f, fs);
        }
}

static void copy_unit(const Copy *c, int64_t u) {
    if (c->row < 0) {
        copy_plain(c, u * UNIT, k_min((u + 1) * UNIT, c->count));
        return;
    }
    int last = c->rank - 1;
    int64_t column = u % c->columns * BLOCK_COLUMNS, row = u / c->columns % c->rows * BLOCK_ROWS;
    int64_t outer = u / c->columns / c->rows;
    char *to = c->to + k_offset(c->row, c->dims, c->strides[0], outer);
    const char *from = c->from + k_offset(c->row, c->dims, c->strides[1], outer);
    int64_t ts = c->strides[0][c->row], fs = c->strides[1][last];
    transpose_block(
        c->size, to + row * ts + column * c->size, ts, from + row * c->size + column * fs, fs,
        k_min(BLOCK_ROWS, c->dims[c->row] - row), k_min(BLOCK_COLUMNS, c->dims[last] - column));
}

static int64_t copy_units(const KArgs *a) {
    Copy c = copy_of(&a->out[0], &a->in[0], 0);
    return copy_unit_count(&c);
}

static int copy(const KArgs *a) {
    Copy c = copy_of(&a->out[0], &a->in[0], 0);
    for (int64_t u = a->lo; u < a->hi; u++) copy_unit(&c, u);
    return 0;
}

/* ---- concat: one copy per input, their units one after the other ---------------------------- */
static int64_t concat_units(const KArgs *a) {
    int64_t units = 0;
    for (int k = 0; k < a->nin; k++) {
        Copy c = copy_of(&a->out[0], &a->in[k], 0);
        units += copy_unit_count(&c);
    }
    return units;
}

static int concat(const KArgs *a) {
    int axis = ((const KConcat *)a->attr)->axis;
    int64_t first = 0, offset = 0;
    for (int k = 0; k < a->nin; k++) {
        Copy c = copy_of(&a->out[0], &a->in[k], offset);
        int64_t units = copy_unit_count(&c), end = k_min(a->hi, first + units);
        for (int64_t u = k_max(a->lo, first); u < end; u++) copy_unit(&c, u - first);
        first += units;
        offset += a->in[k].dims[axis] * a->out[0].strides[axis];
    }
    return 0;
}

/* ---- pad: one row of y at a time ------------------------------------------------------------ */
typedef struct Pad {
    int rank; /* of the dims below, at least 1 */
    int64_t size, low[K_MAX_RANK], step[K_MAX_RANK];
    int64_t x[K_MAX_RANK], y[K_MAX_RANK];   /* dims */
    int64_t xs[K_MAX_RANK], ys[K_MAX_RANK]; /* strides */
    int64_t rows, rows_per_unit;
} Pad;

static Pad pad_of(const KArgs *a) {
    const KPad *attr = a->attr;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    Pad p = {.rank = x->rank, .size = k_dtype_size(x->dtype), .rows = 1};
    for (int d = 0; d < p.rank; d++) {
        p.low[d] = attr->low[d];
        p.step[d] = attr->interior[d] + 1;
        p.x[d] = x->dims[d];
        p.y[d] = y->dims[d];
        p.xs[d] = x->strides[d];
        p.ys[d] = y->strides[d];
    }
    if (p.rank == 0) {
        p.rank = 1;
        p.x[0] = p.y[0] = p.step[0] = 1;
    }
    /* a last dim without padding makes one row with the dim before */
    for (int d = p.rank - 1; d > 0; d--, p.rank--) {
        if (p.low[d] != 0 || p.step[d] != 1 || p.x[d] != p.y[d] || p.step[d - 1] != 1) break;
        if (p.xs[d - 1] != p.xs[d] * p.x[d] || p.ys[d - 1] != p.ys[d] * p.y[d]) break;
        p.low[d - 1] *= p.x[d];
        p.x[d - 1] *= p.x[d];
        p.y[d - 1] *= p.y[d];
        p.xs[d - 1] = p.xs[d];
        p.ys[d - 1] = p.ys[d];
    }
    for (int d = 0; d < p.rank - 1; d++) p.rows *= p.y[d];
    p.rows_per_unit = k_max(1, K_UNIT_ELEMENTS / k_max(1, p.y[p.rank - 1]));
    return p;
}

/* x's row under row i of y, or NULL; *to becomes y's row. */
static const char *find_row(const Pad *p, int64_t i, const char *x, char **to) {
    int inside = 1;
    for (int d = p->rank - 2; d >= 0; d--) {
        int64_t j = i % p->y[d], t = j - p->low[d];
        *to += j * p->ys[d];
        i /= p->y[d];
        if (t < 0 || t % p->step[d] != 0 || t / p->step[d] >= p->x[d])
            inside = 0;
        else
            x += t / p->step[d] * p->xs[d];
    }
    return inside ? x : NULL;
}

static void pad_row(const Pad *p, const char *value, const char *x, char *to) {
    int d = p->rank - 1;
    int64_t n = p->y[d], low = p->low[d], step = p->step[d], ts = p->ys[d], fs = p->xs[d];
    /* elements [from, end) of x lie inside the row */
    int64_t from = low < 0 ? k_ceil_div(-low, step) : 0;
    int64_t end = n > low ? k_min(p->x[d], k_ceil_div(n - low, step)) : 0;
    if (!x || from >= end) {
        k_copy_run(p->size, to, ts, value, 0, n);
        return;
    }
    int64_t first = low + from * step, after = low + (end - 1) * step + 1;
    if (step > 1)
        k_copy_run(p->size, to, ts, value, 0, n);
    else {
        k_copy_run(p->size, to, ts, value, 0, first);
        k_copy_run(p->size, to + after * ts, ts, value, 0, n - after);
    }
    k_copy_run(p->size, to + first * ts, step * ts, x + from * fs, fs, end - from);
}

static int64_t pad_units(const KArgs *a) {
    Pad p = pad_of(a);
    return p.y[p.rank - 1] ? k_ceil_div(p.rows, p.rows_per_unit) : 0;
}

static int pad(const KArgs *a) {
    Pad p = pad_of(a);
    int64_t end = k_min(a->hi * p.rows_per_unit, p.rows);
    for (int64_t i = a->lo * p.rows_per_unit; i < end; i++) {
        char *to = a->out[0].data;
        const char *x = find_row(&p, i, a->in[0].data, &to);
        pad_row(&p, a->in[1].data, x, to);
    }
    return 0;
}

K_ROWS(movement) = {
    {"copy", copy, copy_units, NULL},
    {"concat", concat, concat_units, NULL},
    {"pad", pad, pad_units, NULL},
    {NULL, NULL, NULL, NULL},
};
