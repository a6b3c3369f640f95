/* attention.cu - attention in plain arithmetic: float32 and float64 as exact as they are, any depth
 * (attention_plain.cuh).
 *
 * A block takes TILE queries of a head and CHUNK depths of y, and meets TILE keys at a time; where
 * the depth has several chunks, the scores are made for each of them. A row's maximum and sum so
 * far rescale what there is (Milakov and Gimelshein 2018). */
#include "attention_plain.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const Element *q, const KeyElement *k, const KeyElement *v, OPTION_PARAMS,
              Element *out, char *lse, AttentionArgs a) {
    __shared__ Shared sh;
    int blocks = (a.queries + TILE - 1) / TILE, chunks = max(1, (a.depth + CHUNK - 1) / CHUNK);
    int d = (int)blockIdx.x % chunks * CHUNK, at = (int)(blockIdx.x / chunks);
    int t = (blocks - 1 - at % blocks) * TILE, h = at / blocks % a.heads, b = at / blocks / a.heads;
    int g = h / (a.heads / a.groups);
    Rows qs(q, a.q, a.depth, b, h);
    KeyRows ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    Sight sight(a, OPTIONS, b, h);
    Span span = sight.of_queries(t, min(t + TILE, a.queries));
    Real sums[M][N], top[M], sum[M], scale = (Real)a.scale;
    clear(sums);
#pragma unroll
    for (int i = 0; i < M; i++) top[i] = -INFINITE, sum[i] = 0;

    for (int s = span.first / TILE * TILE; s < span.end; s += TILE) {
        Real p[M][M];
        scores(sh, p, qs, t, a.queries, ks, s, sight.keys, a.depth);
#pragma unroll
        for (int i = 0; i < M; i++) {
            int query = t + y() * M + i;
            Real best = top[i], part = 0, slope;
#pragma unroll
            for (int n = 0; n < M; n++) {
                int other = s + x() * M + n;
                bool seen = sight.sees(query, other);
                p[i][n] = seen ? sight.score(p[i][n] * scale, query, other, &slope) : -INFINITE;
                best = math::max(best, p[i][n]);
            }
            best = warp_reduce<16>(best, Higher());
            Real base = best == -INFINITE ? 0 : best, keep = math::exp(top[i] - base);
#pragma unroll
            for (int n = 0; n < M; n++) part += p[i][n] = math::exp(p[i][n] - base);
            sum[i] = math::fma(sum[i], keep, warp_reduce<16>(part, Add()));
            top[i] = best;
#pragma unroll
            for (int n = 0; n < N; n++) sums[i][n] *= keep;
            if (DROPS)
                for (int n = 0; n < M; n++)
                    if (!sight.keeps(query, s + x() * M + n)) p[i][n] = 0;
        }
        accumulate(sh, sums, p, vs, s, sight.keys, d, a.depth);
    }

    Real share[M];
#pragma unroll
    for (int i = 0; i < M; i++) {
        int query = t + y() * M + i;
        share[i] = sum[i] == 0 ? 0 : (DROPS ? 1 / (Real)a.keep : 1) / sum[i];
        if (d == 0 && x() == 0 && query < a.queries)
            *(Real *)(lse + b * a.lse[0] + h * a.lse[1] + query * a.lse[2]) =
                top[i] + math::log(sum[i]);
    }
    write(Rows(out, a.y, a.depth, b, h), t, a.queries, d, a.depth, sums, share);
}
