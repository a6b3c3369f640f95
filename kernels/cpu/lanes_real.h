/* lanes_real.h - the folds of lanes.h in one type (real.h). */

/* The elements of all lanes in one; pair: how vector l takes in m, whichever of them is which. */
#define ACROSS(name, pair)                                                                         \
    K_INLINE R(Vec) R(name##_pair)(R(Vec) l, R(Vec) m) {                                           \
        return pair;                                                                               \
    }                                                                                              \
    K_INLINE REAL R(name##_lanes)(const R(Vec) * lanes) {                                          \
        R(Vec)                                                                                     \
        l = R(name##_pair)(R(name##_pair)(lanes[0], lanes[2]),                                     \
                           R(name##_pair)(lanes[1], lanes[3]));                                    \
        l = R(name##_pair)(l, R(turn_half)(l));                                                    \
        if (R(VEC) > 8) l = R(name##_pair)(l, R(turn_4)(l));                                       \
        l = R(name##_pair)(l, R(turn_2)(l));                                                       \
        return R(name##_pair)(l, R(turn_1)(l))[0];                                                 \
    }
ACROSS(sum, l + m)
ACROSS(max, R(vmax)(m, l))                                 /* a NaN in m is passed over */
ACROSS(peak, R(pick)((R(Bits))((m > l) | (m != m)), m, l)) /* in peak and dip a NaN wins */
ACROSS(dip, R(pick)((R(Bits))((m < l) | (m != m)), m, l))
#undef ACROSS

#define RUN(name, init, step)                                                                      \
    {                                                                                              \
        R(Vec) lanes[K_LANES];                                                                     \
        for (int j = 0; j < K_LANES; j++) lanes[j] = R(all)(init);                                 \
        K_EACH_VEC(n, K_FOLD(lanes, step))                                                         \
        return R(name##_lanes)(lanes);                                                             \
    }
static inline REAL R(sum)(const REAL *x, int64_t n) {
    RUN(sum, 0, l + K_AT(x))
}
static inline void R(sum_in_lanes)(const REAL *x, int64_t n, R(Vec) * to) {
    R(Vec) lanes[K_LANES] = {{0}};
    K_EACH_VEC(n, K_FOLD(lanes, l + K_AT(x)))
    for (int j = 0; j < K_LANES; j++) to[j] = lanes[j];
}
static inline REAL R(max)(const REAL *x, int64_t n) {
    RUN(max, -INFINITY, R(max_pair)(l, K_AT(x)))
}
static inline REAL R(peak)(const REAL *x, int64_t n) {
    RUN(peak, -INFINITY, R(peak_pair)(l, K_AT(x)))
}
static inline REAL R(dip)(const REAL *x, int64_t n) {
    RUN(dip, INFINITY, R(dip_pair)(l, K_AT(x)))
}
static inline REAL R(dot)(const REAL *x, const REAL *y, int64_t n) {
    RUN(sum, 0, R(vfma)(K_AT(x), K_AT(y), l))
}
/* of (x - c)^2 */
static inline REAL R(sumsq)(const REAL *x, REAL c, int64_t n) {
    RUN(sum, 0, R(vfma)(K_AT(x) - c, K_AT(x) - c, l))
}
/* of e^(x - c) */
static inline REAL R(sumexp)(const REAL *x, REAL c, int64_t n) {
    RUN(sum, 0, l + R(vexp)(K_AT(x) - c))
}
#undef RUN

/* y[i] = e^(x[i] - c); y may be x */
static inline void R(exp_block)(const REAL *x, REAL c, REAL *y, int64_t n) {
    K_EACH_VEC(n, K_PUT(y, R(vexp)(K_AT(x) - c)))
}
