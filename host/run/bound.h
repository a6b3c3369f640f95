/* bound.h - the plans that are bound in this process, by number. What a kernel finds wrong in its
 * data is known long after its launch where that went to a GPU: a tag of plan and step leads back
 * to the line as long as the plan is bound. */
#ifndef MESHLUA_RUN_BOUND_H
#define MESHLUA_RUN_BOUND_H

#include "ir/plan.h"
#include "kernel.h"

typedef struct BoundPlan {
    struct BoundPlan *prev, *next;
    const Plan *plan;
    int32_t serial; /* among all that have been, from 1 */
} BoundPlan;

typedef struct BoundPlans {
    BoundPlan *first;
    int32_t serials;
} BoundPlans;

void bound_add(BoundPlans *all, BoundPlan *b, const Plan *plan);
void bound_remove(BoundPlans *all, BoundPlan *b);
/* By this number a fault leads to its step. */
static inline int64_t bound_tag(const BoundPlan *b, int32_t step) {
    return (int64_t)b->serial << 32 | step;
}
/* The error of what a kernel found, by the tag of its launch. */
Err bound_fault(Ctx *cx, const BoundPlans *all, int64_t tag, const KFault *fault);

#endif
