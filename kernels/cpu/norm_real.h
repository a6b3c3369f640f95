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

static void R(norm_grad)(const void *dy_, const void *x_, const void *scale_, void *dx_, int64_t n,
                         int centered, const void *mean_, const void *rstd_) {
    const REAL *dy = dy_, *x = x_, *scale = scale_;
    REAL *dx = dx_, mean = centered ? *(const REAL *)mean_ : 0, rstd = *(const REAL *)rstd_;
    R(Vec) g_sum[K_LANES] = {{0}}, gh_sum[K_LANES] = {{0}};
    K_EACH_VEC(n, {
        R(Vec) g = K_AT(dy) * K_AT(scale), hat = (K_AT(x) - mean) * rstd;
        if (centered) K_FOLD(g_sum, l + g);
        K_FOLD(gh_sum, R(vfma)(g, hat, l));
    })
    REAL mean_g = R(sum_lanes)(g_sum) / (REAL)n, mean_gh = R(sum_lanes)(gh_sum) / (REAL)n;
    R(Vec) along = R(all)(-mean_gh);
    K_EACH_VEC(n, {
        R(Vec) hat = (K_AT(x) - mean) * rstd;
        K_PUT(dx, (R(vfma)(hat, along, K_AT(dy) * K_AT(scale)) - mean_g) * rstd);
    })
}

/* Adds one row to sums over rows. */
static void R(norm_params)(const void *dy_, const void *x_, const void *mean_, const void *rstd_,
                           int64_t n, void *dscale_, void *dbias_) {
    const REAL *restrict dy = dy_, *restrict x = x_;
    REAL *restrict dscale = dscale_, *restrict dbias = dbias_;
    REAL mean = mean_ ? *(const REAL *)mean_ : 0, rstd = *(const REAL *)rstd_;
    for (int64_t i = 0; i < n; i++) {
        dscale[i] = R(fma)(dy[i], (x[i] - mean) * rstd, dscale[i]);
        dbias[i] += dy[i];
    }
}

/* Moves sums over a few rows into the sums over all, in double. */
static void R(norm_flush)(int64_t n, void *part_, double *restrict sum) {
    REAL *restrict part = part_;
    for (int64_t i = 0; i < n; i++) {
        sum[i] += (double)part[i];
        part[i] = 0;
    }
}
