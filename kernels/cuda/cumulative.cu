/* cumulative.cu - cumsum, cumprod, cummax, cummin along lines, which the row gives from where they
 * begin. Floats are combined as double, integers as 64 bits, in an order that the length of a line
 * alone decides. Compiled with TYPE, that of elements, KIND (0 sum, 1 product, 2 max, 3 min) and
 * WARPS, those of a block.
 *
 * Limited by memory: `scan_along` reads and writes once; `scan_across` reads twice where a line is
 * cut in segments, the second time mostly from cache. */
#include "walk.cuh"

enum { WARP = 32, ITEMS = 4 /* neighbours that a thread scans by itself */ };
constexpr u32 ALL = 0xffffffffu;

template <class C> struct WideOf { typedef i64 type; };
template <> struct WideOf<float> { typedef double type; };
template <> struct WideOf<double> { typedef double type; };
template <> struct WideOf<u64> { typedef u64 type; };
typedef WideOf<Compute<TYPE>>::type Wide;
constexpr bool REAL = Wide(1) / 2 != 0;

/* `x` is later in the line. */
DEVICE Wide combine(Wide a, Wide x) {
    if constexpr (KIND < 2 && !REAL) /* integers wrap */
        return (Wide)(KIND == 0 ? (u64)a + (u64)x : (u64)a * (u64)x);
    if (KIND == 0) return a + x;
    if (KIND == 1) return a * x;
    if (a != a) return a;
    return (KIND == 2 ? a > x : a < x) ? a : x;
}
DEVICE Wide neutral() {
    return KIND == 1 ? Wide(1) : Wide(0);
}

DEVICE Wide get(const char *p) {
    return (Wide)widen(*(const TYPE *)p);
}
DEVICE void put(char *p, Wide x) {
    *(TYPE *)p = narrow<TYPE>((Compute<TYPE>)x);
}

struct Lines {
    Walk walk; /* strides of x, y */
    i64 count, n, along[2];
};

/* A lane has a line, neighbours have lines that lie side by side; warp w of a block scans
 * the w-th segment of its 32 lines: first what each segment makes, then its elements
 * behind what was before. */
extern "C" __global__ void __launch_bounds__(WARP *WARPS)
    scan_across(const char *x, char *y, Lines lines) {
    enum { AHEAD = 8 };
    __shared__ Wide made[WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    i64 line = (i64)blockIdx.x * WARP + lane, at[2] = {0, 0};
    i64 each = (lines.n + WARPS - 1) / WARPS, first = warp * each;
    i64 end = line < lines.count ? (first + each < lines.n ? first + each : lines.n) : 0;
    if (line < lines.count) lines.walk.offsets<2>(line, at);
    x += at[0];
    y += at[1];
    bool any = false;
    Wide sum = neutral();
    if (WARPS > 1) {
        for (i64 i = first; i < end; i += AHEAD) {
            Wide v[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (i + k < end) v[k] = get(x + (i + k) * lines.along[0]);
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (i + k < end) sum = i + k == first ? v[k] : combine(sum, v[k]);
        }
        made[warp][lane] = sum;
        __syncthreads();
        for (int w = 0; w < warp; w++) { /* segments before this one are full, or it is empty */
            sum = any ? combine(sum, made[w][lane]) : made[w][lane];
            any = true;
        }
    }
    for (i64 i = first; i < end; i += AHEAD) {
        Wide v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (i + k < end) v[k] = get(x + (i + k) * lines.along[0]);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (i + k >= end) continue;
            sum = any ? combine(sum, v[k]) : v[k];
            any = true;
            put(y + (i + k) * lines.along[1], sum);
        }
    }
}

/* Where element i of a tile is: threads that each have ITEMS neighbours meet no bank twice. */
DEVICE int tile_at(int i) {
    return i + i / ITEMS;
}

/* A block scans a line, tile by tile. Elements behind its end are repetitions of the last one that
 * nobody stores. */
extern "C" __global__ void __launch_bounds__(WARP *WARPS)
    scan_along(const char *x, char *y, Lines lines) {
    enum { THREADS = WARP * WARPS, TILE = THREADS * ITEMS };
    __shared__ Wide tile[TILE + THREADS], part[WARPS];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    i64 at[2];
    Wide before = neutral();
    lines.walk.offsets<2>(blockIdx.x, at);
    x += at[0];
    y += at[1];
    for (i64 first = 0; first < lines.n; first += TILE) {
        Wide v[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            i64 i = first + threadIdx.x + k * THREADS;
            v[k] = get(x + (i < lines.n ? i : lines.n - 1) * lines.along[0]);
        }
#pragma unroll
        for (int k = 0; k < ITEMS; k++) tile[tile_at(threadIdx.x + k * THREADS)] = v[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            v[k] = tile[tile_at(threadIdx.x * ITEMS + k)];
            if (k > 0) v[k] = combine(v[k - 1], v[k]);
        }
        Wide sum = v[ITEMS - 1];
        for (int d = 1; d < WARP; d *= 2) {
            Wide other = __shfl_up_sync(ALL, sum, d);
            if (lane >= d) sum = combine(other, sum);
        }
        if (lane == WARP - 1) part[warp] = sum;
        sum = __shfl_up_sync(ALL, sum, 1); /* of the threads before this one, from lane 1 on */
        __syncthreads();
        bool any = first > 0;
        Wide next = before;
        for (int w = 0; w < WARPS; w++) {
            if (w == warp) {
                Wide mine = next;
                if (lane > 0) mine = any ? combine(next, sum) : sum;
                if (any || lane > 0)
#pragma unroll
                    for (int k = 0; k < ITEMS; k++) v[k] = combine(mine, v[k]);
            }
            next = any ? combine(next, part[w]) : part[w];
            any = true;
        }
        before = next;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) tile[tile_at(threadIdx.x * ITEMS + k)] = v[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            i64 i = first + threadIdx.x + k * THREADS;
            if (i < lines.n) put(y + i * lines.along[1], tile[tile_at(threadIdx.x + k * THREADS)]);
        }
        __syncthreads();
    }
}
