/* dynamic.c - slices whose place is computed. As in JAX, a start below 0 counts from the end, and
 * one is clamped so that the slice fits.
 * x may lie split along any dim. Each device gives what of a slice it has and zeros for the rest,
 * so that a slice of a split dim is a sum; and it writes what of an update falls into its part. */
#include "op/op.h"

#define CT (a->ct[0])

/* `dims`: of the slice. `global`: of the whole x, to which starts are clamped; none: x's. */
typedef struct DynamicAttr {
    Dims dims, global;
} DynamicAttr;

static const AttrField slice_fields[] = {
    ATTR_FIELD(DynamicAttr, ATTR_SHAPE, dims), ATTR_FIELD(DynamicAttr, ATTR_LIST, global), {0}};
static const AttrField update_fields[] = {ATTR_FIELD(DynamicAttr, ATTR_LIST, global), {0}};

static Err check(const OpArgs *a, int operand, const Dims *part) {
    const Type *starts = a->in[operand];
    const Dims *x = &a->in[0]->dims, *global = &((const DynamicAttr *)a->attr)->global;
    if (starts->dtype != DT_I32)
        return op_error(a, E_DTYPE, "the starts must be int32, not %s", dtype_name(starts->dtype));
    if (starts->dims.rank != 1 || starts->dims.at[0] != x->rank || part->rank != x->rank ||
        (global->rank && global->rank != x->rank))
        return op_error(a, E_SHAPE, "one start and one size per dim");
    for (int d = 0; d < x->rank; d++) {
        int64_t size = global->rank ? global->at[d] : x->at[d];
        if (part->at[d] < 0 || part->at[d] > size)
            return op_error(a, E_SHAPE, "%lld of dim %d, which has %lld", (long long)part->at[d],
                            d + 1, (long long)size);
    }
    return E_OK;
}

/* A dim that is taken whole is, on each device, a tensor of its own. */
static void local_dims(LocalArgs *a, const Dims *part) {
    Dims *global = &((DynamicAttr *)a->attr)->global;
    const Dims *x = &a->in[0]->dims;
    Dims local = layout_local(a->in_layout[0], x);
    *global = *x;
    a->noffset = x->rank;
    for (int d = 0; d < x->rank; d++) {
        bool whole = x->at[d] == part->at[d];
        if (whole) global->at[d] = local.at[d];
        a->offset[d] = (Offset){.unit = local.at[d]};
        if (!whole && a->in_layout[0]) a->offset[d].axes = a->in_layout[0]->dim[d].axes;
    }
}

static void lower(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const Dims *global = &((const DynamicAttr *)a->attr)->global;
    KDynamic *k = kernel_attr;
    for (int d = 0; d < a->in[0]->dims.rank; d++)
        k->size[d] = global->rank ? global->at[d] : a->in[0]->dims.at[d];
}

/* ---- many examples ---- */

/* Starts for all of them: they begin at 0 of the dim in front. */
static Val starts_with_zero(Build *b, Val starts) {
    Val zero = op_full(b, DT_I32, &(Dims){1, {1}}, attr_scalar_int(0));
    return build_op(b, OP_CONCAT, (Val[]){zero, starts}, 2, &(AxisAttr){0});
}

static Val clamp(Build *b, Val x, int64_t low, int64_t high) {
    Dims dims = op_dims(b, x);
    Val lo = op_full(b, DT_I32, &dims, attr_scalar_int(low));
    Val hi = op_full(b, DT_I32, &dims, attr_scalar_int(high));
    return op2(b, OP_MINIMUM, op2(b, OP_MAXIMUM, x, lo), hi);
}

/* Each example's start along a dim, counted from the end below 0 and clamped so that `part` of
 * `size` fits, as int32[examples, n]. */
static Val starts_along(Build *b, Val starts, int d, int64_t size, int64_t part, int64_t n) {
    Dims dims = op_dims(b, starts), wide = {2, {dims.at[0], n}};
    SliceAttr s = {{2, {0, d}}, {2, {dims.at[0], d + 1}}, {2, {1, 1}}};
    Val one = build_op(b, OP_SLICE, &starts, 1, &s), zero = op_const_like(b, one, 0);
    Val from_end = op2(b, OP_ADD, one, op_const_like(b, one, (double)size));
    one = op3(b, OP_WHERE, op2(b, OP_LT, one, zero), from_end, one);
    one = clamp(b, one, 0, size - part);
    return op_broadcast(b, one, &wide, &(Dims){2, {0, 1}});
}

static Val count_along(Build *b, Val like) {
    return build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, op_dims(b, like), 1});
}

static Val take_own(Build *b, Val x, Val ids, int axis) {
    Dims dims = op_dims(b, x);
    IndexAttr t = {.axes = {1, {axis}}, .size = {1, {dims.at[axis]}}};
    for (int d = 0; d < dims.rank; d++) {
        dims_push(&t.table, d == axis ? -1 : d);
        dims_push(&t.ids, d == axis ? 1 : d ? -1 : 0);
    }
    return build_op(b, OP_GATHER, (Val[]){x, ids}, 2, &t);
}

static void batch_slice(Build *b, const BatchArgs *a) {
    DynamicAttr attr = *(const DynamicAttr *)a->node->attr;
    Dims one = op_dims(b, a->node->in[0]), part = attr.dims;
    dims_insert(&attr.dims, 0, a->size);
    if (!a->mapped[1]) {
        batch_apply(b, a, (Val[]){a->in[0], starts_with_zero(b, a->in[1])}, &attr);
        return;
    }
    Val x = batch_operand(b, a, 0);
    for (int d = 0; d < one.rank; d++) {
        if (part.at[d] == one.at[d]) continue;
        Val first = starts_along(b, a->in[1], d, one.at[d], part.at[d], part.at[d]);
        x = take_own(b, x, op2(b, OP_ADD, first, count_along(b, first)), d + 1);
    }
    a->out[0] = x;
}

/* Where starts differ: each element of x looks where in the update it would stand. */
static void batch_update(Build *b, const BatchArgs *a) {
    DynamicAttr attr = *(const DynamicAttr *)a->node->attr;
    Val x = batch_operand(b, a, 0), u = batch_operand(b, a, 1), inside = 0;
    if (!a->mapped[2]) {
        batch_apply(b, a, (Val[]){x, u, starts_with_zero(b, a->in[2])}, &attr);
        return;
    }
    Dims one = op_dims(b, a->node->in[0]), part = op_dims(b, a->node->in[1]), all = op_dims(b, x);
    a->out[0] = x;
    if (dims_count(&part) == 0 || b->err) return;
    for (int d = 0; d < one.rank; d++) {
        if (part.at[d] == one.at[d]) continue;
        Val first = starts_along(b, a->in[2], d, one.at[d], part.at[d], one.at[d]);
        Val place = op2(b, OP_SUB, count_along(b, first), first);
        Val kept = clamp(b, place, 0, part.at[d] - 1);
        Val in = op_broadcast(b, op2(b, OP_EQ, place, kept), &all, &(Dims){2, {0, d + 1}});
        inside = inside ? op2(b, OP_BITAND, inside, in) : in;
        u = take_own(b, u, kept, d + 1);
    }
    a->out[0] = inside ? op3(b, OP_WHERE, inside, u, x) : u;
}

/* ---- dynamic_slice ---- */
static Err shape_slice(const OpArgs *a, OutType *out, int *nout) {
    const Dims *sizes = &((const DynamicAttr *)a->attr)->dims;
    TRY(check(a, 1, sizes));
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = *sizes};
    return E_OK;
}

static void vjp_slice(Build *b, const VjpArgs *a) {
    Dims dims = op_dims(b, a->in[0]);
    Val zeros = op_full(b, op_dtype(b, CT), &dims, attr_scalar_float(0));
    a->din[0] = build_op(b, OP_DYNAMIC_UPDATE_SLICE, (Val[]){zeros, CT, a->in[1]}, 3, NULL);
}

static void factors_slice(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *x = &a->in[0]->dims, *y = &out[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        bool whole = x->at[d] == y->at[d];
        int f = factor_add(r, whole ? FACTOR_PASS : FACTOR_SUM, x->at[d]);
        factor_map(r, 0, d, f);
        if (whole) factor_map(r, 2, d, f);
    }
}

static void local_slice(LocalArgs *a) {
    local_dims(a, &a->out[0]->dims);
    ((DynamicAttr *)a->attr)->dims = layout_local(a->out_layout[0], &a->out[0]->dims);
}

const OpDef op_row_DYNAMIC_SLICE = {
    .name = "dynamic_slice",
    .operands = "x,starts",
    .doc = "the part of x with these sizes that begins at the 0-based starts, clamped to fit",
    .nin = 2,
    .nout = 1,
    OP_ATTR(DynamicAttr, slice_fields),
    .shape = shape_slice,
    .vjp = vjp_slice,
    .batch = batch_slice,
    .factors = factors_slice,
    .local = local_slice,
    .flops = op_no_flops,
    .kernel = "dynamic_slice",
    OP_LOWER(KDynamic, lower),
    .linear = 1,
};

/* ---- dynamic_update_slice ---- */
static Err shape_update(const OpArgs *a, OutType *out, int *nout) {
    if (a->in[0]->dtype != a->in[1]->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    TRY(check(a, 2, &a->in[1]->dims));
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = a->in[0]->dims};
    return E_OK;
}

static void vjp_update(Build *b, const VjpArgs *a) {
    Dims update = op_dims(b, a->in[1]);
    Val zeros = op_full(b, op_dtype(b, CT), &update, attr_scalar_float(0));
    a->din[0] = build_op(b, OP_DYNAMIC_UPDATE_SLICE, (Val[]){CT, zeros, a->in[2]}, 3, NULL);
    a->din[1] =
        build_op(b, OP_DYNAMIC_SLICE, (Val[]){CT, a->in[2]}, 2, &(DynamicAttr){.dims = update});
}

static void factors_update(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *x = &a->in[0]->dims, *update = &a->in[1]->dims;
    for (int d = 0; d < x->rank; d++) {
        int f = factor_add(r, FACTOR_PASS, x->at[d]);
        factor_map(r, 0, d, f);
        factor_map(r, 3, d, f);
        if (x->at[d] == update->at[d]) factor_map(r, 1, d, f);
    }
}

static void local_update(LocalArgs *a) {
    local_dims(a, &a->in[1]->dims);
}

const OpDef op_row_DYNAMIC_UPDATE_SLICE = {
    .name = "dynamic_update_slice",
    .operands = "x,update,starts",
    .doc = "x with the part that begins at the 0-based starts, clamped to fit, replaced by update",
    .nin = 3,
    .nout = 1,
    .flags = OPF_JOINT | OPF_RESIZES,
    OP_ATTR(DynamicAttr, update_fields),
    .shape = shape_update,
    .vjp = vjp_update,
    .batch = batch_update,
    .factors = factors_update,
    .local = local_update,
    .flops = op_no_flops,
    .kernel = "dynamic_update_slice",
    OP_LOWER(KDynamic, lower),
    .linear = 3,
    .alias = {1},
};
