/* plan_text.h - what a plan's own text does not show, for golden cases: memory, strides, slices. */
#ifndef MESHLUA_TEST_PLAN_TEXT_H
#define MESHLUA_TEST_PLAN_TEXT_H

#include "ir/plan.h"

/* The plan as plan_print writes it, then its buffers, then operands and results that do not lie
 * row-major from their buffer's start, and what collectives say beyond their axes. */
void plan_text(const Plan *p, const Mesh *m, Str *s);

#endif
