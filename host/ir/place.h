/* place.h - which slots of a tensor on a mesh a process has: those of its own devices.
 *
 * Devices that agree along the axes of `vary` share a slot (plan.h). All slots are numbered
 * row-major; a process numbers those it has, in the same order. Where one process has all devices
 * the two are the same. */
#ifndef MESHLUA_PLACE_H
#define MESHLUA_PLACE_H

#include "ir/mesh.h"

/* The process of the device at `index` of the grid. */
static inline int32_t place_process(const Mesh *m, int32_t index) {
    return m->each ? m->device[index] / m->each : m->process;
}
/* Are devices of other processes on it, too? */
static inline bool place_is_spread(const Mesh *m) {
    return m && m->spread;
}
/* The index in the grid of the device at `coord`, and the number of its slot among all. */
int32_t place_index(const Mesh *m, const int32_t coord[MAX_AXES]);
int32_t place_number(const Mesh *m, uint32_t vary, const int32_t coord[MAX_AXES]);

/* Has a process devices on it? */
bool place_is_in(const Mesh *m, int32_t process);

/* How many slots a process has; 1 for NULL. */
int32_t place_slots(const Mesh *m, uint32_t vary, int32_t process);
/* Which of the process's slots the device at `coord` uses, or -1; 0 for NULL. */
int32_t place_slot(const Mesh *m, uint32_t vary, int32_t process, const int32_t coord[MAX_AXES]);
/* The first of the process's devices in that slot: its coordinates. */
void place_coords(const Mesh *m, uint32_t vary, int32_t process, int32_t slot,
                  int32_t coord[MAX_AXES]);

#endif
