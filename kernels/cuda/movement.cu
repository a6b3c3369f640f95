/* movement.cu - copy, transpose, pad. All are limited by memory: what is copied is read once and
 * written once, 2 * bytes; a fill writes its bytes. */
#include "move.cuh"

/* Without gaps on both sides: units of 16 bytes, and what is left of them by elements. */
extern "C" __global__ void __launch_bounds__(THREADS)
    copy_dense(const char *from, char *to, i64 bytes) {
    if (from == to) return;
    bool whole = is_whole(to) && is_whole(from);
    i64 first = first_unit() * UNIT, last = first + (EACH - 1) * (THREADS * UNIT) + UNIT;
    if (whole && last <= bytes) {
        Unit u[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) u[k] = *(const Unit *)(from + first + k * (THREADS * UNIT));
#pragma unroll
        for (int k = 0; k < EACH; k++) *(Unit *)(to + first + k * (THREADS * UNIT)) = u[k];
        return;
    }
    for (int k = 0; k < EACH; k++) {
        i64 at = first + k * (THREADS * UNIT);
        if (at + UNIT <= bytes)
            put(to + at, get(from + at, whole), whole);
        else
            for (; at < bytes; at += SIZE) *(Element *)(to + at) = *(const Element *)(from + at);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fill_dense(const char *from, char *to, i64 bytes) {
    Unit u = repeat(*(const Element *)from);
    i64 first = first_unit() * UNIT;
    for (int k = 0; k < EACH; k++) {
        i64 at = first + k * (THREADS * UNIT);
        if (at + UNIT <= bytes)
            put(to + at, u, is_whole(to));
        else
            for (; at < bytes; at += SIZE) *(Element *)(to + at) = *(const Element *)from;
    }
}

/* Any strides, of `to` and `from`. fill: `from` has one element for a whole unit. */
extern "C" __global__ void __launch_bounds__(THREADS)
    copy(const char *from, char *to, Walk walk, i64 count, i32 fill) {
    if (from == to) return;
    bool whole_to = is_whole(to), whole_from = is_whole(from);
    i64 first = first_unit();
    Unit u[EACH];
    i64 at[EACH][2];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS >= count) continue;
        walk.offsets<2>(first + k * THREADS, at[k]);
        u[k] =
            fill ? repeat(*(const Element *)(from + at[k][1])) : get(from + at[k][1], whole_from);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (first + k * THREADS < count) put(to + at[k][0], u[k], whole_to);
}

#if UNIT <= 4 || UNIT == SIZE
/* ---- transpose: `to` runs along columns, `from` along rows ---- */
struct Transpose {
    Walk outer; /* strides of to, from */
    i64 rows, columns, row_tiles, column_tiles;
    i64 to_stride, from_stride; /* of `to` from row to row, of `from` from column to column */
};

/* A block takes a tile of 32 units each way through shared memory. A unit is a run of P elements
 * along rows when it is read and along columns when it is written; in between, P x P elements of P
 * units change places in registers. Row 32 i + j of the tile is row j P + i of the matrix: with an
 * odd pitch both the writes of a warp (a column of the tile) and its reads (a row) go to 32
 * different banks. */
extern "C" __global__ void __launch_bounds__(THREADS)
    transpose(const char *from, char *to, Transpose t) {
    constexpr int P = UNIT_ELEMENTS, WARPS = THREADS / 32, EDGE = 32 * P;
    __shared__ Unit tile[EDGE][33];
    bool whole_to = is_whole(to), whole_from = is_whole(from);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 place = blockIdx.x, bytes[2];
    i64 column = place % t.column_tiles * EDGE;
    place /= t.column_tiles;
    i64 row = place % t.row_tiles * EDGE;
    t.outer.offsets<2>(place / t.row_tiles, bytes);
    to += bytes[0] + row * t.to_stride + column * SIZE;
    from += bytes[1] + row * SIZE + column * t.from_stride;

    Unit in[32 / WARPS][P];
#    pragma unroll
    for (int k = 0; k < 32 / WARPS; k++) {
        int c = (warp + k * WARPS) * P;
        if (row + lane * P >= t.rows || column + c >= t.columns) continue;
#    pragma unroll
        for (int j = 0; j < P; j++)
            in[k][j] = get(from + (c + j) * t.from_stride + lane * UNIT, whole_from);
    }
#    pragma unroll
    for (int k = 0; k < 32 / WARPS; k++)
#    pragma unroll
        for (int i = 0; i < P; i++) {
            Unit u;
#    pragma unroll
            for (int j = 0; j < P; j++) ((Element *)&u)[j] = ((const Element *)&in[k][j])[i];
            tile[i * 32 + lane][warp + k * WARPS] = u;
        }
    __syncthreads();
    if (column + lane * P >= t.columns) return;
#    pragma unroll
    for (int k = 0; k < EDGE / WARPS; k++) {
        int slot = warp + k * WARPS, r = slot % 32 * P + slot / 32;
        if (row + r < t.rows) put(to + r * t.to_stride + lane * UNIT, tile[slot][lane], whole_to);
    }
}

#endif

/* ---- pad: an element of y is one of x, or the value ---- */
struct Pad {
    i64 dims[8], low[8], step[8], x[8]; /* dims of y; of x */
    i64 to_stride[8], from_stride[8];
    i32 rank, small; /* as in a Walk */

    /* Where position i of y is, and which element of x stands there: whether there is one. */
    template <class Index> DEVICE bool find(Index i, i64 *to, i64 *from) const {
        bool inside = true;
        *to = *from = 0;
#pragma unroll 1
        for (int d = rank - 1; d >= 0; d--) {
            Index n = (Index)dims[d], next = d > 0 ? i / n : 0;
            i64 c = (i64)(i - next * n), t = c - low[d];
            i = next;
            *to += c * to_stride[d];
            if (step[d] != 1 && t > 0) {
                inside = inside && t % step[d] == 0;
                t /= step[d];
            }
            inside = inside && t >= 0 && t < x[d];
            *from += t * from_stride[d];
        }
        return inside;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    pad(const char *from, const char *value, char *to, Pad p, i64 count) {
    bool whole_to = is_whole(to), whole_from = is_whole(from);
    i64 first = first_unit(), at[EACH], x;
    Unit u[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        i64 i = first + k * THREADS;
        if (i >= count) continue;
        bool inside = p.small ? p.find((u32)i, &at[k], &x) : p.find((u64)i, &at[k], &x);
        u[k] = inside ? get(from + x, whole_from) : repeat(*(const Element *)value);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (first + k * THREADS < count) put(to + at[k], u[k], whole_to);
}
