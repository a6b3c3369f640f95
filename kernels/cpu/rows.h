/* rows.h - kernels that work along the last dim, one row at a time.
 *
 * A row of any dtype and stride is seen as a contiguous run of its register type: the memory itself
 * where it is one, else a buffer in the workspace. */
#ifndef MESHLUA_CPU_ROWS_H
#define MESHLUA_CPU_ROWS_H

#include "convert.h"
#include "view.h"

enum { K_UNIT_ELEMENTS = 8192 }; /* of a unit of rows, about */

typedef struct KLine {
    DType dtype;
    int direct; /* the memory itself serves */
    int64_t stride, n;
    void *buf;
} KLine;

static inline int64_t k_line_bytes(int64_t n) {
    return (n * 8 + 63) & ~(int64_t)63;
}
/* The last dim of t; takes its buffer from *workspace. */
static inline KLine k_line(const KTensor *t, char **workspace) {
    KLine l = {t->dtype, 0, t->strides[t->rank - 1], t->dims[t->rank - 1], *workspace};
    l.direct = k_dtype_native(l.dtype) && (l.stride == k_dtype_size(l.dtype) || l.n == 1);
    *workspace += k_line_bytes(l.n);
    return l;
}
static inline const void *k_line_in(const KLine *l, const char *at) {
    if (l->direct) return at;
    k_load_fn(l->dtype)(l->buf, at, l->stride, l->n);
    return l->buf;
}
static inline void *k_line_out(const KLine *l, char *at) {
    return l->direct ? at : l->buf;
}
static inline void k_line_done(const KLine *l, char *at) {
    if (!l->direct) k_store_fn(l->dtype)(at, l->stride, l->buf, l->n);
}

typedef union KReal { /* one element in its register type */
    float f;
    double d;
} KReal;

static inline void k_get(DType t, const char *at, KReal *value) {
    if (t == DT_F32)
        memcpy(value, at, sizeof value->f);
    else
        k_load_fn(t)(value, at, 0, 1);
}
static inline void k_put(DType t, char *at, const void *value) {
    if (t == DT_F32)
        memcpy(at, value, sizeof(float));
    else
        k_store_fn(t)(at, 0, value, 1);
}

/* Rows of a unit: a fixed amount of work, whatever the row's length. */
static inline int64_t k_unit_rows(const KTensor *t) {
    return k_max(1, K_UNIT_ELEMENTS / k_max(1, t->dims[t->rank - 1]));
}
static inline int64_t k_row_count(const KTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank - 1; d++) n *= t->dims[d];
    return n;
}
static inline int64_t k_row_units(const KTensor *t) {
    return k_ceil_div(k_row_count(t), k_unit_rows(t));
}

#endif
