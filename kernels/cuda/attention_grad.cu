/* attention_grad.cu - the gradient of attention in plain arithmetic (attention_plain.cuh): the two
 * kernels of attention_grad_mma.cu without tensor cores, a chunk of the depth at a time. `base` is
 * lse itself here. */
#include "attention_plain.cuh"

/* A probability after dropout, but for the factor 1 / keep, and what its score's gradient is. */
struct Share {
    Real p, ds;
};
DEVICE Share share_of(const AttentionArgs &a, const Sight &sight, int t, int s, Real score, Real dp,
                      const Real *base, const Real *delta) {
    if (t >= a.queries || s >= a.keys) return Share{0, 0};
    bool none = MASKED && base[t] == -INFINITE, kept = sight.keeps(t, s);
    if (!none && (s >= keys_before(a, t) || !sight.sees(t, s))) return Share{0, 0};
    Real p = none ? 1 / (Real)a.keys : math::exp(math::fma(score, (Real)a.scale, -base[t]));
    if (DROPS) dp = kept ? dp / (Real)a.keep : 0;
    return Share{kept ? p : 0, none ? 0 : p * (dp - delta[t])};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_grad_keys(const Element *q, const Element *k, const Element *v, const Element *dy,
                        const u8 *mask, const u8 *key, const Real *base, const Real *delta,
                        Element *dk, Element *dv, AttentionArgs a) {
    __shared__ Shared sh;
    int blocks = (a.keys + TILE - 1) / TILE, chunks = max(1, (a.depth + CHUNK - 1) / CHUNK);
    int d = (int)blockIdx.x % chunks * CHUNK, at = (int)(blockIdx.x / chunks);
    int s = at % blocks * TILE, g = at / blocks % a.groups, b = at / blocks / a.groups;
    int members = a.heads / a.groups, begin = 0;
    /* Through a mask earlier queries may look nowhere, and so at all keys. */
    if (!MASKED && a.causal) begin = max(0, s + a.queries - a.keys) / TILE * TILE;
    Rows ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    Real sum_k[M][N], sum_v[M][N], by_k[M], by_v[M];
    clear(sum_k);
    clear(sum_v);
    for (int h = g * members; h < (g + 1) * members; h++) {
        Rows qs(q, a.q, a.depth, b, h), dys(dy, a.dy, a.depth, b, h);
        Sight sight(a, mask, key, b, h);
        i64 first = (i64)(b * a.heads + h) * a.padded;
        for (int t = begin; t < a.queries; t += TILE) {
            Real p[M][M], ds[M][M];
            scores(sh, p, ks, s, a.keys, qs, t, a.queries, a.depth);
            scores(sh, ds, vs, s, a.keys, dys, t, a.queries, a.depth);
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int n = 0; n < M; n++) {
                    Share r = share_of(a, sight, t + x() * M + n, s + y() * M + i, p[i][n],
                                       ds[i][n], base + first, delta + first);
                    p[i][n] = r.p;
                    ds[i][n] = r.ds;
                }
            accumulate(sh, sum_v, p, dys, t, a.queries, d, a.depth);
            accumulate(sh, sum_k, ds, qs, t, a.queries, d, a.depth);
        }
    }
#pragma unroll
    for (int i = 0; i < M; i++) by_k[i] = (Real)a.scale, by_v[i] = DROPS ? 1 / (Real)a.keep : 1;
    write(Rows(dk, a.dk, a.depth, b, g), s, a.keys, d, a.depth, sum_k, by_k);
    write(Rows(dv, a.dv, a.depth, b, g), s, a.keys, d, a.depth, sum_v, by_v);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_grad_queries(const Element *q, const Element *k, const Element *v, const Element *dy,
                           const u8 *mask, const u8 *key, const Real *base, const Real *delta,
                           Element *dq, AttentionArgs a) {
    __shared__ Shared sh;
    int blocks = (a.queries + TILE - 1) / TILE, chunks = max(1, (a.depth + CHUNK - 1) / CHUNK);
    int d = (int)blockIdx.x % chunks * CHUNK, at = (int)(blockIdx.x / chunks);
    int t = (blocks - 1 - at % blocks) * TILE, h = at / blocks % a.heads, b = at / blocks / a.heads;
    int g = h / (a.heads / a.groups), end = keys_before(a, min(t + TILE, a.queries) - 1);
    Rows qs(q, a.q, a.depth, b, h), dys(dy, a.dy, a.depth, b, h);
    Rows ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    Sight sight(a, mask, key, b, h);
    i64 first = (i64)(b * a.heads + h) * a.padded;
    Real sum[M][N], by[M];
    clear(sum);
    for (int s = 0; s < end; s += TILE) {
        Real p[M][M], ds[M][M];
        scores(sh, p, qs, t, a.queries, ks, s, a.keys, a.depth);
        scores(sh, ds, dys, t, a.queries, vs, s, a.keys, a.depth);
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int n = 0; n < M; n++)
                ds[i][n] = share_of(a, sight, t + y() * M + i, s + x() * M + n, p[i][n], ds[i][n],
                                    base + first, delta + first)
                               .ds;
        accumulate(sh, sum, ds, ks, s, a.keys, d, a.depth);
    }
#pragma unroll
    for (int i = 0; i < M; i++) by[i] = (Real)a.scale;
    write(Rows(dq, a.dq, a.depth, b, h), t, a.queries, d, a.depth, sum, by);
}
