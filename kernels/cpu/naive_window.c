/* naive_window.c - reduce_window_max, reduce_window_sum, select_and_scatter_add,
 * select_and_gather_add. */
#include "naive.h"

/* The place in x that tap number t of the window at `at` sees; 0 if there is none. */
static int seen(const KWindow *w, const KTensor *x, const int64_t *at, int64_t t, int64_t *place) {
    for (int d = x->rank - 1; d >= 0; d--) {
        place[d] = at[d] * w->stride[d] + t % w->window[d] - w->low[d];
        t /= w->window[d];
        if (place[d] < 0 || place[d] >= x->dims[d]) return 0;
    }
    return 1;
}

static int64_t taps(const KWindow *w, int rank) {
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= w->window[d];
    return n;
}

static int reduce(const KArgs *a, int max) {
    const KWindow *w = a->attr;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    int64_t count = n_count(y), at[K_MAX_RANK], place[K_MAX_RANK];
    int64_t least = n_is_float(x->dtype) ? 0 : k_dtype_least(x->dtype);
    for (int64_t k = 0; k < count; k++) {
        double f = max ? -INFINITY : 0;
        int64_t i = max ? least : 0;
        n_index(y, k, at);
        for (int64_t t = 0; t < taps(w, x->rank); t++) {
            if (!seen(w, x, at, t, place)) continue;
            if (n_is_float(x->dtype)) {
                double v = n_get(x, n_at(x, place));
                f = !max ? f + v : f != f || f >= v ? f : v;
            } else {
                int64_t v = n_get_int(x, n_at(x, place));
                i = !max ? (int64_t)((uint64_t)i + (uint64_t)v) : n_less(x->dtype, i, v) ? v : i;
            }
        }
        if (n_is_float(x->dtype))
            n_put(y, n_at(y, at), f);
        else
            n_put_int(y, n_at(y, at), i);
    }
    return 0;
}

K_KERNEL(reduce_window_max, reduce(a, 1))
K_KERNEL(reduce_window_sum, reduce(a, 0))

/* The place of the first largest in the window at `at`; 0 if the window sees nothing. */
static int largest(const KWindow *w, const KTensor *x, const int64_t *at, int64_t *best) {
    int64_t place[K_MAX_RANK];
    double most = 0;
    int any = 0;
    for (int64_t t = 0; t < taps(w, x->rank); t++) {
        if (!seen(w, x, at, t, place)) continue;
        double v = n_get(x, n_at(x, place));
        if (any && (most != most || most >= v)) continue;
        most = v;
        any = 1;
        memcpy(best, place, sizeof place);
    }
    return any;
}

static int select_and_gather_add(const KArgs *a) {
    const KTensor *x = &a->in[0], *t = &a->in[1], *y = &a->out[0];
    int64_t count = n_count(y), at[K_MAX_RANK], place[K_MAX_RANK];
    for (int64_t k = 0; k < count; k++) {
        n_index(y, k, at);
        n_put(y, n_at(y, at), largest(a->attr, x, at, place) ? n_get(t, n_at(t, place)) : 0);
    }
    return 0;
}

/* The sums are kept in double in the workspace. */
static size_t scatter_workspace(const KArgs *a) {
    return sizeof(double) * (size_t)n_count(&a->out[0]);
}

static int select_and_scatter_add(const KArgs *a) {
    const KTensor *x = &a->in[0], *dy = &a->in[1], *dx = &a->out[0];
    int64_t count = n_count(dy), all = n_count(dx), at[K_MAX_RANK], place[K_MAX_RANK];
    double *sum = a->workspace;
    for (int64_t k = 0; k < all; k++) sum[k] = 0;
    for (int64_t k = 0; k < count; k++) {
        n_index(dy, k, at);
        if (!largest(a->attr, x, at, place)) continue;
        int64_t to = 0;
        for (int d = 0; d < x->rank; d++) to = to * x->dims[d] + place[d];
        sum[to] += n_get(dy, n_at(dy, at));
    }
    for (int64_t k = 0; k < all; k++) n_put(dx, n_elem(dx, k), sum[k]);
    return 0;
}

const KernelRow k_rows_window_naive[] = {
    {"reduce_window_max", reduce_window_max, NULL, NULL},
    {"reduce_window_sum", reduce_window_sum, NULL, NULL},
    {"select_and_scatter_add", select_and_scatter_add, NULL, scatter_workspace},
    {"select_and_gather_add", select_and_gather_add, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
