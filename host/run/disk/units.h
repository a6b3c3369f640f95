/* units.h - who writes what of a tensor that several processes hold, and in which units its bytes
 * are hashed. Both follow from the tensor's type alone, so that every process knows all of it, and
 * who has no devices does, too.
 *
 * Of a distinct part (one slot of the layout) its holders are the processes of its devices, rising.
 * A part of less than UNITS_SMALL bytes is written by holder number (index of the tensor) mod
 * (number of holders); a larger one is cut along its first dim with at least as many elements as
 * there are holders, into ranges of equal length but for the last ones, one for each holder in
 * their order. What a writer has is cut along its first dim into units of at most UNITS_BYTES; one
 * element of that dim that is larger is cut on along the next. */
#ifndef MESHLUA_RUN_DISK_UNITS_H
#define MESHLUA_RUN_DISK_UNITS_H

#include "ir/type.h"

enum { UNITS_SMALL = 1 << 20, UNITS_BYTES = 8 << 20 };

typedef struct UnitBox {
    Dims at, size; /* in the tensor */
} UnitBox;

/* Of a job: how many processes, and how many devices each has. Devices are numbered by process. */
typedef struct UnitsJob {
    int32_t processes, devices;
} UnitsJob;

typedef struct UnitsWriter {
    int32_t process, slot; /* the slot among all of the layout */
    UnitBox box;
} UnitsWriter;

typedef Err UnitsFn(void *ud, const UnitsWriter *w);
typedef Err UnitsBoxFn(void *ud, const UnitBox *unit);

/* Calls fn for every writer of every part, slots rising. A tensor without a mesh is in all
 * processes. Stops at the first error. */
Err units_writers(Ctx *cx, const Type *type, int32_t index, UnitsJob job, UnitsFn *fn,
                  void *ud) MUST_CHECK;
/* Calls fn for the units of a writer's box, row-major. */
Err units_cut(DType dtype, const UnitBox *box, UnitsBoxFn *fn, void *ud) MUST_CHECK;

#endif
