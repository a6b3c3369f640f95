/* plan_cost.h - what a step of a plan costs one device, all its times. */
#ifndef MESHLUA_LUA_JIT_PLAN_COST_H
#define MESHLUA_LUA_JIT_PLAN_COST_H

#include "run/exec/exec.h"

typedef struct StepCost {
    double seconds;       /* at best */
    double sent, between; /* bytes; of these to devices on other hosts */
} StepCost;

StepCost plan_cost(const Exec *e, const PlanStep *s);

#endif
