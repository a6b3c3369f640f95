/* softmax_real.h - the rows of softmax.c in one type (real.h). y may be one of the inputs. */

static void R(softmax)(const void *const *in, void *out, int64_t n) {
    const REAL *x = in[0];
    REAL *y = out, top = R(max)(x, n);
    R(exp_row)(x, top, y, n);
    REAL scale = 1 / R(sum)(y, n);
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
}

static void R(log_softmax)(const void *const *in, void *out, int64_t n) {
    const REAL *x = in[0];
    REAL *y = out, top = R(max)(x, n), log_sum = R(log)(R(sumexp)(x, top, n));
    K_IVDEP for (int64_t i = 0; i < n; i++) y[i] = x[i] - top - log_sum;
}

static void R(softmax_grad)(const void *const *in, void *out, int64_t n) {
    const REAL *y = in[0], *dy = in[1];
    REAL *dx = out, dot = R(dot)(dy, y, n);
    K_IVDEP for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - dot);
}
