/* shim_ptx.h - twins of the functions that kernels/cuda/{device,mma}.cuh write in PTX. */
#ifndef STANDIN_SHIM_PTX_H
#define STANDIN_SHIM_PTX_H

static inline unsigned bf16_bits(float x) { /* to nearest even */
    unsigned u = __float_as_uint(x);
    return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static inline unsigned f16_bits(float x) {
    _Float16 h = (_Float16)x;
    unsigned short bits;
    __builtin_memcpy(&bits, &h, 2);
    return x != x ? 0x7fff : bits;
}
static inline unsigned bf16_pair(float low, float high) {
    return bf16_bits(high) << 16 | bf16_bits(low);
}
static inline unsigned f16_pair(float low, float high) {
    return f16_bits(high) << 16 | f16_bits(low);
}
static inline float f16_value(unsigned short bits) {
    /* By hand: of a _Float16 the compiler makes comparisons that only libgcc has. */
    unsigned sign = (bits & 0x8000u) << 16, e = bits >> 10 & 31, m = bits & 0x3ff;
    float tiny = (float)m * 0x1p-24f;
    if (e == 0) return sign ? -tiny : tiny;
    return __uint_as_float(sign | (e == 31 ? 0x7f800000 : (e + 112) << 23) | m << 13);
}

/* ---- mma.cuh ---- */
static inline void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                            STANDIN_LINE) {
    StandinMma slot = {d, a, {b0, b1}};
    standin_thread.calls->warp(STANDIN_MMA_BF16, 0xffffffffu, &slot, line);
}
static inline void mma_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                           STANDIN_LINE) {
    StandinMma slot = {d, a, {b0, b1}};
    standin_thread.calls->warp(STANDIN_MMA_F16, 0xffffffffu, &slot, line);
}
static inline void ldmatrix_x4(unsigned (&r)[4], const void *row, STANDIN_LINE) {
    StandinMatrices slot = {row, r, 4};
    standin_thread.calls->warp(STANDIN_LDMATRIX, 0xffffffffu, &slot, line);
}
static inline void ldmatrix_x4_trans(unsigned (&r)[4], const void *row, STANDIN_LINE) {
    StandinMatrices slot = {row, r, 4};
    standin_thread.calls->warp(STANDIN_LDMATRIX_TRANS, 0xffffffffu, &slot, line);
}
static inline void cp_async_16(void *shared, const void *global, bool valid) {
    standin_thread.calls->async(STANDIN_ASYNC_COPY, shared, valid ? global : 0, 16);
}
static inline void cp_async_commit() {
    standin_thread.calls->async(STANDIN_ASYNC_COMMIT, 0, 0, 0);
}
template <int PENDING> static inline void cp_async_wait() {
    standin_thread.calls->async(STANDIN_ASYNC_WAIT, 0, 0, PENDING);
}
static inline float exp2_approx(float x) {
    float y = x < -126 ? 0 : exp2f(x);
    return y;
}
static inline float tanh_approx(float x) {
    return tanhf(x);
}

/* ---- wgmma.cuh: each warp makes its 16 rows by eight mma; b's addresses are swizzled by their own
 * bits ---- */
static inline unsigned standin_wgmma_pair(const void *b, int transposed, int n, int k) {
    unsigned short half[2];
    for (int i = 0; i < 2; i++) {
        int row = transposed ? k + i : n, column = transposed ? n : k + i;
        size_t at = (size_t)b + row * 128 + column * 2;
        __builtin_memcpy(&half[i], (const void *)(at ^ (at >> 7 & 7) << 4), 2);
    }
    return (unsigned)half[1] << 16 | half[0];
}
template <int TRANSPOSED, class Mma>
static inline void standin_wgmma(Mma *mma, float (&d)[8][4], const unsigned (&a)[4], const void *b,
                                 bool add, int line) {
    int lane = (int)standin_lane(), row = lane / 4, column = lane % 4 * 2;
    for (int n = 0; n < 8; n++) {
        for (int e = 0; e < 4 && !add; e++) d[n][e] = 0;
        mma(d[n], a, standin_wgmma_pair(b, TRANSPOSED, n * 8 + row, column),
            standin_wgmma_pair(b, TRANSPOSED, n * 8 + row, column + 8), line);
    }
}
template <int TRANSPOSED>
static inline void wgmma_bf16(float (&d)[8][4], const unsigned (&a)[4], const void *b, bool add,
                              STANDIN_LINE) {
    standin_wgmma<TRANSPOSED>(mma_bf16, d, a, b, add, line);
}
template <int TRANSPOSED>
static inline void wgmma_f16(float (&d)[8][4], const unsigned (&a)[4], const void *b, bool add,
                             STANDIN_LINE) {
    standin_wgmma<TRANSPOSED>(mma_f16, d, a, b, add, line);
}
static inline void wgmma_publish() {}
static inline void wgmma_begin() {}
static inline void wgmma_commit() {}
static inline void wgmma_wait() {}
static inline void wgmma_result(float (&)[8][4]) {}

#endif
