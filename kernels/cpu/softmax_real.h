/* softmax_real.h - the rows of softmax.c in one type (real.h). y may be one of the inputs; `past`:
 * written past the caches, then `room` holds what is not final. */

static void R(softmax)(const void *const *in, void *out, void *room, int64_t n, int past) {
    const REAL *x = in[0];
    REAL *y = out, *e = past ? room : out, top = R(max)(x, n);
    R(Vec) sums[K_LANES] = {{0}};
    K_EACH_VEC(n, {
        R(Vec) v = R(vexp)(K_AT(x) - top);
        K_PUT(e, v);
        K_FOLD(sums, l + v);
    })
    REAL scale = 1 / R(sum_lanes)(sums);
    K_WRITE(n, y, K_AT(e) * scale, past)
}

static void R(log_softmax)(const void *const *in, void *out, void *room, int64_t n, int past) {
    const REAL *x = in[0];
    REAL *y = out, top = R(max)(x, n), log_sum = R(log)(R(sumexp)(x, top, n));
    (void)room;
    K_WRITE(n, y, K_AT(x) - top - log_sum, past)
}

static void R(softmax_grad)(const void *const *in, void *out, void *room, int64_t n, int past) {
    const REAL *y = in[0], *dy = in[1];
    REAL *dx = out, dot = R(dot)(dy, y, n);
    (void)room;
    K_WRITE(n, dx, K_AT(y) * (K_AT(dy) - dot), past)
}
