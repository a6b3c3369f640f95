/* norm.cu - layer_norm and rms_norm over the last dim (kernel.h); RMS norm has mean 0 and no bias.
 *
 * Limited by memory: x is read and y written once where a row fits into registers or shared memory,
 * 2 n bytes a row of n bytes; scale and bias come from the caches. The variance is a second look at
 * the row, so it does not cancel. y may alias x. */
#include "rows.cuh"

typedef Compute<TYPE> Real;

struct NormSteps { /* a parameter: elements from one to the next */
    i64 scale, bias;
};
struct StatViews { /* a parameter */
    View mean, rstd;
};

template <bool ALIGNED>
DEVICE void norm_row(const TYPE *x, const SCALE *scale, const BIAS *bias, TYPE *y, Real *mean,
                     Real *rstd, const Lines &xl, const Lines &yl, const NormSteps &step,
                     const StatViews &stats, i64 rows, i64 n, double eps) {
    Team team(rows, n);
    Row<TYPE, ALIGNED> in(team, x, xl);
    Result<TYPE, ALIGNED> out(team, y, yl);
    Real m = 0, squares = 0;
    if (CENTERED) {
        team.walk([&](i64 start) {
            Chunk<TYPE> v = in.first(start);
            team.each(start, [&](int k, i64) {
                Vec<Real, VEC> e = widen(v.at[k]);
#pragma unroll
                for (int i = 0; i < VEC; i++) m += e.at[i];
            });
        });
        m = team.reduce(m, Add()) / (Real)n;
    }
    team.walk([&](i64 start) {
        Chunk<TYPE> v = CENTERED ? in.again(start) : in.first(start);
        team.each(start, [&](int k, i64) {
            Vec<Real, VEC> e = widen(v.at[k]);
#pragma unroll
            for (int i = 0; i < VEC; i++) squares = math::fma(e.at[i] - m, e.at[i] - m, squares);
        });
    });
    Real r = 1 / math::sqrt(team.reduce(squares, Add()) / (Real)n + (Real)eps);
    if (team.rank == 0 && team.live) {
        if (CENTERED) *stats.mean.at(mean, team.row) = m;
        *stats.rstd.at(rstd, team.row) = r;
    }
    team.walk([&](i64 start) {
        Chunk<TYPE> v = in.again(start);
        team.each(start, [&](int k, i64 c) {
            Vec<Real, VEC> e = widen(v.at[k]), s = widen(take<ALIGNED>(scale, step.scale, c));
            Vec<Real, VEC> b = {};
            if (CENTERED) b = widen(take<ALIGNED>(bias, step.bias, c));
#pragma unroll
            for (int i = 0; i < VEC; i++) e.at[i] = math::fma((e.at[i] - m) * r, s.at[i], b.at[i]);
            out.put(c, e);
        });
    });
}

extern "C" __global__ __launch_bounds__(BLOCK) void norm_forward(
    const TYPE *x, const SCALE *scale, const BIAS *bias, TYPE *y, Real *mean, Real *rstd, Lines xl,
    Lines yl, NormSteps step, StatViews stats, i64 rows, i64 n, double eps) {
    if (is_aligned<VEC>(x) && is_aligned<VEC>(y) && is_aligned<VEC>(scale) && is_aligned<VEC>(bias))
        norm_row<true>(x, scale, bias, y, mean, rstd, xl, yl, step, stats, rows, n, eps);
    else
        norm_row<false>(x, scale, bias, y, mean, rstd, xl, yl, step, stats, rows, n, eps);
}
