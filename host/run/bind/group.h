/* group.h - who takes part in a collective, and which parts go where: pure counting, the same on
 * every process. */
#ifndef MESHLUA_RUN_BIND_GROUP_H
#define MESHLUA_RUN_BIND_GROUP_H

#include "ir/place.h"
#include "ir/plan.h"

/* The groups of a collective: devices that differ in the digits alone. */
typedef struct DeviceGroup {
    const Plan *plan;
    const PlanStep *step;
    AxisRef digit[MAX_AXES * 2]; /* major first */
    int32_t ndigit, size;
} DeviceGroup;

DeviceGroup group_of(const Plan *p, const PlanStep *s);
/* The coordinates of the group's member with that number; `coord` says which group. */
void group_member(const DeviceGroup *g, const int32_t coord[MAX_AXES], int32_t number,
                  int32_t out[MAX_AXES]);
int32_t group_number(const DeviceGroup *g, const int32_t coord[MAX_AXES]);
/* The index in the mesh of the group's first member, which stands for the group. */
int32_t group_first(const DeviceGroup *g, const Mesh *m, const int32_t coord[MAX_AXES]);
/* Are there groups with devices of several domains? The same on all of them. */
bool group_crosses(const DeviceGroup *g, const Mesh *m);

/* Where a part of a result comes from, in a collective that only moves: part `from_part` of the
 * operand of the device at `from` becomes part `to_part` of it. */
typedef struct GroupSource {
    int32_t from[MAX_AXES];
    int32_t from_dim, from_part, from_parts, to_dim, to_part, to_parts;
} GroupSource;
/* How many the result of the device at `coord` has; 0: it is zeros. */
int32_t group_sources(const DeviceGroup *g, const int32_t coord[MAX_AXES]);
GroupSource group_source(const DeviceGroup *g, const int32_t coord[MAX_AXES], int32_t k);

/* A reduction is a binary tree over the group's members: the first h, h the largest power of 2
 * below their number, and the others. Domains reduce whole subtrees, so the tree, and with it
 * every bit, is the same however the devices are spread over them. */
typedef struct Subtree { /* of a largest subtree with all its members in one domain */
    int32_t first, n;    /* members */
    int32_t domain;
} Subtree;
/* How many of n members stand on the left. */
static inline int32_t tree_half(int32_t n) {
    int32_t half = 1;
    while (half * 2 < n) half *= 2;
    return half;
}
/* Cuts the tree: by member its domain; fills `root`, at most n, in order, and says how many. */
int32_t group_cut(const int32_t *domain, int32_t n, Subtree *root);
/* Have the roots, as if they were members, the tree that the cut left above them? */
bool group_is_even(const Subtree *root, int32_t count);

#endif
