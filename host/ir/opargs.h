/* opargs.h - what the functions of an op's row (opdef.h) are given, and what they fill. */
#ifndef MESHLUA_OPARGS_H
#define MESHLUA_OPARGS_H

#include "ir/collective.h"
#include "ir/attr.h"
#include "ir/factor.h"
#include "ir/mode.h"
#include "ir/type.h"

struct Affine;
struct Build;
struct Graph;
struct Node;
struct Offset;

typedef struct OpArgs {
    Ctx *cx;
    const struct OpDef *def;
    int nin;
    const Type *const *in;
    const void *attr;
} OpArgs;

typedef struct OutType {
    DType dtype;
    bool weak;
    Dims dims;
} OutType;

/* What differentiates the regions of a node for its rule. */
typedef struct RegionGrads {
    /* As pass_grad: the cotangents of `wrt` given those of `y`. */
    void (*grad)(struct Build *b, const int32_t *y, const int32_t *ct, int ny, const int32_t *wrt,
                 int nwrt, int32_t *grad);
    /* Given the parameters of `region` that lead from a variable: the results that do. */
    void (*active)(struct Build *b, int32_t region, const bool *param, bool *result);
    /* The cotangents of the region's parameters (0: zero) given those of its results. What is built
     * stands where `b` does, and finds the values of the region there by `primal`. */
    void (*region)(struct Build *b, int32_t region, const bool *param, const int32_t *ct,
                   int32_t (*primal)(void *ud, struct Build *b, int32_t v), void *ud,
                   int32_t *dparam);
} RegionGrads;

typedef struct VjpArgs {
    const struct Node *node;
    const int32_t *in, *out; /* values */
    const int32_t *ct;       /* cotangent of each result; 0 where it is zero */
    int32_t *din;            /* to fill; 0 stays "no gradient" */
    uint64_t wanted;         /* bit i: operand i (the last bit: all beyond) leads to a variable */
    const struct RegionGrads *regions; /* for nodes that own regions */
} VjpArgs;

/* What puts the regions of a node on all examples for its rule. */
typedef struct RegionBatch {
    /* Given the parameters of `region` that are mapped: the results that are. */
    void (*mapped)(const struct RegionBatch *r, int32_t region, const bool *param, bool *result);
    /* The region on all examples, as a new one; `result`: those that are mapped, at least the ones
     * that must be. */
    int32_t (*region)(const struct RegionBatch *r, struct Build *b, int32_t region,
                      const bool *param, const bool *result);
} RegionBatch;

/* A node on every example at once: of the operands, those that are `mapped` have the examples along
 * dim 1, in front of their own dims; so has every result. */
typedef struct BatchArgs {
    const struct OpDef *def;
    const struct Node *node; /* of one example */
    int64_t size;            /* examples */
    const int32_t *in;       /* values */
    const bool *mapped;      /* by operand: one at least */
    const char *const *axis; /* mesh axes that constraints put on the examples, or none */
    int32_t naxis;
    const char *name; /* the vmap's axis_name, interned, or NULL */
    int32_t *out;     /* to fill; 0 stays "by its expansion" */
    bool *same;       /* by result: it is not mapped after all; for nodes that own regions */
    const struct RegionBatch *regions;
} BatchArgs;

/* One way in or out of the regions that a node owns: which values belong together. -1: none there.
 * A constant of a loop has an operand and a parameter, a carry all four, a stacked result a result
 * of the region and one of the node. */
typedef struct Flow {
    int32_t in, out;       /* operand and result of the node */
    int32_t param, result; /* of each of its regions */
    bool carried;          /* what is `result` of one iteration is `param` of the next */
    bool stacked; /* outside is the stack, along dim 1, of what is inside at each iteration */
    bool steers;  /* says which region runs, or whether the loop goes on */
} Flow;

/* How the regions of a node run. */
typedef struct ControlInfo {
    bool branch;                   /* one of them, by number; else the one region again and again */
    bool reverse;                  /* the last slice first */
    int64_t trips;                 /* -1: as long as what steers is true */
    const struct GuardAttr *guard; /* a branch that nothing steers: which region runs when */
} ControlInfo;

typedef struct SettleArgs {
    const struct Graph *from; /* the graph that the node stands in */
    const struct Node *node;
    const struct Affine *index; /* what its first operand is known to be, or NULL */
    bool plain;                 /* nothing is to be skipped, whatever is known */
    const int32_t *region;      /* its regions in the new graph, and operands there */
    const int32_t *in;
    int32_t *out; /* to fill */
} SettleArgs;

typedef struct LocalArgs {
    Ctx *cx;
    int nin, nout;
    const Type *const *in, *const *out;                 /* global types */
    const Layout *const *in_layout, *const *out_layout; /* what the factors give each tensor */
    void *attr;                                         /* a copy, to rewrite */
    struct Offset *offset;                              /* room for 2 * MAX_RANK */
    int noffset;
} LocalArgs;

/* What a collective does, for the plan. */
typedef struct CollectiveInfo {
    CollectiveKind kind;
    ReduceKind reduce;
    uint32_t axes;           /* the group's mesh axes */
    int32_t dim, dim2;       /* gather, scatter: the dim; all_to_all: split, concat */
    AxisList list;           /* gather, scatter, all_to_all */
    const Layout *from, *to; /* permute */
    const IntList *pairs;    /* permute without layouts: who sends to whom in the group */
} CollectiveInfo;

/* Byte strides of an operand of `dims`; to fill: those of the result, and where it starts. */
typedef struct ViewArgs {
    const void *attr;
    const Dims *in_dims, *out_dims;
    const int64_t *in_strides;
    int64_t *out_strides;
    int64_t start; /* bytes */
    /* The same for each offset of the node: bytes per unit of offset i. */
    int64_t per_offset[MAX_RANK];
} ViewArgs;

#endif
