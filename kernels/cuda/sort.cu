/* sort.cu - sort and top_k.
 *
 * An element becomes an item: its key as an unsigned integer of the same order, and its place in
 * the line. No two items are equal, so that any order of work gives the one stable result. A block
 * sorts a chunk of a line in shared memory, by a bitonic network (Batcher 1968); longer lines are
 * merged from sorted runs, each item by a search for its place in the other run. At last the
 * operands' elements are fetched by the places.
 *
 * A chunk is limited by shared memory (66 exchanges of 2048 items), a merge by the latency of its
 * searches in L2: 2 items of traffic, of 8 or 16 bytes, for each element and pass. Compiled with
 * TYPE, that of keys. */
#include "walk.cuh"

enum { CHUNK = 2048, THREADS = 256 };

template <int BYTES> struct KeyOf { typedef u32 type; };
template <> struct KeyOf<8> { typedef u64 type; };
typedef KeyOf<sizeof(TYPE)>::type Key;
constexpr Key SIGN = (Key)1 << (sizeof(Key) * 8 - 1);

struct alignas(2 * sizeof(Key)) Item {
    Key key;
    u32 from;

    DEVICE bool operator<(const Item &other) const {
        return key < other.key || (key == other.key && from < other.from);
    }
};

DEVICE u32 bits_of(float x) {
    return __float_as_uint(x);
}
DEVICE u64 bits_of(double x) {
    return (u64)__double_as_longlong(x);
}

struct Order {
    i32 descending, nan_first;

    template <class F> DEVICE Key of_float(F x) const {
        if (x != x) return nan_first ? 0 : ~(Key)0;
        Key u = bits_of(x == 0 ? (F)0 : x);
        u = u & SIGN ? ~u : u | SIGN;
        return descending ? ~u : u;
    }
    DEVICE Key of(float x) const { return of_float(x); }
    DEVICE Key of(double x) const { return of_float(x); }
    DEVICE Key of(u64 x) const { return descending ? ~(Key)x : (Key)x; }
    DEVICE Key of(u32 x) const { return descending ? ~(Key)x : (Key)x; }
    DEVICE Key of(i32 x) const { return of((u32)x ^ 0x80000000u); }
    DEVICE Key of(i64 x) const {
        Key u = (Key)x ^ SIGN;
        return descending ? ~u : u;
    }
};

struct SortLines {
    Walk walk; /* strides of x */
    i64 stride, count, n;
    Order order;

    DEVICE Item item(const char *x, i64 line, i64 i) const {
        i64 at[1];
        walk.offsets<1>(line, at);
        TYPE value = *(const TYPE *)(x + at[0] + i * stride);
        return Item{order.of(widen(value)), (u32)i};
    }
};

/* Sorts the neighbours in each `size`, a power of two. A thread has a pair of each exchange; the
 * pairs of a warp at most 32 apart lie in 64 items of its own. */
DEVICE void sort_chunk(Item *item, int size) {
    int before = CHUNK;
    for (int k = 2; k <= size; k *= 2)
        for (int j = k / 2; j > 0; before = j, j /= 2) {
            if (j > 32 || before > 32)
                __syncthreads();
            else
                __syncwarp();
            int t = threadIdx.x, i = (t & ~(j - 1)) * 2 + (t & (j - 1));
            bool rises = k == size || (i & k) == 0;
            Item a = item[i], b = item[i + j];
            if (rises == (b < a)) {
                item[i] = b;
                item[i + j] = a;
            }
        }
    __syncthreads();
}

/* What a block does with its chunks: a line has ceil(n / size) of them, of which the first `keep`
 * items are kept, up to `pitch` of a line. */
struct Chunks {
    i64 n, pitch;
    i32 size, keep;
};

template <class Source>
DEVICE void sort_chunks(const Source &source, i64 count, Chunks c, Item *to) {
    __shared__ Item item[CHUNK];
    i64 per_line = (c.n + c.size - 1) / c.size, first = (i64)blockIdx.x * (CHUNK / c.size);
    for (int s = threadIdx.x; s < CHUNK; s += CHUNK / 2) {
        i64 chunk = first + s / c.size, line = chunk / per_line;
        i64 i = chunk % per_line * c.size + s % c.size;
        item[s] = line < count && i < c.n ? source(line, i) : Item{~(Key)0, 0xffffffffu};
    }
    sort_chunk(item, c.size);
    for (int s = threadIdx.x; s < CHUNK; s += CHUNK / 2) {
        i64 chunk = first + s / c.size, line = chunk / per_line;
        i64 i = chunk % per_line * c.keep + s % c.size;
        if (line < count && s % c.size < c.keep && i < c.pitch) to[line * c.pitch + i] = item[s];
    }
}

extern "C" __global__ void __launch_bounds__(CHUNK / 2)
    sort_elements(const char *x, char *to, SortLines lines, Chunks c) {
    auto element = [&](i64 line, i64 i) { return lines.item(x, line, i); };
    sort_chunks(element, lines.count, c, (Item *)to);
}
extern "C" __global__ void __launch_bounds__(CHUNK / 2)
    sort_items(const char *from, char *to, i64 count, Chunks c) {
    auto item = [&](i64 line, i64 i) { return ((const Item *)from)[line * c.n + i]; };
    sort_chunks(item, count, c, (Item *)to);
}

/* Of `count` lines of n items in sorted runs, makes runs twice as long. */
extern "C" __global__ void __launch_bounds__(THREADS)
    merge_runs(const char *from_, char *to_, i64 count, i64 n, i64 run) {
    i64 t = (i64)blockIdx.x * THREADS + threadIdx.x, i = t % n;
    if (t >= count * n) return;
    const Item *from = (const Item *)from_ + (t - i);
    Item mine = from[i];
    i64 pair = i / (2 * run) * (2 * run);
    bool second = i >= pair + run;
    i64 other = second ? pair : pair + run; /* the other run, of which [low, high) is left */
    i64 low = other < n ? other : n, high = other + run < n ? other + run : n, first = low;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (from[middle] < mine)
            low = middle + 1;
        else
            high = middle;
    }
    ((Item *)to_)[t - i + (second ? i - run : i) + (low - first)] = mine;
}

/* ---- the operands ---- */
template <class E> DEVICE void move(char *to, const char *from) {
    *(E *)to = *(const E *)from;
}

struct Fetch {
    Walk walk;                                   /* lines: strides of `to`, `from` */
    i64 to_stride, from_stride, count, n, pitch; /* n elements of a line, of `pitch` items */
    i32 size;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    fetch(const char *items, const char *from, char *to, Fetch f) {
    i64 t = (i64)blockIdx.x * THREADS + threadIdx.x, i = t % f.n, line = t / f.n, at[2];
    if (line >= f.count) return;
    f.walk.offsets<2>(line, at);
    to += at[0] + i * f.to_stride;
    from += at[1] + ((const Item *)items)[line * f.pitch + i].from * f.from_stride;
    switch (f.size) {
    case 1: move<u8>(to, from); break;
    case 2: move<u16>(to, from); break;
    case 4: move<u32>(to, from); break;
    default: move<u64>(to, from); break;
    }
}

/* The places themselves. */
extern "C" __global__ void __launch_bounds__(THREADS)
    fetch_places(const char *items, char *to, Fetch f) {
    i64 t = (i64)blockIdx.x * THREADS + threadIdx.x, i = t % f.n, line = t / f.n, at[1];
    if (line >= f.count) return;
    f.walk.offsets<1>(line, at);
    *(i32 *)(to + at[0] + i * f.to_stride) = (i32)((const Item *)items)[line * f.pitch + i].from;
}
