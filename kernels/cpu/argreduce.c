/* argreduce.c - argmax, argmin: in x; out y (int32), x's dims with the reduced one set to 1.
 *
 * Exactly one dim is reduced. The first of equal elements wins, and the first NaN over all.
 * Any strides. As in reduce.c: one output at a time where x runs along the reduced dim,
 * else COLUMNS of them. */
#include "lanes.h"
#include "rows.h"

enum { COLUMNS = 128, CHUNK = 256 };

/* The first of v's n elements that is better than *best replaces it, and its index (from `at`) goes
 * to *index. `started` is 0 before the first element. */
typedef void FoldRow(void *best, int32_t *index, int started, const void *v, int64_t at, int64_t n);
/* The same for n columns, each with one more element, at index `at`. */
typedef void FoldColumns(void *best, int32_t *index, int started, const void *v, int64_t at,
                         int64_t n);

/* better(m, l): m replaces l. extreme: the best element of a run. */
#define FOLDS(name, T, better, extreme)                                                            \
    static void name##_row(void *best_, int32_t *index, int started, const void *v_, int64_t at,   \
                           int64_t n) {                                                            \
        T *best = best_;                                                                           \
        const T *v = v_;                                                                           \
        T m = extreme(v, n);                                                                       \
        if (started && !(better(m, *best))) return;                                                \
        *best = m;                                                                                 \
        int32_t first = CHUNK;                                                                     \
        for (int32_t i = 0; i < (int32_t)n; i++) { /* without a jump: it becomes vector code */    \
            int32_t hit = (v[i] == m) | ((m != m) & (v[i] != v[i])) ? i : CHUNK;                   \
            first = hit < first ? hit : first;                                                     \
        }                                                                                          \
        *index = (int32_t)at + first;                                                              \
    }                                                                                              \
    static void name##_columns(void *best_, int32_t *restrict index, int started, const void *v_,  \
                               int64_t at, int64_t n) {                                            \
        T *restrict best = best_;                                                                  \
        const T *restrict v = v_;                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T m = v[i], l = best[i];                                                               \
            int take = (started == 0) | (better(m, l));                                            \
            best[i] = take ? m : l;                                                                \
            index[i] = take ? (int32_t)at : index[i];                                              \
        }                                                                                          \
    }
#define EXTREME(name, T, op)                                                                       \
    static inline T name(const T *v, int64_t n) {                                                  \
        T l = v[0];                                                                                \
        for (int64_t i = 1; i < n; i++) l = v[i] op l ? v[i] : l;                                  \
        return l;                                                                                  \
    }
#define ABOVE(m, l)       ((m) > (l))
#define BELOW(m, l)       ((m) < (l))
#define ABOVE_FLOAT(m, l) (((m) > (l)) | (((m) != (m)) & ((l) == (l))))
#define BELOW_FLOAT(m, l) (((m) < (l)) | (((m) != (m)) & ((l) == (l))))
EXTREME(max_i32, int32_t, >)
EXTREME(max_u32, uint32_t, >)
EXTREME(max_i64, int64_t, >)
EXTREME(max_u64, uint64_t, >)
EXTREME(min_i32, int32_t, <)
EXTREME(min_u32, uint32_t, <)
EXTREME(min_i64, int64_t, <)
EXTREME(min_u64, uint64_t, <)
FOLDS(argmax_f32, float, ABOVE_FLOAT, peak_f32)
FOLDS(argmax_f64, double, ABOVE_FLOAT, peak_f64)
FOLDS(argmax_i32, int32_t, ABOVE, max_i32)
FOLDS(argmax_u32, uint32_t, ABOVE, max_u32)
FOLDS(argmax_i64, int64_t, ABOVE, max_i64)
FOLDS(argmax_u64, uint64_t, ABOVE, max_u64)
FOLDS(argmin_f32, float, BELOW_FLOAT, dip_f32)
FOLDS(argmin_f64, double, BELOW_FLOAT, dip_f64)
FOLDS(argmin_i32, int32_t, BELOW, min_i32)
FOLDS(argmin_u32, uint32_t, BELOW, min_u32)
FOLDS(argmin_i64, int64_t, BELOW, min_i64)
FOLDS(argmin_u64, uint64_t, BELOW, min_u64)

#define ROW(op)                                                                                    \
    { op##_f32_row, op##_f64_row, op##_i32_row, op##_u32_row, op##_i64_row, op##_u64_row }
#define COLUMN(op)                                                                                 \
    {                                                                                              \
        op##_f32_columns, op##_f64_columns, op##_i32_columns, op##_u32_columns, op##_i64_columns,  \
            op##_u64_columns                                                                       \
    }
static FoldRow *const fold_row[2][KT_COUNT] = {ROW(argmax), ROW(argmin)};
static FoldColumns *const fold_columns[2][KT_COUNT] = {COLUMN(argmax), COLUMN(argmin)};

typedef struct ArgReduction {
    const KTensor *x;
    int rank; /* of the kept dims, sorted and merged */
    int64_t dims[K_MAX_RANK], strides[2][K_MAX_RANK];
    int64_t n, stride;       /* the reduced dim */
    int64_t outputs, blocks; /* blocks: of COLUMNS in the last kept dim; 0: one output at a time */
} ArgReduction;

static ArgReduction describe(const KArgs *a) {
    const KReduce *attr = a->attr;
    ArgReduction r = {.x = &a->in[0], .outputs = 1};
    for (int d = 0; d < r.x->rank; d++) {
        if (attr->reduced[d]) {
            r.n = r.x->dims[d];
            r.stride = r.x->strides[d];
            continue;
        }
        r.strides[0][r.rank] = r.x->strides[d];
        r.strides[1][r.rank] = a->out[0].strides[d];
        r.dims[r.rank++] = r.x->dims[d];
        r.outputs *= r.x->dims[d];
    }
    k_sort_dims(r.rank, r.dims, 2, r.strides);
    r.rank = k_collapse(r.rank, r.dims, 2, r.strides);
    if (r.rank == 0) return r;
    int64_t last = r.dims[r.rank - 1], kept = r.strides[0][r.rank - 1];
    if (last >= 8 &&
        (r.n < 32 || (kept < 0 ? -kept : kept) < (r.stride < 0 ? -r.stride : r.stride)))
        r.blocks = k_ceil_div(last, COLUMNS);
    return r;
}

static void arg_row(const ArgReduction *r, FoldRow *fold, const char *x, int32_t *index) {
    _Alignas(64) char best[8], buf[CHUNK * 8];
    *index = 0;
    for (int64_t i = 0, n; i < r->n; i += n) {
        n = k_min(CHUNK, r->n - i);
        fold(best, index, i > 0, k_run_in(r->x->dtype, x + i * r->stride, r->stride, n, buf), i, n);
    }
}

static void arg_columns(const ArgReduction *r, FoldColumns *fold, const char *x, int32_t *index,
                        int64_t n) {
    _Alignas(64) char best[COLUMNS * 8], buf[COLUMNS * 8];
    memset(best, 0, sizeof best);
    memset(index, 0, COLUMNS * sizeof *index);
    for (int64_t i = 0; i < r->n; i++)
        fold(best, index, i > 0,
             k_run_in(r->x->dtype, x + i * r->stride, r->strides[0][r->rank - 1], n, buf), i, n);
}

static int argreduce(const KArgs *a, int min) {
    ArgReduction r = describe(a);
    KType type = k_dtype_register(r.x->dtype);
    int32_t index[COLUMNS];
    if (r.outputs == 0) return 0;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t first = u, n = 1, stride = 0;
        if (r.blocks) {
            int64_t last = r.dims[r.rank - 1], block = u % r.blocks * COLUMNS;
            n = k_min(COLUMNS, last - block);
            first = u / r.blocks * last + block;
            stride = r.strides[1][r.rank - 1];
        }
        const char *x = r.x->data + k_offset(r.rank, r.dims, r.strides[0], first);
        char *y = a->out[0].data + k_offset(r.rank, r.dims, r.strides[1], first);
        if (r.blocks)
            arg_columns(&r, fold_columns[min][type], x, index, n);
        else
            arg_row(&r, fold_row[min][type], x, index);
        k_store_fn(DT_I32)(y, stride, index, n);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    ArgReduction r = describe(a);
    return r.blocks && r.outputs ? r.outputs / r.dims[r.rank - 1] * r.blocks : r.outputs;
}
K_KERNEL(argmax, argreduce(a, 0))
K_KERNEL(argmin, argreduce(a, 1))

K_ROWS(argreduce) = {
    {"argmax", argmax, units, NULL},
    {"argmin", argmin, units, NULL},
    {NULL, NULL, NULL, NULL},
};
