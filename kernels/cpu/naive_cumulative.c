/* naive_cumulative.c - cumsum, cumprod, cummax, cummin. */
#include "naive.h"

typedef enum Kind { SUM, PROD, MAX, MIN } Kind;

static double real(Kind kind, double a, double x) {
    if (kind == SUM) return a + x;
    if (kind == PROD) return a * x;
    if (a != a || x != x) return NAN;
    return kind == MAX ? (a > x ? a : x) : (a < x ? a : x);
}
static int64_t whole(DType t, Kind kind, int64_t a, int64_t x) {
    if (kind == SUM) return (int64_t)((uint64_t)a + (uint64_t)x);
    if (kind == PROD) return (int64_t)((uint64_t)a * (uint64_t)x);
    return n_less(t, a, x) == (kind == MAX) ? x : a;
}

static int cumulative(const KArgs *a, Kind kind) {
    const KCumulative *attr = a->attr;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    int64_t count = n_count(y), i[K_MAX_RANK];
    for (int64_t k = 0; k < count; k++) {
        n_index(y, k, i);
        int64_t to = i[attr->axis], from = attr->reverse ? y->dims[attr->axis] - 1 : 0;
        double f = 0;
        int64_t w = 0;
        for (int64_t j = from;; j += attr->reverse ? -1 : 1) {
            i[attr->axis] = j;
            const char *at = n_at(x, i);
            if (n_is_float(x->dtype))
                f = j == from ? n_get(x, at) : real(kind, f, n_get(x, at));
            else
                w = j == from ? n_get_int(x, at) : whole(x->dtype, kind, w, n_get_int(x, at));
            if (j == to) break;
        }
        if (n_is_float(x->dtype))
            n_put(y, n_at(y, i), f);
        else
            n_put_int(y, n_at(y, i), w);
    }
    return 0;
}

#define KERNEL(name, kind)                                                                         \
    static int name(const KArgs *a) {                                                              \
        return cumulative(a, kind);                                                                \
    }
KERNEL(cumsum, SUM)
KERNEL(cumprod, PROD)
KERNEL(cummax, MAX)
KERNEL(cummin, MIN)

const KernelRow k_rows_cumulative_naive[] = {
    {"cumsum", cumsum, NULL, NULL}, {"cumprod", cumprod, NULL, NULL},
    {"cummax", cummax, NULL, NULL}, {"cummin", cummin, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
