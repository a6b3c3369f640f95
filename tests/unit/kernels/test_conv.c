/* test_conv.c - conv and conv_grad_kernel: strides, pads, dilations, groups, every float dtype. */
#include "kcheck.h"

typedef struct Sizes {
    int n; /* spatial dims */
    int64_t batch, in, out, x[3], w[3], y[3];
} Sizes;

static void operands(const Sizes *s, KConv *attr, DType t, DType wide, int grad) {
    int64_t x[8], w[8], y[8];
    int n = s->n;
    x[0] = y[0] = s->batch;
    for (int i = 0; i < n; i++) {
        x[i + 1] = s->x[i];
        y[i + 1] = s->y[i];
        w[i] = s->w[i];
    }
    x[n + 1] = s->in * attr->groups;
    w[n] = s->in;
    w[n + 1] = y[n + 1] = s->out * attr->groups;
    Case c = {.name = grad ? "conv_grad_kernel" : "conv",
              .attr = attr,
              .nin = 2,
              .nout = 1,
              .products = 1,
              .rtol = 2e-6};
    double sums = (double)s->in + 4;
    for (int i = 0; i < n; i++) sums *= (double)(grad ? s->y[i] : s->w[i]) + 1;
    c.atol = (t == DT_F64 ? 1e-15 : 2e-7) * (grad ? sums * (double)s->batch : sums);
    c.in[0] = tensor(t, n + 2, x, rnd() % 2 ? DENSE : ANY_BROADCAST);
    c.in[1] =
        grad ? tensor(t, n + 2, y, rnd() % 2 ? DENSE : ANY_BROADCAST) : tensor(t, n + 2, w, DENSE);
    c.out[0] = grad ? tensor(wide, n + 2, w, ANY) : tensor(wide, n + 2, y, ANY);
    for (int i = 0; i < 2; i++) fill(&c.in[i], -1, 1);
    check_case(&c);
}

static void any(DType t, int grad) {
    KConv attr = {.groups = rnd() % 3 ? 1 : 1 + below(4)};
    Sizes s = {.n = 1 + (int)below(3),
               .batch = 1 + below(4),
               .in = 1 + below(rnd() % 4 ? 5 : 40),
               .out = 1 + below(20)};
    for (int i = 0; i < s.n; i++) {
        int plain = rnd() % 2 != 0;
        attr.stride[i] = plain ? 1 : 1 + below(3);
        attr.x_dilation[i] = plain ? 1 : 1 + below(3);
        attr.w_dilation[i] = plain ? 1 : 1 + below(3);
        s.w[i] = 1 + below(4);
        s.x[i] = below(9);
        s.y[i] = below(s.n == 1 ? 40 : 8); /* more or less than x has: the rest is zeros */
        attr.low[i] = below(6) - 2;
    }
    operands(&s, &attr, t, rnd() % 2 && t != DT_F64 ? DT_F32 : t, grad);
}

/* Blocks of K, of columns and of positions, and their rests; phases of a dilated x. */
static void large(int64_t in, int64_t out, int64_t size, int64_t groups, int dilation, int grad) {
    KConv attr = {.groups = groups};
    Sizes s = {.n = 2, .batch = 2, .in = in, .out = out};
    for (int i = 0; i < 2; i++) {
        attr.stride[i] = attr.w_dilation[i] = attr.low[i] = 1;
        attr.x_dilation[i] = dilation;
        s.w[i] = 3;
        s.x[i] = size;
        s.y[i] = size * dilation;
    }
    operands(&s, &attr, DT_F32, DT_F32, grad);
}

int main(void) {
    static const DType types[] = {DT_F64, DT_F32, DT_BF16, DT_F16};
    for (int k = 0; k < 60; k++)
        for (int t = 0; t < 4; t++)
            for (int grad = 0; grad < 2; grad++) any(types[t], grad);
    for (int grad = 0; grad < 2; grad++) {
        large(1, 32, 9, 1, 1, grad);
        large(3, 33, 15, 1, 1, grad);
        large(40, 20, 6, 1, 1, grad);
        large(16, 520, 3, 1, 1, grad);
        large(40, 8, 5, 3, 1, grad);
        large(40, 8, 5, 3, 2, grad);
        large(300, 20, 10, 1, 2, grad);
        large(17, 520, 3, 1, 3, grad);
    }
    return test_end();
}
