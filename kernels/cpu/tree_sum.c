/* tree_sum.c - the sum of the same tensor of several devices (kernel.h): one pass over all inputs.
 *
 * The inputs lie alike, so one walk serves them all: an input's element is as far from its first
 * as that of the first input. */
#include "rows.h"
#include "vec.h"
#include "view.h"

enum {
    UNIT = 4096,
    AHEAD = 512,     /* bytes: more streams than the processor follows by itself */
    STREAM = 1 << 22 /* elements of all inputs: so many leave no room for the result in a cache */
};

/* The sum of elements at byte `i` of n inputs: of the largest power of 2 of them below n, plus that
 * of the rest. */
#define TREE(name, T, load)                                                                        \
    static T name##_any(const KTensor *in, int n, int64_t i) {                                     \
        if (n == 1) return load(in[0].data + i);                                                   \
        int half = 1;                                                                              \
        while (half * 2 < n) half *= 2;                                                            \
        return name##_any(in, half, i) + name##_any(in + half, n - half, i);                       \
    }                                                                                              \
    K_INLINE T name(const KTensor *in, int n, int64_t i) {                                         \
        T a = load(in[0].data + i);                                                                \
        if (n == 1) return a;                                                                      \
        if (n != 2 && n != 4 && n != 8) return name##_any(in, n, i);                               \
        a = a + load(in[1].data + i);                                                              \
        if (n == 2) return a;                                                                      \
        a = a + (load(in[2].data + i) + load(in[3].data + i));                                     \
        if (n == 4) return a;                                                                      \
        T b = load(in[4].data + i) + load(in[5].data + i);                                         \
        return a + (b + (load(in[6].data + i) + load(in[7].data + i)));                            \
    }
K_INLINE float load_one(const char *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}
K_INLINE Vec_f32 load_vec(const char *p) {
    return load_f32((const float *)(const void *)p);
}
TREE(tree_one, float, load_one)
TREE(tree_vec, Vec_f32, load_vec)

/* `count` elements from byte `i` of the inputs on; n is known where it is called. */
K_INLINE void sum_run(const KTensor *in, int n, int64_t i, float *to, int64_t count, int streams) {
    int64_t k = 0;
    if (streams) {
        for (; k < count && (uintptr_t)(to + k) % sizeof(Vec_f32); k++)
            to[k] = tree_one(in, n, i + k * 4);
        for (; k + VEC_f32 <= count; k += VEC_f32) {
            for (int m = 0; m < n; m++) __builtin_prefetch(in[m].data + i + k * 4 + AHEAD);
            stream_f32(to + k, tree_vec(in, n, i + k * 4));
        }
    }
    for (; k + VEC_f32 <= count; k += VEC_f32) put_f32(to + k, tree_vec(in, n, i + k * 4));
    for (; k < count; k++) to[k] = tree_one(in, n, i + k * 4);
}

static void sum_dense(const KTensor *in, int n, int64_t i, float *to, int64_t count, int streams) {
    switch (n) {
    case 2: sum_run(in, 2, i, to, count, streams); break;
    case 4: sum_run(in, 4, i, to, count, streams); break;
    case 8: sum_run(in, 8, i, to, count, streams); break;
    default: sum_run(in, n, i, to, count, streams);
    }
}

static int64_t tree_sum_units(const KArgs *a) {
    return k_ceil_div(k_count(&a->out[0]), UNIT);
}

static int tree_sum(const KArgs *a) {
    const KTensor *in = a->in, *y = &a->out[0];
    int64_t count = k_count(y), i = a->lo * UNIT, end = k_min(a->hi * UNIT, count), n;
    int streams = count >= STREAM / a->nin;
    if (i >= end) return 0;
    KWalk w;
    k_walk_begin(&w, y, y->rank);
    k_walk_add(&w, &in[0]);
    k_walk_add(&w, y);
    for (k_walk_start(&w, i); i < end; i += n, k_walk_advance(&w, n)) {
        n = k_min(end - i, k_walk_run(&w));
        int64_t from = w.at[0] - in[0].data, step = k_walk_stride(&w, 0);
        int64_t to_step = k_walk_stride(&w, 1);
        if ((step == 4 && to_step == 4) || n == 1) {
            sum_dense(in, a->nin, from, (float *)(void *)w.at[1], n, streams);
            continue;
        }
        for (int64_t k = 0; k < n; k++) {
            float x = tree_one(in, a->nin, from + k * step);
            memcpy(w.at[1] + k * to_step, &x, sizeof x);
        }
    }
    if (streams) stream_end();
    return 0;
}

K_ROWS(tree_sum) = {
    {"tree_sum", tree_sum, tree_sum_units, NULL},
    {NULL, NULL, NULL, NULL},
};
