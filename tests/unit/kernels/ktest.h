/* ktest.h - tensors for kernel tests: random layouts, values, and memory that notices a stray
 * write.
 *
 * A tensor's elements lie somewhere in one block; every other byte of the block is GUARD_BYTE and
 * must stay so. Under AddressSanitizer the block ends where the elements end, so that stray reads
 * are found too.
 */
#ifndef MESHLUA_KTEST_H
#define MESHLUA_KTEST_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "kernel.h"
#include "test.h"

#if defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define KT_ASAN 1
#    endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(KT_ASAN)
/* Cases take ten times as long: a tenth of the random ones. */
enum { GUARD = 0, KT_SHARE = 10 };
#else
enum { GUARD = 192, KT_SHARE = 1 };
#endif
enum { GUARD_BYTE = 0xa5, OTHER_BYTE = 0x5b };

/* ---- random numbers (splitmix64) ------------------------------------------------------------ */
static uint64_t rng_state = 1;

static inline uint64_t rnd(void) {
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static inline int64_t below(int64_t n) { /* 0 <= result < n */
    return (int64_t)(rnd() % (uint64_t)n);
}
static inline double uniform(double lo, double hi) {
    return lo + (hi - lo) * (double)(rnd() >> 11) * 0x1p-53;
}

/* ---- tensors
 * -------------------------------------------------------------------------------------- */
typedef struct Tensor {
    KTensor t;
    int64_t dims[K_MAX_RANK], strides[K_MAX_RANK];
    char *block;
    size_t bytes, offset; /* of the block; of element 0 in it */
} Tensor;

typedef enum Layout { DENSE, LAST_DENSE, ANY, ANY_BROADCAST } Layout;

static inline int64_t kt_size(DType t) {
    return k_dtype_size(t);
}
static inline int kt_is_float(DType t) {
    return k_dtype_is_float(t);
}
static inline int64_t kt_count(const Tensor *x) {
    int64_t n = 1;
    for (int d = 0; d < x->t.rank; d++) n *= x->dims[d];
    return n;
}
/* Address of the row-major position i. */
static inline char *kt_at(const Tensor *x, int64_t i) {
    char *p = x->t.data;
    for (int d = x->t.rank - 1; d >= 0; d--) {
        p += i % x->dims[d] * x->strides[d];
        i /= x->dims[d];
    }
    return p;
}

/* Goes over the elements, row-major: without the divisions of kt_at, and counting them once.
 * for (Walk w = walk_of(&x); w.left; walk_on(&w)) ... w.at */
typedef struct Walk {
    char *at;
    int64_t left, index[K_MAX_RANK];
    const Tensor *x;
} Walk;

static inline Walk walk_of(const Tensor *x) {
    return (Walk){.at = x->t.data, .left = kt_count(x), .x = x};
}
static inline void walk_on(Walk *w) {
    w->left--;
    for (int d = w->x->t.rank - 1; d >= 0; d--) {
        w->at += w->x->strides[d];
        if (++w->index[d] < w->x->dims[d]) return;
        w->at -= w->x->dims[d] * w->x->strides[d];
        w->index[d] = 0;
    }
}

/* The struct holds its own dims and strides, so a copy of it must be told where they are. */
static inline Tensor *kt_fix(Tensor *x) {
    x->t.dims = x->dims;
    x->t.strides = x->strides;
    x->t.data = x->block + x->offset;
    return x;
}

static inline void kt_alloc(Tensor *x) {
    x->block = NULL; /* aligned, as buffers are */
    if (posix_memalign((void **)&x->block, 64, x->bytes ? x->bytes : 1)) abort();
    memset(x->block, GUARD_BYTE, x->bytes);
    kt_fix(x);
}

/* Dims lie in a random order in memory, each maybe reversed, spaced or (inputs only) broadcast. */
static inline Tensor tensor(DType dtype, int rank, const int64_t *dims, Layout layout) {
    Tensor x = {.t = {.rank = rank, .dtype = dtype}};
    int order[K_MAX_RANK];
    int64_t size = kt_size(dtype), step = size, low = 0, high = size;
    for (int d = 0; d < rank; d++) {
        x.dims[d] = dims[d];
        order[d] = rank - 1 - d;
    }
    int fixed = layout == LAST_DENSE ? 1 : 0;
    for (int d = rank - 1; d > fixed && layout != DENSE && rnd() % 2; d--) {
        int o = fixed + (int)below(d + 1 - fixed), t = order[d];
        order[d] = order[o];
        order[o] = t;
    }
    for (int k = 0; k < rank; k++) {
        int d = order[k], free = layout != DENSE && !(layout == LAST_DENSE && d == rank - 1);
        int64_t n = dims[d] > 0 ? dims[d] : 1;
        if (free && rnd() % 4 == 0) step += size * (1 + below(3));
        x.strides[d] = step;
        step *= n;
        if (free && rnd() % 4 == 0) x.strides[d] = -x.strides[d];
        if (layout == ANY_BROADCAST && rnd() % 4 == 0) x.strides[d] = 0;
        *(x.strides[d] < 0 ? &low : &high) += (n - 1) * x.strides[d];
    }
    int64_t shift = layout == DENSE ? 0 : size * below(4);
    x.offset = (size_t)(GUARD + shift - low);
    x.bytes = (size_t)(high - low + shift) + 2 * GUARD;
    kt_alloc(&x);
    return x;
}

/* The same shape and layout in fresh memory, elements unset. */
static inline Tensor kt_like(const Tensor *x) {
    Tensor y = *x;
    kt_alloc(&y);
    return y;
}

#endif
