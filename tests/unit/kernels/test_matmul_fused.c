/* test_matmul_fused.c - a product and a program on it, against the naive kernel. */
#include "kcheck.h"
#include "kprogram.h"

static _Alignas(16) char attr[sizeof(KMatmul) + sizeof program];

/* The attribute: these roles, then the program that was emitted. */
static void *fused(const KMatmul *roles) {
    memcpy(attr, roles, sizeof *roles);
    memcpy(attr + sizeof *roles, finish(), sizeof program);
    return attr;
}

typedef struct Dims {
    int64_t size[4][3]; /* by role, up to three dims each */
    int count[4];
} Dims;

static Tensor operand(DType t, const Dims *d, KRole a, KRole b, KRole c, uint8_t *roles,
                      Layout layout) {
    const KRole role[3] = {a, b, c};
    int64_t dims[K_MAX_RANK];
    int rank = 0;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < d->count[role[k]]; i++) {
            roles[rank] = (uint8_t)role[k];
            dims[rank++] = d->size[role[k]][i];
        }
    return tensor(t, rank, dims, layout);
}

static void finish_case(Case *c, const Dims *d, DType in, const KMatmul *roles) {
    int64_t k = 1;
    for (int i = 0; i < d->count[K_K]; i++) k *= d->size[K_K][i];
    c->name = "matmul_fused";
    c->products = 1;
    c->rtol = 4e-6;
    c->atol = (in == DT_F64 ? 1e-14 : 1e-6) * (double)(k + 4);
    c->attr = fused(roles);
    check_case(c);
}

/* bias and residual: outputs max(x w + b, r) as `out` and x w itself, the first maybe over r */
static void residual(const Dims *d, DType in, DType out, int dense, int alias) {
    KMatmul roles = {0};
    KType t = in == DT_F64 ? KT_F64 : in == DT_I32 ? KT_I32 : KT_F32;
    DType natural = t == KT_F64 ? DT_F64 : t == KT_I32 ? DT_I32 : DT_F32;
    Case c = {.nin = 4, .nout = 2};
    Layout layout = dense ? DENSE : ANY_BROADCAST;
    c.in[0] = operand(in, d, K_BATCH, K_M, K_K, roles.x, layout);
    c.in[1] = operand(in, d, K_BATCH, K_K, K_N, roles.w, layout);
    c.in[2] = operand(natural, d, K_BATCH, K_M, K_N, roles.y, ANY_BROADCAST);
    for (int k = 0; k < c.in[2].t.rank && dense; k++)
        if (roles.y[k] != K_N) c.in[2].strides[k] = 0;
    c.in[3] = operand(out, d, K_BATCH, K_M, K_N, roles.y, dense ? DENSE : ANY);
    for (int k = 0; k < 4; k++) fill(&c.in[k], -2, 2);
    c.out[0] = operand(out, d, K_BATCH, K_M, K_N, roles.y, dense ? DENSE : ANY);
    c.out[1] = operand(natural, d, K_BATCH, K_M, K_N, roles.y, dense ? DENSE : ANY);
    if (alias) alias_output(&c, 0, 3);
    for (int k = 0; k < 3; k++) emit(KI_LOAD, t, k, k, 0, 0, 0);
    emit(KI_ADD, t, 3, 0, 1, 0, 0);
    emit(KI_MAX, t, 3, 3, 2, 0, 0);
    emit(KI_STORE, t, 0, 3, 0, 0, 0);
    emit(KI_STORE, t, 1, 0, 0, 0, 0);
    finish_case(&c, d, in, &roles);
}

/* Indices along each dim and random bits, which depend on where in y a block lies. */
static void places(const Dims *d) {
    KMatmul roles = {0};
    int64_t offsets[16];
    Case c = {.nin = 2, .nout = 2, .offsets = offsets};
    c.in[0] = operand(DT_F32, d, K_BATCH, K_M, K_K, roles.x, DENSE);
    c.in[1] = operand(DT_F32, d, K_BATCH, K_K, K_N, roles.w, DENSE);
    for (int k = 0; k < 2; k++) fill(&c.in[k], 0, 0);
    for (int k = 0; k < 2; k++)
        c.out[k] = operand(k ? DT_U32 : DT_F32, d, K_BATCH, K_M, K_N, roles.y, k ? DENSE : ANY);
    int rank = c.out[0].t.rank, weight = 0;
    for (int k = 0; k < 16; k++) offsets[k] = below(100);
    emit(KI_LOAD, KT_F32, 0, 0, 0, 0, 0);
    for (int k = 0; k < rank; k++) {
        int w = imm(KT_F32, 1 + 3 * k, 0);
        emit(KI_IOTA, KT_F32, 1, k, k / 2, 0, 0); /* dims share offsets */
        emit(KI_IMM, KT_F32, 2, w, 0, 0, 0);
        emit(KI_FMA, KT_F32, 0, 1, 2, 0, 0);
    }
    emit(KI_STORE, KT_F32, 0, 0, 0, 0, 0);
    emit(KI_IMM, KT_U32, 1, imm(KT_U32, 0, 7), 0, 0, 0);
    emit(KI_IMM, KT_U32, 2, imm(KT_U32, 0, 9), 0, 0, 0);
    weight = prog.nimm;
    for (int k = 0; k < rank; k++) imm(KT_I64, 0, 1 + below(1 << 20));
    emit(KI_RANDOM_BITS, KT_U32, 3, 1, 2, 3, weight);
    emit(KI_STORE, KT_U32, 1, 3, 0, 0, 0);
    prog.noffset = rank + 3;
    finish_case(&c, d, DT_F32, &roles);
}

/* NaN and infinities of the product reach the program. */
static void odd_values(void) {
    Dims d = {.size = {{0}, {70}, {33}, {19}}, .count = {0, 1, 1, 1}};
    KMatmul roles = {0};
    Case c = {.nin = 2, .nout = 1};
    c.in[0] = operand(DT_F32, &d, K_BATCH, K_M, K_K, roles.x, DENSE);
    c.in[1] = operand(DT_F32, &d, K_BATCH, K_K, K_N, roles.w, DENSE);
    c.out[0] = operand(DT_F32, &d, K_BATCH, K_M, K_N, roles.y, DENSE);
    for (int k = 0; k < 2; k++) fill(&c.in[k], 1, 2);
    sprinkle(&c.in[0]);
    emit(KI_LOAD, KT_F32, 0, 0, 0, 0, 0);
    emit(KI_NEG, KT_F32, 0, 0, 0, 0, 0);
    emit(KI_STORE, KT_F32, 0, 0, 0, 0, 0);
    finish_case(&c, &d, DT_F32, &roles);
}

static void random_dims(Dims *d) {
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 16, 17, 33, 48, 65};
    for (int r = 0; r < 4; r++) {
        d->count[r] = (int)below(3);
        for (int i = 0; i < d->count[r]; i++)
            d->size[r][i] = sizes[below(d->count[r] == 1 && r ? 10 : 4)];
        if (d->count[r] && rnd() % 40 == 0) d->size[r][0] = 0;
    }
}

int main(void) {
    static const DType in[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32};
    for (int k = 0; k < 200; k++) {
        Dims d = {0};
        random_dims(&d);
        DType t = in[k % 5];
        residual(&d, t, t == DT_F32 && k % 2 ? DT_BF16 : t, k / 5 % 2, k / 10 % 2);
        places(&d);
    }
    Dims large[] = {
        {.size = {{0}, {7, 67}, {300}, {90, 7}}, .count = {0, 2, 1, 2}}, /* boxes of every kind */
        {.size = {{2}, {3, 5, 40}, {17}, {300}}, .count = {1, 3, 1, 1}},
        {.size = {{0}, {8, 64}, {40}, {384}}, .count = {0, 2, 1, 1}},
        {.size = {{0}, {1}, {520}, {700}}, .count = {0, 1, 1, 1}},
        {.size = {{0}, {700}, {520}, {1}}, .count = {0, 1, 1, 1}},
    };
    for (int k = 0; k < 5; k++) {
        residual(&large[k], DT_F32, DT_F32, 1, 1);
        residual(&large[k], DT_BF16, DT_BF16, 1, 0);
        residual(&large[k], DT_F32, DT_BF16, 0, 0);
        places(&large[k]);
    }
    odd_values();
    return test_end();
}
