/* norm_real.h - the rows of norm.c in one type (real.h). y, dx may be one of the inputs; `past`:
 * written past the caches. */

/* centered: layer norm, else RMS norm with mean = 0 and no bias */
static void R(norm)(const void *x_, const void *scale_, const void *bias_, void *y_, int64_t n,
                    double eps, int centered, int past, void *mean_, void *rstd_) {
    const REAL *x = x_, *scale = scale_, *bias = bias_;
    REAL *y = y_, mean = centered ? R(sum)(x, n) / (REAL)n : 0;
    REAL rstd = 1 / R(sqrt)(R(sumsq)(x, mean, n) / (REAL)n + (REAL)eps);
    if (centered) {
        K_WRITE(n, y, R(vfma)((K_AT(x) - mean) * rstd, K_AT(scale), K_AT(bias)), past)
    } else {
        K_WRITE(n, y, K_AT(x) * rstd * K_AT(scale), past)
    }
    *(REAL *)mean_ = mean;
    *(REAL *)rstd_ = rstd;
}

/* Also adds the row to the sums over rows that are the parameters' gradients. */
K_INLINE void R(norm_grad)(const void *dy_, const void *x_, const void *scale_, void *dx_,
                           int64_t n, int centered, int past, const void *mean_, const void *rstd_,
                           void *dscale_, void *dbias_) {
    const REAL *dy = dy_, *x = x_, *scale = scale_;
    REAL *dx = dx_, *dscale = dscale_, *dbias = dbias_;
    REAL mean = centered ? *(const REAL *)mean_ : 0, rstd = *(const REAL *)rstd_;
    R(Vec) g_sum[K_LANES] = {{0}}, gh_sum[K_LANES] = {{0}};
    K_EACH_VEC(n, {
        R(Vec) d = K_AT(dy), hat = (K_AT(x) - mean) * rstd, g = d * K_AT(scale);
        K_PUT(dscale, R(vfma)(d, hat, K_AT(dscale)));
        if (centered) {
            K_PUT(dbias, K_AT(dbias) + d);
            K_FOLD(g_sum, l + g);
        }
        K_FOLD(gh_sum, R(vfma)(g, hat, l));
    })
    REAL mean_g = R(sum_lanes)(g_sum) / (REAL)n, mean_gh = R(sum_lanes)(gh_sum) / (REAL)n;
    R(Vec) along = R(all)(-mean_gh);
    K_WRITE(n, dx,
            (R(vfma)((K_AT(x) - mean) * rstd, along, K_AT(dy) * K_AT(scale)) - mean_g) * rstd, past)
}

/* Moves sums over a few rows into those over more. */
static void R(norm_flush)(void *few_, void *all_, int64_t n) {
    REAL *restrict few = few_, *restrict all = all_;
    for (int64_t i = 0; i < n; i++) {
        all[i] += few[i];
        few[i] = 0;
    }
}
