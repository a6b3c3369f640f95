/* op.h - the table of ops and the calls that build them. */
#ifndef MESHLUA_OP_H
#define MESHLUA_OP_H

#include "ir/affine.h"
#include "ir/build.h"
#include "ir/target.h"
#include "op/attrs.h"

typedef enum OpId {
    OP_NONE,
#define OP(NAME, family) OP_##NAME,
#include "op/oplist.h"
#undef OP
    OP_COUNT
} OpId;

/* Assembles the families' rows into the table, checks that no row has a hole, and gives the table
 * to cx->interns. */
Err op_init(Ctx *cx) MUST_CHECK;
int op_find(const char *name); /* an OpId, or OP_NONE */
const OpDef *op_def(int op);

/* Floating-point operations of one run of the node, which owns no region; `room` has space for its
 * types. */
double op_flops(const Graph *g, const Node *n, const Type **room);
/* By node, in `arena`: the seconds that it takes at best, a loop all its iterations, as far as they
 * are known, a branch its longest. NULL when out of memory. */
double *op_seconds(const Graph *g, const Target *target, Arena *arena);

/* Reports the error with the op's name before the text and its operands' types behind it. */
Err op_error(const OpArgs *a, ErrCode code, const char *fmt, ...) PRINTF(3, 4);

/* E_SHAPE where a tensor of that rank has no such axis. */
Err op_check_axis(const OpArgs *a, int64_t axis, int rank);

/* ---- operands from outside ---- */

/* A value, or (value 0) a number that takes the dtype of what it meets. */
typedef struct Operand {
    Val v;
    bool is_float;
    Scalar number;
} Operand;

/* Brings the operands to one dtype and shape, as the op's row says, and applies the op. */
Val op_apply(Build *b, int op, const Operand *in, int nin, const void *attr);

/* Is it a parameter whose tensor is kept in a Param? */
static inline bool op_is_state(const Node *n) {
    return n->op == OP_PARAM && ((const ParamAttr *)n->attr)->state;
}

/* Does what is written about its layout stand in a Param: one's own, or that
 * of what goes into it? */
static inline bool op_lies_as_state(const Node *n) {
    return op_is_state(n) || (n->op == OP_CONSTRAIN && ((const ConstrainAttr *)n->attr)->state);
}

/* ---- formulas: short names for rules. All take values of equal dims and dtype. ---- */
static inline Val op1(Build *b, int op, Val x) {
    return build_op(b, op, &x, 1, NULL);
}
static inline Val op2(Build *b, int op, Val x, Val y) {
    return build_op(b, op, (Val[]){x, y}, 2, NULL);
}
static inline Val op3(Build *b, int op, Val x, Val y, Val z) {
    return build_op(b, op, (Val[]){x, y, z}, 3, NULL);
}
/* A constant of the dtype and dims of `like`. */
Val op_const_like(Build *b, Val like, double x);
Val op_scalar(Build *b, DType dtype, Scalar x);
Val op_full(Build *b, DType dtype, const Dims *dims, Scalar x);
Val op_astype(Build *b, Val x, DType dtype); /* x itself if it has it */
/* As op_astype to float32, where nothing else uses x: made in float32 from the start where the op
 * that makes it adds up in float32 anyway. */
Val op_wide(Build *b, Val x);
Val op_reshape(Build *b, Val x, const Dims *dims); /* x itself if it has them */
Val op_transpose(Build *b, Val x, const Dims *perm);
Val op_broadcast(Build *b, Val x, const Dims *dims, const Dims *at);
/* To `dims` by numpy's rule: dims align at the end. */
Val op_broadcast_to(Build *b, Val x, const Dims *dims);
/* A reduction over `axes`, kept as dims of size 1. */
Val op_reduce(Build *b, int op, Val x, const Dims *axes);
/* Over the last dim, kept as size 1; and back by broadcast to the dims of `like`. */
Val op_reduce_last(Build *b, int op, Val x);
Val op_broadcast_like(Build *b, Val x, Val like); /* same rank */
Val op_drop_last(Build *b, Val x);                /* reshape without the last dim, of size 1 */
Val op_add_last(Build *b, Val x);                 /* reshape with a last dim of size 1 */
/* A tangent or cotangent of v that is zero. */
Val op_zeros_like(Build *b, Val v, bool cotangent);
/* Explicit mode: v laid out as the type says, or as that of its cotangent; v itself if it is. */
Val op_lay_like(Build *b, Val v, const Type *like, bool cotangent);

/* ---- nodes that own regions; what they are called with fits the regions ---- */

/* A scan over the region, whose parameters are carries, slices of xs, constants, and whose results
 * are the next carries and ys. Every value of the region becomes a stacked result behind the ys:
 * the residuals of its gradient (simplify drops what nobody uses). */
Val op_scan(Build *b, int32_t region, const Val *in, int nin, const ScanAttr *attr);
/* Fills the last carries. Inside shard_map devices may differ in when they end: then all go on, and
 * those that are done keep their carries, until none is left. */
void op_while(Build *b, int32_t region, const Val *in, int nin, int64_t ncarry, Val *out);
/* Runs region in[0] (int32, clamped) of `region`; the other operands are the parameters
 * of each. Inside shard_map devices may differ in the index: then each runs its own where that is
 * known beforehand, and else all regions run, and each takes its own. `asked`: the latter is an
 * error. */
void op_cond(Build *b, const int32_t *region, int nregion, const Val *in, int nin, bool asked,
             Val *out);
/* Is the index known beforehand, as far as can be said where regions are being built? `asked`: an
 * error if not. */
bool op_cond_is_static(Build *b, Val index, bool asked);
/* A node over regions, its results typed by its flow; `length` of its stacks. */
Val op_control(Build *b, int op, const Val *in, int nin, const void *attr, const int32_t *region,
               int nregion, int nout, int64_t length);
/* Nobody may wait inside the regions for a device that does not come: an error that names the
 * collective, if one is over axes along which devices differ in what runs. */
void op_check_varying(Build *b, const char *what, const int32_t *region, int nregion,
                      uint32_t vary);
/* The parameters of the region in this order (all that are used must be there). */
void op_region_params(Build *b, int32_t region, const Val *param, int n);
Val op_region_param(Build *b, const Type *type); /* a parameter of the region that b stands in */

/* The attributes of the `full` that makes v, or NULL: a constant that folding knows. */
const FullAttr *op_full_attr(const Build *b, Val v);
Dims op_dims(const Build *b, Val v);
DType op_dtype(const Build *b, Val v);

/* Does the policy keep the results of the node, which stands in a remat stretch? */
bool remat_keeps(const Graph *g, const Span *span, const Node *n);

/* E_GRAD where the function of a span with a rule reads what is `active`, but not given to it: the
 * rule says nothing of that. */
Err custom_check_closed(const Graph *g, const Span *s, bool (*active)(const void *ud, Val v),
                        const void *ud) MUST_CHECK;

/* ---- examples (vmap): see BatchArgs ---- */
Val batch_operand(Build *b, const BatchArgs *a, int i); /* mapped, by broadcast if it is not */
Val batch_to_front(Build *b, Val x, int dim);           /* that dim becomes the first */
Val batch_from_front(Build *b, Val x, int dim);         /* the first becomes that dim */
/* The node's attributes where every tensor has one dim more in front: dims count one further,
 * shapes have the examples and other lists a 0 in front. */
void batch_shift(const BatchArgs *a, void *attr);
/* The node's op on other operands and attributes; its results are the batch's. */
void batch_apply(Build *b, const BatchArgs *a, const Val *in, const void *attr);
/* A rule: the op works alike whatever stands in front. */
void batch_leading(Build *b, const BatchArgs *a);

/* ---- rules that several families share ---- */
void op_factors_elementwise(const OpArgs *a, const Type *const *out, FactorRule *r);
/* All dims of all tensors align from the first one on; the last dim of
 * operand 0 cannot be split. */
void op_factors_last_whole(const OpArgs *a, const Type *const *out, FactorRule *r);
Err op_shape_same(const OpArgs *a, OutType *out, int *nout); /* every result as operand 0 */
bool op_view_same(ViewArgs *v);                              /* the result lies as operand 0 */
/* Where this device's part of a tensor begins along a dim; along all of them, for the node. */
Offset op_local_offset(const Layout *l, const Dims *dims, int d);
void op_local_offsets(LocalArgs *a, const Layout *l, const Dims *dims);
bool op_affine_same(const AffineArgs *a, Affine *out);       /* the result is operand 0 */
double op_no_flops(const OpArgs *a, const Type *const *out); /* elements only move */

#endif
