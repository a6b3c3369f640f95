/* naive_fused.c - the register program, one element at a time. float32 is computed in double and
 * rounded once. */
#include <stdlib.h>
#include "naive.h"

typedef struct Reg {
    double f;  /* KT_F32, KT_F64 */
    int64_t i; /* the others; a uint32 is not negative here, a uint64 has its bits */
} Reg;

static int is_float(KType t) {
    return t == KT_F32 || t == KT_F64;
}

static int64_t wrap(KType t, uint64_t x) {
    return t == KT_I32 ? (int32_t)x : t == KT_U32 ? (int64_t)(uint32_t)x : (int64_t)x;
}

static uint32_t rotate(uint32_t x, int r) {
    return x << r | x >> (32 - r);
}

uint64_t k_naive_threefry(const uint32_t key[2], const uint32_t counter[2]) {
    static const int turn[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    uint32_t k[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda};
    uint32_t x0 = counter[0] + k[0], x1 = counter[1] + k[1];
    for (uint32_t round = 0; round < 20; round++) {
        x0 += x1;
        x1 = rotate(x1, turn[round / 4 % 2][round % 4]) ^ x0;
        if (round % 4 == 3) {
            uint32_t s = round / 4 + 1;
            x0 += k[s % 3];
            x1 += k[(s + 1) % 3] + s;
        }
    }
    return (uint64_t)x0 << 32 | x1;
}

static double erf_inverse(double y) {
    if (!(fabs(y) < 1)) return fabs(y) == 1 ? y * INFINITY : NAN;
    double lo = 0, hi = 10, a = fabs(y);
    for (int i = 0; i < 200; i++) {
        double x = (lo + hi) / 2;
        int below = a < 0.5 ? erf(x) < a : erfc(x) > 1 - a;
        *(below ? &lo : &hi) = x;
    }
    return copysign(a < 1e-8 ? a * 0.886226925452758 : lo, y);
}

/* Terms of 1 / (x + k)^(n + 1) up to where the rest is a smooth sum (Euler and Maclaurin). */
static double polygamma(double n, double x) {
    double sum = 0, s = n + 1;
    if (x <= 0 && x == floor(x)) return fmod(n, 2) ? INFINITY : NAN;
    for (; x < 300; x++) sum += pow(x, -s);
    sum += (n ? pow(x, -n) / n : -log(x)) + pow(x, -s) / 2 + s * pow(x, -s - 1) / 12;
    sum -= s * (s + 1) * (s + 2) * pow(x, -s - 3) / 720;
    return (fmod(n, 2) ? 1 : -1) * tgamma(s) * sum;
}

static double unary_float(KOp op, double x) {
    switch (op) {
    case KI_NEG: return -x;
    case KI_ABS: return fabs(x);
    case KI_SIGN: return x > 0 ? 1 : x < 0 ? -1 : x;
    case KI_EXP: return exp(x);
    case KI_LOG: return log(x);
    case KI_LOG1P: return log1p(x);
    case KI_EXPM1: return expm1(x);
    case KI_TANH: return tanh(x);
    case KI_LOGISTIC: return 1 / (1 + exp(-x));
    case KI_ERF: return erf(x);
    case KI_ERF_INV: return erf_inverse(x);
    case KI_ERFC: return erfc(x);
    case KI_LGAMMA: return lgamma(x);
    case KI_SIN: return sin(x);
    case KI_COS: return cos(x);
    case KI_SQRT: return sqrt(x);
    case KI_RSQRT: return 1 / sqrt(x);
    case KI_FLOOR: return floor(x);
    case KI_CEIL: return ceil(x);
    case KI_ROUND: return rint(x);
    case KI_SQUARE: return x * x;
    case KI_ROUND_BF16: return n_round_bf16(x);
    case KI_ROUND_F16: return n_round_f16(x);
    case KI_ROUND_E4M3: return n_round_e4m3(x);
    case KI_ROUND_E5M2: return n_round_e5m2(x);
    default: abort();
    }
}

static double binary_float(KOp op, double x, double y) {
    switch (op) {
    case KI_ADD: return x + y;
    case KI_SUB: return x - y;
    case KI_MUL: return x * y;
    case KI_DIV: return x / y;
    case KI_REM: return fmod(x, y);
    case KI_POW: return pow(x, y);
    case KI_ATAN2: return atan2(x, y);
    case KI_POLYGAMMA: return polygamma(x, y);
    case KI_MAX: return x != x || y != y ? NAN : x > y ? x : y;
    case KI_MIN: return x != x || y != y ? NAN : x < y ? x : y;
    default: abort();
    }
}

static int64_t integer_power(int64_t base, int64_t e) {
    if (e < 0) return base == 1 ? 1 : base == -1 ? (e & 1 ? -1 : 1) : base == 0 ? -1 : 0;
    uint64_t b = (uint64_t)base, r = 1;
    for (; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return (int64_t)r;
}

static int64_t unary_integer(KOp op, KType t, int64_t x) {
    uint64_t u = (uint64_t)x;
    switch (op) {
    case KI_NEG: return wrap(t, 0 - u);
    case KI_ABS: return wrap(t, x < 0 && t != KT_U64 ? 0 - u : u);
    case KI_SIGN: return t == KT_U64 ? x != 0 : (x > 0) - (x < 0);
    case KI_SQUARE: return wrap(t, u * u);
    case KI_NOT: return wrap(t, ~u);
    default: abort();
    }
}

/* What depends on uint64 having no sign. */
static uint64_t binary_unsigned(KOp op, uint64_t x, uint64_t y) {
    uint64_t r = 1;
    switch (op) {
    case KI_DIV: return y == 0 ? UINT64_MAX : x / y;
    case KI_REM: return y == 0 ? x : x % y;
    case KI_MAX: return x > y ? x : y;
    case KI_MIN: return x < y ? x : y;
    case KI_SHR: return y >= 64 ? 0 : x >> y;
    case KI_POW:
        for (; y; y >>= 1, x *= x)
            if (y & 1) r *= x;
        return r;
    default: abort();
    }
}

static int64_t binary_integer(KOp op, KType t, int64_t x, int64_t y) {
    uint64_t u = (uint64_t)x, v = (uint64_t)y, width = t == KT_I64 || t == KT_U64 ? 64 : 32;
    uint64_t count = width == 64 ? v : (uint32_t)v;
    if (t == KT_U64 && op >= KI_DIV && op != KI_AND && op != KI_OR && op != KI_XOR && op != KI_SHL)
        return (int64_t)binary_unsigned(op, u, v);
    switch (op) {
    case KI_ADD: return wrap(t, u + v);
    case KI_SUB: return wrap(t, u - v);
    case KI_MUL: return wrap(t, u * v);
    case KI_DIV: return y == 0 ? wrap(t, ~(uint64_t)0) : y == -1 ? wrap(t, 0 - u) : x / y;
    case KI_REM: return y == 0 ? x : y == -1 ? 0 : x % y;
    case KI_POW: return wrap(t, (uint64_t)integer_power(x, y));
    case KI_MAX: return x > y ? x : y;
    case KI_MIN: return x < y ? x : y;
    case KI_AND: return wrap(t, u & v);
    case KI_OR: return wrap(t, u | v);
    case KI_XOR: return wrap(t, u ^ v);
    case KI_SHL: return count >= width ? 0 : wrap(t, u << count);
    case KI_SHR: return count >= width ? (x < 0 ? -1 : 0) : x >> count;
    default: abort();
    }
}

#define COMPARE(op, x, y)                                                                          \
    ((op) == KI_EQ   ? (x) == (y)                                                                  \
     : (op) == KI_NE ? (x) != (y)                                                                  \
     : (op) == KI_LT ? (x) < (y)                                                                   \
     : (op) == KI_LE ? (x) <= (y)                                                                  \
     : (op) == KI_GT ? (x) > (y)                                                                   \
                     : (x) >= (y))

static int64_t truncate(KType to, double x) {
    double low = to == KT_I32 ? -0x1p31 : to == KT_I64 ? -0x1p63 : 0;
    double end = to == KT_I32 ? 0x1p31 : to == KT_U32 ? 0x1p32 : to == KT_I64 ? 0x1p63 : 0x1p64;
    if (x != x) return 0;
    if (x <= low) return (int64_t)low;
    if (x >= end)
        return to == KT_I32 ? INT32_MAX : to == KT_U32 ? UINT32_MAX : to == KT_I64 ? INT64_MAX : -1;
    return to == KT_U64 ? (int64_t)(uint64_t)x : (int64_t)x;
}

static Reg convert(KType from, KType to, Reg x) {
    Reg r = {0, 0};
    if (is_float(from) && is_float(to))
        r.f = to == KT_F32 ? (float)x.f : x.f;
    else if (is_float(from))
        r.i = truncate(to, x.f);
    else if (is_float(to) && from == KT_U64)
        r.f = to == KT_F32 ? (float)(uint64_t)x.i : (double)(uint64_t)x.i;
    else if (is_float(to))
        r.f = to == KT_F32 ? (float)x.i : (double)x.i;
    else
        r.i = wrap(to, (uint64_t)x.i);
    return r;
}

static Reg bitcast(KType from, KType to, Reg x) {
    uint32_t u = (uint32_t)x.i;
    float f = (float)x.f;
    Reg r = x;
    if (from == KT_F32) memcpy(&u, &f, 4);
    if (from == KT_F64) memcpy(&r.i, &x.f, 8);
    memcpy(&f, &u, 4);
    if (to == KT_F32) r.f = f;
    if (to == KT_F64) memcpy(&r.f, from == KT_F64 ? &r.i : &x.i, 8);
    if (to == KT_I32 || to == KT_U32) r.i = wrap(to, u);
    return r;
}

static Reg int_power(KType t, Reg x, int64_t e) {
    Reg r = {1, 1};
    if (is_float(t))
        r.f = pow(x.f, (double)e);
    else
        for (int64_t k = 0; k < e; k++) r.i = wrap(t, (uint64_t)r.i * (uint64_t)x.i);
    return r;
}

static uint64_t random_bits(const KArgs *a, const KInstr *in, const Reg *reg,
                            const int64_t *index) {
    const KImm *imm = k_program_imm(a->attr);
    uint64_t i = 0;
    for (int d = 0; d < a->out[0].rank; d++)
        i += (uint64_t)(index[d] + a->offsets[in->c + d]) * (uint64_t)imm[in->d + d].i;
    uint32_t key[2] = {(uint32_t)reg[in->a].i, (uint32_t)reg[in->b].i};
    uint32_t counter[2] = {(uint32_t)(i >> 32), (uint32_t)i};
    uint64_t o = k_naive_threefry(key, counter);
    return in->type == KT_I64 ? o : (o >> 32 ^ o) & 0xffffffff;
}

static Reg load(const KTensor *x, const int64_t *index) {
    Reg r = {0, 0};
    if (n_is_float(x->dtype))
        r.f = n_get(x, n_at(x, index));
    else
        r.i = n_get_int(x, n_at(x, index));
    return r;
}

static Reg immediate(KType t, KImm imm) {
    Reg r = {0, 0};
    if (is_float(t))
        r.f = t == KT_F32 ? (float)imm.f : imm.f;
    else
        r.i = wrap(t, (uint64_t)imm.i);
    return r;
}

static double multiply_add(KType t, double a, double b, double c) {
    return t == KT_F32 ? fmaf((float)a, (float)b, (float)c) : fma(a, b, c);
}

static int64_t threefry(const KInstr *in, const Reg *reg) {
    uint32_t key[2] = {(uint32_t)reg[in->a].i, (uint32_t)reg[in->b].i};
    uint32_t counter[2] = {(uint32_t)reg[in->c].i, (uint32_t)reg[in->d].i};
    return (int64_t)k_naive_threefry(key, counter);
}

/* An instruction of one or two registers, by where it stands among the others. */
static Reg arithmetic(const KInstr *in, const Reg *reg) {
    KOp op = (KOp)in->op;
    KType t = (KType)in->type;
    const Reg *x = &reg[in->a], *y = &reg[in->b];
    Reg r = {0, 0};
    if (op >= KI_EQ && op <= KI_GE)
        r.i = is_float(t)   ? COMPARE(op, x->f, y->f)
              : t == KT_U64 ? COMPARE(op, (uint64_t)x->i, (uint64_t)y->i)
                            : COMPARE(op, x->i, y->i);
    else if (op >= KI_ADD && is_float(t))
        r.f = binary_float(op, x->f, y->f);
    else if (op >= KI_ADD)
        r.i = binary_integer(op, t, x->i, y->i);
    else if (is_float(t))
        r.f = unary_float(op, x->f);
    else
        r.i = unary_integer(op, t, x->i);
    return r;
}

static Reg compute(const KArgs *args, const KInstr *in, const Reg *reg, const int64_t *index) {
    const KImm *imm = k_program_imm(args->attr);
    KType t = (KType)in->type;
    Reg r = {0, 0};
    switch ((KOp)in->op) {
    case KI_CONVERT: return convert(t, (KType)in->d, reg[in->a]);
    case KI_BITCAST: return bitcast(t, (KType)in->d, reg[in->a]);
    case KI_LOAD: r = load(&args->in[in->a], index); break;
    case KI_IMM: r = immediate(t, imm[in->a]); break;
    case KI_IOTA: r = convert(KT_I64, t, (Reg){0, index[in->a] + args->offsets[in->b]}); break;
    case KI_RANDOM_BITS: r.i = (int64_t)random_bits(args, in, reg, index); break;
    case KI_THREEFRY: r.i = threefry(in, reg); break;
    case KI_IS_FINITE: r.i = isfinite(reg[in->a].f) != 0; break;
    case KI_INT_POW: r = int_power(t, reg[in->a], imm[in->b].i); break;
    case KI_SELECT: r = reg[in->a].i ? reg[in->b] : reg[in->c]; break;
    case KI_FMA: r.f = multiply_add(t, reg[in->a].f, reg[in->b].f, reg[in->c].f); break;
    default: r = arithmetic(in, reg); break;
    }
    if (t == KT_F32) r.f = (float)r.f;
    return r;
}

static size_t fused_workspace(const KArgs *a) {
    return sizeof(Reg) * (size_t)((const KProgram *)a->attr)->nreg;
}

static int fused(const KArgs *a) {
    const KProgram *p = a->attr;
    const KInstr *code = k_program_code(p);
    Reg *reg = a->workspace;
    int64_t n = n_count(&a->out[0]), index[K_MAX_RANK];
    for (int64_t i = 0; i < n; i++) {
        n_index(&a->out[0], i, index);
        for (int k = 0; k < p->ninstr; k++) {
            if (code[k].op != KI_STORE) {
                reg[code[k].dst] = compute(a, &code[k], reg, index);
                continue;
            }
            const KTensor *y = &a->out[code[k].dst];
            if (n_is_float(y->dtype))
                n_put(y, n_at(y, index), reg[code[k].a].f);
            else
                n_put_int(y, n_at(y, index), reg[code[k].a].i);
        }
    }
    return 0;
}

const KernelRow k_rows_fused_naive[] = {
    {"fused", fused, NULL, fused_workspace},
    {NULL, NULL, NULL, NULL},
};
