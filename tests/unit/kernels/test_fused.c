/* test_fused.c - the fused kernel: every instruction in every type, random programs, loads and
 * stores of every layout, indices and random bits. */
#include "kcheck.h"
#include "kprogram.h"

static const DType natural[KT_COUNT] = {DT_F32, DT_F64, DT_I32, DT_U32, DT_I64, DT_U64};

static int is_float(KType t) {
    return t == KT_F32 || t == KT_F64;
}
static int operands(KOp op) {
    if (op == KI_SELECT || op == KI_FMA) return 3;
    return op == KI_THREEFRY ? 4 : op >= KI_ADD ? 2 : 1;
}
static int has(KOp op, KType t) {
    if (op >= KI_ROUND_BF16 && op <= KI_ROUND_E5M2) return t == KT_F32;
    if (op >= KI_AND && op <= KI_SHR) return !is_float(t);
    if (op == KI_ATAN2 || op == KI_POLYGAMMA) return is_float(t);
    if (op == KI_NOT) return !is_float(t);
    if (op >= KI_EXP && op <= KI_ROUND) return is_float(t);
    if (op == KI_IS_FINITE || op == KI_FMA) return is_float(t);
    return op != KI_THREEFRY && op != KI_CONVERT && op != KI_BITCAST;
}

static int64_t random_dims(int64_t *dims, int max_rank, int64_t limit) {
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 16, 17, 33, 64, 100, 255, 256, 257, 300};
    int rank = (int)below(max_rank + 1);
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        dims[d] = sizes[below(14)];
        if (n * dims[d] > limit) dims[d] = 1 + below(3);
        n *= dims[d];
    }
    return rank;
}

/* Accuracy against the exact value in float32: a few ulp, and more where the function is steep in
 * what the naive kernel rounds differently. */
static double rtol_of(KOp op, KType t) {
    if (t != KT_F32 && t != KT_F64) return 0;
    double ulp = t == KT_F32 ? 0x1p-24 : 0x1p-53;
    switch (op) {
    case KI_EXP:
    case KI_LOG:
    case KI_LOG1P:
    case KI_EXPM1: return 2 * 2 * ulp;
    case KI_TANH:
    case KI_LOGISTIC:
    case KI_ERF:
    case KI_SIN:
    case KI_COS:
    case KI_ERFC:
    case KI_ATAN2:
    case KI_POW: return 4 * 2 * ulp;
    case KI_LGAMMA: return 2 * 2 * ulp;
    case KI_POLYGAMMA: return t == KT_F32 ? 4 * ulp : 1e-12;
    case KI_ERF_INV: return t == KT_F32 ? 2e-6 : 1e-12;
    case KI_INT_POW: return 32 * ulp;
    case KI_RSQRT: return 4 * ulp;
    default: return 0;
    }
}

/* Orders of a derivative: whole numbers below `end`. */
static void fill_whole(Tensor *x, int64_t end) {
    for (int64_t i = 0; i < kt_count(x); i++)
        kt_put_float(x->t.dtype, kt_at(x, i), (double)below(end));
}

static void one_instruction(KOp op, KType t) {
    int64_t dims[8];
    int rank = (int)random_dims(dims, 3, 3000), n = operands(op);
    Case c = {.name = "fused",
              .nin = n,
              .nout = 1,
              .rtol = rtol_of(op, t),
              .atol = op == KI_POLYGAMMA ? 1e-13
                      : t == KT_F32      ? 0x1p-148
                                         : 0};
    DType in = natural[t], out = in;
    for (int k = 0; k < n; k++) {
        DType dt = op == KI_SELECT && k == 0 ? DT_BOOL : in;
        c.in[k] = tensor(dt, rank, dims, rnd() % 2 ? DENSE : ANY_BROADCAST);
        double range = op == KI_ERF_INV               ? 0.9
                       : op == KI_SIN || op == KI_COS ? 1e4
                       : rnd() % 2                    ? 100
                                                      : 2;
        if (!is_float(t))
            range = (op == KI_SHL || op == KI_SHR || op == KI_POW) && k == 1 && rnd() % 4 ? 70 : 0;
        fill(&c.in[k], op == KI_POW && k == 0 && range > 0 ? 0 : -range, range);
        if (op == KI_POLYGAMMA && k == 0)
            fill_whole(&c.in[k], 4);
        else if (rnd() % 2)
            sprinkle(&c.in[k]);
        emit(KI_LOAD, t, k, k, 0, 0, 0);
    }
    int extra = op == KI_INT_POW ? imm(KT_I64, 0, below(12)) : 1;
    emit(op, t, n == 1 ? (int)below(2) : (int)below(n + 1), 0, extra, 2, 3);
    if (op >= KI_EQ && op <= KI_GE) out = rnd() % 2 ? DT_BOOL : DT_I32;
    if (op == KI_IS_FINITE) out = DT_BOOL;
    emit(KI_STORE, t, 0, prog.code[prog.ninstr - 1].dst, 0, 0, 0);
    c.out[0] = tensor(out, rank, dims, rnd() % 2 ? DENSE : ANY);
    c.attr = finish();
    int before = test_failures;
    check_case(&c);
    if (test_failures != before) fprintf(stderr, "  (op %d type %d)\n", (int)op, (int)t);
}

static void conversion(KType from, KType to, int bits) {
    int64_t dims[8];
    int rank = (int)random_dims(dims, 2, 2000);
    Case c = {.name = "fused", .nin = 1, .nout = 1};
    c.in[0] = tensor(natural[from], rank, dims, rnd() % 2 ? DENSE : ANY_BROADCAST);
    double range = is_float(from) ? (rnd() % 2 ? 3e9 : 3e19) : 0;
    fill(&c.in[0], bits ? 0 : -range, range);
    if (!bits) sprinkle(&c.in[0]);
    emit(KI_LOAD, from, 0, 0, 0, 0, 0);
    emit(bits ? KI_BITCAST : KI_CONVERT, from, (int)below(2), 0, 0, 0, (int)to);
    emit(KI_STORE, to, 0, prog.code[1].dst, 0, 0, 0);
    c.out[0] = tensor(natural[to], rank, dims, rnd() % 2 ? DENSE : ANY);
    c.attr = finish();
    check_case(&c);
}

/* Loads and stores of every dtype through the register it travels in, several outputs. */
static void storage(DType t) {
    const KType reg = k_dtype_register(t);
    int64_t dims[8];
    int rank = (int)random_dims(dims, 4, 5000);
    if (rnd() % 8 == 0 && rank) dims[below(rank)] = 0;
    Case c = {.name = "fused", .nin = 1, .nout = 2};
    c.in[0] = tensor(t, rank, dims, (Layout)below(4));
    fill(&c.in[0], kt_is_float(t) ? -1e5 : 0, kt_is_float(t) ? 1e5 : 0);
    if (rnd() % 2) sprinkle(&c.in[0]);
    emit(KI_LOAD, reg, 0, 0, 0, 0, 0);
    emit(KI_STORE, reg, 0, 0, 0, 0, 0);
    if (reg == KT_F32) {
        emit(KI_ROUND_BF16, KT_F32, 1, 0, 0, 0, 0);
        emit(KI_STORE, KT_F32, 1, 1, 0, 0, 0);
        c.out[1] = tensor(DT_BF16, rank, dims, ANY);
    } else {
        emit(KI_STORE, reg, 1, 0, 0, 0, 0);
        c.out[1] = tensor(t, rank, dims, DENSE);
    }
    c.out[0] = tensor(t, rank, dims, ANY);
    c.attr = finish();
    check_case(&c);
}

/* A float program as the fuse pass makes them: some broadcast inputs, immediates, reused registers,
 * results stored as soon as they are there, an output that may alias an input. */
static void random_program(void) {
    static const KOp ops[] = {KI_ADD, KI_SUB, KI_MUL, KI_MAX,  KI_MIN,   KI_ABS,
                              KI_NEG, KI_FMA, KI_DIV, KI_SQRT, KI_FLOOR, KI_SELECT};
    int64_t dims[8];
    int rank = (int)random_dims(dims, 3, 4000), nin = 1 + (int)below(4),
        regs = nin + 2 + (int)below(3);
    Case c = {.name = "fused", .nin = nin, .nout = 1 + (int)below(3)};
    int alias = rnd() % 2;
    for (int k = 0; k < nin; k++) {
        c.in[k] = tensor(DT_F32, rank, dims,
                         k == 0 && alias ? (rnd() % 2 ? DENSE : ANY) : (Layout)(below(2) * 3));
        fill(&c.in[k], -4, 4);
        emit(KI_LOAD, KT_F32, k, k, 0, 0, 0);
    }
    emit(KI_IMM, KT_F32, nin, imm(KT_F32, 0.5, 0), 0, 0, 0);
    for (int k = nin + 1; k < regs; k++)
        emit(KI_ADD, KT_F32, k, (int)below(k), (int)below(k), 0, 0);
    for (int k = 0; k < 12; k++) {
        KOp op = ops[below(12)];
        if (op == KI_SELECT) {
            emit(KI_LT, KT_F32, regs, (int)below(regs), (int)below(regs), 0, 0);
            emit(KI_SELECT, KT_F32, (int)below(regs), regs, (int)below(regs), (int)below(regs), 0);
        } else {
            emit(op, KT_F32, (int)below(regs), (int)below(regs), (int)below(regs), (int)below(regs),
                 0);
        }
        if (k == 5) emit(KI_STORE, KT_F32, 0, (int)below(regs), 0, 0, 0);
    }
    for (int k = 1; k < c.nout; k++) emit(KI_STORE, KT_F32, k, (int)below(regs), 0, 0, 0);
    for (int k = 0; k < c.nout; k++) c.out[k] = tensor(DT_F32, rank, dims, rnd() % 2 ? DENSE : ANY);
    if (alias) {
        free(c.out[0].block);
        c.out[0] = c.in[0];
        c.alias[0] = 1;
    }
    c.attr = finish();
    check_case(&c);
}

/* Two instructions, the second reading the first as operand `at`, give the same bits whether they
 * can be one instruction or not (as when the value between them is stored too). */
static void pair(KOp first, KOp second, int at) {
    int64_t dim = 16 * (1 + below(20)) + below(2);
    int compares = first >= KI_EQ && first <= KI_GE;
    KFault fault;
    Case c[2];
    Tensor in[4];
    for (int k = 0; k < 4; k++) {
        in[k] = tensor(DT_F32, 1, &dim, DENSE);
        fill(&in[k], -3, 3);
    }
    for (int both = 0; both < 2; both++) {
        c[both] = (Case){.name = "fused", .nin = 4, .nout = 1 + both};
        for (int k = 0; k < 4; k++) emit(KI_LOAD, KT_F32, k, k, 0, 0, 0);
        emit(first, KT_F32, 4, 0, 1, 2, 0);
        emit(second, KT_F32, 5, at == 0 ? 4 : 2, at == 1 ? 4 : 3, at == 2 ? 4 : 1, 0);
        emit(KI_STORE, KT_F32, 0, 5, 0, 0, 0);
        if (both) emit(KI_STORE, compares ? KT_I32 : KT_F32, 1, 4, 0, 0, 0);
        c[both].attr = finish();
        for (int k = 0; k < 1 + both; k++)
            c[both].out[k] = tensor(k && compares ? DT_I32 : DT_F32, 1, &dim, DENSE);
        CHECK(kc_run(&c[both], kc_row(k_cpu_best_level(), "fused"), in, c[both].out, 0, &fault) ==
              0);
    }
    CHECKF(kc_same_bits(&c[0].out[0], &c[1].out[0]), "%d then %d at %d", (int)first, (int)second,
           at);
    for (int k = 0; k < 4; k++) free(in[k].block);
    free(c[0].out[0].block);
    for (int k = 0; k < 2; k++) free(c[1].out[k].block);
}

static void superinstructions(void) {
    static const KOp firsts[] = {KI_ADD, KI_SUB, KI_MUL, KI_FMA};
    static const KOp seconds[] = {KI_ADD,  KI_SUB,      KI_MUL,  KI_DIV,   KI_EXP,
                                  KI_TANH, KI_LOGISTIC, KI_SQRT, KI_RSQRT, KI_FMA};
    for (int f = 0; f < 4; f++)
        for (int s = 0; s < 10; s++)
            for (int at = 0; at < operands(seconds[s]); at++) pair(firsts[f], seconds[s], at);
    for (int op = KI_EQ; op <= KI_GE; op++) pair((KOp)op, KI_SELECT, 0);
}

static void indices(KType t) {
    int64_t dims[8], offsets[8];
    int rank = (int)random_dims(dims, 4, 5000);
    if (rank == 0) dims[rank++] = 5;
    Case c = {.name = "fused", .nout = 1, .offsets = offsets};
    for (int d = 0; d < 8; d++) offsets[d] = below(1000);
    prog.noffset = rank;
    emit(KI_IOTA, t, 0, (int)below(rank), (int)below(rank), 0, 0);
    emit(KI_STORE, t, 0, 0, 0, 0, 0);
    c.out[0] = tensor(natural[t], rank, dims, rnd() % 2 ? DENSE : ANY);
    c.attr = finish();
    check_case(&c);
}

static void random_bits(KType t) {
    int64_t dims[8], offsets[8];
    int rank = (int)random_dims(dims, 4, 5000);
    Case c = {.name = "fused", .nin = 2, .nout = 1, .offsets = offsets};
    for (int k = 0; k < 2; k++) {
        c.in[k] = tensor(DT_U32, rank, dims, rnd() % 2 ? ANY : ANY_BROADCAST);
        if (rnd() % 2) memset(c.in[k].strides, 0, sizeof c.in[k].strides);
        fill(&c.in[k], 0, 0);
        emit(KI_LOAD, KT_U32, k, k, 0, 0, 0);
    }
    emit(KI_RANDOM_BITS, t, 2, 0, 1, 1, 0);
    emit(KI_STORE, t, 0, 2, 0, 0, 0);
    for (int d = 0; d < rank; d++) imm(KT_I64, 0, (int64_t)(rnd() >> (rnd() % 2 ? 30 : 60)));
    for (int d = 0; d < 8; d++) offsets[d] = below(100);
    c.out[0] = tensor(natural[t], rank, dims, rnd() % 2 ? DENSE : ANY);
    c.attr = finish();
    check_case(&c);
}

/* Random123's known answers, through the instruction. */
static void known_answers(void) {
    static const uint32_t keys[3][2] = {{0, 0}, {~0u, ~0u}, {0x13198a2e, 0x03707344}};
    static const uint32_t counters[3][2] = {{0, 0}, {~0u, ~0u}, {0x243f6a88, 0x85a308d3}};
    static const uint64_t want[3] = {0x6b20015999ba4efe, 0x1cb996fcbb002be7, 0xc4923a9c483df7a0};
    int64_t dim = 3;
    Case c = {.name = "fused", .nin = 4, .nout = 1};
    for (int k = 0; k < 4; k++) {
        c.in[k] = tensor(DT_U32, 1, &dim, DENSE);
        for (int i = 0; i < 3; i++)
            kt_put_int(DT_U32, kt_at(&c.in[k], i), k < 2 ? keys[i][k] : counters[i][k - 2]);
        emit(KI_LOAD, KT_U32, k, k, 0, 0, 0);
    }
    emit(KI_THREEFRY, KT_U32, 4, 0, 1, 2, 3);
    emit(KI_STORE, KT_I64, 0, 4, 0, 0, 0);
    c.out[0] = tensor(DT_I64, 1, &dim, DENSE);
    c.attr = finish();
    KFault fault;
    CHECK(kc_run(&c, kc_row("naive", "fused"), c.in, c.out, 0, &fault) == 0);
    for (int i = 0; i < 3; i++) CHECK(kt_int(DT_I64, kt_at(&c.out[0], i)) == (int64_t)want[i]);
    check_case(&c);
}

/* jax.random.bits(jax.random.key(42), (2, 3)) of JAX 0.10 (partitionable): key (0, 42). */
static void jax_bits(void) {
    static const uint32_t want[] = {0x7d1c13a2, 0xae0730d9, 0x9dc3f9f9,
                                    0x8f9ec1d7, 0x735d7315, 0x95fb4ed8};
    int64_t dims[2] = {2, 3}, offsets[2] = {0, 0};
    Case c = {.name = "fused", .nout = 1, .offsets = offsets};
    emit(KI_IMM, KT_U32, 0, imm(KT_U32, 0, 0), 0, 0, 0);
    emit(KI_IMM, KT_U32, 1, imm(KT_U32, 0, 42), 0, 0, 0);
    imm(KT_I64, 0, 3);
    imm(KT_I64, 0, 1);
    emit(KI_RANDOM_BITS, KT_U32, 2, 0, 1, 0, 2);
    emit(KI_STORE, KT_U32, 0, 2, 0, 0, 0);
    c.out[0] = tensor(DT_U32, 2, dims, DENSE);
    c.attr = finish();
    KFault fault;
    CHECK(kc_run(&c, kc_row("naive", "fused"), c.in, c.out, 0, &fault) == 0);
    for (int i = 0; i < 6; i++) CHECK(kt_int(DT_U32, kt_at(&c.out[0], i)) == want[i]);
    check_case(&c);
}

int main(void) {
    for (int op = KI_NEG; op < KI_COUNT; op++)
        for (int t = 0; t < KT_COUNT; t++)
            for (int k = 0; k < 20 && has((KOp)op, (KType)t); k++)
                one_instruction((KOp)op, (KType)t);
    for (int from = 0; from < KT_COUNT; from++)
        for (int to = 0; to < KT_COUNT; to++)
            for (int k = 0; k < 12; k++) conversion((KType)from, (KType)to, 0);
    static const KType pairs[][2] = {
        {KT_F32, KT_I32}, {KT_F32, KT_U32}, {KT_I32, KT_F32}, {KT_U32, KT_F32}, {KT_F64, KT_I64},
        {KT_I64, KT_F64}, {KT_I32, KT_U32}, {KT_U32, KT_I32}, {KT_U64, KT_I64}, {KT_F64, KT_U64}};
    for (int k = 0; k < 20; k++) conversion(pairs[k % 10][0], pairs[k % 10][1], 1);
    for (int k = 0; k < 60; k++)
        for (int t = 0; t < DT_COUNT; t++) storage((DType)t);
    for (int k = 0; k < 1500; k++) random_program();
    for (int k = 0; k < 4; k++) superinstructions();
    for (int k = 0; k < 50; k++) indices((KType)(k % KT_COUNT));
    for (int k = 0; k < 40; k++) random_bits(k % 2 ? KT_U32 : KT_I64);
    known_answers();
    jax_bits();
    return test_end();
}
