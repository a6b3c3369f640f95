/* instr_pair.c - pairs of float32 instructions as one loop (instr.h, k_pair_fn). */
#include "instr.h"
#include "vmath.h"

/* `value` is made of x, y, z, u: the sources in order. */
#define PAIR(name, value)                                                                          \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        float *dst = (float *)(void *)dst_;                                                        \
        const float *a = (const float *)(const void *)src[0];                                      \
        const float *b = (const float *)(const void *)src[1];                                      \
        const float *c = (const float *)(const void *)src[2];                                      \
        const float *d = (const float *)(const void *)src[3];                                      \
        n &= ~(int64_t)(K_STEP - 1);                                                               \
        K_IVDEP for (int64_t i = 0; i < n; i++) {                                                  \
            float x = a[i], y = b[i], z = c[i], u = d[i];                                          \
            (void)y, (void)z, (void)u;                                                             \
            dst[i] = value;                                                                        \
        }                                                                                          \
    }

/* t: the first result, made of x and y; z and u: what else the second reads */
#define SECONDS(name, t)                                                                           \
    PAIR(name##_add, (t) + z)                                                                      \
    PAIR(name##_sub, (t)-z)                                                                        \
    PAIR(name##_from, z - (t))                                                                     \
    PAIR(name##_mul, (t)*z)                                                                        \
    PAIR(name##_div, (t) / z)                                                                      \
    PAIR(name##_under, z / (t))                                                                    \
    PAIR(name##_exp, vm_exp(t))                                                                    \
    PAIR(name##_tanh, vm_tanh(t))                                                                  \
    PAIR(name##_logistic, vm_logistic(t))                                                          \
    PAIR(name##_sqrt, sqrtf(t))                                                                    \
    PAIR(name##_rsqrt, 1.0f / sqrtf(t))                                                            \
    PAIR(name##_fma, k_fma(t, z, u))                                                               \
    PAIR(name##_fma_to, k_fma(z, u, t))
SECONDS(add, x + y)
SECONDS(sub, x - y)
SECONDS(mul, x *y)

/* The same with u for z after a multiply-add, which has three sources. */
PAIR(fma_add, k_fma(x, y, z) + u)
PAIR(fma_sub, k_fma(x, y, z) - u)
PAIR(fma_from, u - k_fma(x, y, z))
PAIR(fma_mul, k_fma(x, y, z) * u)
PAIR(fma_exp, vm_exp(k_fma(x, y, z)))
PAIR(fma_tanh, vm_tanh(k_fma(x, y, z)))

PAIR(select_eq, x == y ? z : u)
PAIR(select_ne, x != y ? z : u)
PAIR(select_lt, x < y ? z : u)
PAIR(select_le, x <= y ? z : u)
PAIR(select_gt, x > y ? z : u)
PAIR(select_ge, x >= y ? z : u)

enum {
    ADD,
    SUB,
    FROM,
    MUL,
    DIV,
    UNDER,
    EXP,
    TANH,
    LOGISTIC,
    SQRT,
    RSQRT,
    FMA,
    FMA_TO,
    SECOND_COUNT
};

#define ROW(name)                                                                                  \
    {                                                                                              \
        name##_add, name##_sub, name##_from, name##_mul, name##_div, name##_under, name##_exp,     \
            name##_tanh, name##_logistic, name##_sqrt, name##_rsqrt, name##_fma, name##_fma_to     \
    }
static KInstrFn *const after_add[SECOND_COUNT] = ROW(add);
static KInstrFn *const after_sub[SECOND_COUNT] = ROW(sub);
static KInstrFn *const after_mul[SECOND_COUNT] = ROW(mul);
static KInstrFn *const after_fma[SECOND_COUNT] = {
    [ADD] = fma_add, [SUB] = fma_sub, [FROM] = fma_from,
    [MUL] = fma_mul, [EXP] = fma_exp, [TANH] = fma_tanh,
};
static KInstrFn *const selects[] = {select_eq, select_ne, select_lt,
                                    select_le, select_gt, select_ge};

static int second_of(KOp op, int at) {
    switch (op) {
    case KI_ADD: return ADD;
    case KI_SUB: return at == 0 ? SUB : FROM;
    case KI_MUL: return MUL;
    case KI_DIV: return at == 0 ? DIV : UNDER;
    case KI_EXP: return EXP;
    case KI_TANH: return TANH;
    case KI_LOGISTIC: return LOGISTIC;
    case KI_SQRT: return SQRT;
    case KI_RSQRT: return RSQRT;
    case KI_FMA: return at == 2 ? FMA_TO : FMA;
    default: return -1;
    }
}

KInstrFn *k_pair_fn(const KInstr *first, const KInstr *second, int at) {
    if (first->type != KT_F32 || second->type != KT_F32) return NULL;
    if (second->op == KI_SELECT && at == 0 && first->op >= KI_EQ && first->op <= KI_GE)
        return selects[first->op - KI_EQ];
    int s = second_of((KOp)second->op, at);
    if (s < 0) return NULL;
    switch (first->op) {
    case KI_ADD: return after_add[s];
    case KI_SUB: return after_sub[s];
    case KI_MUL: return after_mul[s];
    case KI_FMA: return after_fma[s];
    default: return NULL;
    }
}
