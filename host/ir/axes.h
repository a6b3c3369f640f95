/* axes.h - lists of mesh axes, or of parts of them, major to minor. */
#ifndef MESHLUA_AXES_H
#define MESHLUA_AXES_H

#include "ir/mesh.h"

/* A mesh axis, or a part of one: the axis seen as [pre, size, rest], this is `size`. A whole axis
 * has pre 1. Parts arise inside, when a dim is split by reshape; users never see or write them. */
typedef struct AxisRef {
    uint16_t axis, pre, size;
} AxisRef;

typedef struct AxisList {
    uint16_t n;
    AxisRef at[MAX_AXES]; /* major to minor */
} AxisList;

/* What differs per device: unit * (the device's index along `axes`). */
typedef struct Offset {
    AxisList axes;
    int64_t unit;
} Offset;

bool axes_equal(const AxisList *a, const AxisList *b);
/* Is `a` a prefix of `b`? A leading part of an axis is a prefix of it. */
bool axes_is_prefix(const AxisList *a, const AxisList *b);
int32_t axes_product(const AxisList *a);
uint32_t axes_mask(const AxisList *a);
bool axes_overlap(AxisRef a, AxisRef b);
/* Appends, joining parts of one axis that follow each other. */
void axes_push(AxisList *list, AxisRef r);
AxisRef axes_whole(const Mesh *m, int axis);
/* The coordinate of a device along the list, as one number, major axis first. */
int32_t axes_index(const AxisList *list, const Mesh *m, const int32_t coord[MAX_AXES]);
void axes_print(const AxisList *list, const Mesh *m, Str *s); /* "data", "(x,y)" */

#endif
