/* attention_mask.h - where a mask lets queries look, and which probabilities dropout keeps: one by
 * one, and by tiles of keys and lanes of queries. */
#ifndef MESHLUA_CPU_ATTENTION_MASK_H
#define MESHLUA_CPU_ATTENTION_MASK_H

#include "attention.h"
#include "threefry.h"

typedef struct Mask {
    const KTensor *sees; /* bool[B, H, T, S]; NULL: there is no mask and no dropout */
    int drops;
    double scale;           /* of what is kept */
    uint32_t key[2], below; /* kept where bits >> 9 < below, as in dropout.c */
    int64_t strides[4];     /* of the counter */
    uint64_t first;
} Mask;

/* The mask is operand `at`, if there are as many, and the key the next one. */
static inline Mask k_mask(const KArgs *a, int at) {
    const KAttention *attr = a->attr;
    Mask m = {0};
    if (a->nin <= at) return m;
    const KTensor *key = &a->in[at + 1];
    m = (Mask){.sees = &a->in[at], .drops = attr->keep < 1, .scale = 1 / attr->keep};
    for (int i = 0; i < 2; i++) memcpy(&m.key[i], key->data + i * key->strides[0], 4);
    m.below = k_random_below(attr->keep);
    for (int d = 0; d < 4; d++) {
        m.strides[d] = attr->strides[d];
        m.first += (uint64_t)a->offsets[d] * (uint64_t)attr->strides[d];
    }
    return m;
}

static inline const char *k_sees_at(const Mask *m, int64_t b, int64_t h, int64_t t, int64_t s) {
    const int64_t *by = m->sees->strides;
    return m->sees->data + b * by[0] + h * by[1] + t * by[2] + s * by[3];
}
static inline uint64_t k_counter(const Mask *m, int64_t b, int64_t h, int64_t t, int64_t s) {
    const int64_t *by = m->strides;
    return m->first + (uint64_t)(b * by[0] + h * by[1] + t * by[2] + s * by[3]);
}
/* What dropout multiplies a probability by. */
static inline double k_kept(const Mask *m, int64_t b, int64_t h, int64_t t, int64_t s) {
    if (!m->drops) return 1;
    uint32_t bits = k_random_u32(m->key[0], m->key[1], k_counter(m, b, h, t, s));
    return bits >> 9 < m->below ? m->scale : 0;
}

/* Flags of KEYS keys and LANES queries. */
typedef uint8_t Flags[KEYS * LANES];

/* Of n keys from s on and queries from t on, of which `rows` exist; of what does not, 0. */
static inline void k_flags_seen(Flags flags, const Mask *m, int64_t b, int64_t h, int64_t t,
                                int64_t rows, int64_t s, int64_t n) {
    int64_t step = m->sees->strides[3];
    memset(flags, 0, sizeof(Flags));
    for (int64_t j = 0; j < k_min(rows, LANES); j++) {
        const char *row = k_sees_at(m, b, h, t + j, s);
        for (int64_t i = 0; i < n; i++) flags[i * LANES + j] = (uint8_t)row[i * step];
    }
}
static inline void k_flags_kept(Flags flags, const Mask *m, int64_t b, int64_t h, int64_t t,
                                int64_t s) {
    uint32_t k0 = m->key[0], k1 = m->key[1], below = m->below;
    uint64_t step = (uint64_t)m->strides[2];
    for (int64_t i = 0; i < KEYS; i++) {
        uint64_t counter = k_counter(m, b, h, t, s + i);
        for (uint32_t j = 0; j < LANES; j++)
            flags[i * LANES + j] = k_random_u32(k0, k1, counter + j * step) >> 9 < below;
    }
}

/* p times scale where flagged, else `other`, in n rows of lanes */
static inline void k_select(float *p, int64_t n, const Flags flags, float scale, float other) {
    for (int64_t i = 0; i < n * LANES; i++) p[i] = flags[i] ? p[i] * scale : other;
}

#endif
