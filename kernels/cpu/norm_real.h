/* norm_real.h - the rows of norm.c in one type (real.h). y, dx may be one of the inputs. */

/* centered: layer norm, else RMS norm with mean = 0 and no bias */
static void R(norm)(const void *x_, const void *scale_, const void *bias_, void *y_, int64_t n,
                    double eps, int centered, void *mean_, void *rstd_) {
    const REAL *x = x_, *scale = scale_, *bias = bias_;
    REAL *y = y_, mean = centered ? R(sum)(x, n) / (REAL)n : 0;
    REAL rstd = 1 / R(sqrt)(R(sumsq)(x, mean, n) / (REAL)n + (REAL)eps);
    if (centered)
        K_IVDEP for (int64_t i = 0; i < n; i++) y[i] =
            R(fma)((x[i] - mean) * rstd, scale[i], bias[i]);
    else
        K_IVDEP for (int64_t i = 0; i < n; i++) y[i] = x[i] * rstd * scale[i];
    *(REAL *)mean_ = mean;
    *(REAL *)rstd_ = rstd;
}

/* sum of dy scale (x - mean) rstd */
static inline REAL R(dot_hat)(const REAL *dy, const REAL *scale, const REAL *x, REAL mean,
                              REAL rstd, int64_t n) {
    K_LANE_LOOP(REAL, 0, n, R(fma)(dy[i] * scale[i], (x[i] - mean) * rstd, l), l + m)
}

static void R(norm_grad)(const void *dy_, const void *x_, const void *scale_, void *dx_, int64_t n,
                         int centered, const void *mean_, const void *rstd_) {
    const REAL *dy = dy_, *x = x_, *scale = scale_;
    REAL *dx = dx_, mean = centered ? *(const REAL *)mean_ : 0, rstd = *(const REAL *)rstd_;
    REAL a = centered ? R(dot)(dy, scale, n) / (REAL)n : 0;
    REAL b = R(dot_hat)(dy, scale, x, mean, rstd, n) / (REAL)n;
    K_IVDEP for (int64_t i = 0; i < n; i++) {
        REAL hat = (x[i] - mean) * rstd;
        dx[i] = rstd * (R(fma)(-hat, b, dy[i] * scale[i]) - a);
    }
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
