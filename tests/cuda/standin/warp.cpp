/* warp.cpp - what the lanes of a warp compute together; fragments as the PTX ISA has them. */
#include "block.h"
#include <cstdint>
#include <cstring>

static const int WARP = 32;

static void shuffle(unsigned lanes, StandinShuffle *const s[WARP]) {
    for (int l = 0; l < WARP; l++) {
        if (!(lanes >> l & 1)) continue;
        unsigned from = s[l]->from % WARP;
        s[l]->result = lanes >> from & 1 ? s[from]->value : ~0ull;
    }
}

static void vote(StandinWarp kind, unsigned lanes, StandinVote *const s[WARP]) {
    for (int l = 0; l < WARP; l++) {
        if (!(lanes >> l & 1)) continue;
        s[l]->lanes = 0;
        for (int k = 0; k < WARP; k++)
            if (lanes >> k & 1 &&
                (kind == STANDIN_VOTE ? s[k]->value != 0 : s[k]->value == s[l]->value))
                s[l]->lanes |= 1u << k;
    }
}

static void reduce(StandinWarp kind, unsigned lanes, StandinVote *const s[WARP]) {
    unsigned sum = 0, least = ~0u, most = 0;
    int low = INT32_MAX, high = INT32_MIN;
    for (int l = 0; l < WARP; l++) {
        if (!(lanes >> l & 1)) continue;
        unsigned x = (unsigned)s[l]->value;
        sum += x;
        if (x < least) least = x;
        if (x > most) most = x;
        if ((int)x < low) low = (int)x;
        if ((int)x > high) high = (int)x;
    }
    unsigned result = kind == STANDIN_ADD          ? sum
                      : kind == STANDIN_MIN        ? least
                      : kind == STANDIN_MAX        ? most
                      : kind == STANDIN_MIN_SIGNED ? (unsigned)low
                                                   : (unsigned)high;
    for (int l = 0; l < WARP; l++)
        if (lanes >> l & 1) s[l]->value = result;
}

/* ---- tensor cores ---- */

static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static float bf16(uint32_t bits) {
    return from_bits(bits << 16);
}
static float f16(uint32_t bits) {
    uint32_t e = bits >> 10 & 31, m = bits & 0x3ff, sign = (bits & 0x8000) << 16;
    if (e == 31) return from_bits(sign | 0x7f800000 | m << 13);
    if (e) return from_bits(sign | (e + 112) << 23 | m << 13);
    float tiny = (float)m * 0x1p-24f;
    return sign ? -tiny : tiny;
}

/* d += a b of 16 x K and K x 8; `half` cuts a register into two numbers. */
template <int K, class Part> static void mma(StandinMma *const s[WARP], Part part) {
    const int per = 16 / K == 1 ? 2 : 1; /* numbers in a register */
    float a[16][K], b[K][8];
    for (int l = 0; l < WARP; l++) {
        int row = l / 4, k = l % 4 * per;
        for (int p = 0; p < per; p++) {
            a[row][k + p] = part(s[l]->a[0], p);
            a[row + 8][k + p] = part(s[l]->a[1], p);
            a[row][k + K / 2 + p] = part(s[l]->a[2], p);
            a[row + 8][k + K / 2 + p] = part(s[l]->a[3], p);
            b[k + p][row] = part(s[l]->b[0], p);
            b[k + K / 2 + p][row] = part(s[l]->b[1], p);
        }
    }
    for (int l = 0; l < WARP; l++)
        for (int i = 0; i < 4; i++) {
            int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[row][k] * b[k][column];
            s[l]->d[i] += sum;
        }
}

static const char *ldmatrix(StandinMatrices *const s[WARP], bool transposed) {
    uint16_t matrix[4][8][8];
    int count = s[0]->count;
    for (int l = 0; l < 8 * count; l++) {
        if ((uintptr_t)s[l]->row % 16) return "ldmatrix from an address that is not aligned";
        memcpy(matrix[l / 8][l % 8], s[l]->row, 16);
    }
    for (int l = 0; l < WARP; l++)
        for (int m = 0; m < count; m++) {
            int i = l / 4, j = l % 4 * 2;
            uint32_t low = transposed ? matrix[m][j][i] : matrix[m][i][j];
            uint32_t high = transposed ? matrix[m][j + 1][i] : matrix[m][i][j + 1];
            s[l]->to[m] = high << 16 | low;
        }
    return nullptr;
}

const char *standin_warp(StandinWarp kind, unsigned lanes, void *const slot[32]) {
    if (kind >= STANDIN_MMA_BF16 && lanes != ~0u) return "not all lanes of the warp take part";
    switch (kind) {
    case STANDIN_SYNCWARP: return nullptr;
    case STANDIN_SHUFFLE: shuffle(lanes, (StandinShuffle *const *)slot); return nullptr;
    case STANDIN_VOTE:
    case STANDIN_MATCH: vote(kind, lanes, (StandinVote *const *)slot); return nullptr;
    case STANDIN_MMA_BF16:
        mma<16>((StandinMma *const *)slot,
                [](uint32_t r, int p) { return bf16(r >> 16 * p & 0xffff); });
        return nullptr;
    case STANDIN_MMA_F16:
        mma<16>((StandinMma *const *)slot,
                [](uint32_t r, int p) { return f16(r >> 16 * p & 0xffff); });
        return nullptr;
    case STANDIN_MMA_TF32:
        mma<8>((StandinMma *const *)slot,
               [](uint32_t r, int) { return from_bits(r & 0xffffe000); });
        return nullptr;
    case STANDIN_LDMATRIX:
    case STANDIN_LDMATRIX_TRANS:
        return ldmatrix((StandinMatrices *const *)slot, kind == STANDIN_LDMATRIX_TRANS);
    default: reduce(kind, lanes, (StandinVote *const *)slot); return nullptr;
    }
}
