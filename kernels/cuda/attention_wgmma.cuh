/* attention_wgmma.cuh - tiles as second factors for products of warpgroups, as WarpTile of
 * attention_tile.cuh is for those of warps: panels of 64 depths, each of rows of 128 bytes
 * (wgmma.cuh). Defined in front: WGMMA, whether they are used. */
#ifndef MESHLUA_CUDA_ATTENTION_WGMMA_CUH
#define MESHLUA_CUDA_ATTENTION_WGMMA_CUH

#include "attention_tile.cuh"

#if WGMMA
#    include "wgmma.cuh"

template <int TRANSPOSED>
DEVICE void wgmma(bf16, float (&d)[8][4], const u32 (&a)[4], const void *b, bool add) {
    wgmma_bf16<TRANSPOSED>(d, a, b, add);
}
template <int TRANSPOSED>
DEVICE void wgmma(f16, float (&d)[8][4], const u32 (&a)[4], const void *b, bool add) {
    wgmma_f16<TRANSPOSED>(d, a, b, add);
}

struct GroupTile {
    static constexpr int warps = 4;
    static constexpr int panel = COLUMNS * 64, size = COLUMNS * DEPTH; /* elements */

    /* The first place at which tiles may begin. */
    DEVICE static Element *align(Element *p) {
        return p + (-(u32)__cvta_generic_to_shared(p) & 1023) / sizeof(Element);
    }
    DEVICE static Element *at(Element *tile, int r, int d) {
        return tile + d / 64 * panel + r * 64 + ((d % 64 / 8) ^ (r % 8)) * 8 + d % 8;
    }

    /* As tile_load. */
    DEVICE static void load(Element *tile, const Rows &from, int first, int end, int depth) {
        constexpr int row = DEPTH / 8, chunks = COLUMNS * row;
        static_assert(chunks % THREADS == 0, "");
        if (from.wide) {
#    pragma unroll
            for (int j = 0; j < chunks / THREADS; j++) {
                int i = (int)threadIdx.x + j * THREADS, r = i / row, d = i % row * 8;
                bool there = first + r < end && d < depth;
                cp_async_16(at(tile, r, d), from.at(first + r, d), there);
            }
            return;
        }
#    pragma unroll 1
        for (int i = (int)threadIdx.x; i < COLUMNS * DEPTH; i += THREADS) {
            int r = i / DEPTH, d = i % DEPTH;
            bool there = first + r < end && d < depth;
            *at(tile, r, d) = there ? *from.at(first + r, d) : Element{0};
        }
    }
    /* The thread's part of the tiles is there: before the barrier. */
    DEVICE static void arrived() {
        cp_async_wait<0>();
        wgmma_publish();
    }

    DEVICE static void multiply(Sums<COLUMNS> &p, const Factor &x, const Element *tile) {
        static_assert(STRIPS == 1 && COLUMNS == 64 && Factor::kept, "");
        wgmma_begin();
#    pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            wgmma<0>(Element{}, p[0], x.part[0][k], tile + k / 4 * panel + k % 4 * 16, k > 0);
        wgmma_commit();
    }

    DEVICE static void accumulate(Sums<DEPTH> &y, const Sums<COLUMNS> &p, const Element *tile) {
        u32 a[COLUMNS / 16][4];
        float(&panels)[DEPTH / 64][8][4] = (float(&)[DEPTH / 64][8][4]) y;
#    pragma unroll
        for (int k = 0; k < COLUMNS / 16; k++) first_factor(a[k], p[0], k);
        wgmma_begin();
#    pragma unroll
        for (int n = 0; n < DEPTH / 64; n++)
#    pragma unroll
            for (int k = 0; k < COLUMNS / 16; k++)
                wgmma<1>(Element{}, panels[n], a[k], tile + n * panel + k * 16 * 64, true);
        wgmma_commit();
    }
    /* Both only begin: the results are there behind this. */
    template <int N> DEVICE static void finish(Sums<N> &sums) {
        float(&panels)[N / 64][8][4] = (float(&)[N / 64][8][4]) sums;
        wgmma_wait();
#    pragma unroll
        for (int n = 0; n < N / 64; n++) wgmma_result(panels[n]);
    }
};
typedef GroupTile Tile;
#else
typedef WarpTile Tile;
#endif

constexpr int together = Tile::warps * STRIPS * 16; /* rows of the warps that work together */

#endif
