/* attrs.h - what ops know beside their operands, where more than one file reads it. A struct that
 * its family alone reads stands there, beside the row; the kernels' own are in kernel.h. */
#ifndef MESHLUA_ATTRS_H
#define MESHLUA_ATTRS_H

#include "ir/attr.h"

typedef struct ParamAttr {
    int64_t index; /* 1-based */
    const char *name;
    int32_t state; /* kept in a Param rather than passed as data: its layout propagates second */
} ParamAttr;
typedef struct NameAttr {
    const char *name;
} NameAttr;
typedef struct ConstrainAttr {
    const Layout *layout;
    int32_t state; /* asked because a Param lies so: it propagates with the Params */
} ConstrainAttr;
typedef struct FullAttr {
    int32_t dtype;
    Dims dims;
    Scalar value; /* one that the dtype holds: what is folded is what would be computed */
} FullAttr;
typedef struct IotaAttr {
    int32_t dtype;
    Dims dims;
    int32_t dim;
} IotaAttr;
typedef struct RandomAttr {
    int64_t bits; /* 32 -> uint32, 64 -> int64 */
    Dims strides; /* of the global shape, in elements */
} RandomAttr;
typedef struct IntPowAttr {
    int64_t exponent;
} IntPowAttr;
typedef struct DtypeAttr {
    int32_t dtype;
} DtypeAttr;
typedef struct ShapeAttr {
    Dims dims;
} ShapeAttr;
typedef struct PermAttr {
    Dims perm; /* result dim d is operand dim perm[d] */
} PermAttr;
typedef struct BroadcastAttr {
    Dims dims, at; /* operand dim d is result dim at[d]; it has that size, or 1 */
} BroadcastAttr;
typedef struct SliceAttr {
    Dims start, limit, step; /* 0-based, limit exclusive, step > 0 */
} SliceAttr;
typedef struct AxesAttr {
    Dims axes;    /* ascending */
    int32_t wide; /* sum: see OpDef.wide */
} AxesAttr;
typedef struct PadAttr {
    Dims low, high, interior;
} PadAttr;
typedef struct AxisAttr {
    int32_t axis;
} AxisAttr;
typedef struct MatmulAttr {
    Dims x_contract, w_contract, x_batch, w_batch; /* pairs by position */
    int32_t wide;                                  /* see OpDef.wide */
} MatmulAttr;
/* gather, scatter: ids name dims `axes` of x, which are `size` long in the whole x. Dim d of the
 * rows (gather's result, scatter's updates) is dim table[d] of x and dim ids[d] of the ids; -1: it
 * is none. Of several axes the ids have a last dim, with one for each. */
typedef struct IndexAttr {
    Dims axes, table, ids, size;
    Dims rows;       /* scatter_add: how long the axes are on this device */
    int32_t outside; /* KOutside */
    int32_t combine; /* scatter: KCombine */
    int32_t wide;    /* scatter_add: see OpDef.wide */
} IndexAttr;
typedef struct ExamplesAttr {
    const char *name; /* of the vmap, interned */
    int64_t size;     /* its examples */
} ExamplesAttr;
typedef struct DropoutAttr {
    double keep;
    Dims strides; /* of the global shape, in elements */
} DropoutAttr;
typedef enum PcastTo { PCAST_VARYING, PCAST_UNREDUCED, PCAST_REDUCED, PCAST_GATHERED } PcastTo;
typedef struct PcastAttr {
    uint32_t axes;
    int32_t to; /* PcastTo */
} PcastAttr;
/* Operands of a scan: carries, xs, constants; results: carries, ys. */
typedef struct ScanAttr {
    int64_t ncarry, nxs, length;
    int32_t reverse;
} ScanAttr;
/* Collectives. `axes`: the mesh axes of the group, major to minor; `dim`: the tensor's. */
typedef struct GatherAttr {
    int32_t dim;
    AxisList axes;
} GatherAttr;
typedef struct ReduceAttr {
    uint32_t axes;
    int32_t kind; /* ReduceKind */
} ReduceAttr;
typedef struct ScatterAttr {
    int32_t dim;
    AxisList axes;
    int32_t kind;
} ScatterAttr;
typedef struct AllToAllAttr {
    int32_t split, concat; /* `split` is divided over the axes, `concat` is put together */
    AxisList axes;
} AllToAllAttr;
typedef struct PpermuteAttr {
    AxisList axes;
    const IntList *pairs; /* source, destination, ...: 0-based places along `axes` */
} PpermuteAttr;
typedef struct PermuteAttr {
    const Layout *from, *to; /* equal local shapes */
} PermuteAttr;

#endif
