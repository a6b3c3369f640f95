/* naive_index.c - gather, scatter and scatter_add: KIndex (kernel.h) says what they do. */
#include "naive.h"

/* The table's row of an id along axis k; -1: nowhere, -2: a fault. */
static int64_t row_of(const KArgs *a, int k, int64_t id) {
    const KIndex *t = a->attr;
    int64_t size = t->size[k], row = id < 0 && t->outside != K_STRICT ? id + size : id;
    if (size > 0 && t->outside == K_CLIP) row = row < 0 ? 0 : row >= size ? size - 1 : row;
    if (size > 0 && t->outside == K_WRAP) row = (id % size + size) % size;
    if (row >= 0 && row < size) return row;
    if (t->outside == K_DROP) return -1;
    *a->fault = (KFault){K_FAULT_INDEX, id, size};
    return -2;
}

/* The table's index for an index of the rows: 1, 0 if it is elsewhere or nowhere, -1 on a fault. */
static int table_index(const KArgs *a, const KTensor *table, const KTensor *ids, int rank,
                       const int64_t *other, int64_t *index) {
    const KIndex *t = a->attr;
    int64_t at[K_MAX_RANK] = {0};
    int here = 1;
    for (int d = 0; d < rank; d++) {
        if (t->table[d] >= 0) index[t->table[d]] = other[d];
        if (t->ids[d] >= 0) at[t->ids[d]] = other[d];
    }
    for (int k = 0; k < t->naxes; k++) {
        if (t->naxes > 1) at[ids->rank - 1] = k;
        int64_t row = row_of(a, k, n_get_int(ids, n_at(ids, at)));
        if (row == -2) return -1;
        index[t->axes[k]] = row - a->offsets[k];
        here = here && row >= a->offsets[k] && index[t->axes[k]] < table->dims[t->axes[k]];
    }
    return here;
}

static int gather(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    int64_t n = n_count(y), o[K_MAX_RANK], i[K_MAX_RANK];
    size_t size = (size_t)n_size(y->dtype);
    for (int64_t k = 0; k < n; k++) {
        n_index(y, k, o);
        int here = table_index(a, x, &a->in[1], y->rank, o, i);
        if (here < 0) return 1;
        if (here)
            memcpy(n_at(y, o), n_at(x, i), size);
        else
            memset(n_at(y, o), 0, size);
    }
    return 0;
}

/* What is combined is kept in double (or 64-bit integers) in the workspace. */
static size_t scatter_workspace(const KArgs *a) {
    return sizeof(double) * (size_t)n_count(&a->out[0]);
}

static double combine_floats(int how, double x, double u) {
    switch (how) {
    case K_ADD: return x + u;
    case K_MUL: return x * u;
    case K_MAX: return x != x || u != u ? NAN : x > u ? x : u;
    case K_MIN: return x != x || u != u ? NAN : x < u ? x : u;
    default: return u;
    }
}

static int64_t combine_ints(int how, DType t, int64_t x, int64_t u) {
    switch (how) {
    case K_ADD: return (int64_t)((uint64_t)x + (uint64_t)u);
    case K_MUL: return (int64_t)((uint64_t)x * (uint64_t)u);
    case K_MAX: return n_less(t, x, u) ? u : x;
    case K_MIN: return n_less(t, u, x) ? u : x;
    default: return u;
    }
}

/* x: NULL for zeros. */
static int combine(const KArgs *a, const KTensor *x, const KTensor *ids, const KTensor *u) {
    const KTensor *y = &a->out[0];
    int64_t n = n_count(u), elements = n_count(y), o[K_MAX_RANK], i[K_MAX_RANK];
    int how = ((const KIndex *)a->attr)->combine, is_float = n_is_float(u->dtype);
    double *real = a->workspace;
    int64_t *whole = a->workspace;
    for (int64_t k = 0; k < elements; k++) {
        if (is_float)
            real[k] = x ? n_get(x, n_elem(x, k)) : 0;
        else
            whole[k] = x ? n_get_int(x, n_elem(x, k)) : 0;
    }
    for (int64_t k = 0; k < n; k++) {
        n_index(u, k, o);
        int here = table_index(a, y, ids, u->rank, o, i);
        if (here < 0) return 1;
        if (!here) continue;
        int64_t at = 0;
        for (int d = 0; d < y->rank; d++) at = at * y->dims[d] + i[d];
        if (is_float)
            real[at] = combine_floats(how, real[at], n_get(u, n_at(u, o)));
        else
            whole[at] = combine_ints(how, u->dtype, whole[at], n_get_int(u, n_at(u, o)));
    }
    for (int64_t k = 0; k < elements; k++) {
        if (is_float)
            n_put(y, n_elem(y, k), real[k]);
        else
            n_put_int(y, n_elem(y, k), whole[k]);
    }
    return 0;
}

K_KERNEL(scatter, combine(a, &a->in[0], &a->in[1], &a->in[2]))
K_KERNEL(scatter_add, combine(a, NULL, &a->in[0], &a->in[1]))

const KernelRow k_rows_index_naive[] = {
    {"gather", gather, NULL, NULL},
    {"scatter", scatter, NULL, scatter_workspace},
    {"scatter_add", scatter_add, NULL, scatter_workspace},
    {NULL, NULL, NULL, NULL},
};
