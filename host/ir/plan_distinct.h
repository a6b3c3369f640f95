/* plan_distinct.h - how many devices do work that no other does as well, step by step. */
#ifndef MESHLUA_PLAN_DISTINCT_H
#define MESHLUA_PLAN_DISTINCT_H

#include "ir/plan.h"

/* The parts of each mesh axis along which something differs. */
typedef struct PlanDigits {
    uint16_t at[MAX_AXES];
} PlanDigits;

/* Fills distinct[step]: of p->ndevices devices so many do different work. `room` is for one
 * PlanDigits per buffer. */
void plan_distinct(const Plan *p, PlanDigits *room, double *distinct);

#endif
