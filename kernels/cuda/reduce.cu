/* reduce.cu - sum, sum_squares, max, min, all, any (kernel.h).
 *
 * `rows`: x runs along a reduced dim, a team of threads (LANES neighbours of a warp, or a block)
 * has an output. `columns`: x runs along a kept dim, a thread has VEC neighbouring outputs, ACROSS
 * of them and their rows are a block. Limited by memory: x is read once, in words of 16 bytes where
 * its strides allow it. Where the outputs are too few for the processors, each is made of PARTS
 * (reduce.c), whose results go through a second launch; their number depends on the shape alone.
 * Sums are of float32 in vectors, then in trees.
 *
 * Defined: IN, OUT, ACC (what is computed in), OP and its NONE, SQUARES (1: of squares), FLAT (the
 * reduced dims are one), VEC, PER (vectors on their way to a thread), BLOCK; LANES or ACROSS. */
#include "device.cuh"

struct Both {
    template <class V> DEVICE V operator()(V a, V b) const { return a & b; }
};
struct Either {
    template <class V> DEVICE V operator()(V a, V b) const { return a | b; }
};

template <bool ALIGNED> DEVICE Vec<IN, VEC> take(const IN *x) {
    if constexpr (ALIGNED && VEC > 1) {
        return load_once<VEC>(x);
    } else {
        Vec<IN, VEC> v;
#pragma unroll
        for (int i = 0; i < VEC; i++) v.at[i] = x[i];
        return v;
    }
}

/* The element at reduced position i. */
DEVICE const IN *position(const View &reduced, const IN *first, i64 i) {
    return FLAT ? bytes_on(first, i * reduced.strides[0]) : reduced.at(first, i);
}

struct Sum { /* VEC results so far */
    Vec<ACC, VEC> at;

    DEVICE Sum() {
#pragma unroll
        for (int i = 0; i < VEC; i++) at.at[i] = NONE;
    }
    DEVICE void add(const Vec<IN, VEC> &v) {
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            ACC e = (ACC)widen(v.at[i]);
            at.at[i] = OP()(at.at[i], SQUARES ? e * e : e);
        }
    }
};

/* Adds the vectors first, first + apart, ... < end; where(i) is the address of vector i. */
template <bool ALIGNED, class F>
DEVICE void add_all(Sum &sum, i64 first, i64 end, i64 apart, F where) {
    for (i64 i = first; i < end; i += apart * PER) {
        Vec<IN, VEC> v[PER];
#pragma unroll
        for (int k = 0; k < PER; k++)
            if (i + k * apart < end) v[k] = take<ALIGNED>(where(i + k * apart));
#pragma unroll
        for (int k = 0; k < PER; k++)
            if (i + k * apart < end) sum.add(v[k]);
    }
}

#ifdef LANES
/* Result i is that of part i % parts of output i / parts: of its positions, so many each. */
struct ReduceRows {
    View kept, reduced, out;
    i64 results, parts, positions;
};

template <bool ALIGNED> DEVICE void reduce_row(const IN *x, OUT *y, const ReduceRows &r) {
    constexpr int size = LANES ? LANES : BLOCK;
    int rank = threadIdx.x % size;
    i64 i = (i64)blockIdx.x * (BLOCK / size) + threadIdx.x / size;
    bool live = i < r.results;
    i64 part = live ? i % r.parts : 0, vectors = live ? r.positions / VEC : 0;
    const IN *row = r.kept.at(x, live ? i / r.parts : 0);
    Sum sum;
    add_all<ALIGNED>(sum, vectors * part / r.parts + rank, vectors * (part + 1) / r.parts, size,
                     [&](i64 v) { return position(r.reduced, row, v * VEC); });
    ACC all = sum.at.at[0];
#    pragma unroll
    for (int k = 1; k < VEC; k++) all = OP()(all, sum.at.at[k]);
    if constexpr (LANES)
        all = warp_reduce<size>(all, OP());
    else
        all = block_reduce(all, OP());
    if (live && rank == 0) *r.out.at(y, i) = narrow<OUT>(all);
}

extern "C" __global__ __launch_bounds__(BLOCK) void rows(const IN *x, OUT *y, ReduceRows r) {
    if (is_aligned<VEC>(x))
        reduce_row<true>(x, y, r);
    else
        reduce_row<false>(x, y, r);
}
#endif

#ifdef ACROSS
/* Block b has part b % parts of tile b / parts % tiles of the columns of line b / parts / tiles. */
struct Columns {
    View lines, reduced, out; /* out: by line and part */
    i64 columns, tiles, parts, positions;
    i64 step, out_step; /* elements from a column to the next */
};

template <bool ALIGNED> DEVICE void reduce_columns(const IN *x, OUT *y, const Columns &r) {
    constexpr int DOWN = BLOCK / ACROSS;
    __shared__ Vec<ACC, VEC> sums[DOWN][ACROSS];
    int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    i64 part = blockIdx.x % r.parts, tile = blockIdx.x / r.parts % r.tiles;
    i64 line = blockIdx.x / r.parts / r.tiles;
    i64 column = (tile * ACROSS + across) * VEC;
    const IN *first = r.lines.at(x, line) + column * r.step;
    i64 end = column < r.columns ? r.positions * (part + 1) / r.parts : 0;
    Sum sum;
    add_all<ALIGNED>(sum, r.positions * part / r.parts + down, end, DOWN,
                     [&](i64 p) { return position(r.reduced, first, p); });
    sums[down][across] = sum.at;
    for (int m = DOWN / 2; m > 0; m /= 2) {
        __syncthreads();
        if (down >= m) continue;
        Vec<ACC, VEC> other = sums[down + m][across];
#    pragma unroll
        for (int i = 0; i < VEC; i++) sum.at.at[i] = OP()(sum.at.at[i], other.at[i]);
        sums[down][across] = sum.at;
    }
    if (down > 0 || column >= r.columns) return;
    OUT *to = r.out.at(y, line * r.parts + part) + column * r.out_step;
#    pragma unroll
    for (int i = 0; i < VEC; i++) to[i * r.out_step] = narrow<OUT>(sum.at.at[i]);
}

extern "C" __global__ __launch_bounds__(BLOCK) void columns(const IN *x, OUT *y, Columns r) {
    if (is_aligned<VEC>(x))
        reduce_columns<true>(x, y, r);
    else
        reduce_columns<false>(x, y, r);
}
#endif
