/* plan_cost.h - what a step of a plan costs one device, all its times. */
#ifndef MESHLUA_LUA_JIT_PLAN_COST_H
#define MESHLUA_LUA_JIT_PLAN_COST_H

#include "run/exec/exec.h"

typedef struct StepCost {
    double seconds;       /* at best */
    double sent, between; /* bytes; of these to devices on other hosts */
} StepCost;

/* How many members of groups over such axes stand in one host: a plan has few kinds of groups, and
 * a group many members. Zeroed at first. */
typedef struct KnownGroups {
    uint32_t axes[8];
    AxisList list[8];
    int32_t together[8], n;
} KnownGroups;

StepCost plan_cost(const Exec *e, const PlanStep *s, KnownGroups *known);

#endif
