/* item.h - items under construction: a kernel, what it is told, and its operands. */
#ifndef MESHLUA_RUN_BIND_ITEM_H
#define MESHLUA_RUN_BIND_ITEM_H

#include "run/exec/exec.h"

/* The buffer whose memory a buffer has: its own, or that of the param that it takes over. */
static inline int32_t item_root(const Plan *p, int32_t buffer) {
    int32_t take = plan_buffer(p, buffer)->take;
    if (take < 0) return buffer;
    return plan_value(p, PLAN_LIST(p, PlanParam, p->params)[take].value)->buffer;
}

/* The value as a kernel sees it, without data. */
static inline KTensor item_tensor(const Plan *p, int32_t value) {
    const PlanValue *v = plan_value(p, value);
    const int64_t *dims = plan_dims(p, v);
    return (KTensor){
        .dims = dims, .strides = dims + v->rank, .rank = v->rank, .dtype = (DType)v->dtype};
}
/* What a step's kernel is told beside its operands, on the device at `coord`; false when out of
 * memory. */
bool item_args(const Plan *p, const PlanStep *s, const int32_t coord[MAX_AXES], Arena *a,
               KArgs *args) MUST_CHECK;

/* A tensor before an item has it. */
typedef struct ItemOperand {
    KTensor tensor; /* without data */
    OperandRef ref;
} ItemOperand;
/* Where the value at `coord` is in the k-th domain. */
OperandRef item_ref(const Exec *e, int32_t k, int32_t value, const int32_t coord[MAX_AXES]);
/* The value at `coord`, as the k-th domain has it. */
ItemOperand item_operand(const Exec *e, int32_t k, int32_t value, const int32_t coord[MAX_AXES]);
/* Part `index` of `parts` along a dim; false when out of memory. */
bool item_narrow(Exec *e, ItemOperand *v, int dim, int64_t index, int64_t parts);

/* An item under construction: room for the operands; NULL when out of memory. */
Item *item_add(Exec *e, const PlanStep *s, const char *kernel, int nin, int nout);
void item_set(Item *item, int k, const ItemOperand *v);
/* Domain, units and scratch, once operands and attr are set. */
void item_finish(Exec *e, Item *item);
int64_t item_bytes(const KTensor *t);
/* Are its elements in one piece, in order? */
bool item_is_dense(const ItemOperand *v);

/* The guards of the devices that use a slot of the vary class in the k-th domain (slot -1: of all
 * devices of this process). False when out of memory. */
bool item_guards(Exec *e, const PlanStep *s, int32_t k, uint32_t vary, int32_t slot,
                 GuardList *out);

#endif
