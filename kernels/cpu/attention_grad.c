/* attention_grad.c - the gradient of attention, a group of heads at a time (kernel.h).
 *
 * The scores are made again from lse, in tiles as in attention.c: p = e^(s - lse), dv = p^T dy,
 * ds = p (dy v^T - sum of dy y), dq = scale ds k, dk = scale ds^T q. A unit sums dk and dv of one
 * key head over the queries of its group in rising order. */
#include "attention_rows.h"

typedef struct Backward {
    Heads h;
    Mask mask;
    Reach reach;
    const KTensor *dbias;      /* NULL: not wanted */
    int64_t depth;             /* in whole lanes */
    float *q_panel, *dy_panel; /* [BLOCKS][depth][LANES] */
    float *dq;                 /* the same */
    float *p, *ds;             /* [BLOCKS][KEYS][LANES] */
    float *q, *dy, *k, *v;     /* rows, where they have to be copied */
    float *dk, *dv;            /* [keys][depth] */
    float *rows;
    float lse[QUERIES], delta[QUERIES];
    float slope[KEYS * LANES]; /* of the soft cap */
    Flags seen, kept;
} Backward;

/* All but the mask: it is in memory, of which there is none yet when the room is asked for. */
static Backward backward_of(const KArgs *a, Room *room) {
    Backward w = {.h = k_heads(a)};
    int64_t depth = w.depth = k_whole(w.h.depth), keys = k_whole(w.h.keys) * depth;
    w.q_panel = k_take(room, QUERIES * depth);
    w.dy_panel = k_take(room, QUERIES * depth);
    w.dq = k_take(room, QUERIES * depth);
    w.p = k_take(room, QUERIES * KEYS);
    w.ds = k_take(room, QUERIES * KEYS);
    w.q = k_take(room, QUERIES * depth);
    w.dy = k_take(room, QUERIES * depth);
    w.k = k_take(room, KEYS * depth);
    w.v = k_take(room, KEYS * depth);
    w.dk = k_take(room, keys);
    w.dv = k_take(room, keys);
    w.rows = k_take(room, LANES * depth);
    return w;
}

/* delta[lane] = the sum over d of x[lane][d] y[lane][d] */
static void row_dots(Tile x, Tile y, int64_t depth, float *delta) {
    float part[LANES][LANES], lanes[LANES][LANES];
    for (int i = 0; i < LANES; i++) {
        const float *u = x.data + i * x.row, *w = y.data + i * y.row;
        for (int v = 0; v < LANES; v += VEC) {
            Vec sum = vec_all(0);
            for (int64_t d = v; d < depth; d += LANES)
                sum = vec_fma(vec_load(u + d), vec_load(w + d), sum);
            vec_store(part[i] + v, sum);
        }
    }
    tile_transpose(lanes[0], LANES, part[0], LANES);
    for (int w = LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++)
            for (int j = 0; j < LANES; j++) lanes[i][j] += lanes[i + w][j];
    memcpy(delta, lanes[0], sizeof lanes[0]);
}

/* Rows [s, s + n) of `to` += the sum over the queries of blocks that see s of p[query][s] x[query],
 * where p is [BLOCKS][KEYS][LANES]. */
static void add_outer(float *to, int64_t depth, const Sight *see, int blocks, const float *p,
                      Tile x) {
    int64_t n = 0;
    for (int i = 0; i < blocks; i++) n = k_max(n, see[i].most);
    for (int64_t s = 0; s < n; s += STRIP) {
        int first = 0, end = blocks;
        while (see[first].most <= s) first++;
        while (see[end - 1].most <= s) end--;
        for (int64_t d = 0; d < depth; d += LANES) {
            Strip acc;
            strip_clear(acc);
            for (int i = first; i < end; i++)
                strip_add(acc, LANES, p + (i * KEYS + s) * LANES, LANES, 1,
                          x.data + i * LANES * x.row + d, x.row);
            for (int i = 0; i < STRIP; i++)
                for (int v = 0; v < VECS; v++) {
                    float *at = to + (s + i) * depth + d + v * VEC;
                    vec_store(at, vec_load(at) + acc[i][v]);
                }
        }
    }
}

/* At most QUERIES queries of one head from t on, in tiles of LANES. */
typedef struct Queries {
    int64_t b, h, t, n;
    int tiles;
    Tile q, dy;
} Queries;

/* Tile i of dbias, of n keys from s on, is ds. */
static void write_bias(Backward *w, const Queries *at, int i, int64_t s, int64_t n) {
    const float *ds = w->ds + i * KEYS * LANES;
    float row[KEYS];
    for (int64_t j = 0; j < k_min(LANES, at->n - i * LANES); j++) {
        for (int64_t k = 0; k < n; k++) row[k] = ds[k * LANES + j];
        k_store_fn(w->dbias->dtype)(k_score_at(w->dbias, at->b, at->h, at->t + i * LANES + j, s),
                                    w->dbias->strides[3], row, n);
    }
}
/* What nobody sees has no gradient. */
static void clear_bias(Backward *w, const Queries *at) {
    static const float zeros[KEYS];
    for (int64_t t = at->t; t < at->t + at->n; t++)
        for (int64_t s = 0; s < w->h.keys; s += KEYS)
            k_store_fn(w->dbias->dtype)(k_score_at(w->dbias, at->b, at->h, t, s),
                                        w->dbias->strides[3], zeros, k_min(KEYS, w->h.keys - s));
}

/* p and ds of tile i and n keys from s on, from products and dp. */
static void tile_grads(Backward *w, const Queries *at, int i, int64_t s, int64_t n,
                       const Sight *see, int flagged) {
    const Mask *mask = &w->mask;
    float *p = w->p + i * KEYS * LANES, *ds = w->ds + i * KEYS * LANES, scale = (float)mask->scale;
    int64_t b = at->b, h = at->h, t = at->t + i * LANES;
    double cap = w->h.attr->soft_cap;
    if (cap != 0) k_cap(p, see->most, cap, w->slope);
    if (mask->bias) k_add_bias(p, mask->bias, b, h, t, w->h.queries - t, s, n);
    if (mask->drops) {
        k_flags_kept(w->kept, mask, b, h, t, s);
        k_select(ds, see->most, w->kept, scale, 0);
    }
    tile_grad(p, ds, see->most, w->lse + i * LANES, w->delta + i * LANES);
    k_hide(p, see, 0);
    k_hide(ds, see, 0);
    if (flagged) {
        k_flags_seen(w->seen, mask, b, h, t, w->h.queries - t, s, n);
        k_select(p, see->most, w->seen, 1, 0);
        k_select(ds, see->most, w->seen, 1, 0);
    }
    if (w->dbias) write_bias(w, at, i, s, k_min(n, see->most));
    for (int64_t k = 0; cap != 0 && k < see->most * LANES; k++) ds[k] *= w->slope[k];
    if (mask->drops) k_select(p, see->most, w->kept, scale, 0);
}

/* The panels, delta and lse of tile i. */
static void take_tile(Backward *w, const KArgs *a, const Queries *at, const HeadRows *y, int i) {
    int64_t from = i * LANES, panel = i * w->depth * LANES, n = k_min(LANES, at->n - from);
    Tile q = {at->q.data + from * at->q.row, at->q.row};
    Tile dy = {at->dy.data + from * at->dy.row, at->dy.row};
    k_panel(w->q_panel + panel, q, w->depth, (float)(w->h.scale / M_LN2));
    k_panel(w->dy_panel + panel, dy, w->depth, 1);
    row_dots(dy, k_rows_in(y, at->t + from, n, w->h.depth, w->rows), w->depth, w->delta + from);
    for (int64_t j = 0; j < LANES; j++) {
        int64_t t = at->t + from + j;
        float lse = 0;
        if (j < n) memcpy(&lse, k_lse_at(&a->in[4], at->b, at->h, t), sizeof lse);
        w->lse[from + j] = lse == -INFINITY ? 0 : lse * (1 / SCORE_UNIT);
    }
}

/* n keys from s on: adds to their dk and dv, and to dq. */
static void absorb(Backward *w, const Queries *at, int64_t s, int64_t n, Tile keys, Tile values,
                   int flagged) {
    static const float one[LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int64_t panel = w->depth * LANES;
    Sight see[BLOCKS];
    for (int i = 0; i < at->tiles; i++) {
        float *p = w->p + i * KEYS * LANES, *ds = w->ds + i * KEYS * LANES;
        see[i] = k_sight(&w->h, &w->reach, at->t + i * LANES, s, n);
        tile_scores(p, see[i].most, w->depth, keys.data, keys.row, w->q_panel + i * panel);
        tile_scores(ds, see[i].most, w->depth, values.data, values.row, w->dy_panel + i * panel);
        tile_grads(w, at, i, s, n, &see[i], flagged);
        tile_values(w->dq + i * panel, one, see[i].most, w->depth, keys.data, keys.row, ds);
    }
    add_outer(w->dv + s * w->depth, w->depth, see, at->tiles, w->p, at->dy);
    add_outer(w->dk + s * w->depth, w->depth, see, at->tiles, w->ds, at->q);
}

static void write_dq(Backward *w, const Queries *at, const HeadRows *dq) {
    float scale[LANES];
    for (int j = 0; j < LANES; j++) scale[j] = (float)w->h.scale;
    for (int i = 0; i < at->tiles; i++)
        k_panel_out(dq, at->t + i * LANES, k_min(LANES, at->n - i * LANES), w->h.depth,
                    w->dq + i * w->depth * LANES, scale, w->rows);
}

/* QUERIES queries of one head from t on: adds to dk and dv of the group, and makes dq. */
static void backward_block(Backward *w, const KArgs *a, int64_t b, int64_t h, int64_t t) {
    int64_t depth = w->h.depth, n = k_min(QUERIES, w->h.queries - t);
    int64_t g = h * w->h.groups / w->h.heads;
    KeyRange seen = k_seen(&w->reach, t, n);
    Ids ids = w->mask.query_ids ? k_ids(w->mask.query_ids, b, t, n) : (Ids){0, 0};
    HeadRows q = k_head_rows(&a->in[0], b, h), k = k_head_rows(&a->in[1], b, g);
    HeadRows v = k_head_rows(&a->in[2], b, g), y = k_head_rows(&a->in[3], b, h);
    HeadRows dy = k_head_rows(&a->in[5], b, h), dq = k_head_rows(&a->out[0], b, h);
    Queries at = {b,
                  h,
                  t,
                  n,
                  (int)k_ceil_div(n, LANES),
                  k_rows_in(&q, t, n, depth, w->q),
                  k_rows_in(&dy, t, n, depth, w->dy)};
    for (int i = 0; i < at.tiles; i++) take_tile(w, a, &at, &y, i);
    memset(w->dq, 0, (size_t)(QUERIES * w->depth) * sizeof *w->dq);
    if (w->dbias) clear_bias(w, &at);
    for (int64_t s = seen.first; s < seen.end; s += KEYS) {
        int64_t some = k_min(k_whole(k_min(KEYS, seen.end - s)), w->reach.keys - s);
        Seen of_ids = SEEN_ALL;
        if (w->mask.key_ids) of_ids = k_ids_seen(ids, k_ids(w->mask.key_ids, b, s, some));
        if (of_ids == SEEN_NONE) continue;
        absorb(w, &at, s, some, k_rows_in(&k, s, some, depth, w->k),
               k_rows_in(&v, s, some, depth, w->v), w->mask.sees || of_ids == SEEN_SOME);
    }
    write_dq(w, &at, &dq);
}

static void rows_out(const HeadRows *r, const Heads *h, float scale, float *from) {
    int64_t row = k_whole(h->depth);
    for (int64_t i = 0; i < h->keys * row; i++) from[i] *= scale;
    for (int64_t j = 0; j < h->keys; j++)
        k_store_fn(r->dtype)(k_row_at(r, j), r->element, from + j * row, h->depth);
}

int k_attention_grad(const KArgs *a) {
    if (a->in[0].dtype == DT_F64) return k_attention_wide_grad(a);
    Room room = {k_align(a->workspace), 0};
    Backward w = backward_of(a, &room);
    w.mask = k_mask(a);
    w.dbias = a->nout > 3 ? &a->out[3] : NULL;
    int64_t keys = k_whole(w.h.keys) * w.depth;
    int64_t shared = w.h.groups ? w.h.heads / w.h.groups : 0;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t b = u / w.h.groups, g = u % w.h.groups;
        w.reach = k_reach(a, &w.h, b);
        HeadRows dk = k_head_rows(&a->out[1], b, g), dv = k_head_rows(&a->out[2], b, g);
        memset(w.dk, 0, (size_t)keys * sizeof *w.dk);
        memset(w.dv, 0, (size_t)keys * sizeof *w.dv);
        for (int64_t h = g * shared; h < (g + 1) * shared; h++)
            for (int64_t t = 0; t < w.h.queries; t += QUERIES) backward_block(&w, a, b, h, t);
        rows_out(&dk, &w.h, (float)w.h.scale, w.dk);
        rows_out(&dv, &w.h, 1, w.dv);
    }
    return 0;
}

size_t k_attention_grad_bytes(const KArgs *a) {
    Room room = {NULL, 64};
    backward_of(a, &room);
    return (size_t)room.bytes;
}
