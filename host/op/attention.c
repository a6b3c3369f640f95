/* attention.c - scaled dot-product attention with grouped heads; which keys a query sees is told by
 * attributes and by operands that may be there (kernels/kernel.h). */
#include "op/attention.h"

#define CT (a->ct)

#define OPTION(name, i)                                                                            \
    { name, ATTR_FLAG, offsetof(AttentionAttr, has[i]), NULL }
static const AttrField fields[] = {ATTR_FIELD(AttentionAttr, ATTR_FLOAT, scale),
                                   ATTR_FIELD(AttentionAttr, ATTR_BOOL, causal),
                                   ATTR_FIELD(AttentionAttr, ATTR_SOME, window),
                                   ATTR_FIELD(AttentionAttr, ATTR_SOME, ahead),
                                   ATTR_FIELD(AttentionAttr, ATTR_NUMBER, soft_cap),
                                   OPTION("mask", K_ATTENTION_MASK),
                                   OPTION("dropout", K_ATTENTION_KEY),
                                   OPTION("bias", K_ATTENTION_BIAS),
                                   OPTION("lengths", K_ATTENTION_LENGTHS),
                                   OPTION("query_lengths", K_ATTENTION_QUERY_LENGTHS),
                                   OPTION("offset", K_ATTENTION_OFFSET),
                                   OPTION("query_segments", K_ATTENTION_QUERY_SEGMENTS),
                                   OPTION("segments", K_ATTENTION_SEGMENTS),
                                   ATTR_FIELD(AttentionAttr, ATTR_NUMBER, keep),
                                   ATTR_FIELD(AttentionAttr, ATTR_SOME, strides),
                                   ATTR_FIELD(AttentionAttr, ATTR_FLAG, bias_grad),
                                   {0}};

/* What a tensor's dims are. */
typedef enum Lies { QUERIES, KEYS, LSE, SCORES, ROWS, QUERY_IDS, KEY_IDS, WORDS } Lies;

/* The options' operands. A bias is of any float, and float64 where q is. */
static const struct {
    const char *name, *dims;
    DType dtype;
    Lies lies;
} options[K_ATTENTION_OPTIONS] = {
    {"mask", "[batch, heads, length, keys]", DT_BOOL, SCORES},
    {"key", "uint32[2]", DT_U32, WORDS},
    {"bias", "[batch, heads, length, keys]", DT_F32, SCORES},
    {"lengths", "[batch]", DT_I32, ROWS},
    {"query lengths", "[batch]", DT_I32, ROWS},
    {"offset", "[batch]", DT_I32, ROWS},
    {"segments of queries", "[batch, length]", DT_I32, QUERY_IDS},
    {"segments of keys", "[batch, keys]", DT_I32, KEY_IDS},
};

static Dims dims_of(const OpArgs *a, Lies lies) {
    const Dims *q = &a->in[0]->dims, *k = &a->in[1]->dims;
    switch (lies) {
    case QUERIES: return *q;
    case KEYS: return *k;
    case LSE: return (Dims){3, {q->at[0], q->at[2], q->at[1]}};
    case SCORES: return (Dims){4, {q->at[0], q->at[2], q->at[1], k->at[1]}};
    case ROWS: return (Dims){1, {q->at[0]}};
    case QUERY_IDS: return (Dims){2, {q->at[0], q->at[1]}};
    case KEY_IDS: return (Dims){2, {k->at[0], k->at[1]}};
    default: return (Dims){1, {2}};
    }
}

static Err check_options(const OpArgs *a, int inputs) {
    const AttentionAttr *t = a->attr;
    for (int i = 0; i < K_ATTENTION_OPTIONS; i++) {
        int at = attention_at(t, inputs, (KAttentionOption)i);
        if (!at) continue;
        const Type *type = a->in[at];
        Dims dims = dims_of(a, options[i].lies);
        bool fits = type->dtype == options[i].dtype;
        if (i == K_ATTENTION_BIAS)
            fits = dtype_is_float(type->dtype) &&
                   (type->dtype == DT_F64) == (a->in[0]->dtype == DT_F64);
        if (!fits && i != K_ATTENTION_KEY)
            return op_error(a, E_DTYPE, "the %s must be %s", options[i].name,
                            i == K_ATTENTION_BIAS ? "floats, float64 with those"
                                                  : dtype_name(options[i].dtype));
        if (!fits || !dims_equal(&type->dims, &dims))
            return op_error(a, fits && i != K_ATTENTION_KEY ? E_SHAPE : E_DTYPE,
                            "the %s must be %s", options[i].name, options[i].dims);
    }
    if (t->has[K_ATTENTION_QUERY_SEGMENTS] != t->has[K_ATTENTION_SEGMENTS])
        return op_error(a, E_VALUE, "segments of queries and of keys come together");
    if (!t->has[K_ATTENTION_KEY]) return E_OK;
    if (!(t->keep > 0 && t->keep <= 1))
        return op_error(a, E_VALUE, "keeps a share of %g; it must be in (0, 1]", t->keep);
    if (t->strides.rank != 4) return op_error(a, E_SHAPE, "four strides, of the scores' dims");
    return E_OK;
}

static Err check_numbers(const OpArgs *a) {
    const AttentionAttr *t = a->attr;
    const int64_t most = INT32_MAX / 2;
    if (t->window.rank && t->window.rank != 2)
        return op_error(a, E_VALUE,
                        "a window is two numbers, of keys to the left and to the right");
    for (int i = 0; i < t->window.rank; i++)
        if (t->window.at[i] < -1 || t->window.at[i] > most)
            return op_error(a, E_VALUE, "a window of %lld keys; it must be from 0, or -1, to %lld",
                            (long long)t->window.at[i], (long long)most);
    if (t->ahead.rank > 1 || (t->ahead.rank && (t->ahead.at[0] > most || t->ahead.at[0] < -most)))
        return op_error(a, E_VALUE, "ahead is one number, at most %lld", (long long)most);
    if (!(t->soft_cap >= 0)) return op_error(a, E_VALUE, "a soft cap is positive, or 0: none");
    return E_OK;
}

/* q [B,T,H,D], k and v [B,S,G,D] */
static Err check_qkv(const OpArgs *a, int inputs) {
    const AttentionAttr *t = a->attr;
    int nin = inputs;
    for (int i = 0; i < K_ATTENTION_OPTIONS; i++) nin += t->has[i];
    if (a->nin != nin)
        return op_error(a, E_VALUE, "%d operand%s; with what is said to be there %d", a->nin,
                        str_s(a->nin), nin);
    const Dims *q = &a->in[0]->dims, *k = &a->in[1]->dims, *v = &a->in[2]->dims;
    for (int i = 0; i < 3; i++) {
        DType dtype = a->in[i]->dtype;
        if (a->in[i]->dims.rank != 4)
            return op_error(a, E_SHAPE, "takes [batch, length, heads, head size]");
        if (!dtype_is_float(dtype) || (i == 2 && dtype != a->in[1]->dtype) ||
            (dtype == DT_F64) != (a->in[0]->dtype == DT_F64))
            return op_error(a, E_DTYPE,
                            "takes floats, k and v of one dtype, float64 for all or for none");
    }
    if (!dims_equal(k, v) || k->at[0] != q->at[0] || k->at[3] != q->at[3])
        return op_error(a, E_SHAPE, "q, k and v do not fit together");
    if (k->at[2] == 0 || q->at[2] % k->at[2] != 0)
        return op_error(
            a, E_SHAPE,
            "%lld query head%s for %lld key heads; the first must be a multiple of the second",
            (long long)q->at[2], str_s(q->at[2]), (long long)k->at[2]);
    if (t->causal && !t->ahead.rank && !t->has[K_ATTENTION_OFFSET] && k->at[1] < q->at[1])
        return op_error(a, E_SHAPE, "causal attention needs as many keys as queries, or an offset");
    TRY(check_numbers(a));
    return check_options(a, inputs);
}

static Err shape_attention(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_qkv(a, ATTENTION_INPUTS));
    out[0] = (OutType){a->in[0]->dtype, false, a->in[0]->dims};
    out[1] = (OutType){dtype_accumulator(a->in[0]->dtype), false, dims_of(a, LSE)};
    return E_OK;
}

static Err shape_attention_grad(const OpArgs *a, OutType *out, int *nout) {
    const AttentionAttr *t = a->attr;
    TRY(check_qkv(a, ATTENTION_GRAD_INPUTS));
    Dims lse = dims_of(a, LSE);
    if (!dims_equal(&a->in[3]->dims, &a->in[0]->dims) ||
        !dims_equal(&a->in[5]->dims, &a->in[0]->dims) || !dims_equal(&a->in[4]->dims, &lse))
        return op_error(a, E_SHAPE, "shapes differ");
    int bias = attention_at(t, ATTENTION_GRAD_INPUTS, K_ATTENTION_BIAS);
    if (t->bias_grad && !bias) return op_error(a, E_VALUE, "there is no bias");
    *nout = t->bias_grad ? 4 : 3;
    for (int i = 0; i < *nout; i++) {
        const Type *like = a->in[i < 3 ? i : bias];
        out[i] = (OutType){like->dtype, false, like->dims};
    }
    return E_OK;
}

/* The factors, as they are numbered: of the batch, key heads, members of a head's group, queries,
 * keys, depths. */
typedef struct Factors {
    int batch, head, member, query, key, depth;
} Factors;

/* Batch and heads pass; query heads are (key head, member of its group). Queries pass: what sees by
 * its place knows it (local_attention). Keys and the head size are whole. */
static void map_tensor(FactorRule *r, int t, Lies lies, const Factors *f, bool grouped) {
    if (lies == WORDS) {
        factor_map(r, t, 0, factor_add(r, FACTOR_REPLICATE, 2));
        return;
    }
    bool scores = lies == LSE || lies == SCORES; /* heads stand before the length */
    bool keys = lies == KEYS || lies == KEY_IDS;
    factor_map(r, t, 0, f->batch);
    if (lies == ROWS) return;
    factor_map(r, t, scores ? 2 : 1, keys ? f->key : f->query);
    if (lies == QUERY_IDS || lies == KEY_IDS) return;
    factor_map(r, t, scores ? 1 : 2, f->head);
    if (lies != KEYS && grouped) factor_map(r, t, scores ? 1 : 2, f->member);
    if (lies != LSE) factor_map(r, t, 3, scores ? f->key : f->depth);
}

/* What is made of keys adds up over queries, and over the members of a group. */
static void factors(const OpArgs *a, FactorRule *r, int inputs, const Lies *in, const Lies *out) {
    const AttentionAttr *attr = a->attr;
    const Dims *q = &a->in[0]->dims, *k = &a->in[1]->dims;
    bool grouped = q->at[2] != k->at[2];
    FactorKind over = out[1] == KEYS ? FACTOR_SUM : FACTOR_PASS;
    Factors f;
    f.batch = factor_add(r, FACTOR_PASS, q->at[0]);
    f.head = factor_add(r, FACTOR_PASS, k->at[2]);
    f.member = factor_add(r, over, q->at[2] / k->at[2]);
    f.query = factor_add(r, over, q->at[1]);
    f.key = factor_add(r, FACTOR_REPLICATE, k->at[1]);
    f.depth = factor_add(r, FACTOR_REPLICATE, q->at[3]);
    for (int t = 0; t < inputs; t++) map_tensor(r, t, in[t], &f, grouped);
    for (int i = 0; i < K_ATTENTION_OPTIONS; i++) {
        int t = attention_at(attr, inputs, (KAttentionOption)i);
        if (t) map_tensor(r, t, options[i].lies, &f, grouped);
    }
    for (int t = a->nin; t < r->ntensor; t++) map_tensor(r, t, out[t - a->nin], &f, grouped);
}

static void factors_attention(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, ATTENTION_INPUTS, (Lies[]){QUERIES, KEYS, KEYS}, (Lies[]){QUERIES, LSE});
}
static void factors_attention_grad(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, ATTENTION_GRAD_INPUTS, (Lies[]){QUERIES, KEYS, KEYS, QUERIES, LSE, QUERIES},
            (Lies[]){QUERIES, KEYS, KEYS, SCORES});
}

/* Where this device's first score stands in the global [B,H,T,S], and its first query among the
 * keys: the offsets count from that of the whole. */
static void local_attention(LocalArgs *a) {
    static const int dim[3] = {0, 2, 1}; /* of q */
    AttentionAttr *t = a->attr;
    const Layout *q = a->in_layout[0];
    bool placed = t->causal || t->window.rank || t->has[K_ATTENTION_QUERY_LENGTHS];
    if (!placed && !t->has[K_ATTENTION_KEY]) return;
    if (q && q->dim[1].axes.n && !t->ahead.rank)
        t->ahead = (Dims){1, {a->in[1]->dims.at[1] - a->in[0]->dims.at[1]}};
    for (int d = 0; d < 3; d++) a->offset[d] = op_local_offset(q, &a->in[0]->dims, dim[d]);
    a->offset[3] = (Offset){.unit = a->in[1]->dims.at[1]};
    a->noffset = 4;
}

/* 2 products forward, 5 in the gradient; the causal half counted as half, of a window what is in
 * it. */
static double flops_of(const OpArgs *a, double products) {
    const AttentionAttr *t = a->attr;
    const Dims *q = &a->in[0]->dims;
    double keys = (double)a->in[1]->dims.at[1];
    if (t->causal) keys /= 2;
    if (t->window.rank) {
        double left = t->window.at[0] < 0 ? keys : (double)t->window.at[0];
        double right = t->causal ? 0 : t->window.at[1] < 0 ? keys : (double)t->window.at[1];
        if (left + 1 + right < keys) keys = left + 1 + right;
    }
    return products * 2 * (double)(q->at[0] * q->at[2] * q->at[3]) * (double)q->at[1] * keys;
}
static double flops_attention(const OpArgs *a, const Type *const *out) {
    return flops_of(a, 2);
}
static double flops_attention_grad(const OpArgs *a, const Type *const *out) {
    return flops_of(a, 5);
}

static void lower(const OpArgs *a, KAttention *k, int inputs) {
    const AttentionAttr *t = a->attr;
    *k = (KAttention){.scale = t->scale,
                      .causal = t->causal,
                      .keep = t->keep,
                      .soft_cap = t->soft_cap,
                      .left = t->window.rank ? t->window.at[0] : -1,
                      .right = t->window.rank ? t->window.at[1] : -1,
                      .ahead = t->ahead.rank ? t->ahead.at[0]
                                             : a->in[1]->dims.at[1] - a->in[0]->dims.at[1]};
    for (int i = 0; i < K_ATTENTION_OPTIONS; i++)
        k->at[i] = attention_at(t, inputs, (KAttentionOption)i);
    for (int i = 0; i < t->strides.rank; i++) k->strides[i] = t->strides.at[i];
}
static void lower_attention(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    lower(a, kernel_attr, ATTENTION_INPUTS);
}
static void lower_attention_grad(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    lower(a, kernel_attr, ATTENTION_GRAD_INPUTS);
}

static void vjp_attention(Build *b, const VjpArgs *a) {
    enum { MOST = ATTENTION_GRAD_INPUTS + K_ATTENTION_OPTIONS };
    AttentionAttr attr = *(const AttentionAttr *)a->node->attr;
    Val in[MOST] = {a->in[0], a->in[1], a->in[2], a->out[0], a->out[1], CT[0]};
    int nin = a->node->nin + ATTENTION_GRAD_INPUTS - ATTENTION_INPUTS;
    for (int i = ATTENTION_GRAD_INPUTS; i < nin; i++)
        in[i] = a->in[i - ATTENTION_GRAD_INPUTS + ATTENTION_INPUTS];
    int bias = attention_at(&attr, ATTENTION_INPUTS, K_ATTENTION_BIAS);
    attr.bias_grad = bias && a->wanted >> bias & 1;
    Val d = build_op(b, OP_ATTENTION_GRAD, in, nin, &attr);
    for (int i = 0; d && i < 3; i++) a->din[i] = d + i;
    if (d && attr.bias_grad) a->din[bias] = d + 3;
}

/* Examples are more of the batch. With dropout they are not: each drops the same. */
static void batch_attention(Build *b, const BatchArgs *a) {
    enum { MOST = ATTENTION_GRAD_INPUTS + K_ATTENTION_OPTIONS };
    Val in[MOST];
    if (((const AttentionAttr *)a->node->attr)->has[K_ATTENTION_KEY]) return;
    for (int i = 0; i < a->node->nin; i++) {
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
    .doc =
        "softmax(scale q k^T) v per head of the keys that a query sees, and the log-sum-exp of the "
        "scores; behind v what is said to be there",
    .nin = -1,
    .nout = 2,
    OP_ATTR(AttentionAttr, fields),
    .shape = shape_attention,
    .vjp = vjp_attention,
    .batch = batch_attention,
    .expand = attention_define,
    .factors = factors_attention,
    .pads = PADS_PASS,
    .flops = flops_attention,
    .kernel = "attention",
    OP_LOWER(KAttention, lower_attention),
    .local = local_attention,
    .inner = 7,
    .grad_results = 1,
    .flags = OPF_SAVE | OPF_PRODUCT,
};

const OpDef op_row_ATTENTION_GRAD = {
    .name = "attention_grad",
    .operands = "q,k,v,y,lse,dy",
    .doc = "gradient of attention",
    .nin = -1,
    .nout = -1,
    OP_ATTR(AttentionAttr, fields),
    .shape = shape_attention_grad,
    .batch = batch_attention,
    .expand = attention_define_grad,
    .factors = factors_attention_grad,
    .pads = PADS_PASS,
    .flops = flops_attention_grad,
    .kernel = "attention_grad",
    OP_LOWER(KAttention, lower_attention_grad),
    .local = local_attention,
    .inner = 0x2f,
    .flags = OPF_INTERNAL | OPF_PRODUCT,
};
