/* seed.h - where propagation starts: what was written about values, and what their types say. */
#ifndef MESHLUA_PASS_LAYOUT_SEED_H
#define MESHLUA_PASS_LAYOUT_SEED_H

#include "pass/pass.h"

/* Parameters closed and whole, everything else open; `layout`: by value. */
void seed_all(const Graph *g, Layout *layout);
/* The dims of this priority begin to speak, of data or of what is kept in Params (`state`). Those
 * of a later one wait, whole; their axes are not for other dims of the tensor. `changed`, by value,
 * is set to `now` where something was written. */
void seed_written(const Graph *g, Layout *layout, int priority, bool state, int32_t *changed,
                  int32_t now);
int seed_last_priority(const Graph *g);

#endif
