/* move.cuh - what kernels share that move elements as they are: walks over several operands, and
 * units of some elements that are moved at once.
 *
 * A file that includes it is compiled with SIZE, the bytes of an element, and UNIT, those of a
 * unit: a power of two up to 16, and a multiple of SIZE. The row has seen that all strides are
 * multiples of UNIT; whether addresses are is known when the kernel runs, and if they are not,
 * units go element by element. */
#ifndef MESHLUA_CUDA_MOVE_CUH
#define MESHLUA_CUDA_MOVE_CUH

#include "walk.cuh"

typedef WordOf<UNIT>::type Unit;
typedef WordOf<SIZE>::type Element;
constexpr int UNIT_ELEMENTS = UNIT / SIZE;

DEVICE bool is_whole(const char *p) {
    return (u64)p % UNIT == 0;
}
DEVICE Unit get(const char *from, bool whole) {
    if (whole) return *(const Unit *)from;
    Unit u;
#pragma unroll
    for (int i = 0; i < UNIT_ELEMENTS; i++) ((Element *)&u)[i] = ((const Element *)from)[i];
    return u;
}
DEVICE void put(char *to, Unit u, bool whole) {
    if (whole) {
        *(Unit *)to = u;
        return;
    }
#pragma unroll
    for (int i = 0; i < UNIT_ELEMENTS; i++) ((Element *)to)[i] = ((const Element *)&u)[i];
}
DEVICE Unit repeat(Element x) {
    Unit u;
#pragma unroll
    for (int i = 0; i < UNIT_ELEMENTS; i++) ((Element *)&u)[i] = x;
    return u;
}

/* A thread moves so many units, a block apart, and has all of them in flight before it stores the
 * first. */
enum { THREADS = 256, EACH = 4 };

DEVICE i64 first_unit() {
    return (i64)blockIdx.x * (THREADS * EACH) + threadIdx.x;
}

#endif
