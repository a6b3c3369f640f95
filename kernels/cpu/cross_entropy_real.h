/* cross_entropy_real.h - the rows of cross_entropy.c in one type (real.h). */

/* By blocks that stay in the first cache, so that a long row is read from memory once: the sum is
 * that of e^(x - top), where top is the maximum so far. */
static void R(row_sum)(const REAL *x, int64_t n, REAL *top_, REAL *sum_) {
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
    *top_ = top;
    *sum_ = sum;
}

/* `some` <= ROWS rows; their logarithms are taken together, in vectors. */
static int R(loss)(const KArgs *a, KWalk *w, const KLine *in, int64_t some) {
    REAL top[ROWS], sum[ROWS], lse[ROWS], loss[ROWS];
    char *to[2][ROWS];
    for (int64_t r = 0, label; r < some; r++, k_walk_advance(w, 1)) {
        if (bad_label(a, w->at[1], in->n, &label)) return 1;
        const REAL *x = k_line_in(in, w->at[0]);
        R(row_sum)(x, in->n, &top[r], &sum[r]);
        loss[r] = x[label];
        to[0][r] = w->at[2];
        to[1][r] = w->at[3];
    }
    for (int64_t r = 0; r < some; r++) {
        lse[r] = top[r] > -INFINITY ? top[r] + R(log)(sum[r]) : NAN;
        loss[r] = lse[r] - loss[r];
    }
    for (int64_t r = 0; r < some; r++) {
        k_put(a->out[0].dtype, to[0][r], &loss[r]);
        k_put(a->out[1].dtype, to[1][r], &lse[r]);
    }
    return 0;
}

/* One row with its gradient: e^(x - top) is looked up, summed and then scaled. `room`: for that
 * where dx is written past the caches. dx may be x. */
static void R(loss_both)(const void *x_, int64_t n, int64_t label, const void *dloss_, void *loss,
                         void *lse_, void *dx_, void *room, int past) {
    const REAL *x = x_;
    REAL *dx = dx_, *e = past ? room : dx_, dloss = *(const REAL *)dloss_, score = x[label];
    REAL top = R(max)(x, n);
    R(Vec) sums[K_LANES] = {{0}};
    K_EACH_VEC(n, {
        R(Vec) v = R(vexp)(K_AT(x) - top);
        K_PUT(e, v);
        K_FOLD(sums, l + v);
    })
    REAL sum = R(sum_lanes)(sums), scale = dloss / sum, lse = top + R(log)(sum);
    REAL at_label = (e[label] / sum - 1) * dloss;
    K_WRITE(n, dx, K_AT(e) * scale, past)
    dx[label] = at_label;
    *(REAL *)loss = lse - score;
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
