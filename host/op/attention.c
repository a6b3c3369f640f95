/* attention.c - scaled dot-product attention with grouped heads, and the same with a mask and
 * dropout. */
#include "op/op.h"

#include <math.h>

#define CT (a->ct)

typedef struct AttentionAttr {
    double scale;
    int32_t causal;
    double keep;  /* masked: of dropout, on the probabilities [B, H, T, S] */
    Dims strides; /* masked: of their global shape, in elements */
} AttentionAttr;

static const AttrField fields[] = {ATTR_FIELD(AttentionAttr, ATTR_FLOAT, scale),
                                   ATTR_FIELD(AttentionAttr, ATTR_BOOL, causal),
                                   {0}};
static const AttrField masked_fields[] = {ATTR_FIELD(AttentionAttr, ATTR_FLOAT, scale),
                                          ATTR_FIELD(AttentionAttr, ATTR_BOOL, causal),
                                          ATTR_FIELD(AttentionAttr, ATTR_FLOAT, keep),
                                          ATTR_FIELD(AttentionAttr, ATTR_LIST, strides),
                                          {0}};

/* The operand that is the mask, behind which the dropout's key stands; 0: none. */
static int mask_operand(int op) {
    return op == OP_MASKED_ATTENTION ? 3 : op == OP_MASKED_ATTENTION_GRAD ? 6 : 0;
}

/* mask [B,H,T,S], key [2] */
static Err check_mask(const OpArgs *a, int at) {
    const AttentionAttr *t = a->attr;
    const Dims *q = &a->in[0]->dims;
    const Type *mask = a->in[at], *key = a->in[at + 1];
    Dims dims = {4, {q->at[0], q->at[2], q->at[1], a->in[1]->dims.at[1]}};
    if (mask->dtype != DT_BOOL) return op_error(a, E_DTYPE, "the mask must be bool");
    if (!dims_equal(&mask->dims, &dims))
        return op_error(a, E_SHAPE, "the mask must be [batch, heads, length, keys]");
    if (key->dtype != DT_U32 || key->dims.rank != 1 || key->dims.at[0] != 2)
        return op_error(a, E_DTYPE, "the key must be uint32[2]");
    if (!(t->keep > 0 && t->keep <= 1))
        return op_error(a, E_VALUE, "keeps a share of %g; it must be in (0, 1]", t->keep);
    if (t->strides.rank != 4) return op_error(a, E_SHAPE, "four strides, of the mask's dims");
    return E_OK;
}

/* q [B,T,H,D], k and v [B,S,G,D] */
static Err check_qkv(const OpArgs *a) {
    const Dims *q = &a->in[0]->dims, *k = &a->in[1]->dims, *v = &a->in[2]->dims;
    for (int i = 0; i < 3; i++) {
        if (a->in[i]->dims.rank != 4)
            return op_error(a, E_SHAPE, "takes [batch, length, heads, head size]");
        if (!dtype_is_float(a->in[i]->dtype) || a->in[i]->dtype != a->in[0]->dtype)
            return op_error(a, E_DTYPE, "takes floats of one dtype");
    }
    if (!dims_equal(k, v) || k->at[0] != q->at[0] || k->at[3] != q->at[3])
        return op_error(a, E_SHAPE, "q, k and v do not fit together");
    if (k->at[2] == 0 || q->at[2] % k->at[2] != 0)
        return op_error(
            a, E_SHAPE,
            "%lld query head%s for %lld key heads; the first must be a multiple of the second",
            (long long)q->at[2], str_s(q->at[2]), (long long)k->at[2]);
    if (((const AttentionAttr *)a->attr)->causal && k->at[1] < q->at[1])
        return op_error(a, E_SHAPE, "causal attention needs as many keys as queries");
    return E_OK;
}

static OutType lse_type(const OpArgs *a) {
    const Dims *q = &a->in[0]->dims;
    return (OutType){
        dtype_accumulator(a->in[0]->dtype), false, {3, {q->at[0], q->at[2], q->at[1]}}};
}

static Err shape_attention(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_qkv(a));
    out[0] = (OutType){a->in[0]->dtype, false, a->in[0]->dims};
    out[1] = lse_type(a);
    return E_OK;
}

static Err shape_masked_attention(const OpArgs *a, OutType *out, int *nout) {
    TRY(shape_attention(a, out, nout));
    return check_mask(a, mask_operand(OP_MASKED_ATTENTION));
}

static Err shape_attention_grad(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_qkv(a));
    OutType lse = lse_type(a);
    if (!dims_equal(&a->in[3]->dims, &a->in[0]->dims) ||
        !dims_equal(&a->in[5]->dims, &a->in[0]->dims) || !dims_equal(&a->in[4]->dims, &lse.dims))
        return op_error(a, E_SHAPE, "shapes differ");
    for (int i = 0; i < *nout; i++) out[i] = (OutType){a->in[i]->dtype, false, a->in[i]->dims};
    return E_OK;
}

static Err shape_masked_attention_grad(const OpArgs *a, OutType *out, int *nout) {
    TRY(shape_attention_grad(a, out, nout));
    return check_mask(a, mask_operand(OP_MASKED_ATTENTION_GRAD));
}

/* Batch and heads pass; query heads are (key head, member of its group). Lengths and the
 * head size are whole. `lse` tells which tensor has dims [B,H,T], `mask` which, unless it is
 * 0, [B,H,T,S], with the key behind it; tensors 1, 2 and (in the gradient) results 1 and 2
 * are laid out as keys. */
static void factors(const OpArgs *a, FactorRule *r, int lse, int first_key_result, int mask) {
    const Dims *q = &a->in[0]->dims, *k = &a->in[1]->dims;
    int batch = factor_add(r, FACTOR_PASS, q->at[0]);
    int head = factor_add(r, FACTOR_PASS, k->at[2]);
    int member = factor_add(r, FACTOR_PASS, q->at[2] / k->at[2]);
    /* Causal rows must know their place; others stand alone, and keys'
     * gradients add up over them. */
    FactorKind rows = ((const AttentionAttr *)a->attr)->causal ? FACTOR_REPLICATE
                      : first_key_result                       ? FACTOR_SUM
                                                               : FACTOR_PASS;
    int t_len = factor_add(r, rows, q->at[1]);
    int s_len = factor_add(r, FACTOR_REPLICATE, k->at[1]);
    int size = factor_add(r, FACTOR_REPLICATE, q->at[3]);
    bool grouped = q->at[2] != k->at[2];
    for (int t = 0; t < r->ntensor; t++) {
        bool keys = t == 1 || t == 2 || (first_key_result && t >= first_key_result);
        bool scores = t == lse || (mask && t == mask); /* heads stand before the length */
        if (mask && t == mask + 1) {
            factor_map(r, t, 0, factor_add(r, FACTOR_REPLICATE, 2));
            continue;
        }
        factor_map(r, t, 0, batch);
        factor_map(r, t, scores ? 1 : 2, head);
        if (!keys && grouped) factor_map(r, t, scores ? 1 : 2, member);
        factor_map(r, t, scores ? 2 : 1, keys ? s_len : t_len);
        if (t != lse) factor_map(r, t, 3, scores ? s_len : size);
    }
    /* Keys have no members: their gradients add up over a group. */
    if (first_key_result) r->kind[member] = FACTOR_SUM;
}

static void factors_attention(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, 4, 0, 0);
}
static void factors_attention_grad(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, 4, 7, 0);
}
static void factors_masked_attention(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, 6, 0, mask_operand(OP_MASKED_ATTENTION));
}
static void factors_masked_attention_grad(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, 4, 9, mask_operand(OP_MASKED_ATTENTION_GRAD));
}

/* Where this device's first probability stands in the global [B,H,T,S]. */
static void local_masked(LocalArgs *a) {
    static const int dim[3] = {0, 2, 1}; /* of q */
    for (int d = 0; d < 3; d++)
        a->offset[d] = op_local_offset(a->in_layout[0], &a->in[0]->dims, dim[d]);
    a->offset[3] = (Offset){.unit = a->in[1]->dims.at[1]};
    a->noffset = 4;
}

/* 2 products forward, 5 in the gradient; the causal half counted as half. */
static double flops_of(const OpArgs *a, double products) {
    const Dims *q = &a->in[0]->dims;
    double pairs = (double)q->at[1] * (double)a->in[1]->dims.at[1];
    if (((const AttentionAttr *)a->attr)->causal) pairs /= 2;
    return products * 2 * (double)(q->at[0] * q->at[2] * q->at[3]) * pairs;
}
static double flops_attention(const OpArgs *a, const Type *const *out) {
    return flops_of(a, 2);
}
static double flops_attention_grad(const OpArgs *a, const Type *const *out) {
    return flops_of(a, 5);
}

static void lower_attention(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const AttentionAttr *t = a->attr;
    KAttention *k = kernel_attr;
    *k = (KAttention){t->scale, t->causal, t->keep, {0}};
    for (int i = 0; i < t->strides.rank; i++) k->strides[i] = t->strides.at[i];
}

static void vjp(Build *b, const VjpArgs *a, int grad) {
    Val in[8] = {a->in[0], a->in[1], a->in[2], a->out[0], a->out[1], CT[0]};
    int mask = mask_operand(grad);
    for (int i = 0; mask && i < 2; i++) in[mask + i] = a->in[3 + i];
    Val d = build_op(b, grad, in, mask ? 8 : 6, a->node->attr);
    for (int i = 0; d && i < 3; i++) a->din[i] = d + i;
}
static void vjp_attention(Build *b, const VjpArgs *a) {
    vjp(b, a, OP_ATTENTION_GRAD);
}
static void vjp_masked_attention(Build *b, const VjpArgs *a) {
    vjp(b, a, OP_MASKED_ATTENTION_GRAD);
}

/* ---- the definition ---- */
typedef struct Sizes {
    int64_t b, t, s, g, r, d; /* r: query heads per key head */
} Sizes;

static Sizes sizes_of(Build *b, const Val *in) {
    Dims q = op_dims(b, in[0]), k = op_dims(b, in[1]);
    if (b->err) return (Sizes){1, 1, 1, 1, 1, 1};
    return (Sizes){q.at[0], q.at[1], k.at[1], k.at[2], q.at[2] / k.at[2], q.at[3]};
}

static Val split_heads(Build *b, Val q, Sizes z) { /* [B,T,H,D] -> [B,T,G,R,D], accumulator dtype */
    Dims dims = {5, {z.b, z.t, z.g, z.r, z.d}};
    return op_reshape(b, op_astype(b, q, dtype_accumulator(op_dtype(b, q))), &dims);
}

static Val product(Build *b, Val x, Val w, MatmulAttr m) {
    return build_op(b, OP_MATMUL, (Val[]){x, w}, 2, &m);
}

/* [B,H,T,S] -> [B,G,T,R,S], as scores are, and back */
static Val split_scores(Build *b, Val x, Sizes z) {
    Dims dims = {5, {z.b, z.g, z.r, z.t, z.s}}, perm = {5, {0, 1, 3, 2, 4}};
    return op_transpose(b, op_reshape(b, x, &dims), &perm);
}
static Val merge_scores(Build *b, Val x, Sizes z) {
    Dims dims = {4, {z.b, z.g * z.r, z.t, z.s}}, perm = {5, {0, 1, 3, 2, 4}};
    return op_reshape(b, op_transpose(b, x, &perm), &dims);
}

/* Scores [B,G,T,R,S], -inf where a query may not look. */
static Val scores_of(Build *b, const Node *n, const Val *in, Val q, Val k, Sizes z) {
    const AttentionAttr *attr = n->attr;
    MatmulAttr m = {{1, {4}}, {1, {3}}, {2, {0, 2}}, {2, {0, 2}}, 0};
    int mask = mask_operand(n->op);
    Val s = product(b, q, k, m);
    s = op2(b, OP_MUL, s, op_const_like(b, s, attr->scale));
    if (mask) s = op3(b, OP_WHERE, split_scores(b, in[mask], z), s, op_const_like(b, s, -INFINITY));
    if (!attr->causal || !s) return s;
    Dims dims = op_dims(b, s);
    Val query = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, 2});
    Val key = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, 4});
    Val ahead = op_full(b, DT_I32, &dims, attr_scalar_int(z.s - z.t));
    Val sees = op2(b, OP_LE, key, op2(b, OP_ADD, query, ahead));
    return op3(b, OP_WHERE, sees, s, op_const_like(b, s, -INFINITY));
}

/* x, but `other` for the queries that look nowhere: x is -inf there, or all along its last dim. */
static Val where_none(Build *b, Val none, Val x, double other) {
    return op3(b, OP_WHERE, op_broadcast_like(b, none, x), op_const_like(b, x, other), x);
}
static Val is_none(Build *b, Val x) {
    return op2(b, OP_EQ, x, op_const_like(b, x, -INFINITY));
}

/* The probabilities, from which dropout has taken some. */
static Val dropped(Build *b, const Node *n, const Val *in, Val p, Sizes z) {
    const AttentionAttr *attr = n->attr;
    int mask = mask_operand(n->op);
    if (!mask || attr->keep == 1) return p;
    Val v[2] = {merge_scores(b, p, z), in[mask + 1]};
    Val d = build_op(b, OP_DROPOUT, v, 2, &(DropoutAttr){attr->keep, attr->strides});
    if (d && n->noffset) build_set_offsets(b, d, n->offset, n->noffset);
    return split_scores(b, d, z);
}

static Val lse_of(Build *b, Val scores, Sizes z) { /* [B,G,T,R,S] -> [B,H,T] */
    Val max = op1(b, OP_STOP_GRADIENT, op_reduce_last(b, OP_MAX, scores));
    Val e = op1(b, OP_EXP, op2(b, OP_SUB, scores, op_broadcast_like(b, max, scores)));
    Val lse = op2(b, OP_ADD, max, op1(b, OP_LOG, op_reduce_last(b, OP_SUM, e)));
    Dims perm = {4, {0, 1, 3, 2}}, dims = {3, {z.b, z.g * z.r, z.t}};
    return op_reshape(b, op_transpose(b, op_drop_last(b, lse), &perm), &dims);
}

static Val lse_to_scores(Build *b, Val lse, Val scores, Sizes z) { /* the way back, broadcast */
    Dims dims = {4, {z.b, z.g, z.r, z.t}}, perm = {4, {0, 1, 3, 2}};
    Val x = op_transpose(b, op_reshape(b, lse, &dims), &perm);
    return op_broadcast_like(b, op_add_last(b, x), scores);
}

static Val merge_heads(Build *b, Val y, Sizes z, DType dtype) { /* [B,G,T,R,D] -> [B,T,H,D] */
    Dims perm = {5, {0, 2, 1, 3, 4}}, dims = {4, {z.b, z.t, z.g * z.r, z.d}};
    return op_astype(b, op_reshape(b, op_transpose(b, y, &perm), &dims), dtype);
}

static void expand_attention(Build *b, const Node *n, const Val *in, Val *out) {
    Sizes z = sizes_of(b, in);
    DType dtype = op_dtype(b, in[0]), acc = dtype_accumulator(dtype);
    Val q = split_heads(b, in[0], z), k = op_astype(b, in[1], acc), v = op_astype(b, in[2], acc);
    Val s = scores_of(b, n, in, q, k, z), none = 0;
    if (mask_operand(n->op)) { /* who may look nowhere looks at all keys alike */
        none = is_none(b, op_reduce_last(b, OP_MAX, s));
        s = where_none(b, none, s, 0);
    }
    Val lse = lse_of(b, s, z);
    Val p = op1(b, OP_EXP, op2(b, OP_SUB, s, lse_to_scores(b, lse, s, z)));
    MatmulAttr m = {{1, {4}}, {1, {1}}, {2, {0, 1}}, {2, {0, 2}}, 0};
    out[0] = merge_heads(b, product(b, dropped(b, n, in, p, z), v, m), z, dtype);
    Dims perm = {4, {0, 1, 3, 2}}, dims = {3, {z.b, z.g * z.r, z.t}};
    if (none) none = op_reshape(b, op_transpose(b, op_drop_last(b, none), &perm), &dims);
    out[1] = none ? where_none(b, none, lse, -INFINITY) : lse;
}

/* p = exp(s - lse); ds = p * (dy v^T - rowsum(dy * y)); dq = ds k, dk = ds^T q, dv = p^T dy. */
static void expand_attention_grad(Build *b, const Node *n, const Val *in, Val *out) {
    Sizes z = sizes_of(b, in);
    DType dtype = op_dtype(b, in[0]), acc = dtype_accumulator(dtype);
    double scale = ((const AttentionAttr *)n->attr)->scale;
    Val q = split_heads(b, in[0], z), k = op_astype(b, in[1], acc), v = op_astype(b, in[2], acc);
    Val y = split_heads(b, in[3], z), dy = split_heads(b, in[5], z);
    Val s = scores_of(b, n, in, q, k, z), lse = lse_to_scores(b, in[4], s, z), none = 0;
    if (mask_operand(n->op)) {
        none = is_none(b, lse);
        s = where_none(b, none, s, 0);
        lse = where_none(b, none, lse, log((double)z.s));
    }
    Val p = op1(b, OP_EXP, op2(b, OP_SUB, s, lse));
    MatmulAttr with_keys = {{1, {4}}, {1, {3}}, {2, {0, 2}}, {2, {0, 2}}, 0};
    Val dp = dropped(b, n, in, product(b, dy, v, with_keys), z); /* [B,G,T,R,S] */
    Dims perm = {5, {0, 2, 1, 3, 4}};
    Val dot = op_transpose(b, op_reduce_last(b, OP_SUM, op2(b, OP_MUL, dy, y)), &perm);
    Val ds = op2(b, OP_MUL, p, op2(b, OP_SUB, dp, op_broadcast_like(b, dot, dp)));
    ds = op2(b, OP_MUL, ds, op_const_like(b, ds, scale));
    if (none) ds = where_none(b, none, ds, 0);
    p = dropped(b, n, in, p, z);
    MatmulAttr over_keys = {{1, {4}}, {1, {1}}, {2, {0, 1}}, {2, {0, 2}}, 0};
    out[0] = merge_heads(b, product(b, ds, k, over_keys), z, dtype);
    /* [B,G,T,R,S] x [B,T,G,R,D] over T and R -> [B,G,S,D] -> [B,S,G,D] */
    MatmulAttr over_queries = {{2, {2, 3}}, {2, {1, 3}}, {2, {0, 1}}, {2, {0, 2}}, 0};
    Dims back = {4, {0, 2, 1, 3}};
    out[1] = op_astype(b, op_transpose(b, product(b, ds, q, over_queries), &back), dtype);
    out[2] = op_astype(b, op_transpose(b, product(b, p, dy, over_queries), &back), dtype);
}

/* Examples are more of the batch. With dropout they are not: each drops the same. */
static void batch_attention(Build *b, const BatchArgs *a) {
    Val in[8];
    int mask = mask_operand(a->node->op), key = mask ? mask + 1 : -1;
    if (mask && ((const AttentionAttr *)a->node->attr)->keep < 1) return;
    for (int i = 0; i < a->node->nin; i++) {
        if (i == key) {
            in[i] = a->in[i];
            continue;
        }
        in[i] = batch_operand(b, a, i);
        Dims one = op_dims(b, a->node->in[i]);
        one.at[0] *= a->size;
        in[i] = op_reshape(b, in[i], &one);
    }
    batch_apply(b, a, in, a->node->attr);
    for (int i = 0; i < a->node->nout; i++) {
        Dims dims = op_dims(b, a->node->out + i);
        dims_insert(&dims, 0, a->size);
        a->out[i] = op_reshape(b, a->out[i], &dims);
    }
}

const OpDef op_row_ATTENTION = {
    .name = "attention",
    .operands = "q,k,v",
    .doc = "softmax(scale q k^T) v per head, and the log-sum-exp of the scores",
    .nin = 3,
    .nout = 2,
    OP_ATTR(AttentionAttr, fields),
    .shape = shape_attention,
    .vjp = vjp_attention,
    .batch = batch_attention,
    .expand = expand_attention,
    .factors = factors_attention,
    .pads = PADS_PASS,
    .flops = flops_attention,
    .kernel = "attention",
    OP_LOWER(KAttention, lower_attention),
    .inner = 7,
    .grad_results = 1,
    .flags = OPF_SAVE | OPF_PRODUCT,
};

const OpDef op_row_ATTENTION_GRAD = {
    .name = "attention_grad",
    .operands = "q,k,v,y,lse,dy",
    .doc = "gradient of attention",
    .nin = 6,
    .nout = 3,
    OP_ATTR(AttentionAttr, fields),
    .shape = shape_attention_grad,
    .batch = batch_attention,
    .expand = expand_attention_grad,
    .factors = factors_attention_grad,
    .pads = PADS_PASS,
    .flops = flops_attention_grad,
    .kernel = "attention_grad",
    OP_LOWER(KAttention, lower_attention),
    .inner = 0x2f,
    .flags = OPF_INTERNAL | OPF_PRODUCT,
};

const OpDef op_row_MASKED_ATTENTION = {
    .name = "masked_attention",
    .operands = "q,k,v,mask,key",
    .doc = "attention where the mask lets look, the probabilities after dropout with the key",
    .nin = 5,
    .nout = 2,
    OP_ATTR(AttentionAttr, masked_fields),
    .shape = shape_masked_attention,
    .vjp = vjp_masked_attention,
    .batch = batch_attention,
    .expand = expand_attention,
    .factors = factors_masked_attention,
    .pads = PADS_PASS,
    .flops = flops_attention,
    .kernel = "masked_attention",
    OP_LOWER(KAttention, lower_attention),
    .local = local_masked,
    .shared = 1 << 4,
    .inner = 7,
    .grad_results = 1,
    .flags = OPF_SAVE | OPF_PRODUCT,
};

const OpDef op_row_MASKED_ATTENTION_GRAD = {
    .name = "masked_attention_grad",
    .operands = "q,k,v,y,lse,dy,mask,key",
    .doc = "gradient of masked_attention",
    .nin = 8,
    .nout = 3,
    OP_ATTR(AttentionAttr, masked_fields),
    .shape = shape_masked_attention_grad,
    .batch = batch_attention,
    .expand = expand_attention_grad,
    .factors = factors_masked_attention_grad,
    .pads = PADS_PASS,
    .flops = flops_attention_grad,
    .kernel = "masked_attention_grad",
    OP_LOWER(KAttention, lower_attention),
    .local = local_masked,
    .shared = 1 << 7,
    .inner = 0x2f,
    .flags = OPF_INTERNAL | OPF_PRODUCT,
};
