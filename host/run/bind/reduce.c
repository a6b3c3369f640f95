#include "ir/program.h"
#include "run/bind/reduce.h"

Err bind_copy(Exec *e, const PlanStep *s, const ItemOperand *from, const ItemOperand *to) {
    Item *item = item_add(e, s, "copy", 1, 1);
    if (!item) return exec_no_memory(e);
    item_set(item, 0, from);
    item_set(item, 1, to);
    item_finish(e, item);
    return E_OK;
}

Err bind_zeros(Exec *e, const PlanStep *s, const ItemOperand *to) {
    Emit emit = {.arena = &e->arena};
    size_t size;
    Item *item = item_add(e, s, "fused", 0, 1);
    if (!item) return exec_no_memory(e);
    item_set(item, 0, to);
    uint16_t zero = program_imm(&emit, to->tensor.dtype, &(Scalar){0, 0});
    program_instr(&emit, KI_STORE, program_ktype(to->tensor.dtype), 0, zero, 0, 0, 0);
    item->args.attr = program_pack(&emit, &size);
    if (!item->args.attr) return exec_no_memory(e);
    item_finish(e, item);
    return E_OK;
}

/* A register with the reduction of so many members; input `*input` and those behind it are the
 * roots. */
static uint16_t emit_tree(Emit *emit, KOp op, KType type, const Subtree *root, int *input,
                          int32_t members) {
    if (members == root[*input].n) return program_op(emit, KI_LOAD, type, (*input)++, 0);
    int32_t half = tree_half(members);
    uint16_t a = emit_tree(emit, op, type, root, input, half);
    uint16_t b = emit_tree(emit, op, type, root, input, members - half);
    return program_op(emit, op, type, a, b);
}

/* The program that reduces the roots to one output; 16-bit floats add up in float32. */
static const KProgram *tree_program(Exec *e, ReduceKind kind, DType dtype, const Subtree *root,
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

static bool same_strides(const ItemOperand *v, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        for (int d = 0; d < v->tensor.rank; d++)
            if (v->tensor.dims[d] > 1 && v[i].tensor.strides[d] != v->tensor.strides[d])
                return false;
    return true;
}

Err bind_reduction(Exec *e, const PlanStep *s, const Subtree *root, const ItemOperand *from,
                   int32_t n, const ItemOperand *to) {
    bool sum = to->tensor.dtype == DT_F32 && s->coll.reduce == REDUCE_SUM &&
               group_is_even(root, n) && same_strides(from, n);
    for (int32_t k = 0; k < n; k++) sum = sum && from[k].tensor.dtype == DT_F32;
    Item *item = item_add(e, s, sum ? "tree_sum" : "fused", n, 1);
    if (!item) return exec_no_memory(e);
    for (int32_t k = 0; k < n; k++) item_set(item, k, &from[k]);
    item_set(item, n, to);
    if (!sum) {
        item->args.attr = tree_program(e, (ReduceKind)s->coll.reduce, to->tensor.dtype, root, n);
        if (!item->args.attr) return exec_no_memory(e);
    }
    item_finish(e, item);
    return E_OK;
}
