/* attention_define.c - attention and its gradient by definition, in simpler ops (attention.h). */
#include "op/attention.h"

#include <math.h>

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

static Val option(const Node *n, const Val *in, KAttentionOption o) {
    int at = attention_at(n->attr, attention_inputs(n->op), o);
    return at ? in[at] : 0;
}

/* x of dims `at` of the scores [B,G,T,R,S], broadcast to them. */
static Val to_scores(Build *b, Val x, Dims at, Val scores) {
    Dims dims = op_dims(b, scores);
    return op_broadcast(b, x, &dims, &at);
}
static Val count(Build *b, Val scores, int dim) { /* 0, 1, ... along a dim */
    Dims dims = op_dims(b, scores);
    return build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, dim});
}
static Val both(Build *b, Val x, Val y) {
    return x && y ? op2(b, OP_BITAND, x, y) : x ? x : y;
}
static Val plus(Build *b, Val x, int64_t n) { /* int32 */
    Dims dims = op_dims(b, x);
    return op2(b, OP_ADD, x, op_full(b, DT_I32, &dims, attr_scalar_int(n)));
}

/* By their places: causal, and within the window. 0: everywhere. */
static Val sees_near(Build *b, const Node *n, const Val *in, Val s, Sizes z) {
    const AttentionAttr *t = n->attr;
    Val query = count(b, s, 2), key = count(b, s, 4), sees = 0;
    Val offset = option(n, in, K_ATTENTION_OFFSET);
    if (offset)
        query = op2(b, OP_ADD, query, to_scores(b, offset, (Dims){1, {0}}, s));
    else
        query = plus(b, query, t->ahead.rank ? t->ahead.at[0] : z.s - z.t);
    if (t->causal) sees = op2(b, OP_LE, key, query);
    if (t->window.rank && t->window.at[0] >= 0)
        sees = both(b, sees, op2(b, OP_LE, plus(b, query, -t->window.at[0]), key));
    if (t->window.rank && t->window.at[1] >= 0)
        sees = both(b, sees, op2(b, OP_LE, key, plus(b, query, t->window.at[1])));
    return sees;
}

/* Where a query sees a key, of the scores' dims; 0: everywhere. */
static Val sees_of(Build *b, const Node *n, const Val *in, Val s, Sizes z) {
    const AttentionAttr *t = n->attr;
    Val mask = option(n, in, K_ATTENTION_MASK), lengths = option(n, in, K_ATTENTION_LENGTHS);
    Val rows = option(n, in, K_ATTENTION_QUERY_LENGTHS);
    Val queries = option(n, in, K_ATTENTION_QUERY_SEGMENTS);
    Val sees = mask ? split_scores(b, mask, z) : 0;
    if (t->causal || t->window.rank) sees = both(b, sees, sees_near(b, n, in, s, z));
    if (lengths)
        sees =
            both(b, sees, op2(b, OP_LT, count(b, s, 4), to_scores(b, lengths, (Dims){1, {0}}, s)));
    if (rows)
        sees = both(b, sees, op2(b, OP_LT, count(b, s, 2), to_scores(b, rows, (Dims){1, {0}}, s)));
    if (queries) {
        Val keys = to_scores(b, option(n, in, K_ATTENTION_SEGMENTS), (Dims){2, {0, 4}}, s);
        sees = both(b, sees, op2(b, OP_EQ, to_scores(b, queries, (Dims){2, {0, 2}}, s), keys));
    }
    return sees;
}

/* May a query see no key at all? */
static bool may_see_none(const AttentionAttr *t) {
    int any = t->window.rank + t->ahead.rank;
    for (int i = 0; i < K_ATTENTION_OPTIONS; i++)
        any += t->has[i] && i != K_ATTENTION_KEY && i != K_ATTENTION_BIAS;
    return any != 0;
}

/* Scores [B,G,T,R,S], -inf where a query may not look; in *capped the tanh of the soft cap. */
static Val scores_of(Build *b, const Node *n, const Val *in, Val q, Val k, Sizes z, Val *capped) {
    const AttentionAttr *attr = n->attr;
    MatmulAttr m = {{1, {4}}, {1, {3}}, {2, {0, 2}}, {2, {0, 2}}, 0};
    Val s = product(b, q, k, m), bias = option(n, in, K_ATTENTION_BIAS);
    s = op2(b, OP_MUL, s, op_const_like(b, s, attr->scale));
    if (attr->soft_cap != 0) {
        *capped = op1(b, OP_TANH, op2(b, OP_DIV, s, op_const_like(b, s, attr->soft_cap)));
        s = op2(b, OP_MUL, *capped, op_const_like(b, s, attr->soft_cap));
    }
    if (bias) s = op2(b, OP_ADD, s, op_astype(b, split_scores(b, bias, z), op_dtype(b, s)));
    Val sees = s ? sees_of(b, n, in, s, z) : 0;
    return sees ? op3(b, OP_WHERE, sees, s, op_const_like(b, s, -INFINITY)) : s;
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
    Val key = option(n, in, K_ATTENTION_KEY);
    if (!key || attr->keep == 1) return p;
    Val v[2] = {merge_scores(b, p, z), key};
    Val d = build_op(b, OP_DROPOUT, v, 2, &(DropoutAttr){attr->keep, attr->strides});
    return split_scores(b, d, z);
}

/* [B,G,T,R,S] -> [B,G,T,R,1]; 0 where there are no scores (`none`). */
static Val lse_of(Build *b, Val scores, Val max, Val none) {
    if (none) max = where_none(b, none, max, 0);
    Val e = op1(b, OP_EXP, op2(b, OP_SUB, scores, op_broadcast_like(b, max, scores)));
    Val sum = op_reduce_last(b, OP_SUM, e);
    if (none) sum = where_none(b, none, sum, 1);
    return op2(b, OP_ADD, max, op1(b, OP_LOG, sum));
}
static Val lse_out(Build *b, Val lse, Sizes z) { /* -> [B,H,T] */
    Dims perm = {4, {0, 1, 3, 2}}, dims = {3, {z.b, z.g * z.r, z.t}};
    return op_reshape(b, op_transpose(b, op_drop_last(b, lse), &perm), &dims);
}

static Val lse_in(Build *b, Val lse, Sizes z) { /* the way back */
    Dims dims = {4, {z.b, z.g, z.r, z.t}}, perm = {4, {0, 1, 3, 2}};
    return op_add_last(b, op_transpose(b, op_reshape(b, lse, &dims), &perm));
}

static Val merge_heads(Build *b, Val y, Sizes z, DType dtype) { /* [B,G,T,R,D] -> [B,T,H,D] */
    Dims perm = {5, {0, 2, 1, 3, 4}}, dims = {4, {z.b, z.t, z.g * z.r, z.d}};
    return op_astype(b, op_reshape(b, op_transpose(b, y, &perm), &dims), dtype);
}

void attention_define(Build *b, const Node *n, const Val *in, Val *out) {
    Sizes z = sizes_of(b, in);
    DType dtype = op_dtype(b, in[0]), acc = dtype_accumulator(dtype);
    Val q = split_heads(b, in[0], z), k = op_astype(b, in[1], acc), v = op_astype(b, in[2], acc);
    Val ignored, s = scores_of(b, n, in, q, k, z, &ignored), none = 0;
    Val max = op1(b, OP_STOP_GRADIENT, op_reduce_last(b, OP_MAX, s));
    if (may_see_none(n->attr)) none = is_none(b, max);
    Val lse = lse_of(b, s, max, none);
    Val p = op1(b, OP_EXP, op2(b, OP_SUB, s, op_broadcast_like(b, lse, s)));
    MatmulAttr m = {{1, {4}}, {1, {1}}, {2, {0, 1}}, {2, {0, 2}}, 0};
    out[0] = merge_heads(b, product(b, dropped(b, n, in, p, z), v, m), z, dtype);
    out[1] = lse_out(b, none ? where_none(b, none, lse, -INFINITY) : lse, z);
}

/* p = exp(s - lse); ds = p * (dy v^T - rowsum(dy * y)); dq = ds k, dk = ds^T q, dv = p^T dy. */
void attention_define_grad(Build *b, const Node *n, const Val *in, Val *out) {
    Sizes z = sizes_of(b, in);
    DType dtype = op_dtype(b, in[0]), acc = dtype_accumulator(dtype), of_keys = op_dtype(b, in[1]);
    const AttentionAttr *attr = n->attr;
    Val q = split_heads(b, in[0], z), k = op_astype(b, in[1], acc), v = op_astype(b, in[2], acc);
    Val y = split_heads(b, in[3], z), dy = split_heads(b, in[5], z), capped = 0;
    Val s = scores_of(b, n, in, q, k, z, &capped), lse = lse_in(b, in[4], z);
    if (may_see_none(attr)) lse = where_none(b, is_none(b, lse), lse, 0);
    Val p = op1(b, OP_EXP, op2(b, OP_SUB, s, op_broadcast_like(b, lse, s)));
    MatmulAttr with_keys = {{1, {4}}, {1, {3}}, {2, {0, 2}}, {2, {0, 2}}, 0};
    Val dp = dropped(b, n, in, product(b, dy, v, with_keys), z); /* [B,G,T,R,S] */
    Dims perm = {5, {0, 2, 1, 3, 4}};
    Val dot = op_transpose(b, op_reduce_last(b, OP_SUM, op2(b, OP_MUL, dy, y)), &perm);
    Val ds = op2(b, OP_MUL, p, op2(b, OP_SUB, dp, op_broadcast_like(b, dot, dp)));
    int bias = attention_at(attr, ATTENTION_GRAD_INPUTS, K_ATTENTION_BIAS);
    if (attr->bias_grad) out[3] = op_astype(b, merge_scores(b, ds, z), op_dtype(b, in[bias]));
    if (capped) {
        Val slope = op2(b, OP_SUB, op_const_like(b, ds, 1), op2(b, OP_MUL, capped, capped));
        ds = op2(b, OP_MUL, ds, slope);
    }
    ds = op2(b, OP_MUL, ds, op_const_like(b, ds, attr->scale));
    p = dropped(b, n, in, p, z);
    MatmulAttr over_keys = {{1, {4}}, {1, {1}}, {2, {0, 1}}, {2, {0, 2}}, 0};
    out[0] = merge_heads(b, product(b, ds, k, over_keys), z, dtype);
    /* [B,G,T,R,S] x [B,T,G,R,D] over T and R -> [B,G,S,D] -> [B,S,G,D] */
    MatmulAttr over_queries = {{2, {2, 3}}, {2, {1, 3}}, {2, {0, 1}}, {2, {0, 2}}, 0};
    Dims back = {4, {0, 2, 1, 3}};
    out[1] = op_astype(b, op_transpose(b, product(b, ds, q, over_queries), &back), of_keys);
    out[2] = op_astype(b, op_transpose(b, product(b, p, dy, over_queries), &back), of_keys);
}
