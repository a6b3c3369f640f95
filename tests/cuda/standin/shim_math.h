/* shim_math.h - the arithmetic of CUDA C++: libm's functions under CUDA's names, overloads for both
 * types, and the ones that name a rounding or read bits. */
#ifndef STANDIN_SHIM_MATH_H
#define STANDIN_SHIM_MATH_H

/* ---- libm ---- */
#define STANDIN_MATH_1(name)                                                                       \
    extern "C" double name(double);                                                                \
    extern "C" float name##f(float);                                                               \
    static inline float name(float x) {                                                            \
        return name##f(x);                                                                         \
    }
#define STANDIN_MATH_2(name)                                                                       \
    extern "C" double name(double, double);                                                        \
    extern "C" float name##f(float, float);                                                        \
    static inline float name(float x, float y) {                                                   \
        return name##f(x, y);                                                                      \
    }
STANDIN_MATH_1(exp)
STANDIN_MATH_1(exp2)
STANDIN_MATH_1(expm1)
STANDIN_MATH_1(log)
STANDIN_MATH_1(log2)
STANDIN_MATH_1(log10)
STANDIN_MATH_1(log1p)
STANDIN_MATH_1(sin)
STANDIN_MATH_1(cos)
STANDIN_MATH_1(tan)
STANDIN_MATH_1(tanh)
STANDIN_MATH_1(sinh)
STANDIN_MATH_1(cosh)
STANDIN_MATH_1(asin)
STANDIN_MATH_1(acos)
STANDIN_MATH_1(atan)
STANDIN_MATH_1(erf)
STANDIN_MATH_1(erfc)
STANDIN_MATH_1(lgamma)
STANDIN_MATH_1(tgamma)
STANDIN_MATH_1(sqrt)
STANDIN_MATH_1(cbrt)
STANDIN_MATH_1(floor)
STANDIN_MATH_1(ceil)
STANDIN_MATH_1(trunc)
STANDIN_MATH_1(rint)
STANDIN_MATH_1(nearbyint)
STANDIN_MATH_1(round)
STANDIN_MATH_1(fabs)
STANDIN_MATH_2(pow)
STANDIN_MATH_2(fmod)
STANDIN_MATH_2(remainder)
STANDIN_MATH_2(fmax)
STANDIN_MATH_2(fmin)
STANDIN_MATH_2(copysign)
STANDIN_MATH_2(atan2)
STANDIN_MATH_2(hypot)
STANDIN_MATH_2(nextafter)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
extern "C" double ldexp(double, int);
extern "C" float ldexpf(float, int);
extern "C" double frexp(double, int *);
extern "C" float frexpf(float, int *);
extern "C" void sincos(double, double *, double *);
extern "C" void sincosf(float, float *, float *);
static inline float fma(float x, float y, float z) {
    return fmaf(x, y, z);
}
static inline float ldexp(float x, int n) {
    return ldexpf(x, n);
}
static inline float frexp(float x, int *n) {
    return frexpf(x, n);
}
static inline float rsqrtf(float x) {
    return (float)(1 / sqrt((double)x));
}
static inline double rsqrt(double x) {
    return 1 / sqrt(x);
}
static inline float rsqrt(float x) {
    return rsqrtf(x);
}
static inline float exp10f(float x) {
    return powf(10, x);
}
static inline double exp10(double x) {
    return pow(10, x);
}

/* ---- min, max, abs, tests ---- */
#define STANDIN_ORDER(T)                                                                           \
    static inline T min(T x, T y) {                                                                \
        return y < x ? y : x;                                                                      \
    }                                                                                              \
    static inline T max(T x, T y) {                                                                \
        return x < y ? y : x;                                                                      \
    }
STANDIN_ORDER(int)
STANDIN_ORDER(unsigned)
STANDIN_ORDER(long)
STANDIN_ORDER(unsigned long)
STANDIN_ORDER(long long)
STANDIN_ORDER(unsigned long long)
static inline unsigned min(int x, unsigned y) {
    return min((unsigned)x, y);
}
static inline unsigned min(unsigned x, int y) {
    return min(x, (unsigned)y);
}
static inline unsigned max(int x, unsigned y) {
    return max((unsigned)x, y);
}
static inline unsigned max(unsigned x, int y) {
    return max(x, (unsigned)y);
}
static inline float min(float x, float y) {
    return fminf(x, y);
}
static inline float max(float x, float y) {
    return fmaxf(x, y);
}
static inline double min(double x, double y) {
    return fmin(x, y);
}
static inline double max(double x, double y) {
    return fmax(x, y);
}
extern "C" int abs(int) noexcept;
static inline long abs(long x) {
    return x < 0 ? -x : x;
}
static inline long long abs(long long x) {
    return x < 0 ? -x : x;
}
static inline float abs(float x) {
    return fabsf(x);
}
static inline double abs(double x) {
    return fabs(x);
}
static inline long long llabs(long long x) {
    return x < 0 ? -x : x;
}
static inline bool isnan(float x) {
    return x != x;
}
static inline bool isnan(double x) {
    return x != x;
}
static inline bool isinf(float x) {
    return __builtin_isinf(x);
}
static inline bool isinf(double x) {
    return __builtin_isinf(x);
}
static inline bool isfinite(float x) {
    return __builtin_isfinite(x);
}
static inline bool isfinite(double x) {
    return __builtin_isfinite(x);
}
static inline bool signbit(float x) {
    return __builtin_signbit(x);
}
static inline bool signbit(double x) {
    return __builtin_signbit(x);
}

/* ---- bits ---- */
#define STANDIN_BITS(name, To, From)                                                               \
    static inline To name(From x) {                                                                \
        To y;                                                                                      \
        __builtin_memcpy(&y, &x, sizeof y);                                                        \
        return y;                                                                                  \
    }
STANDIN_BITS(__float_as_uint, unsigned, float)
STANDIN_BITS(__float_as_int, int, float)
STANDIN_BITS(__uint_as_float, float, unsigned)
STANDIN_BITS(__int_as_float, float, int)
STANDIN_BITS(__double_as_longlong, long long, double)
STANDIN_BITS(__longlong_as_double, double, long long)
static inline int __double2hiint(double x) {
    return (int)(__double_as_longlong(x) >> 32);
}
static inline int __double2loint(double x) {
    return (int)__double_as_longlong(x);
}
static inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)high << 32 | (unsigned)low);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
static inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(both >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (n & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}
static inline int __mulhi(int x, int y) {
    return (int)((long long)x * y >> 32);
}
static inline unsigned __umulhi(unsigned x, unsigned y) {
    return (unsigned)((unsigned long long)x * y >> 32);
}
static inline long long __mul64hi(long long x, long long y) {
    return (long long)((__int128)x * y >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}

/* ---- arithmetic of a named rounding: to nearest ---- */
static inline float __fadd_rn(float x, float y) {
    return x + y;
}
static inline float __fsub_rn(float x, float y) {
    return x - y;
}
static inline float __fmul_rn(float x, float y) {
    return x * y;
}
static inline float __fdiv_rn(float x, float y) {
    return x / y;
}
static inline float __fmaf_rn(float x, float y, float z) {
    return fmaf(x, y, z);
}
static inline float __frcp_rn(float x) {
    return 1 / x;
}
static inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
static inline float __frsqrt_rn(float x) {
    return rsqrtf(x);
}
static inline double __dadd_rn(double x, double y) {
    return x + y;
}
static inline double __dsub_rn(double x, double y) {
    return x - y;
}
static inline double __dmul_rn(double x, double y) {
    return x * y;
}
static inline double __ddiv_rn(double x, double y) {
    return x / y;
}
static inline double __fma_rn(double x, double y, double z) {
    return fma(x, y, z);
}
static inline double __dsqrt_rn(double x) {
    return sqrt(x);
}
static inline float __expf(float x) {
    return expf(x);
}
static inline float __exp2f(float x) {
    return exp2f(x);
}
static inline float __logf(float x) {
    return logf(x);
}
static inline float __log2f(float x) {
    return log2f(x);
}
static inline float __sinf(float x) {
    return sinf(x);
}
static inline float __cosf(float x) {
    return cosf(x);
}
static inline float __powf(float x, float y) {
    return powf(x, y);
}
static inline float __fdividef(float x, float y) {
    return x / y;
}
static inline float __saturatef(float x) {
    return x > 0 ? x < 1 ? x : 1 : 0;
}

/* ---- conversions: they saturate, and NaN gives 0 (for 64 bits of a float: 0x8000...) ---- */
#define STANDIN_CONVERT(name, From, To, low, high, rounding)                                       \
    static inline To name(From x) {                                                                \
        From y = rounding(x);                                                                      \
        return x != x ? 0 : y <= (From)(low) ? (low) : y >= (From)(high) ? (high) : (To)y;         \
    }
#define STANDIN_CONVERT_ALL(name, From, To, low, high)                                             \
    STANDIN_CONVERT(name##_rz, From, To, low, high, trunc)                                         \
    STANDIN_CONVERT(name##_rn, From, To, low, high, rint)                                          \
    STANDIN_CONVERT(name##_rd, From, To, low, high, floor)                                         \
    STANDIN_CONVERT(name##_ru, From, To, low, high, ceil)
STANDIN_CONVERT_ALL(__float2int, float, int, -0x7fffffff - 1, 0x7fffffff)
STANDIN_CONVERT_ALL(__float2uint, float, unsigned, 0u, 0xffffffffu)
STANDIN_CONVERT_ALL(__double2int, double, int, -0x7fffffff - 1, 0x7fffffff)
STANDIN_CONVERT_ALL(__double2uint, double, unsigned, 0u, 0xffffffffu)
#define STANDIN_LL_MAX 0x7fffffffffffffffll
STANDIN_CONVERT_ALL(__float2ll, float, long long, -STANDIN_LL_MAX - 1, STANDIN_LL_MAX)
STANDIN_CONVERT_ALL(__double2ll, double, long long, -STANDIN_LL_MAX - 1, STANDIN_LL_MAX)
STANDIN_CONVERT_ALL(__float2ull, float, unsigned long long, 0ull, ~0ull)
STANDIN_CONVERT_ALL(__double2ull, double, unsigned long long, 0ull, ~0ull)
static inline float __int2float_rn(int x) {
    return (float)x;
}
static inline float __uint2float_rn(unsigned x) {
    return (float)x;
}
static inline float __ll2float_rn(long long x) {
    return (float)x;
}
static inline float __ull2float_rn(unsigned long long x) {
    return (float)x;
}
static inline float __double2float_rn(double x) {
    return (float)x;
}
static inline double __int2double_rn(int x) {
    return x;
}
static inline double __uint2double_rn(unsigned x) {
    return x;
}
static inline double __ll2double_rn(long long x) {
    return (double)x;
}
static inline double __ull2double_rn(unsigned long long x) {
    return (double)x;
}

#endif
