/* reduce.c - sum, sum_squares, max, min, all, any.
 *
 * x any dims; y: x's dims with the reduced ones set to 1. Any strides. The dims fall into two
 * groups, each sorted by x's strides and merged where possible. If x runs along a reduced dim, an
 * output is computed at a time from runs of x; if it runs along a kept dim, a block of outputs at
 * a time from rows of as many elements. float32 sums add runs of 1024 in lanes and then in
 * double, or by columns ROWS rows and then in double; only where many outputs have one short run
 * each all of it is float32. */
#include <stdbool.h>
#include "lanes.h"
#include "rows.h"

enum {
    WIDE = 2048,  /* most columns of a pass over x */
    NARROW = 128, /* least columns of a unit */
    CHUNK = 1024, /* elements of a run that are added as float32 */
    ROWS = 8,     /* rows that are added as float32 */
    MANY = 8,     /* outputs that are made one after the other */
};

typedef enum Op { SUM, MAX, MIN, AND, OR } Op;

/* acc = acc op (all of v's n elements); acc[i] = acc[i] op v[i] */
typedef void Fold(void *acc, const void *v, int64_t n);

#define FOLD_ROW(name, A, T, expr)                                                                 \
    static void name(void *acc_, const void *v_, int64_t n) {                                      \
        A *acc = acc_, l = *acc;                                                                   \
        const T *v = v_;                                                                           \
        *acc = expr;                                                                               \
    }
#define FOLD_ROW_INT(name, T, expr)                                                                \
    static void name(void *acc, const void *v_, int64_t n) {                                       \
        T l = *(T *)acc;                                                                           \
        const T *v = v_;                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T m = v[i];                                                                            \
            l = expr;                                                                              \
        }                                                                                          \
        *(T *)acc = l;                                                                             \
    }
#define FOLD_COLUMNS(name, A, T, expr)                                                             \
    static void name(void *acc_, const void *v_, int64_t n) {                                      \
        A *restrict acc = acc_;                                                                    \
        const T *restrict v = v_;                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            A l = acc[i];                                                                          \
            T m = v[i];                                                                            \
            acc[i] = expr;                                                                         \
        }                                                                                          \
    }
#define FOLDS_INT(op, t, T, expr)                                                                  \
    FOLD_ROW_INT(op##_row_##t, T, expr)                                                            \
    FOLD_COLUMNS(op##_columns_##t, T, T, expr)
#define FOLD_MAX (((m > l) | (m != m)) ? m : l)
#define FOLD_MIN (((m < l) | (m != m)) ? m : l)
/* Of a short run the lanes are combined in double: it may be all that there is of a sum. */
static double sum_wide(const float *x, int64_t n) {
    if (n == CHUNK) return (double)sum_f32(x, n);
    Vec_f32 lanes[K_LANES];
    sum_in_lanes_f32(x, n, lanes);
    double s[VEC_f32];
    for (int j = 0; j < VEC_f32; j++)
        s[j] = ((double)lanes[0][j] + (double)lanes[1][j]) +
               ((double)lanes[2][j] + (double)lanes[3][j]);
    for (int w = VEC_f32 / 2; w; w /= 2)
        for (int j = 0; j < w; j++) s[j] += s[j + w];
    return s[0];
}

#define FOLDS_FLOAT(t, T)                                                                          \
    FOLD_ROW(sum_row_##t, double, T, l + sum_of_##t(v, n))                                         \
    FOLD_COLUMNS(sum_columns_##t, double, T, l + (double)m)                                        \
    static T higher_##t(T l, T m) {                                                                \
        return FOLD_MAX;                                                                           \
    }                                                                                              \
    static T lower_##t(T l, T m) {                                                                 \
        return FOLD_MIN;                                                                           \
    }                                                                                              \
    FOLD_ROW(max_row_##t, T, T, higher_##t(l, peak_##t(v, n)))                                     \
    FOLD_ROW(min_row_##t, T, T, lower_##t(l, dip_##t(v, n)))                                       \
    FOLD_COLUMNS(max_columns_##t, T, T, FOLD_MAX)                                                  \
    FOLD_COLUMNS(min_columns_##t, T, T, FOLD_MIN)

#define sum_of_f32 sum_wide
#define sum_of_f64 sum_f64
FOLDS_FLOAT(f32, float)
FOLDS_FLOAT(f64, double)
FOLDS_INT(sum, u32, uint32_t, l + m)
FOLDS_INT(sum, u64, uint64_t, l + m)
FOLDS_INT(max, i32, int32_t, m > l ? m : l)
FOLDS_INT(max, u32, uint32_t, m > l ? m : l)
FOLDS_INT(max, i64, int64_t, m > l ? m : l)
FOLDS_INT(max, u64, uint64_t, m > l ? m : l)
FOLDS_INT(min, i32, int32_t, m < l ? m : l)
FOLDS_INT(min, u32, uint32_t, m < l ? m : l)
FOLDS_INT(min, i64, int64_t, m < l ? m : l)
FOLDS_INT(min, u64, uint64_t, m < l ? m : l)
FOLDS_INT(and, u32, uint32_t, l &m)
FOLDS_INT(and, u64, uint64_t, l &m)
FOLDS_INT(or, u32, uint32_t, l | m)
FOLDS_INT(or, u64, uint64_t, l | m)

/* Many outputs of one short run each: y[i] from the n elements at x + i * xs. */
typedef void FoldRuns(float *y, int64_t ys, const float *x, int64_t xs, int64_t n, int64_t count);
#define FOLD_RUNS(name, expr)                                                                      \
    static void name(float *y, int64_t ys, const float *x, int64_t xs, int64_t n, int64_t count) { \
        for (int64_t i = 0; i < count; i++, x += xs, y += ys) *y = expr;                           \
    }
FOLD_RUNS(sum_runs, sum_f32(x, n))
FOLD_RUNS(max_runs, peak_f32(x, n))
FOLD_RUNS(min_runs, dip_f32(x, n))
static FoldRuns *const fold_runs[] = {[SUM] = sum_runs, [MAX] = max_runs, [MIN] = min_runs};

/* The sum of ROWS rows of n floats, `stride` apart. */
static void sum_rows(float *restrict to, const float *restrict x, int64_t stride, int64_t n) {
#define AT(r)   x[(r)*stride + i]
#define PAIR(r) (AT(r) + AT(r + 1))
    for (int64_t i = 0; i < n; i++) to[i] = (PAIR(0) + PAIR(2)) + (PAIR(4) + PAIR(6));
#undef PAIR
#undef AT
}

#define PAIR(op, t)                                                                                \
    { op##_row_##t, op##_columns_##t }
/* [op][register type]: by rows, by columns */
static Fold *const folds[][KT_COUNT][2] = {
#define PAIRS(op, i, u, l, w)                                                                      \
    { PAIR(op, f32), PAIR(op, f64), PAIR(op, i), PAIR(op, u), PAIR(op, l), PAIR(op, w) }
    [SUM] = PAIRS(sum, u32, u32, u64, u64),
    [MAX] = PAIRS(max, i32, u32, i64, u64),
    [MIN] = PAIRS(min, i32, u32, i64, u64),
    [AND] = {{0}, {0}, PAIR(and, u32), PAIR(and, u32), PAIR(and, u64), PAIR(and, u64)},
    [OR] = {{0}, {0}, PAIR(or, u32), PAIR(or, u32), PAIR(or, u64), PAIR(or, u64)},
};

/* The result of reducing nothing, in the accumulator's type. */
static void identity(Op op, DType t, void *acc) {
    KType type = k_dtype_register(t);
    double edge = op == MAX ? -INFINITY : INFINITY;
    float narrow = (float)edge;
    int64_t i = op == MAX   ? k_dtype_least(t)
                : op == MIN ? k_dtype_greatest(t)
                : op == AND ? (t == DT_BOOL ? 1 : -1)
                            : 0;
    memset(acc, 0, 8);
    if (type == KT_F64 && op != SUM)
        memcpy(acc, &edge, 8);
    else if (type == KT_F32 && op != SUM)
        memcpy(acc, &narrow, 4);
    else if (k_type_size(type) == 8 && type != KT_F64)
        memcpy(acc, &i, 8);
    else if (type == KT_I32 || type == KT_U32)
        memcpy(acc, &(uint32_t){(uint32_t)i}, 4);
}

typedef struct Reduction {
    const KTensor *x, *y;
    Op op;
    bool squares;                               /* are added, not the elements */
    int kept_rank, rank;                        /* rank: of the reduced dims */
    int64_t kept[K_MAX_RANK], dims[K_MAX_RANK]; /* sorted and merged */
    int64_t kept_strides[2][K_MAX_RANK], strides[1][K_MAX_RANK];
    int by_columns;
    int64_t outputs, positions; /* products of kept and of dims */
    int64_t columns, blocks;    /* by columns: of a block; blocks of the last kept dim */
} Reduction;

static Reduction describe(const KArgs *a, Op op, bool squares) {
    const KReduce *attr = a->attr;
    Reduction r = {.x = &a->in[0],
                   .y = &a->out[0],
                   .op = op,
                   .squares = squares,
                   .outputs = 1,
                   .positions = 1};
    for (int d = 0; d < r.x->rank; d++) {
        int64_t n = r.x->dims[d], s = r.x->strides[d];
        if (attr->reduced[d]) {
            r.strides[0][r.rank] = s;
            r.dims[r.rank++] = n;
            r.positions *= n;
        } else {
            r.kept_strides[0][r.kept_rank] = s;
            r.kept_strides[1][r.kept_rank] = r.y->strides[d];
            r.kept[r.kept_rank++] = n;
            r.outputs *= n;
        }
    }
    k_sort_dims(r.kept_rank, r.kept, 2, r.kept_strides);
    k_sort_dims(r.rank, r.dims, 1, r.strides);
    r.kept_rank = k_collapse(r.kept_rank, r.kept, 2, r.kept_strides);
    r.rank = k_collapse(r.rank, r.dims, 1, r.strides);
    if (r.kept_rank == 0) return r;
    int64_t kept = r.kept_strides[0][r.kept_rank - 1];
    int64_t run = r.rank ? r.dims[r.rank - 1] : 1, along = r.rank ? r.strides[0][r.rank - 1] : 0;
    r.by_columns = r.kept[r.kept_rank - 1] >= 8 &&
                   (run < 32 || (kept < 0 ? -kept : kept) < (along < 0 ? -along : along));
    /* eight blocks in all if they are not too narrow to be worth a visit to each row */
    int64_t last = r.kept[r.kept_rank - 1], lines = last ? r.outputs / last : 0;
    r.columns =
        k_min(lines >= 8 ? WIDE : WIDE / 4, (last * k_max(lines, 1) / 8 + 31) & ~(int64_t)31);
    r.columns = k_max(NARROW, r.columns);
    r.blocks = k_ceil_div(r.kept[r.kept_rank - 1], r.columns);
    return r;
}

/* n outputs, 8 bytes per accumulator or 4 where the register type has 4 and op is not SUM of
 * floats, to y in runs of `stride`. */
static void finish(const Reduction *r, char *at, int64_t stride, void *acc, int64_t n) {
    float narrow[WIDE];
    if (r->op == SUM && k_dtype_register(r->x->dtype) == KT_F32) {
        const double *wide = acc;
        for (int64_t i = 0; i < n; i++) narrow[i] = (float)wide[i];
        acc = narrow;
    }
    k_store_fn(r->y->dtype)(at, stride, acc, n);
}

static KWalk walk_reduced(const Reduction *r, char *at) {
    KWalk w = {.rank = r->rank, .count = 1, .at = {at}};
    memcpy(w.dims, r->dims, sizeof w.dims);
    memcpy(w.strides[0], r->strides[0], sizeof w.strides[0]);
    if (r->positions) k_walk_start(&w, 0);
    return w;
}

/* n elements of x, or their squares. */
static const void *take_run(const Reduction *r, const char *at, int64_t stride, int64_t n,
                            void *buf) {
    const void *x = k_run_in(r->x->dtype, at, stride, n, buf);
    if (!r->squares) return x;
    const float *narrow = x;
    const double *wide = x;
    float *f = buf;
    double *d = buf;
    if (k_dtype_register(r->x->dtype) == KT_F32)
        K_IVDEP for (int64_t i = 0; i < n; i++) f[i] = narrow[i] * narrow[i];
    else
        K_IVDEP for (int64_t i = 0; i < n; i++) d[i] = wide[i] * wide[i];
    return buf;
}

/* Folds all reduced elements from `at` on into one accumulator, by runs. */
static void reduce_row(const Reduction *r, char *at, void *acc, void *buf) {
    Fold *fold = folds[r->op][k_dtype_register(r->x->dtype)][0];
    if (r->rank <= 1 && r->positions <= CHUNK) { /* what a walk would do, for short rows */
        int64_t stride = r->rank ? r->strides[0][0] : 0;
        if (r->positions) fold(acc, take_run(r, at, stride, r->positions, buf), r->positions);
        return;
    }
    KWalk w = walk_reduced(r, at);
    for (int64_t left = r->positions, n; left > 0; left -= n) {
        n = k_min(k_walk_run(&w), CHUNK);
        fold(acc, take_run(r, w.at[0], k_walk_stride(&w, 0), n, buf), n);
        k_walk_advance(&w, n);
    }
}

/* Folds rows of n neighbours into n accumulators. */
static void reduce_columns(const Reduction *r, char *at, void *acc, int64_t n, void *buf) {
    Fold *fold = folds[r->op][k_dtype_register(r->x->dtype)][1];
    int64_t stride = r->kept_strides[0][r->kept_rank - 1];
    bool many = r->op == SUM && !r->squares && r->x->dtype == DT_F32 && stride == sizeof(float);
    KWalk w = walk_reduced(r, at);
    for (int64_t left = r->positions, rows; left > 0; left -= rows) {
        int64_t apart = k_walk_stride(&w, 0) / (int64_t)sizeof(float);
        const void *row = w.at[0];
        rows = many && k_walk_run(&w) >= ROWS ? ROWS : 1;
        if (rows == ROWS)
            sum_rows(buf, row, apart, n);
        else
            row = take_run(r, w.at[0], stride, n, buf);
        fold(acc, rows == ROWS ? buf : row, n);
        k_walk_advance(&w, rows);
    }
}

static int64_t accumulator_bytes(const Reduction *r) {
    KType t = k_dtype_register(r->x->dtype);
    return r->op == SUM && t == KT_F32 ? 8 : k_type_size(t);
}

/* Outputs from `first` on, n of them by columns, else one. */
static void reduce_outputs(const Reduction *r, int64_t first, int64_t n, void *acc, void *buf) {
    int64_t stride = r->by_columns ? r->kept_strides[1][r->kept_rank - 1] : 0;
    char *x = r->x->data + k_offset(r->kept_rank, r->kept, r->kept_strides[0], first);
    char *y = r->y->data + k_offset(r->kept_rank, r->kept, r->kept_strides[1], first);
    for (int64_t i = 0; i < n; i++)
        identity(r->op, r->x->dtype, (char *)acc + i * accumulator_bytes(r));
    if (r->by_columns)
        reduce_columns(r, x, acc, n, buf);
    else
        reduce_row(r, x, acc, buf);
    finish(r, y, stride, acc, n);
}

/* Outputs [i, end) where each is one short run of floats. */
static void reduce_runs(const Reduction *r, int64_t i, int64_t end) {
    KWalk w = {.rank = r->kept_rank, .count = 2, .at = {r->x->data, r->y->data}};
    memcpy(w.dims, r->kept, sizeof w.dims);
    memcpy(w.strides, r->kept_strides, sizeof r->kept_strides);
    k_walk_start(&w, i);
    for (int64_t n; i < end; i += n, k_walk_advance(&w, n)) {
        n = k_min(k_walk_run(&w), end - i);
        fold_runs[r->op]((float *)(void *)w.at[1], k_walk_stride(&w, 1) / (int64_t)sizeof(float),
                         (const float *)(const void *)w.at[0],
                         k_walk_stride(&w, 0) / (int64_t)sizeof(float), r->positions, n);
    }
}

static bool has_short_runs(const Reduction *r) {
    return !r->by_columns && !r->squares && r->outputs >= MANY && r->op <= MIN &&
           r->x->dtype == DT_F32 && r->y->dtype == DT_F32 && r->positions <= CHUNK &&
           (r->rank == 0 || (r->rank == 1 && r->strides[0][0] == 4));
}

static int reduce(const KArgs *a, Op op, bool squares) {
    Reduction r = describe(a, op, squares);
    _Alignas(64) char acc[WIDE * 8], buf[WIDE * 8];
    if (has_short_runs(&r)) {
        reduce_runs(&r, a->lo, a->hi);
        return 0;
    }
    for (int64_t u = a->lo, blocks; u < a->hi; u += blocks) {
        int64_t first = u, n = 1;
        blocks = 1;
        if (r.by_columns) {
            /* neighbouring blocks in one pass: many rows are read by longer pieces */
            int64_t last = r.kept[r.kept_rank - 1], block = u % r.blocks;
            blocks =
                k_min(k_min(a->hi - u, r.blocks - block), r.positions < 8 ? 1 : WIDE / r.columns);
            first = u / r.blocks * last + block * r.columns;
            n = k_min(blocks * r.columns, last - block * r.columns);
        }
        reduce_outputs(&r, first, n, acc, buf);
    }
    return 0;
}

static int64_t units(const KArgs *a, Op op, bool squares) {
    Reduction r = describe(a, op, squares);
    if (r.outputs == 0) return 0;
    return r.by_columns ? r.outputs / r.kept[r.kept_rank - 1] * r.blocks : r.outputs;
}

#define KERNEL(name, op, squares)                                                                  \
    static int reduce_##name(const KArgs *a) {                                                     \
        return reduce(a, op, squares);                                                             \
    }                                                                                              \
    static int64_t units_##name(const KArgs *a) {                                                  \
        return units(a, op, squares);                                                              \
    }
KERNEL(sum, SUM, false)
KERNEL(sum_squares, SUM, true)
KERNEL(max, MAX, false)
KERNEL(min, MIN, false)
KERNEL(and, AND, false)
KERNEL(or, OR, false)

K_ROWS(reduce) = {
    {"sum", reduce_sum, units_sum, NULL},
    {"sum_squares", reduce_sum_squares, units_sum_squares, NULL},
    {"max", reduce_max, units_max, NULL},
    {"min", reduce_min, units_min, NULL},
    {"all", reduce_and, units_and, NULL},
    {"any", reduce_or, units_or, NULL},
    {NULL, NULL, NULL, NULL},
};
