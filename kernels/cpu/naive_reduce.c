/* naive_reduce.c - reductions and argmax, argmin: for each output, one loop over its part of x. */
#include <stdlib.h>
#include "naive.h"

typedef enum Op { SUM, MAX, MIN, AND, OR } Op;

static double fold_float(Op op, double l, double m) {
    if (op == SUM) return l + m;
    if (l != l || m != m) return NAN;
    return op == MAX ? (m > l ? m : l) : (m < l ? m : l);
}

static int64_t fold_int(Op op, DType t, int64_t l, int64_t m) {
    switch (op) {
    case SUM: return (int64_t)((uint64_t)l + (uint64_t)m);
    case MAX: return n_less(t, l, m) ? m : l;
    case MIN: return n_less(t, m, l) ? m : l;
    case AND: return l & m;
    case OR: return l | m;
    }
    abort();
}

static int64_t identity_int(Op op, DType t) {
    if (op == MAX) return k_dtype_least(t);
    if (op == MIN) return k_dtype_greatest(t);
    return op == AND ? (t == DT_BOOL ? 1 : -1) : 0;
}

/* Puts the row-major position j of what is reduced into x's index. */
static void place(const KReduce *r, const KTensor *x, int64_t j, int64_t *index) {
    for (int d = x->rank - 1; d >= 0; d--) {
        if (!r->reduced[d]) continue;
        index[d] = j % x->dims[d];
        j /= x->dims[d];
    }
}

static int reduce_of(const KArgs *a, Op op, int squares) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KReduce *r = a->attr;
    int64_t n = 1, outputs = n_count(y), i[K_MAX_RANK], o[K_MAX_RANK];
    for (int d = 0; d < x->rank; d++)
        if (r->reduced[d]) n *= x->dims[d];
    for (int64_t k = 0; k < outputs; k++) {
        n_index(y, k, o);
        n_index(y, k, i); /* the same in x but where it is reduced */
        double f = op == SUM ? 0 : op == MAX ? -INFINITY : INFINITY;
        int64_t v = n_is_float(x->dtype) ? 0 : identity_int(op, x->dtype);
        for (int64_t j = 0; j < n; j++) {
            place(r, x, j, i);
            double e = n_is_float(x->dtype) ? n_get(x, n_at(x, i)) : 0;
            if (n_is_float(x->dtype))
                f = fold_float(op, f, squares ? e * e : e);
            else
                v = fold_int(op, x->dtype, v, n_get_int(x, n_at(x, i)));
        }
        if (n_is_float(x->dtype))
            n_put(y, n_at(y, o), f);
        else
            n_put_int(y, n_at(y, o), v);
    }
    return 0;
}

static int reduce(const KArgs *a, Op op) {
    return reduce_of(a, op, 0);
}

static int argreduce(const KArgs *a, int min) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KReduce *r = a->attr;
    int64_t outputs = n_count(y), i[K_MAX_RANK];
    int axis = 0;
    while (!r->reduced[axis]) axis++;
    for (int64_t k = 0; k < outputs; k++) {
        int64_t best = 0;
        n_index(y, k, i);
        char *out = n_at(y, i);
        for (int64_t j = 1; j < x->dims[axis]; j++) {
            i[axis] = best;
            char *l = n_at(x, i);
            i[axis] = j;
            char *m = n_at(x, i);
            int better;
            if (n_is_float(x->dtype)) {
                double p = n_get(x, m), q = n_get(x, l);
                better = (p != p && q == q) || (min ? p < q : p > q);
            } else {
                int64_t p = n_get_int(x, m), q = n_get_int(x, l);
                better = min ? n_less(x->dtype, p, q) : n_less(x->dtype, q, p);
            }
            if (better) best = j;
        }
        n_put_int(y, out, best);
    }
    return 0;
}

#define KERNEL(name, call)                                                                         \
    static int name(const KArgs *a) {                                                              \
        return call;                                                                               \
    }
KERNEL(sum, reduce(a, SUM))
KERNEL(sum_squares, reduce_of(a, SUM, 1))
KERNEL(max, reduce(a, MAX))
KERNEL(min, reduce(a, MIN))
KERNEL(all, reduce(a, AND))
KERNEL(any, reduce(a, OR))
KERNEL(argmax, argreduce(a, 0))
KERNEL(argmin, argreduce(a, 1))

const KernelRow k_rows_reduce_naive[] = {
    {"sum", sum, NULL, NULL}, {"sum_squares", sum_squares, NULL, NULL},
    {"max", max, NULL, NULL}, {"min", min, NULL, NULL},
    {"all", all, NULL, NULL}, {"any", any, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
const KernelRow k_rows_argreduce_naive[] = {
    {"argmax", argmax, NULL, NULL},
    {"argmin", argmin, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
