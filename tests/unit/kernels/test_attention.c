/* test_attention.c - attention and its gradient: tiles, masks, dropout, grouped heads, views. */
#include "kcheck.h"

typedef struct Shape {
    int64_t b, t, s, h, g, d;
} Shape;

static double tolerance(DType t) {
    return t == DT_F64 ? 1e-13 : t == DT_F32 ? 1e-5 : 2e-3; /* 16 bits: y is rounded before delta */
}
/* Of a number near 1: a GPU's tensor cores take probabilities, and the gradients of scores, as
 * numbers of 16 bits. */
static double rounding(DType t) {
#ifdef KC_CUDA
    if (t != DT_F32 && t != DT_F64) return t == DT_BF16 ? 0x1p-8 : 0x1p-11;
#endif
    (void)t;
    return 0;
}

/* Appends a mask, in which some queries look nowhere, and a key; `keep` and the place in the whole
 * go to attr. */
static void add_mask(Case *c, KAttention *attr, int64_t *offsets, Shape n, Layout layout) {
    static const double keeps[] = {1, 0.8, 0.3};
    int64_t mask[] = {n.b, n.h, n.t, n.s}, two = 2;
    Tensor *m = &c->in[c->nin], *key = m + 1;
    *m = tensor(DT_BOOL, 4, mask, layout);
    for (int64_t i = 0; i < kt_count(m); i++) *kt_at(m, i) = i / (n.s ? n.s : 1) % 5 && rnd() % 3;
    *key = tensor(DT_U32, 1, &two, layout == DENSE ? DENSE : ANY);
    for (int i = 0; i < 2; i++) memcpy(kt_at(key, i), &(uint32_t){(uint32_t)rnd()}, 4);
    attr->keep = keeps[below(3)];
    int64_t global[] = {n.b + below(3), n.h + below(3), n.t + below(3), n.s};
    for (int64_t d = 3, stride = rnd() % 8 ? 1 : 1 << 26; d >= 0; stride *= global[d--]) {
        attr->strides[d] = stride;
        offsets[d] = below(global[d] - mask[d] + 1);
    }
    c->offsets = offsets;
    c->nin += 2;
}

static void forward(DType t, Shape n, int causal, int masked, Layout layout) {
    KAttention attr = {.scale = 1 / sqrt((double)n.d + 1), .causal = causal};
    int64_t q[] = {n.b, n.t, n.h, n.d}, k[] = {n.b, n.s, n.g, n.d}, lse[] = {n.b, n.h, n.t};
    int64_t offsets[4];
    Case c = {.name = masked ? "masked_attention" : "attention",
              .attr = &attr,
              .nin = 3,
              .nout = 2,
              .rtol = tolerance(t) / 10,
              .atol = tolerance(t) / 10 + 4 * rounding(t),
              .products = 1};
    c.in[0] = tensor(t, 4, q, layout);
    c.in[1] = tensor(t, 4, k, layout);
    c.in[2] = tensor(t, 4, k, layout);
    for (int i = 0; i < 3; i++) fill(&c.in[i], -2, 2);
    if (rnd() % 4 == 0) sprinkle(&c.in[0]); /* spoils the queries it is in, no others */
    if (masked) add_mask(&c, &attr, offsets, n, layout);
    c.out[0] = tensor(t, 4, q, layout == ANY_BROADCAST ? ANY : layout);
    c.out[1] = tensor(t == DT_F64 ? t : DT_F32, 3, lse, layout == DENSE ? DENSE : ANY);
    check_case(&c);
}

/* y and lse are the naive forward's, so that they belong to q, k and v. */
static void backward(DType t, Shape n, int causal, int masked, Layout layout) {
    KAttention attr = {.scale = 1 / sqrt((double)n.d + 1), .causal = causal};
    int64_t q[] = {n.b, n.t, n.h, n.d}, k[] = {n.b, n.s, n.g, n.d}, lse[] = {n.b, n.h, n.t};
    int64_t offsets[4];
    Case c = {.name = masked ? "masked_attention_grad" : "attention_grad",
              .attr = &attr,
              .nin = 6,
              .nout = 3,
              .rtol = tolerance(t),
              .atol = tolerance(t) + 8 * rounding(t),
              .products = 1};
    for (int i = 0; i < 6; i++) {
        c.in[i] = i == 4 ? tensor(t == DT_F64 ? t : DT_F32, 3, lse, layout == DENSE ? DENSE : ANY)
                         : tensor(t, 4, i == 1 || i == 2 ? k : q,
                                  layout == ANY_BROADCAST && i > 2 ? ANY : layout);
        fill(&c.in[i], -2, 2);
    }
    if (masked) add_mask(&c, &attr, offsets, n, layout);
    for (int i = 0; i < 3; i++)
        c.out[i] = tensor(t, 4, i == 0 ? q : k, layout == ANY_BROADCAST ? ANY : layout);
    static Case f;
    f = (Case){.name = masked ? "masked_attention" : "attention",
               .attr = &attr,
               .offsets = c.offsets,
               .nin = masked ? 5 : 3,
               .nout = 2,
               .in = {c.in[0], c.in[1], c.in[2], c.in[6], c.in[7]},
               .out = {c.in[3], c.in[4]}};
    KFault fault;
    CHECK(kc_run(&f, kc_row("naive", f.name), f.in, f.out, 0, &fault) == 0);
    check_case(&c);
}

/* Few rows and keys, any depths. */
static void small_cases(void) {
    static const DType floats[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
    static const int64_t depths[] = {1, 3, 8, 16, 20, 32, 33};
    for (int k = 0; k < 240; k++) {
        int64_t g = 1 + below(2);
        Shape n = {below(3), 1 + below(9), 1 + below(9), g * (1 + below(2)), g, depths[below(7)]};
        if (rnd() % 16 == 0) *(rnd() % 2 ? &n.t : &n.s) = 0;
        forward(floats[k % 4], n, k / 4 % 2, k / 8 % 2, (Layout)below(4));
        backward(floats[k % 4], n, k / 4 % 2, k / 8 % 2, (Layout)below(4));
    }
}

/* More than one tile of queries and of keys, exactly full tiles, tails. */
static void large_cases(void) {
    Shape large[] = {{1, 70, 140, 2, 1, 16},
                     {1, 128, 128, 1, 1, 32},
                     {1, 65, 300, 1, 1, 24},
                     {1, 140, 70, 2, 2, 64}};
    for (int k = 0; k < 32; k++) {
        DType t = k < 16 ? DT_F32 : k < 24 ? DT_BF16 : DT_F64;
        forward(t, large[k % 4], k / 4 % 2, k / 8 % 2, k / 2 % 2 ? DENSE : ANY);
        backward(t, large[k % 4], k / 4 % 2, k / 8 % 2, k / 2 % 2 ? DENSE : ANY);
    }
}

/* Blocks of a GPU's tensor cores with all their warps. */
static void block_cases(void) {
    Shape n = {1, 130, 140, 2, 1, 64};
    for (int masked = 0; masked < 2; masked++) {
        forward(DT_BF16, n, 1, masked, DENSE);
        backward(DT_BF16, n, 1, masked, DENSE);
    }
}

/* `blocks`: those cases alone. */
int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "blocks") == 0) {
        block_cases();
        return test_end();
    }
    small_cases();
    large_cases();
    return test_end();
}
