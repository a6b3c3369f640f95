/* lanes.h - sums and maxima of a contiguous run of float or double, the same bits on every level,
 * and the mathematics that code for both types is written in (real.h).
 *
 * Element i goes to lane i % K_LANES; the lanes are then combined in halves. A compiler may put the
 * lanes in vectors of any width.
 */
#ifndef MESHLUA_CPU_LANES_H
#define MESHLUA_CPU_LANES_H

#include <math.h>
#include "vmath.h"

K_INLINE float fma_f32(float x, float y, float z) {
    return k_fma(x, y, z);
}
K_INLINE float exp_f32(float x) {
    return vm_exp(x);
}
K_INLINE float log_f32(float x) {
    return vm_log(x);
}
K_INLINE float sqrt_f32(float x) {
    return sqrtf(x);
}
#define fma_f64  fma
#define exp_f64  exp
#define log_f64  log
#define sqrt_f64 sqrt

/* step: how lane l takes in element i; join: how it takes in lane m */
#define K_LANE_LOOP(T, init, n, step, join)                                                        \
    T lane[K_LANES];                                                                               \
    int64_t i_ = 0;                                                                                \
    for (int j = 0; j < K_LANES; j++) lane[j] = init;                                              \
    for (; i_ + K_LANES <= n; i_ += K_LANES)                                                       \
        for (int j = 0; j < K_LANES; j++) {                                                        \
            int64_t i = i_ + j;                                                                    \
            T l = lane[j];                                                                         \
            lane[j] = step;                                                                        \
        }                                                                                          \
    for (int j = 0; j < n - i_; j++) {                                                             \
        int64_t i = i_ + j;                                                                        \
        T l = lane[j];                                                                             \
        lane[j] = step;                                                                            \
    }                                                                                              \
    for (int w = K_LANES / 2; w; w /= 2)                                                           \
        for (int j = 0; j < w; j++) {                                                              \
            T l = lane[j], m = lane[j + w];                                                        \
            lane[j] = join;                                                                        \
        }                                                                                          \
    return lane[0];

/* max: a NaN is passed over; peak, dip: a NaN wins; sumsq: sum of (x - c)^2; sumexp: of e^(x - c)
 */
#define K_LANE_FUNCTIONS(t, T)                                                                     \
    static inline T sum_##t(const T *x, int64_t n) {                                               \
        K_LANE_LOOP(T, 0, n, l + x[i], l + m)                                                      \
    }                                                                                              \
    static inline T dot_##t(const T *x, const T *y, int64_t n) {                                   \
        K_LANE_LOOP(T, 0, n, fma_##t(x[i], y[i], l), l + m)                                        \
    }                                                                                              \
    static inline T sumsq_##t(const T *x, T c, int64_t n) {                                        \
        K_LANE_LOOP(T, 0, n, fma_##t(x[i] - c, x[i] - c, l), l + m)                                \
    }                                                                                              \
    static inline T max_lanes_##t(const T *x, int64_t n) {                                         \
        K_LANE_LOOP(T, -INFINITY, n, x[i] > l ? x[i] : l, m > l ? m : l)                           \
    }                                                                                              \
    static inline T max_##t(const T *x, int64_t n) {                                               \
        if (n > K_LANES && n % K_LANES) { /* some count twice */                                   \
            T last = max_lanes_##t(x + n - K_LANES, K_LANES);                                      \
            T rest = max_lanes_##t(x, n & ~(int64_t)(K_LANES - 1));                                \
            return last > rest ? last : rest;                                                      \
        }                                                                                          \
        return max_lanes_##t(x, n);                                                                \
    }                                                                                              \
    static inline T peak_##t(const T *x, int64_t n) {                                              \
        K_LANE_LOOP(T, -INFINITY, n, ((x[i] > l) | (x[i] != x[i])) ? x[i] : l,                     \
                    ((m > l) | (m != m)) ? m : l)                                                  \
    }                                                                                              \
    static inline T dip_##t(const T *x, int64_t n) {                                               \
        K_LANE_LOOP(T, INFINITY, n, ((x[i] < l) | (x[i] != x[i])) ? x[i] : l,                      \
                    ((m < l) | (m != m)) ? m : l)                                                  \
    }

K_LANE_FUNCTIONS(f32, float)
K_LANE_FUNCTIONS(f64, double)

/* The exponential is dear one element at a time, so the last elements of a run go through a whole
 * block of 16 too. exp_row: y[i] = e^(x[i] - c), y may be x. sumexp: the sum of those. */
#define K_EXP_FUNCTIONS(t, T)                                                                      \
    static inline void exp_block_##t(const T *x, T c, T *y, int64_t n) {                           \
        K_IVDEP for (int64_t i = 0; i < n; i++) y[i] = exp_##t(x[i] - c);                          \
    }                                                                                              \
    static inline void exp_row_##t(const T *x, T c, T *y, int64_t n) {                             \
        int64_t whole = n & ~(int64_t)15, last = n < 16 ? n : 16;                                  \
        T rest[16] = {0};                                                                          \
        if (n < 16) memcpy(rest, x, (size_t)n * sizeof(T));                                        \
        /* the last block first: the loop may overwrite what it reads */                           \
        if (whole != n) exp_block_##t(n < 16 ? rest : x + n - 16, c, rest, 16);                    \
        exp_block_##t(x, c, y, whole);                                                             \
        if (whole != n) memcpy(y + n - last, rest, (size_t)last * sizeof(T));                      \
    }                                                                                              \
    static inline T sumexp_##t(const T *x, T c, int64_t n) {                                       \
        T lane[K_LANES] = {0};                                                                     \
        int64_t i = 0;                                                                             \
        for (; i + K_LANES <= n; i += K_LANES)                                                     \
            for (int j = 0; j < K_LANES; j++) lane[j] += exp_##t(x[i + j] - c);                    \
        for (; i + 16 <= n; i += 16)                                                               \
            for (int j = 0; j < 16; j++) lane[j] += exp_##t(x[i + j] - c);                         \
        if (n < 16) {                                                                              \
            T rest[16] = {0};                                                                      \
            exp_row_##t(x, c, rest, n);                                                            \
            for (int j = 0; j < 16; j++) lane[j] += rest[j];                                       \
        } else if (i < n) { /* the last 16, of which the first are counted already */              \
            for (int j = 0; j < 16; j++) {                                                         \
                T e = exp_##t(x[n - 16 + j] - c);                                                  \
                lane[16 + j] += n - 16 + j >= i ? e : 0;                                           \
            }                                                                                      \
        }                                                                                          \
        return sum_##t(lane, K_LANES);                                                             \
    }

K_EXP_FUNCTIONS(f32, float)
K_EXP_FUNCTIONS(f64, double)

#endif
