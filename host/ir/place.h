/* place.h - which slots of a tensor on a mesh are in which domain.
 *
 * Devices that share one memory are a domain: those of a process on processors, or those of a GPU,
 * of which a process may have several. Devices that agree along the axes of `vary` share a slot
 * (plan.h), but only within a domain. All slots are numbered row-major; a domain numbers those of
 * its own devices, in the same order; a process numbers its domains' slots one after the other.
 * Where one domain has all devices the three are the same. */
#ifndef MESHLUA_PLACE_H
#define MESHLUA_PLACE_H

#include "ir/mesh.h"

/* The domain of the device at `index` of the grid, among those of all processes; its process. */
static inline int32_t place_domain(const Mesh *m, int32_t index) {
    return m->each ? m->device[index] / m->each : m->domain;
}
static inline int32_t place_process(const Mesh *m, int32_t index) {
    return place_domain(m, index) / m->domains;
}
/* Is the device in this process? */
static inline bool place_is_own(const Mesh *m, int32_t index) {
    return place_process(m, index) == m->domain / m->domains;
}
/* Are its devices in several domains? */
static inline bool place_is_spread(const Mesh *m) {
    return m && m->spread;
}
/* The index in the grid of the device at `coord`, and the number of its slot among all. */
int32_t place_index(const Mesh *m, const int32_t coord[MAX_AXES]);
int32_t place_number(const Mesh *m, uint32_t vary, const int32_t coord[MAX_AXES]);

/* ---- of a domain ---- */

/* How many slots it has. */
int32_t place_slots(const Mesh *m, uint32_t vary, int32_t domain);
/* Which of them the device at `coord`, of any domain, would use, or -1. */
int32_t place_slot(const Mesh *m, uint32_t vary, int32_t domain, const int32_t coord[MAX_AXES]);
/* The first of its devices in that slot: its coordinates. */
void place_coords(const Mesh *m, uint32_t vary, int32_t domain, int32_t slot,
                  int32_t coord[MAX_AXES]);

/* ---- of this process; without a mesh (NULL) there is one slot, in the first domain ---- */

/* Has it devices on the mesh? */
bool place_has_own(const Mesh *m);
/* Its slots; those before the k-th of its domains; the domain, of its own, that a slot is in. */
int32_t place_own_slots(const Mesh *m, uint32_t vary);
int32_t place_own_first(const Mesh *m, uint32_t vary, int32_t k);
int32_t place_own_domain(const Mesh *m, uint32_t vary, int32_t slot);
/* The slot of a device of its own. */
int32_t place_own_slot(const Mesh *m, uint32_t vary, const int32_t coord[MAX_AXES]);
/* The first device in that slot: its coordinates. */
void place_own_coords(const Mesh *m, uint32_t vary, int32_t slot, int32_t coord[MAX_AXES]);
/* Has it every slot that there is, in one domain or another? */
bool place_own_all(const Mesh *m, uint32_t vary);

#endif
