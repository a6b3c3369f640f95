/* device_text.h - what a plan's kernels are on GPUs, as text. */
#ifndef MESHLUA_RUN_BIND_DEVICE_TEXT_H
#define MESHLUA_RUN_BIND_DEVICE_TEXT_H

#include "ir/plan.h"
#include "run/runtime/runtime.h"

/* For each step that is a kernel: its number in the plan, and what the library for GPUs makes of it
 * for the first device (device.h: DeviceSource); the same text once. Needs no GPU; E_DEVICE where
 * the library is missing. */
Err device_text_print(Runtime *rt, const Plan *p, Str *s) MUST_CHECK;

#endif
