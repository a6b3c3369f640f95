/* opdef.h - what the passes need to know about an op: one row per op, in its family's file.
 *
 * A pass looks up fields here and never asks which op it has. A row with a hole that nothing fills
 * (no shape rule, no gradient and no word that it has none, no sharding rule, nothing that runs it)
 * refuses to start; see op_init. */
#ifndef MESHLUA_OPDEF_H
#define MESHLUA_OPDEF_H

#include "ir/attr.h"
#include "ir/factor.h"
#include "ir/mode.h"
#include "ir/type.h"

struct Build;
struct Emit;
struct Node;
struct Offset;

enum {
    OPF_ELEMENTWISE = 1 << 0, /* every operand and result has the same dims; fuses */
    OPF_COMMUTES = 1 << 1,    /* operands 0 and 1 may be swapped */
    OPF_JOINT = 1 << 2,       /* linear in the operands of `linear` taken together (add, select) */
    OPF_NO_GRAD = 1 << 3,     /* derivative zero or undefined: gradients stop here */
    OPF_SOURCE = 1 << 4,      /* no tensor operand, cheap: copied per use rather than shared */
    OPF_PARAM = 1 << 5,       /* a region's parameter */
    OPF_COLLECTIVE = 1 << 6,  /* moves data between devices; of local or manual values */
    OPF_CONSTRAINT = 1 << 7,  /* the layout attribute is the result's, whatever its operand has */
    OPF_BARRIER = 1 << 8,     /* folding and CSE stop here */
    OPF_TYPED = 1 << 9,       /* result types come from the builder, not from `shape` */
    OPF_INTERNAL = 1 << 10,   /* not offered to Lua under its own name */
    OPF_SAVE = 1 << 11,       /* remat policies: worth keeping (matrix products) */
    OPF_ALIAS_ANY = 1 << 12,  /* any result may take over any operand of its dtype and dims */
    OPF_FAULTS = 1 << 13,     /* its kernel can find fault with the values (an id out of range), or
                               * Ctrl-C can stop it half-way */
    OPF_CAST = 1 << 14,       /* only the type is another: nothing is left of it when partitioned */
    OPF_LAYOUT_STOP = 1 << 15, /* no layout propagates through it */
    OPF_PLACEHOLDER = 1 << 16, /* in traces only: nothing that is needed may depend on it */
    OPF_WAIT = 1 << 17,        /* a view of operand 0 once it is there; holds the others until then */
};

/* How the operands of a call from outside meet before the op sees them (op_apply). */
typedef enum OpPromote {
    PROMOTE_NONE,
    PROMOTE_ALL,       /* one dtype, broadcast */
    PROMOTE_FLOAT,     /* one dtype, broadcast, integers become float32 */
    PROMOTE_INT,       /* one dtype, broadcast, floats are refused */
    PROMOTE_BROADCAST, /* broadcast all, operand 0 (a condition) keeps its dtype */
} OpPromote;

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
    int32_t *out; /* to fill; 0 stays "by its expansion" */
    bool *same;   /* by result: it is not mapped after all; for nodes that own regions */
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
    bool branch;   /* one of them, by number; else the one region again and again */
    bool reverse;  /* the last slice first */
    int64_t trips; /* -1: as long as what steers is true */
} ControlInfo;

typedef struct LocalArgs {
    Ctx *cx;
    int nin, nout;
    const Type *const *in, *const *out;                 /* global types */
    const Layout *const *in_layout, *const *out_layout; /* what the factors give each tensor */
    void *attr;                                         /* a copy, to rewrite */
    struct Offset *offset;                              /* room for 2 * MAX_RANK */
    int noffset;
} LocalArgs;

typedef enum CollectiveKind {
    COLL_NONE,
    COLL_ALL_GATHER,
    COLL_ALL_REDUCE,
    COLL_REDUCE_SCATTER,
    COLL_ALL_TO_ALL,
    COLL_PERMUTE
} CollectiveKind;

/* What a collective does, for the plan. */
typedef struct CollectiveInfo {
    CollectiveKind kind;
    PartialKind reduce;
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

/* May dims be padded: along which factors does what is behind a dim's end stay behind one, or count
 * for nothing? */
typedef enum Pads {
    PADS_NONE, /* along none, unless the op is elementwise */
    PADS_PASS, /* pass factors */
    PADS_ALL   /* also reductions, where the padding holds their identity */
} Pads;

typedef struct OpDef {
    const char *name;     /* NULL: a hole in the table */
    const char *operands; /* names of the tensor operands, for messages and help: "x,w" */
    const char *doc;      /* one line */
    int8_t nin, nout;     /* -1: any number (nout: as `shape` says) */
    uint32_t flags;
    OpPromote promote;
    const AttrField *attr;
    size_t attr_size;

    /* Result types. Reports E_SHAPE, E_DTYPE, E_VALUE through op_error. `out` has room for
     * max(nin, 8); *nout starts as `nout` of the row, or nin if that is -1. */
    Err (*shape)(const OpArgs *a, OutType *out, int *nout);
    /* Appends the operands' cotangents. NULL with `expand`: differentiates the expansion. */
    void (*vjp)(struct Build *b, const VjpArgs *a);
    /* The op as simpler ops, by definition: what tests compare it to. Fills nout values. */
    void (*expand)(struct Build *b, const struct Node *n, const int32_t *in, int32_t *out);
    /* Appends the op on many examples. NULL for elementwise ops, which need none. */
    void (*batch)(struct Build *b, const BatchArgs *a);
    /* Fills a zeroed rule whose tensors are operands, then results. */
    void (*factors)(const OpArgs *a, const Type *const *out, FactorRule *r);
    /* Rewrites the attributes for one device. NULL: they hold for any part of the tensor. */
    void (*local)(LocalArgs *a);
    /* An equal, simpler value, or 0. Looks at the node's inputs in b->g. */
    int32_t (*fold)(struct Build *b, const struct Node *n, const int32_t *in);
    /* Floating-point operations of one run; NULL: one per element of the first result. */
    double (*flops)(const OpArgs *a, const Type *const *out);
    /* Partitioned graphs: the axes along which results vary, from those of the operands. NULL: the
     * same. */
    uint32_t (*vary)(const OpArgs *a, uint32_t in);
    /* Manual mode: changes the rule, which says that results are as all operands are together. NULL
     * where that holds. */
    Err (*mode)(const OpArgs *a, ModeRule *r);
    /* Into manual mode, or out of it: how the tensor outside lies along the axes that are manual
     * inside; `enters`: the operand is the one outside. */
    const Layout *(*manual)(const void *attr, bool *enters);

    /* What runs it, one of: `view` (no work, new strides; false where the strides do not allow it,
     * then the operand is copied first), `emit` (elementwise: instructions of a fused program),
     * `kernel` (a name in the device's table), or a collective. */
    bool (*view)(ViewArgs *v);
    void (*emit)(struct Emit *e, const struct Node *n, const Type *const *in,
                 const Type *const *out);
    uint8_t instr; /* emit without code: this KOp on the operands in order */
    const char *kernel;
    void (*collective)(const void *attr, CollectiveInfo *c);
    /* The kernel's attribute from the op's: writes at most `lower_size` bytes. NULL: the op's own
     * struct is the kernel's. */
    void (*lower)(const OpArgs *a, const Type *const *out, void *kernel_attr);
    size_t lower_size;
    uint32_t contiguous;   /* operands that must be row-major without gaps (bit per operand) */
    uint32_t inner;        /* operands whose last dim must have the element's stride */
    uint32_t shared;       /* operands that examples must share, or the expansion is batched */
    uint32_t linear;       /* operands in which it is linear (in each alone, unless OPF_JOINT) */
    uint32_t grad_results; /* results whose cotangents `vjp` takes; where another is not zero, the
                            * expansion is differentiated. 0: all */
    size_t wide;  /* where in the attributes an int32 asks that 16-bit floats, which add up in
                   * float32, give float32; 0: there is none */
    uint8_t pads; /* Pads */
    /* Nodes that own regions: their i-th way in or out; false behind the last. The operands,
     * results, parameters and region results are numbered so that leaving some of the ways out
     * leaves the rest in order. */
    bool (*flow)(const struct Node *n, int i, Flow *f);
    /* Rewrites the attributes for the ways that are kept. */
    void (*keep)(const struct Node *n, const bool *kept, void *attr);
    void (*control)(const void *attr, ControlInfo *c);
    int8_t alias[4]; /* of result i: 1 + the operand whose buffer it may take over; 0: none */
} OpDef;

#endif
