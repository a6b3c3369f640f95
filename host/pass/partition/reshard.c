/* reshard.c - in the order of Shardy's planner: unreduced values first (scattered where the target
 * splits a dim over the same axes), then free local slices, shards changing places, all_to_all, and
 * all_gather last, on as little data as possible. What that leaves to be wished for, a search finds
 * (reshard_search.c). */
#include "pass/partition/reshard.h"
#include "pass/partition/pad.h"

#include <string.h>

/* What is left of two lists behind their common prefix, with axes split so that they meet. */
static void strip(const AxisList *a, const AxisList *b, AxisList *common, AxisList *rest_a,
                  AxisList *rest_b) {
    int i = 0, j = 0;
    AxisRef x = a->n ? a->at[0] : (AxisRef){0}, y = b->n ? b->at[0] : (AxisRef){0};
    *common = *rest_a = *rest_b = (AxisList){0};
    while (i < a->n && j < b->n && x.axis == y.axis && x.pre == y.pre) {
        int small = x.size < y.size ? x.size : y.size;
        if (x.size % small || y.size % small) break;
        axes_push(common, (AxisRef){x.axis, x.pre, (uint16_t)small});
        AxisRef *side[2] = {&x, &y};
        const AxisList *list[2] = {a, b};
        int *at[2] = {&i, &j};
        for (int k = 0; k < 2; k++) {
            side[k]->pre = (uint16_t)(side[k]->pre * small);
            side[k]->size = (uint16_t)(side[k]->size / small);
            if (side[k]->size == 1 && ++*at[k] < list[k]->n) *side[k] = list[k]->at[*at[k]];
        }
    }
    if (i < a->n) axes_push(rest_a, x);
    for (int k = i + 1; k < a->n; k++) axes_push(rest_a, a->at[k]);
    if (j < b->n) axes_push(rest_b, y);
    for (int k = j + 1; k < b->n; k++) axes_push(rest_b, b->at[k]);
}

static bool list_uses(const AxisList *l, AxisRef r) {
    for (int i = 0; i < l->n; i++)
        if (axes_overlap(l->at[i], r)) return true;
    return false;
}

static bool layout_uses(const Layout *l, AxisRef r) {
    for (int d = 0; d < l->rank; d++)
        if (list_uses(&l->dim[d].axes, r)) return true;
    return false;
}

static void append(AxisList *list, const AxisList *more) {
    for (int i = 0; i < more->n; i++) axes_push(list, more->at[i]);
}

static AxisList without_suffix(const AxisList *list, const AxisList *suffix) {
    AxisList out = {0};
    int32_t keep = axes_product(list) / axes_product(suffix), have = 1;
    for (int i = 0; i < list->n && have < keep; i++) {
        AxisRef r = list->at[i];
        if (have * r.size > keep) r.size = (uint16_t)(keep / have);
        axes_push(&out, r);
        have *= r.size;
    }
    return out;
}

void reshard_push(Moves *m, Move move, Layout *cur) {
    double local = 1, n = axes_product(&move.axes);
    for (int d = 0; d < cur->rank; d++) local /= layout_parts(cur, d);
    AxisList *dim = &cur->dim[move.dim].axes, *from = &cur->dim[move.from].axes;
    switch (move.kind) {
    case MOVE_SLICE: append(dim, &move.axes); break;
    case MOVE_REDUCE:
        m->sent += local * 2 * (n - 1) / n;
        cur->unreduced &= (uint8_t)~axes_mask(&move.axes);
        break;
    case MOVE_SCATTER:
        m->sent += local * (n - 1) / n;
        append(dim, &move.axes);
        cur->unreduced &= (uint8_t)~axes_mask(&move.axes);
        break;
    case MOVE_PERMUTE:
        m->sent += local;
        for (int d = 0; d < cur->rank; d++) cur->dim[d].axes = m->lists[d];
        break;
    case MOVE_TO_ALL:
        m->sent += local * (n - 1) / n;
        *from = without_suffix(from, &move.axes);
        append(dim, &move.axes);
        break;
    case MOVE_GATHER:
        m->sent += local * (n - 1);
        *dim = without_suffix(dim, &move.axes);
        break;
    }
    ASSERT(m->n < MAX_MOVES, "a reshard of more than %d moves", MAX_MOVES);
    m->at[m->n++] = move;
}

/* Sums that are still to be made: over the axes that the target puts on a dim next, scattered
 * there; over the others, for everybody. */
static void reduce(Moves *m, Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank && cur->unreduced; d++) {
        AxisList common, rest_cur, rest_to, take = {0};
        strip(&cur->dim[d].axes, &to->dim[d].axes, &common, &rest_cur, &rest_to);
        if (rest_cur.n) continue;
        for (int i = 0; i < rest_to.n; i++) {
            AxisRef r = rest_to.at[i];
            bool whole = r.pre == 1 && r.size == cur->mesh->size[r.axis];
            if (!whole || !(cur->unreduced >> r.axis & 1)) break;
            axes_push(&take, r);
        }
        if (take.n) reshard_push(m, (Move){MOVE_SCATTER, d, d, take}, cur);
    }
    AxisList rest = {0};
    for (int i = 0; i < cur->mesh->naxes; i++)
        if (cur->unreduced >> i & 1) axes_push(&rest, axes_whole(cur->mesh, i));
    if (rest.n) reshard_push(m, (Move){MOVE_REDUCE, 0, 0, rest}, cur);
}

/* Axes that the target adds to a dim and nobody uses yet: every device keeps its part. */
static void slice(Moves *m, Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank; d++) {
        AxisList common, rest_cur, rest_to, take = {0};
        strip(&cur->dim[d].axes, &to->dim[d].axes, &common, &rest_cur, &rest_to);
        if (rest_cur.n) continue;
        for (int i = 0; i < rest_to.n && !layout_uses(cur, rest_to.at[i]); i++)
            axes_push(&take, rest_to.at[i]);
        if (take.n) reshard_push(m, (Move){MOVE_SLICE, d, d, take}, cur);
    }
}

static bool arrived(const Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank; d++)
        if (!axes_equal(&cur->dim[d].axes, &to->dim[d].axes)) return false;
    return cur->unreduced == 0;
}

/* Equal shard shapes on both sides: whole shards travel. */
static void permute(Moves *m, Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank; d++)
        if (layout_parts(cur, d) != layout_parts(to, d)) return;
    for (int d = 0; d < cur->rank; d++) m->lists[d] = to->dim[d].axes;
    if (!arrived(cur, to)) reshard_push(m, (Move){.kind = MOVE_PERMUTE}, cur);
}

/* A suffix of one dim's axes that the target wants next on another dim. */
static bool find_move(const Layout *cur, const Layout *to, int *src, int *dst, AxisList *move) {
    for (int j = 0; j < cur->rank; j++) {
        AxisList common, rest_cur, rest_to;
        strip(&cur->dim[j].axes, &to->dim[j].axes, &common, &rest_cur, &rest_to);
        if (rest_cur.n || !rest_to.n) continue;
        for (int i = 0; i < cur->rank; i++) {
            AxisList common_i, rest_i, rest_to_i;
            strip(&cur->dim[i].axes, &to->dim[i].axes, &common_i, &rest_i, &rest_to_i);
            if (i == j || !rest_i.n) continue;
            /* the longest suffix of rest_i that is a prefix of rest_to */
            for (int from = 0; from < rest_i.n; from++) {
                AxisList suffix = {0}, head = {0};
                for (int k = from; k < rest_i.n; k++) axes_push(&suffix, rest_i.at[k]);
                for (int k = 0; k < suffix.n && k < rest_to.n; k++) axes_push(&head, rest_to.at[k]);
                if (!axes_equal(&suffix, &head)) continue;
                *src = i;
                *dst = j;
                *move = suffix;
                return true;
            }
        }
    }
    return false;
}

/* The first dim with axes that do not belong there loses them. */
static void gather(Moves *m, Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank; d++) {
        AxisList common, rest_cur, rest_to;
        strip(&cur->dim[d].axes, &to->dim[d].axes, &common, &rest_cur, &rest_to);
        if (!rest_cur.n) continue;
        reshard_push(m, (Move){MOVE_GATHER, d, d, rest_cur}, cur);
        return;
    }
}

static void plan_greedily(Moves *m, const Layout *from, const Layout *to) {
    Layout cur = *from;
    if (cur.unreduced) reduce(m, &cur, to);
    while (!arrived(&cur, to)) {
        int src, dst, before = m->n;
        AxisList move;
        slice(m, &cur, to);
        permute(m, &cur, to);
        if (arrived(&cur, to)) break;
        if (find_move(&cur, to, &src, &dst, &move))
            reshard_push(m, (Move){MOVE_TO_ALL, dst, src, move}, &cur);
        else
            gather(m, &cur, to);
        ASSERT(m->n > before, "a reshard that makes no progress");
    }
}

/* Does every device receive only what it misses? Slices first and then gathers, or one all_to_all,
 * or sums with nothing to slice behind them, are not to be bettered. */
static bool is_least(const Moves *m) {
    bool sends = false, gathers = false;
    for (int i = 0; i < m->n; i++) {
        MoveKind k = m->at[i].kind;
        if (k == MOVE_PERMUTE || (k == MOVE_SLICE && sends)) return false;
        if ((k == MOVE_TO_ALL || k == MOVE_GATHER) && sends && !(k == MOVE_GATHER && gathers))
            return false;
        sends = sends || k != MOVE_SLICE;
        gathers = k == MOVE_GATHER;
    }
    return true;
}

static const Layout *permuted(Build *b, const Layout *cur, const AxisList *lists) {
    Layout l;
    layout_init(&l, cur->mesh, cur->rank);
    for (int d = 0; d < cur->rank; d++) l.dim[d].axes = lists ? lists[d] : cur->dim[d].axes;
    const Layout *out = layout_of(b->g->cx, &l);
    if (!out) build_fail(b, err_nomem(b->g->cx, "a layout"));
    return out;
}

static Val build_move(Build *b, Val v, const Dims *global, const Layout *cur, const Moves *m,
                      const Move *move) {
    int d = move->dim, kind = cur->unreduced_kind;
    switch (move->kind) {
    case MOVE_SLICE:
        v = build_op(b, OP_ALL_SLICE, &v, 1, &(GatherAttr){d, move->axes});
        int64_t part = global->at[d] / layout_parts(cur, d) / axes_product(&move->axes);
        build_set_offsets(b, v, &(Offset){.axes = move->axes, .unit = part}, 1);
        return v;
    case MOVE_REDUCE:
        return build_op(b, OP_ALL_REDUCE, &v, 1, &(ReduceAttr){axes_mask(&move->axes), kind});
    case MOVE_SCATTER:
        return build_op(b, OP_REDUCE_SCATTER, &v, 1, &(ScatterAttr){d, move->axes, kind});
    case MOVE_PERMUTE: {
        PermuteAttr attr = {permuted(b, cur, NULL), permuted(b, cur, m->lists)};
        return b->err ? 0 : build_op(b, OP_PERMUTE, &v, 1, &attr);
    }
    case MOVE_TO_ALL:
        return build_op(b, OP_ALL_TO_ALL, &v, 1, &(AllToAllAttr){d, move->from, move->axes});
    case MOVE_GATHER: return build_op(b, OP_ALL_GATHER, &v, 1, &(GatherAttr){d, move->axes});
    }
    return 0;
}

/* v where the device stands first along all `axes`, zeros elsewhere: parts with v as their sum. */
static Val keep_first(Build *b, Val v, const Mesh *m, uint32_t axes) {
    AxisList list = {0};
    Dims one = {1, {1}}, scalar = {0};
    for (int i = 0; i < m->naxes; i++)
        if (axes >> i & 1 && m->size[i] > 1) axes_push(&list, axes_whole(m, i));
    if (!list.n) return v;
    Val index = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, one, 0});
    build_set_offsets(b, index, &(Offset){.axes = list, .unit = 1}, 1);
    Val first = op2(b, OP_EQ, index, op_const_like(b, index, 0));
    first = op_broadcast_like(b, op_reshape(b, first, &scalar), v);
    return op3(b, OP_WHERE, first, v, op_const_like(b, v, 0));
}

static Val reshard_even(Build *b, Val v, const Dims *global, const Layout *whole_from,
                        const Layout *whole_to) {
    Layout plan_from = *whole_from, plan_to = *whole_to;
    const Layout *from = &plan_from, *to = &plan_to;
    uint32_t made = to->unreduced & ~(uint32_t)from->unreduced;
    /* Over an axis of size 1 the part is the sum. */
    plan_from.unreduced &= (uint8_t)(layout_vary(from) & ~(uint32_t)to->unreduced);
    plan_to.unreduced = 0;
    Moves plan = {0}, done = {0};
    plan_greedily(&plan, from, to);
    if (!is_least(&plan)) reshard_search(global, from, to, &plan);
    Layout cur = *from;
    memcpy(done.lists, plan.lists, sizeof plan.lists);
    for (int i = 0; i < plan.n && v; i++) {
        v = build_move(b, v, global, &cur, &plan, &plan.at[i]);
        reshard_push(&done, plan.at[i], &cur);
    }
    ASSERT(!v || arrived(&cur, to), "a reshard that ends elsewhere");
    return v ? keep_first(b, v, to->mesh, made) : 0;
}

Val reshard(Build *b, Val v, const Dims *global, const Layout *from, const Layout *to) {
    Layout have = *from, want = *to;
    Dims dims = *global;
    for (int d = 0; d < dims.rank; d++) {
        bool stays = axes_equal(&from->dim[d].axes, &to->dim[d].axes);
        if (stays) dims.at[d] = pad_size(from, global, d); /* padding and all */
        if (!stays && !layout_divides(from, global, d)) {
            v = pad_gather(b, v, d, &from->dim[d].axes, global->at[d]);
            have.dim[d].axes = (AxisList){0};
        }
        if (!stays && !layout_divides(to, global, d)) want.dim[d].axes = (AxisList){0};
    }
    v = reshard_even(b, v, &dims, &have, &want);
    for (int d = 0; d < dims.rank; d++)
        if (!axes_equal(&want.dim[d].axes, &to->dim[d].axes))
            v = pad_slice(b, v, d, &to->dim[d].axes, pad_size(to, global, d));
    return v;
}
