/* instr.c - the register instructions (instr.h): one loop per operation and type. */
#include "instr.h"
#include "convert.h"
#include "threefry.h"
#include "vmath.h"
#include "vpow.h"
#include "vspecial.h"

/* n is a multiple of K_STEP; saying so spares every loop its tail. */
#define SCALAR_LOOP                                                                                \
    n &= ~(int64_t)(K_STEP - 1);                                                                   \
    for (int64_t i = 0; i < n; i++)
#define LOOP                                                                                       \
    n &= ~(int64_t)(K_STEP - 1);                                                                   \
    K_IVDEP for (int64_t i = 0; i < n; i++)

/* loop: LOOP where a vector of elements is computed at once, SCALAR_LOOP where one calls a library
 * or divides integers. */
#define UNARY_(loop, name, T, R, expr)                                                             \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        R *dst = (R *)dst_;                                                                        \
        const T *a = (const T *)src[0];                                                            \
        loop {                                                                                     \
            T x = a[i];                                                                            \
            dst[i] = expr;                                                                         \
        }                                                                                          \
    }
#define BINARY_(loop, name, T, R, expr)                                                            \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        R *dst = (R *)dst_;                                                                        \
        const T *a = (const T *)src[0], *b = (const T *)src[1];                                    \
        loop {                                                                                     \
            T x = a[i], y = b[i];                                                                  \
            dst[i] = expr;                                                                         \
        }                                                                                          \
    }
#define UNARY(name, T, R, expr)         UNARY_(LOOP, name, T, R, expr)
#define BINARY(name, T, R, expr)        BINARY_(LOOP, name, T, R, expr)
#define UNARY_SCALAR(name, T, R, expr)  UNARY_(SCALAR_LOOP, name, T, R, expr)
#define BINARY_SCALAR(name, T, R, expr) BINARY_(SCALAR_LOOP, name, T, R, expr)
#define SELECT(name, T)                                                                            \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        T *dst = (T *)dst_;                                                                        \
        const int32_t *a = (const int32_t *)src[0];                                                \
        const T *b = (const T *)src[1], *c = (const T *)src[2];                                    \
        LOOP {                                                                                     \
            T x = b[i], y = c[i];                                                                  \
            dst[i] = a[i] ? x : y;                                                                 \
        }                                                                                          \
    }
#define FMA(name, T, fma)                                                                          \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        T *dst = (T *)dst_;                                                                        \
        const T *a = (const T *)src[0], *b = (const T *)src[1], *c = (const T *)src[2];            \
        LOOP dst[i] = fma(a[i], b[i], c[i]);                                                       \
    }
/* x^e by repeated squaring, the same e >= 0 for all elements */
#define INT_POW(name, T, U)                                                                        \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        T *dst = (T *)dst_;                                                                        \
        const T *a = (const T *)src[0];                                                            \
        int64_t exponent = ((const KImm *)src[1])->i;                                              \
        for (int64_t i = 0; i < n; i += K_STEP) {                                                  \
            U base[K_STEP], r[K_STEP];                                                             \
            for (int j = 0; j < K_STEP; j++) base[j] = (U)a[i + j], r[j] = 1;                      \
            for (int64_t e = exponent; e > 0; e >>= 1) {                                           \
                if (e & 1)                                                                         \
                    for (int j = 0; j < K_STEP; j++) r[j] *= base[j];                              \
                for (int j = 0; j < K_STEP; j++) base[j] *= base[j];                               \
            }                                                                                      \
            for (int j = 0; j < K_STEP; j++) dst[i + j] = (T)r[j];                                 \
        }                                                                                          \
    }
#define COMPARE(t, T)                                                                              \
    BINARY(eq_##t, T, int32_t, x == y)                                                             \
    BINARY(ne_##t, T, int32_t, x != y)                                                             \
    BINARY(lt_##t, T, int32_t, x < y)                                                              \
    BINARY(le_##t, T, int32_t, x <= y)                                                             \
    BINARY(gt_##t, T, int32_t, x > y)                                                              \
    BINARY(ge_##t, T, int32_t, x >= y)                                                             \
    SELECT(select_##t, T)

/* ---- floats --------------------------------------------------------------------------------- */
#define FLOAT(t, T, fma)                                                                           \
    UNARY(neg_##t, T, T, -x)                                                                       \
    UNARY(square_##t, T, T, x *x)                                                                  \
    UNARY(cube_##t, T, T, x *(x * x))                                                              \
    UNARY(sign_##t, T, T, x > 0 ? (T)1 : x < 0 ? (T)-1 : x)                                        \
    BINARY(add_##t, T, T, x + y)                                                                   \
    BINARY(sub_##t, T, T, x - y)                                                                   \
    BINARY(mul_##t, T, T, x *y)                                                                    \
    BINARY(div_##t, T, T, x / y)                                                                   \
    BINARY(max_##t, T, T, x != x ? x : x > y ? x : y)                                              \
    BINARY(min_##t, T, T, x != x ? x : x < y ? x : y)                                              \
    FMA(fma_##t, T, fma)                                                                           \
    INT_POW(int_pow_##t, T, T)                                                                     \
    COMPARE(t, T)
FLOAT(f32, float, k_fma)
FLOAT(f64, double, fma)

/* lgamma itself writes to a variable that all threads share. */
static double lgamma_of(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

/* Derivative n + 1 of log gamma at x > 0, for a whole n: -(-1)^n n! times the sum of
 * 1 / (x + k)^(n + 1) over all k >= 0; term by term up to where Euler's and Maclaurin's formula is
 * exact. */
static double polygamma_right(double n, double x) {
    const double c[] = {1.0 / 12,           -1.0 / 720,     1.0 / 30240,
                        -1.0 / 1209600,     1.0 / 47900160, -691.0 / 1.307674368e12,
                        1.0 / 74724249600.0};
    double s = n + 1, sum = 0, end = n < 100 ? 16 + n : 116;
    for (; x < end; x += 1) sum += pow(x, -s);
    double p = pow(x, -n), t = p / (x * x) * s;
    sum += (n == 0 ? -log(x) : p / n) + p / (2 * x);
    for (int k = 0; k < 7; k++) {
        sum += c[k] * t;
        t *= (s + 2 * k + 1) * (s + 2 * k + 2) / (x * x);
    }
    return (fmod(n, 2) == 0 ? -1 : 1) * tgamma(s) * sum;
}
/* Left of 0 by the function's values at x - floor(x), and at the mirror images of both. */
static double polygamma_of(double n, double x) {
    if (!(n >= 0) || n != floor(n)) return NAN;
    if (!(x <= 0)) return polygamma_right(n, x);
    double f = x - floor(x), sign = fmod(n, 2) == 0 ? 1 : -1;
    if (x == floor(x)) return sign < 0 ? INFINITY : NAN;
    return polygamma_right(n, f) + sign * (polygamma_right(n, 1 - x) - polygamma_right(n, 1 - f));
}

UNARY(abs_f32, float, float, vm_abs(x))
UNARY(exp_f32, float, float, vm_exp(x))
UNARY(log_f32, float, float, vm_log(x))
UNARY(log1p_f32, float, float, vm_log1p(x))
UNARY(expm1_f32, float, float, vm_expm1(x))
UNARY(tanh_f32, float, float, vm_tanh(x))
UNARY(logistic_f32, float, float, vm_logistic(x))
UNARY(erf_f32, float, float, vm_erf(x))
UNARY(erf_inv_f32, float, float, vm_erf_inv(x))
UNARY(erfc_f32, float, float, vm_erfc(x))
UNARY_SCALAR(lgamma_f32, float, float, (float)lgamma_of((double)x))
UNARY(sqrt_f32, float, float, sqrtf(x))
UNARY(rsqrt_f32, float, float, 1.0f / sqrtf(x))
UNARY(floor_f32, float, float, vm_floor(x))
UNARY(ceil_f32, float, float, vm_ceil(x))
UNARY(round_f32, float, float, vm_rint(x))
UNARY(is_finite_f32, float, int32_t, vm_abs(x) < INFINITY)
UNARY(round_bf16, float, float, k_from_bf16(k_to_bf16(x)))
UNARY(round_f16, float, float, k_from_f16(k_to_f16(x)))
UNARY(round_e4m3, float, float, k_from_e4m3(k_to_e4m3(x)))
UNARY(round_e5m2, float, float, k_from_e5m2(k_to_e5m2(x)))
BINARY_SCALAR(rem_f32, float, float, fmodf(x, y)) /* exact, so the library's is as good as any */
BINARY(pow_f32, float, float, vm_pow(x, y))
BINARY(atan2_f32, float, float, vm_atan2(x, y))
BINARY_SCALAR(polygamma_f32, float, float, (float)polygamma_of((double)x, (double)y))

/* sin and cos: tiles without a large argument are straight-line code. */
#define TRIG(name, shift)                                                                          \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        float *dst = (float *)dst_;                                                                \
        const float *a = (const float *)src[0];                                                    \
        int large = 0;                                                                             \
        for (int64_t i = 0; i < n; i++) large |= !(vm_abs(a[i]) <= VM_TRIG_MAX);                   \
        if (large) {                                                                               \
            for (int64_t i = 0; i < n; i++) dst[i] = vm_trig_any(a[i], shift);                     \
            return;                                                                                \
        }                                                                                          \
        LOOP dst[i] = vm_trig(a[i], shift);                                                        \
    }
TRIG(sin_f32, 0)
TRIG(cos_f32, 1)

/* Newton steps from the single precision estimate, on erfc where erf has lost the digits. */
static double erf_inv_f64_(double x) {
    double a = fabs(x);
    if (!(a < 1)) return a == 1 ? copysign(INFINITY, x) : NAN;
    if (a < 1e-20) return x * 0.886226925452758;
    double w = -log1p(-a * a), r = a < 0.999 ? vm_erf_inv((float)a) : sqrt(w - 0.5 * log(w));
    for (int i = 0; i < 8; i++) {
        double e = a < 0.5 ? erf(r) - a : (1 - a) - erfc(r);
        double step = e * 0.886226925452758 * exp(r * r);
        step /= 1 + r * step; /* Halley */
        r -= step;
        if (fabs(step) < 1e-16 * r) break;
    }
    return copysign(r, x);
}

UNARY(abs_f64, double, double, fabs(x))
UNARY_SCALAR(exp_f64, double, double, exp(x))
UNARY_SCALAR(log_f64, double, double, log(x))
UNARY_SCALAR(log1p_f64, double, double, log1p(x))
UNARY_SCALAR(expm1_f64, double, double, expm1(x))
UNARY_SCALAR(tanh_f64, double, double, tanh(x))
UNARY_SCALAR(logistic_f64, double, double, 1.0 / (1.0 + exp(-x)))
UNARY_SCALAR(erf_f64, double, double, erf(x))
UNARY_SCALAR(erf_inv_f64, double, double, erf_inv_f64_(x))
UNARY_SCALAR(erfc_f64, double, double, erfc(x))
UNARY_SCALAR(lgamma_f64, double, double, lgamma_of(x))
UNARY_SCALAR(sin_f64, double, double, sin(x))
UNARY_SCALAR(cos_f64, double, double, cos(x))
UNARY(sqrt_f64, double, double, sqrt(x))
UNARY(rsqrt_f64, double, double, 1.0 / sqrt(x))
UNARY(floor_f64, double, double, floor(x))
UNARY(ceil_f64, double, double, ceil(x))
UNARY(round_f64, double, double, rint(x))
UNARY(is_finite_f64, double, int32_t, fabs(x) < (double)INFINITY)
BINARY_SCALAR(rem_f64, double, double, fmod(x, y))
BINARY_SCALAR(pow_f64, double, double, pow(x, y))
BINARY_SCALAR(atan2_f64, double, double, atan2(x, y))
BINARY_SCALAR(polygamma_f64, double, double, polygamma_of(x, y))

/* ---- integers: arithmetic wraps, so it is done unsigned ------------------------------------- */
/* base^e wrapped; for e < 0 the integer part of the quotient 1 / base^-e, all ones for base 0 */
static uint64_t int_pow(int64_t base, int64_t e) {
    if (e < 0)
        return base == 1 ? 1 : base == -1 ? (e & 1 ? ~(uint64_t)0 : 1) : base ? 0 : ~(uint64_t)0;
    uint64_t b = (uint64_t)base, r = 1;
    for (; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return r;
}

#define INTEGER(t, T, U)                                                                           \
    UNARY(neg_##t, T, T, (T)(0 - (U)x))                                                            \
    UNARY(square_##t, T, T, (T)((U)x * (U)x))                                                      \
    UNARY(cube_##t, T, T, (T)((U)x * (U)x * (U)x))                                                 \
    UNARY(not_##t, T, T, (T)~x)                                                                    \
    BINARY(add_##t, T, T, (T)((U)x + (U)y))                                                        \
    BINARY(sub_##t, T, T, (T)((U)x - (U)y))                                                        \
    BINARY(mul_##t, T, T, (T)((U)x * (U)y))                                                        \
    BINARY_SCALAR(pow_##t, T, T, (T)int_pow((int64_t)x, (int64_t)y))                               \
    BINARY(max_##t, T, T, x > y ? x : y)                                                           \
    BINARY(min_##t, T, T, x < y ? x : y)                                                           \
    BINARY(and_##t, T, T, x &y)                                                                    \
    BINARY(or_##t, T, T, x | y)                                                                    \
    BINARY(xor_##t, T, T, x ^ y)                                                                   \
    BINARY(shl_##t, T, T, (U)y < 8 * sizeof(T) ? (T)((U)x << (y & (8 * sizeof(T) - 1))) : (T)0)    \
    INT_POW(int_pow_##t, T, U)                                                                     \
    COMPARE(t, T)
#define SIGNED(t, T, U)                                                                            \
    UNARY(abs_##t, T, T, x < 0 ? (T)(0 - (U)x) : x)                                                \
    UNARY(sign_##t, T, T, (T)((x > 0) - (x < 0)))                                                  \
    BINARY_SCALAR(div_##t, T, T, y == 0 ? -1 : y == -1 ? (T)(0 - (U)x) : x / y)                    \
    BINARY_SCALAR(rem_##t, T, T, y == 0 ? x : y == -1 ? 0 : x % y)                                 \
    BINARY(shr_##t, T, T, x >> ((U)y < 8 * sizeof(T) ? (U)y : 8 * sizeof(T) - 1))
INTEGER(i32, int32_t, uint32_t)
INTEGER(u32, uint32_t, uint32_t)
INTEGER(i64, int64_t, uint64_t)
SIGNED(i32, int32_t, uint32_t)
SIGNED(i64, int64_t, uint64_t)
#define UNSIGNED(t, T)                                                                             \
    UNARY(sign_##t, T, T, x > 0)                                                                   \
    BINARY_SCALAR(div_##t, T, T, y == 0 ? (T)-1 : x / y)                                           \
    BINARY_SCALAR(rem_##t, T, T, y == 0 ? x : x % y)                                               \
    BINARY(shr_##t, T, T, y < 8 * sizeof(T) ? x >> (y & (8 * sizeof(T) - 1)) : 0)
UNSIGNED(u32, uint32_t)
UNSIGNED(u64, uint64_t)
/* What has another result than of int64. */
static uint64_t unsigned_pow(uint64_t b, uint64_t e) {
    uint64_t r = 1;
    for (; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return r;
}
BINARY_SCALAR(pow_u64, uint64_t, uint64_t, unsigned_pow(x, y))
BINARY(max_u64, uint64_t, uint64_t, x > y ? x : y)
BINARY(min_u64, uint64_t, uint64_t, x < y ? x : y)
BINARY(lt_u64, uint64_t, int32_t, x < y)
BINARY(le_u64, uint64_t, int32_t, x <= y)
BINARY(gt_u64, uint64_t, int32_t, x > y)
BINARY(ge_u64, uint64_t, int32_t, x >= y)

/* (o0 << 32 | o1) of key (a, b) and counter (c, d) */
static void threefry(char *dst_, const char *const *src, int64_t n) {
    int64_t *dst = (int64_t *)dst_;
    const uint32_t *a = (const uint32_t *)src[0], *b = (const uint32_t *)src[1];
    const uint32_t *c = (const uint32_t *)src[2], *d = (const uint32_t *)src[3];
    for (int64_t i = 0; i < n; i += K_STEP) {
        uint32_t o0[K_STEP], o1[K_STEP];
        for (int j = 0; j < K_STEP; j++)
            k_threefry(a[i + j], b[i + j], c[i + j], d[i + j], &o0[j], &o1[j]);
        for (int j = 0; j < K_STEP; j++) dst[i + j] = (int64_t)((uint64_t)o0[j] << 32 | o1[j]);
    }
}

/* ---- conversions ---------------------------------------------------------------------------- */
/* Truncates, saturates and takes NaN to 0. low and high are the first and last values of the float
 * type inside the integer's range, end the first above it. */
#define TRUNCATE(name, T, R, low, high, end, max)                                                  \
    static inline R value_##name(T x) {                                                            \
        T c = x > high ? high : x;                                                                 \
        c = c > low ? c : low;                                                                     \
        R r = (R)c;                                                                                \
        r = x >= end ? max : r;                                                                    \
        return x == x ? r : 0;                                                                     \
    }                                                                                              \
    UNARY(name, T, R, value_##name(x))
TRUNCATE(f32_to_i32, float, int32_t, -0x1p31f, 0x1.fffffep30f, 0x1p31f, INT32_MAX)
TRUNCATE(f32_to_u32, float, uint32_t, 0.0f, 0x1.fffffep31f, 0x1p32f, UINT32_MAX)
TRUNCATE(f32_to_i64, float, int64_t, -0x1p63f, 0x1.fffffep62f, 0x1p63f, INT64_MAX)
TRUNCATE(f32_to_u64, float, uint64_t, 0.0f, 0x1.fffffep63f, 0x1p64f, UINT64_MAX)
TRUNCATE(f64_to_i32, double, int32_t, -0x1p31, 2147483647.0, 0x1p31, INT32_MAX)
TRUNCATE(f64_to_u32, double, uint32_t, 0.0, 4294967295.0, 0x1p32, UINT32_MAX)
TRUNCATE(f64_to_i64, double, int64_t, -0x1p63, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX)
TRUNCATE(f64_to_u64, double, uint64_t, 0.0, 0x1.fffffffffffffp63, 0x1p64, UINT64_MAX)
UNARY(f32_to_f64, float, double, x)
UNARY(f64_to_f32, double, float, (float)x)
UNARY(i32_to_f32, int32_t, float, (float)x)
UNARY(u32_to_f32, uint32_t, float, (float)x)
UNARY(i64_to_f32, int64_t, float, (float)x)
UNARY(u64_to_f32, uint64_t, float, (float)x)
UNARY(i32_to_f64, int32_t, double, x)
UNARY(u32_to_f64, uint32_t, double, x)
UNARY(i64_to_f64, int64_t, double, (double)x)
UNARY(u64_to_f64, uint64_t, double, (double)x)
UNARY(i32_to_i64, int32_t, int64_t, x)
UNARY(u32_to_i64, uint32_t, int64_t, x)
UNARY(i64_to_u32, int64_t, uint32_t, (uint32_t)x)
UNARY(same_32, uint32_t, uint32_t, x)
UNARY(same_64, uint64_t, uint64_t, x)

/* [from][to] */
static KInstrFn *const convert[KT_COUNT][KT_COUNT] = {
    [KT_F32] = {same_32, f32_to_f64, f32_to_i32, f32_to_u32, f32_to_i64, f32_to_u64},
    [KT_F64] = {f64_to_f32, same_64, f64_to_i32, f64_to_u32, f64_to_i64, f64_to_u64},
    [KT_I32] = {i32_to_f32, i32_to_f64, same_32, same_32, i32_to_i64, i32_to_i64},
    [KT_U32] = {u32_to_f32, u32_to_f64, same_32, same_32, u32_to_i64, u32_to_i64},
    [KT_I64] = {i64_to_f32, i64_to_f64, i64_to_u32, i64_to_u32, same_64, same_64},
    [KT_U64] = {u64_to_f32, u64_to_f64, i64_to_u32, i64_to_u32, same_64, same_64},
};

#define BOTH(name)                                                                                 \
    { name##_f32, name##_f64 }
/* uint64 shares int64's code where the bits are the same, and has ORDERED of its own. */
#define INTS(name)                                                                                 \
    { 0, 0, name##_i32, name##_u32, name##_i64, name##_i64 }
#define NUMBERS(name)                                                                              \
    { name##_f32, name##_f64, name##_i32, name##_u32, name##_i64, name##_i64 }
#define ORDERED(name)                                                                              \
    { name##_f32, name##_f64, name##_i32, name##_u32, name##_i64, name##_u64 }

/* Small powers as INT_POW computes them. */
static KInstrFn *const cube[KT_COUNT] = NUMBERS(cube);

/* [op][type] */
static KInstrFn *const table[KI_COUNT][KT_COUNT] = {
    [KI_THREEFRY] = {[KT_U32] = threefry, [KT_I64] = threefry},
    [KI_NEG] = NUMBERS(neg),
    [KI_ABS] = {abs_f32, abs_f64, abs_i32, same_32, abs_i64, same_64},
    [KI_SIGN] = ORDERED(sign),
    [KI_EXP] = BOTH(exp),
    [KI_LOG] = BOTH(log),
    [KI_LOG1P] = BOTH(log1p),
    [KI_EXPM1] = BOTH(expm1),
    [KI_TANH] = BOTH(tanh),
    [KI_LOGISTIC] = BOTH(logistic),
    [KI_ERF] = BOTH(erf),
    [KI_ERF_INV] = BOTH(erf_inv),
    [KI_ERFC] = BOTH(erfc),
    [KI_LGAMMA] = BOTH(lgamma),
    [KI_SIN] = BOTH(sin),
    [KI_COS] = BOTH(cos),
    [KI_SQRT] = BOTH(sqrt),
    [KI_RSQRT] = BOTH(rsqrt),
    [KI_FLOOR] = BOTH(floor),
    [KI_CEIL] = BOTH(ceil),
    [KI_ROUND] = BOTH(round),
    [KI_SQUARE] = NUMBERS(square),
    [KI_NOT] = INTS(not ),
    [KI_IS_FINITE] = BOTH(is_finite),
    [KI_ROUND_BF16] = {[KT_F32] = round_bf16},
    [KI_ROUND_F16] = {[KT_F32] = round_f16},
    [KI_ROUND_E4M3] = {[KT_F32] = round_e4m3},
    [KI_ROUND_E5M2] = {[KT_F32] = round_e5m2},
    [KI_INT_POW] = NUMBERS(int_pow),
    [KI_ADD] = NUMBERS(add),
    [KI_SUB] = NUMBERS(sub),
    [KI_MUL] = NUMBERS(mul),
    [KI_DIV] = ORDERED(div),
    [KI_REM] = ORDERED(rem),
    [KI_POW] = ORDERED(pow),
    [KI_MAX] = ORDERED(max),
    [KI_MIN] = ORDERED(min),
    [KI_ATAN2] = BOTH(atan2),
    [KI_POLYGAMMA] = BOTH(polygamma),
    [KI_AND] = INTS(and),
    [KI_OR] = INTS(or),
    [KI_XOR] = INTS(xor),
    [KI_SHL] = INTS(shl),
    [KI_SHR] = {0, 0, shr_i32, shr_u32, shr_i64, shr_u64},
    [KI_EQ] = NUMBERS(eq),
    [KI_NE] = NUMBERS(ne),
    [KI_LT] = ORDERED(lt),
    [KI_LE] = ORDERED(le),
    [KI_GT] = ORDERED(gt),
    [KI_GE] = ORDERED(ge),
    [KI_SELECT] = NUMBERS(select),
    [KI_FMA] = BOTH(fma),
};

KInstrFn *k_instr_fn(const KInstr *instr, const KImm *imm) {
    switch (instr->op) {
    case KI_INT_POW:
        if (imm[instr->b].i == 2) return table[KI_SQUARE][instr->type];
        return imm[instr->b].i == 3 ? cube[instr->type] : table[KI_INT_POW][instr->type];
    case KI_CONVERT: return convert[instr->type][instr->d];
    case KI_BITCAST: return k_type_size((KType)instr->type) == 4 ? same_32 : same_64;
    default: return table[instr->op][instr->type];
    }
}
