/* cross_entropy_real.h - the rows of cross_entropy.c in one type (real.h). */

/* By blocks that stay in the first cache, so that a long row is read from memory once: the sum is
 * that of e^(x - top), where top is the maximum so far. */
static void R(loss)(const void *x_, int64_t n, int64_t label, void *loss, void *lse_) {
    const REAL *x = x_;
    REAL top = -INFINITY, sum = 0;
    for (int64_t i = 0, some; i < n; i += some) {
        some = k_min(n - i, BLOCK);
        REAL high = R(max)(x + i, some);
        if (high > top) {
            sum = sum != 0 ? sum * R(exp)(top - high) : 0;
            top = high;
        }
        /* as long as there is nothing but -inf, 0 serves as well */
        sum += R(sumexp)(x + i, top > -INFINITY ? top : 0, some);
    }
    REAL lse = top > -INFINITY ? top + R(log)(sum) : NAN;
    *(REAL *)loss = lse - x[label];
    *(REAL *)lse_ = lse;
}

static void R(loss_grad)(const void *x_, int64_t n, int64_t label, const void *dloss_,
                         const void *lse_, void *dx_, int past) {
    const REAL *x = x_;
    REAL *dx = dx_, dloss = *(const REAL *)dloss_, lse = *(const REAL *)lse_;
    REAL at_label = (R(exp)(x[label] - lse) - 1) * dloss;
    K_WRITE(n, dx, R(vexp)(K_AT(x) - lse) * dloss, past)
    dx[label] = at_label;
}
