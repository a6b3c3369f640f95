/* bind.h - what the parts of exec.h share: bind.c makes items of steps, collective.c and
 * exchange_*.c those of collectives, schedule.c puts them into stages, exec.c runs them. */
#ifndef MESHLUA_RUN_BIND_BIND_H
#define MESHLUA_RUN_BIND_BIND_H

#include "run/exec/exec.h"
#include "run/bind/group.h"

/* Takes the plan. result_type has one global type per result. */
Err bind_exec(Runtime *rt, Plan *plan, const Mesh *mesh, const Type *const *result_type,
              Exec **out) MUST_CHECK;

Err bind_schedule(Exec *e) MUST_CHECK;
/* On a GPU: whether the items of a step may be joined with those of others of its kernel; and that
 * of `n` steps from `first` on, which do not depend on each other. */
bool gpu_joins(const Exec *e, int32_t first, int32_t other);
Err gpu_join(Exec *e, int32_t first, int32_t n) MUST_CHECK;
/* On a GPU: which steps use each buffer. NULL when out of memory. */
typedef struct Touch Touch;
Touch *gpu_touches(Exec *e);
/* Two steps that may be one launch, as far as their operands say: see Device.merge. */
typedef struct Merge {
    int32_t first, second, from, to;
    bool early; /* it stands in the place of the first */
} Merge;
/* The step that makes what input `to` of the second one reads, for it alone: sets `first`, `from`.
 */
bool gpu_makes(const Exec *e, const Touch *touch, Merge *m);
/* Whether the first step reads what input `to` of the second one does: sets `from`. */
bool gpu_shares(const Exec *e, Merge *m);
/* The launch, if the library has one for the two. */
Err gpu_merge(Exec *e, const Merge *m, bool *done) MUST_CHECK;
/* All groups of this process, whose members are all in one domain. */
Err bind_collective(Exec *e, const Group *g) MUST_CHECK;

/* The value as a kernel sees it, without data. */
static inline KTensor bind_operand(const Plan *p, int32_t value) {
    const PlanValue *v = plan_value(p, value);
    const int64_t *dims = plan_dims(p, v);
    return (KTensor){
        .dims = dims, .strides = dims + v->rank, .rank = v->rank, .dtype = (DType)v->dtype};
}
/* What a step's kernel is told beside its operands, on the device at `coord`; false when out of
 * memory. */
bool bind_args(const Plan *p, const PlanStep *s, const int32_t coord[MAX_AXES], Arena *a,
               KArgs *args) MUST_CHECK;

/* The buffer whose memory a buffer has: its own, or that of the param that it takes over. */
static inline int32_t exec_root(const Plan *p, int32_t buffer) {
    int32_t take = plan_buffer(p, buffer)->take;
    if (take < 0) return buffer;
    return plan_value(p, PLAN_LIST(p, PlanParam, p->params)[take].value)->buffer;
}

/* A tensor before an item has it. */
typedef struct View {
    KTensor tensor; /* without data */
    OperandRef ref;
} View;
/* The value at `coord`, as the k-th domain has it. */
View bind_view(const Exec *e, int32_t k, int32_t value, const int32_t coord[MAX_AXES]);
/* Part `index` of `parts` along a dim; false when out of memory. */
bool bind_narrow(Exec *e, View *v, int dim, int64_t index, int64_t parts);

/* An item under construction: room for the operands; NULL when out of memory. */
Item *bind_add_item(Exec *e, const PlanStep *s, const char *kernel, int nin, int nout);
void bind_set_view(Item *item, int k, const View *v);
/* Units and scratch, or what the GPU runs, once operands and attr are set. */
Err bind_finish_item(Exec *e, Item *item) MUST_CHECK;
Err bind_copy(Exec *e, const PlanStep *s, const View *from, const View *to) MUST_CHECK;
Err bind_zeros(Exec *e, const PlanStep *s, const View *to) MUST_CHECK;
/* An item that reduces n tensors, the roots of a tree. */
Err bind_reduction(Exec *e, const PlanStep *s, const Root *root, const View *from, int32_t n,
                   const View *to) MUST_CHECK;
#endif
