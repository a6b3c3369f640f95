/* opdef.h - what the passes need to know about an op: one row per op, in its family's file.
 *
 * A pass looks up fields here and never asks which op it has. A row with a hole that nothing fills
 * (no shape rule, no gradient and no word that it has none, no sharding rule, nothing that runs it)
 * refuses to start; see op_init. */
#ifndef MESHLUA_OPDEF_H
#define MESHLUA_OPDEF_H

#include "ir/opargs.h"

struct Affine;
struct AffineArgs;
struct Emit;

enum {
    OPF_ELEMENTWISE = 1 << 0, /* every operand and result has the same dims; fuses */
    OPF_COMMUTES = 1 << 1,    /* operands 0 and 1 may be swapped */
    OPF_JOINT = 1 << 2,       /* linear in the operands of `linear` taken together (add, select) */
    OPF_NO_GRAD = 1 << 3,     /* derivative zero or undefined: gradients stop here */
    OPF_NULLARY = 1 << 4,     /* no tensor operand, cheap: copied per use rather than shared */
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
    OPF_WAIT = 1 << 17,     /* a view of operand 0 once it is there; holds the others until then */
    OPF_LOCAL = 1 << 18,    /* stands in partitioned graphs only: a pass makes it */
    OPF_PRODUCT = 1 << 19,  /* its operations are those of matrix products */
    OPF_ADDITION = 1 << 20, /* the sum of its two operands; 0 changes nothing on either side */
    OPF_COMBINES = 1 << 21, /* a launch on a GPU may take the operands of several steps of it with
                             * one attr: all inputs, step after step, then all outputs */
    /* explicit mode: */
    OPF_RESIZES = 1 << 22, /* what it makes of a dim of operand 0 stays split where that divides */
    OPF_ASKS = 1 << 23,    /* one operand that is split along what is summed over is a question */
};

/* How the operands of a call from outside meet before the op sees them (op_apply). */
typedef enum OpPromote {
    PROMOTE_NONE,
    PROMOTE_ALL,       /* one dtype, broadcast */
    PROMOTE_NUMBER,    /* one dtype, broadcast, bool becomes int32 */
    PROMOTE_FLOAT,     /* one dtype, broadcast, integers become float32 */
    PROMOTE_INT,       /* one dtype, broadcast, floats are refused */
    PROMOTE_BROADCAST, /* broadcast all, operand 0 (a condition) keeps its dtype */
} OpPromote;

/* May dims be padded: along which factors does what is behind a dim's end stay behind one, or count
 * for nothing? */
typedef enum Pads {
    PADS_NONE, /* along none, unless the op is elementwise */
    PADS_PASS, /* pass factors */
    PADS_ALL   /* also reductions, where the padding holds their identity */
} Pads;

/* Partitioned graphs: this op, where its operand `operand` is a result of op `first`, whose
 * operands are those before it: both are made by `op`, of all operands but that one, whose results
 * are those of `first` and then this op's. */
typedef struct OpPair {
    uint16_t op; /* 0: there is none */
    uint16_t first;
    int8_t operand;
} OpPair;

typedef struct OpDef {
    const char *name;     /* NULL: a hole in the table */
    const char *operands; /* names of the tensor operands, for messages and help: "x,w" */
    const char *doc;      /* one line */
    int8_t nin, nout;     /* -1: any number (nout: as `shape` says) */
    uint32_t flags;
    OpPromote promote;
    uint16_t of_bool; /* the op that it is of operands that meet in bool; 0: itself */
    const AttrField *attr;
    size_t attr_size;

    /* Result types. Reports E_SHAPE, E_DTYPE, E_VALUE through op_error. `out` has room for
     * max(nin, 8); *nout starts as `nout` of the row, or nin if that is -1. */
    Err (*shape)(const OpArgs *a, OutType *out, int *nout);
    /* Appends the operands' cotangents. NULL with `expand`: differentiates the expansion. */
    void (*vjp)(struct Build *b, const VjpArgs *a);
    /* The op as simpler ops, by definition: what tests compare it to. Fills nout values. */
    void (*expand)(struct Build *b, const struct Node *n, const int32_t *in, int32_t *out);
    /* Partitioned graphs: the same in two steps, the first of `most` parts at most, where one would
     * leave most threads without work; out[0] stays 0 where it is well as it is. */
    void (*split)(struct Build *b, const struct Node *n, const int32_t *in, int32_t *out,
                  int64_t most);
    OpPair pair;
    /* Appends the op on many examples. NULL for elementwise ops, which need none. */
    void (*batch)(struct Build *b, const BatchArgs *a);
    /* Fills a zeroed rule whose tensors are operands, then results. */
    void (*factors)(const OpArgs *a, const Type *const *out, FactorRule *r);
    /* Rewrites the attributes for one device. NULL: they hold for any part of the tensor. */
    void (*local)(LocalArgs *a);
    /* An equal, simpler value, or 0. Looks at the node's inputs in b->g. */
    int32_t (*fold)(struct Build *b, const struct Node *n, const int32_t *in);
    /* The result, of integers and bools, as what is known of its operands says (affine.h); false:
     * it is nothing of that kind. NULL: never. */
    bool (*affine)(const struct AffineArgs *a, struct Affine *out);
    /* With OPF_FAULTS: can a kernel with these attributes find fault? NULL: with any. */
    bool (*faults)(const void *attr);
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
     * `kernel` (a name in the device's table), `split` where it always does, or a collective. */
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
    uint8_t work; /* elementwise: the time an element takes, in that of an addition; 0: the same */
    /* Nodes that own regions: their i-th way in or out; false behind the last. The operands,
     * results, parameters and region results are numbered so that leaving some of the ways out
     * leaves the rest in order. */
    bool (*flow)(const struct Node *n, int i, Flow *f);
    /* Rewrites the attributes where each way is there so many times. */
    void (*keep)(const struct Node *n, const uint8_t *times, void *attr);
    /* Appends the node over other regions, with all that a gradient asks for; fills its results. */
    void (*make)(struct Build *b, const int32_t *region, int nregion, const int32_t *in, int nin,
                 const void *attr, int32_t *out);
    void (*control)(const void *attr, ControlInfo *c);
    /* Partitioned graphs, branches whose first operand differs between devices: appends what each
     * of them does by itself. */
    void (*settle)(struct Build *b, const SettleArgs *a);
    int8_t alias[4]; /* of result i: 1 + the operand whose buffer it may take over; 0: none */
} OpDef;

/* In a row: the attributes' struct and the list of its fields; the kernel's struct, and what makes
 * it. */
#define OP_ATTR(type, fields) .attr = (fields), .attr_size = sizeof(type)
#define OP_LOWER(type, make)  .lower = (make), .lower_size = sizeof(type)

#endif
