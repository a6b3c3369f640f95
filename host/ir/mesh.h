/* mesh.h - a grid of devices with named axes. Interned: equal meshes are one object. */
#ifndef MESHLUA_MESH_H
#define MESHLUA_MESH_H

#include "ir/intern.h"

enum { MAX_AXES = 8, MAX_DEVICES = 65535 };

typedef enum AxisType { AXIS_AUTO, AXIS_EXPLICIT, AXIS_MANUAL } AxisType;

typedef struct Mesh {
    int32_t id, naxes;
    const char *name[MAX_AXES]; /* interned */
    int32_t size[MAX_AXES];
    uint8_t type[MAX_AXES]; /* AxisType */
    int32_t ndevices;
    int32_t domain, domains, each; /* this process's, and the devices of each, as in Ctx */
    bool spread;                   /* its devices are in several domains */
    bool abstract;                 /* sizes and names alone: for planning, not for running */
    const int32_t *device; /* ids, row-major: the last axis is the fastest; abstract: 0, 1, ... */
    int32_t nids;          /* above all of them */
    const int32_t *index;  /* by id: its place in the grid, or -1; where it is spread */
} Mesh;

/* Checks names (distinct, not empty), sizes (positive) and the device list (distinct, as many as
 * the product of sizes; NULL: the mesh is abstract), then interns. */
Err mesh_of(Ctx *cx, int naxes, const char *const *names, const int32_t *sizes,
            const uint8_t *types, const int32_t *devices, const Mesh **out) MUST_CHECK;
int mesh_axis(const Mesh *m, const char *name); /* its index, or -1 */
/* Sets coord[axis] of the device at `index` of the row-major grid. */
void mesh_coords(const Mesh *m, int32_t index, int32_t coord[MAX_AXES]);
/* The axes of a type, as a mask; 0 for NULL. */
uint32_t mesh_axes_of(const Mesh *m, AxisType type);
/* The product of the sizes of the axes in `mask`. */
int32_t mesh_product(const Mesh *m, uint32_t mask);
void mesh_print(const Mesh *m, Str *s);         /* "Mesh(data=4, model=2 explicit)"; "device 3" */
void mesh_print_devices(const Mesh *m, Str *s); /* "devices 0..7", "devices 3,1" */
void mesh_print_axes(const Mesh *m, uint32_t mask, Str *s); /* "data,model" */

#endif
