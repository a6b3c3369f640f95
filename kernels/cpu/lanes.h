/* lanes.h - folds over a contiguous run of float or double, the same bits on every level, and the
 * mathematics that code for both types is written in (real.h).
 *
 * Vector k of the run goes to lane k % K_LANES, which is a vector too. The lanes are then combined
 * in halves, and so are the elements of the one that is left. */
#ifndef MESHLUA_CPU_LANES_H
#define MESHLUA_CPU_LANES_H

#include "vec.h"

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

enum { K_LANES = 4 }; /* enough to hide how long an addition takes */

/* ---- for code in one type (real.h) ---- */

/* Runs the code for each vector of 0 .. n - 1, where it sees i, the vector's first element, its
 * lane, and how many elements are left: a compiler knows that there is a whole vector of them in
 * all but the last. */
#define K_EACH_VEC(n, ...)                                                                         \
    for (int64_t i_ = 0; i_ < (n); i_ += K_LANES * R(VEC)) {                                       \
        if (i_ + K_LANES * R(VEC) <= (n)) {                                                        \
            K_EACH_LANE(R(VEC), __VA_ARGS__)                                                       \
        } else {                                                                                   \
            K_EACH_LANE((n)-i, __VA_ARGS__)                                                        \
        }                                                                                          \
    }
#define K_EACH_LANE(left_, ...)                                                                    \
    _Pragma("GCC unroll 4") for (int lane = 0; lane < K_LANES; lane++) {                           \
        const int64_t i = i_ + lane * R(VEC), left = left_;                                        \
        if (left > 0) {                                                                            \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    }
/* There: the vector of run p, with zeros for what is not left; the same written to p. */
#define K_AT(p)     (left >= R(VEC) ? R(load)((p) + i) : R(load_part)((p) + i, left))
#define K_PUT(p, v) (left >= R(VEC) ? R(put)((p) + i, v) : R(put_part)((p) + i, v, left))
/* Writes v, an expression of vectors K_AT, to all of p; past the caches if asked to. */
#define K_WRITE(n, p, v, past)                                                                     \
    if (past) {                                                                                    \
        const int64_t left = R(VEC);                                                               \
        for (int64_t i = 0; i < (n); i += left) R(stream)((p) + i, v);                             \
    } else {                                                                                       \
        K_EACH_VEC(n, K_PUT(p, v))                                                                 \
    }
/* lanes[lane] = step, an expression of l, what it was; nothing is done for what is not left. */
#define K_FOLD(lanes, step)                                                                        \
    do {                                                                                           \
        const R(Vec) l = (lanes)[lane], folded = step;                                             \
        (lanes)[lane] = left >= R(VEC) ? folded : R(head)(left, folded, l);                        \
    } while (0)

#define REAL_CODE "lanes_real.h"
#include "real.h"

#endif
