/* test_attention.c - attention and its gradient: tiles, options, grouped heads, views. */
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

/* int32 numbers from `low` on, `most` of them. */
static Tensor ids(int rank, const int64_t *dims, Layout layout, int64_t low, int64_t most) {
    Tensor x = tensor(DT_I32, rank, dims, layout);
    for (int64_t i = 0; i < kt_count(&x); i++) {
        int32_t id = (int32_t)(low + below(most) * (rnd() % 64 ? 1 : 1 << 20));
        memcpy(kt_at(&x, i), &id, sizeof id);
    }
    return x;
}

/* A place in a larger whole, in which dropout and rows of queries count. */
static void add_place(KAttention *attr, int64_t *offsets, Shape n) {
    static const double keeps[] = {1, 0.8, 0.3};
    int64_t mine[] = {n.b, n.h, n.t, n.s};
    int64_t global[] = {n.b + below(3), n.h + below(3), n.t + below(3), n.s};
    attr->keep = keeps[below(3)];
    for (int64_t d = 3, stride = rnd() % 8 ? 1 : 1 << 26; d >= 0; stride *= global[d--]) {
        attr->strides[d] = stride;
        offsets[d] = below(global[d] - mine[d] + 1);
    }
}

static Tensor option(KAttentionOption o, DType t, Shape n, Layout layout) {
    int64_t scores[] = {n.b, n.h, n.t, n.s}, queries[] = {n.b, n.t}, keys[] = {n.b, n.s}, two = 2;
    Tensor x;
    switch (o) {
    case K_ATTENTION_MASK:
        x = tensor(DT_BOOL, 4, scores, layout);
        for (int64_t i = 0; i < kt_count(&x); i++)
            *kt_at(&x, i) = i / (n.s ? n.s : 1) % 5 && rnd() % 3; /* some queries look nowhere */
        return x;
    case K_ATTENTION_KEY: return ids(1, &two, layout == DENSE ? DENSE : ANY, 0, 1 << 30);
    case K_ATTENTION_BIAS:
        x = tensor(t == DT_F64 ? t : rnd() % 2 ? DT_F32 : DT_BF16, 4, scores, layout);
        fill(&x, -2, 2);
        return x;
    case K_ATTENTION_LENGTHS: return ids(1, &n.b, layout, -1, n.s + 3);
    case K_ATTENTION_QUERY_LENGTHS: return ids(1, &n.b, layout, -1, n.t + 4);
    case K_ATTENTION_OFFSET: return ids(1, &n.b, layout, -2, n.s + 4);
    case K_ATTENTION_QUERY_SEGMENTS: return ids(2, queries, layout, 0, 3);
    default: return ids(2, keys, layout, 0, 3);
    }
}

/* Appends those of the options whose bits are set. */
static void add_options(Case *c, KAttention *attr, int64_t *offsets, Shape n, unsigned some,
                        Layout layout) {
    DType t = c->in[0].t.dtype;
    if (some >> K_ATTENTION_QUERY_SEGMENTS & 1) some |= 1u << K_ATTENTION_SEGMENTS;
    if (some >> K_ATTENTION_SEGMENTS & 1) some |= 1u << K_ATTENTION_QUERY_SEGMENTS;
    if (some) add_place(attr, offsets, n);
    if (some) c->offsets = offsets;
    for (int o = 0; o < K_ATTENTION_OPTIONS; o++) {
        if (!(some >> o & 1)) continue;
        c->in[c->nin] = option((KAttentionOption)o, t, n, layout);
        if (o == K_ATTENTION_KEY) c->in[c->nin].t.dtype = DT_U32;
        attr->at[o] = c->nin++;
    }
    if (!some || rnd() % 2) return;
    if (rnd() % 2) attr->left = below(n.s + 2);
    if (rnd() % 2) attr->right = below(n.s + 2);
    if (rnd() % 2) attr->ahead = below(n.s + 5) - 2;
    if (rnd() % 2) attr->soft_cap = 0.5 + (double)below(4);
}

static KAttention attr_of(Shape n, int causal) {
    return (KAttention){.scale = 1 / sqrt((double)n.d + 1),
                        .causal = causal,
                        .left = -1,
                        .right = -1,
                        .ahead = n.s - n.t};
}
/* The dtype of keys and values: sometimes another than that of queries. */
static DType of_keys(DType t, unsigned some) {
    return t == DT_F64 || !some || rnd() % 3 ? t : t == DT_F32 ? DT_BF16 : DT_F32;
}

static void forward(DType t, Shape n, int causal, unsigned some, Layout layout) {
    KAttention attr = attr_of(n, causal);
    int64_t q[] = {n.b, n.t, n.h, n.d}, k[] = {n.b, n.s, n.g, n.d}, lse[] = {n.b, n.h, n.t};
    int64_t offsets[4];
    Case c = {.name = "attention",
              .attr = &attr,
              .nin = 3,
              .nout = 2,
              .rtol = tolerance(t) / 10,
              .atol = tolerance(t) / 10 + 4 * rounding(t),
              .products = 1};
    DType other = of_keys(t, some);
    c.in[0] = tensor(t, 4, q, layout);
    c.in[1] = tensor(other, 4, k, layout);
    c.in[2] = tensor(other, 4, k, layout);
    for (int i = 0; i < 3; i++) fill(&c.in[i], -2, 2);
    if (rnd() % 4 == 0) sprinkle(&c.in[0]); /* spoils the queries it is in, no others */
    add_options(&c, &attr, offsets, n, some, layout);
    c.out[0] = tensor(t, 4, q, layout == ANY_BROADCAST ? ANY : layout);
    c.out[1] = tensor(t == DT_F64 ? t : DT_F32, 3, lse, layout == DENSE ? DENSE : ANY);
    check_case(&c);
}

/* y and lse are the naive forward's, so that they belong to q, k and v. */
static void backward(DType t, Shape n, int causal, unsigned some, Layout layout) {
    KAttention attr = attr_of(n, causal);
    int64_t q[] = {n.b, n.t, n.h, n.d}, k[] = {n.b, n.s, n.g, n.d}, lse[] = {n.b, n.h, n.t};
    int64_t offsets[4], scores[] = {n.b, n.h, n.t, n.s};
    Layout of_out = layout == ANY_BROADCAST ? ANY : layout;
    Case c = {.name = "attention_grad",
              .attr = &attr,
              .nin = 6,
              .nout = 3,
              .rtol = tolerance(t),
              .atol = tolerance(t) + 8 * rounding(t),
              .products = 1};
    DType other = of_keys(t, some);
    for (int i = 0; i < 6; i++) {
        int keys = i == 1 || i == 2;
        c.in[i] = i == 4 ? tensor(t == DT_F64 ? t : DT_F32, 3, lse, layout == DENSE ? DENSE : ANY)
                         : tensor(keys ? other : t, 4, keys ? k : q, i > 2 ? of_out : layout);
        fill(&c.in[i], -2, 2);
    }
    add_options(&c, &attr, offsets, n, some, layout);
    for (int i = 0; i < 3; i++) c.out[i] = tensor(i ? other : t, 4, i == 0 ? q : k, of_out);
    int bias = attr.at[K_ATTENTION_BIAS];
    if (bias && rnd() % 4) c.out[c.nout++] = tensor(c.in[bias].t.dtype, 4, scores, of_out);
    static Case f;
    KAttention before = attr;
    for (int o = 0; o < K_ATTENTION_OPTIONS; o++) before.at[o] -= before.at[o] ? 3 : 0;
    f = (Case){.name = "attention",
               .attr = &before,
               .offsets = c.offsets,
               .nin = c.nin - 3,
               .nout = 2,
               .in = {c.in[0], c.in[1], c.in[2]},
               .out = {c.in[3], c.in[4]}};
    for (int i = 6; i < c.nin; i++) f.in[i - 3] = c.in[i];
    KFault fault;
    CHECK(kc_run(&f, kc_row("naive", f.name), f.in, f.out, 0, &fault) == 0);
    check_case(&c);
}

/* None; a mask and dropout; anything. */
static unsigned options_of(int k) {
    const unsigned masked = 1u << K_ATTENTION_MASK | 1u << K_ATTENTION_KEY;
    return k % 3 == 0 ? 0 : k % 3 == 1 ? masked : (unsigned)(rnd() & rnd()) % (1u << 8);
}

/* Few rows and keys, any depths. */
static void small_cases(void) {
    static const DType floats[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
    static const int64_t depths[] = {1, 3, 8, 16, 20, 32, 33};
    for (int k = 0; k < 240; k++) {
        int64_t g = 1 + below(2);
        Shape n = {below(3), 1 + below(9), 1 + below(9), g * (1 + below(2)), g, depths[below(7)]};
        if (rnd() % 16 == 0) *(rnd() % 2 ? &n.t : &n.s) = 0;
        forward(floats[k % 4], n, k / 4 % 2, options_of(k / 8), (Layout)below(4));
        backward(floats[k % 4], n, k / 4 % 2, options_of(k / 8), (Layout)below(4));
    }
}

/* One query, whose heads share keys: more of them than a unit has, too. */
static void one_cases(void) {
    static const int64_t members[] = {2, 3, 16, 17, 70};
    for (int k = 0; k < 40; k++) {
        int64_t g = 1 + below(3);
        Shape n = {1 + below(3), 1, 1 + below(150), g * members[k % 5], g, 8 * (1 + below(4))};
        forward(k % 2 ? DT_BF16 : DT_F32, n, k / 2 % 2, options_of(2 - k % 3), (Layout)below(4));
    }
}

/* More than one tile of queries and of keys, exactly full tiles, tails. */
static void large_cases(void) {
    Shape large[] = {{1, 70, 140, 2, 1, 16},
                     {1, 128, 128, 1, 1, 32},
                     {1, 65, 300, 1, 1, 24},
                     {1, 140, 70, 2, 2, 64}};
    for (int k = 0; k < 48; k++) {
        DType t = k < 24 ? DT_F32 : k < 36 ? DT_BF16 : DT_F64;
        forward(t, large[k % 4], k / 4 % 2, options_of(k / 4), k / 2 % 2 ? DENSE : ANY);
        backward(t, large[k % 4], k / 4 % 2, options_of(k / 4), k / 2 % 2 ? DENSE : ANY);
    }
}

/* Blocks of a GPU's tensor cores with all their warps. */
static void block_cases(int count) {
    Shape n = {1, 130, 140, 2, 1, 64};
    for (int k = 0; k < count; k++) {
        forward(DT_BF16, n, k % 4 != 3, options_of(k), DENSE);
        backward(DT_BF16, n, k % 4 != 3, options_of(k), DENSE);
    }
}

/* `blocks`: those cases alone; `blocks N`: so many. */
int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "blocks") == 0) {
        block_cases(argc > 2 ? atoi(argv[2]) : 3);
        return test_end();
    }
    small_cases();
    one_cases();
    large_cases();
    return test_end();
}
