#include "pass/partition/pad.h"

#include <math.h>

int64_t pad_size(const Layout *l, const Dims *global, int dim) {
    return layout_local(l, global).at[dim] * layout_parts(l, dim);
}

static Val number(Build *b, DType dtype, double x) {
    return op_scalar(b, dtype,
                     dtype_is_float(dtype) ? attr_scalar_float(x) : attr_scalar_int((int64_t)x));
}

Val pad_gather(Build *b, Val v, int dim, const AxisList *axes, int64_t size) {
    v = build_op(b, OP_ALL_GATHER, &v, 1, &(GatherAttr){dim, *axes});
    if (!v) return 0;
    SliceAttr cut = {.limit = op_dims(b, v)};
    cut.start.rank = cut.step.rank = cut.limit.rank;
    for (int d = 0; d < cut.limit.rank; d++) cut.step.at[d] = 1;
    cut.limit.at[dim] = size;
    return build_op(b, OP_SLICE, &v, 1, &cut);
}

Val pad_slice(Build *b, Val v, int dim, const AxisList *axes, int64_t padded) {
    if (!v) return 0;
    Dims have = op_dims(b, v);
    DType dtype = op_dtype(b, v);
    PadAttr pad = {.low.rank = have.rank, .high.rank = have.rank, .interior.rank = have.rank};
    pad.high.at[dim] = padded - have.at[dim];
    v = build_op(b, OP_PAD, (Val[]){v, number(b, dtype, dtype_is_float(dtype) ? NAN : 1)}, 2, &pad);
    v = build_op(b, OP_ALL_SLICE, &v, 1, &(GatherAttr){dim, *axes});
    Offset offset = {.axes = *axes, .unit = padded / axes_product(axes)};
    build_set_offsets(b, v, &offset, 1);
    return v;
}

/* What changes no sum, maximum, minimum. */
static Scalar identity(DType dtype, FactorKind kind) {
    bool max = kind == FACTOR_MAX;
    if (kind == FACTOR_SUM) return attr_scalar_int(0);
    if (dtype_is_float(dtype)) return attr_scalar_float(max ? -INFINITY : INFINITY);
    return attr_scalar_int(max ? k_dtype_least(dtype) : k_dtype_greatest(dtype));
}

Val pad_mask(Build *b, Val v, int dim, const AxisList *axes, int64_t size, FactorKind kind) {
    DType dtype = op_dtype(b, v);
    Dims dims = op_dims(b, v);
    Offset offset[MAX_RANK];
    for (int d = 0; d < dims.rank; d++) offset[d] = (Offset){.unit = dims.at[d]};
    offset[dim].axes = *axes;
    Val place = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, dim});
    build_set_offsets(b, place, offset, dims.rank);
    Val inside = op2(b, OP_LT, place, op_full(b, DT_I32, &dims, attr_scalar_int(size)));
    return op3(b, OP_WHERE, inside, v, op_full(b, dtype, &dims, identity(dtype, kind)));
}
