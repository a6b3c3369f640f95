/* dynamic.c - dynamic_slice and dynamic_update_slice (kernel.h). Any strides.
 *
 * Both put one tensor into y at a place (which may be partly or wholly outside) and something else
 * around it. A unit is a block of rows: runs along the last dim of y. An update in x's own buffer
 * touches only the rows that it changes. */
#include "convert.h"
#include "rows.h"

static const uint64_t zero = 0; /* an element of any dtype */

/* A row of t: its length and the bytes between its elements. A scalar is a row of one. */
static int64_t row_length(const KTensor *t) {
    return t->rank ? t->dims[t->rank - 1] : 1;
}
static int64_t row_stride(const KTensor *t) {
    return t->rank ? t->strides[t->rank - 1] : 0;
}
static int64_t rows_of(const KTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank - 1; d++) n *= t->dims[d];
    return n;
}
static int64_t unit_rows(const KTensor *t) {
    return k_max(1, K_UNIT_ELEMENTS / k_max(1, row_length(t)));
}
static int64_t y_units(const KArgs *a) {
    const KTensor *y = &a->out[0];
    return row_length(y) ? k_ceil_div(rows_of(y), unit_rows(y)) : 0;
}

/* Where in `from` y's row number `row` begins, or NULL if it is outside; `low`: the place of
 * from's first element in y along each dim. */
static const char *row_in(const KTensor *from, const int64_t *low, const KTensor *y, int64_t row) {
    const char *at = from->data;
    for (int d = y->rank - 2; d >= 0; d--) {
        int64_t i = row % y->dims[d] - low[d];
        if (i < 0 || i >= from->dims[d]) return NULL;
        at += i * from->strides[d];
        row /= y->dims[d];
    }
    return at;
}

/* y = `from` at `low`, around it x (zeros if NULL). */
static void put(const KArgs *a, const KTensor *x, const KTensor *from, const int64_t *low) {
    const KTensor *y = &a->out[0];
    int64_t per_unit = unit_rows(y), end = k_min(a->hi * per_unit, rows_of(y));
    int64_t size = k_dtype_size(y->dtype), length = row_length(y), ys = row_stride(y);
    int64_t begin = low[y->rank ? y->rank - 1 : 0], first = k_max(begin, 0);
    int64_t n = k_min(begin + row_length(from), length) - first;
    for (int64_t row = a->lo * per_unit; row < end; row++) {
        char *to = y->data + k_offset(y->rank - 1, y->dims, y->strides, row);
        const char *inner = n > 0 ? row_in(from, low, y, row) : NULL;
        int covered = inner && n == length;
        if (!covered && !x)
            k_copy_run(size, to, ys, (const char *)&zero, 0, length);
        else if (!covered && x->data != y->data)
            k_copy_run(size, to, ys, x->data + k_offset(y->rank - 1, y->dims, x->strides, row),
                       row_stride(x), length);
        if (inner)
            k_copy_run(size, to + first * ys, ys, inner + (first - begin) * row_stride(from),
                       row_stride(from), n);
    }
}

/* Start d less the offset: where a part of `part`'s dims begins in x. */
static int64_t place_of(const KArgs *a, const KTensor *starts, const KTensor *part, int d) {
    int64_t size = ((const KDynamic *)a->attr)->size[d], last = size - part->dims[d];
    int64_t s = *(const int32_t *)(const void *)(starts->data + d * starts->strides[0]);
    return k_min(k_max(s < 0 ? s + size : s, 0), last) - (a->offsets ? a->offsets[d] : 0);
}

static int dynamic_slice(const KArgs *a) {
    int64_t low[K_MAX_RANK] = {0};
    for (int d = 0; d < a->out[0].rank; d++) low[d] = -place_of(a, &a->in[1], &a->out[0], d);
    put(a, NULL, &a->in[0], low);
    return 0;
}

static int dynamic_update_slice(const KArgs *a) {
    int64_t low[K_MAX_RANK] = {0};
    for (int d = 0; d < a->out[0].rank; d++) low[d] = place_of(a, &a->in[2], &a->in[1], d);
    put(a, &a->in[0], &a->in[1], low);
    return 0;
}

K_ROWS(dynamic) = {
    {"dynamic_slice", dynamic_slice, y_units, NULL},
    {"dynamic_update_slice", dynamic_update_slice, y_units, NULL},
    {NULL, NULL, NULL, NULL},
};
