/* dynamic.cu - dynamic_slice and dynamic_update_slice. Limited by memory: what is moved is read
 * once and written once. */
#include "move.cuh"

/* A part of a whole whose place `starts` say, and an operand that is another part of it. */
struct Part {
    i64 dims[8], strides[8];         /* of the part */
    i64 other[8], other_stride[8];   /* of the other operand */
    i64 offset[8], last[8], size[8]; /* where that begins; the last start there is; of the whole */
    i64 start_stride;
    i32 rank, moved; /* the part begins at 0 of the other in all dims from `moved` on */
    i32 small;

    /* Where the part begins in the other operand. All threads of the block get it. */
    DEVICE const i64 *place(const char *starts) const {
        __shared__ i64 at[8];
        if (threadIdx.x < (u32)moved) {
            int d = threadIdx.x;
            i64 s = *(const i32 *)(starts + d * start_stride);
            if (s < 0) s += size[d];
            at[d] = (s < 0 ? 0 : s > last[d] ? last[d] : s) - offset[d];
        }
        __syncthreads();
        return at;
    }
    /* Where position i of the part is, there and in the other; whether the other has it. */
    template <class Index>
    DEVICE bool find(Index i, const i64 *place, i64 *mine, i64 *others) const {
        bool inside = true;
        *mine = *others = 0;
#pragma unroll 1
        for (int d = rank - 1; d >= 0; d--) {
            Index n = (Index)dims[d], next = d > 0 ? i / n : 0;
            i64 c = (i64)(i - next * n), t = d < moved ? c + place[d] : c;
            i = next;
            inside = inside && t >= 0 && t < other[d];
            *mine += c * strides[d];
            *others += t * other_stride[d];
        }
        return inside;
    }
    DEVICE bool find(i64 i, const i64 *place, i64 *mine, i64 *others) const {
        return small ? find<u32>((u32)i, place, mine, others)
                     : find<u64>((u64)i, place, mine, others);
    }
};

/* The other operand is x. */
extern "C" __global__ void __launch_bounds__(THREADS)
    dynamic_slice(const char *x, const char *starts, char *y, Part part, i64 count) {
    const i64 *place = part.place(starts);
    bool whole_x = is_whole(x), whole_y = is_whole(y);
    i64 first = first_unit(), to[EACH], from;
    Unit u[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (first + k * THREADS >= count) continue;
        bool inside = part.find(first + k * THREADS, place, &to[k], &from);
        u[k] = inside ? get(x + from, whole_x) : repeat(Element());
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (first + k * THREADS < count) put(y + to[k], u[k], whole_y);
}

/* The other operand is y, which has x already. */
extern "C" __global__ void __launch_bounds__(THREADS)
    dynamic_update(const char *update, const char *starts, char *y, Part part, i64 count) {
    const i64 *place = part.place(starts);
    bool whole_update = is_whole(update), whole_y = is_whole(y), inside[EACH];
    i64 first = first_unit(), from, to[EACH];
    Unit u[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        inside[k] =
            first + k * THREADS < count && part.find(first + k * THREADS, place, &from, &to[k]);
        if (inside[k]) u[k] = get(update + from, whole_update);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (inside[k]) put(y + to[k], u[k], whole_y);
}
