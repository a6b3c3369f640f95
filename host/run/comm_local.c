/* comm_local.c - collectives between devices of one process: every device's result is written from
 * the others' memory in one pass, by the kernels `copy`, `tree_sum` and `fused`. A reduction adds
 * up in a binary tree over the group's coordinates (major axis first), so the bits do not depend on
 * who computes it. */
#include "ir/place.h"
#include "ir/program.h"
#include "run/bind.h"

#include <string.h>

typedef struct Group {
    const Exec *e;
    const PlanStep *s;
    AxisRef digit[MAX_AXES * 2]; /* the coordinates that differ within the group, major first */
    int32_t ndigit, size;
} Group;

static int32_t digit_of(const Plan *p, AxisRef r, const int32_t coord[MAX_AXES]) {
    return coord[r.axis] / (p->axis_size[r.axis] / (r.pre * r.size)) % r.size;
}

static void set_digit(const Plan *p, AxisRef r, int32_t digit, int32_t coord[MAX_AXES]) {
    int32_t rest = p->axis_size[r.axis] / (r.pre * r.size);
    coord[r.axis] += (digit - digit_of(p, r, coord)) * rest;
}

static Group group_of(const Exec *e, const PlanStep *s) {
    Group g = {.e = e, .s = s, .size = 1};
    const Plan *p = e->plan;
    if (s->coll.list.n) {
        for (int i = 0; i < s->coll.list.n; i++) g.digit[g.ndigit++] = s->coll.list.at[i];
    } else {
        for (int i = 0; i < p->naxes; i++)
            if (s->coll.axes >> i & 1)
                g.digit[g.ndigit++] = (AxisRef){(uint8_t)i, 1, (uint16_t)p->axis_size[i]};
    }
    for (int i = 0; i < g.ndigit; i++) g.size *= g.digit[i].size;
    return g;
}

/* The coordinates of the group's member with that number; `coord` says which group. */
static void member(const Group *g, const int32_t coord[MAX_AXES], int32_t number,
                   int32_t out[MAX_AXES]) {
    memcpy(out, coord, sizeof *out * MAX_AXES);
    for (int i = g->ndigit - 1; i >= 0; i--) {
        set_digit(g->e->plan, g->digit[i], number % g->digit[i].size, out);
        number /= g->digit[i].size;
    }
}

static int32_t number_in_group(const Group *g, const int32_t coord[MAX_AXES]) {
    int32_t n = 0;
    for (int i = 0; i < g->ndigit; i++)
        n = n * g->digit[i].size + digit_of(g->e->plan, g->digit[i], coord);
    return n;
}

/* Narrows operand k of the item to part `index` of `parts` along a dim. The dims lists of a plan
 * are shared, so the operand gets its own. */
static bool narrow(Exec *e, Item *item, int k, int dim, int64_t index, int64_t parts) {
    KTensor *t = &item->tensor[k];
    int64_t *dims = arena_copy(&e->arena, t->dims, sizeof *dims * (size_t)t->rank);
    if (!dims) return false;
    dims[dim] /= parts;
    item->ref[k].offset += index * dims[dim] * t->strides[dim];
    t->dims = dims;
    return true;
}

/* result[out_dim part m] = member m's operand[in_dim part q of `in_parts`] for every member m. */
static Err bind_copies(Exec *e, const Group *g, const int32_t coord[MAX_AXES], int out_dim,
                       int in_dim, int32_t q, int32_t in_parts) {
    const Plan *p = e->plan;
    for (int32_t m = 0; m < g->size; m++) {
        int32_t from[MAX_AXES];
        member(g, coord, m, from);
        Item *item = exec_add_item(e, g->s, "copy", 1, 1);
        if (!item) return err_nomem(e->rt->cx, "binding a plan");
        exec_set_operand(e, item, 0, PLAN_LIST(p, int32_t, g->s->in)[0], from);
        exec_set_operand(e, item, 1, PLAN_LIST(p, int32_t, g->s->out)[0], coord);
        bool ok = narrow(e, item, 1, out_dim, m, g->size);
        if (in_parts > 1) ok = ok && narrow(e, item, 0, in_dim, q, in_parts);
        if (!ok) return err_nomem(e->rt->cx, "binding a plan");
        exec_finish_item(e, item);
    }
    return E_OK;
}

/* A register with the reduction of inputs [first, first + n), in a balanced tree. */
static uint16_t emit_tree(Emit *emit, KOp op, KType type, int first, int n) {
    if (n == 1) return program_op(emit, KI_LOAD, type, first, 0);
    int half = 1;
    while (half * 2 < n) half *= 2;
    uint16_t a = emit_tree(emit, op, type, first, half);
    uint16_t b = emit_tree(emit, op, type, first + half, n - half);
    return program_op(emit, op, type, a, b);
}

/* The program that reduces n inputs to one output; 16-bit floats add up in float32. */
static const KProgram *tree_program(Exec *e, PartialKind kind, DType dtype, int n) {
    static const KOp op[] = {KI_ADD, KI_MAX, KI_MIN};
    Emit emit = {.arena = &e->arena};
    KType type = program_ktype(dtype);
    size_t size;
    uint16_t sum = emit_tree(&emit, op[kind], type, 0, n);
    program_instr(&emit, KI_STORE, type, 0, sum, 0, 0, 0);
    return program_pack(&emit, &size);
}

/* Do all members' operands have the same strides? What comes from another process has none but its
 * own elements between two, so there only where that is so of the operand itself. */
static bool same_strides(const Exec *e, const PlanValue *v, int32_t parts) {
    if (!place_is_spread(e->mesh)) return true;
    const int64_t *dims = plan_dims(e->plan, v), *strides = dims + v->rank;
    int64_t step = dtype_size((DType)v->dtype);
    for (int d = v->rank - 1; d >= 0; d--) {
        if (dims[d] > 1 && strides[d] != step) return false;
        step *= dims[d];
    }
    return parts == 1;
}

/* result i = the reduction of all members' operand i, or of its part q of `parts` along a dim. */
static Err bind_tree(Exec *e, const Group *g, const int32_t coord[MAX_AXES], int i, int dim,
                     int32_t q, int32_t parts) {
    const Plan *p = e->plan;
    const PlanValue *to = plan_value(p, PLAN_LIST(p, int32_t, g->s->out)[i]);
    const PlanValue *from_value = plan_value(p, PLAN_LIST(p, int32_t, g->s->in)[i]);
    bool sum = to->dtype == DT_F32 && g->s->coll.reduce == PARTIAL_SUM &&
               same_strides(e, from_value, parts);
    Item *item = exec_add_item(e, g->s, sum ? "tree_sum" : "fused", g->size, 1);
    bool ok = item != NULL;
    for (int32_t m = 0; ok && m < g->size; m++) {
        int32_t from[MAX_AXES];
        member(g, coord, m, from);
        exec_set_operand(e, item, m, PLAN_LIST(p, int32_t, g->s->in)[i], from);
        if (parts > 1) ok = narrow(e, item, m, dim, q, parts);
    }
    if (ok) {
        exec_set_operand(e, item, g->size, PLAN_LIST(p, int32_t, g->s->out)[i], coord);
        if (!sum)
            item->args.attr =
                tree_program(e, (PartialKind)g->s->coll.reduce, (DType)to->dtype, g->size);
    }
    if (!ok || (!sum && !item->args.attr)) return err_nomem(e->rt->cx, "binding a plan");
    exec_finish_item(e, item);
    return E_OK;
}

/* The device whose shard under `from` is the one that the device at `coord` wants under `to`. */
static void permute_source(const Exec *e, const PlanStep *s, const int32_t coord[MAX_AXES],
                           int32_t out[MAX_AXES]) {
    const Plan *p = e->plan;
    const AxisList *from = PLAN_LIST(p, AxisList, s->coll.from);
    const AxisList *to = PLAN_LIST(p, AxisList, s->coll.to);
    memcpy(out, coord, sizeof *out * MAX_AXES);
    for (int d = 0; d < s->coll.from.n; d++) {
        int32_t index = 0;
        for (int i = 0; i < to[d].n; i++)
            index = index * to[d].at[i].size + digit_of(p, to[d].at[i], coord);
        for (int i = from[d].n - 1; i >= 0; i--) {
            set_digit(p, from[d].at[i], index % from[d].at[i].size, out);
            index /= from[d].at[i].size;
        }
    }
}

/* The whole operand of the device at `from`. */
static Err bind_copy(Exec *e, const PlanStep *s, const int32_t from[MAX_AXES],
                     const int32_t coord[MAX_AXES]) {
    const Plan *p = e->plan;
    Item *item = exec_add_item(e, s, "copy", 1, 1);
    if (!item) return err_nomem(e->rt->cx, "binding a plan");
    exec_set_operand(e, item, 0, PLAN_LIST(p, int32_t, s->in)[0], from);
    exec_set_operand(e, item, 1, PLAN_LIST(p, int32_t, s->out)[0], coord);
    exec_finish_item(e, item);
    return E_OK;
}

/* Zeros, on a device that nobody sends to. */
static Err bind_zeros(Exec *e, const PlanStep *s, const int32_t coord[MAX_AXES]) {
    Emit emit = {.arena = &e->arena};
    size_t size;
    Item *item = exec_add_item(e, s, "fused", 0, 1);
    if (!item) return err_nomem(e->rt->cx, "binding a plan");
    exec_set_operand(e, item, 0, PLAN_LIST(e->plan, int32_t, s->out)[0], coord);
    DType dtype = item->tensor[0].dtype;
    uint16_t zero = program_imm(&emit, dtype, &(Scalar){0, 0});
    program_instr(&emit, KI_STORE, program_ktype(dtype), 0, zero, 0, 0, 0);
    item->args.attr = program_pack(&emit, &size);
    if (!item->args.attr) return err_nomem(e->rt->cx, "binding a plan");
    exec_finish_item(e, item);
    return E_OK;
}

/* By pairs of places in the group: every device has what is sent to it. */
static Err bind_pairs(Exec *e, const Group *g, const int32_t coord[MAX_AXES], int32_t mine) {
    const Plan *p = e->plan;
    const int32_t *pair = PLAN_LIST(p, int32_t, g->s->coll.pairs);
    int32_t i = 0, from[MAX_AXES];
    while (i < g->s->coll.pairs.n && pair[i + 1] != mine) i += 2;
    if (i >= g->s->coll.pairs.n) return bind_zeros(e, g->s, coord);
    member(g, coord, pair[i], from);
    return bind_copy(e, g->s, from, coord);
}

Err exec_bind_collective(Exec *e, const PlanStep *s, BoundStep *b) {
    const PlanCollective *c = &s->coll;
    Group g = group_of(e, s);
    int32_t slots = exec_slots(e, s->vary), before = e->nitem;
    for (int32_t slot = 0; slot < slots; slot++) {
        int32_t coord[MAX_AXES], from[MAX_AXES];
        exec_slot_coords(e, s->vary, slot, coord);
        int32_t mine = number_in_group(&g, coord);
        switch (c->kind) {
        case COLL_ALL_GATHER: TRY(bind_copies(e, &g, coord, c->dim, 0, 0, 1)); break;
        case COLL_ALL_TO_ALL: TRY(bind_copies(e, &g, coord, c->dim2, c->dim, mine, g.size)); break;
        case COLL_ALL_REDUCE:
            for (int i = 0; i < s->in.n; i++) TRY(bind_tree(e, &g, coord, i, 0, 0, 1));
            break;
        case COLL_REDUCE_SCATTER: TRY(bind_tree(e, &g, coord, 0, c->dim, mine, g.size)); break;
        case COLL_PERMUTE:
            if (c->from.n || c->to.n) {
                permute_source(e, s, coord, from);
                TRY(bind_copy(e, s, from, coord));
            } else {
                TRY(bind_pairs(e, &g, coord, mine));
            }
            break;
        default: ASSERT(false, "collective kind %d", c->kind);
        }
    }
    b->n = e->nitem - before;
    return E_OK;
}
