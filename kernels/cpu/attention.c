/* attention.c - softmax(scale q k^T) v, a block of queries at a time (kernel.h).
 *
 * The queries of a block lie side by side in lanes: a tile of scores is rows of keys, so maxima,
 * sums and rescaling need no step across lanes, the keys and values are read where they lie, and
 * scores turn into the operand of the second product in place. The running maximum and sum of a
 * query rescale what is there (Milakov and Gimelshein 2018; Dao et al. 2022), so the scores never
 * exist as a whole. Tiles after the last visible key are left out. A query that sees no key has
 * y = 0, lse = -inf and no gradient.
 *
 * Any strides; quick where D is contiguous float32 and a multiple of 16. 16-bit floats are
 * converted by tiles and rounded once. Sums over keys and queries are float32 in tile order. */
#include "attention_rows.h"
#include "vmath.h"

typedef struct Forward {
    Heads h;
    Mask mask;
    int64_t batch, head;
    int64_t depth; /* in whole lanes */
    float *q, *y;  /* [BLOCKS][depth][LANES] */
    float *p, *k, *v, *rows;
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
    return f;
}

/* The scores of queries from t on, a block, and n keys from s on become p,
 * and p v is added to y. */
static void absorb(Forward *f, int block, const Sight *see, int64_t t, int64_t s, int64_t n,
                   Tile keys, Tile values) {
    const Mask *mask = &f->mask;
    float *top = f->top + block * LANES, *sum = f->sum + block * LANES;
    float base[LANES], keep[LANES], tile_sum[LANES];
    int64_t panel = block * f->depth * LANES;
    tile_scores(f->p, see->most, f->depth, keys.data, keys.row, f->q + panel);
    k_hide(f->p, see, -INFINITY);
    if (mask->sees) {
        k_flags_seen(f->flags, mask, f->batch, f->head, t, f->h.queries - t, s, n);
        k_select(f->p, see->most, f->flags, 1, -INFINITY);
    }
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
    int64_t end = k_visible(&f->h, t + rows - 1), panel = f->depth * LANES;
    for (int64_t i = 0; i < rows; i += LANES) {
        Tile block = k_rows_in(q, t + i, k_min(LANES, rows - i), depth, f->rows);
        k_panel(f->q + i / LANES * panel, block, f->depth, (float)(f->h.scale / M_LN2));
    }
    memset(f->y, 0, (size_t)(QUERIES * f->depth) * sizeof *f->y);
    for (int i = 0; i < QUERIES; i++) f->top[i] = -INFINITY, f->sum[i] = 0;
    for (int64_t s = 0; s < end; s += KEYS) {
        int64_t n = k_min(KEYS, end - s);
        n = k_min(k_whole(n), f->h.keys - s);
        Tile keys = k_rows_in(k, s, n, depth, f->k), values = k_rows_in(v, s, n, depth, f->v);
        for (int64_t i = 0; i < rows; i += LANES) {
            Sight see = k_sight(&f->h, t + i, s, n);
            if (see.most) absorb(f, (int)(i / LANES), &see, t + i, s, n, keys, values);
        }
    }
}

/* The mask lets query t, of row i of the unit, look nowhere: it looks at all keys alike. */
static void look_at_all(Forward *f, const HeadRows *v, int64_t t, int64_t i) {
    float *y = f->y + i / LANES * LANES * f->depth + i % LANES;
    for (int64_t s = 0; s < f->h.keys; s++) {
        Tile value = k_rows_in(v, s, 1, f->h.depth, f->rows);
        double share = k_kept(&f->mask, f->batch, f->head, t, s) / (double)f->h.keys;
        for (int64_t d = 0; d < f->depth; d++) y[d * LANES] += (float)share * value.data[d];
    }
    f->sum[i] = 1;
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

static int attention(const KArgs *a) {
    if (a->in[0].dtype == DT_F64) return k_attention_wide(a);
    Room room = {k_align(a->workspace), 0};
    Forward f = forward_of(a, &room);
    f.mask = k_mask(a, 3);
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t t = u % f.h.blocks * QUERIES, head = u / f.h.blocks;
        int64_t b = head / f.h.heads, h = head % f.h.heads, g = h * f.h.groups / f.h.heads;
        f.batch = b, f.head = h;
        HeadRows q = k_head_rows(&a->in[0], b, h), k = k_head_rows(&a->in[1], b, g);
        HeadRows v = k_head_rows(&a->in[2], b, g), y = k_head_rows(&a->out[0], b, h);
        forward_unit(&f, &q, &k, &v, t);
        for (int64_t i = 0; f.mask.sees && i < k_min(QUERIES, f.h.queries - t); i++)
            if (f.sum[i] == 0) look_at_all(&f, &v, t + i, i);
        store_unit(&f, &y, &a->out[1], b, h, t);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    Heads h = k_heads(a);
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
    {"masked_attention", attention, units, workspace_bytes},
    {"masked_attention_grad", k_attention_grad, grad_units, grad_workspace_bytes},
    {NULL, NULL, NULL, NULL},
};
