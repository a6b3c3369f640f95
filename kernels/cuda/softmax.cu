/* softmax.cu - softmax, log_softmax (LOG 1) and the gradient of softmax (GRAD) along the last dim.
 *
 * Limited by memory: each tensor is read or written once, where the row fits into registers or
 * shared memory; 2 n bytes a row of n bytes (softmax_grad: 3 n). y may alias x, dx may y or dy: a
 * thread writes what it has read itself. */
#include "rows.cuh"

typedef Compute<TYPE> Real;

#ifdef GRAD
template <bool ALIGNED>
DEVICE void grad_row(const TYPE *y, const TYPE *dy, TYPE *dx, const Lines &yl, const Lines &dyl,
                     const Lines &dxl, i64 rows, i64 n) {
    Team team(rows, n);
    Row<TYPE, ALIGNED> in(team, y, yl), grad(team, dy, dyl, 1);
    Result<TYPE, ALIGNED> out(team, dx, dxl);
    Real dot = 0;
    team.walk([&](i64 start) {
        Chunk<TYPE> u = in.first(start), v = grad.first(start);
        team.each(start, [&](int k, i64) {
            Vec<Real, VEC> p = widen(u.at[k]), d = widen(v.at[k]);
#    pragma unroll
            for (int i = 0; i < VEC; i++) dot = math::fma(p.at[i], d.at[i], dot);
        });
    });
    dot = team.reduce(dot, Add());
    team.walk([&](i64 start) {
        Chunk<TYPE> u = in.again(start), v = grad.again(start);
        team.each(start, [&](int k, i64 c) {
            Vec<Real, VEC> p = widen(u.at[k]), d = widen(v.at[k]);
#    pragma unroll
            for (int i = 0; i < VEC; i++) d.at[i] = p.at[i] * (d.at[i] - dot);
            out.put(c, d);
        });
    });
}

extern "C" __global__ __launch_bounds__(BLOCK, RESIDENT) void softmax(const TYPE *y, const TYPE *dy,
                                                                      TYPE *dx, Lines yl, Lines dyl,
                                                                      Lines dxl, i64 rows, i64 n) {
    if (is_aligned<VEC>(y) && is_aligned<VEC>(dy) && is_aligned<VEC>(dx))
        grad_row<true>(y, dy, dx, yl, dyl, dxl, rows, n);
    else
        grad_row<false>(y, dy, dx, yl, dyl, dxl, rows, n);
}

#else
template <bool ALIGNED>
DEVICE void softmax_row(const TYPE *x, TYPE *y, const Lines &xl, const Lines &yl, i64 rows, i64 n) {
    Team team(rows, n);
    Row<TYPE, ALIGNED> in(team, x, xl);
    Result<TYPE, ALIGNED> out(team, y, yl);
    Peak<Real> peak = Peak<Real>::none();
    team.walk([&](i64 start) {
        Chunk<TYPE> v = in.first(start);
        team.each(start, [&](int k, i64) { peak.add(widen(v.at[k])); });
    });
    peak = team.reduce(peak, AddPeaks());
    Real scale = 1 / peak.sum, from = peak.log_sum();
    team.walk([&](i64 start) {
        Chunk<TYPE> v = in.again(start);
        team.each(start, [&](int k, i64 c) {
            Vec<Real, VEC> e = widen(v.at[k]);
#    pragma unroll
            for (int i = 0; i < VEC; i++)
                e.at[i] = LOG ? e.at[i] - from : math::exp(e.at[i] - peak.top) * scale;
            out.put(c, e);
        });
    });
}

extern "C" __global__ __launch_bounds__(BLOCK, RESIDENT) void softmax(const TYPE *x, TYPE *y,
                                                                      Lines xl, Lines yl, i64 rows,
                                                                      i64 n) {
    if (is_aligned<VEC>(x) && is_aligned<VEC>(y))
        softmax_row<true>(x, y, xl, yl, rows, n);
    else
        softmax_row<false>(x, y, xl, yl, rows, n);
}
#endif
