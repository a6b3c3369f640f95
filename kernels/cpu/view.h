/* view.h - walking several strided operands together.
 *
 * A walk has the dims that its operands share, outermost first, and one byte stride per operand and
 * dim. Collapsing merges neighbouring dims that every operand lays out as one, and drops dims of
 * size 1; it changes no address, so a contiguous walk of any rank becomes one of rank 1 or 0. */
#ifndef MESHLUA_CPU_VIEW_H
#define MESHLUA_CPU_VIEW_H

#include "level.h"

enum { K_WALK_OPERANDS = 8 };

/* Sorts dims so that operand 0's strides fall; equal ones keep their order. */
static inline void k_sort_dims(int rank, int64_t *dims, int count, int64_t (*strides)[K_MAX_RANK]) {
    for (int i = 1; i < rank; i++)
        for (int d = i; d > 0; d--) {
            int64_t a = strides[0][d - 1], b = strides[0][d];
            if ((a < 0 ? -a : a) >= (b < 0 ? -b : b)) break;
            for (int k = -1; k < count; k++) {
                int64_t *s = k < 0 ? dims : strides[k], t = s[d];
                s[d] = s[d - 1];
                s[d - 1] = t;
            }
        }
}

typedef struct KWalk {
    int32_t rank, count; /* dims; operands */
    int64_t dims[K_MAX_RANK], index[K_MAX_RANK];
    int64_t strides[K_WALK_OPERANDS][K_MAX_RANK];
    char *at[K_WALK_OPERANDS]; /* each operand's address at `index` */
} KWalk;

/* Merges dims in place and returns the new rank; strides[k] is operand k's. */
static inline int k_collapse(int rank, int64_t *dims, int count, int64_t (*strides)[K_MAX_RANK]) {
    int to = 0;
    for (int d = 0; d < rank; d++) {
        if (dims[d] == 1) continue;
        int merge = to > 0;
        for (int k = 0; merge && k < count; k++)
            merge = strides[k][to - 1] == strides[k][d] * dims[d];
        if (!merge) {
            dims[to] = dims[d];
            for (int k = 0; k < count; k++) strides[k][to] = strides[k][d];
            to++;
        } else {
            dims[to - 1] *= dims[d];
            for (int k = 0; k < count; k++) strides[k][to - 1] = strides[k][d];
        }
    }
    return to;
}

/* Starts a walk over the first `rank` dims of t's shape. */
static inline void k_walk_begin(KWalk *w, const KTensor *t, int rank) {
    w->rank = rank;
    w->count = 0;
    for (int d = 0; d < rank; d++) w->dims[d] = t->dims[d];
}
/* Adds an operand that has (at least) these dims. */
static inline void k_walk_add(KWalk *w, const KTensor *t) {
    w->at[w->count] = t->data;
    for (int d = 0; d < w->rank; d++) w->strides[w->count][d] = t->strides[d];
    w->count++;
}
/* A walk over the first `rank` dims of t[0]'s shape, with n operands. */
static inline void k_walk_over(KWalk *w, int rank, const KTensor *const *t, int n) {
    k_walk_begin(w, t[0], rank);
    for (int k = 0; k < n; k++) k_walk_add(w, t[k]);
}
static inline int64_t k_walk_size(const KWalk *w) {
    int64_t n = 1;
    for (int d = 0; d < w->rank; d++) n *= w->dims[d];
    return n;
}
/* Collapses and moves to the row-major position i. Called once, with the operands at position 0. */
static inline void k_walk_start(KWalk *w, int64_t i) {
    w->rank = k_collapse(w->rank, w->dims, w->count, w->strides);
    for (int d = w->rank - 1; d >= 0; d--) {
        w->index[d] = i % w->dims[d];
        i /= w->dims[d];
        for (int k = 0; k < w->count; k++) w->at[k] += w->index[d] * w->strides[k][d];
    }
}
/* Moves `step` positions on inside the last dim, which must not be left but at its end; there the
 * walk goes on to the next of the outer dims. */
static inline void k_walk_advance(KWalk *w, int64_t step) {
    int d = w->rank - 1;
    if (d < 0) return;
    w->index[d] += step;
    for (int k = 0; k < w->count; k++) w->at[k] += step * w->strides[k][d];
    for (; d > 0 && w->index[d] == w->dims[d]; d--) {
        w->index[d] = 0;
        w->index[d - 1]++;
        for (int k = 0; k < w->count; k++)
            w->at[k] += w->strides[k][d - 1] - w->dims[d] * w->strides[k][d];
    }
}
/* Positions left in the last dim. */
static inline int64_t k_walk_run(const KWalk *w) {
    return w->rank ? w->dims[w->rank - 1] - w->index[w->rank - 1] : 1;
}
static inline int64_t k_walk_stride(const KWalk *w, int operand) {
    return w->rank ? w->strides[operand][w->rank - 1] : 0;
}

/* Byte offset of row-major position i. */
static inline int64_t k_offset(int rank, const int64_t *dims, const int64_t *strides, int64_t i) {
    int64_t offset = 0;
    for (int d = rank - 1; d > 0; d--) {
        offset += i % dims[d] * strides[d];
        i /= dims[d];
    }
    return rank > 0 ? offset + i * strides[0] : 0;
}

#endif
