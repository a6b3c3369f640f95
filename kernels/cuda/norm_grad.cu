/* norm_grad.cu - the gradients of layer_norm and rms_norm (kernel.h).
 *
 * hat = (x - mean) rstd, g = dy scale: dx = rstd (g - mean of g - hat mean of (g hat)); dscale is
 * the sum over rows of dy hat, dbias that of dy. A block has some rows of a part, each of its teams
 * every so many of them, and keeps their share of the sums in registers: 3 n bytes a row of n
 * bytes, which limits it, and at the end a line of sums for each block (reduce.cu adds the lines of
 * a part).
 *
 * Rows that are too long for that (WHOLE 0) take two kernels, and the bytes of x and dy twice:
 * `params` has a thread for each column of a part, `norm_grad` makes dx alone, last, as dx may
 * alias dy or x. */
#include "rows.cuh"

typedef Compute<TYPE> Real;

struct GradViews { /* a parameter */
    View mean, rstd;
    i64 scale; /* elements from one to the next */
};
struct NormSums { /* a parameter: elements from line to line and from column to column */
    i64 scale_line, scale_step, bias_line, bias_step;
};

/* The rows [lo, hi) of share `share` of `shares` of part p. */
struct Share {
    i64 lo, hi;

    DEVICE Share(i64 rows, i64 parts, i64 shares, i64 line) {
        i64 p = line / shares, s = line % shares;
        i64 first = rows * p / parts, n = rows * (p + 1) / parts - first;
        lo = first + n * s / shares;
        hi = first + n * (s + 1) / shares;
    }
};

template <bool ALIGNED> struct GradRow { /* of one row */
    const Team &team;
    Row<TYPE, ALIGNED> dy, x;
    Real mean, rstd;
    const SCALE *scale;
    i64 step;

    DEVICE GradRow(const Team &team, const TYPE *dy, const TYPE *x, const SCALE *scale,
                   const Real *mean, const Real *rstd, const Lines &dyl, const Lines &xl,
                   const GradViews &v)
        : team(team), dy(team, dy, dyl), x(team, x, xl, 1), mean(0), rstd(0), scale(scale),
          step(v.scale) {
        if (!team.live) return;
        if (CENTERED) this->mean = *v.mean.at(mean, team.row);
        this->rstd = *v.rstd.at(rstd, team.row);
    }
    DEVICE Vec<Real, VEC> hat(const Vec<TYPE, VEC> &v) const {
        Vec<Real, VEC> h = widen(v);
#pragma unroll
        for (int i = 0; i < VEC; i++) h.at[i] = (h.at[i] - mean) * rstd;
        return h;
    }
    DEVICE Vec<Real, VEC> scales(i64 c) const {
        return widen(take<ALIGNED>(scale, step, c));
    }

    /* Computes dx; f(k, dy, hat) for each vector of the first look. */
    template <class F> DEVICE void solve(const Result<TYPE, ALIGNED> &out, F f) {
        Pair<Real, Real> sums = {0, 0}; /* of g, of g hat */
        team.walk([&](i64 start) {
            Chunk<TYPE> d = dy.first(start), v = x.first(start);
            team.each(start, [&](int k, i64 c) {
                Vec<Real, VEC> g = widen(d.at[k]), h = hat(v.at[k]), s = scales(c);
                f(k, g, h);
#pragma unroll
                for (int i = 0; i < VEC; i++) {
                    sums.a += g.at[i] * s.at[i];
                    sums.b = math::fma(g.at[i] * s.at[i], h.at[i], sums.b);
                }
            });
        });
        sums = team.reduce(sums, Add());
        Real along = -sums.b / (Real)team.n, shift = CENTERED ? sums.a / (Real)team.n : 0;
        team.walk([&](i64 start) {
            Chunk<TYPE> d = dy.again(start), v = x.again(start);
            team.each(start, [&](int k, i64 c) {
                Vec<Real, VEC> g = widen(d.at[k]), h = hat(v.at[k]), s = scales(c);
#pragma unroll
                for (int i = 0; i < VEC; i++)
                    g.at[i] = (math::fma(h.at[i], along, g.at[i] * s.at[i]) - shift) * rstd;
                out.put(c, g);
            });
        });
    }
};

#if WHOLE
/* The teams' sums to one line, team after team. */
DEVICE void put_line(const Team &team, int index, i64 n, Vec<Real, VEC> (&mine)[PER], Real *to,
                     i64 step) {
    constexpr int teams = BLOCK / Team::size;
    Vec<Real, VEC> *line = (Vec<Real, VEC> *)kept_rows;
    for (int t = 0; t < teams; t++) {
        if (t > 0) __syncthreads();
        if (t != index) continue;
#    pragma unroll
        for (int k = 0; k < PER; k++) {
            i64 c = ((i64)k * Team::size + team.rank) * VEC;
            if (c >= n) continue;
            Vec<Real, VEC> sum = mine[k];
            if (t > 0) {
                Vec<Real, VEC> before = line[c / VEC];
#    pragma unroll
                for (int i = 0; i < VEC; i++) sum.at[i] += before.at[i];
            }
            if (t + 1 < teams) {
                line[c / VEC] = sum;
            } else {
#    pragma unroll
                for (int i = 0; i < VEC; i++) to[(c + i) * step] = sum.at[i];
            }
        }
    }
}
#endif

template <bool ALIGNED>
DEVICE void grad_rows(const TYPE *dy, const TYPE *x, const SCALE *scale, const Real *mean,
                      const Real *rstd, TYPE *dx, Real *dscale, Real *dbias, const Lines &dyl,
                      const Lines &xl, const Lines &dxl, const GradViews &v, const NormSums &sums,
                      i64 rows, i64 n, i64 parts, i64 shares) {
#if WHOLE
    constexpr int teams = BLOCK / Team::size;
    int index = threadIdx.x / Team::size;
    Vec<Real, VEC> s[PER] = {}, b[PER] = {};
    Share share(rows, parts, shares, blockIdx.x);
    Team team(0, n);
    /* All teams turn as often, as they meet in the reductions. */
    for (i64 r = share.lo; r < share.hi; r += teams) {
        team.move(r + index, share.hi, n);
        Result<TYPE, ALIGNED> out(team, dx, dxl);
        GradRow<ALIGNED> row(team, dy, x, scale, mean, rstd, dyl, xl, v);
        row.solve(out, [&](int k, const Vec<Real, VEC> &d, const Vec<Real, VEC> &hat) {
#    pragma unroll
            for (int i = 0; i < VEC; i++) {
                s[k].at[i] = math::fma(d.at[i], hat.at[i], s[k].at[i]);
                if (CENTERED) b[k].at[i] += d.at[i];
            }
        });
    }
    put_line(team, index, n, s, dscale + blockIdx.x * sums.scale_line, sums.scale_step);
    if (!CENTERED) return;
    __syncthreads();
    put_line(team, index, n, b, dbias + blockIdx.x * sums.bias_line, sums.bias_step);
#else
    Team team(rows, n);
    Result<TYPE, ALIGNED> out(team, dx, dxl);
    GradRow<ALIGNED> row(team, dy, x, scale, mean, rstd, dyl, xl, v);
    row.solve(out, [](int, const Vec<Real, VEC> &, const Vec<Real, VEC> &) {});
#endif
}

/* 128 registers: up to half of them are sums. */
extern "C" __global__ __launch_bounds__(BLOCK, 512 / BLOCK) void norm_grad(
    const TYPE *dy, const TYPE *x, const SCALE *scale, const Real *mean, const Real *rstd, TYPE *dx,
    Real *dscale, Real *dbias, Lines dyl, Lines xl, Lines dxl, GradViews v, NormSums sums, i64 rows,
    i64 n, i64 parts, i64 shares) {
    if (is_aligned<VEC>(dy) && is_aligned<VEC>(x) && is_aligned<VEC>(scale) && is_aligned<VEC>(dx))
        grad_rows<true>(dy, x, scale, mean, rstd, dx, dscale, dbias, dyl, xl, dxl, v, sums, rows, n,
                        parts, shares);
    else
        grad_rows<false>(dy, x, scale, mean, rstd, dx, dscale, dbias, dyl, xl, dxl, v, sums, rows,
                         n, parts, shares);
}

#if !WHOLE
/* Block b has line b / tiles, columns from b % tiles * BLOCK on. */
extern "C" __global__ __launch_bounds__(BLOCK) void params(const TYPE *dy, const TYPE *x,
                                                           const Real *mean, const Real *rstd,
                                                           Real *dscale, Real *dbias, Lines dyl,
                                                           Lines xl, GradViews v, NormSums sums,
                                                           i64 rows, i64 n, i64 parts, i64 shares) {
    i64 tiles = (n + BLOCK - 1) / BLOCK, line = blockIdx.x / tiles;
    i64 c = blockIdx.x % tiles * BLOCK + threadIdx.x;
    if (c >= n) return;
    Share share(rows, parts, shares, line);
    Real s = 0, b = 0;
    for (i64 r = share.lo; r < share.hi; r++) {
        Real m = CENTERED ? *v.mean.at(mean, r) : (Real)0;
        Real d = widen(dyl.rows.at(dy, r)[c * dyl.step]);
        Real hat = (widen(xl.rows.at(x, r)[c * xl.step]) - m) * *v.rstd.at(rstd, r);
        s = math::fma(d, hat, s);
        b += d;
    }
    dscale[line * sums.scale_line + c * sums.scale_step] = s;
    if (CENTERED) dbias[line * sums.bias_line + c * sums.bias_step] = b;
}
#endif
