/* naive_index.c - take, scatter_add and scatter_set; take_along_axis: in x, ids (int32); out y, of
 * the ids' dims, which are x's but along `axis`: y's element is that of x whose index along the
 * axis is the id. add_along_axis: in ids, updates; out table = zeros, then each update added in its
 * line where its id says. Both have KTake, whose rules hold along the axis. */
#include "naive.h"

/* The table's index for an index of the other operand [before, ids, after]; 0 if another device has
 * that row, -1 on a fault. */
static int table_index(const KArgs *a, const KTensor *table, const KTensor *ids,
                       const int64_t *other, int64_t *index) {
    const KTake *t = a->attr;
    int64_t id = n_get_int(ids, n_at(ids, other + t->axis));
    if (id < 0 || id >= t->size) {
        *a->fault = (KFault){K_FAULT_INDEX, id, t->size};
        return -1;
    }
    for (int d = 0; d < table->rank; d++) {
        if (d < t->axis)
            index[d] = other[d];
        else if (d > t->axis)
            index[d] = other[d - 1 + ids->rank];
        else
            index[d] = id - a->offsets[0];
    }
    return index[t->axis] >= 0 && index[t->axis] < table->dims[t->axis];
}

/* The same where the table differs from ids and other along the axis alone. */
static int line_index(const KArgs *a, const KTensor *table, const KTensor *ids,
                      const int64_t *other, int64_t *index) {
    const KTake *t = a->attr;
    int64_t id = n_get_int(ids, n_at(ids, other));
    if (id < 0 || id >= t->size) {
        *a->fault = (KFault){K_FAULT_INDEX, id, t->size};
        return -1;
    }
    for (int d = 0; d < table->rank; d++) index[d] = other[d];
    index[t->axis] = id - a->offsets[0];
    return index[t->axis] >= 0 && index[t->axis] < table->dims[t->axis];
}

typedef int PlaceFn(const KArgs *a, const KTensor *table, const KTensor *ids, const int64_t *other,
                    int64_t *index);

static int pick(const KArgs *a, PlaceFn *place) {
    const KTensor *table = &a->in[0], *ids = &a->in[1], *y = &a->out[0];
    int64_t n = n_count(y), o[K_MAX_RANK + 1], i[K_MAX_RANK];
    size_t size = (size_t)n_size(y->dtype);
    for (int64_t k = 0; k < n; k++) {
        n_index(y, k, o);
        int here = place(a, table, ids, o, i);
        if (here < 0) return 1;
        if (here)
            memcpy(n_at(y, o), n_at(table, i), size);
        else
            memset(n_at(y, o), 0, size);
    }
    return 0;
}

/* The sums are kept in double (or 64-bit integers) in the workspace. */
static size_t scatter_workspace(const KArgs *a) {
    return sizeof(double) * (size_t)n_count(&a->out[0]);
}

static int add(const KArgs *a, PlaceFn *place) {
    const KTensor *ids = &a->in[0], *u = &a->in[1], *table = &a->out[0];
    int64_t n = n_count(u), rows = n_count(table), o[K_MAX_RANK + 1], i[K_MAX_RANK];
    double *sum = a->workspace;
    int64_t *whole = a->workspace;
    memset(a->workspace, 0, scatter_workspace(a));
    for (int64_t k = 0; k < n; k++) {
        n_index(u, k, o);
        int here = place(a, table, ids, o, i);
        if (here < 0) return 1;
        if (!here) continue;
        int64_t at = 0;
        for (int d = 0; d < table->rank; d++) at = at * table->dims[d] + i[d];
        if (n_is_float(u->dtype))
            sum[at] += n_get(u, n_at(u, o));
        else
            whole[at] = (int64_t)((uint64_t)whole[at] + (uint64_t)n_get_int(u, n_at(u, o)));
    }
    for (int64_t k = 0; k < rows; k++) {
        if (n_is_float(u->dtype))
            n_put(table, n_elem(table, k), sum[k]);
        else
            n_put_int(table, n_elem(table, k), whole[k]);
    }
    return 0;
}

K_KERNEL(take, pick(a, table_index))
K_KERNEL(scatter_add, add(a, table_index))
K_KERNEL(take_along, pick(a, line_index))
K_KERNEL(add_along, add(a, line_index))

static int scatter_set(const KArgs *a) {
    const KTensor *x = &a->in[0], *ids = &a->in[1], *u = &a->in[2], *y = &a->out[0];
    int64_t n = n_count(y), updates = n_count(u), o[K_MAX_RANK + 1], i[K_MAX_RANK];
    size_t size = (size_t)n_size(y->dtype);
    for (int64_t k = 0; k < n; k++) memcpy(n_elem(y, k), n_elem(x, k), size);
    for (int64_t k = 0; k < updates; k++) {
        n_index(u, k, o);
        int here = table_index(a, y, ids, o, i);
        if (here < 0) return 1;
        if (here) memcpy(n_at(y, i), n_at(u, o), size);
    }
    return 0;
}

/* ---- examples, one by one ---- */
static KTensor part(const KTensor *t, int64_t i) {
    return (KTensor){t->data + i * t->strides[0], t->dims + 1, t->strides + 1, t->rank - 1,
                     t->dtype};
}

static int each(const KArgs *a, KernelFn *fn) {
    KTake attr = *(const KTake *)a->attr;
    if (!attr.batched) return fn(a);
    attr.batched = 0;
    for (int64_t i = 0; i < a->out[0].dims[0]; i++) {
        KTensor in[3], out = part(&a->out[0], i);
        for (int k = 0; k < a->nin; k++) in[k] = part(&a->in[k], i);
        KArgs one = *a;
        one.in = in;
        one.out = &out;
        one.attr = &attr;
        if (fn(&one)) return 1;
    }
    return 0;
}
K_KERNEL(take_each, each(a, take))
K_KERNEL(scatter_add_each, each(a, scatter_add))
K_KERNEL(scatter_set_each, each(a, scatter_set))

const KernelRow k_rows_index_naive[] = {
    {"take", take_each, NULL, NULL},
    {"scatter_add", scatter_add_each, NULL, scatter_workspace},
    {"scatter_set", scatter_set_each, NULL, NULL},
    {"take_along_axis", take_along, NULL, NULL},
    {"add_along_axis", add_along, NULL, scatter_workspace},
    {NULL, NULL, NULL, NULL},
};
