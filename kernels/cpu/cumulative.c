/* cumulative.c - cumsum, cumprod, cummax, cummin (kernel.h). Any strides.
 *
 * A unit is a block of neighbouring lines, which step along the axis together: an element of every
 * line is combined with what the lines have so far. Some steps of all lines are taken from memory
 * at once, in the order in which they lie there, and put back so. Lines of float32 that each lie in
 * one run are gone through where they are, some abreast. */
#include <math.h>
#include <stdlib.h>
#include "convert.h"
#include "view.h"

enum { LINES = 64, STEPS = 32, ABREAST = 8, PIECE = 128 };
typedef float Piece[PIECE];          /* of a line */
typedef char Tile[STEPS][LINES * 8]; /* by step: a double or int64 of each line */

#define STEP(name, T, expr)                                                                        \
    static void name(const void *before_, void *at_, int64_t n) {                                  \
        const T *restrict before = before_;                                                        \
        T *restrict at = at_;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T a = before[i], x = at[i];                                                            \
            at[i] = expr;                                                                          \
        }                                                                                          \
    }
STEP(sum_i, uint64_t, a + x)
STEP(prod_i, uint64_t, a *x)
STEP(max_i, int64_t, a > x ? a : x)
STEP(min_i, int64_t, a < x ? a : x)
STEP(max_u, uint64_t, a > x ? a : x)
STEP(min_u, uint64_t, a < x ? a : x)

/* The next n elements of ABREAST lines that have `so_far`; reverse: from their end on. */
#define LINES_ABREAST(name, expr)                                                                  \
    static void name##_abreast(double *so_far, Piece *line, int n, int reverse) {                  \
        for (int i = 0; i < n; i++)                                                                \
            for (int j = 0; j < ABREAST; j++) {                                                    \
                float *at = &line[j][reverse ? n - 1 - i : i];                                     \
                double a = so_far[j], x = *at;                                                     \
                so_far[j] = expr;                                                                  \
                *at = (float)so_far[j];                                                            \
            }                                                                                      \
    }
#define STEP_OF_REALS(name, expr) STEP(name, double, expr) LINES_ABREAST(name, expr)
STEP_OF_REALS(sum_f, a + x)
STEP_OF_REALS(prod_f, a *x)
STEP_OF_REALS(max_f, a != a || a > x ? a : x)
STEP_OF_REALS(min_f, a != a || a < x ? a : x)

typedef void CumulativeFn(const void *before, void *at, int64_t n);
typedef void AbreastFn(double *so_far, Piece *line, int n, int reverse);
typedef struct Combine {
    CumulativeFn *real, *whole, *wide; /* wide: of uint64 */
    AbreastFn *abreast;                /* of real */
    double start;                      /* changes no number: not the sign of 0, nor NaN */
} Combine;

/* The dims but the axis, and the two strides along it. */
typedef struct CumulativeLines {
    int rank;
    int64_t dims[K_MAX_RANK], strides[2][K_MAX_RANK], along[2], n, count;
} CumulativeLines;

static CumulativeLines lines_of(const KArgs *a) {
    int axis = ((const KCumulative *)a->attr)->axis;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    CumulativeLines l = {
        .n = x->dims[axis], .along = {x->strides[axis], y->strides[axis]}, .count = 1};
    for (int d = 0; d < x->rank; d++) {
        if (d == axis) continue;
        l.dims[l.rank] = x->dims[d];
        l.strides[0][l.rank] = x->strides[d];
        l.strides[1][l.rank++] = y->strides[d];
        l.count *= x->dims[d];
    }
    l.rank = k_collapse(l.rank, l.dims, 2, l.strides);
    return l;
}

/* Elements of a register type as double or int64, and back. Those of 8 bytes
 * stay where they are. */
#define CONVERT(name, T, F)                                                                        \
    static void name(const void *from_, void *to_, int64_t n) {                                    \
        const F *restrict from = from_;                                                            \
        T *restrict to = to_;                                                                      \
        for (int64_t i = 0; i < n; i++) to[i] = (T)from[i];                                        \
    }
CONVERT(widen_f32, double, float)
CONVERT(widen_i32, int64_t, int32_t)
CONVERT(widen_u32, int64_t, uint32_t)
CONVERT(narrow_f32, float, double)
CONVERT(narrow_i32, uint32_t, int64_t)

typedef void ConvertFn(const void *from, void *to, int64_t n);
static ConvertFn *const widen[KT_COUNT] = {widen_f32, NULL, widen_i32, widen_u32, NULL, NULL};
static ConvertFn *const narrow[KT_COUNT] = {narrow_f32, NULL, narrow_i32, narrow_i32, NULL, NULL};

static void get(DType t, const char *from, int64_t stride, int64_t n, void *to) {
    _Alignas(64) char raw[LINES * 8];
    ConvertFn *convert = widen[k_dtype_register(t)];
    k_load_fn(t)(convert ? raw : to, from, stride, n);
    if (convert) convert(raw, to, n);
}
static void put(DType t, char *to, int64_t stride, int64_t n, const void *from) {
    _Alignas(64) char raw[LINES * 8];
    ConvertFn *convert = narrow[k_dtype_register(t)];
    if (convert) convert(from, raw, n);
    k_store_fn(t)(to, stride, convert ? raw : from, n);
}

/* Lines of an operand, with the strides from step to step and from line to line. */
typedef struct Side {
    DType type;
    char *data;
    int64_t along, across;
} Side;

static Side side_of(const KTensor *t, const CumulativeLines *l, int which, int64_t first) {
    char *data = t->data + k_offset(l->rank, l->dims, l->strides[which], first);
    int64_t across = l->rank ? l->strides[which][l->rank - 1] : 0;
    return (Side){t->dtype, data, l->along[which], across};
}
static int runs_along(const Side *s, int64_t n) {
    return n == 1 || llabs(s->along) < llabs(s->across);
}

/* Steps i .. of n lines. */
static void load_tile(const Side *s, int64_t i, int64_t steps, int64_t n, Tile tile) {
    _Alignas(64) char line[STEPS][8];
    const char *from = s->data + i * s->along;
    if (!runs_along(s, n))
        for (int64_t k = 0; k < steps; k++)
            get(s->type, from + k * s->along, s->across, n, tile[k]);
    else
        for (int64_t j = 0; j < n; j++) {
            get(s->type, from + j * s->across, s->along, steps, line);
            for (int64_t k = 0; k < steps; k++) memcpy(tile[k] + j * 8, line[k], 8);
        }
}
static void store_tile(const Side *s, int64_t i, int64_t steps, int64_t n, Tile tile) {
    _Alignas(64) char line[STEPS][8];
    char *to = s->data + i * s->along;
    if (!runs_along(s, n))
        for (int64_t k = 0; k < steps; k++) put(s->type, to + k * s->along, s->across, n, tile[k]);
    else
        for (int64_t j = 0; j < n; j++) {
            for (int64_t k = 0; k < steps; k++) memcpy(line[k], tile[k] + j * 8, 8);
            put(s->type, to + j * s->across, s->along, steps, line);
        }
}

/* ABREAST lines of float32, each in one run. They go through pieces beside each other: in memory
 * lines often lie a power of two apart, which caches take badly. */
static void run_abreast(const Combine *c, const Side *x, const Side *y, int64_t steps,
                        int reverse) {
    _Alignas(64) Piece line[ABREAST];
    double so_far[ABREAST];
    for (int j = 0; j < ABREAST; j++) so_far[j] = c->start;
    for (int64_t done = 0, n; done < steps; done += n) {
        n = k_min(PIECE, steps - done);
        int64_t at = 4 * (reverse ? steps - done - n : done);
        for (int j = 0; j < ABREAST; j++)
            memcpy(line[j], x->data + j * x->across + at, (size_t)n * 4);
        c->abreast(so_far, line, (int)n, reverse);
        for (int j = 0; j < ABREAST; j++)
            memcpy(y->data + j * y->across + at, line[j], (size_t)n * 4);
    }
}

/* Lines from number `first` on that lie in one run of the last dim. */
static void run_lines(const KArgs *a, const CumulativeLines *l, const Combine *c, int64_t first,
                      int64_t n) {
    _Alignas(64) Tile tile;
    _Alignas(64) char last[LINES * 8];
    KType reg = k_dtype_register(a->in[0].dtype);
    int reverse = ((const KCumulative *)a->attr)->reverse;
    CumulativeFn *step = reg == KT_F32 || reg == KT_F64 ? c->real
                         : reg == KT_U64                ? c->wide
                                                        : c->whole;
    Side x = side_of(&a->in[0], l, 0, first), y = side_of(&a->out[0], l, 1, first);
    const char *before = NULL;
    for (; x.type == DT_F32 && x.along == 4 && y.along == 4 && n >= ABREAST; n -= ABREAST) {
        run_abreast(c, &x, &y, l->n, reverse);
        x.data += ABREAST * x.across;
        y.data += ABREAST * y.across;
    }
    for (int64_t done = n ? 0 : l->n, some; done < l->n; done += some) {
        some = k_min(STEPS, l->n - done);
        int64_t i = reverse ? l->n - done - some : done;
        load_tile(&x, i, some, n, tile);
        for (int64_t k = 0; k < some; k++) {
            char *at = tile[reverse ? some - 1 - k : k];
            if (before) step(before, at, n);
            before = at;
        }
        store_tile(&y, i, some, n, tile);
        memcpy(last, before, (size_t)n * 8);
        before = last;
    }
}

static int cumulative(const KArgs *a, Combine c) {
    CumulativeLines l = lines_of(a);
    int64_t last = l.rank ? l.dims[l.rank - 1] : 1, end = k_min(a->hi * LINES, l.count), n;
    for (int64_t i = a->lo * LINES; i < end; i += n) {
        n = k_min(k_min(end - i, LINES), last - i % last);
        run_lines(a, &l, &c, i, n);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    CumulativeLines l = lines_of(a);
    return k_ceil_div(l.count, LINES);
}

#define KERNEL(name, real, whole, wide, start)                                                     \
    static int name(const KArgs *a) {                                                              \
        return cumulative(a, (Combine){real, whole, wide, real##_abreast, start});                 \
    }
KERNEL(cumsum, sum_f, sum_i, sum_i, -0.0)
KERNEL(cumprod, prod_f, prod_i, prod_i, 1.0)
KERNEL(cummax, max_f, max_i, max_u, -INFINITY)
KERNEL(cummin, min_f, min_i, min_u, INFINITY)

K_ROWS(cumulative) = {
    {"cumsum", cumsum, units, NULL}, {"cumprod", cumprod, units, NULL},
    {"cummax", cummax, units, NULL}, {"cummin", cummin, units, NULL},
    {NULL, NULL, NULL, NULL},
};
