/* cross_entropy_real.h - the rows of cross_entropy.c in one type (real.h). */

static void R(loss)(const void *x_, int64_t n, int64_t label, void *loss, void *lse_) {
    const REAL *x = x_;
    REAL top = R(max)(x, n), lse = top + R(log)(R(sumexp)(x, top, n));
    *(REAL *)loss = lse - x[label];
    *(REAL *)lse_ = lse;
}

static void R(loss_grad)(const void *x_, int64_t n, int64_t label, const void *dloss_,
                         const void *lse_, void *dx_) {
    const REAL *x = x_;
    REAL *dx = dx_, dloss = *(const REAL *)dloss_, lse = *(const REAL *)lse_;
    REAL at_label = (R(exp)(x[label] - lse) - 1) * dloss;
    R(exp_row)(x, lse, dx, n);
    for (int64_t i = 0; i < n; i++) dx[i] *= dloss;
    dx[label] = at_label;
}
