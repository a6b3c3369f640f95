/* attention_grad.cu - the gradient of attention in plain arithmetic (attention_plain.cuh): the two
 * kernels of attention_grad_mma.cu without tensor cores, a chunk of the depth at a time. `base` is
 * lse itself here. */
#include "attention_plain.cuh"

/* A probability after dropout, but for the factor 1 / keep, and what its score's gradient is, but
 * for the slope of the soft cap. */
struct Share {
    Real p, ds, slope;
};
DEVICE Share share_of(const AttentionArgs &a, const Sight &sight, int t, int s, Real score, Real dp,
                      const Real *base, const Real *delta) {
    if (!sight.sees(t, s)) return Share{0, 0, 0};
    bool kept = sight.keeps(t, s);
    Real slope, x = sight.score(score * (Real)a.scale, t, s, &slope), p = math::exp(x - base[t]);
    if (DROPS) dp = kept ? dp / (Real)a.keep : 0;
    return Share{kept ? p : 0, p * (dp - delta[t]), slope};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_grad_keys(const Element *q, const KeyElement *k, const KeyElement *v,
                        const Element *dy, OPTION_PARAMS, const Real *base, const Real *delta,
                        KeyElement *dk, KeyElement *dv, AttentionArgs a) {
    __shared__ Shared sh;
    int blocks = (a.keys + TILE - 1) / TILE, chunks = max(1, (a.depth + CHUNK - 1) / CHUNK);
    int d = (int)blockIdx.x % chunks * CHUNK, at = (int)(blockIdx.x / chunks);
    int s = at % blocks * TILE, g = at / blocks % a.groups, b = at / blocks / a.groups;
    int members = a.heads / a.groups;
    KeyRows ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    Real sum_k[M][N], sum_v[M][N], by_k[M], by_v[M];
    clear(sum_k);
    clear(sum_v);
    for (int h = g * members; h < (g + 1) * members; h++) {
        Rows qs(q, a.q, a.depth, b, h), dys(dy, a.dy, a.depth, b, h);
        Sight sight(a, OPTIONS, b, h);
        Span span = sight.of_keys(s, s + TILE);
        i64 first = (i64)(b * a.heads + h) * a.padded;
        for (int t = span.first / TILE * TILE; t < span.end; t += TILE) {
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
                    ds[i][n] = r.ds * r.slope;
                }
            accumulate(sh, sum_v, p, dys, t, a.queries, d, a.depth);
            accumulate(sh, sum_k, ds, qs, t, a.queries, d, a.depth);
        }
    }
#pragma unroll
    for (int i = 0; i < M; i++) by_k[i] = (Real)a.scale, by_v[i] = DROPS ? 1 / (Real)a.keep : 1;
    write(KeyRows(dk, a.dk, a.depth, b, g), s, a.keys, d, a.depth, sum_k, by_k);
    write(KeyRows(dv, a.dv, a.depth, b, g), s, a.keys, d, a.depth, sum_v, by_v);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_grad_queries(const Element *q, const KeyElement *k, const KeyElement *v,
                           const Element *dy, OPTION_PARAMS, const Real *base, const Real *delta,
                           Element *dq, char *dbias, AttentionArgs a) {
    __shared__ Shared sh;
    int blocks = (a.queries + TILE - 1) / TILE, chunks = max(1, (a.depth + CHUNK - 1) / CHUNK);
    int d = (int)blockIdx.x % chunks * CHUNK, at = (int)(blockIdx.x / chunks);
    int t = (blocks - 1 - at % blocks) * TILE, h = at / blocks % a.heads, b = at / blocks / a.heads;
    int g = h / (a.heads / a.groups);
    Rows qs(q, a.q, a.depth, b, h), dys(dy, a.dy, a.depth, b, h);
    KeyRows ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    Sight sight(a, OPTIONS, b, h);
    Span span = sight.of_queries(t, min(t + TILE, a.queries));
    if (dbias) span = Span{0, a.keys};
    char *own_bias = dbias && d == 0 ? dbias + b * a.dbias[0] + h * a.dbias[1] : nullptr;
    i64 first = (i64)(b * a.heads + h) * a.padded;
    Real sum[M][N], by[M];
    clear(sum);
    for (int s = span.first / TILE * TILE; s < span.end; s += TILE) {
        Real p[M][M], ds[M][M];
        scores(sh, p, qs, t, a.queries, ks, s, sight.keys, a.depth);
        scores(sh, ds, dys, t, a.queries, vs, s, sight.keys, a.depth);
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int n = 0; n < M; n++) {
                int query = t + y() * M + i, other = s + x() * M + n;
                Share r = share_of(a, sight, query, other, p[i][n], ds[i][n], base + first,
                                   delta + first);
                ds[i][n] = r.ds * r.slope;
                if (GENERAL && own_bias && query < a.queries && other < a.keys)
                    bias_write(own_bias + query * a.dbias[2] + other * a.dbias[3], a.bias_type,
                               r.ds);
            }
        accumulate(sh, sum, ds, ks, s, sight.keys, d, a.depth);
    }
#pragma unroll
    for (int i = 0; i < M; i++) by[i] = (Real)a.scale;
    write(Rows(dq, a.dq, a.depth, b, h), t, a.queries, d, a.depth, sum, by);
}
