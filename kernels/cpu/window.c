/* window.c - reduce_window_max, reduce_window_sum, select_and_scatter_add, select_and_gather_add
 * (kernel.h). Any strides.
 *
 * The last dim in which windows are single elements gives the lanes: up to LANES windows side
 * by side, which step through their taps together. A step of the first three is one such row
 * of windows, a unit some of them. select_and_scatter_add writes where windows overlap, so
 * its unit is all windows of some lanes at one place of the other dims without windows,
 * summed up in the workspace. */
#include <math.h>
#include "convert.h"

enum { LANES = 32, UNIT_TAPS = 1 << 14 };

typedef struct Window {
    const KTensor *x;
    const KWindow *attr;
    int rank, lane;              /* lane: the dim, or -1 */
    int64_t y[K_MAX_RANK], taps; /* dims of the result */
    int64_t rows[K_MAX_RANK];    /* of y, the lanes counted in blocks */
    int64_t count;               /* of rows */
    KType type;
    int64_t size;
} Window;

static int is_free(const KWindow *w, const KTensor *x, const KTensor *y, int d) {
    return w->window[d] == 1 && w->stride[d] == 1 && w->low[d] == 0 && x->dims[d] == y->dims[d];
}

static Window describe(const KArgs *a, const KTensor *y) {
    Window w = {
        .x = &a->in[0], .attr = a->attr, .rank = y->rank, .lane = -1, .taps = 1, .count = 1};
    w.type = k_dtype_register(w.x->dtype);
    w.size = k_type_size(w.type);
    for (int d = 0; d < w.rank; d++) {
        if (is_free(w.attr, w.x, y, d)) w.lane = d;
        w.y[d] = w.rows[d] = y->dims[d];
        w.taps *= w.attr->window[d];
    }
    if (w.lane >= 0) w.rows[w.lane] = k_ceil_div(w.y[w.lane], LANES);
    for (int d = 0; d < w.rank; d++) w.count *= w.rows[d];
    return w;
}

/* The index in y of the first window of row i; returns how many lanes it has. */
static int64_t row_at(const Window *w, int64_t i, int64_t *at) {
    for (int d = w->rank - 1; d >= 0; d--) {
        at[d] = i % w->rows[d];
        i /= w->rows[d];
    }
    if (w->lane < 0) return 1;
    at[w->lane] *= LANES;
    return k_min(LANES, w->y[w->lane] - at[w->lane]);
}

static int64_t offset_of(const KTensor *t, const int64_t *at) {
    int64_t offset = 0;
    for (int d = 0; d < t->rank; d++) offset += at[d] * t->strides[d];
    return offset;
}

/* Moves to the next tap from `tap` on whose place in x exists, and gives that place; 0 at the end.
 * `tap` starts with -1 in its last dim (or, at rank 0, in tap[0]). */
static int next_tap(const Window *w, const int64_t *at, int64_t *tap, int64_t *place) {
    if (w->rank == 0) return tap[0]++ < 0;
    for (;;) {
        int d = w->rank - 1;
        for (tap[d]++; tap[d] == w->attr->window[d]; tap[d]++) {
            if (d == 0) return 0;
            tap[d--] = 0;
        }
        int inside = 1;
        for (int k = 0; inside && k < w->rank; k++) {
            place[k] = at[k] * w->attr->stride[k] + tap[k] - w->attr->low[k];
            inside = place[k] >= 0 && place[k] < w->x->dims[k];
        }
        if (inside) return 1;
    }
}
static void first_tap(const Window *w, int64_t *tap) {
    for (int d = 0; d < w->rank; d++) tap[d] = 0;
    tap[w->rank ? w->rank - 1 : 0] = -1;
}

static int64_t lane_stride(const Window *w, const KTensor *t) {
    return w->lane < 0 ? 0 : t->strides[w->lane];
}
static void load(const Window *w, const KTensor *t, const int64_t *at, int64_t n, void *to) {
    k_load_fn(t->dtype)(to, t->data + offset_of(t, at), lane_stride(w, t), n);
}
static void store(const Window *w, const KTensor *t, const int64_t *at, int64_t n, const void *x) {
    k_store_fn(t->dtype)(t->data + offset_of(t, at), lane_stride(w, t), x, n);
}

/* ---- one row of windows --------------------------------------------------------------------- */
#define STEP(name, T, expr)                                                                        \
    static void name(void *acc_, const void *x_, int64_t n) {                                      \
        T *restrict acc = acc_;                                                                    \
        const T *restrict from = x_;                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T a = acc[i], x = from[i];                                                             \
            acc[i] = (T)(expr);                                                                    \
        }                                                                                          \
    }
#define STEPS(S, T, U)                                                                             \
    STEP(max_##S, T, a != a || a >= x ? a : x)                                                     \
    STEP(sum_##S, U, a + x)
STEPS(f32, float, float)
STEPS(f64, double, double)
STEPS(i32, int32_t, uint32_t)
STEPS(u32, uint32_t, uint32_t)
STEPS(i64, int64_t, uint64_t)
STEPS(u64, uint64_t, uint64_t)

typedef void WindowFn(void *acc, const void *x, int64_t n);
static WindowFn *const max_fn[KT_COUNT] = {max_f32, max_f64, max_i32, max_u32, max_i64, max_u64};
static WindowFn *const sum_fn[KT_COUNT] = {sum_f32, sum_f64, sum_i32, sum_u32, sum_i64, sum_u64};

/* The largest of no elements. */
static void fill_lowest(DType t, void *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (t == DT_F64)
            ((double *)to)[i] = -INFINITY;
        else if (k_dtype_is_float(t))
            ((float *)to)[i] = -INFINITY;
        else if (k_dtype_size(t) == 8)
            ((int64_t *)to)[i] = k_dtype_least(t);
        else
            ((int32_t *)to)[i] = (int32_t)k_dtype_least(t);
    }
}

static int64_t rows_per_unit(const Window *w) {
    return k_max(1, UNIT_TAPS / LANES / k_max(1, w->taps));
}

static int reduce(const KArgs *a, int max) {
    const KTensor *y = &a->out[0];
    Window w = describe(a, y);
    _Alignas(64) char acc[LANES * 8], buf[LANES * 8];
    WindowFn *step = max ? max_fn[w.type] : sum_fn[w.type];
    int64_t at[K_MAX_RANK], tap[K_MAX_RANK], place[K_MAX_RANK], per_unit = rows_per_unit(&w);
    for (int64_t i = a->lo * per_unit; i < k_min(a->hi * per_unit, w.count); i++) {
        int64_t n = row_at(&w, i, at);
        int any = 0;
        for (first_tap(&w, tap); next_tap(&w, at, tap, place); any = 1) {
            load(&w, w.x, place, n, any ? buf : acc);
            if (any) step(acc, buf, n);
        }
        if (!any && max) fill_lowest(w.x->dtype, acc, n);
        if (!any && !max) memset(acc, 0, sizeof acc);
        store(&w, y, at, n, acc);
    }
    return 0;
}

K_KERNEL(reduce_window_max, reduce(a, 1))
K_KERNEL(reduce_window_sum, reduce(a, 0))

static int64_t row_units(const KArgs *a) {
    Window w = describe(a, &a->out[0]);
    return k_ceil_div(w.count, rows_per_unit(&w));
}

/* ---- where the largest is ------------------------------------------------------------------- */
/* Lanes in which x is larger than the best so far take it, and `value` with it. */
#define CHOOSE(name, T, V)                                                                         \
    static void name(T *restrict best, V *restrict chosen, const T *restrict x,                    \
                     const V *restrict value, int64_t n) {                                         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            int more = best[i] == best[i] && !(best[i] >= x[i]);                                   \
            best[i] = more ? x[i] : best[i];                                                       \
            chosen[i] = more ? value[i] : chosen[i];                                               \
        }                                                                                          \
    }
CHOOSE(choose_f32, float, float)
CHOOSE(choose_f64, double, double)
CHOOSE(choose_place_f32, float, int64_t)
CHOOSE(choose_place_f64, double, int64_t)

static int select_and_gather_add(const KArgs *a) {
    const KTensor *t = &a->in[1], *y = &a->out[0];
    Window w = describe(a, y);
    _Alignas(64) double best[LANES], chosen[LANES], x[LANES], value[LANES];
    int64_t at[K_MAX_RANK], tap[K_MAX_RANK], place[K_MAX_RANK], per_unit = rows_per_unit(&w);
    for (int64_t i = a->lo * per_unit; i < k_min(a->hi * per_unit, w.count); i++) {
        int64_t n = row_at(&w, i, at);
        int any = 0;
        memset(chosen, 0, sizeof chosen);
        for (first_tap(&w, tap); next_tap(&w, at, tap, place); any = 1) {
            load(&w, w.x, place, n, any ? x : best);
            load(&w, t, place, n, any ? value : chosen);
            if (!any) continue;
            if (w.type == KT_F64)
                choose_f64(best, chosen, x, value, n);
            else
                choose_f32((float *)best, (float *)chosen, (float *)x, (float *)value, n);
        }
        store(&w, y, at, n, chosen);
    }
    return 0;
}

/* The dims with windows of the row at hand in the workspace: [places in x, lanes]. */
typedef struct Slice {
    int64_t strides[K_MAX_RANK], places; /* 0 for dims without windows */
    int64_t windows[K_MAX_RANK];         /* of rows: 1 for dims without */
    int64_t rows, units;
} Slice;

static Slice slice_of(const Window *w, const KTensor *y) {
    Slice s = {.places = 1, .rows = 1, .units = 1};
    for (int d = w->rank - 1; d >= 0; d--) {
        int without = is_free(w->attr, w->x, y, d);
        s.strides[d] = without ? 0 : s.places;
        s.windows[d] = without ? 1 : w->rows[d];
        if (without) s.units *= w->rows[d];
        if (!without) s.places *= w->x->dims[d];
        s.rows *= s.windows[d];
    }
    return s;
}

/* The cotangents of one row of windows, each to the place of its largest. */
static void scatter_row(const Window *w, const Slice *s, const KTensor *dy, const int64_t *at,
                        int64_t n, void *sums) {
    _Alignas(64) double best[LANES], x[LANES], ct[LANES];
    int64_t to[LANES], now[LANES], tap[K_MAX_RANK], place[K_MAX_RANK];
    int any = 0;
    for (first_tap(w, tap); next_tap(w, at, tap, place); any = 1) {
        int64_t p = 0;
        for (int d = 0; d < w->rank; d++) p += place[d] * s->strides[d];
        load(w, w->x, place, n, any ? x : best);
        for (int64_t i = 0; i < n; i++) (any ? now : to)[i] = p * LANES + i;
        if (!any) continue;
        if (w->type == KT_F64)
            choose_place_f64(best, to, x, now, n);
        else
            choose_place_f32((float *)best, to, (float *)x, now, n);
    }
    if (!any) return;
    load(w, dy, at, n, ct);
    for (int64_t i = 0; i < n; i++) {
        if (w->type == KT_F64)
            ((double *)sums)[to[i]] += ct[i];
        else
            ((float *)sums)[to[i]] += ((float *)ct)[i];
    }
}

static int select_and_scatter_add(const KArgs *a) {
    const KTensor *dy = &a->in[1], *dx = &a->out[0];
    Window w = describe(a, dy);
    Slice s = slice_of(&w, dy);
    int64_t at[K_MAX_RANK], base[K_MAX_RANK];
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t n = 1, rest = u;
        for (int d = w.rank - 1; d >= 0; d--) {
            int64_t rows = s.strides[d] ? 1 : w.rows[d];
            base[d] = rest % rows * (d == w.lane ? LANES : 1);
            rest /= rows;
        }
        if (w.lane >= 0) n = k_min(LANES, w.y[w.lane] - base[w.lane]);
        memset(a->workspace, 0, (size_t)(s.places * LANES * w.size));
        for (int64_t r = 0; r < s.rows; r++) {
            rest = r;
            for (int d = w.rank - 1; d >= 0; d--) {
                at[d] = base[d] + rest % s.windows[d];
                rest /= s.windows[d];
            }
            scatter_row(&w, &s, dy, at, n, a->workspace);
        }
        for (int64_t p = 0; p < s.places; p++) {
            for (int d = 0; d < w.rank; d++)
                at[d] = base[d] + (s.strides[d] ? p / s.strides[d] % w.x->dims[d] : 0);
            store(&w, dx, at, n, (char *)a->workspace + p * LANES * w.size);
        }
    }
    return 0;
}

static int64_t scatter_units(const KArgs *a) {
    Window w = describe(a, &a->in[1]);
    return k_count(&a->out[0]) ? slice_of(&w, &a->in[1]).units : 0;
}

static size_t scatter_workspace(const KArgs *a) {
    Window w = describe(a, &a->in[1]);
    return (size_t)(slice_of(&w, &a->in[1]).places * LANES * w.size);
}

K_ROWS(window) = {
    {"reduce_window_max", reduce_window_max, row_units, NULL},
    {"reduce_window_sum", reduce_window_sum, row_units, NULL},
    {"select_and_scatter_add", select_and_scatter_add, scatter_units, scatter_workspace},
    {"select_and_gather_add", select_and_gather_add, row_units, NULL},
    {NULL, NULL, NULL, NULL},
};
