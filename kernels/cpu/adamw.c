/* adamw.c - one step of AdamW (Loshchilov and Hutter 2019; kernel.h) over elements of any layout.
 *
 * The powers of b1 and b2 are taken in double by squaring, so the bias correction does not lose
 * digits. Any strides; p, mu and nu may alias the outputs of their names. 16-bit floats are
 * converted and rounded once each; all of p, g, mu, nu are float64, or none is. With step 0 the
 * bytes of p, mu and nu are the results, which costs nothing where they alias. */
#include "lanes.h"
#include "rows.h"

enum { TILE = 256, ELEMENTS = 7 };

typedef struct Factors {
    double b1, b2, eps, eps_root, decay;
    double lr, clip, unbias1, unbias2; /* 1 / (1 - b^step) */
} Factors;

#define REAL_CODE "adamw_real.h"
#include "real.h"

static double power(double b, double step) {
    double r = 1;
    for (int64_t e = step >= 1 && step < 0x1p40 ? (int64_t)step : 0; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return r;
}

static double scalar(const KTensor *t) {
    KReal x;
    k_get(t->dtype, t->data, &x);
    return t->dtype == DT_F64 ? x.d : (double)x.f;
}

static Factors factors_of(const KArgs *a) {
    const KAdamw *w = a->attr;
    double step = scalar(&a->in[5]);
    Factors f = {w->b1,
                 w->b2,
                 w->eps,
                 w->eps_root,
                 w->decay,
                 scalar(&a->in[4]),
                 scalar(&a->in[6]),
                 1 / (1 - power(w->b1, step)),
                 1 / (1 - power(w->b2, step))};
    return f;
}

/* Elements [i, end) of p, mu and nu as they are. */
static void keep(const KArgs *a, int64_t i, int64_t end) {
    static const int from[3] = {0, 2, 3};
    for (int k = 0; k < 3; k++) {
        const KTensor *t[2] = {&a->in[from[k]], &a->out[k]};
        int64_t at = i, n, size = k_dtype_size(t[0]->dtype);
        KWalk w;
        if (t[0]->data == t[1]->data) continue;
        k_walk_over(&w, t[0]->rank, t, 2);
        for (k_walk_start(&w, at); at < end; at += n, k_walk_advance(&w, n)) {
            n = k_min(end - at, k_walk_run(&w));
            k_copy_run(size, w.at[1], k_walk_stride(&w, 1), w.at[0], k_walk_stride(&w, 0), n);
        }
    }
}

static int adamw(const KArgs *a) {
    const KTensor *t[ELEMENTS] = {&a->in[0],  &a->in[1],  &a->in[2], &a->in[3],
                                  &a->out[0], &a->out[1], &a->out[2]};
    int64_t i = a->lo * K_UNIT_ELEMENTS, end = k_min(a->hi * K_UNIT_ELEMENTS, k_count(t[0])), n;
    if (i >= end) return 0;
    if (scalar(&a->in[5]) < 1) {
        keep(a, i, end);
        return 0;
    }
    Factors f = factors_of(a);
    _Alignas(64) char buf[ELEMENTS][TILE * 8];
    KWalk w;
    k_walk_over(&w, t[0]->rank, t, ELEMENTS);
    for (k_walk_start(&w, i); i < end; i += n, k_walk_advance(&w, n)) {
        n = k_min(k_min(TILE, end - i), k_walk_run(&w));
        const void *x[4];
        void *y[3];
        for (int k = 0; k < 4; k++)
            x[k] = k_run_in(t[k]->dtype, w.at[k], k_walk_stride(&w, k), n, buf[k]);
        for (int k = 0; k < 3; k++)
            y[k] = k_run_out(t[4 + k]->dtype, w.at[4 + k], k_walk_stride(&w, 4 + k), n, buf[4 + k]);
        if (t[0]->dtype == DT_F64)
            step_f64(&f, x[0], x[1], x[2], x[3], y[0], y[1], y[2], n);
        else
            step_f32(&f, x[0], x[1], x[2], x[3], y[0], y[1], y[2], n);
        for (int k = 0; k < 3; k++)
            k_run_done(t[4 + k]->dtype, w.at[4 + k], k_walk_stride(&w, 4 + k), n, buf[4 + k]);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    return k_ceil_div(k_count(&a->in[0]), K_UNIT_ELEMENTS);
}

K_ROWS(adamw) = {
    {"adamw", adamw, units, NULL},
    {NULL, NULL, NULL, NULL},
};
