/* wgmma.cuh - products of a warpgroup (sm_90a): 4 warps, of which the first one's number is a
 * multiple of 4, together; they run on while the tensor cores work.
 *
 * A warp has 16 of the 64 rows of d and a, in the fragments of mma.cuh. b lies in shared memory, in
 * rows of 128 bytes of which 8 are an atom of 1024 bytes, aligned to its size; within it the 16
 * bytes number i of row r stand at i ^ r. */
#ifndef MESHLUA_CUDA_WGMMA_CUH
#define MESHLUA_CUDA_WGMMA_CUH

#include "mma.cuh"

#ifndef STANDIN /* as in mma.cuh */

/* Where b begins: 16-byte units, 18 bits; 1024 bytes from atom to atom; 1: 128 bytes swizzled. (The
 * other distance, of atoms beside each other, does not matter for 64 columns.) */
DEVICE u64 wgmma_matrix(const void *b) {
    u64 at = (u32)__cvta_generic_to_shared(b);
    return (at & 0x3ffff) >> 4 | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

#    define WGMMA_SUMS(d, i)                                                                       \
        "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3]), "+f"(d[i + 1][0]),             \
            "+f"(d[i + 1][1]), "+f"(d[i + 1][2]), "+f"(d[i + 1][3])
#    define WGMMA_64_64_16(type, d, a, b, add, transposed)                                         \
        asm volatile(                                                                              \
            "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                           \
            "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {%0, %1, %2, %3, "       \
            "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "      \
            "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, "       \
            "%36, p, 1, 1, %38;\n}"                                                                \
            : WGMMA_SUMS(d, 0), WGMMA_SUMS(d, 2), WGMMA_SUMS(d, 4), WGMMA_SUMS(d, 6)               \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_matrix(b)), "r"((int)add),     \
              "n"(transposed))

/* Begins d = a b, or d += a b where `add`. b's 64 columns are its rows, and k is 16 numbers from b
 * on; TRANSPOSED: its columns lie along the rows, and k is 16 rows. */
template <int TRANSPOSED>
DEVICE void wgmma_bf16(float (&d)[8][4], const u32 (&a)[4], const void *b, bool add) {
    WGMMA_64_64_16("bf16", d, a, b, add, TRANSPOSED);
}
template <int TRANSPOSED>
DEVICE void wgmma_f16(float (&d)[8][4], const u32 (&a)[4], const void *b, bool add) {
    WGMMA_64_64_16("f16", d, a, b, add, TRANSPOSED);
}

/* What threads have written to shared memory is there for the products behind the next barrier. */
DEVICE void wgmma_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Before the first product that uses registers which have been written otherwise. */
DEVICE void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Behind the last product of those that are waited for. */
DEVICE void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/* Behind wgmma_wait: d is not used before. */
DEVICE void wgmma_result(float (&d)[8][4]) {
    asm volatile(""
                 : WGMMA_SUMS(d, 0), WGMMA_SUMS(d, 2), WGMMA_SUMS(d, 4), WGMMA_SUMS(d, 6)
                 :
                 : "memory");
}

#endif

#endif
