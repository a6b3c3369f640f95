/* naive_conv.c - conv and conv_grad_kernel. */
#include "naive.h"

/* The place in x that a tap of w (index `tap`) sees from the place `at` of y; 0 if there is none.
 * Sets all of x's index but the feature. */
static int seen(const KConv *c, const KTensor *x, const int64_t *at, const int64_t *tap,
                int64_t *index) {
    index[0] = at[0];
    for (int i = 0; i < x->rank - 2; i++) {
        int64_t p = at[i + 1] * c->stride[i] + tap[i] * c->w_dilation[i] - c->low[i];
        if (p < 0 || p % c->x_dilation[i]) return 0;
        index[i + 1] = p / c->x_dilation[i];
        if (index[i + 1] >= x->dims[i + 1]) return 0;
    }
    return 1;
}

static int conv(const KArgs *a) {
    const KConv *c = a->attr;
    const KTensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    int n = x->rank - 2;
    int64_t count = n_count(y), taps = 1, at[K_MAX_RANK], from[K_MAX_RANK], tap[K_MAX_RANK];
    for (int d = 0; d <= n; d++) taps *= w->dims[d];
    KTensor one = *w; /* the kernel of one feature of the result */
    one.rank--;
    for (int64_t k = 0; k < count; k++) {
        double sum = 0;
        n_index(y, k, at);
        for (int64_t t = 0; t < taps; t++) {
            n_index(&one, t, tap);
            tap[n + 1] = at[n + 1];
            if (!seen(c, x, at, tap, from)) continue;
            from[n + 1] = at[n + 1] / (w->dims[n + 1] / c->groups) * w->dims[n] + tap[n];
            sum += n_get(x, n_at(x, from)) * n_get(w, n_at(w, tap));
        }
        n_put(y, n_at(y, at), sum);
    }
    return 0;
}

static int conv_grad_kernel(const KArgs *a) {
    const KConv *c = a->attr;
    const KTensor *x = &a->in[0], *dy = &a->in[1], *dw = &a->out[0];
    int n = x->rank - 2;
    int64_t count = n_count(dw), places = 1, at[K_MAX_RANK], from[K_MAX_RANK], tap[K_MAX_RANK];
    for (int d = 0; d <= n; d++) places *= dy->dims[d];
    KTensor one = *dy; /* one feature of it */
    one.rank--;
    for (int64_t k = 0; k < count; k++) {
        double sum = 0;
        n_index(dw, k, tap);
        for (int64_t p = 0; p < places; p++) {
            n_index(&one, p, at);
            at[n + 1] = tap[n + 1];
            if (!seen(c, x, at, tap, from)) continue;
            from[n + 1] = tap[n + 1] / (dw->dims[n + 1] / c->groups) * dw->dims[n] + tap[n];
            sum += n_get(x, n_at(x, from)) * n_get(dy, n_at(dy, at));
        }
        n_put(dw, n_at(dw, tap), sum);
    }
    return 0;
}

const KernelRow k_rows_conv_naive[] = {
    {"conv", conv, NULL, NULL},
    {"conv_grad_kernel", conv_grad_kernel, NULL, NULL},
    {NULL, NULL, NULL, NULL},
};
