/* fused.cuh - what the text of a fused program (fused.c) is written in: the shape of the outputs,
 * and the instructions that CUDA has no word for, with the semantics of kernel.h.
 *
 * What random numbers go through - log, log1p, erf_inv - are the polynomials of the CPU's vmath.h
 * and vspecial.h in the same order of roundings, so that a sample is the same on both. The others
 * are CUDA's own: they are within 2 ulp (powf 4), and faster. */
#ifndef MESHLUA_CUDA_FUSED_CUH
#define MESHLUA_CUDA_FUSED_CUH

#include "threefry.cuh"

/* ---- parameters ---- */
/* The dims of the outputs, those merged that lie as one. A thread has some neighbours of the last
 * dim; it takes `threads` for all, `row` for the last dim once. */
template <int RANK> struct Shape { i64 threads, row, dim[RANK]; };
/* Elements from one index to the next along each dim. */
template <int RANK> struct Strides { i64 of[RANK]; };

/* Elements that lie `stride` apart. */
template <int N, class T> DEVICE Vec<T, N> load_apart(const T *p, i64 stride) {
    Vec<T, N> v;
#pragma unroll
    for (int j = 0; j < N; j++) v.at[j] = p[j * stride];
    return v;
}
template <int N, class T> DEVICE void store_apart(T *p, i64 stride, const Vec<T, N> &v) {
#pragma unroll
    for (int j = 0; j < N; j++) p[j * stride] = v.at[j];
}

/* ---- integers: arithmetic wraps, so it is done unsigned ---- */
template <class T> struct UnsignedOf { typedef u32 type; };
template <> struct UnsignedOf<i64> { typedef u64 type; };
template <> struct UnsignedOf<u64> { typedef u64 type; };
template <class T> using Unsigned = typename UnsignedOf<T>::type;

template <class T> DEVICE T negate(T x) {
    return (T)(0 - (Unsigned<T>)x);
}
template <class T> DEVICE T absolute(T x) {
    return x < 0 ? negate(x) : x;
}
template <class T> DEVICE T add(T x, T y) {
    return (T)((Unsigned<T>)x + (Unsigned<T>)y);
}
template <class T> DEVICE T subtract(T x, T y) {
    return (T)((Unsigned<T>)x - (Unsigned<T>)y);
}
template <class T> DEVICE T multiply(T x, T y) {
    return (T)((Unsigned<T>)x * (Unsigned<T>)y);
}
/* By zero: all bits set. */
template <class T> DEVICE T quotient(T x, T y) {
    if (y == 0) return (T) ~(Unsigned<T>)0;
    return y == (T)-1 && (T)-1 < (T)0 ? negate(x) : x / y;
}
/* By zero: the dividend. */
template <class T> DEVICE T remainder_of(T x, T y) {
    if (y == 0) return x;
    return y == (T)-1 && (T)-1 < (T)0 ? (T)0 : x % y;
}
/* A negative exponent: the integer part of 1 / x^-e, all bits set for x = 0. */
template <class T> DEVICE T power(T x, T e) {
    if (e < 0) return x == 1 ? 1 : x == (T)-1 ? (e & 1 ? x : (T)1) : x == 0 ? (T)-1 : (T)0;
    Unsigned<T> base = (Unsigned<T>)x, r = 1;
    for (; e; e >>= 1, base *= base)
        if (e & 1) r *= base;
    return (T)r;
}
/* A count of the width or more, or below 0: no bit of x is left. */
template <class T> DEVICE T shift_left(T x, T count) {
    return (Unsigned<T>)count < 8 * sizeof(T) ? (T)((Unsigned<T>)x << count) : (T)0;
}
template <class T> DEVICE T shift_right(T x, T count) {
    if ((Unsigned<T>)count < 8 * sizeof(T)) return x >> count;
    return x < 0 ? (T)-1 : (T)0;
}

/* ---- all numbers ---- */
template <class T> DEVICE T sign(T x) {
    return x > 0 ? (T)1 : x < 0 ? (T)-1 : x;
}
/* NaN if either is. */
template <class T> DEVICE T higher(T x, T y) {
    return x != x ? x : x > y ? x : y;
}
template <class T> DEVICE T lower(T x, T y) {
    return x != x ? x : x < y ? x : y;
}
template <class To, class From> DEVICE To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From), "bits");
    union {
        From from;
        To to;
    } u = {x};
    return u.to;
}
template <class T> DEVICE T product(T x, T y) {
    return multiply(x, y);
}
DEVICE float product(float x, float y) {
    return x * y;
}
DEVICE double product(double x, double y) {
    return x * y;
}
/* x^e for a constant e >= 0, by repeated squaring */
template <i64 E, class T> DEVICE T whole_power(T x) {
    T base = x, r = 1;
#pragma unroll
    for (i64 e = E; e > 0; e >>= 1) {
        if (e & 1) r = product(r, base);
        base = product(base, base);
    }
    return r;
}

/* Truncates, saturates, and takes NaN to 0. `high` is the last value of the type in the range. */
template <class F, class T> DEVICE T saturate(F x, F low, F high, F end, T max) {
    F c = x > high ? high : x;
    T r = (T)(c > low ? c : low);
    r = x >= end ? max : r;
    return x == x ? r : (T)0;
}
DEVICE i32 to_i32(float x) {
    return saturate(x, -0x1p31f, 0x1.fffffep30f, 0x1p31f, (i32)0x7fffffff);
}
DEVICE u32 to_u32(float x) {
    return saturate(x, 0.0f, 0x1.fffffep31f, 0x1p32f, 0xffffffffu);
}
DEVICE i64 to_i64(float x) {
    return saturate(x, -0x1p63f, 0x1.fffffep62f, 0x1p63f, (i64)0x7fffffffffffffff);
}
DEVICE u64 to_u64(float x) {
    return saturate(x, 0.0f, 0x1.fffffep63f, 0x1p64f, ~(u64)0);
}
DEVICE i32 to_i32(double x) {
    return saturate(x, -0x1p31, 2147483647.0, 0x1p31, (i32)0x7fffffff);
}
DEVICE u32 to_u32(double x) {
    return saturate(x, 0.0, 4294967295.0, 0x1p32, 0xffffffffu);
}
DEVICE i64 to_i64(double x) {
    return saturate(x, -0x1p63, 0x1.fffffffffffffp62, 0x1p63, (i64)0x7fffffffffffffff);
}
DEVICE u64 to_u64(double x) {
    return saturate(x, 0.0, 0x1.fffffffffffffp63, 0x1p64, ~(u64)0);
}

/* ---- floats ---- */
DEVICE bool is_finite(float x) {
    return (bits_as<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
DEVICE bool is_finite(double x) {
    return (bits_as<u64>(x) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}
DEVICE float round_bf16(float x) {
    return widen(narrow<bf16>(x));
}
DEVICE float round_e4m3(float x) {
    return widen(narrow<e4m3>(x));
}
DEVICE float round_e5m2(float x) {
    return widen(narrow<e5m2>(x));
}
DEVICE float round_f16(float x) {
    return widen(narrow<f16>(x));
}
DEVICE float logistic(float x) {
    float e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
DEVICE double logistic(double x) {
    return 1.0 / (1.0 + exp(-x));
}

/* log(2^n (1 + f) + tail) for sqrt(1/2) <= 1 + f < sqrt(2); tail is relative to 2^n (1 + f). */
DEVICE float log_core(float n, float f, float tail) {
    float q = -0x1.38b576p-4f; /* (log(1 + f) - f + f^2 / 2) / f^3 */
    q = fmaf(q, f, 0x1.055b68p-3f);
    q = fmaf(q, f, -0x1.0d8542p-3f);
    q = fmaf(q, f, 0x1.22da1ep-3f);
    q = fmaf(q, f, -0x1.547244p-3f);
    q = fmaf(q, f, 0x1.99a008p-3f);
    q = fmaf(q, f, -0x1.000226p-2f);
    q = fmaf(q, f, 0x1.555554p-2f);
    float t = fmaf(n, -0x1.05c610p-29f, fmaf(f * f, fmaf(f, q, -0.5f), tail));
    return fmaf(n, 0x1.62e43p-1f, f + t); /* ln 2 in two parts */
}
/* x = 2^n (1 + f) for a normal x > 0 */
DEVICE float log_reduce(float x, float &f) {
    u32 u = bits_as<u32>(x) - 0x3f3504f3u; /* sqrt(1/2) */
    f = bits_as<float>((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    return (float)((i32)u >> 23);
}
DEVICE float infinity() {
    return bits_as<float>(0x7f800000u);
}
DEVICE float not_a_number() {
    return bits_as<float>(0x7fc00000u);
}
DEVICE float ln(float x) {
    bool small = x < 0x1p-126f;
    float f, n = log_reduce(small ? x * 0x1p23f : x, f);
    float r = log_core(small ? n - 23.0f : n, f, 0.0f);
    r = x < infinity() ? r : x; /* inf, NaN */
    r = x == 0.0f ? -infinity() : r;
    return x < 0.0f ? not_a_number() : r;
}
DEVICE double ln(double x) {
    return log(x);
}
DEVICE float ln_1p(float x) {
    float u = 1.0f + x, f, n = log_reduce(u, f);
    float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    float r = log_core(n, f, lost / u);
    r = x < infinity() ? r : x;
    r = x == -1.0f ? -infinity() : r;
    r = x < -1.0f ? not_a_number() : r;
    return x == 0.0f ? x : r; /* keeps -0 */
}
DEVICE double ln_1p(double x) {
    return log1p(x);
}

/* log(1 - t) for 0 <= t < 1 by the two approximations of the Cephes library (Moshier). */
DEVICE float erf_inv_log(float t) {
    float x = -t, z = x * x; /* a rational function while 1 + x is near 1 */
    float p = fmaf(4.5270000862445199635215e-5f, x, 4.9854102823193375972212e-1f), q = x;
    p = fmaf(p, x, 6.5787325942061044846969f);
    p = fmaf(p, x, 2.9911919328553073277375e1f);
    p = fmaf(p, x, 6.0949667980987787057556e1f);
    p = fmaf(p, x, 5.7112963590585538103336e1f);
    p = fmaf(p, x, 2.0039553499201281259648e1f);
    q = q + 1.5062909083469192043167e1f;
    q = fmaf(q, x, 8.3047565967967209469434e1f);
    q = fmaf(q, x, 2.2176239823732856465394e2f);
    q = fmaf(q, x, 3.0909872225312059774938e2f);
    q = fmaf(q, x, 2.1642788614495947685003e2f);
    q = fmaf(q, x, 6.0118660497603843919306e1f);
    float near = x + fmaf(z, -0.5f, x * z * (p / q));

    float f, n = log_reduce(1.0f - t, f), g = f * f, h = g * f;
    float a = fmaf(fmaf(7.0376836292e-2f, f, -1.1514610310e-1f), f, 1.1676998740e-1f);
    float b = fmaf(fmaf(-1.2420140846e-1f, f, 1.4249322787e-1f), f, -1.6668057665e-1f);
    float c = fmaf(fmaf(2.0000714765e-1f, f, -2.4999993993e-1f), f, 3.3333331174e-1f);
    float y = fmaf(fmaf(fmaf(a, h, b), h, c), h, n * -2.12194440e-4f);
    float far = fmaf(n, 0.693359375f, fmaf(g, -0.5f, f) + y);
    return t < 0.41421356237309504880f ? near : far;
}
/* M. Giles, "Approximating the erfinv function", GPU Computing Gems (2010). */
DEVICE float erf_inv(float x) {
    float w = -erf_inv_log(x * x);
    bool low = w < 5.0f;
    float v = low ? w - 2.5f : sqrtf(w) - 3.0f;
    float p = low ? 2.81022636e-08f : -0.000200214257f;
    p = fmaf(p, v, low ? 3.43273939e-07f : 0.000100950558f);
    p = fmaf(p, v, low ? -3.5233877e-06f : 0.00134934322f);
    p = fmaf(p, v, low ? -4.39150654e-06f : -0.00367342844f);
    p = fmaf(p, v, low ? 0.00021858087f : 0.00573950773f);
    p = fmaf(p, v, low ? -0.00125372503f : -0.0076224613f);
    p = fmaf(p, v, low ? -0.00417768164f : 0.00943887047f);
    p = fmaf(p, v, low ? 0.246640727f : 1.00167406f);
    p = fmaf(p, v, low ? 1.50140941f : 2.83297682f);
    float a = fabsf(x), r = a == 1.0f ? x * infinity() : p * x;
    return a > 1.0f ? not_a_number() : r;
}
/* Newton steps from the single precision estimate, on erfc where erf has lost the digits. */
DEVICE double erf_inv(double x) {
    double a = fabs(x);
    if (!(a < 1)) return a == 1 ? x * (double)infinity() : (double)not_a_number();
    if (a < 1e-20) return x * 0.886226925452758;
    double w = -log1p(-a * a), r = a < 0.999 ? erf_inv((float)a) : sqrt(w - 0.5 * log(w));
    for (int i = 0; i < 8; i++) {
        double e = a < 0.5 ? erf(r) - a : (1 - a) - erfc(r);
        double step = e * 0.886226925452758 * exp(r * r);
        step /= 1 + r * step; /* Halley */
        r -= step;
        if (fabs(step) < 1e-16 * r) break;
    }
    return x < 0 ? -r : r;
}

/* Derivative n + 1 of log gamma at x > 0, for a whole n: -(-1)^n n! times the sum of
 * 1 / (x + k)^(n + 1) over all k >= 0; term by term up to where Euler's and Maclaurin's formula is
 * exact. */
DEVICE double polygamma_right(double n, double x) {
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
DEVICE double polygamma(double n, double x) {
    if (!(n >= 0) || n != floor(n)) return (double)not_a_number();
    if (!(x <= 0)) return polygamma_right(n, x);
    double f = x - floor(x), sign = fmod(n, 2) == 0 ? 1 : -1;
    if (x == floor(x)) return sign < 0 ? (double)infinity() : (double)not_a_number();
    return polygamma_right(n, f) + sign * (polygamma_right(n, 1 - x) - polygamma_right(n, 1 - f));
}

#endif
