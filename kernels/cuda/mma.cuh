/* mma.cuh - what has no name in CUDA C++: tensor cores, matrices from shared memory, copies to it
 * that pass no register. For sm_80 and later; all lanes of a warp call them together.
 *
 * Fragments are those of the PTX ISA for m16n8k16, two 16-bit numbers to a register, the lower
 * index in the lower half. With g = lane / 4 and c = lane % 4 * 2:
 *   A (16 x 16): a[0] = A[g][c..c+1], a[1] = A[g+8][c..], a[2] = A[g][c+8..], a[3] = A[g+8][c+8..]
 *   B (16 x 8):  b[0] = B[c..c+1][g], b[1] = B[c+8..c+9][g]
 *   D (16 x 8):  d[0..1] = D[g][c..c+1], d[2..3] = D[g+8][c..c+1]
 * so that two Ds beside each other are, rounded, an A. */
#ifndef MESHLUA_CUDA_MMA_CUH
#define MESHLUA_CUDA_MMA_CUH

#include "device.cuh"

#ifndef STANDIN /* tests run without a GPU; their stand-in has these functions in C++ */

/* d += a b, summed in float32 */
DEVICE void mma_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void mma_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices of 16-bit numbers: r[i] = matrix i's row lane / 4, columns lane % 4 * 2 and
 * the next. Lane l says where row l % 8 of matrix l / 8 is: 16 bytes in shared memory, aligned. */
DEVICE void ldmatrix_x4(u32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((u32)__cvta_generic_to_shared(row)));
}
/* The same of the transposed matrices: r[i] = matrix i's column lane / 4, rows lane % 4 * 2 ... */
DEVICE void ldmatrix_x4_trans(u32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((u32)__cvta_generic_to_shared(row)));
}

/* 16 bytes, both sides aligned, from global to shared memory; zeros where not `valid`
 * (nothing is read). They are there for the thread after cp_async_wait, for others after
 * a barrier behind it. */
DEVICE void cp_async_16(void *shared, const void *global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((u32)__cvta_generic_to_shared(shared)), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}
/* Closes a group of the thread's copies, maybe an empty one. */
DEVICE void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most PENDING of the latest groups are under way. */
template <int PENDING> DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif

#endif
