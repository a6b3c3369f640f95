/* conv.cu - conv and conv_grad_kernel.
 *
 * With K = taps * features in, a convolution is the product of a matrix [positions, K] of what the
 * taps see, which is never made as a whole, with the kernel [K, out]; the gradient of the kernel is
 * that matrix's transpose times dy. Both go by tiles of 64 through shared memory, 16 of the summed
 * index at a time; conv has the next 16 on their way meanwhile. Sums are float, double for double.
 * Limited by the multiply-adds of the plain cores: 2 * positions * K * out operations, at two
 * 16-byte loads from shared memory for 16 of them. Kernels of few columns (a group's features out)
 * go element by element and are limited by loads from L1.
 *
 * Compiled with TYPE, that of x and w (or dy), OUT, that of the result, SPATIAL dims, and TILE_N,
 * the columns of a tile: 32 or 64. */
#include "walk.cuh"

enum {
    THREADS = 256,
    TILE = 64,  /* positions of conv's tile, elements of K of conv_grad_kernel's */
    DEPTH = 16, /* of the summed index at a time */
    TM = 4,     /* rows of a thread */
    TN = TILE_N / 16,
    WARP = 32
};
constexpr int PAD = 4; /* keeps rows at multiples of 16 bytes, and columns apart in banks */

typedef Compute<TYPE> Sum;

struct Conv { /* the first SPATIAL entries of each array */
    i32 x[8], y[8], window[8], stride[8], low[8], x_dilation[8], w_dilation[8];
    i64 x_stride[8], y_stride[8], batch_stride[2], feature_stride[2]; /* of x, y */
    i64 positions, split;   /* split: positions of a part (conv_grad_kernel) */
    i32 k, in, out, groups; /* in, out: features of a group */
};

/* A place of y: what its first tap would see, and offsets of its batch of x and of itself in y. */
struct Position {
    i64 x, y;
    i32 first[SPATIAL];
};

DEVICE Position position_at(const Conv &c, i64 i) {
    Position p;
    p.y = 0;
#pragma unroll
    for (int d = SPATIAL - 1; d >= 0; d--) {
        i64 next = i / c.y[d];
        i32 at = (i32)(i - next * c.y[d]);
        p.first[d] = at * c.stride[d] - c.low[d];
        p.y += at * c.y_stride[d];
        i = next;
    }
    p.x = i * c.batch_stride[0];
    p.y += i * c.batch_stride[1];
    return p;
}

/* Element k of K: a tap, as far as it is from the first one, and a feature. */
struct Tap {
    i64 feature; /* bytes */
    i32 from_first[SPATIAL];
};

DEVICE Tap tap_at(const Conv &c, i32 group, i32 k) {
    Tap t;
    u32 rest = (u32)k, next = rest / (u32)c.in;
    t.feature = ((i64)group * c.in + (rest - next * (u32)c.in)) * c.feature_stride[0];
    rest = next;
#pragma unroll
    for (int d = SPATIAL - 1; d >= 0; d--) {
        next = rest / (u32)c.window[d];
        t.from_first[d] = (i32)(rest - next * (u32)c.window[d]) * c.w_dilation[d];
        rest = next;
    }
    return t;
}

/* What the tap sees from the position; zero where there is nothing. */
DEVICE Sum seen(const Conv &c, const char *x, const Position &p, const Tap &t) {
    i64 bytes = p.x + t.feature;
#pragma unroll
    for (int d = 0; d < SPATIAL; d++) {
        i32 at = p.first[d] + t.from_first[d];
        if (at < 0) return Sum();
        if (c.x_dilation[d] != 1) {
            if (at % c.x_dilation[d] != 0) return Sum();
            at /= c.x_dilation[d];
        }
        if (at >= c.x[d]) return Sum();
        bytes += at * c.x_stride[d];
    }
    return widen(*(const TYPE *)(x + bytes));
}

/* Two tiles, of the result's rows and of its columns, DEPTH deep; a thread has TM x TN of it. */
struct Tiles {
    alignas(16) Sum row[DEPTH][TILE + PAD];
    alignas(16) Sum column[DEPTH][TILE_N];

    DEVICE void multiply(Sum (&sum)[TM][TN]) const {
        int r = threadIdx.x / 16 * TM, c = threadIdx.x % 16 * TN;
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            Vec<Sum, TM> a = load<TM>(&row[k][r]);
            Vec<Sum, TN> b = load<TN>(&column[k][c]);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] = math::fma(a.at[i], b.at[j], sum[i][j]);
        }
    }
};

/* The block's tile of the result, its columns first. */
struct Place {
    i64 row;
    i32 column, group;
};
DEVICE Place place_of(const Conv &c, i64 i) {
    i32 tiles = (c.out + TILE_N - 1) / TILE_N;
    i64 next = i / tiles;
    return Place{next / c.groups * TILE, (i32)(i - next * tiles) * TILE_N, (i32)(next % c.groups)};
}

/* ---- conv ---- */
/* A thread fetches one element of K for TILE / 16 positions, and columns of w. */
struct Fetch {
    Sum x[TILE / 16], w[DEPTH * TILE_N / THREADS];

    DEVICE Fetch(const Conv &c, const char *from, const TYPE *w_, const Place &at,
                 const Position *position, i32 first) {
        i32 k = first + threadIdx.x % 16;
        Tap tap = tap_at(c, at.group, k < c.k ? k : 0);
#pragma unroll
        for (int i = 0; i < TILE / 16; i++) {
            int m = threadIdx.x / 16 + i * 16;
            x[i] = k < c.k && at.row + m < c.positions ? seen(c, from, position[m], tap) : Sum();
        }
        i32 n = at.column + threadIdx.x % TILE_N;
#pragma unroll
        for (int i = 0; i < DEPTH * TILE_N / THREADS; i++) {
            i32 row = first + threadIdx.x / TILE_N + i * (THREADS / TILE_N);
            i64 index = ((i64)row * c.groups + at.group) * c.out + n;
            w[i] = row < c.k && n < c.out ? widen(w_[index]) : Sum();
        }
    }
    DEVICE void put(Tiles &t) const {
#pragma unroll
        for (int i = 0; i < TILE / 16; i++)
            t.row[threadIdx.x % 16][threadIdx.x / 16 + i * 16] = x[i];
#pragma unroll
        for (int i = 0; i < DEPTH * TILE_N / THREADS; i++)
            t.column[threadIdx.x / TILE_N + i * (THREADS / TILE_N)][threadIdx.x % TILE_N] = w[i];
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    conv(const char *x, const TYPE *w, char *y, Conv c) {
    __shared__ Tiles tiles;
    __shared__ Position position[TILE];
    Place at = place_of(c, blockIdx.x);
    if (threadIdx.x < TILE) position[threadIdx.x] = position_at(c, at.row + threadIdx.x);
    __syncthreads();
    Sum sum[TM][TN] = {};
    Fetch next(c, x, w, at, position, 0);
    for (i32 k = 0; k < c.k; k += DEPTH) {
        next.put(tiles);
        __syncthreads();
        if (k + DEPTH < c.k) next = Fetch(c, x, w, at, position, k + DEPTH);
        tiles.multiply(sum);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        int m = threadIdx.x / 16 * TM + i;
#pragma unroll
        for (int j = 0; j < TN; j++) {
            i32 n = at.column + threadIdx.x % 16 * TN + j;
            if (at.row + m >= c.positions || n >= c.out) continue;
            i64 feature = ((i64)at.group * c.out + n) * c.feature_stride[1];
            *(OUT *)(y + position[m].y + feature) = narrow<OUT>(sum[i][j]);
        }
    }
}

/* An element of y for a thread. */
extern "C" __global__ void __launch_bounds__(THREADS)
    conv_direct(const char *x, const TYPE *w, char *y, Conv c) {
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    i32 columns = c.groups * c.out, n = (i32)(i % columns);
    if (i >= c.positions * columns) return;
    Position p = position_at(c, i / columns);
    Sum sum = Sum();
    for (i32 k = 0; k < c.k; k++)
        sum =
            math::fma(seen(c, x, p, tap_at(c, n / c.out, k)), widen(w[(i64)k * columns + n]), sum);
    *(OUT *)(y + p.y + n * c.feature_stride[1]) = narrow<OUT>(sum);
}

/* ---- conv_grad_kernel: parts[part][K][columns], each the sum of some positions; their sum ---- */
DEVICE Sum *part_of(const Conv &c, Sum *parts, i64 part) {
    return parts + part * c.k * c.groups * c.out;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    grad(const char *x, const char *dy, Sum *parts, Conv c) {
    __shared__ Tiles tiles;
    __shared__ Position position[DEPTH];
    i64 rows = (c.k + TILE - 1) / TILE;
    Place at = place_of(c, blockIdx.x);
    i64 part = at.row / TILE / rows, first = part * c.split;
    i64 end = first + c.split < c.positions ? first + c.split : c.positions;
    i32 k = (i32)(at.row / TILE % rows) * TILE, mine = k + threadIdx.x % TILE;
    i32 n = at.column + threadIdx.x % TILE_N;
    i64 feature = ((i64)at.group * c.out + n) * c.feature_stride[1];
    Tap tap = tap_at(c, at.group, mine < c.k ? mine : 0);
    Sum sum[TM][TN] = {};
    for (; first < end; first += DEPTH) {
        if (threadIdx.x < DEPTH) position[threadIdx.x] = position_at(c, first + threadIdx.x);
        __syncthreads();
#pragma unroll
        for (int m = threadIdx.x / TILE; m < DEPTH; m += THREADS / TILE)
            tiles.row[m][threadIdx.x % TILE] =
                mine < c.k && first + m < end ? seen(c, x, position[m], tap) : Sum();
#pragma unroll
        for (int m = threadIdx.x / TILE_N; m < DEPTH; m += THREADS / TILE_N)
            tiles.column[m][threadIdx.x % TILE_N] =
                n < c.out && first + m < end ? widen(*(const TYPE *)(dy + position[m].y + feature))
                                             : Sum();
        __syncthreads();
        tiles.multiply(sum);
    }
    Sum *to = part_of(c, parts, part);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            i32 r = k + threadIdx.x / 16 * TM + i, column = at.column + threadIdx.x % 16 * TN + j;
            if (r < c.k && column < c.out)
                to[((i64)r * c.groups + at.group) * c.out + column] = sum[i][j];
        }
}

/* A lane has a column, a warp every eighth position of a part; a block one element of K. */
extern "C" __global__ void __launch_bounds__(THREADS)
    grad_direct(const char *x, const char *dy, Sum *parts, Conv c) {
    enum { WARPS = THREADS / WARP };
    __shared__ Sum made[WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    i32 columns = c.groups * c.out, blocks = (columns + WARP - 1) / WARP;
    i64 i = blockIdx.x / blocks, part = i / c.k, first = part * c.split;
    i64 end = first + c.split < c.positions ? first + c.split : c.positions;
    i32 n = (i32)(blockIdx.x % blocks) * WARP + lane, k = (i32)(i % c.k);
    Tap tap = tap_at(c, n < columns ? n / c.out : 0, k);
    Sum sum = Sum();
    for (i64 m = first + warp; m < end && n < columns; m += WARPS) {
        Position p = position_at(c, m);
        Sum v = widen(*(const TYPE *)(dy + p.y + n * c.feature_stride[1]));
        sum = math::fma(seen(c, x, p, tap), v, sum);
    }
    made[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || n >= columns) return;
    for (int w = 1; w < WARPS; w++) sum += made[w][lane];
    part_of(c, parts, part)[(i64)k * columns + n] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    add_parts(const Sum *parts, char *dw, View view, i64 count, i64 nparts) {
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    Sum sum = Sum();
    for (i64 part = 0; part < nparts; part++) sum += parts[part * count + i];
    *view.at((OUT *)dw, i) = narrow<OUT>(sum);
}
