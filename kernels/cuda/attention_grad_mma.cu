/* attention_grad_mma.cu - the gradient of attention of 16-bit floats on tensor cores
 * (FlashAttention-2: Dao 2023): p is made again, 2^(scale q k^T / log 2 - base), and dv = p^T dy,
 * ds = p (dy v^T - delta), dq = scale ds k, dk = scale ds^T q (base and delta:
 * attention_delta.cu).
 *
 * Two kernels make the scores each for itself: one has a tile of keys and meets all queries, for dk
 * and dv, the other a tile of queries and meets all keys, for dq. That is 7 products of which 5
 * would do, but nothing is added up in memory: sums of dq by atomics would differ from run to run,
 * and partial sums for each tile of keys, 64 KB written and read for 128 x 128 scores at D = 64,
 * take as long as the two products, and memory that grows with the square of the length.
 *
 * Scores are made with the block's own tile as rows, so that p and ds are, in the registers where
 * they arise, the first factor of the products that follow: no score goes through shared memory.
 * What limits: mma.sync, 1.6 cycles of a processor of sm_90 each (attention_mma.cu), and shared
 * memory: for an mma 192 bytes for dk and dv at a depth of 64, 128 for dq, 256 where a warp has one
 * strip of rows; 128 are a cycle.
 *
 * Bits: a row of dk and dv adds up tiles of QUERIES in rising order, head by head, one of dq tiles
 * of KEYS. */
#ifdef QUERIES
#    define COLUMNS       QUERIES
#    define KEEPS_FACTORS (WGMMA || (DEPTH <= 64 && STRIPS == 1))
#else
#    define COLUMNS       KEYS
#    define KEEPS_FACTORS (WGMMA || DEPTH <= 64)
#endif
#include "attention_wgmma.cuh"

/* A probability after dropout, but for the factor 1 / keep, and what its score's gradient is, but
 * for the slope of the soft cap. With options, of what is hidden both are 0. */
struct Share {
    float p, ds, slope;
};
DEVICE Share share_of(const AttentionArgs &a, const Sight &sight, int t, int s, float score,
                      float dp, float base, float delta) {
    bool kept = !DROPS || sight.keeps(t, s);
    float slope = 1, exponent = fmaf(score, (float)a.scale * LOG2_E, -base);
    if (GENERAL) {
        if (!sight.sees(t, s)) return Share{0, 0, 0};
        if (!sight.plain_scores())
            exponent = fmaf(sight.score(score * (float)a.scale, t, s, &slope), LOG2_E, -base);
    }
    float p = exp2_approx(exponent);
    if (DROPS) dp = kept ? dp * (1 / (float)a.keep) : 0;
    return Share{kept ? p : 0, p * (dp - delta), slope};
}

#ifdef QUERIES
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_grad_keys(const Element *q, const Element *k, const Element *v, const Element *dy,
                        OPTION_PARAMS, const float *base, const float *delta, Element *dk,
                        Element *dv, AttentionArgs a) {
    extern __shared__ uint4 shared[];
    constexpr int own_tile = BLOCK_ROWS * PITCH, tile = Tile::size;
    Element *keys = Tile::align((Element *)shared), *values = keys + own_tile,
            *tiles = values + own_tile;
    float *rows = (float *)(tiles + 4 * tile); /* [2][2][QUERIES]: base and delta */
    int blocks = (a.keys + BLOCK_ROWS - 1) / BLOCK_ROWS, members = a.heads / a.groups;
    int g = (int)(blockIdx.x / blocks) % a.groups, b = (int)(blockIdx.x / blocks) / a.groups;
    int first = (int)blockIdx.x % blocks * BLOCK_ROWS, own = (int)threadIdx.x / 32 * STRIPS * 16;
    int s = first + own; /* the warp's rows, and the first of those with which it works */
    int least = first + own / together * together;
    base += (i64)(b * a.heads + g * members) * a.padded;
    delta += (i64)(b * a.heads + g * members) * a.padded;
    Span seen = Sight(a, OPTIONS, b, g * members).of_keys(first, first + BLOCK_ROWS);
    int begin = seen.first / QUERIES * QUERIES;
    int steps = (max(0, seen.end - begin) + QUERIES - 1) / QUERIES; /* of a head */

    auto fetch = [&](int step, int stage) {
        int h = step / steps, t = begin + step % steps * QUERIES;
        Rows qs(q, a.q, a.depth, b, g * members + h), dys(dy, a.dy, a.depth, b, g * members + h);
        Tile::load(tiles + 2 * stage * tile, qs, t, a.queries, a.depth);
        Tile::load(tiles + (2 * stage + 1) * tile, dys, t, a.queries, a.depth);
        if (threadIdx.x < QUERIES / 2) { /* a quarter of it for base, the others for delta */
            int i = (int)threadIdx.x * 4, of = i % QUERIES;
            const float *from = i < QUERIES ? base : delta;
            cp_async_16(rows + 2 * stage * QUERIES + i, from + (i64)h * a.padded + t + of, true);
        }
        cp_async_commit();
    };
    Rows ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    tile_load<BLOCK_ROWS>(keys, ks, first, a.keys, a.depth);
    tile_load<BLOCK_ROWS>(values, vs, first, a.keys, a.depth);
    cp_async_commit();
    if (steps * members > 0) fetch(0, 0);
    Tile::arrived();
    __syncthreads();
    Factor my_keys(keys + own * PITCH), my_values(values + own * PITCH);
    Sums<DEPTH> sum_k, sum_v;
    clear(sum_k);
    clear(sum_v);

    for (int step = 0; step < steps * members; step++) {
        int stage = step & 1, h = g * members + step / steps, t = begin + step % steps * QUERIES;
        const Element *queries = tiles + 2 * stage * tile, *grads = queries + tile;
        const float *bases = rows + 2 * stage * QUERIES, *deltas = bases + QUERIES;
        Tile::arrived();
        __syncthreads(); /* this tile is there, and nobody reads the one before any more */
        if (step + 1 < steps * members) fetch(step + 1, stage ^ 1);
        Sight sight(a, OPTIONS, b, h);
        if (GENERAL ? !sight.meet(t, t + QUERIES, least, together)
                    : least >= sight.before(t + QUERIES - 1))
            continue;
        Sums<QUERIES> p, ds;
        Tile::multiply(p, my_keys, queries);
        Tile::multiply(ds, my_values, grads);
        Tile::finish<QUERIES>(p);
        Tile::finish<QUERIES>(ds);
        if (!GENERAL && s + STRIPS * 16 > sight.before(t)) hide<true>(p, a, sight, s, t);
#    pragma unroll
        for (int n = 0; n < QUERIES / 8; n++)
#    pragma unroll
            for (int e = 0; e < 4; e++) {
                int i = column_of(n, e);
                float my_base = bases[i], my_delta = deltas[i];
#    pragma unroll
                for (int m = 0; m < STRIPS; m++) {
                    Share r = share_of(a, sight, t + i, s + row_of(m, e), p[m][n][e], ds[m][n][e],
                                       my_base, my_delta);
                    p[m][n][e] = r.p;
                    ds[m][n][e] = r.ds * r.slope;
                }
            }
        Tile::accumulate(sum_v, p, grads);
        Tile::accumulate(sum_k, ds, queries);
        Tile::finish<DEPTH>(sum_v);
        Tile::finish<DEPTH>(sum_k);
    }

    float by_k[STRIPS][2], by_v[STRIPS][2];
#    pragma unroll
    for (int m = 0; m < STRIPS; m++)
#    pragma unroll
        for (int i = 0; i < 2; i++)
            by_k[m][i] = (float)a.scale, by_v[m][i] = DROPS ? 1 / (float)a.keep : 1;
    tile_store(Rows(dk, a.dk, a.depth, b, g), s, a.keys, a.depth, keys + own * PITCH, sum_k, by_k);
    tile_store(Rows(dv, a.dv, a.depth, b, g), s, a.keys, a.depth, values + own * PITCH, sum_v,
               by_v);
}
#endif

#ifdef KEYS
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_grad_queries(const Element *q, const Element *k, const Element *v, const Element *dy,
                           OPTION_PARAMS, const float *base, const float *delta, Element *dq,
                           char *dbias, AttentionArgs a) {
    extern __shared__ uint4 shared[];
    constexpr int own_tile = BLOCK_ROWS * PITCH, tile = Tile::size;
    Element *queries = Tile::align((Element *)shared), *grads = queries + own_tile,
            *tiles = grads + own_tile;
    int blocks = (a.queries + BLOCK_ROWS - 1) / BLOCK_ROWS, at = (int)blockIdx.x % blocks;
    int h = (int)(blockIdx.x / blocks) % a.heads, b = (int)(blockIdx.x / blocks) / a.heads;
    int g = h / (a.heads / a.groups), first = (blocks - 1 - at) * BLOCK_ROWS;
    int own = (int)threadIdx.x / 32 * STRIPS * 16, t = first + own; /* the warp's rows */
    Rows qs(q, a.q, a.depth, b, h), dys(dy, a.dy, a.depth, b, h);
    Rows ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    Sight sight(a, OPTIONS, b, h);
    Span seen = sight.of_queries(first, min(first + BLOCK_ROWS, a.queries));
    if (dbias) { /* what nobody sees has none */
        seen = Span{0, a.keys};
        dbias += b * a.dbias[0] + h * a.dbias[1];
    }
    int begin = seen.first / KEYS * KEYS, end = seen.end;
    int least = first + own / together * together; /* of the rows with which the warp works */
    /* Without options: keys that all of the warp see, and that some of those rows see. */
    int all = sight.before(t), some = sight.before(least + together - 1);

    tile_load<BLOCK_ROWS>(queries, qs, first, a.queries, a.depth);
    tile_load<BLOCK_ROWS>(grads, dys, first, a.queries, a.depth);
    Tile::load(tiles, ks, begin, sight.keys, a.depth);
    Tile::load(tiles + tile, vs, begin, sight.keys, a.depth);
    cp_async_commit();
    float my_base[STRIPS][2], my_delta[STRIPS][2];
#    pragma unroll
    for (int m = 0; m < STRIPS; m++)
#    pragma unroll
        for (int i = 0; i < 2; i++) {
            i64 row = (i64)(b * a.heads + h) * a.padded + t + row_of(m, 2 * i);
            my_base[m][i] = base[row];
            my_delta[m][i] = delta[row];
        }
    Tile::arrived();
    __syncthreads();
    Factor my_queries(queries + own * PITCH), my_grads(grads + own * PITCH);
    Sums<DEPTH> sum;
    clear(sum);

    for (int s = begin, stage = 0; s < end; s += KEYS, stage ^= 1) {
        const Element *now = tiles + stage * 2 * tile;
        Element *next = tiles + (stage ^ 1) * 2 * tile;
        Tile::arrived();
        __syncthreads(); /* this tile is there, and nobody reads the one before any more */
        if (s + KEYS < end) {
            Tile::load(next, ks, s + KEYS, sight.keys, a.depth);
            Tile::load(next + tile, vs, s + KEYS, sight.keys, a.depth);
            cp_async_commit();
        }
        if (GENERAL ? !dbias && !sight.meet(least, least + together, s, KEYS) : s >= some) continue;
        Sums<KEYS> p, ds;
        Tile::multiply(p, my_queries, now);
        Tile::multiply(ds, my_grads, now + tile);
        Tile::finish<KEYS>(p);
        Tile::finish<KEYS>(ds);
        if (!GENERAL && s + KEYS > all) hide<false>(p, a, sight, t, s);
#    pragma unroll
        for (int m = 0; m < STRIPS; m++)
#    pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#    pragma unroll
                for (int e = 0; e < 4; e++) {
                    int query = t + row_of(m, e), other = s + column_of(n, e);
                    Share x = share_of(a, sight, query, other, p[m][n][e], ds[m][n][e],
                                       my_base[m][e / 2], my_delta[m][e / 2]);
                    ds[m][n][e] = x.ds * x.slope;
                    if (GENERAL && dbias && query < a.queries && other < a.keys)
                        bias_write(dbias + query * a.dbias[2] + other * a.dbias[3], a.bias_type,
                                   x.ds);
                }
        Tile::accumulate(sum, ds, now);
        Tile::finish<DEPTH>(sum);
    }

    float by[STRIPS][2];
#    pragma unroll
    for (int m = 0; m < STRIPS; m++)
#    pragma unroll
        for (int i = 0; i < 2; i++) by[m][i] = (float)a.scale;
    tile_store(Rows(dq, a.dq, a.depth, b, h), t, a.queries, a.depth, queries + own * PITCH, sum,
               by);
}
#endif
