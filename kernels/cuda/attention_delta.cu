/* attention_delta.cu - what the gradient of attention needs of each query, made once for the
 * kernels that follow: delta, the sum of dy y, and base = lse times `unit`, in the unit of
 * the scores that it is subtracted from. Both are [batch, head, a.padded]. base is inf where there
 * are no probabilities: beyond the queries, and where a query sees no key.
 *
 * LANES threads a row. Traffic: y and dy once. */
#include "attention.cuh"

extern "C" __global__ void attention_delta(const Element *y, const char *lse, const Element *dy,
                                           Real *base, Real *delta, double unit, AttentionArgs a) {
    i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    int lane = (int)threadIdx.x % LANES, t = (int)(row % a.padded);
    int h = (int)(row / a.padded % a.heads), b = (int)(row / a.padded / a.heads);
    Real sum = 0;
    if (b < a.batches && t < a.queries) {
        constexpr int vector = 16 / sizeof(Element);
        Rows ys(y, a.y, a.depth, b, h), dys(dy, a.dy, a.depth, b, h);
        if (ys.wide && dys.wide) {
            for (int d = lane * vector; d < a.depth; d += LANES * vector) {
                Vec<Real, vector> u = widen(load<vector>(ys.at(t, d)));
                Vec<Real, vector> w = widen(load<vector>(dys.at(t, d)));
#pragma unroll
                for (int i = 0; i < vector; i++) sum += u.at[i] * w.at[i];
            }
        } else {
            for (int d = lane; d < a.depth; d += LANES)
                sum += widen(*ys.at(t, d)) * widen(*dys.at(t, d));
        }
    }
    sum = warp_reduce<LANES>(sum, Add());
    if (lane != 0 || b >= a.batches) return;
    Real l = -INFINITE;
    if (t < a.queries)
        l = *(const Real *)(lse + b * a.lse[0] + h * a.lse[1] + t * a.lse[2]) * (Real)unit;
    base[row] = l != -INFINITE ? l : (Real)INFINITE;
    delta[row] = sum;
}
