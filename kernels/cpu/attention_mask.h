/* attention_mask.h - where a mask and segments let queries look, the bias of scores, and which
 * probabilities dropout keeps: one by one, and by tiles of keys and lanes of queries. */
#ifndef MESHLUA_CPU_ATTENTION_MASK_H
#define MESHLUA_CPU_ATTENTION_MASK_H

#include "attention.h"
#include "threefry.h"

typedef struct Mask {
    const KTensor *sees;                /* bool[B, H, T, S]; NULL: there is no mask */
    const KTensor *query_ids, *key_ids; /* int32[B, T], [B, S]; NULL: no segments */
    const KTensor *bias;                /* floats[B, H, T, S]; NULL: none */
    int drops;
    double scale;           /* of what is kept */
    uint32_t key[2], below; /* kept where bits >> 9 < below, as in dropout.c */
    int64_t strides[4];     /* of the counter */
    uint64_t first;
} Mask;

static inline const KTensor *k_option(const KArgs *a, KAttentionOption o) {
    const KAttention *attr = a->attr;
    return attr->at[o] ? &a->in[attr->at[o]] : NULL;
}

static inline Mask k_mask(const KArgs *a) {
    const KAttention *attr = a->attr;
    const KTensor *key = k_option(a, K_ATTENTION_KEY);
    Mask m = {.sees = k_option(a, K_ATTENTION_MASK),
              .query_ids = k_option(a, K_ATTENTION_QUERY_SEGMENTS),
              .key_ids = k_option(a, K_ATTENTION_SEGMENTS),
              .bias = k_option(a, K_ATTENTION_BIAS),
              .drops = key && attr->keep < 1,
              .scale = 1};
    if (!m.drops) return m;
    m.scale = 1 / attr->keep;
    for (int i = 0; i < 2; i++) memcpy(&m.key[i], key->data + i * key->strides[0], 4);
    m.below = k_random_below(attr->keep);
    for (int d = 0; d < 4; d++) {
        m.strides[d] = attr->strides[d];
        m.first += (uint64_t)a->offsets[d] * (uint64_t)attr->strides[d];
    }
    return m;
}

/* Of a mask or a bias. */
static inline char *k_score_at(const KTensor *x, int64_t b, int64_t h, int64_t t, int64_t s) {
    const int64_t *by = x->strides;
    return x->data + b * by[0] + h * by[1] + t * by[2] + s * by[3];
}
static inline int32_t k_id(const KTensor *ids, int64_t b, int64_t i) {
    int32_t x;
    memcpy(&x, ids->data + b * ids->strides[0] + i * ids->strides[1], sizeof x);
    return x;
}
/* Whether the mask and the segments let query t see key s. */
static inline int k_sees(const Mask *m, int64_t b, int64_t h, int64_t t, int64_t s) {
    if (m->query_ids && k_id(m->query_ids, b, t) != k_id(m->key_ids, b, s)) return 0;
    return !m->sees || *k_score_at(m->sees, b, h, t, s);
}

/* The least and the largest of n > 0 ids. */
typedef struct Ids {
    int32_t least, most;
} Ids;
static inline Ids k_ids(const KTensor *ids, int64_t b, int64_t from, int64_t n) {
    Ids x = {INT32_MAX, INT32_MIN};
    for (int64_t i = from; i < from + n; i++) {
        int32_t id = k_id(ids, b, i);
        x.least = id < x.least ? id : x.least;
        x.most = id > x.most ? id : x.most;
    }
    return x;
}
/* How queries with such ids see keys with others. */
typedef enum Seen { SEEN_NONE, SEEN_SOME, SEEN_ALL } Seen;
static inline Seen k_ids_seen(Ids x, Ids y) {
    if (x.most < y.least || y.most < x.least) return SEEN_NONE;
    return x.least == x.most && y.least == y.most ? SEEN_ALL : SEEN_SOME;
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
    int64_t step = m->sees ? m->sees->strides[3] : 0;
    memset(flags, 0, sizeof(Flags));
    for (int64_t j = 0; j < k_min(rows, LANES); j++) {
        const char *row = m->sees ? k_score_at(m->sees, b, h, t + j, s) : NULL;
        for (int64_t i = 0; i < n; i++) flags[i * LANES + j] = row ? (uint8_t)row[i * step] : 1;
        if (!m->query_ids) continue;
        int32_t id = k_id(m->query_ids, b, t + j);
        for (int64_t i = 0; i < n; i++) flags[i * LANES + j] &= id == k_id(m->key_ids, b, s + i);
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
