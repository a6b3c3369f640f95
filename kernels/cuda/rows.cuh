/* rows.cuh - kernels whose unit of work is a row: what tensors of the same dims have along the
 * last.
 *
 * A team of threads has a row: LANES neighbours in a warp, or, with LANES 0, a block. It goes over
 * the row in steps of PER vectors of VEC elements a thread; vector k of a step belongs to thread k
 * modulo the team's size. What is looked at again is then in registers (KEEP 2; the row is one
 * step), in shared memory (KEEP 1), or comes from the caches (KEEP 0). rows.c decides, and defines
 * VEC, LANES, PER, BLOCK and KEEP. */
#ifndef MESHLUA_CUDA_ROWS_CUH
#define MESHLUA_CUDA_ROWS_CUH

#include "device.cuh"

/* For __launch_bounds__: blocks of a processor, so that one computes while another reads. */
#define RESIDENT (LANES ? 1 : 1024 / BLOCK)

struct Lines { /* a parameter: where rows lie */
    View rows; /* the first element of each */
    i64 step;  /* elements from one element of a row to the next */
};

template <class T> struct Chunk { Vec<T, VEC> at[PER]; }; /* a thread's vectors of a step */

struct Team {
    static constexpr int size = LANES ? LANES : BLOCK;
    i64 row, n; /* elements of the row */
    int rank;
    bool live; /* there is such a row; else n is 0 */

    DEVICE Team(i64 rows, i64 columns) {
        rank = threadIdx.x % size;
        move((i64)blockIdx.x * (BLOCK / size) + threadIdx.x / size, rows, columns);
    }
    DEVICE void move(i64 to, i64 rows, i64 columns) {
        row = to;
        live = row < rows;
        n = live ? columns : 0;
    }
    /* f(start) for each step. */
    template <class F> DEVICE void walk(F f) const {
        if (KEEP == 2)
            f((i64)rank * VEC);
        else
            for (i64 c = (i64)rank * VEC; c < n; c += (i64)size * VEC * PER) f(c);
    }
    /* f(k, column) for each vector of a step that the row has. */
    template <class F> DEVICE void each(i64 start, F f) const {
#pragma unroll
        for (int k = 0; k < PER; k++) {
            i64 c = start + (i64)k * size * VEC;
            if (c < n) f(k, c);
        }
    }
    /* Over the team; all of it takes part, with or without a row. */
    template <class Op, class V> DEVICE V reduce(V x, Op op) const {
        if constexpr (LANES)
            return warp_reduce<size>(x, op);
        else
            return block_reduce(x, op);
    }
};

/* A vector from a row; one that is not ALIGNED is put together from elements. */
template <bool ALIGNED, class T> DEVICE Vec<T, VEC> take(const T *row, i64 step, i64 c) {
    if constexpr (ALIGNED && VEC > 1) {
        return load<VEC>(row + c);
    } else {
        Vec<T, VEC> v;
#pragma unroll
        for (int i = 0; i < VEC; i++) v.at[i] = VEC > 1 ? row[c + i] : row[c * step];
        return v;
    }
}
template <bool ALIGNED, class T> DEVICE void put(T *row, i64 step, i64 c, const Vec<T, VEC> &v) {
    if constexpr (ALIGNED && VEC > 1) {
        store<VEC>(row + c, v);
    } else {
#pragma unroll
        for (int i = 0; i < VEC; i++) row[VEC > 1 ? c + i : c * step] = v.at[i];
    }
}

/* A row that is looked at twice: in all steps by `first`, then in all by `again`. `place`: how many
 * rows are in front of it in the block's shared memory. */
extern __shared__ uint4 kept_rows[];
template <class T, bool ALIGNED> struct Row {
    const Team &team;
    const T *at;
    i64 step;
    Vec<T, VEC> *shared;
    Chunk<T> held;

    DEVICE Row(const Team &team, const T *x, const Lines &lines, int place = 0) : team(team) {
        at = lines.rows.at(x, team.row);
        step = lines.step;
        shared = (Vec<T, VEC> *)kept_rows + place * (team.n / VEC);
    }
    DEVICE Chunk<T> once(i64 start) const {
        Chunk<T> v;
        team.each(start, [&](int k, i64 c) { v.at[k] = take<ALIGNED>(at, step, c); });
        return v;
    }
    DEVICE Chunk<T> first(i64 start) {
        Chunk<T> v = once(start);
        if (KEEP == 2) held = v;
        if (KEEP == 1) team.each(start, [&](int k, i64 c) { shared[c / VEC] = v.at[k]; });
        return v;
    }
    DEVICE Chunk<T> again(i64 start) const {
        if (KEEP == 2) return held;
        if (KEEP == 0) return once(start);
        Chunk<T> v;
        team.each(start, [&](int k, i64 c) { v.at[k] = shared[c / VEC]; });
        return v;
    }
};

/* Where a row's results go. ONCE: they are larger than the caches. */
template <class T, bool ALIGNED, bool ONCE = false> struct Result {
    T *at;
    i64 step;

    DEVICE Result(const Team &team, T *y, const Lines &lines) {
        at = lines.rows.at(y, team.row);
        step = lines.step;
    }
    template <class C> DEVICE void put(i64 c, const Vec<C, VEC> &v) const {
        if constexpr (ALIGNED && VEC > 1 && ONCE)
            store_once<VEC>(at + c, narrow<T>(v));
        else
            ::put<ALIGNED>(at, step, c, narrow<T>(v));
    }
};

/* The largest element so far, and the sum of e^(x - largest): one pass over a row for both
 * (Milakov and Gimelshein 2018). A NaN is in the sum only; -inf adds nothing. */
template <class C> struct Peak {
    C top, sum;

    static DEVICE Peak none() { return Peak{-math::infinity<C>(), (C)0}; }
    /* What is subtracted, so that e^(-inf - it) is 0 also where all is -inf. */
    static DEVICE C base(C top) { return top == -math::infinity<C>() ? (C)0 : top; }

    DEVICE void add(const Vec<C, VEC> &v) {
        C m = top;
#pragma unroll
        for (int i = 0; i < VEC; i++) m = math::max(m, v.at[i]);
        C from = base(m), s = 0;
#pragma unroll
        for (int i = 0; i < VEC; i++) s += math::exp(v.at[i] - from);
        sum = sum * math::exp(top - from) + s;
        top = m;
    }
    /* NaN also where all is -inf: nothing is the largest. */
    DEVICE C log_sum() const {
        return top + math::log(sum) + (top - top);
    }
};
template <class C> DEVICE Peak<C> shuffle_xor(Peak<C> x, int mask) {
    return Peak<C>{shuffle_xor(x.top, mask), shuffle_xor(x.sum, mask)};
}
struct AddPeaks {
    template <class C> DEVICE Peak<C> operator()(Peak<C> a, Peak<C> b) const {
        C top = math::max(a.top, b.top), from = Peak<C>::base(top);
        return Peak<C>{top, a.sum * math::exp(a.top - from) + b.sum * math::exp(b.top - from)};
    }
};

#endif
