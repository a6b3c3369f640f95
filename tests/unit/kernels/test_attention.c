/* test_attention.c - attention and its gradient: tiles, masks, grouped heads, views. */
#include "kcheck.h"

typedef struct Shape {
    int64_t b, t, s, h, g, d;
} Shape;

static double tolerance(DType t) {
    return t == DT_F64 ? 1e-13 : t == DT_F32 ? 1e-5 : 2e-3; /* 16 bits: y is rounded before delta */
}

static void forward(DType t, Shape n, int causal, Layout layout) {
    KAttention attr = {1 / sqrt((double)n.d + 1), causal};
    int64_t q[] = {n.b, n.t, n.h, n.d}, k[] = {n.b, n.s, n.g, n.d}, lse[] = {n.b, n.h, n.t};
    Case c = {.name = "attention",
              .attr = &attr,
              .nin = 3,
              .nout = 2,
              .rtol = tolerance(t) / 10,
              .atol = tolerance(t) / 10,
              .products = 1};
    c.in[0] = tensor(t, 4, q, layout);
    c.in[1] = tensor(t, 4, k, layout);
    c.in[2] = tensor(t, 4, k, layout);
    for (int i = 0; i < 3; i++) fill(&c.in[i], -2, 2);
    if (rnd() % 4 == 0) sprinkle(&c.in[0]); /* spoils the queries it is in, no others */
    c.out[0] = tensor(t, 4, q, layout == ANY_BROADCAST ? ANY : layout);
    c.out[1] = tensor(t == DT_F64 ? t : DT_F32, 3, lse, layout == DENSE ? DENSE : ANY);
    check_case(&c);
}

/* y and lse are the naive forward's, so that they belong to q, k and v. */
static void backward(DType t, Shape n, int causal, Layout layout) {
    KAttention attr = {1 / sqrt((double)n.d + 1), causal};
    int64_t q[] = {n.b, n.t, n.h, n.d}, k[] = {n.b, n.s, n.g, n.d}, lse[] = {n.b, n.h, n.t};
    Case c = {.name = "attention_grad",
              .attr = &attr,
              .nin = 6,
              .nout = 3,
              .rtol = tolerance(t),
              .atol = tolerance(t),
              .products = 1};
    for (int i = 0; i < 6; i++) {
        c.in[i] = i == 4 ? tensor(t == DT_F64 ? t : DT_F32, 3, lse, layout == DENSE ? DENSE : ANY)
                         : tensor(t, 4, i == 1 || i == 2 ? k : q,
                                  layout == ANY_BROADCAST && i > 2 ? ANY : layout);
        fill(&c.in[i], -2, 2);
    }
    for (int i = 0; i < 3; i++)
        c.out[i] = tensor(t, 4, i == 0 ? q : k, layout == ANY_BROADCAST ? ANY : layout);
    static Case f;
    f = (Case){.name = "attention",
               .attr = &attr,
               .nin = 3,
               .nout = 2,
               .in = {c.in[0], c.in[1], c.in[2]},
               .out = {c.in[3], c.in[4]}};
    KFault fault;
    CHECK(kc_run(&f, kc_row("naive", "attention"), f.in, f.out, 0, &fault) == 0);
    check_case(&c);
}

int main(void) {
    static const DType floats[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
    static const int64_t depths[] = {1, 3, 8, 16, 20, 32, 33};
    for (int k = 0; k < 120; k++) {
        int64_t g = 1 + below(2);
        Shape n = {below(3), 1 + below(9), 1 + below(9), g * (1 + below(2)), g, depths[below(7)]};
        if (rnd() % 16 == 0) *(rnd() % 2 ? &n.t : &n.s) = 0;
        forward(floats[k % 4], n, k / 4 % 2, (Layout)below(4));
        backward(floats[k % 4], n, k / 4 % 2, (Layout)below(4));
    }
    /* more than one tile of queries and of keys, exactly full tiles, tails */
    Shape large[] = {{1, 70, 140, 2, 1, 16},
                     {1, 128, 128, 1, 1, 32},
                     {1, 65, 300, 1, 1, 24},
                     {1, 140, 70, 2, 2, 64}};
    for (int k = 0; k < 16; k++) {
        DType t = k < 8 ? DT_F32 : k < 12 ? DT_BF16 : DT_F64;
        forward(t, large[k % 4], k / 4 % 2, k % 2 ? DENSE : ANY);
        backward(t, large[k % 4], k / 4 % 2, k % 2 ? DENSE : ANY);
    }
    return test_end();
}
