/* scatter.cu - scatter that combines, in the order of ids and without atomics on what is combined.
 *
 * The places of the ids are put into buckets, one for each row of the table: `count_ids` counts
 * them, `allot` gives each row its part of one array, `place_ids` fills the parts in any order, and
 * `order_heavy` puts those of rows with many updates in order. Then `scatter_add` sums up: rows
 * with few updates are a warp's work, which finds their order by itself, the others a block's.
 * The integers that are counted by atomics do not depend on their order but for where a row's part
 * lies and how it is filled, which no result shows.
 *
 * Limited by memory: the updates are read once, the table is written once; beside them about
 * 28 bytes an id and 8 a row. */
#include "ids.cuh"

enum { THREADS = 256, WARP = 32, LIGHT = 32 /* updates of a row that a warp sums */ };
constexpr u32 ALL = 0xffffffffu;

/* The sum of the values of a warp's threads up to this one. */
DEVICE i32 warp_scan(i32 x) {
    for (int d = 1; d < WARP; d *= 2) {
        i32 other = __shfl_up_sync(ALL, x, d);
        if ((int)(threadIdx.x % WARP) >= d) x += other;
    }
    return x;
}

struct Ids { /* n ids and `rows` rows of an example */
    Walk walk;
    i64 n, examples, rows;
    Axes axes;
};

/* In the scratch. Rows are counted through all examples. */
struct Buckets {
    i32 *count;         /* by row: its places */
    i32 *used, *nheavy; /* so much of `place` is given away; rows that are heavy */
    i32 *end;           /* by row: where its part ends; while it is filled, its next place */
    i32 *heavy;         /* the heavy rows, in any order */
    i32 *place;         /* places by row; in a light row in any order */
    i32 *sorted;        /* those of heavy rows in order */

    DEVICE Buckets(char *scratch, const Ids &ids) {
        i64 rows = ids.rows * ids.examples, n = ids.n * ids.examples;
        count = (i32 *)scratch;
        used = count + rows;
        nheavy = used + 1;
        end = nheavy + 1;
        heavy = end + rows;
        place = heavy + n / LIGHT;
        sorted = place + n;
    }
};

/* The row of id number i, or -1. */
DEVICE i64 row_of(const char *at, const Ids &ids, i64 i, Fault fault) {
    i64 bytes[1], to, row;
    if (i >= ids.n * ids.examples) return -1;
    ids.walk.offsets<1>(i, bytes);
    return ids.axes.find(at + bytes[0], &to, &row, fault) ? i / ids.n * ids.rows + row : -1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count_ids(const char *at, char *scratch, Ids ids, Fault fault) {
    i64 row = row_of(at, ids, global_thread(), fault);
    if (row >= 0) atomicAdd(Buckets(scratch, ids).count + row, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS) allot(char *scratch, Ids ids) {
    Buckets b(scratch, ids);
    i64 row = global_thread(), rows = ids.rows * ids.examples;
    i32 n = row < rows ? b.count[row] : 0, before = warp_scan(n), base = 0;
    if (threadIdx.x % WARP == WARP - 1 && before > 0) base = atomicAdd(b.used, before);
    base = __shfl_sync(ALL, base, WARP - 1);
    if (row < rows) b.end[row] = base + before - n;
    if (n > LIGHT) b.heavy[atomicAdd(b.nheavy, 1)] = (i32)row;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    place_ids(const char *at, char *scratch, Ids ids, Fault fault) {
    Buckets b(scratch, ids);
    i64 i = global_thread(), row = row_of(at, ids, i, fault);
    if (row >= 0) b.place[atomicAdd(b.end + row, 1)] = (i32)(i % ids.n);
}

/* A block orders the places of one row after the other: it marks them in a set of bits, one window
 * of places after the other, and counts the marks before each. */
extern "C" __global__ void __launch_bounds__(THREADS) order_heavy(char *scratch, Ids ids) {
    enum { WORDS = 2048, EACH = WORDS / THREADS, WINDOW = WORDS * 32 };
    __shared__ u32 bits[WORDS];
    __shared__ i32 part[THREADS / WARP];
    Buckets b(scratch, ids);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int h = blockIdx.x; h < *b.nheavy; h += gridDim.x) {
        i32 row = b.heavy[h], n = b.count[row], start = b.end[row] - n, done = 0;
        for (i64 window = 0; done < n; window += WINDOW) {
            for (int w = threadIdx.x; w < WORDS; w += THREADS) bits[w] = 0;
            __syncthreads();
            for (i32 k = threadIdx.x; k < n; k += THREADS) {
                i64 at = b.place[start + k] - window;
                if (at >= 0 && at < WINDOW) atomicOr(&bits[at / 32], 1u << at % 32);
            }
            __syncthreads();
            i32 marks = 0, all = 0;
            for (int w = 0; w < EACH; w++) marks += __popc(bits[threadIdx.x * EACH + w]);
            i32 before = warp_scan(marks);
            if (lane == WARP - 1) part[warp] = before;
            __syncthreads();
            for (int w = 0; w < THREADS / WARP; w++) {
                if (w == warp) before += all;
                all += part[w];
            }
            i32 to = start + done + before - marks;
            for (int w = 0; w < EACH; w++) {
                int word = threadIdx.x * EACH + w;
                for (u32 rest = bits[word]; rest; rest &= rest - 1)
                    b.sorted[to++] = (i32)(window + word * 32 + (__ffs((int)rest) - 1));
            }
            done += all;
            __syncthreads();
        }
    }
}

/* ---- sums ---- */
struct Sums {             /* strides of table, updates and x */
    Walk rows;            /* of all examples */
    Walk before, columns; /* dims that ids have not: the inner ones are columns */
    View place;           /* of updates along ids */
    i64 nbefore, ncolumns;
    i32 vectors; /* columns lie without gaps in all, and in whole vectors */
    i32 zeros;   /* there is no x */
};

constexpr int VECTOR = sizeof(UPDATE) < 16 ? 16 / sizeof(UPDATE) : 1;
constexpr int CHUNK = WARP * VECTOR;      /* columns that a warp sums at a time */
enum { TILE = 128, TILE_COLUMNS = WARP }; /* places and columns of a tile of a heavy row */

struct Row { /* of the table, with its updates */
    char *to;
    const char *from, *x;
    i32 n, start; /* its places */
};

DEVICE Row row_at(const Sums &s, const Buckets &b, const char *x, char *table, const char *updates,
                  i64 row, i64 before) {
    i64 at[3], own[3];
    s.rows.offsets<3>(row, own);
    s.before.offsets<3>(before, at);
    i32 n = b.count[row];
    return Row{table + own[0] + at[0], updates + own[1] + at[1], x + own[2] + at[2], n,
               b.end[row] - n};
}

/* The places of a light row in order: lane k of a warp has one of them. */
struct Order {
    i32 mine;
    int rank; /* how many come before it */

    DEVICE Order(const i32 *place, i32 n) : rank(0) {
        int lane = threadIdx.x % WARP;
        mine = lane < n ? place[lane] : 0x7fffffff;
        for (int k = 0; k < n; k++) rank += __shfl_sync(ALL, mine, k) < mine;
    }
    DEVICE i32 at(int k) const {
        return __shfl_sync(ALL, mine, __ffs((int)__ballot_sync(ALL, rank == k)) - 1);
    }
};

/* CHUNK columns of a light row from `column` on: VECTOR neighbours in a lane, and the vectors of
 * some updates on their way at a time. */
DEVICE void add_vectors(const Sums &s, const Order &order, const Row &r, i64 column) {
    enum { AHEAD = 4 };
    Vec<Sum, VECTOR> sum = Vec<Sum, VECTOR>();
    column += threadIdx.x % WARP * VECTOR;
    bool there = column < s.ncolumns;
    if (there && !s.zeros) {
        Vec<TABLE, VECTOR> x = load<VECTOR>((const TABLE *)r.x + column);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum.at[i] = (Sum)widen(x.at[i]);
    }
    for (int first = 0; first < r.n; first += AHEAD) {
        Vec<UPDATE, VECTOR> v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (first + k >= r.n) continue;
            i64 from = s.place.offset(order.at(first + k));
            if (there) v[k] = load<VECTOR>((const UPDATE *)(r.from + from) + column);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (there && first + k < r.n)
#pragma unroll
                for (int i = 0; i < VECTOR; i++)
                    sum.at[i] = combine(sum.at[i], (Sum)widen(v[k].at[i]));
    }
    if (there) store<VECTOR>((TABLE *)r.to + column, narrow<TABLE>(sum));
}

/* The same, one column after the other. */
DEVICE void add_columns(const Sums &s, const Order &order, const Row &r, i64 column) {
    for (int i = 0; i < VECTOR; i++) {
        i64 c = column + i * WARP + threadIdx.x % WARP;
        i64 at[3];
        Sum sum = Sum();
        s.columns.offsets<3>(c, at);
        if (c < s.ncolumns && !s.zeros) sum = (Sum)widen(*(const TABLE *)(r.x + at[2]));
        for (int k = 0; k < r.n; k++) {
            const char *from = r.from + at[1] + s.place.offset(order.at(k));
            if (c < s.ncolumns) sum = combine(sum, (Sum)widen(*(const UPDATE *)from));
        }
        if (c < s.ncolumns) *(TABLE *)(r.to + at[0]) = narrow<TABLE>(sum);
    }
}

/* TILE_COLUMNS columns of a heavy row. All warps fetch a tile of updates, each warp some places;
 * while the first warp adds them, place by place, the next tile is on its way. */
DEVICE void add_heavy(const Sums &s, const Buckets &b, const Row &r, i64 column) {
    enum { WARPS = THREADS / WARP, EACH = TILE / WARPS };
    __shared__ Sum tile[TILE][TILE_COLUMNS];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const i32 *place = b.sorted + r.start;
    bool there = column + lane < s.ncolumns;
    Sum sum = Sum(), ahead[EACH];
    i64 at[3];
    s.columns.offsets<3>(column + lane, at);
    const char *updates = r.from + at[1];
    if (warp == 0 && there && !s.zeros) sum = (Sum)widen(*(const TABLE *)(r.x + at[2]));
    for (i32 first = -TILE; first < r.n; first += TILE) {
        i32 next = first + TILE + warp * EACH;
        i32 mine = lane < EACH && next + lane < r.n ? place[next + lane] : 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const char *from = updates + s.place.offset(__shfl_sync(ALL, mine, k));
            ahead[k] = there && next + k < r.n ? (Sum)widen(*(const UPDATE *)from) : Sum();
        }
        if (first >= 0 && warp == 0)
            for (int k = 0; k < TILE && first + k < r.n; k++) sum = combine(sum, tile[k][lane]);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < EACH; k++) tile[warp * EACH + k][lane] = ahead[k];
        __syncthreads();
    }
    if (warp == 0 && there) *(TABLE *)(r.to + at[0]) = narrow<TABLE>(sum);
}

/* The first `heavy_blocks` blocks do what takes longest. */
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    combine_rows(const char *x, const char *updates, char *table, char *scratch, Ids ids, Sums s,
                 i32 heavy_blocks) {
    Buckets b(scratch, ids);
    if ((i32)blockIdx.x < heavy_blocks) {
        i64 parts = (s.ncolumns + TILE_COLUMNS - 1) / TILE_COLUMNS, each = s.nbefore * parts;
        for (i64 i = blockIdx.x; i < *b.nheavy * each; i += heavy_blocks) {
            i64 rest = i % each;
            Row r = row_at(s, b, x, table, updates, b.heavy[i / each], rest / parts);
            add_heavy(s, b, r, rest % parts * TILE_COLUMNS);
        }
        return;
    }
    i64 item = (i64)(blockIdx.x - heavy_blocks) * (THREADS / WARP) + threadIdx.x / WARP;
    i64 parts = (s.ncolumns + CHUNK - 1) / CHUNK, each = s.nbefore * parts, row = item / each;
    if (row >= ids.rows * ids.examples || b.count[row] > LIGHT) return;
    Row r = row_at(s, b, x, table, updates, row, item % each / parts);
    Order order(b.place + r.start, r.n);
    if (s.vectors && is_aligned<VECTOR>((const TABLE *)table) &&
        (s.zeros || is_aligned<VECTOR>((const TABLE *)x)) &&
        is_aligned<VECTOR>((const UPDATE *)updates))
        add_vectors(s, order, r, item % parts * CHUNK);
    else
        add_columns(s, order, r, item % parts * CHUNK);
}
