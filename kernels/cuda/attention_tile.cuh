/* attention_tile.cuh - tiles of 16-bit numbers in shared memory, and products of them on tensor
 * cores.
 *
 * A tile is rows of DEPTH numbers, PITCH apart. The 16 bytes between rows let the 8 rows of a
 * matrix that ldmatrix loads lie in different banks (PITCH / 8 is odd), as a swizzle would, but
 * leave every address a constant away from one register.
 *
 * A warp makes STRIPS times 16 rows of results, in the fragments of mma.cuh: sums[m][n] are rows
 * 16 m.. and columns 8 n... What a warp loads as the second factor serves all its strips, so with
 * one strip a product takes 256 bytes from shared memory for each mma, with two 128.
 *
 * Defined in front, beside those of attention.cuh: DEPTH, the head's depth in whole 16s; WARPS;
 * STRIPS; COLUMNS of a tile of scores; and KEEPS_FACTORS, whether registers have room for first
 * factors, too, which otherwise are loaded from shared memory each time. */
#ifndef MESHLUA_CUDA_ATTENTION_TILE_CUH
#define MESHLUA_CUDA_ATTENTION_TILE_CUH

#include "attention.cuh"
#include "mma.cuh"

constexpr int PITCH = DEPTH + 8;
constexpr int THREADS = WARPS * 32;
constexpr int BLOCK_ROWS = WARPS * STRIPS * 16; /* of results */

DEVICE u32 pair_of(bf16, float low, float high) {
    return bf16_pair(low, high);
}
DEVICE u32 pair_of(f16, float low, float high) {
    return f16_pair(low, high);
}
DEVICE void mma(bf16, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    mma_bf16(d, a, b0, b1);
}
DEVICE void mma(f16, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    mma_f16(d, a, b0, b1);
}

/* Starts to copy rows from `first` on to a tile of N; rows from `end` on become zeros, and so does
 * what is beyond the depth. */
template <int N>
DEVICE void tile_load(Element *tile, const Rows &from, int first, int end, int depth) {
    constexpr int row = DEPTH / 8, chunks = N * row;
    if (from.wide) {
#pragma unroll
        for (int j = 0; j < (chunks + THREADS - 1) / THREADS; j++) {
            int i = (int)threadIdx.x + j * THREADS, r = i / row, d = i % row * 8;
            if (chunks % THREADS != 0 && i >= chunks) break;
            cp_async_16(tile + r * PITCH + d, from.at(first + r, d), first + r < end && d < depth);
        }
        return;
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < N * DEPTH; i += THREADS) {
        int r = i / DEPTH, d = i % DEPTH;
        bool there = first + r < end && d < depth;
        tile[r * PITCH + d] = there ? *from.at(first + r, d) : Element{0};
    }
}

/* Where a lane finds its row of the four matrices of 16 rows and 16 columns, the first two below
 * each other. */
DEVICE const Element *lane_down(const Element *tile) {
    int lane = (int)threadIdx.x % 32;
    return tile + lane % 16 * PITCH + lane / 16 * 8;
}
/* The same, the first two beside each other. */
DEVICE const Element *lane_along(const Element *tile) {
    int lane = (int)threadIdx.x % 32;
    return tile + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8;
}

/* The warp's own rows of a tile, as the first factor. */
struct Factor {
    static constexpr bool kept = KEEPS_FACTORS;
    const Element *at;
    u32 part[kept ? STRIPS : 1][kept ? DEPTH / 16 : 1][4];

    DEVICE Factor(const Element *rows) : at(lane_down(rows)) {
        if constexpr (kept) {
#pragma unroll
            for (int m = 0; m < STRIPS; m++)
#pragma unroll
                for (int k = 0; k < DEPTH / 16; k++)
                    ldmatrix_x4(part[m][k], at + m * 16 * PITCH + k * 16);
        }
    }
    DEVICE void get(u32 (&a)[4], int m, int k) const {
        if constexpr (kept) {
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = part[m][k][i];
        } else {
            ldmatrix_x4(a, at + m * 16 * PITCH + k * 16);
        }
    }
};

/* A warp's part of sums of N columns. */
template <int N> using Sums = float[STRIPS][N / 8][4];

template <int N> DEVICE void clear(float (&sums)[STRIPS][N][4]) {
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[m][n][e] = 0;
}

/* Columns 16 k.. of a strip of sums as a first factor. */
template <int N> DEVICE void first_factor(u32 (&a)[4], const float (&p)[N][4], int k) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *pair = p[2 * k + i / 2] + i % 2 * 2;
        a[i] = pair_of(Element{}, pair[0], pair[1]);
    }
}

/* Tiles of COLUMNS rows as second factors, for products of a warp alone. */
struct WarpTile {
    static constexpr int warps = 1; /* that work together */
    static constexpr int size = COLUMNS * PITCH;

    /* The first place at which tiles may begin. */
    DEVICE static Element *align(Element *p) { return p; }
    DEVICE static void load(Element *tile, const Rows &from, int first, int end, int depth) {
        tile_load<COLUMNS>(tile, from, first, end, depth);
    }
    /* The thread's part of what was loaded is there; before the barrier. */
    DEVICE static void arrived() { cp_async_wait<0>(); }

    /* sums = x tile^T: columns are rows of the tile. */
    DEVICE static void multiply(Sums<COLUMNS> &sums, const Factor &x, const Element *tile) {
        const Element *at = lane_along(tile);
        clear(sums);
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            u32 a[STRIPS][4], b[4];
#pragma unroll
            for (int m = 0; m < STRIPS; m++) x.get(a[m], m, k);
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n += 2) {
                ldmatrix_x4(b, at + n * 8 * PITCH + k * 16);
#pragma unroll
                for (int m = 0; m < STRIPS; m++) {
                    mma(Element{}, sums[m][n], a[m], b[0], b[1]);
                    mma(Element{}, sums[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    /* sums += p tile, p rounded to 16 bits; its columns are rows of the tile. */
    DEVICE static void accumulate(Sums<DEPTH> &sums, const Sums<COLUMNS> &p, const Element *tile) {
        const Element *at = lane_down(tile);
#pragma unroll
        for (int k = 0; k < COLUMNS / 16; k++) {
            u32 a[STRIPS][4], b[4];
#pragma unroll
            for (int m = 0; m < STRIPS; m++) first_factor(a[m], p[m], k);
#pragma unroll
            for (int n = 0; n < DEPTH / 8; n += 2) {
                ldmatrix_x4_trans(b, at + k * 16 * PITCH + n * 8);
#pragma unroll
                for (int m = 0; m < STRIPS; m++) {
                    mma(Element{}, sums[m][n], a[m], b[0], b[1]);
                    mma(Element{}, sums[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
    /* Where products only begin (attention_wgmma.cuh), they are there behind this. */
    template <int N> DEVICE static void finish(Sums<N> &) {}
};

/* Of fragment rows, the warp's first one being 0: which one element e of sums[m] is in; and which
 * column it is in sums[][n]. */
DEVICE int row_of(int m, int e) {
    return m * 16 + (int)threadIdx.x % 32 / 4 + e / 2 * 8;
}
DEVICE int column_of(int n, int e) {
    return n * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
}

/* Scores become -inf where a query does not see the key. Rows, from `row` on, are queries, and
 * columns keys; transposed, it is the other way. Queries that do not exist may see keys that do. */
template <bool TRANSPOSED, int N>
DEVICE void hide(float (&p)[STRIPS][N][4], const AttentionArgs &a, const Sight &sight, int row,
                 int column) {
    /* The columns before an edge are seen; transposed, those from it on. */
    int keys = a.keys - column, ahead = a.keys - a.queries;
    int last = a.causal ? row + 1 + ahead - column : keys;
    int first = a.causal ? row - ahead - column : -BLOCK_ROWS;
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int r = row_of(m, 2 * i), edge = TRANSPOSED ? first + r : min(keys, last + r);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    int c = column_of(n, e);
                    bool hidden = (c < edge) == TRANSPOSED;
                    if (GENERAL)
                        hidden = TRANSPOSED ? !sight.sees(column + c, row + r)
                                            : !sight.sees(row + r, column + c);
                    if (hidden) p[m][n][e] = -INFINITE;
                }
        }
}

/* Writes the warp's results, scale[m][i] times the row, through its own rows of a tile to `to`:
 * rows from `first` on, before `end`. */
DEVICE void tile_store(const Rows &to, int first, int end, int depth, Element *own,
                       const float (&sums)[STRIPS][DEPTH / 8][4], const float (&scale)[STRIPS][2]) {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < STRIPS; m++)
#pragma unroll
        for (int n = 0; n < DEPTH / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                *(u32 *)(own + row_of(m, 2 * i) * PITCH + column_of(n, 0)) =
                    pair_of(Element{}, sums[m][n][2 * i] * scale[m][i],
                            sums[m][n][2 * i + 1] * scale[m][i]);
    __syncwarp();
    constexpr int row = DEPTH / 8;
    if (to.wide) {
#pragma unroll
        for (int i = (int)threadIdx.x % 32; i < STRIPS * 16 * row; i += 32) {
            int r = i / row, d = i % row * 8;
            if (first + r < end && d < depth)
                *(uint4 *)to.at(first + r, d) = *(const uint4 *)(own + r * PITCH + d);
        }
        return;
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x % 32; i < STRIPS * 16 * DEPTH; i += 32) {
        int r = i / DEPTH, d = i % DEPTH;
        if (first + r < end && d < depth) *to.at(first + r, d) = own[r * PITCH + d];
    }
}

#endif
