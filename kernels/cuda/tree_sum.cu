/* tree_sum.cu - the sum of the same tensor of several devices: by halves, in the CPU's order, so
 * that the bits are the same (kernel.h).
 *
 * Limited by memory: COUNT tensors (of the MOST that have parameters) are read and one is written;
 * a thread has COUNT words of 16 bytes on their way. */
#include "device.cuh"

enum { MOST = 16 };
struct Addends {
    const float *at[MOST];
};

/* Of N from FIRST on: the largest power of 2 of them below N, plus the rest. */
template <int FIRST, int N, int W> DEVICE Vec<float, W> sum_of(const Vec<float, W> (&x)[COUNT]) {
    if constexpr (N == 1) {
        return x[FIRST];
    } else {
        constexpr int half = N > 8 ? 8 : N > 4 ? 4 : N > 2 ? 2 : 1;
        Vec<float, W> a = sum_of<FIRST, half>(x), b = sum_of<FIRST + half, N - half>(x);
#pragma unroll
        for (int i = 0; i < W; i++) a.at[i] += b.at[i];
        return a;
    }
}

template <int W> DEVICE void sum_at(const Addends &x, float *y, i64 from, i64 to) {
    Vec<float, W> v[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++) v[k] = load<W>(bytes_on(x.at[k], from));
    store<W>(bytes_on(y, to), sum_of<0, COUNT>(v));
}

extern "C" __global__ __launch_bounds__(256) void tree_sum(
    const float *x0, const float *x1, const float *x2, const float *x3, const float *x4,
    const float *x5, const float *x6, const float *x7, const float *x8, const float *x9,
    const float *x10, const float *x11, const float *x12, const float *x13, const float *x14,
    const float *x15, float *y, View in, View out, i64 count) {
    Addends x = {{x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15}};
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (DENSE) {
        bool aligned = is_aligned<4>(y);
#pragma unroll
        for (int k = 0; k < COUNT; k++) aligned = aligned && is_aligned<4>(x.at[k]);
        if (aligned && i * 4 + 4 <= count) {
            sum_at<4>(x, y, i * 16, i * 16);
            return;
        }
        for (i64 k = i * 4; k < i * 4 + 4 && k < count; k++) sum_at<1>(x, y, k * 4, k * 4);
    } else if (i < count) {
        sum_at<1>(x, y, in.offset(i), out.offset(i));
    }
}
