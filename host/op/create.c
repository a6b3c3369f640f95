/* create.c - values made from nothing, or from a key and the index. They cost nothing to repeat, so
 * passes copy them per use, and each device makes its own part. */
#include "op/op.h"

#include "ir/program.h"

static void local_offsets(LocalArgs *a) {
    op_local_offsets(a, a->out_layout[0], &a->out[0]->dims);
}

static int emit_offsets(Emit *e, const Node *n, int rank) {
    int first = e->offset.n;
    for (int d = 0; d < rank; d++)
        program_offset(e, n->noffset ? &n->offset[d] : &(Offset){.unit = 0});
    return first;
}

/* ---- full ---- */
static const AttrField full_fields[] = {ATTR_FIELD(FullAttr, ATTR_DTYPE, dtype),
                                        ATTR_FIELD(FullAttr, ATTR_SHAPE, dims),
                                        ATTR_FIELD(FullAttr, ATTR_SCALAR, value),
                                        {0}};

static Err shape_full(const OpArgs *a, OutType *out, int *nout) {
    const FullAttr *f = a->attr;
    out[0] = (OutType){(DType)f->dtype, false, f->dims};
    return E_OK;
}

static void local_full(LocalArgs *a) {
    ((FullAttr *)a->attr)->dims = layout_local(a->out_layout[0], &a->out[0]->dims);
}

static void emit_full(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    const FullAttr *f = n->attr;
    program_set(e, n->out, program_imm(e, out[0]->dtype, &f->value));
}

static bool affine_full(const AffineArgs *a, Affine *out) {
    affine_constant(out, ((const FullAttr *)a->n->attr)->value.i);
    return true;
}

const OpDef op_row_FULL = {
    .name = "full",
    .operands = "",
    .doc = "every element the same number",
    .nin = 0,
    .nout = 1,
    .flags = OPF_ELEMENTWISE | OPF_NULLARY | OPF_NO_GRAD,
    OP_ATTR(FullAttr, full_fields),
    .shape = shape_full,
    .factors = op_factors_elementwise,
    .local = local_full,
    .affine = affine_full,
    .emit = emit_full,
};

/* ---- iota ---- */
static const AttrField iota_fields[] = {ATTR_FIELD(IotaAttr, ATTR_DTYPE, dtype),
                                        ATTR_FIELD(IotaAttr, ATTR_SHAPE, dims),
                                        ATTR_FIELD(IotaAttr, ATTR_DIM, dim),
                                        {0}};

static Err shape_iota(const OpArgs *a, OutType *out, int *nout) {
    const IotaAttr *f = a->attr;
    if (f->dtype == DT_BOOL) return op_error(a, E_DTYPE, "cannot count in bool");
    if (f->dim < 0 || f->dim >= f->dims.rank)
        return op_error(a, E_SHAPE, "dim %d of a shape of rank %d", f->dim + 1, f->dims.rank);
    double last = (double)f->dims.at[f->dim] - 1;
    if (!dtype_is_float((DType)f->dtype) && last > dtype_highest((DType)f->dtype))
        return op_error(a, E_VALUE, "%.0f does not fit in %s", last, dtype_name((DType)f->dtype));
    out[0] = (OutType){(DType)f->dtype, false, f->dims};
    return E_OK;
}

static void local_iota(LocalArgs *a) {
    ((IotaAttr *)a->attr)->dims = layout_local(a->out_layout[0], &a->out[0]->dims);
    local_offsets(a);
}

static void emit_iota(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    int dim = ((const IotaAttr *)n->attr)->dim;
    uint16_t dst = program_reg(e);
    int first = emit_offsets(e, n, out[0]->dims.rank);
    program_instr(e, KI_IOTA, program_ktype(out[0]->dtype), dst, dim, first + dim, 0, 0);
    program_set(e, n->out, dst);
}

static bool affine_iota(const AffineArgs *a, Affine *out) {
    int dim = ((const IotaAttr *)a->n->attr)->dim;
    affine_constant(out, 0);
    out->sum.dim[dim] = 1;
    if (!a->n->noffset) return true;
    const Offset *o = &a->n->offset[dim];
    return affine_add_place(out, a->mesh, &o->axes, o->unit);
}

const OpDef op_row_IOTA = {
    .name = "iota",
    .operands = "",
    .doc = "0, 1, 2, ... along one dim",
    .nin = 0,
    .nout = 1,
    .flags = OPF_ELEMENTWISE | OPF_NULLARY | OPF_NO_GRAD,
    OP_ATTR(IotaAttr, iota_fields),
    .shape = shape_iota,
    .factors = op_factors_elementwise,
    .local = local_iota,
    .affine = affine_iota,
    .emit = emit_iota,
};

/* ---- random_bits, threefry (Salmon et al. 2011; JAX's partitionable use of it) ---- */
static const AttrField random_fields[] = {
    ATTR_FIELD(RandomAttr, ATTR_INT, bits), ATTR_FIELD(RandomAttr, ATTR_LIST, strides), {0}};

static Err check_words(const OpArgs *a) {
    for (int i = 0; i < a->nin; i++) {
        if (a->in[i]->dtype != DT_U32) return op_error(a, E_DTYPE, "takes uint32 words");
        if (!dims_equal(&a->in[i]->dims, &a->in[0]->dims))
            return op_error(a, E_SHAPE, "shapes differ");
    }
    return E_OK;
}

static Err shape_random_bits(const OpArgs *a, OutType *out, int *nout) {
    const RandomAttr *r = a->attr;
    TRY(check_words(a));
    if (r->strides.rank != a->in[0]->dims.rank) return op_error(a, E_SHAPE, "one stride per dim");
    if (r->bits != 32 && r->bits != 64) return op_error(a, E_VALUE, "bits is 32 or 64");
    out[0] = (OutType){r->bits == 32 ? DT_U32 : DT_I64, false, a->in[0]->dims};
    return E_OK;
}

static void emit_random_bits(Emit *e, const Node *n, const Type *const *in,
                             const Type *const *out) {
    const RandomAttr *r = n->attr;
    uint16_t dst = program_reg(e);
    int first = emit_offsets(e, n, out[0]->dims.rank), imm = e->imm.n;
    for (int d = 0; d < r->strides.rank; d++) program_imm_int(e, r->strides.at[d]);
    program_instr(e, KI_RANDOM_BITS, program_ktype(out[0]->dtype), dst, program_reg_of(e, n->in[0]),
                  program_reg_of(e, n->in[1]), first, imm);
    program_set(e, n->out, dst);
}

const OpDef op_row_RANDOM_BITS = {
    .name = "random_bits",
    .operands = "k0,k1",
    .doc = "random words: a pure function of the key and the element's global index",
    .nin = 2,
    .nout = 1,
    .flags = OPF_ELEMENTWISE | OPF_NO_GRAD,
    OP_ATTR(RandomAttr, random_fields),
    .shape = shape_random_bits,
    .factors = op_factors_elementwise,
    .local = local_offsets,
    .emit = emit_random_bits,
};

static Err shape_threefry(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_words(a));
    out[0] = (OutType){DT_I64, false, a->in[0]->dims};
    return E_OK;
}

static void emit_threefry(Emit *e, const Node *n, const Type *const *in, const Type *const *out) {
    uint16_t dst = program_reg(e);
    program_instr(e, KI_THREEFRY, KT_I64, dst, program_reg_of(e, n->in[0]),
                  program_reg_of(e, n->in[1]), program_reg_of(e, n->in[2]),
                  program_reg_of(e, n->in[3]));
    program_set(e, n->out, dst);
}

const OpDef op_row_THREEFRY = {
    .name = "threefry",
    .operands = "k0,k1,hi,lo",
    .doc = "threefry2x32 of key (k0, k1) at counter (hi, lo), as o0 << 32 | o1",
    .nin = 4,
    .nout = 1,
    .flags = OPF_ELEMENTWISE | OPF_NO_GRAD,
    .shape = shape_threefry,
    .factors = op_factors_elementwise,
    .emit = emit_threefry,
};
