/* test_misc.c - dropout, rope and adamw. */
#include "kcheck.h"

static const DType floats[] = {DT_F32, DT_BF16, DT_F16, DT_F64};

static int shape(int64_t *dims, int min_rank) {
    int rank = min_rank + (int)below(3);
    for (int d = 0; d < rank; d++) dims[d] = rnd() % 24 ? 1 + below(12) : 0;
    if (rank && rnd() % 3 == 0) dims[rank - 1] = 300;
    return rank;
}

static void dropout(DType t) {
    int64_t dims[8], offsets[8], two = 2, step = rnd() % 3 ? 1 : (int64_t)1 << 30;
    int rank = shape(dims, 0);
    KDropout attr = {.keep = (double[]){1, 0.9, 0.5, 0.1, 0}[below(5)]};
    for (int d = rank - 1; d >= 0; d--) {
        offsets[d] = below(3) * dims[d];
        attr.strides[d] = step;
        step *= dims[d] * (1 + below(3));
    }
    Case c = {.name = "dropout", .attr = &attr, .offsets = offsets, .nin = 2, .nout = 1};
    c.in[0] = tensor(t, rank, dims, rnd() % 2 ? DENSE : ANY_BROADCAST);
    c.in[1] = tensor(DT_U32, 1, &two, ANY);
    fill(&c.in[0], -9, 9);
    fill(&c.in[1], 0, 0);
    c.out[0] = tensor(t, rank, dims, rnd() % 2 ? DENSE : ANY);
    if (rnd() % 4 == 0) alias_output(&c, 0, 0);
    check_case(&c);
}

static void rope(DType t) {
    int64_t dims[8];
    int rank = shape(dims, 3);
    dims[rank - 1] = 2 * below(40);
    KRope attr = {10000, rnd() % 2 ? 1 : -1};
    Case c = {.name = "rope",
              .attr = &attr,
              .nin = 2,
              .nout = 1,
              .rtol = t == DT_F64 ? 1e-12 : 1e-6,
              .atol = t == DT_F64 ? 1e-12 : 1e-6};
    c.in[0] = tensor(t, rank, dims, (Layout)below(4));
    c.in[1] = tensor(DT_I32, 1, &dims[rank - 3], ANY);
    fill(&c.in[0], -2, 2);
    fill(&c.in[1], rnd() % 2 ? -50 : 1, rnd() % 2 ? 100 : 1e5);
    c.out[0] = tensor(t, rank, dims, (Layout)below(3));
    if (rnd() % 4 == 0) alias_output(&c, 0, 0);
    check_case(&c);
}

static void adamw(DType t) {
    int64_t dims[8];
    int rank = shape(dims, 0), in_place = rnd() % 2;
    KAdamw attr = {0.9, 0.999, 1e-8, rnd() % 2 ? 0 : 1e-9, 0.1};
    Case c = {.name = "adamw",
              .attr = &attr,
              .nin = 7,
              .nout = 3,
              .rtol = t == DT_F64 ? 1e-12 : 2e-6,
              .atol = 1e-6};
    for (int k = 0; k < 7; k++) {
        DType type = t == DT_F64 ? DT_F64 : k >= 4 ? DT_F32 : k == 1 ? floats[below(3)] : t;
        c.in[k] = tensor(type, k < 4 ? rank : 0, dims,
                         k == 1      ? ANY_BROADCAST
                         : rnd() % 2 ? DENSE
                                     : ANY);
        fill(&c.in[k], k == 3 ? 0.01 : -1, 1);
    }
    int stays = rnd() % 8 == 0; /* whatever the gradient is */
    if (stays && kt_count(&c.in[1]) > 0) kt_put_float(c.in[1].t.dtype, kt_at(&c.in[1], 0), NAN);
    kt_put_float(c.in[5].t.dtype, kt_at(&c.in[5], 0), stays ? 0 : (double)(1 + below(3000)));
    static const int source[] = {0, 2, 3};
    for (int k = 0; k < 3; k++) {
        c.out[k] = in_place ? c.in[source[k]]
                            : tensor(c.in[source[k]].t.dtype, rank, dims, rnd() % 2 ? DENSE : ANY);
        c.alias[k] = in_place ? source[k] + 1 : 0;
    }
    check_case(&c);
}

int main(void) {
    for (int k = 0; k < 60; k++)
        for (int f = 0; f < 4; f++) {
            dropout(floats[f]);
            rope(floats[f]);
            adamw(floats[f]);
        }
    return test_end();
}
