/* reshard.c - in the order of Shardy's planner: pending sums first (scattered where the target
 * splits a dim over the same axes), then free local slices, shards changing places, all_to_all, and
 * all_gather last, on as little data as possible. */
#include "pass/reshard.h"

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

/* Sums that are still to be made: over the axes that the target puts on a dim next, scattered
 * there; over the others, for everybody. */
static Val reduce(Build *b, Val v, Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank && cur->partial; d++) {
        AxisList common, rest_cur, rest_to, take = {0};
        strip(&cur->dim[d].axes, &to->dim[d].axes, &common, &rest_cur, &rest_to);
        if (rest_cur.n) continue;
        for (int i = 0; i < rest_to.n; i++) {
            AxisRef r = rest_to.at[i];
            bool whole = r.pre == 1 && r.size == cur->mesh->size[r.axis];
            if (!whole || !(cur->partial >> r.axis & 1)) break;
            axes_push(&take, r);
        }
        if (!take.n) continue;
        v = build_op(b, OP_REDUCE_SCATTER, &v, 1, &(ScatterAttr){d, take, cur->partial_kind});
        append(&cur->dim[d].axes, &take);
        cur->partial &= (uint8_t)~axes_mask(&take);
    }
    if (cur->partial) {
        v = build_op(b, OP_ALL_REDUCE, &v, 1, &(ReduceAttr){cur->partial, cur->partial_kind});
        cur->partial = 0;
    }
    return v;
}

/* Axes that the target adds to a dim and nobody uses yet: every device keeps its part. */
static Val slice(Build *b, Val v, const Dims *global, Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank; d++) {
        AxisList common, rest_cur, rest_to, take = {0};
        strip(&cur->dim[d].axes, &to->dim[d].axes, &common, &rest_cur, &rest_to);
        if (rest_cur.n) continue;
        for (int i = 0; i < rest_to.n && !layout_uses(cur, rest_to.at[i]); i++)
            axes_push(&take, rest_to.at[i]);
        if (!take.n) continue;
        v = build_op(b, OP_ALL_SLICE, &v, 1, &(GatherAttr){d, take});
        append(&cur->dim[d].axes, &take);
        int64_t part = global->at[d] / layout_parts(cur, d);
        build_set_offsets(b, v, &(Offset){.axes = take, .unit = part}, 1);
    }
    return v;
}

/* Equal shard shapes on both sides: whole shards travel. */
static Val permute(Build *b, Val v, Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank; d++)
        if (layout_parts(cur, d) != layout_parts(to, d)) return v;
    Layout from = *cur;
    for (int d = 0; d < cur->rank; d++) {
        cur->dim[d].axes = to->dim[d].axes;
        from.dim[d].open = false;
        from.dim[d].priority = 0;
    }
    from.vary = from.replicated = 0;
    Layout target = from;
    for (int d = 0; d < cur->rank; d++) target.dim[d].axes = to->dim[d].axes;
    PermuteAttr attr = {layout_of(b->g->cx, &from), layout_of(b->g->cx, &target)};
    if (!attr.from || !attr.to) {
        build_fail(b, err_nomem(b->g->cx, "a layout"));
        return 0;
    }
    return build_op(b, OP_PERMUTE, &v, 1, &attr);
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

static Val all_to_all(Build *b, Val v, Layout *cur, const Layout *to, bool *moved) {
    int src, dst;
    AxisList move;
    *moved = find_move(cur, to, &src, &dst, &move);
    if (!*moved) return v;
    v = build_op(b, OP_ALL_TO_ALL, &v, 1, &(AllToAllAttr){dst, src, move});
    cur->dim[src].axes = without_suffix(&cur->dim[src].axes, &move);
    append(&cur->dim[dst].axes, &move);
    return v;
}

/* The first dim with axes that do not belong there loses them. */
static Val gather(Build *b, Val v, Layout *cur, const Layout *to, bool *gathered) {
    *gathered = false;
    for (int d = 0; d < cur->rank; d++) {
        AxisList common, rest_cur, rest_to;
        strip(&cur->dim[d].axes, &to->dim[d].axes, &common, &rest_cur, &rest_to);
        if (!rest_cur.n) continue;
        v = build_op(b, OP_ALL_GATHER, &v, 1, &(GatherAttr){d, rest_cur});
        cur->dim[d].axes = common;
        *gathered = true;
        return v;
    }
    return v;
}

static bool arrived(const Layout *cur, const Layout *to) {
    for (int d = 0; d < cur->rank; d++)
        if (!axes_equal(&cur->dim[d].axes, &to->dim[d].axes)) return false;
    return cur->partial == 0;
}

Val reshard(Build *b, Val v, const Dims *global, const Layout *from, const Layout *to) {
    Layout cur = *from;
    if (cur.partial) v = reduce(b, v, &cur, to);
    while (v && !arrived(&cur, to)) {
        bool done = false;
        v = slice(b, v, global, &cur, to);
        if (arrived(&cur, to)) break;
        v = permute(b, v, &cur, to);
        if (arrived(&cur, to)) break;
        v = all_to_all(b, v, &cur, to, &done);
        if (!done) v = gather(b, v, &cur, to, &done);
        ASSERT(done || !v, "a reshard that makes no progress");
    }
    return v;
}
