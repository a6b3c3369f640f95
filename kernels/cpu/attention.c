/* attention.c - softmax(scale q k^T) v, a block of queries at a time (kernel.h).
 *
 * The queries of a block lie side by side in lanes: a tile of scores is rows of keys, so maxima,
 * sums and rescaling need no step across lanes, the keys and values are read where they lie, and
 * scores turn into the operand of the second product in place. The running maximum and sum of a
 * query rescale what is there (Milakov and Gimelshein 2018; Dao et al. 2022), so the scores never
 * exist as a whole. Tiles of keys that no query of a block sees are left out: before the first and
 * behind the last that any reaches, and those of other segments. A query that sees no key has y =
 * 0, lse = -inf and no gradient.
 *
 * Any strides; quick where D is contiguous float32 and a multiple of 16. 16-bit floats are
 * converted by tiles and rounded once. Sums over keys and queries are float32 in tile order. */
#include "attention_one.h"

typedef struct Forward {
    Heads h;
    Mask mask;
    Reach reach;
    int64_t batch, head;
    int64_t depth; /* in whole lanes */
    float *q, *y;  /* [BLOCKS][depth][LANES] */
    float *p, *k, *v, *rows, *turned;
    float top[QUERIES], sum[QUERIES];
    Flags flags;
} Forward;

/* All but the mask: it is in memory, of which there is none yet when the room is asked for. */
static Forward forward_of(const KArgs *a, Room *room) {
    Forward f = {.h = k_heads(a)};
    int64_t depth = f.depth = k_whole(f.h.depth);
    f.q = k_take(room, QUERIES * depth);
    f.y = k_take(room, QUERIES * depth);
    f.p = k_take(room, KEYS * LANES);
    f.k = k_take(room, KEYS * depth);
    f.v = k_take(room, KEYS * depth);
    f.rows = k_take(room, LANES * depth);
    f.turned = k_take(room, KEYS * depth);
    return f;
}

/* From products to scores: what a query does not see is -inf. */
static void finish_scores(Forward *f, const Sight *see, int64_t t, int64_t s, int64_t n,
                          int flagged) {
    const Mask *mask = &f->mask;
    int64_t rows = f->h.queries - t;
    if (f->h.attr->soft_cap != 0) k_cap(f->p, see->most, f->h.attr->soft_cap, NULL);
    if (mask->bias) k_add_bias(f->p, mask->bias, f->batch, f->head, t, rows, s, n);
    k_hide(f->p, see, -INFINITY);
    if (!flagged) return;
    k_flags_seen(f->flags, mask, f->batch, f->head, t, rows, s, n);
    k_select(f->p, see->most, f->flags, 1, -INFINITY);
}

/* The scores of queries from t on, a block, and n keys from s on become p,
 * and p v is added to y. */
static void absorb(Forward *f, int block, const Sight *see, int64_t t, int64_t s, int64_t n,
                   Tile keys, Tile values, int flagged) {
    const Mask *mask = &f->mask;
    float *top = f->top + block * LANES, *sum = f->sum + block * LANES;
    float base[LANES], keep[LANES], tile_sum[LANES];
    int64_t panel = block * f->depth * LANES;
    tile_scores(f->p, see->most, f->depth, keys.data, keys.row, f->q + panel);
    finish_scores(f, see, t, s, n, flagged);
    memcpy(keep, top, sizeof keep);
    tile_max(f->p, see->most, top);
    for (int j = 0; j < LANES; j++) base[j] = top[j] == -INFINITY ? 0 : top[j];
    tile_exp(keep, 1, base, tile_sum);
    tile_exp(f->p, see->most, base, tile_sum);
    for (int j = 0; j < LANES; j++) sum[j] = sum[j] * keep[j] + tile_sum[j];
    if (mask->drops) {
        k_flags_kept(f->flags, mask, f->batch, f->head, t, s);
        k_select(f->p, see->most, f->flags, (float)mask->scale, 0);
    }
    tile_values(f->y + panel, keep, see->most, f->depth, values.data, values.row, f->p);
}

/* Queries from t on, as many as a unit has. */
static void forward_unit(Forward *f, const HeadRows *q, const HeadRows *k, const HeadRows *v,
                         int64_t t) {
    int64_t depth = f->h.depth, rows = k_min(QUERIES, f->h.queries - t);
    int64_t panel = f->depth * LANES;
    KeyRange seen = k_seen(&f->reach, t, rows);
    Ids ids = f->mask.query_ids ? k_ids(f->mask.query_ids, f->batch, t, rows) : (Ids){0, 0};
    for (int64_t i = 0; i < rows; i += LANES) {
        Tile block = k_rows_in(q, t + i, k_min(LANES, rows - i), depth, f->rows);
        k_panel(f->q + i / LANES * panel, block, f->depth, (float)(f->h.scale / M_LN2));
    }
    memset(f->y, 0, (size_t)(QUERIES * f->depth) * sizeof *f->y);
    for (int i = 0; i < QUERIES; i++) f->top[i] = -INFINITY, f->sum[i] = 0;
    for (int64_t s = seen.first; s < seen.end; s += KEYS) {
        int64_t n = k_min(KEYS, seen.end - s);
        n = k_min(k_whole(n), f->reach.keys - s);
        Seen of_ids = SEEN_ALL;
        if (f->mask.key_ids) of_ids = k_ids_seen(ids, k_ids(f->mask.key_ids, f->batch, s, n));
        if (of_ids == SEEN_NONE) continue;
        int flagged = f->mask.sees || of_ids == SEEN_SOME;
        Tile keys = k_rows_in(k, s, n, depth, f->k), values = k_rows_in(v, s, n, depth, f->v);
        for (int64_t i = 0; i < rows; i += LANES) {
            Sight see = k_sight(&f->h, &f->reach, t + i, s, n);
            if (see.most) absorb(f, (int)(i / LANES), &see, t + i, s, n, keys, values, flagged);
        }
    }
}

/* Is all that queries see of keys told by one place? */
static int is_step(const Forward *f) {
    const Mask *m = &f->mask;
    return (!f->h.step || f->h.queries == 1) && f->h.queries <= LANES && !m->bias && !m->sees &&
           !m->key_ids && !m->drops && f->h.attr->soft_cap == 0;
}

/* The same as forward_unit, of queries that see the same keys. */
static void step_unit(Forward *f, const HeadRows *q, const HeadRows *k, const HeadRows *v) {
    int64_t depth = f->h.depth, wide = f->depth, rows = f->h.queries;
    KeyRange seen = k_seen(&f->reach, 0, rows);
    OneStep o = {rows, wide, f->q, f->q + LANES * wide, f->p, f->turned, f->top, f->sum};
    Tile block = k_rows_in(q, 0, rows, depth, f->rows);
    float scale = (float)(f->h.scale / M_LN2);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < wide; d++)
            o.q[r * wide + d] = block.data[r * block.row + d] * scale;
    memset(o.y, 0, (size_t)(rows * wide) * sizeof *o.y);
    for (int i = 0; i < QUERIES; i++) f->top[i] = -INFINITY, f->sum[i] = 0;
    for (int64_t s = seen.first; s < seen.end; s += KEYS) {
        int64_t some = k_min(KEYS, seen.end - s), n = k_min(k_whole(some), f->reach.keys - s);
        Tile keys = k_rows_in(k, s, n, depth, f->k), values = k_rows_in(v, s, n, depth, f->v);
        one_absorb(&o, k_whole(some), some, keys, values);
    }
    memset(f->y, 0, (size_t)(LANES * wide) * sizeof *f->y);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < wide; d++) f->y[d * LANES + r] = o.y[r * wide + d];
}

static void store_unit(Forward *f, const HeadRows *y, const KTensor *lse, int64_t b, int64_t h,
                       int64_t t) {
    int64_t rows = k_min(QUERIES, f->h.queries - t);
    for (int64_t i = 0; i < rows; i += LANES) {
        int64_t n = k_min(LANES, rows - i);
        float share[LANES], l[LANES];
        for (int j = 0; j < LANES; j++) {
            float sum = f->sum[i + j];
            share[j] = sum == 0 ? 0 : 1 / sum;
            l[j] = f->top[i + j] * SCORE_UNIT + vm_log(sum);
        }
        k_panel_out(y, t + i, n, f->h.depth, f->y + i * f->depth, share, f->rows);
        for (int64_t j = 0; j < n; j++) memcpy(k_lse_at(lse, b, h, t + i + j), &l[j], sizeof *l);
    }
}

/* One query for each head, and heads that share keys (a decoder's step): the heads of a group are
 * taken as queries of one head, which lie side by side in lanes and meet the keys together. */
static int is_one(const KArgs *a) {
    const KAttention *attr = a->attr;
    return a->in[0].dims[1] == 1 && a->in[0].dims[2] > a->in[1].dims[2] &&
           !attr->at[K_ATTENTION_KEY];
}

/* The operands seen so. */
typedef struct One {
    KTensor in[3 + K_ATTENTION_OPTIONS], out[2];
    int64_t dims[3 + K_ATTENTION_OPTIONS + 2][4], strides[3 + K_ATTENTION_OPTIONS + 2][4];
    KArgs args;
} One;

/* Dim `head`, of H, becomes dim `head` of G and dim `row` of members; `row` had 1. */
static void take_heads(One *o, int k, KTensor *t, const KTensor *from, int row, int head,
                       int64_t groups) {
    int64_t members = from->dims[head] / groups;
    for (int d = 0; d < from->rank; d++)
        o->dims[k][d] = from->dims[d], o->strides[k][d] = from->strides[d];
    o->dims[k][row] = members, o->strides[k][row] = from->strides[head];
    o->dims[k][head] = groups, o->strides[k][head] = members * from->strides[head];
    *t = *from, t->dims = o->dims[k], t->strides = o->strides[k];
}

static const KArgs *one_of(const KArgs *a, One *o) {
    const KAttention *attr = a->attr;
    int64_t groups = a->in[1].dims[2];
    o->args = *a, o->args.in = o->in, o->args.out = o->out;
    for (int i = 0; i < a->nin; i++) o->in[i] = a->in[i];
    take_heads(o, 0, &o->in[0], &a->in[0], 1, 2, groups);
    for (int k = 1; k < a->nin; k++) {
        if (k == attr->at[K_ATTENTION_MASK] || k == attr->at[K_ATTENTION_BIAS])
            take_heads(o, k, &o->in[k], &a->in[k], 2, 1, groups);
        if (k != attr->at[K_ATTENTION_QUERY_SEGMENTS]) continue;
        o->strides[k][0] = a->in[k].strides[0], o->strides[k][1] = 0;
        o->in[k].strides = o->strides[k];
    }
    take_heads(o, a->nin, &o->out[0], &a->out[0], 1, 2, groups);
    take_heads(o, a->nin + 1, &o->out[1], &a->out[1], 2, 1, groups);
    return &o->args;
}

static int attention(const KArgs *a) {
    if (a->in[0].dtype == DT_F64) return k_attention_wide(a);
    Room room = {k_align(a->workspace), 0};
    One one;
    int64_t step = !is_one(a);
    if (!step) a = one_of(a, &one);
    Forward f = forward_of(a, &room);
    f.h.step = step;
    f.mask = k_mask(a);
    int one_place = is_step(&f);
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t t = u % f.h.blocks * QUERIES, head = u / f.h.blocks;
        int64_t b = head / f.h.heads, h = head % f.h.heads, g = h * f.h.groups / f.h.heads;
        f.batch = b, f.head = h, f.reach = k_reach(a, &f.h, b);
        HeadRows q = k_head_rows(&a->in[0], b, h), k = k_head_rows(&a->in[1], b, g);
        HeadRows v = k_head_rows(&a->in[2], b, g), y = k_head_rows(&a->out[0], b, h);
        if (one_place)
            step_unit(&f, &q, &k, &v);
        else
            forward_unit(&f, &q, &k, &v, t);
        store_unit(&f, &y, &a->out[1], b, h, t);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    Heads h = k_heads(a);
    if (a->in[0].dtype != DT_F64 && is_one(a))
        return h.batches * h.groups * k_ceil_div(h.heads / h.groups, QUERIES);
    return h.batches * h.heads * h.blocks;
}
static int64_t grad_units(const KArgs *a) {
    Heads h = k_heads(a);
    return h.batches * h.groups;
}
static size_t workspace_bytes(const KArgs *a) {
    if (a->in[0].dtype == DT_F64) return k_attention_workspace(a);
    Room room = {NULL, 64};
    forward_of(a, &room);
    return (size_t)room.bytes;
}
static size_t grad_workspace_bytes(const KArgs *a) {
    return a->in[0].dtype == DT_F64 ? k_attention_workspace(a) : k_attention_grad_bytes(a);
}

K_ROWS(attention) = {
    {"attention", attention, units, workspace_bytes},
    {"attention_grad", k_attention_grad, grad_units, grad_workspace_bytes},
    {NULL, NULL, NULL, NULL},
};
