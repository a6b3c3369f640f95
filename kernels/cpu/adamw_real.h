/* adamw_real.h - one run of adamw.c in one type (real.h). Outputs may be the inputs. */

static void R(step)(const Factors *f, const REAL *p, const REAL *g, const REAL *mu, const REAL *nu,
                    REAL *p_out, REAL *mu_out, REAL *nu_out, int64_t n) {
    REAL b1 = (REAL)f->b1, a1 = (REAL)(1 - f->b1), b2 = (REAL)f->b2, a2 = (REAL)(1 - f->b2);
    REAL r1 = (REAL)f->unbias1, r2 = (REAL)f->unbias2, eps = (REAL)f->eps, root = (REAL)f->eps_root;
    REAL decay = (REAL)f->decay, lr = (REAL)f->lr, clip = (REAL)f->clip;
    K_IVDEP for (int64_t i = 0; i < n; i++) {
        REAL d = g[i] * clip, x = p[i];
        REAL m = R(fma)(b1, mu[i], a1 * d), v = R(fma)(b2, nu[i], a2 * (d * d));
        REAL u = m * r1 / (R(sqrt)(R(fma)(v, r2, root)) + eps);
        p_out[i] = R(fma)(-lr, R(fma)(decay, x, u), x);
        mu_out[i] = m;
        nu_out[i] = v;
    }
}
