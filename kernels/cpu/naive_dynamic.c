/* naive_dynamic.c - dynamic_slice and dynamic_update_slice. */
#include "naive.h"

/* Start d less the offset: where a part of `part`'s dims begins in x. */
static int64_t place_of(const KArgs *a, const KTensor *starts, const KTensor *part, int64_t d) {
    int64_t s = n_get_int(starts, n_at(starts, &d));
    int64_t size = ((const KDynamic *)a->attr)->size[d], last = size - part->dims[d];
    if (s < 0) s += size;
    return (s < 0 ? 0 : s > last ? last : s) - a->offsets[d];
}

static int dynamic_slice(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    int64_t n = n_count(y), i[K_MAX_RANK], from[K_MAX_RANK];
    for (int64_t k = 0; k < n; k++) {
        int inside = 1;
        n_index(y, k, i);
        for (int d = 0; d < y->rank; d++) {
            from[d] = i[d] + place_of(a, &a->in[1], y, d);
            inside = inside && from[d] >= 0 && from[d] < x->dims[d];
        }
        if (inside)
            memcpy(n_at(y, i), n_at(x, from), (size_t)n_size(y->dtype));
        else
            memset(n_at(y, i), 0, (size_t)n_size(y->dtype));
    }
    return 0;
}

static int dynamic_update_slice(const KArgs *a) {
    const KTensor *x = &a->in[0], *update = &a->in[1], *y = &a->out[0];
    int64_t n = n_count(y), i[K_MAX_RANK], from[K_MAX_RANK];
    for (int64_t k = 0; k < n; k++) {
        int inside = 1;
        n_index(y, k, i);
        for (int d = 0; d < y->rank; d++) {
            from[d] = i[d] - place_of(a, &a->in[2], update, d);
            inside = inside && from[d] >= 0 && from[d] < update->dims[d];
        }
        memcpy(n_at(y, i), inside ? n_at(update, from) : n_at(x, i), (size_t)n_size(y->dtype));
    }
    return 0;
}

const KernelRow k_rows_dynamic_naive[] = {
    {"dynamic_slice", dynamic_slice, NULL, NULL},
    {"dynamic_update_slice", dynamic_update_slice, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
