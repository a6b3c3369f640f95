/* cross_entropy.cu - softmax cross-entropy and its gradient over the last dim (kernel.h).
 *
 * Limited by memory, and for 16-bit logits nearly by the exponentials: two an element in `both`,
 * which reads and writes n bytes a row of n bytes where the row fits into registers or shared
 * memory: the probabilities are never in memory. dlogits may alias logits: a thread writes what it
 * has read itself. It is too large for the caches and goes past them. */
#include "rows.cuh"

typedef Compute<TYPE> Real;

/* The row's label, or -1, and a report of it, where it is none. */
DEVICE i32 label_of(const Team &team, const i32 *labels, const View &view, const Fault &fault) {
    if (!team.live) return -1;
    i32 label = *view.at(labels, team.row);
    if (label >= 0 && label < team.n) return label;
    if (team.rank == 0) fault.report(label, team.n);
    return -1;
}

template <bool ALIGNED> DEVICE Real lse_of(const Team &team, Row<TYPE, ALIGNED> &in) {
    Peak<Real> peak = Peak<Real>::none();
    team.walk([&](i64 start) {
        Chunk<TYPE> v = in.first(start);
        team.each(start, [&](int k, i64) { peak.add(widen(v.at[k])); });
    });
    return team.reduce(peak, AddPeaks()).log_sum();
}

/* (p - [i == label]) dloss of the vector at column c. */
DEVICE Vec<Real, VEC> grad_of(const Vec<TYPE, VEC> &x, i64 c, Real lse, Real dloss, i32 label) {
    Vec<Real, VEC> p = widen(x);
#pragma unroll
    for (int i = 0; i < VEC; i++) p.at[i] = math::exp(p.at[i] - lse);
    if ((u64)(label - c) < VEC) {
#pragma unroll
        for (int i = 0; i < VEC; i++) p.at[i] -= (Real)(c + i == label);
    }
#pragma unroll
    for (int i = 0; i < VEC; i++) p.at[i] *= dloss;
    return p;
}

struct LossViews { /* parameters: where what there is one of for each row lies */
    View labels, loss, lse, dloss;
};

template <bool ALIGNED>
DEVICE void loss_row(const TYPE *x, const i32 *labels, Real *loss, Real *lse, const Lines &xl,
                     const LossViews &v, i64 rows, i64 n, const Fault &fault) {
    Team team(rows, n);
    Row<TYPE, ALIGNED> in(team, x, xl);
    i32 label = label_of(team, labels, v.labels, fault);
    Real e = lse_of(team, in);
    if (team.rank != 0 || label < 0) return;
    *v.lse.at(lse, team.row) = e;
    *v.loss.at(loss, team.row) = e - widen(in.at[label * in.step]);
}

template <bool ALIGNED>
DEVICE void both_row(const TYPE *x, const i32 *labels, const Real *dloss, Real *loss, Real *lse,
                     TYPE *dx, const Lines &xl, const Lines &dxl, const LossViews &v, i64 rows,
                     i64 n, const Fault &fault) {
    Team team(rows, n);
    Row<TYPE, ALIGNED> in(team, x, xl);
    Result<TYPE, ALIGNED, true> out(team, dx, dxl);
    i32 label = label_of(team, labels, v.labels, fault);
    Real d = team.live ? *v.dloss.at(dloss, team.row) : (Real)0;
    Real e = lse_of(team, in);
    if (team.rank == 0 && label >= 0) *v.lse.at(lse, team.row) = e;
    Real *row_loss = v.loss.at(loss, team.row);
    team.walk([&](i64 start) {
        Chunk<TYPE> chunk = in.again(start);
        team.each(start, [&](int k, i64 c) {
            /* Before the logit is overwritten, by this thread. */
            if ((u64)(label - c) < VEC) {
#pragma unroll
                for (int i = 0; i < VEC; i++)
                    if (c + i == label) *row_loss = e - widen(chunk.at[k].at[i]);
            }
            out.put(c, grad_of(chunk.at[k], c, e, d, label));
        });
    });
}

template <bool ALIGNED>
DEVICE void grad_row(const TYPE *x, const i32 *labels, const Real *lse, const Real *dloss, TYPE *dx,
                     const Lines &xl, const Lines &dxl, const LossViews &v, i64 rows, i64 n,
                     const Fault &fault) {
    Team team(rows, n);
    Row<TYPE, ALIGNED> in(team, x, xl);
    Result<TYPE, ALIGNED, true> out(team, dx, dxl);
    i32 label = label_of(team, labels, v.labels, fault);
    if (!team.live) return;
    Real e = *v.lse.at(lse, team.row), d = *v.dloss.at(dloss, team.row);
    team.walk([&](i64 start) {
        Chunk<TYPE> chunk = in.once(start);
        team.each(start, [&](int k, i64 c) { out.put(c, grad_of(chunk.at[k], c, e, d, label)); });
    });
}

#ifdef LOSS
extern "C" __global__
__launch_bounds__(BLOCK, RESIDENT) void cross_entropy(const TYPE *x, const i32 *labels, Real *loss,
                                                      Real *lse, Lines xl, LossViews v, i64 rows,
                                                      i64 n, Fault fault) {
    if (is_aligned<VEC>(x))
        loss_row<true>(x, labels, loss, lse, xl, v, rows, n, fault);
    else
        loss_row<false>(x, labels, loss, lse, xl, v, rows, n, fault);
}
#endif

#ifdef BOTH
extern "C" __global__ __launch_bounds__(BLOCK, RESIDENT) void cross_entropy(
    const TYPE *x, const i32 *labels, const Real *dloss, Real *loss, Real *lse, TYPE *dx, Lines xl,
    Lines dxl, LossViews v, i64 rows, i64 n, Fault fault) {
    if (is_aligned<VEC>(x) && is_aligned<VEC>(dx))
        both_row<true>(x, labels, dloss, loss, lse, dx, xl, dxl, v, rows, n, fault);
    else
        both_row<false>(x, labels, dloss, loss, lse, dx, xl, dxl, v, rows, n, fault);
}
#endif

#ifdef GRAD
extern "C" __global__ __launch_bounds__(BLOCK, RESIDENT) void cross_entropy(
    const TYPE *x, const i32 *labels, const Real *lse, const Real *dloss, TYPE *dx, Lines xl,
    Lines dxl, LossViews v, i64 rows, i64 n, Fault fault) {
    if (is_aligned<VEC>(x) && is_aligned<VEC>(dx))
        grad_row<true>(x, labels, lse, dloss, dx, xl, dxl, v, rows, n, fault);
    else
        grad_row<false>(x, labels, lse, dloss, dx, xl, dxl, v, rows, n, fault);
}
#endif
