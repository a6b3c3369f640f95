/* attention_rows.h - rows of a head as float32 tiles of whole lanes, filled up with zeros. */
#ifndef MESHLUA_CPU_ATTENTION_ROWS_H
#define MESHLUA_CPU_ATTENTION_ROWS_H

#include <math.h>
#include "attention_mask.h"
#include "attention_tile.h"
#include "vmath.h"

/* Scores are kept in units of log 2. */
#define SCORE_UNIT ((float)M_LN2)

static inline int64_t k_whole(int64_t n) {
    return (n + LANES - 1) & ~(int64_t)(LANES - 1);
}

/* Where buffers are laid out one after the other; base NULL: only to see how long they are. */
typedef struct Room {
    char *base;
    int64_t bytes;
} Room;

static inline float *k_take(Room *room, int64_t count) {
    float *p = room->base ? (float *)(void *)(room->base + room->bytes) : NULL;
    room->bytes += (4 * count + 63) & ~(int64_t)63;
    return p;
}

typedef struct Tile {
    const float *data;
    int64_t row; /* elements between rows */
} Tile;

/* Whether n rows are whole lanes of float32 in memory. */
static inline int k_rows_plain(const HeadRows *r, int64_t n, int64_t depth) {
    return r->dtype == DT_F32 && r->element == 4 && n % LANES == 0 && depth % LANES == 0;
}

/* n rows from i on: where they lie, or copied to buf. */
static inline Tile k_rows_in(const HeadRows *r, int64_t i, int64_t n, int64_t depth, float *buf) {
    if (k_rows_plain(r, n, depth))
        return (Tile){(const float *)(const void *)k_row_at(r, i), r->row / 4};
    int64_t row = k_whole(depth);
    for (int64_t j = 0; j < n; j++) {
        k_load_fn(r->dtype)(buf + j * row, k_row_at(r, i + j), r->element, depth);
        for (int64_t d = depth; d < row; d++) buf[j * row + d] = 0;
    }
    memset(buf + n * row, 0, (size_t)((k_whole(n) - n) * row) * sizeof *buf);
    return (Tile){buf, row};
}

/* panel[d][lane] = scale times rows[lane][d] of LANES rows */
static inline void k_panel(float *panel, Tile rows, int64_t depth, float scale) {
    for (int64_t d = 0; d < depth; d += LANES)
        tile_transpose(panel + d * LANES, LANES, rows.data + d, rows.row);
    for (int64_t i = 0; i < depth * LANES; i++) panel[i] *= scale;
}

/* Writes n <= LANES rows from i on: rows[lane][d] = panel[d][lane]
 * scale[lane]. Spoils the panel. */
static inline void k_panel_out(const HeadRows *r, int64_t i, int64_t n, int64_t depth, float *panel,
                               const float *scale, float *buf) {
    int64_t whole = k_whole(depth), plain = k_rows_plain(r, n, depth);
    for (int64_t d = 0; d < whole; d++)
        for (int j = 0; j < LANES; j++) panel[d * LANES + j] *= scale[j];
    float *to = plain ? (float *)(void *)k_row_at(r, i) : buf;
    int64_t row = plain ? r->row / 4 : whole;
    for (int64_t d = 0; d < whole; d += LANES)
        tile_transpose(to + d, row, panel + d * LANES, LANES);
    for (int64_t j = 0; j < n && !plain; j++)
        k_store_fn(r->dtype)(k_row_at(r, i + j), r->element, buf + j * whole, depth);
}

/* What block t of LANES queries sees of n keys from s on: `most` of them, in whole lanes, must be
 * computed; from `all` on, before `least`, every query sees every key. A query sees those from
 * from[lane] on, before limit[lane]. */
typedef struct Sight {
    int64_t all, least, most;
    int32_t from[LANES], limit[LANES];
} Sight;

static inline Sight k_sight(const Heads *h, const Reach *r, int64_t t, int64_t s, int64_t n) {
    Sight see = {0, n, 0, {0}, {0}};
    int any = 0;
    for (int j = 0; j < LANES; j++) {
        int64_t limit = t + j < h->queries ? k_before(r, t + j) - s : 0;
        int64_t from = t + j < h->queries ? k_first(r, t + j) - s : 0;
        see.limit[j] = (int32_t)k_max(0, k_min(n, limit));
        see.from[j] = (int32_t)k_max(0, k_min(n, from));
        see.least = k_min(see.least, see.limit[j]);
        see.most = k_max(see.most, see.limit[j]);
        see.all = k_max(see.all, see.from[j]);
        any |= see.from[j] < see.limit[j];
    }
    see.most = any ? k_whole(see.most) : 0;
    return see;
}

/* p += a bias of the scores of n keys from s on and LANES queries from t on, of which so many
 * `rows` exist. */
static inline void k_add_bias(float *p, const KTensor *bias, int64_t b, int64_t h, int64_t t,
                              int64_t rows, int64_t s, int64_t n) {
    float row[LANES][KEYS], lanes[KEYS * LANES];
    memset(row, 0, sizeof row);
    for (int64_t j = 0; j < k_min(rows, LANES); j++)
        k_load_fn(bias->dtype)(row[j], k_score_at(bias, b, h, t + j, s), bias->strides[3], n);
    for (int64_t i = 0; i < n; i += LANES)
        tile_transpose(lanes + i * LANES, LANES, row[0] + i, KEYS);
    for (int64_t i = 0; i < n * LANES; i++) p[i] = k_fma(lanes[i], 1 / SCORE_UNIT, p[i]);
}

/* p = cap tanh(p / cap); what that does to a gradient goes to slope, if there is one. */
static inline void k_cap(float *p, int64_t n, double soft_cap, float *slope) {
    float cap = (float)soft_cap;
    for (int64_t i = 0; i < n * LANES; i++) {
        float u = vm_tanh(p[i] * (SCORE_UNIT / cap));
        p[i] = u * (cap / SCORE_UNIT);
        if (slope) slope[i] = 1 - u * u;
    }
}

/* Puts `value` where a query does not see a key. */
static inline void k_hide(float *p, const Sight *see, float value) {
    for (int64_t s = 0; s < k_min(see->all, see->most); s++)
        for (int j = 0; j < LANES; j++)
            p[s * LANES + j] = s >= see->from[j] ? p[s * LANES + j] : value;
    for (int64_t s = see->least; s < see->most; s++)
        for (int j = 0; j < LANES; j++)
            p[s * LANES + j] = s < see->limit[j] ? p[s * LANES + j] : value;
}

#endif
