/* attention.cuh - what all kernels of attention share: a head's rows, what a query sees, dropout.
 *
 * Defined in front: ELEMENT, a type; MASKED, whether there is a mask; DROPS, whether there is
 * dropout. */
#ifndef MESHLUA_CUDA_ATTENTION_CUH
#define MESHLUA_CUDA_ATTENTION_CUH

#include "attention_args.cuh"
#include "device.cuh"
#include "threefry.cuh"

typedef ELEMENT Element;
typedef Compute<Element> Real;

/* One head's [rows, depth]. */
struct Rows {
    char *first;
    i64 row, element;
    bool wide; /* 16 bytes at a time */

    DEVICE Rows(const void *tensor, const AttentionSteps &by, int depth, int batch, int head)
        : first((char *)tensor + batch * by.batch + head * by.head), row(by.row),
          element(by.element) {
        constexpr int vector = 16 / sizeof(Element);
        wide =
            element == sizeof(Element) && depth % vector == 0 && ((u64)first | (u64)row) % 16 == 0;
    }
    DEVICE Element *at(int i, int d) const { return (Element *)(first + i * row + d * element); }
};

/* Query t sees the keys before this one, as far as the mask lets it. */
DEVICE int keys_before(const AttentionArgs &a, int t) {
    return a.causal ? max(0, min(a.keys, t + 1 + a.keys - a.queries)) : a.keys;
}

/* A head's part of the mask, and of what dropout keeps. */
struct Sight {
    const u8 *mask;
    i64 mask_query, mask_key;
    u32 k0, k1, below;
    u64 first, query, key;

    DEVICE Sight(const AttentionArgs &a, const u8 *m, const u8 *keys, int batch, int head) {
        if (MASKED) {
            mask = m + batch * a.mask[0] + head * a.mask[1];
            mask_query = a.mask[2], mask_key = a.mask[3];
        }
        if (DROPS) {
            k0 = *(const u32 *)keys, k1 = *(const u32 *)(keys + a.key), below = a.below;
            first = a.first + batch * (u64)a.counter[0] + head * (u64)a.counter[1];
            query = (u64)a.counter[2], key = (u64)a.counter[3];
        }
    }
    DEVICE bool sees(int t, int s) const { return !MASKED || mask[t * mask_query + s * mask_key]; }
    DEVICE bool keeps(int t, int s) const {
        return !DROPS || random_u32(k0, k1, first + t * query + s * key) >> 9 < below;
    }
};

#define LOG2_E   1.4426950408889634f
#define INFINITE __int_as_float(0x7f800000)

#endif
