/* apply.c - operands as they come from outside: numbers among tensors,
 * different dtypes and shapes. */
#include "op/op.h"

/* The dtype and weakness in which all operands from `first` on meet. */
static Err meet(const Build *b, int op, const Operand *in, int first, int nin, DType *dtype,
                bool *weak) {
    bool any = false;
    for (int i = first; i < nin; i++) {
        DType d = in[i].v ? op_dtype(b, in[i].v) : in[i].is_float ? DT_F32 : DT_I32;
        bool w = in[i].v ? graph_type(b->g, in[i].v)->weak : true;
        if (!any) {
            *dtype = d;
            *weak = w;
        } else {
            DType both = dtype_promote(*dtype, *weak, d, w);
            if (both == DT_COUNT)
                return err_set(b->g->cx, E_DTYPE, "%s: " DTYPE_APART, build_opdef(b, op)->name,
                               dtype_name(*dtype), dtype_name(d));
            *dtype = both;
            *weak = *weak && w;
        }
        any = true;
    }
    return E_OK;
}

static Err wrong_dtype(Build *b, int op, DType dtype) {
    return err_set(b->g->cx, E_DTYPE, "%s: %s operands; it takes integers and bool",
                   build_opdef(b, op)->name, dtype_name(dtype));
}

/* The dims that all operands broadcast to. */
static bool common_dims(Build *b, int op, const Operand *in, int nin, Dims *dims) {
    *dims = (Dims){0};
    for (int i = 0; i < nin; i++) {
        Dims d = op_dims(b, in[i].v), sofar = *dims;
        if (dims_broadcast(&sofar, &d, dims)) continue;
        const Type *types[8];
        OpArgs a = {b->g->cx, build_opdef(b, op), 0, types, NULL};
        for (int k = 0; k < nin && k < 8; k++)
            if (in[k].v) types[a.nin++] = graph_type(b->g, in[k].v);
        build_fail(b, op_error(&a, E_SHAPE, "shapes do not broadcast"));
        return false;
    }
    return true;
}

static Val bring(Build *b, int op, const Operand *o, DType dtype, bool weak, const Dims *dims) {
    if (o->v) {
        Val v = o->v;
        if (op_dtype(b, v) != dtype || (graph_type(b->g, v)->weak && !weak))
            v = build_op(b, OP_ASTYPE, &v, 1, &(DtypeAttr){(int32_t)dtype});
        return op_broadcast_to(b, v, dims);
    }
    double x = o->number.f;
    if (!dtype_is_float(dtype) && (x < dtype_lowest(dtype) || x > dtype_highest(dtype))) {
        build_fail(b, err_set(b->g->cx, E_VALUE, "%s: the number %.17g is out of range for %s",
                              build_opdef(b, op)->name, x, dtype_name(dtype)));
        return 0;
    }
    Val v = op_full(b, dtype, dims, o->number);
    if (weak) build_set_weak(b, v);
    return v;
}

/* A number alone becomes a scalar. */
static Val operand(Build *b, const Operand *o) {
    return o->v ? o->v : op_scalar(b, o->is_float ? DT_F32 : DT_I32, o->number);
}

Val op_apply(Build *b, int op, const Operand *in, int nin, const void *attr) {
    enum { MAX = 8 };
    const OpDef *def = build_opdef(b, op);
    Val v[MAX];
    if (def->promote == PROMOTE_NONE || nin > MAX) {
        Val few[64];
        ASSERT(nin <= 64, "%s: %d operands", def->name, nin);
        for (int i = 0; i < nin; i++) few[i] = operand(b, &in[i]);
        return build_op(b, op, few, nin, attr);
    }
    if (nin != def->nin) {
        build_fail(b, err_set(b->g->cx, E_VALUE, "%s: %d operand%s given, %d wanted (%s)",
                              def->name, nin, str_s(nin), def->nin, def->operands));
        return 0;
    }
    int first = def->promote == PROMOTE_BROADCAST ? 1 : 0;
    DType dtype = DT_F32;
    bool weak = false;
    Dims dims;
    Err err = meet(b, op, in, first, nin, &dtype, &weak);
    if (err) {
        build_fail(b, err);
        return 0;
    }
    if (def->promote == PROMOTE_NUMBER && dtype == DT_BOOL) dtype = DT_I32;
    if (def->promote == PROMOTE_FLOAT) dtype = dtype_to_float(dtype);
    if (def->promote == PROMOTE_INT && dtype_is_float(dtype)) {
        build_fail(b, wrong_dtype(b, op, dtype));
        return 0;
    }
    if (!common_dims(b, op, in, nin, &dims)) return 0;
    if (dtype == DT_BOOL && def->of_bool) op = def->of_bool;
    for (int i = 0; i < nin; i++) {
        bool cond = i < first;
        v[i] = bring(b, op, &in[i], cond ? DT_BOOL : dtype, weak && !cond, &dims);
    }
    return build_op(b, op, v, nin, attr);
}
