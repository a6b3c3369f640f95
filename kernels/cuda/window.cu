/* window.cu - reduce_window_max and _sum, select_and_gather_add, select_and_scatter_add.
 *
 * A thread has one element of the result and reads what it needs: windows that overlap read an
 * element several times, from cache; neighbours in the last dim lie side by side. Limited by memory
 * for small windows (x once, y once), by loads from L1 for large ones: one for each tap. Compiled
 * with TYPE, that of elements, and RANK, at
 * least 1. */
#include "device.cuh"

enum { THREADS = 256 };

typedef Compute<TYPE> Value;
typedef SumOf<Value>::type Sum;

/* Indices have RANK entries, so that they stay in registers. */
constexpr int N = RANK;

struct Window {                               /* the first RANK entries of each array */
    i64 x[8], y[8], x_stride[8], y_stride[8]; /* dims and strides; y: the windows */
    i64 other_stride[8];                      /* of dx, or of t: dims as x */
    i64 window[8], stride[8], low[8];
    i64 count; /* elements of the result */
};

/* The index of position i in dims. */
template <class Index> DEVICE void divide(Index i, const i64 *dims, i64 *index) {
#pragma unroll
    for (int d = N - 1; d >= 0; d--) {
        Index next = d > 0 ? i / (Index)dims[d] : 0;
        index[d] = (i64)(i - next * (Index)dims[d]);
        i = next;
    }
}
/* Of `count` positions; 32 bits do for most. */
DEVICE void index_of(i64 i, i64 count, const i64 *dims, i64 *index) {
    if (count <= 0x7fffffff)
        divide((u32)i, dims, index);
    else
        divide((u64)i, dims, index);
}
DEVICE i64 offset_of(const i64 *index, const i64 *strides) {
    i64 bytes = 0;
#pragma unroll
    for (int d = 0; d < N; d++) bytes += index[d] * strides[d];
    return bytes;
}

/* A box of indices [low, high), walked in row-major order. */
struct Box {
    i64 low[N], high[N], at[N];

    DEVICE bool begin() {
        bool any = true;
#pragma unroll
        for (int d = 0; d < N; d++) {
            at[d] = low[d];
            any = any && low[d] < high[d];
        }
        return any;
    }
    DEVICE bool next() {
        bool carry = true;
#pragma unroll
        for (int d = N - 1; d >= 0; d--) {
            if (carry && ++at[d] < high[d])
                carry = false;
            else if (carry)
                at[d] = low[d];
        }
        return !carry;
    }
};

/* The places of x that the window at `at` sees. */
DEVICE Box seen_by(const Window &w, const i64 *at) {
    Box b;
#pragma unroll
    for (int d = 0; d < N; d++) {
        i64 first = at[d] * w.stride[d] - w.low[d], end = first + w.window[d];
        b.low[d] = first > 0 ? first : 0;
        b.high[d] = end < w.x[d] ? end : w.x[d];
    }
    return b;
}

DEVICE Value value_at(const char *x, i64 bytes) {
    return widen(*(const TYPE *)(x + bytes));
}

template <class V> DEVICE V least() {
    if constexpr (V(1) / 2 != 0)
        return -(V)__longlong_as_double(0x7ff0000000000000ll);
    else
        return V(-1) > V(0) || sizeof(TYPE) == 1 ? V(0) : V((u64)1 << (sizeof(V) * 8 - 1));
}

extern "C" __global__ void __launch_bounds__(THREADS) window_max(const char *x, char *y, Window w) {
    i64 i = global_thread(), at[N];
    if (i >= w.count) return;
    index_of(i, w.count, w.y, at);
    Box b = seen_by(w, at);
    Value most = least<Value>();
    for (bool more = b.begin(); more; more = b.next()) {
        Value v = value_at(x, offset_of(b.at, w.x_stride));
        most = most != most || most >= v ? most : v;
    }
    *(TYPE *)(y + offset_of(at, w.y_stride)) = narrow<TYPE>(most);
}

extern "C" __global__ void __launch_bounds__(THREADS) window_sum(const char *x, char *y, Window w) {
    i64 i = global_thread(), at[N];
    if (i >= w.count) return;
    index_of(i, w.count, w.y, at);
    Box b = seen_by(w, at);
    Sum sum = Sum();
    for (bool more = b.begin(); more; more = b.next())
        sum += (Sum)value_at(x, offset_of(b.at, w.x_stride));
    *(TYPE *)(y + offset_of(at, w.y_stride)) = narrow<TYPE>(sum);
}

/* Where the first largest element of the window at `at` is: `place`. Whether it sees any. */
DEVICE bool largest(const Window &w, const char *x, const i64 *at, i64 *place) {
    Box b = seen_by(w, at);
    Value most = Value();
    bool any = false;
    for (bool more = b.begin(); more; more = b.next()) {
        Value v = value_at(x, offset_of(b.at, w.x_stride));
        if (any && (most != most || most >= v)) continue;
        any = true;
        most = v;
#pragma unroll
        for (int d = 0; d < N; d++) place[d] = b.at[d];
    }
    return any;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    select_gather(const char *x, const char *t, char *y, Window w) {
    i64 i = global_thread(), at[N], place[N];
    if (i >= w.count) return;
    index_of(i, w.count, w.y, at);
    TYPE v = narrow<TYPE>(Value());
    if (largest(w, x, at, place)) v = *(const TYPE *)(t + offset_of(place, w.other_stride));
    *(TYPE *)(y + offset_of(at, w.y_stride)) = v;
}

/* tap[window]: which of its taps sees the largest element; -1: it sees none. */
extern "C" __global__ void __launch_bounds__(THREADS)
    select_taps(const char *x, i32 *tap, Window w) {
    i64 i = global_thread(), at[N], place[N];
    if (i >= w.count) return;
    index_of(i, w.count, w.y, at);
    i64 t = -1;
    if (largest(w, x, at, place)) {
        t = 0;
#pragma unroll
        for (int d = 0; d < N; d++)
            t = t * w.window[d] + place[d] - (at[d] * w.stride[d] - w.low[d]);
    }
    tap[i] = (i32)t;
}

/* An element of dx sums up, in their order, the windows that see it and have selected it; `w.y` and
 * `y_stride` are of dy. */
extern "C" __global__ void __launch_bounds__(THREADS)
    scatter_selected(const i32 *tap, const char *dy, char *dx, Window w) {
    i64 i = global_thread(), at[N];
    if (i >= w.count) return;
    index_of(i, w.count, w.x, at);
    Box b; /* of windows */
#pragma unroll
    for (int d = 0; d < N; d++) {
        i64 p = at[d] + w.low[d], first = p - w.window[d] + 1;
        i64 end = p < 0 ? 0 : p / w.stride[d] + 1;
        b.low[d] = first > 0 ? (first + w.stride[d] - 1) / w.stride[d] : 0;
        b.high[d] = end < w.y[d] ? end : w.y[d];
    }
    Sum sum = Sum();
    for (bool more = b.begin(); more; more = b.next()) {
        i64 window = 0, t = 0;
#pragma unroll
        for (int d = 0; d < N; d++) {
            window = window * w.y[d] + b.at[d];
            t = t * w.window[d] + at[d] - (b.at[d] * w.stride[d] - w.low[d]);
        }
        if (tap[window] == t) sum += (Sum)value_at(dy, offset_of(b.at, w.y_stride));
    }
    *(TYPE *)(dx + offset_of(at, w.other_stride)) = narrow<TYPE>(sum);
}
