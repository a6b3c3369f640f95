/* collective.c - collectives between devices of one domain: every device's result is written from
 * the others' memory in one pass, by the kernels `copy`, `tree_sum` and `fused`. */
#include "ir/program.h"
#include "run/bind/bind.h"

Err bind_copy(Exec *e, const PlanStep *s, const View *from, const View *to) {
    Item *item = bind_add_item(e, s, "copy", 1, 1);
    if (!item) return exec_no_memory(e);
    bind_set_view(item, 0, from);
    bind_set_view(item, 1, to);
    return bind_finish_item(e, item);
}

Err bind_zeros(Exec *e, const PlanStep *s, const View *to) {
    Emit emit = {.arena = &e->arena};
    size_t size;
    Item *item = bind_add_item(e, s, "fused", 0, 1);
    if (!item) return exec_no_memory(e);
    bind_set_view(item, 0, to);
    uint16_t zero = program_imm(&emit, to->tensor.dtype, &(Scalar){0, 0});
    program_instr(&emit, KI_STORE, program_ktype(to->tensor.dtype), 0, zero, 0, 0, 0);
    item->args.attr = program_pack(&emit, &size);
    if (!item->args.attr) return exec_no_memory(e);
    return bind_finish_item(e, item);
}

/* ---- reductions ---- */

/* A register with the reduction of so many members; input `*input` and those behind it are the
 * roots. */
static uint16_t emit_tree(Emit *emit, KOp op, KType type, const Root *root, int *input,
                          int32_t members) {
    if (members == root[*input].n) return program_op(emit, KI_LOAD, type, (*input)++, 0);
    int32_t half = tree_half(members);
    uint16_t a = emit_tree(emit, op, type, root, input, half);
    uint16_t b = emit_tree(emit, op, type, root, input, members - half);
    return program_op(emit, op, type, a, b);
}

/* The program that reduces the roots to one output; 16-bit floats add up in float32. */
static const KProgram *tree_program(Exec *e, PartialKind kind, DType dtype, const Root *root,
                                    int32_t n) {
    static const KOp op[] = {KI_ADD, KI_MAX, KI_MIN};
    Emit emit = {.arena = &e->arena};
    KType type = program_ktype(dtype);
    size_t size;
    int input = 0;
    int32_t members = root[n - 1].first + root[n - 1].n - root[0].first;
    uint16_t sum = emit_tree(&emit, op[kind], type, root, &input, members);
    program_instr(&emit, KI_STORE, type, 0, sum, 0, 0, 0);
    return program_pack(&emit, &size);
}

static bool same_strides(const View *v, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        for (int d = 0; d < v->tensor.rank; d++)
            if (v->tensor.dims[d] > 1 && v[i].tensor.strides[d] != v->tensor.strides[d])
                return false;
    return true;
}

Err bind_reduction(Exec *e, const PlanStep *s, const Root *root, const View *from, int32_t n,
                   const View *to) {
    bool sum = to->tensor.dtype == DT_F32 && s->coll.reduce == PARTIAL_SUM &&
               group_is_even(root, n) && same_strides(from, n);
    for (int32_t k = 0; k < n; k++) sum = sum && from[k].tensor.dtype == DT_F32;
    Item *item = bind_add_item(e, s, sum ? "tree_sum" : "fused", n, 1);
    if (!item) return exec_no_memory(e);
    for (int32_t k = 0; k < n; k++) bind_set_view(item, k, &from[k]);
    bind_set_view(item, n, to);
    if (!sum) {
        item->args.attr = tree_program(e, (PartialKind)s->coll.reduce, to->tensor.dtype, root, n);
        if (!item->args.attr) return exec_no_memory(e);
    }
    return bind_finish_item(e, item);
}

/* Result i of the device at `coord`: the reduction of all members' operand i, or of its part. */
static Err bind_tree(Exec *e, const Group *g, int32_t domain, const int32_t coord[MAX_AXES],
                     int i) {
    const PlanStep *s = g->step;
    View *from = ARENA_ARRAY(&e->arena, View, g->size);
    Root *root = ARENA_ARRAY(&e->arena, Root, g->size);
    if (!from || !root) return exec_no_memory(e);
    int32_t parts = s->coll.kind == COLL_REDUCE_SCATTER ? g->size : 1;
    int32_t part = parts > 1 ? group_number(g, coord) : 0;
    for (int32_t m = 0; m < g->size; m++) {
        int32_t at[MAX_AXES];
        group_member(g, coord, m, at);
        root[m] = (Root){.first = m, .n = 1};
        from[m] = bind_view(e, domain, PLAN_LIST(e->plan, int32_t, s->in)[i], at);
        if (!bind_narrow(e, &from[m], s->coll.dim, part, parts)) return exec_no_memory(e);
    }
    View to = bind_view(e, domain, PLAN_LIST(e->plan, int32_t, s->out)[i], coord);
    return bind_reduction(e, s, root, from, g->size, &to);
}

/* ---- what moves ---- */

static Err bind_sources(Exec *e, const Group *g, int32_t domain, const int32_t coord[MAX_AXES]) {
    const PlanStep *s = g->step;
    int32_t n = group_sources(g, coord), value = PLAN_LIST(e->plan, int32_t, s->out)[0];
    View to = bind_view(e, domain, value, coord);
    if (n == 0) return bind_zeros(e, s, &to);
    for (int32_t k = 0; k < n; k++) {
        Source source = group_source(g, coord, k);
        View from = bind_view(e, domain, PLAN_LIST(e->plan, int32_t, s->in)[0], source.from);
        View part = to;
        if (!bind_narrow(e, &from, source.from_dim, source.from_part, source.from_parts) ||
            !bind_narrow(e, &part, source.to_dim, source.to_part, source.to_parts))
            return exec_no_memory(e);
        TRY(bind_copy(e, s, &from, &part));
    }
    return E_OK;
}

Err bind_collective(Exec *e, const Group *g) {
    const PlanStep *s = g->step;
    bool reduces = s->coll.kind == COLL_ALL_REDUCE || s->coll.kind == COLL_REDUCE_SCATTER;
    int32_t slots = exec_class_slots(e, s->vary)[e->domains];
    for (int32_t slot = 0; slot < slots; slot++) {
        int32_t coord[MAX_AXES], domain = exec_slot_place(e, s->vary, slot, coord);
        if (!reduces) TRY(bind_sources(e, g, domain, coord));
        for (int i = 0; reduces && i < s->out.n; i++) TRY(bind_tree(e, g, domain, coord, i));
    }
    return E_OK;
}
