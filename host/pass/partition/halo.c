#include "pass/partition/halo.h"

/* The `n` elements at the end (at the start) of every part, sent `step` parts on. */
static Val edge(Build *b, Val v, int dim, const AxisList *axes, int64_t n, int step) {
    int32_t parts = axes_product(axes), pairs = 0;
    SliceAttr cut = {.limit = op_dims(b, v)};
    cut.start.rank = cut.step.rank = cut.limit.rank;
    for (int d = 0; d < cut.limit.rank; d++) cut.step.at[d] = 1;
    if (step > 0)
        cut.start.at[dim] = cut.limit.at[dim] - n;
    else
        cut.limit.at[dim] = n;
    Val part = build_op(b, OP_SLICE, &v, 1, &cut);
    int32_t *pair = ARENA_ARRAY(&b->g->arena, int32_t, 2 * parts);
    if (!pair) {
        build_fail(b, err_nomem(b->g->cx, "a graph"));
        return 0;
    }
    for (int32_t i = 0; i < parts; i++) {
        if (i + step < 0 || i + step >= parts) continue;
        pair[pairs++] = i;
        pair[pairs++] = i + step;
    }
    const IntList *list = attr_list_of(b->g->cx, pair, pairs);
    if (!list) build_fail(b, err_nomem(b->g->cx, "a graph"));
    return list ? build_op(b, OP_PPERMUTE, &part, 1, &(PpermuteAttr){*axes, list}) : 0;
}

Val halo(Build *b, Val v, int dim, const AxisList *axes, int64_t before, int64_t behind) {
    Val parts[3];
    int n = 0;
    if (before) parts[n++] = edge(b, v, dim, axes, before, 1);
    parts[n++] = v;
    if (behind) parts[n++] = edge(b, v, dim, axes, behind, -1);
    return n == 1 ? v : build_op(b, OP_CONCAT, parts, n, &(AxisAttr){dim});
}
