/* cumulative.c - cumsum, cumprod, cummax, cummin (kernel.h). Any strides.
 *
 * A unit is a block of neighbouring lines, which step along the axis together: each step loads one
 * element of every line, combines it with what the lines have so far, and stores that.
 */
#include <math.h>
#include "convert.h"
#include "view.h"

enum { LINES = 64 };

#define STEP(name, T, expr)                                                                        \
    static void name(void *acc_, const void *x_, int64_t n) {                                      \
        T *restrict acc = acc_;                                                                    \
        const T *restrict from = x_;                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T a = acc[i], x = from[i];                                                             \
            acc[i] = expr;                                                                         \
        }                                                                                          \
    }
STEP(sum_f, double, a + x)
STEP(prod_f, double, a *x)
STEP(max_f, double, a != a || a > x ? a : x)
STEP(min_f, double, a != a || a < x ? a : x)
STEP(sum_i, uint64_t, a + x)
STEP(prod_i, uint64_t, a *x)
STEP(max_i, int64_t, a > x ? a : x)
STEP(min_i, int64_t, a < x ? a : x)

typedef void StepFn(void *acc, const void *x, int64_t n);
typedef struct Combine {
    StepFn *real, *whole;
} Combine;

/* The dims but the axis, and the two strides along it. */
typedef struct Lines {
    int rank;
    int64_t dims[K_MAX_RANK], strides[2][K_MAX_RANK], along[2], n, count;
} Lines;

static Lines lines_of(const KArgs *a) {
    int axis = ((const KCumulative *)a->attr)->axis;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    Lines l = {.n = x->dims[axis], .along = {x->strides[axis], y->strides[axis]}, .count = 1};
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

/* Elements of a register type as double or int64, and back. Those of 8 bytes stay where they are.
 */
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
static ConvertFn *const widen[KT_COUNT] = {widen_f32, NULL, widen_i32, widen_u32, NULL};
static ConvertFn *const narrow[KT_COUNT] = {narrow_f32, NULL, narrow_i32, narrow_i32, NULL};

/* Lines from number `first` on that lie in one run of the last dim. */
static void run_lines(const KArgs *a, const Lines *l, const Combine *c, int64_t first, int64_t n) {
    _Alignas(64) char raw[LINES * 8], buf[LINES * 8], acc[LINES * 8];
    DType type = a->in[0].dtype;
    KType reg = k_dtype_register(type);
    int reverse = ((const KCumulative *)a->attr)->reverse;
    StepFn *step = reg == KT_F32 || reg == KT_F64 ? c->real : c->whole;
    int64_t xs = l->rank ? l->strides[0][l->rank - 1] : 0;
    int64_t ys = l->rank ? l->strides[1][l->rank - 1] : 0;
    const char *x = a->in[0].data + k_offset(l->rank, l->dims, l->strides[0], first);
    char *y = a->out[0].data + k_offset(l->rank, l->dims, l->strides[1], first);
    for (int64_t k = 0; k < l->n; k++) {
        int64_t i = reverse ? l->n - 1 - k : k;
        char *to = k ? buf : acc;
        k_load_fn(type)(widen[reg] ? raw : to, x + i * l->along[0], xs, n);
        if (widen[reg]) widen[reg](raw, to, n);
        if (k) step(acc, buf, n);
        if (narrow[reg]) narrow[reg](acc, raw, n);
        k_store_fn(type)(y + i * l->along[1], ys, narrow[reg] ? raw : acc, n);
    }
}

static int cumulative(const KArgs *a, Combine c) {
    Lines l = lines_of(a);
    int64_t last = l.rank ? l.dims[l.rank - 1] : 1, end = k_min(a->hi * LINES, l.count), n;
    for (int64_t i = a->lo * LINES; i < end; i += n) {
        n = k_min(k_min(end - i, LINES), last - i % last);
        run_lines(a, &l, &c, i, n);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    Lines l = lines_of(a);
    return k_ceil_div(l.count, LINES);
}

#define KERNEL(name, real, whole)                                                                  \
    static int name(const KArgs *a) {                                                              \
        return cumulative(a, (Combine){real, whole});                                              \
    }
KERNEL(cumsum, sum_f, sum_i)
KERNEL(cumprod, prod_f, prod_i)
KERNEL(cummax, max_f, max_i)
KERNEL(cummin, min_f, min_i)

K_ROWS(cumulative) = {
    {"cumsum", cumsum, units, NULL}, {"cumprod", cumprod, units, NULL},
    {"cummax", cummax, units, NULL}, {"cummin", cummin, units, NULL},
    {NULL, NULL, NULL, NULL},
};
