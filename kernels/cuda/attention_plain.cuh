/* attention_plain.cuh - tiles and products of what tensor cores do not take: float32 and float64
 * in full, and any depth.
 *
 * A block of 16 x 16 threads makes TILE x TILE scores, of which a thread has M x M beside each
 * other, from slices of DEEP depths that lie in shared memory depth first. Scores go through shared
 * memory to make TILE x CHUNK results, of which a thread has M x N. So a number from shared memory
 * serves at least M / 2 fused multiply-adds, which limit. */
#ifndef MESHLUA_CUDA_ATTENTION_PLAIN_CUH
#define MESHLUA_CUDA_ATTENTION_PLAIN_CUH

#include "attention.cuh"

constexpr int M = sizeof(Real) == 4 ? 4 : 2, TILE = 16 * M, DEEP = 16, N = 4, CHUNK = 16 * N;
constexpr int THREADS = 256;
constexpr int TILE_PITCH = TILE + 16 / sizeof(Real), CHUNK_PITCH = CHUNK + 16 / sizeof(Real);

struct Shared {
    alignas(16) Real x[DEEP][TILE_PITCH];
    alignas(16) Real w[DEEP][TILE_PITCH];
    alignas(16) Real p[TILE][TILE_PITCH];
    alignas(16) Real rows[TILE][CHUNK_PITCH];
};

/* The thread's part of TILE rows begins at row y() M, of as many columns at x() M. */
DEVICE int x() {
    return (int)threadIdx.x % 16;
}
DEVICE int y() {
    return (int)threadIdx.x / 16;
}

template <int W> DEVICE void clear(Real (&sums)[M][W]) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int n = 0; n < W; n++) sums[i][n] = 0;
}

/* sums += a^T b for the thread's rows and columns, over J rows of both. */
template <int J, int W, int PA, int PB>
DEVICE void multiply(Real (&sums)[M][W], const Real (&a)[J][PA], const Real (&b)[J][PB]) {
#pragma unroll 8
    for (int j = 0; j < J; j++) {
        Vec<Real, M> u = load<M>(&a[j][y() * M]);
        Vec<Real, W> v = load<W>(&b[j][x() * W]);
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int n = 0; n < W; n++) sums[i][n] = math::fma(u.at[i], v.at[n], sums[i][n]);
    }
}

template <class T> DEVICE Real read(const RowsOf<T> &from, int row, int end, int d, int depth) {
    return row < end && d < depth ? widen(*from.at(row, d)) : 0;
}

/* sums = u w^T of TILE rows each, from `ui` and `wi` on. */
template <class T, class U>
DEVICE void scores(Shared &sh, Real (&sums)[M][M], const RowsOf<T> &u, int ui, int uend,
                   const RowsOf<U> &w, int wi, int wend, int depth) {
    clear(sums);
    for (int d = 0; d < depth; d += DEEP) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < TILE * DEEP; i += THREADS) {
            int r = i / DEEP, e = i % DEEP;
            sh.x[e][r] = read(u, ui + r, uend, d + e, depth);
            sh.w[e][r] = read(w, wi + r, wend, d + e, depth);
        }
        __syncthreads();
        multiply(sums, sh.x, sh.w);
    }
}

/* sums += p rows: TILE rows of `from`, of which p's columns, CHUNK depths from d on. */
template <class T>
DEVICE void accumulate(Shared &sh, Real (&sums)[M][N], const Real (&p)[M][M], const RowsOf<T> &from,
                       int row, int end, int d, int depth) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < M; n++) {
        Vec<Real, M> column;
#pragma unroll
        for (int i = 0; i < M; i++) column.at[i] = p[i][n];
        store<M>(&sh.p[x() * M + n][y() * M], column);
    }
    for (int i = (int)threadIdx.x; i < TILE * CHUNK; i += THREADS) {
        int r = i / CHUNK, e = i % CHUNK;
        sh.rows[r][e] = read(from, row + r, end, d + e, depth);
    }
    __syncthreads();
    multiply(sums, sh.p, sh.rows);
}

/* The thread's part of TILE rows times scale[i]. */
template <class T>
DEVICE void write(const RowsOf<T> &to, int row, int end, int d, int depth, const Real (&sums)[M][N],
                  const Real (&scale)[M]) {
#pragma unroll
    for (int i = 0; i < M; i++)
        for (int n = 0; n < N; n++) {
            int r = row + y() * M + i, e = d + x() * N + n;
            if (r < end && e < depth) *to.at(r, e) = narrow<T>(sums[i][n] * scale[i]);
        }
}

#endif
