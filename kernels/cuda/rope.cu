/* rope.cu - rotary position embedding (Su et al. 2021): in x[..., T, H, D], positions[T]
 * (kernel.h).
 *
 * A block has rows of one position, so that its sines, of angles in double, are computed once.
 * Limited by memory: x is read and y written once. y may alias x: a thread writes the pairs that it
 * has read. */
#include "device.cuh"

typedef Compute<TYPE> Real;

struct RopeRows { /* a parameter: of one position; bytes, and elements of a row */
    View x, y;
    i64 x_position, y_position, position, x_step, y_step;
    i64 rows, groups, half;
};

template <bool ALIGNED> DEVICE Vec<TYPE, VEC> take(const TYPE *row, i64 step, i64 i) {
    if constexpr (ALIGNED && VEC > 1) {
        return load<VEC>(row + i);
    } else {
        Vec<TYPE, VEC> v;
#pragma unroll
        for (int k = 0; k < VEC; k++) v.at[k] = row[VEC > 1 ? i + k : i * step];
        return v;
    }
}
template <bool ALIGNED> DEVICE void put(TYPE *row, i64 step, i64 i, const Vec<Real, VEC> &e) {
    Vec<TYPE, VEC> v = narrow<TYPE>(e);
    if constexpr (ALIGNED && VEC > 1) {
        store<VEC>(row + i, v);
    } else {
#pragma unroll
        for (int k = 0; k < VEC; k++) row[VEC > 1 ? i + k : i * step] = v.at[k];
    }
}

template <bool ALIGNED>
DEVICE void turn(const TYPE *x, TYPE *y, const RopeRows &r, i64 t, i64 group, const Real *cosines,
                 const Real *sines) {
    i64 per = r.half / VEC, low = r.rows * group / r.groups, high = r.rows * (group + 1) / r.groups;
    for (i64 k = low * per + threadIdx.x; k < high * per; k += BLOCK) {
        i64 row = k / per, i = (k - row * per) * VEC;
        const TYPE *from = bytes_on(r.x.at(x, row), t * r.x_position);
        TYPE *to = bytes_on(r.y.at(y, row), t * r.y_position);
        Vec<Real, VEC> a = widen(take<ALIGNED>(from, r.x_step, i));
        Vec<Real, VEC> b = widen(take<ALIGNED>(from, r.x_step, i + r.half));
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            Real u = a.at[j], v = b.at[j], c = cosines[i + j], s = sines[i + j];
            a.at[j] = math::fma(u, c, -(v * s));
            b.at[j] = math::fma(v, c, u * s);
        }
        put<ALIGNED>(to, r.y_step, i, a);
        put<ALIGNED>(to, r.y_step, i + r.half, b);
    }
}

extern "C" __global__ __launch_bounds__(BLOCK) void rope(const TYPE *x, const i32 *positions,
                                                         TYPE *y, RopeRows r, double base,
                                                         double sign) {
    extern __shared__ double table[];
    Real *cosines = (Real *)table, *sines = cosines + r.half;
    i64 t = blockIdx.x / r.groups, group = blockIdx.x % r.groups;
    double position = *bytes_on(positions, t * r.position);
    for (i64 i = threadIdx.x; i < r.half; i += BLOCK) {
        double angle = position * pow(base, -(double)i / (double)r.half);
        cosines[i] = (Real)cos(angle);
        sines[i] = (Real)(sin(angle) * sign);
    }
    __syncthreads();
    if (is_aligned<VEC>(x) && is_aligned<VEC>(y))
        turn<true>(x, y, r, t, group, cosines, sines);
    else
        turn<false>(x, y, r, t, group, cosines, sines);
}
