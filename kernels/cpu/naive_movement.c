/* naive_movement.c - copy, concat, pad, tree_sum, sort and top_k. */
#include "naive.h"

static int copy(const KArgs *a) {
    int64_t n = n_count(&a->out[0]);
    for (int64_t i = 0; i < n; i++)
        memcpy(n_elem(&a->out[0], i), n_elem(&a->in[0], i), (size_t)n_size(a->out[0].dtype));
    return 0;
}

static int concat(const KArgs *a) {
    const KTensor *y = &a->out[0];
    int axis = ((const KConcat *)a->attr)->axis;
    int64_t first = 0, index[K_MAX_RANK];
    for (int k = 0; k < a->nin; k++) {
        const KTensor *x = &a->in[k];
        int64_t n = n_count(x);
        for (int64_t i = 0; i < n; i++) {
            n_index(x, i, index);
            const char *from = n_at(x, index);
            index[axis] += first;
            memcpy(n_at(y, index), from, (size_t)n_size(y->dtype));
        }
        first += x->dims[axis];
    }
    return 0;
}

static int pad(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KPad *p = a->attr;
    size_t size = (size_t)n_size(y->dtype);
    int64_t n = n_count(y), index[K_MAX_RANK];
    for (int64_t i = 0; i < n; i++) memcpy(n_elem(y, i), a->in[1].data, size);
    n = n_count(x);
    for (int64_t i = 0; i < n; i++) {
        int inside = 1;
        n_index(x, i, index);
        const char *from = n_at(x, index);
        for (int d = 0; d < y->rank; d++) {
            index[d] = p->low[d] + index[d] * (p->interior[d] + 1);
            inside &= index[d] >= 0 && index[d] < y->dims[d];
        }
        if (inside) memcpy(n_at(y, index), from, size);
    }
    return 0;
}

/* Whether key p comes strictly before key q. */
static int before(const KTensor *keys, const char *p, const char *q, int descending) {
    if (n_is_float(keys->dtype)) {
        double x = n_get(keys, p), y = n_get(keys, q);
        if (x != x || y != y) return x == x;
        return descending ? x > y : x < y;
    }
    int64_t x = n_get_int(keys, p), y = n_get_int(keys, q);
    return descending ? n_less(keys->dtype, y, x) : n_less(keys->dtype, x, y);
}

/* The place of an element is the number of those that come before it. */
static int sort(const KArgs *a) {
    const KSort *s = a->attr;
    const KTensor *keys = &a->in[0];
    int64_t n = n_count(keys), index[K_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        n_index(keys, i, index);
        const char *mine = n_at(keys, index);
        int64_t place = 0, here = index[s->axis];
        for (int64_t j = 0; j < keys->dims[s->axis]; j++) {
            index[s->axis] = j;
            const char *other = n_at(keys, index);
            place += before(keys, other, mine, s->descending) ||
                     (j < here && !before(keys, mine, other, s->descending));
        }
        for (int k = 0; k < a->nin; k++) {
            index[s->axis] = here;
            const char *from = n_at(&a->in[k], index);
            index[s->axis] = place;
            memcpy(n_at(&a->out[k], index), from, (size_t)n_size(a->in[k].dtype));
        }
    }
    return 0;
}

const KernelRow k_rows_movement_naive[] = {
    {"copy", copy, NULL, NULL},
    {"concat", concat, NULL, NULL},
    {"pad", pad, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
static float sum_of(const KTensor *in, int n, int64_t i) {
    if (n == 1) return (float)n_get(&in[0], n_elem(&in[0], i));
    int half = 1;
    while (half * 2 < n) half *= 2;
    return sum_of(in, half, i) + sum_of(in + half, n - half, i);
}

static int tree_sum(const KArgs *a) {
    int64_t n = n_count(&a->out[0]);
    for (int64_t i = 0; i < n; i++)
        n_put(&a->out[0], n_elem(&a->out[0], i), (double)sum_of(a->in, a->nin, i));
    return 0;
}

const KernelRow k_rows_tree_sum_naive[] = {
    {"tree_sum", tree_sum, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

/* Whether p stands before q in a falling order; `first`: it does where they are equal. */
static int precedes(const KTensor *t, const char *p, const char *q, int first) {
    if (!n_is_float(t->dtype)) {
        int64_t a = n_get_int(t, p), b = n_get_int(t, q);
        return n_less(t->dtype, b, a) || (a == b && first);
    }
    double a = n_get(t, p), b = n_get(t, q);
    if (a != a || b != b) return b == b || (a != a && first);
    return a > b || (a == b && first);
}

static int top_k(const KArgs *a) {
    const KTensor *x = &a->in[0], *values = &a->out[0], *ids = &a->out[1];
    int axis = ((const KTopK *)a->attr)->axis;
    int64_t count = n_count(x), i[K_MAX_RANK];
    for (int64_t e = 0; e < count; e++) {
        n_index(x, e, i);
        const char *here = n_at(x, i);
        int64_t k = i[axis], preceding = 0;
        for (int64_t j = 0; j < x->dims[axis]; j++) {
            i[axis] = j;
            preceding += precedes(x, n_at(x, i), here, j < k);
        }
        if (preceding >= values->dims[axis]) continue;
        i[axis] = preceding;
        memcpy(n_at(values, i), here, (size_t)n_size(x->dtype));
        n_put_int(ids, n_at(ids, i), k);
    }
    return 0;
}

const KernelRow k_rows_sort_naive[] = {
    {"top_k", top_k, NULL, NULL},
    {"sort", sort, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
