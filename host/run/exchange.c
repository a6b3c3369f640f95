#include "run/exchange.h"
#include "ir/place.h"

#include <string.h>

/* Less than this is copied and added up by the caller alone. */
enum { INLINE_BYTES = 1 << 16, CUT_BYTES = 1 << 18, MAX_CUTS = 64 };

static Err no_memory(const Exec *e) {
    return err_nomem(e->rt->cx, "binding a plan");
}

static int64_t bytes_of(const KTensor *t) {
    int64_t n = dtype_size(t->dtype);
    for (int d = 0; d < t->rank; d++) n *= t->dims[d];
    return n;
}

static int64_t round_up(int64_t bytes) {
    return (bytes + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
}

/* The strides of t's elements in one piece; false when out of memory. `same`: t has them. */
static bool dense_strides(Exec *e, const KTensor *t, int64_t **out, bool *same) {
    int64_t *strides = ARENA_ARRAY(&e->arena, int64_t, t->rank + 1), step = dtype_size(t->dtype);
    if (!strides) return false;
    *same = true;
    for (int d = t->rank - 1; d >= 0; d--) {
        strides[d] = step;
        step *= t->dims[d];
        if (t->dims[d] > 1 && t->strides[d] != strides[d]) *same = false;
    }
    *out = strides;
    return true;
}

/* ---- what comes ---- */

static bool same_need(const Need *a, const Need *b) {
    const KTensor *x = &a->tensor, *y = &b->tensor;
    size_t size = sizeof(int64_t) * (size_t)x->rank;
    return a->device == b->device && a->buffer == b->buffer && a->ref.offset == b->ref.offset &&
           a->ref.slice == b->ref.slice && x->rank == y->rank && x->dtype == y->dtype &&
           memcmp(x->dims, y->dims, size) == 0 && memcmp(x->strides, y->strides, size) == 0;
}

void exchange_need(Exec *e, Item *item, int k) {
    Exchange *x = e->exchange;
    OperandRef *ref = &item->ref[k];
    KTensor *t = &item->tensor[k];
    Need n = {.device = ref->device, .buffer = -1 - ref->base, .ref = *ref, .tensor = *t};
    int64_t *strides;
    bool same;
    if (!dense_strides(e, t, &strides, &same)) {
        x->failed = true;
        return;
    }
    int32_t i = 0;
    while (i < x->need.n && !same_need(&x->need.at[i], &n)) i++;
    if (i == x->need.n) {
        n.wire = (int64_t)x->wire;
        x->wire += (size_t)round_up(bytes_of(t));
        if (!VEC_PUSH(&e->arena, &x->need, n)) x->failed = true;
    }
    if (x->failed) return;
    *ref = (OperandRef){.base = e->wire_base, .offset = x->need.at[i].wire};
    t->strides = strides;
}

static Err add_receives(Exec *e, Exchange *x) {
    for (int32_t i = 0; i < x->need.n; i++) {
        const Need *n = &x->need.at[i];
        ExchangePart part = {.peer = place_process(e->mesh, n->device),
                             .at = {.base = e->wire_base, .offset = n->wire},
                             .bytes = (size_t)bytes_of(&n->tensor)};
        if (part.bytes && !VEC_PUSH(&e->arena, &x->recv, part)) return no_memory(e);
    }
    return E_OK;
}

/* ---- what goes ---- */

/* Sends from where it lies, or from the wire if it is not in one piece. */
static Err add_send(Exec *e, Exchange *x, const PlanStep *s, const Need *n, int32_t peer) {
    int32_t coord[MAX_AXES];
    int64_t *strides;
    bool dense;
    mesh_coords(e->mesh, n->device, coord);
    const PlanBuffer *b = plan_buffer(e->plan, n->buffer);
    ExchangePart part = {.peer = peer, .at = n->ref, .bytes = (size_t)bytes_of(&n->tensor)};
    part.at.base = e->first_base[n->buffer] + exec_slot(e, b->vary, coord);
    if (!part.bytes) return E_OK;
    if (!dense_strides(e, &n->tensor, &strides, &dense)) return no_memory(e);
    if (!dense) {
        Item *item = exec_add_item(e, s, "copy", 1, 1);
        if (!item) return no_memory(e);
        item->tensor[0] = item->tensor[1] = n->tensor;
        item->tensor[1].strides = strides;
        item->ref[0] = part.at;
        item->ref[1] = part.at = (OperandRef){.base = e->wire_base, .offset = (int64_t)x->wire};
        x->wire += (size_t)round_up(bytes_of(&n->tensor));
        exec_finish_item(e, item);
        x->npack++;
    }
    return VEC_PUSH(&e->arena, &x->send, part) ? E_OK : no_memory(e);
}

/* Binds the step as another process does, to see what that needs from here. */
static Err add_sends_to(Exec *e, Exchange *x, const PlanStep *s, int32_t peer) {
    int32_t items = e->nitem, me = e->as;
    size_t wire = x->wire;
    BoundStep theirs;
    e->as = peer;
    x->need.n = 0;
    Err err = exec_bind_collective(e, s, &theirs);
    e->as = me;
    e->nitem = items;
    x->wire = wire;
    for (int32_t i = 0; !err && !x->failed && i < x->need.n; i++)
        if (place_process(e->mesh, x->need.at[i].device) == me)
            err = add_send(e, x, s, &x->need.at[i], peer);
    return err;
}

/* What people read of it. */
static Err describe(Exec *e, const PlanStep *s, Exchange *x) {
    const Plan *p = e->plan;
    Str axes;
    str_init(&axes, &e->rt->cx->alloc);
    mesh_print_axes(e->mesh, s->coll.axes, &axes);
    char *copy = axes.failed ? NULL : arena_strdup(&e->arena, str_of(&axes));
    str_free(&axes);
    if (!copy) return no_memory(e);
    x->what = (Crossing){.op = plan_str(p, s->op), .where = "", .axes = copy};
    if (s->locs.n) x->what.where = plan_str(p, PLAN_LIST(p, int32_t, s->locs)[0]);
    for (int32_t i = 0; i < x->recv.n; i++) x->what.bytes += x->recv.at[i].bytes;
    return E_OK;
}

Err exchange_bind(Exec *e, const PlanStep *s, BoundStep *b) {
    if (!place_is_spread(e->mesh)) return exec_bind_collective(e, s, b);
    Exchange *x = ARENA_ARRAY(&e->arena, Exchange, 1);
    if (!x) return no_memory(e);
    int32_t first = e->nitem;
    e->exchange = x;
    for (int32_t peer = 0; peer < e->rt->ranks.world; peer++)
        if (peer != e->as) TRY(add_sends_to(e, x, s, peer));
    x->need.n = 0;
    TRY(exec_bind_collective(e, s, b));
    TRY(add_receives(e, x));
    e->exchange = NULL;
    if (x->failed) return no_memory(e);
    b->n = e->nitem - first;
    if (!x->send.n && !x->recv.n) return E_OK;
    x->part = ARENA_ARRAY(&e->arena, CommPart, x->send.n + x->recv.n);
    if (!x->part) return no_memory(e);
    if (x->wire > e->wire_bytes) e->wire_bytes = x->wire;
    b->exchange = x;
    return describe(e, s, x);
}

/* ---- stages ---- */

/* Items [first, first + n) of the step, cut by bytes. */
static Err add_stage(Exec *e, int32_t step, int32_t first, int32_t n, int32_t *stage) {
    const BoundStep *b = &e->step[step];
    int64_t sum = 0;
    *stage = -1;
    for (int32_t i = first; i < first + n; i++) {
        const Item *item = &e->item[b->first + i];
        sum += bytes_of(&item->tensor[item->args.nin]);
    }
    if (sum < INLINE_BYTES || runtime_threads() == 1) return E_OK;
    int32_t begin = e->piece.n;
    for (int32_t i = first; i < first + n; i++) {
        const Item *item = &e->item[b->first + i];
        int64_t cuts = bytes_of(&item->tensor[item->args.nin]) / CUT_BYTES + 1;
        if (cuts > MAX_CUTS) cuts = MAX_CUTS;
        if (cuts > item->units) cuts = item->units > 0 ? item->units : 1;
        for (int64_t k = 0; k < cuts; k++) {
            Piece piece = {step, i, item->units * k / cuts, item->units * (k + 1) / cuts};
            if (!VEC_PUSH(&e->arena, &e->piece, piece)) return no_memory(e);
        }
    }
    int32_t lanes = e->piece.n - begin, *lane = ARENA_ARRAY(&e->arena, int32_t, lanes + 1);
    if (!lane) return no_memory(e);
    for (int32_t i = 0; i <= lanes; i++) lane[i] = begin + i;
    *stage = e->stage.n;
    if (e->most_stages < 1) e->most_stages = 1;
    if (e->most_queues < lanes) e->most_queues = lanes;
    PoolStage all = {.first = lane, .lanes = lanes, .steps = 1};
    return VEC_PUSH(&e->arena, &e->stage, all) ? E_OK : no_memory(e);
}

Err exchange_schedule(Exec *e, int32_t step) {
    const BoundStep *b = &e->step[step];
    Exchange *x = b->exchange;
    TRY(add_stage(e, step, 0, x->npack, &x->stage[0]));
    return add_stage(e, step, x->npack, b->n - x->npack, &x->stage[1]);
}

/* ---- running ---- */

static CommPart part_of(const Exec *e, const ExchangePart *p) {
    return (CommPart){p->peer, exec_address(e, &p->at), p->bytes};
}

Err exchange_run(Exec *e, Exchange *x) {
    CommPart *send = x->part, *recv = x->part + x->send.n;
    for (int32_t i = 0; i < x->send.n; i++) send[i] = part_of(e, &x->send.at[i]);
    for (int32_t i = 0; i < x->recv.n; i++) recv[i] = part_of(e, &x->recv.at[i]);
    Link *link = &e->rt->link;
    Transfer t;
    TRY(link_begin(e->rt->cx, link, &x->what, send, x->send.n, recv, x->recv.n, &t));
    return link_end(e->rt->cx, link, &t);
}
