/* manual.h - into manual mode and out of it: see ir/mode.h. */
#ifndef MESHLUA_MANUAL_H
#define MESHLUA_MANUAL_H

#include "op/op.h"

/* The block of x that each device has under `layout`, whose axes are among `axes`: those that
 * become manual; and back, where x varies over axes of the layout only. */
Val manual_enter(Build *b, Val x, const Layout *layout, uint32_t axes);
Val manual_exit(Build *b, Val x, const Layout *layout, uint32_t axes);
Val manual_cast(Build *b, Val v, Mode m); /* see Interns.cast */
/* An error unless all the axes are manual for the operands. */
Err manual_check(const OpArgs *a, uint32_t axes, const ModeRule *r) MUST_CHECK;

#endif
