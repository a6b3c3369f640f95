/* attention_mma.cu - attention of 16-bit floats on tensor cores (FlashAttention-2: Dao 2023).
 *
 * A block takes BLOCK_ROWS queries of a head and meets KEYS keys at a time, the next ones on their
 * way to shared memory meanwhile: one barrier for each tile. Scores, probabilities and sums stay in
 * registers; what a row has is rescaled when its maximum rises. Keys that no query of a warp sees
 * are left out, only tiles at the edge of what is seen are masked.
 *
 * Traffic: q and y once, k and v once for each block, from the L2 cache where the blocks of a head
 * run at a time (they are neighbours in the grid, those with the most keys first). What limits:
 * for a depth of 64, 16 x 8 scores are 8 mma (13 cycles of a processor of sm_90, of whose peak
 * mma.sync reaches 63 %: Luo et al. 2024), 128 exponentials (8 cycles), about 450 other float
 * operations (4) and 1 KB from shared memory (8), which overlap only between warps. With dropout
 * the random bits limit: some 80 integer operations a score.
 *
 * With WGMMA (attention_wgmma.cuh) warps multiply by fours, keys and values being read by the
 * tensor cores themselves.
 *
 * Bits: of a row, keys come in tiles of KEYS, whatever the rest. */
#define COLUMNS       KEYS
#define KEEPS_FACTORS (WGMMA || DEPTH <= 64)
#include "attention_wgmma.cuh"

/* What the rows of a warp have so far; [m][i] is row 16 m + lane / 4 + 8 i. Sums are the thread's
 * part of the row's. */
struct Softmax {
    float top[STRIPS][2], sum[STRIPS][2];
};

/* Scores become probabilities but for a factor of each row, by which y is rescaled. */
DEVICE void absorb(Softmax &row, Sums<KEYS> &p, Sums<DEPTH> &y, float scale) {
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float top = row.top[m][i], sum = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                top = fmaxf(top, fmaxf(p[m][n][2 * i], p[m][n][2 * i + 1]));
            top = fmaxf(top, shuffle_xor(top, 1));
            top = fmaxf(top, shuffle_xor(top, 2));
            float base = top == -INFINITE ? 0 : top * scale;
            float keep = exp2_approx(fmaf(row.top[m][i], scale, -base));
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    p[m][n][e] = exp2_approx(fmaf(p[m][n][e], scale, -base));
                    sum += p[m][n][e];
                }
            row.top[m][i] = top;
            row.sum[m][i] = fmaf(row.sum[m][i], keep, sum);
#pragma unroll
            for (int n = 0; n < DEPTH / 8; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) y[m][n][e] *= keep;
        }
}

DEVICE void drop(Sums<KEYS> &p, const Sight &sight, int t, int s) {
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (!sight.keeps(t + row_of(m, e), s + column_of(n, e))) p[m][n][e] = 0;
}

/* Products become scores over the scale, by which they are multiplied later. */
DEVICE void shape_scores(Sums<KEYS> &p, const AttentionArgs &a, const Sight &sight, int t, int s) {
    float scale = (float)a.scale, slope;
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int query = t + row_of(m, e), other = s + column_of(n, e);
                if (query < sight.rows && other < sight.keys)
                    p[m][n][e] = sight.score(p[m][n][e] * scale, query, other, &slope) / scale;
            }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_mma(const Element *q, const Element *k, const Element *v, OPTION_PARAMS, Element *out,
                  char *lse, AttentionArgs a) {
    extern __shared__ uint4 shared[];
    constexpr int tile = Tile::size;
    Element *queries = Tile::align((Element *)shared), *tiles = queries + BLOCK_ROWS * PITCH;
    int blocks = (a.queries + BLOCK_ROWS - 1) / BLOCK_ROWS, at = (int)blockIdx.x % blocks;
    int h = (int)(blockIdx.x / blocks) % a.heads, b = (int)(blockIdx.x / blocks) / a.heads;
    int g = h / (a.heads / a.groups), first = (blocks - 1 - at) * BLOCK_ROWS;
    int own = (int)threadIdx.x / 32 * STRIPS * 16, t = first + own; /* the warp's rows */
    Rows qs(q, a.q, a.depth, b, h), ks(k, a.k, a.depth, b, g), vs(v, a.v, a.depth, b, g);
    Sight sight(a, OPTIONS, b, h);
    Span seen = sight.of_queries(first, min(first + BLOCK_ROWS, a.queries));
    int begin = seen.first / KEYS * KEYS, end = seen.end;
    int least = first + own / together * together; /* of the rows with which the warp works */
    /* Without options: keys that all of the warp see, and that some of those rows see. */
    int all = sight.before(t), some = sight.before(least + together - 1);

    tile_load<BLOCK_ROWS>(queries, qs, first, a.queries, a.depth);
    Tile::load(tiles, ks, begin, sight.keys, a.depth);
    Tile::load(tiles + tile, vs, begin, sight.keys, a.depth);
    cp_async_commit();
    Tile::arrived();
    __syncthreads();
    Factor mine(queries + own * PITCH);
    Sums<DEPTH> y;
    Softmax row;
    clear(y);
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) row.top[m][i] = -INFINITE, row.sum[m][i] = 0;

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
        if (GENERAL ? !sight.meet(least, least + together, s, KEYS) : s >= some) continue;
        Sums<KEYS> p;
        Tile::multiply(p, mine, now);
        Tile::finish<KEYS>(p);
        if (!sight.plain_scores()) shape_scores(p, a, sight, t, s);
        bool whole = GENERAL ? sight.all_see(t, t + STRIPS * 16, s, KEYS) : s + KEYS <= all;
        if (!whole) hide<false>(p, a, sight, t, s);
        absorb(row, p, y, (float)a.scale * LOG2_E);
        if (DROPS) drop(p, sight, t, s);
        Tile::accumulate(y, p, now + tile);
        Tile::finish<DEPTH>(y);
    }
    __syncthreads();

#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) row.sum[m][i] = warp_reduce<4>(row.sum[m][i], Add());
    float share[STRIPS][2];
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int query = t + row_of(m, 2 * i);
            float sum = row.sum[m][i];
            share[m][i] = sum == 0 ? 0 : (DROPS ? 1 / (float)a.keep : 1) / sum;
            if (threadIdx.x % 4 == 0 && query < a.queries)
                *(float *)(lse + b * a.lse[0] + h * a.lse[1] + query * a.lse[2]) =
                    row.top[m][i] * (float)a.scale + logf(sum);
        }
    tile_store(Rows(out, a.y, a.depth, b, h), t, a.queries, a.depth, queries + own * PITCH, y,
               share);
}
