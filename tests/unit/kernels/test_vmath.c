/* test_vmath.c - float32 mathematics: errors in ulp against libm's double, and the very bits.
 *
 * The hashes are the same on every level and with every compiler; a change of one is a change of
 * results for users, to be made on purpose. A failure prints the new table.
 */
#include "kcheck.h"
#include "kprogram.h"

enum { N = 1 << 17 };

static float x[N], y[N], z[N], result[N];

static void run(const char *level, KOp op) {
    int64_t dim = N, stride = 4;
    KTensor in[3] = {{(char *)x, &dim, &stride, 1, DT_F32},
                     {(char *)y, &dim, &stride, 1, DT_F32},
                     {(char *)z, &dim, &stride, 1, DT_F32}};
    KTensor out = {(char *)result, &dim, &stride, 1, DT_F32};
    for (int k = 0; k < 3; k++) emit(KI_LOAD, KT_F32, k, k, 0, 0, 0);
    int b = op == KI_INT_POW ? imm(KT_I64, 0, 3) : 1;
    emit(op, KT_F32, 3, 0, b, 2, 0);
    emit(KI_STORE, KT_F32, 0, 3, 0, 0, 0);
    KArgs a = {.in = in, .out = &out, .nin = 3, .nout = 1, .attr = finish()};
    const KernelRow *row = kc_row(level, "fused");
    CHECK(kc_part(row, &a, 0, row->units(&a)) == 0);
}

static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* All of float32, evenly by bits, the edges first. */
static void all_floats(float *to, uint32_t step, int first) {
    static const uint32_t edges[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                     1,          0x80000001, 0x7fffff,   0x800000,   0x7f7fffff,
                                     0xff7fffff, 0x3f800000, 0xbf800000, 0x42b17218, 0xc2aeac50,
                                     0xc2cff1b5, 0x46800000, 0x46800001};
    for (int i = 0; i < N; i++) to[i] = from_bits(edges[(i + first) % 18]);
    for (uint32_t i = 4096; i < N; i++) to[i] = from_bits(i * step);
}
static void range(float *to, double lo, double hi) {
    for (int i = 0; i < N; i++) to[i] = (float)(lo + (hi - lo) * i / (N - 1));
}

static double ulps(float got, double want) {
    float w = (float)want;
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (w == got) return 0;
    if (isinf(w) || isinf(got)) return fabs(want) > 0x1.fffffcp127 ? 1 : INFINITY;
    int e = want == 0 ? -126 : ilogb(want);
    return fabs((double)got - want) / ldexp(1, (e < -126 ? -126 : e) - 23);
}

static double logistic(double v) {
    return 1 / (1 + exp(-v));
}

typedef struct Function {
    const char *name;
    KOp op;
    double (*exact)(double);
    double lo, hi; /* a range of interest, besides all floats */
    double limit;  /* ulp */
} Function;

static void accuracy(const Function *f) {
    double worst = 0;
    float at = 0;
    for (int pass = 0; pass < 3; pass++) {
        if (pass == 2)
            range(x, f->lo, f->hi);
        else
            all_floats(x, pass ? 40503 : 32771, 0);
        run(k_cpu_best_level(), f->op);
        for (int i = 0; i < N; i++) {
            double e = ulps(result[i], f->exact((double)x[i]));
            if (e > worst) worst = e, at = x[i];
        }
    }
    printf("%-8s %.2f ulp at %a\n", f->name, worst, (double)at);
    CHECKF(worst <= f->limit, "%s: %.2f ulp at %a", f->name, worst, (double)at);
}

static void accuracy_of_two(const char *name, KOp op, double (*exact)(double, double),
                            double limit) {
    double worst = 0;
    for (int pass = 0; pass < 3; pass++) {
        all_floats(x, 40503, 0);
        all_floats(y, 32771, 7);
        if (pass == 1) range(x, 0.2, 5);
        for (int i = 0; pass && i < N; i++)
            y[i] = (float)(i % 4001 - 2000) / (pass == 1 ? 16.0f : 1.0f);
        run(k_cpu_best_level(), op);
        for (int i = 0; i < N; i++) {
            double e = ulps(result[i], exact((double)x[i], (double)y[i]));
            if (e > worst) worst = e;
        }
    }
    printf("%-8s %.2f ulp\n", name, worst);
    CHECKF(worst <= limit, "%s: %.2f ulp", name, worst);
}

static uint64_t hash(void) { /* FNV-1a; all NaNs count as one */
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < N; i++) {
        uint32_t u;
        memcpy(&u, &result[i], 4);
        if (result[i] != result[i]) u = 0x7fc00000;
        for (int b = 0; b < 32; b += 8) h = (h ^ (u >> b & 255)) * 0x100000001b3u;
    }
    return h;
}

typedef struct Bits {
    const char *name;
    KOp op;
    uint64_t hash;
} Bits;

static const Bits bits[] = {
    {"KI_EXP", KI_EXP, 0xb9b46f4a601a4524},
    {"KI_LOG", KI_LOG, 0x2aaf079ca75e1a8f},
    {"KI_LOG1P", KI_LOG1P, 0x3902627d976f0855},
    {"KI_EXPM1", KI_EXPM1, 0xf1e7250695e7bf78},
    {"KI_TANH", KI_TANH, 0x60a660fe734e78b0},
    {"KI_LOGISTIC", KI_LOGISTIC, 0xdfc48ba77cfd889d},
    {"KI_ERF", KI_ERF, 0x04715c8566bd9634},
    {"KI_ERF_INV", KI_ERF_INV, 0x16b25091fce6d249},
    {"KI_ERFC", KI_ERFC, 0x94652d4d8e53bcee},
    {"KI_SIN", KI_SIN, 0x6072ee92e3006fca},
    {"KI_COS", KI_COS, 0xb32f930220a07dd9},
    {"KI_SQRT", KI_SQRT, 0xfda32b561016e65c},
    {"KI_RSQRT", KI_RSQRT, 0xf3c11e0065b523ce},
    {"KI_FLOOR", KI_FLOOR, 0x9a8b4e6fc057e075},
    {"KI_CEIL", KI_CEIL, 0xcaab408b65576c4d},
    {"KI_ROUND", KI_ROUND, 0x8f982c9f4e36fa61},
    {"KI_SQUARE", KI_SQUARE, 0x6b7a3b4009ee9248},
    {"KI_SIGN", KI_SIGN, 0x9f445485c112d058},
    {"KI_ROUND_BF16", KI_ROUND_BF16, 0xaf347299570f7120},
    {"KI_ROUND_F16", KI_ROUND_F16, 0xa3e5eb6a35d61210},
    {"KI_INT_POW", KI_INT_POW, 0xa2c2d4d588e828bb},
    {"KI_ADD", KI_ADD, 0x67457780a2220a96},
    {"KI_MUL", KI_MUL, 0x8c5501f2b7ce6b03},
    {"KI_DIV", KI_DIV, 0x6ba5c1c7c177bf77},
    {"KI_REM", KI_REM, 0xee9290ccc15ce38a},
    {"KI_POW", KI_POW, 0xd4a5060481c6edf4},
    {"KI_ATAN2", KI_ATAN2, 0x4da5fa847d344c7a},
    {"KI_FMA", KI_FMA, 0xf8e88a4ed0e83410},
};

static void same_bits_everywhere(void) {
    int bad = 0;
    all_floats(x, 40503, 0);
    all_floats(y, 32771, 7);
    all_floats(z, 48271, 5);
    for (int i = N / 2; i < N; i++)
        x[i] = (float)(i - N * 3 / 4) / 2048,
        y[i] = (float)(i % 977) / 64 - 7; /* where most happens */
    for (size_t k = 0; k < sizeof bits / sizeof *bits; k++)
        for (int l = 0; l < 3; l++) {
            if (!k_cpu_table(kc_levels[l])) continue;
            run(kc_levels[l], bits[k].op);
            CHECKF(hash() == bits[k].hash, "%s %s", kc_levels[l], bits[k].name);
            bad |= hash() != bits[k].hash;
            if (bad)
                fprintf(stderr, "    {\"%s\", %s, 0x%016llx},\n", bits[k].name, bits[k].name,
                        (unsigned long long)hash());
        }
}

int main(void) {
    static const Function functions[] = {
        {"exp", KI_EXP, exp, -104, 89, 2},
        {"log", KI_LOG, log, 0, 4, 2},
        {"log1p", KI_LOG1P, log1p, -1, 1, 2},
        {"expm1", KI_EXPM1, expm1, -2, 20, 2},
        {"tanh", KI_TANH, tanh, -9, 9, 4},
        {"logistic", KI_LOGISTIC, logistic, -100, 20, 4},
        {"erf", KI_ERF, erf, -4, 4, 4},
        {"erfc", KI_ERFC, erfc, -4, 10, 4},
        {"lgamma", KI_LGAMMA, lgamma, -9, 40, 0.51},
        {"sin", KI_SIN, sin, -1e4, 1e4, 4},
        {"cos", KI_COS, cos, -1e4, 1e4, 4},
        {"sqrt", KI_SQRT, sqrt, 0, 4, 0.5},
        {"floor", KI_FLOOR, floor, -9, 9, 0},
        {"ceil", KI_CEIL, ceil, -9, 9, 0},
        {"round", KI_ROUND, rint, -9, 9, 0},
    };
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) accuracy(&functions[k]);
    accuracy_of_two("pow", KI_POW, pow, 1);
    accuracy_of_two("atan2", KI_ATAN2, atan2, 3);
    same_bits_everywhere();
    return test_end();
}
