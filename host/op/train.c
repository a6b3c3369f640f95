/* train.c - dropout and the AdamW update. */
#include "op/op.h"

#define CT        (a->ct)
#define ADD(x, y) op2(b, OP_ADD, (x), (y))
#define SUB(x, y) op2(b, OP_SUB, (x), (y))
#define MUL(x, y) op2(b, OP_MUL, (x), (y))
#define DIV(x, y) op2(b, OP_DIV, (x), (y))

/* ---- dropout ---- */
static const AttrField dropout_fields[] = {
    ATTR_FIELD(DropoutAttr, ATTR_FLOAT, keep), ATTR_FIELD(DropoutAttr, ATTR_LIST, strides), {0}};

static Err shape_dropout(const OpArgs *a, OutType *out, int *nout) {
    const DropoutAttr *d = a->attr;
    if (!dtype_is_float(a->in[0]->dtype)) return op_error(a, E_DTYPE, "takes floats");
    if (a->in[1]->dtype != DT_U32 || a->in[1]->dims.rank != 1 || a->in[1]->dims.at[0] != 2)
        return op_error(a, E_DTYPE, "the key must be uint32[2]");
    if (!(d->keep > 0 && d->keep <= 1))
        return op_error(a, E_VALUE, "keeps a share of %g; it must be in (0, 1]", d->keep);
    if (d->strides.rank != a->in[0]->dims.rank) return op_error(a, E_SHAPE, "one stride per dim");
    return op_shape_same(a, out, nout);
}

static void vjp_dropout(Build *b, const VjpArgs *a) {
    a->din[0] = build_op(b, OP_DROPOUT, (Val[]){CT[0], a->in[1]}, 2, a->node->attr);
}

/* Kept where the 23 high bits, as a number in [0, 1), are below `keep`: jax.random.bernoulli. */
static void expand_dropout(Build *b, const Node *n, const Val *in, Val *out) {
    const DropoutAttr *d = n->attr;
    Val x = in[0], word[2];
    Dims dims = op_dims(b, x), none = {0};
    for (int i = 0; i < 2; i++) {
        SliceAttr s = {{1, {i}}, {1, {i + 1}}, {1, {1}}};
        Val one = build_op(b, OP_SLICE, &in[1], 1, &s);
        word[i] = op_broadcast_to(b, op_reshape(b, one, &none), &dims);
    }
    Val bits = build_op(b, OP_RANDOM_BITS, word, 2, &(RandomAttr){32, d->strides});
    if (bits && n->noffset) build_set_offsets(b, bits, n->offset, n->noffset);
    Val nine = op_full(b, DT_U32, &dims, attr_scalar_int(9));
    Val one = op_full(b, DT_U32, &dims, attr_scalar_int(0x3f800000));
    Val f = op2(b, OP_BITOR, op2(b, OP_SHR, bits, nine), one);
    f = build_op(b, OP_BITCAST, &f, 1, &(DtypeAttr){DT_F32});
    f = SUB(f, op_const_like(b, f, 1));
    Val kept = op2(b, OP_LT, f, op_const_like(b, f, d->keep));
    Val scaled = DIV(x, op_const_like(b, x, d->keep));
    out[0] = op3(b, OP_WHERE, kept, scaled, op_const_like(b, x, 0));
}

static void factors_dropout(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *x = &out[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        int f = factor_add(r, FACTOR_PASS, x->at[d]);
        factor_map(r, 0, d, f);
        factor_map(r, 2, d, f);
    }
    factor_map(r, 1, 0, factor_add(r, FACTOR_REPLICATE, 2));
}

static void local_dropout(LocalArgs *a) {
    op_local_offsets(a, a->in_layout[0], &a->in[0]->dims);
}

static Val fold_dropout(Build *b, const Node *n, const Val *in) {
    return ((const DropoutAttr *)n->attr)->keep == 1 ? in[0] : 0;
}

static double flops_dropout(const OpArgs *a, const Type *const *out) {
    return 60 * (double)type_count(out[0]);
}

static void lower_dropout(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const DropoutAttr *d = a->attr;
    KDropout *k = kernel_attr;
    k->keep = d->keep;
    for (int i = 0; i < d->strides.rank; i++) k->strides[i] = d->strides.at[i];
}

const OpDef op_row_DROPOUT = {
    .name = "dropout",
    .operands = "x,key",
    .doc = "x / keep with probability keep, else 0: a pure function of key and global index",
    .nin = 2,
    .nout = 1,
    OP_ATTR(DropoutAttr, dropout_fields),
    .shape = shape_dropout,
    .vjp = vjp_dropout,
    .batch = batch_leading,
    .shared = 2,
    .expand = expand_dropout,
    .factors = factors_dropout,
    .pads = PADS_PASS,
    .local = local_dropout,
    .fold = fold_dropout,
    .flops = flops_dropout,
    .kernel = "dropout",
    OP_LOWER(KDropout, lower_dropout),
    .linear = 1,
    .alias = {1},
};

typedef struct AdamwAttr {
    double b1, b2, eps, eps_root, decay;
} AdamwAttr;

/* ---- adamw (Loshchilov & Hutter 2019, with optax's order of operations) ---- */
static const AttrField adamw_fields[] = {
    ATTR_FIELD(AdamwAttr, ATTR_FLOAT, b1),    ATTR_FIELD(AdamwAttr, ATTR_FLOAT, b2),
    ATTR_FIELD(AdamwAttr, ATTR_FLOAT, eps),   ATTR_FIELD(AdamwAttr, ATTR_FLOAT, eps_root),
    ATTR_FIELD(AdamwAttr, ATTR_FLOAT, decay), {0}};

static Err shape_adamw(const OpArgs *a, OutType *out, int *nout) {
    static const int like_p[3] = {0, 2, 3};
    for (int i = 1; i < 4; i++)
        if (!dims_equal(&a->in[i]->dims, &a->in[0]->dims))
            return op_error(a, E_SHAPE, "parameter, gradient and moments differ");
    DType acc = dtype_accumulator(a->in[0]->dtype);
    for (int i = 0; i < 4; i++)
        if (!dtype_is_float(a->in[i]->dtype) || dtype_accumulator(a->in[i]->dtype) != acc)
            return op_error(a, E_DTYPE, "takes floats, either all of float64 or none");
    for (int i = 4; i < 7; i++)
        if (a->in[i]->dims.rank || (a->in[i]->dtype != DT_F32 && a->in[i]->dtype != acc))
            return op_error(a, E_SHAPE, "lr, step and clip must be scalars of float32%s",
                            acc == DT_F64 ? " or float64" : "");
    for (int i = 0; i < 3; i++) out[i] = (OutType){a->in[like_p[i]]->dtype, false, a->in[0]->dims};
    return E_OK;
}

static void expand_adamw(Build *b, const Node *n, const Val *in, Val *out) {
    const AdamwAttr *t = n->attr;
    DType acc = dtype_accumulator(op_dtype(b, in[0]));
    Val v[7];
    for (int i = 0; i < 7; i++) {
        v[i] = op_astype(b, in[i], acc);
        if (i >= 4) v[i] = op_broadcast_like(b, v[i], v[0]);
    }
    Val p = v[0], g = MUL(v[1], v[6]), lr = v[4], step = v[5];
#define K(c) op_const_like(b, p, (c))
    Val mu = ADD(MUL(K(t->b1), v[2]), MUL(K(1 - t->b1), g));
    Val nu = ADD(MUL(K(t->b2), v[3]), MUL(K(1 - t->b2), op1(b, OP_SQUARE, g)));
    Val m_hat = DIV(mu, SUB(K(1), op2(b, OP_POW, K(t->b1), step)));
    Val n_hat = DIV(nu, SUB(K(1), op2(b, OP_POW, K(t->b2), step)));
    Val u = DIV(m_hat, ADD(op1(b, OP_SQRT, ADD(n_hat, K(t->eps_root))), K(t->eps)));
    p = SUB(p, MUL(lr, ADD(u, MUL(K(t->decay), p))));
#undef K
    Val made[3] = {p, mu, nu}, when = op2(b, OP_GE, step, op_const_like(b, step, 1));
    for (int i = 0; i < 3; i++) {
        Val before = in[i ? i + 1 : 0];
        out[i] = op3(b, OP_WHERE, when, op_astype(b, made[i], op_dtype(b, before)), before);
    }
}

static void factors_adamw(const OpArgs *a, const Type *const *out, FactorRule *r) {
    for (int d = 0; d < out[0]->dims.rank; d++) {
        int f = factor_add(r, FACTOR_PASS, out[0]->dims.at[d]);
        for (int t = 0; t < r->ntensor; t++)
            if (t < 4 || t >= 7) factor_map(r, t, d, f);
    }
}

static double flops_adamw(const OpArgs *a, const Type *const *out) {
    return 14 * (double)type_count(out[0]);
}

const OpDef op_row_ADAMW = {
    .name = "adamw",
    .operands = "p,g,mu,nu,lr,step,clip",
    .doc =
        "one AdamW update of a parameter and its two moments; g is multiplied by clip; with step 0 "
        "they stay",
    .nin = 7,
    .nout = 3,
    .flags = OPF_COMBINES,
    OP_ATTR(AdamwAttr, adamw_fields),
    .shape = shape_adamw,
    .batch = batch_leading,
    .shared = 0x70,
    .expand = expand_adamw,
    .factors = factors_adamw,
    .pads = PADS_PASS,
    .flops = flops_adamw,
    .kernel = "adamw",
    .alias = {1, 3, 4},
};
