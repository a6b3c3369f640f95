/* plant.h - the fault that tests of verify plant: the op Ctx.planted is wrong
 * wherever it is split. */
#ifndef MESHLUA_PASS_PARTITION_PLANT_H
#define MESHLUA_PASS_PARTITION_PLANT_H

#include "pass/pass.h"

/* Devices start at half of what they should. */
void plant_offsets(const Ctx *cx, const Node *n, Offset *offset, int noffset);
/* A result of the node, too large by the number of devices along the axes (a
 * mask) that split it. */
Val plant_result(Build *b, const Node *n, Val v, uint32_t axes);

#endif
